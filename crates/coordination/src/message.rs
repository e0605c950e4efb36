//! Messages between leader and members, as JSON. Each is at most [`BYTES_MAX`] long, in both directions; what a person
//! reads of another machine is cut to [`TEXT_MAX`] characters.

use serde::{Deserialize, Serialize};

use schema::document::ClockOffset;
use schema::{RunPhase, ShardResponseTime};

/// A message of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromMember {
    /// The member's shard.
    pub index: u32,
    /// The member's process.
    pub instance: u64,
    /// Number of the search's trial, from 1; 0 for a load that is not of a search.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trial: u32,
    /// Its content.
    pub body: MemberBody,
}

/// Content of a message from a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MemberBody {
    /// It is there; repeated until it is welcome or refused.
    Announce {
        /// Number of shards.
        count: u32,
        /// Version of the program.
        version: String,
        /// Digest of its plan.
        plan_digest: String,
        /// Name of its machine.
        host: String,
    },
    /// A round trip begins.
    Ping {
        /// Number of the round trip.
        sequence: u64,
    },
    /// Its clock is measured, and it still prepares the trial; repeated.
    Preparing,
    /// Its clock is measured, its trial is prepared, and it waits for the start; repeated.
    Ready {
        /// Offset of its clock.
        clock: ClockOffset,
        /// What it prepared; empty for a load that is not of a search, whose plan was compared before.
        #[serde(default)]
        prepared: Prepared,
    },
    /// It has the start, and its load waits, runs, or is being stored; repeated.
    Running {
        /// The start that it has, nanoseconds since 1970.
        start_ns: u64,
        /// Counts so far.
        progress: Progress,
    },
    /// Its load ended; repeated until taken.
    Ended(Outcome),
    /// It leaves before the start, for this reason.
    Left {
        /// One sentence.
        why: String,
    },
}

/// A trial that a shard is ready to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepared {
    /// Digest of the trial's plan, with the contents of its files.
    pub digest: String,
    /// Time that the preparation took (files, names), in milliseconds: the load needs as long again before its start.
    pub took_ms: u64,
}

/// How a member's load ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// With a result.
    Result(Ended),
    /// Without one: why.
    Failed(String),
}

/// A run that ended with a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// The run's id.
    pub run: String,
    /// Its folder on the member's machine.
    pub dir: String,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Its name in the object store; absent if it could not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Why it could not be sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_sent: String,
}

/// A load so far. Counts are since the run's zero, the warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Time of the counts since the run's zero, in milliseconds.
    #[serde(default)]
    pub at_ms: u64,
    /// Phase of the run.
    #[serde(default)]
    pub phase: RunPhase,
    /// Requests scheduled.
    pub offered: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Response times of the measured phase; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time: Option<ShardResponseTime>,
}

/// A message of the leader, to all members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToMembers {
    /// The leader's process.
    pub leader: u64,
    /// Grows with every message of a trial: an older one is ignored.
    pub sequence: u64,
    /// Number of the search's trial, from 1, or [`AFTER_LAST_TRIAL`]; 0 for a load that is not of a search.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trial: u32,
    /// What varies from trial to trial, as text of at most [`REQUEST_MAX`] bytes; with the state of a trial.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// Its content.
    pub body: LeaderBody,
}

/// Content of a message from the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LeaderBody {
    /// The state of the load; repeated.
    State(Stage),
    /// An announcement is accepted.
    Welcome {
        /// The member's shard.
        index: u32,
        /// Its process.
        instance: u64,
    },
    /// An announcement is refused.
    Refused {
        /// The member's shard.
        index: u32,
        /// Its process.
        instance: u64,
        /// One sentence.
        why: String,
    },
    /// The leader's clock.
    Pong {
        /// The member's shard.
        index: u32,
        /// Its process.
        instance: u64,
        /// Number of the round trip.
        sequence: u64,
        /// The leader's wall clock when it read the ping, nanoseconds since 1970.
        leader_ns: u64,
    },
    /// The member's end was received, and its run if there is one.
    Taken {
        /// The member's shard.
        index: u32,
        /// Its process.
        instance: u64,
        /// Why its run was not received; empty if it was.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
}

/// The state of the whole load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Stage {
    /// Not all shards are ready.
    Gathering,
    /// The start is set.
    Start {
        /// Wall clock, nanoseconds since 1970.
        at_ns: u64,
        /// Whether the loss of a shard ends the load of all.
        abort_on_lost: bool,
    },
    /// The load is ended for this reason.
    Aborted {
        /// One sentence.
        why: String,
    },
    /// The search has no further trial.
    Finished {
        /// Why it ended early; empty if it was completed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
}

impl Progress {
    /// Adds the counts of another shard.
    pub fn add(&mut self, other: Progress) {
        for (own, other) in [
            (&mut self.offered, other.offered),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.in_flight, other.in_flight),
        ] {
            *own = own.saturating_add(other);
        }
    }
}

/// A message as bytes. Texts are cut so that it fits.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

/// Reads a message of another machine; `None` for anything that is none.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// Text of another machine, or for one: at most [`TEXT_MAX`] characters, without control characters.
pub fn text(text: &str) -> String {
    let is_plain = |letter: &char| !letter.is_control();
    text.chars().filter(is_plain).take(TEXT_MAX).collect()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Number of a trial that stands for the end of the search: above that of every trial.
pub const AFTER_LAST_TRIAL: u32 = u32::MAX;
/// Longest request of a trial, in bytes.
pub const REQUEST_MAX: usize = 4 << 10;
/// Longest message in bytes.
pub const BYTES_MAX: usize = 16 << 10;
/// Longest text within a message, in characters.
pub const TEXT_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written_and_others_refused() {
        let message = ToMembers {
            leader: u64::MAX,
            sequence: 3,
            trial: 0,
            request: String::new(),
            body: LeaderBody::State(Stage::Start { at_ns: 5, abort_on_lost: true }),
        };
        assert_eq!(decode::<ToMembers>(&encode(&message)), Some(message));
        for wrong in ["", "{}", "null", "{\"leader\":1,\"sequence\":2,\"body\":{\"sudo\":{}}}", "\u{0}"] {
            assert_eq!(decode::<ToMembers>(wrong.as_bytes()), None, "{wrong}");
        }
        let long = format!("{}{}", " ".repeat(BYTES_MAX), "{}");
        assert_eq!(decode::<Progress>(long.as_bytes()), None);
    }

    #[test]
    fn the_longest_texts_fit_into_a_message() {
        let longest = text(&"\u{10ffff}\u{7}\n".repeat(4 * TEXT_MAX));
        assert_eq!(longest.chars().count(), TEXT_MAX);
        let ended = Ended {
            run: longest.clone(),
            dir: longest.clone(),
            object: Some(longest.clone()),
            not_sent: longest,
            interrupted: true,
        };
        let message = FromMember { index: 1, instance: 2, trial: 3, body: MemberBody::Ended(Outcome::Result(ended)) };
        assert!(encode(&message).len() <= BYTES_MAX);
        // Escaped, a byte of a request takes two bytes at most: it has no control characters.
        let message = ToMembers {
            leader: u64::MAX,
            sequence: u64::MAX,
            trial: u32::MAX,
            request: "\"".repeat(REQUEST_MAX),
            body: LeaderBody::State(Stage::Aborted { why: text(&"\u{10ffff}".repeat(TEXT_MAX)) }),
        };
        assert!(encode(&message).len() <= BYTES_MAX);
    }
}
