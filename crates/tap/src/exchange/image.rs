//! A process image: its connections, recently released ones, and unused lookups.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::LINGER_TIME;
use crate::event::{Closed, Origin};

/// A process image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Image {
    pub(super) pid: u32,
    #[serde(with = "schema::tap_exchange::shared_text")]
    pub(super) program: Option<Arc<str>>,
    /// Connections of which the image holds a descriptor.
    pub(super) held: HashSet<u64>,
    /// Lookups without a connect so far: thread, duration.
    pub(super) lookups: VecDeque<(u32, u64)>,
    /// Connections that it recently closed or left, which an unreported child may share.
    pub(super) released: VecDeque<ReleasedConnection>,
    /// Last loss of its records.
    pub(super) lost_at: Option<Timestamp>,
}

/// A connection that a process released after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReleasedConnection {
    pub(super) key: u64,
    pub(super) at: Timestamp,
    /// Forks of the process when the connection became known, and at its close.
    pub(super) forks: [u32; 2],
}

impl Image {
    pub(super) fn new(origin: Origin) -> Image {
        Image {
            pid: origin.pid,
            program: None,
            held: HashSet::new(),
            lookups: VecDeque::new(),
            released: VecDeque::new(),
            lost_at: None,
        }
    }

    /// A lookup of thread `tid` has ended.
    pub(super) fn lookup_ended(&mut self, tid: u32, lookup_ns: u64) {
        if self.lookups.len() == LOOKUPS_MAX {
            self.lookups.pop_front();
        }
        self.lookups.push_back((tid, lookup_ns));
    }

    /// Stores a closed connection while it lingers, for a child that reports later and has inherited it.
    pub(super) fn note_release(&mut self, closed: &Closed) {
        let closed_connection = ReleasedConnection { key: closed.connection, at: closed.begin, forks: closed.forks };
        if closed_connection.forks[0] == closed_connection.forks[1] {
            return;
        }
        while self.released.front().is_some_and(|first| closed_connection.at.since(first.at) >= LINGER_TIME) {
            self.released.pop_front();
        }
        if self.released.len() == RELEASED_MAX {
            self.released.pop_front();
        }
        self.released.push_back(closed_connection);
    }

    /// Takes the lookup for a connect of thread `tid`: the thread's own last one, otherwise the process's, as a
    /// resolver may run in another thread. Earlier ones are forgotten.
    pub(super) fn lookup(&mut self, tid: u32) -> Option<u64> {
        let at = self.lookups.iter().rposition(|(thread, _)| *thread == tid).or(self.lookups.len().checked_sub(1))?;
        let thread = self.lookups[at].0;
        let (_, lookup_ns) = self.lookups.remove(at)?;
        self.lookups.retain(|(other, _)| *other != thread);
        Some(lookup_ns)
    }
}

/// Maximum stored closed connections: those of one second, even if the program's times are invalid.
const RELEASED_MAX: usize = 16_384;
/// Maximum stored lookups of an image, for a program that looks names up and never connects.
const LOOKUPS_MAX: usize = 64;
