//! Coordinates the shards of a load (`bench --shard I/N --coordinate nats://HOST`): a common start, progress, the end of
//! all, the difference of their clocks, and the results, by messages over NATS.
//!
//! ```text
//!   machine of shard 3                                      machine of shard 0
//!   yamabiko bench    --lines-->  coordinator  == NATS ==   coordinator  --lines--> yamabiko bench
//!   (load, recorder)  <-lines--   (Member)                  (Leader)     <-lines--  (load, then merge)
//! ```
//!
//! [`Leader`] and [`Member`] are state machines: time and messages are arguments, what they want done are [`Effect`]s.
//! They hold under loss, duplication and reordering of messages because both sides repeat their state instead of
//! sending events once. [`nats`] gives them a connection; it runs in a process of its own ([`pipe`]), so that neither
//! the connection nor this crate is in the process that makes the load.
#![cfg_attr(feature = "nats", allow(clippy::disallowed_methods, reason = "the client owns the clock and the waiting"))]

mod address;
mod clock;
mod leader;
mod member;
pub mod message;
#[cfg(feature = "nats")]
pub mod nats;
pub mod pipe;
pub mod record;
mod search_leader;
mod search_member;

use std::time::Duration;

use schema::ShardsProgress;
use schema::document::ClockOffsets;

pub use self::address::Address;
pub use self::leader::Leader;
pub use self::member::Member;
use self::message::{Ended, FromMember, Prepared, Progress, ToMembers};
pub use self::search_leader::SearchLeader;
pub use self::search_member::SearchMember;

/// What identifies a shard and its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number of the shard, from 0; the leader is 0.
    pub index: u32,
    /// Number of shards.
    pub count: u32,
    /// A random number that tells two processes of the same shard apart.
    pub instance: u64,
    /// Version of the program.
    pub version: String,
    /// Digest of the plan of the whole load.
    pub plan_digest: String,
    /// Name of the machine, for people.
    pub host: String,
}

/// One reading of this machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time since any zero that is the same for one state machine.
    pub monotonic: Duration,
    /// The wall clock, nanoseconds since 1970.
    pub wall_ns: u64,
}

/// What happens on the machine itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// The connection to NATS is established, or was lost.
    Connected(bool),
    /// Progress of the own load.
    Progress(Progress),
    /// The user interrupted the own load.
    Interrupted,
    /// The own load ended with a result.
    Ended(Ended),
    /// The own load ended without a result: why.
    Failed(String),
    /// The own run was sent (a member): its name in the object store, or why not.
    Sent(Result<String, String>),
    /// A member's run was received (the leader).
    Fetched {
        /// The member's shard.
        index: u32,
        /// Why not, if it was not.
        result: Result<(), String>,
    },
    /// The next trial of the search (the leader).
    Trial(Trial),
    /// The trial that [`Effect::Trial`] requested is prepared (a member).
    Prepared(Prepared),
    /// The search has no further trial (the leader): why it ended early, or nothing.
    Finish(String),
}

/// A trial of a search, as the leader begins it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Number of the trial, from 1; each is above the last.
    pub number: u32,
    /// What varies from trial to trial: text that the shards' processes understand.
    pub request: String,
    /// What the leader prepared.
    pub prepared: Prepared,
}

/// What a state machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Publish to the leader.
    ToLeader(FromMember),
    /// Publish to the members.
    ToMembers(ToMembers),
    /// Begin the own load at this time of the own wall clock.
    Start {
        /// Nanoseconds since 1970.
        at_ns: u64,
    },
    /// End the own load, as Ctrl-C would.
    Abort(String),
    /// Tell the user.
    Note(String),
    /// Progress of all shards, about once a second.
    Summary(Summary),
    /// What is known of each shard, about once a second and at the end.
    Shards(Box<ShardsProgress>),
    /// Measured offset of the own clock; follows before the start and after the end.
    Clock(ClockOffsets),
    /// Send the own run to the object store (a member).
    Send(Ended),
    /// Fetch a member's run (the leader).
    Fetch {
        /// The member's shard.
        index: u32,
        /// What the member has.
        ended: Ended,
    },
    /// Prepare this trial of the search (a member).
    Trial {
        /// Number of the trial.
        number: u32,
        /// What varies from trial to trial.
        request: String,
    },
    /// The trial has ended, or was not started (the leader); the search goes on with [`Local::Trial`] or ends with
    /// [`Local::Finish`].
    TrialOver(Over),
    /// Nothing more follows.
    Over(Over),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Every shard's run was received (the leader), or the leader has the own run (a member).
    Complete,
    /// There was no start: why.
    NotStarted(String),
    /// The load was made, and something is missing: what.
    Incomplete(Vec<String>),
}

/// Progress of all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Shards that are heard, the leader included.
    pub heard: u32,
    /// Shards of the load.
    pub count: u32,
    /// Sums over the last progress of each shard.
    pub total: Progress,
}

/// Interval of each side's repeated messages.
pub const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The same before a start, of the start and of its confirmations: of a trial's start they have 1.5 s to pass.
pub(crate) const START_REPEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Silence after which the other side counts as lost, while the own connection is established. A coordinator runs at
/// low priority and is late on a busy machine: ten missed messages are not chance.
pub const LOST_AFTER: Duration = Duration::from_secs(10);
/// Longest wait for all shards to be ready.
pub const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between the decision and the start of the load: messages arrive, and every machine reads its plan's files.
pub const START_LEAD: Duration = Duration::from_secs(6);
/// The same for a trial of a search, which every shard has prepared once, in addition to the longest preparation.
pub const TRIAL_START_LEAD: Duration = Duration::from_millis(3_500);
/// Time before the start at which every shard must have confirmed it.
pub const CONFIRM_LEAD: Duration = Duration::from_secs(2);
/// Time after which a member that was in the last trial of a search must have announced itself for the next one.
pub const REJOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without a connection to NATS after the own load.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time to collect the results.
pub const COLLECT_TIMEOUT: Duration = Duration::from_secs(600);

/// A shard as text: `3/8`.
pub(crate) fn name(index: u32, count: u32) -> String {
    format!("{index}/{count}")
}
