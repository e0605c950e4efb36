//! What a lane tells the recorder.

use load::{ConnectionEnd, LevelSample, Stall};
use schema::{CacheExchange, RequestRecord};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::counting::Counting;
use crate::called::Called;

/// Everything that happened in a lane since its last batch. Travels as it is between processes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Requests that have ended.
    pub requests: Vec<RequestRecord>,
    /// What the replies of a mix say of themselves, one for each of its requests.
    pub exchanges: Vec<CacheExchange>,
    /// Exchanges for which the lane found no room, so that nobody will judge them.
    pub unverified: u64,
    /// Connections that have ended.
    pub connections: Vec<ConnectionEnd>,
    /// Where new connections are on the wire.
    pub called: Vec<Called>,
    /// Levels, at the moments that all lanes have in common.
    pub samples: Vec<LevelSample>,
    /// Stalls of the lane's loop.
    pub stalls: Vec<Stall>,
    /// All of them up to here are told.
    pub told_until: Timestamp,
    /// The end of the lane's measured phase, as far as it is known.
    pub measured_end: Option<Timestamp>,
    /// Nothing comes after this.
    pub last: bool,
    /// Requests that were counted already, for the table alone.
    #[serde(skip)]
    pub counted: Vec<RequestRecord>,
    /// Some were counted already, and cannot be held against the wire any more.
    #[serde(skip)]
    pub unpaired: bool,
    /// With the last batch: what the lane counted itself.
    #[serde(skip)]
    pub counts: Option<Box<Counting>>,
}

impl Batch {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.weight() == 0 && self.samples.is_empty() && self.stalls.is_empty() && self.unverified == 0 && !self.last
    }

    /// Records in it: what the bound on waiting ones counts.
    pub fn weight(&self) -> usize {
        self.requests.len() + self.exchanges.len() + self.connections.len() + self.called.len() + self.counted.len()
    }

    /// What it takes of the room.
    pub fn takes(&self) -> Takes {
        Takes { records: self.weight(), exchanges: self.exchanges.len() }
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        let Batch { requests, exchanges, connections, called, samples, stalls, counted, .. } = self;
        requests.clear();
        exchanges.clear();
        connections.clear();
        called.clear();
        samples.clear();
        stalls.clear();
        counted.clear();
        (self.unverified, self.measured_end, self.last) = (0, None, false);
        self.told_until = Timestamp::ZERO;
        (self.unpaired, self.counts) = (false, None);
    }
}

/// What a batch takes of the room for those that wait.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// Records in it.
    pub records: usize,
    /// Of these, exchanges.
    pub exchanges: usize,
}
