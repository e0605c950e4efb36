//! Days: how rows come from where they wait into files that anyone can read.

use crate::wire;

/// A row in its place: what quality is folded from, and a line of a day's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The agent that sent it.
    pub agent: String,
    /// The agent's group when it was placed; empty: none.
    pub group: String,
    /// Its stream.
    pub stream: String,
    /// The batch's number in the stream, from 1.
    pub sequence: u64,
    /// The row's place in the batch, from 0.
    pub number: u32,
    /// When it ended, ns since 1970 (UTC) by the manager's clock: `zero_ns` and the row's own moment.
    pub at_ns: u64,
    /// What the manager's clock showed at the zero of the row's moments, ns since 1970.
    pub zero_ns: u64,
    /// The agent's own wall clock less the manager's, ns.
    pub clock_off_ns: i64,
    /// Share of the connections that were sent when it was: it stands for 1 / share rows.
    pub share: f64,
    /// The row as it was sent.
    pub row: wire::Row,
}
