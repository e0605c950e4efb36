//! The leader's state of one member.

use std::time::Duration;

use super::table::Reports;
use schema::document::ClockOffset;

/// State of one member; the default is that of a member that has not announced itself.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberState {
    /// Its process.
    pub instance: Option<u64>,
    /// Name of its machine.
    pub host: String,
    /// When it was last heard.
    pub heard: Duration,
    /// Offset of its clock, once it is ready.
    pub ready: Option<ClockOffset>,
    /// Time that it took to prepare the trial of a search.
    pub preparation: Duration,
    /// Whether it has the start.
    pub is_confirmed: bool,
    /// Its reports so far.
    pub reports: Reports,
    /// Whether it has been silent for too long.
    pub is_lost: bool,
    /// How its load ended.
    pub end: End,
}

/// How a member's load ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// It has not ended.
    #[default]
    Open,
    /// Its run is being received.
    Fetching,
    /// Its run was received, or was not: the reason.
    Known(Option<String>),
}
