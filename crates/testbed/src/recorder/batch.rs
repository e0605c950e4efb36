//! Batches of records from a shard to the recorder.

use load::{ConnectionEnd, GaugeSample, Stall};
use schema::{CacheExchange, RequestRecord};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::counting::Counting;
use crate::connect_call::Called;

/// All records of a shard since its last batch. Sent unchanged between processes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Requests that have ended.
    pub requests: Vec<RequestRecord>,
    /// What the responses of a cache workload report about themselves, one for each of its requests.
    pub exchanges: Vec<CacheExchange>,
    /// Exchanges that did not fit in the shard and will not be verified.
    pub unverified: u64,
    /// Connections that have ended.
    pub connections: Vec<ConnectionEnd>,
    /// Connections on which connect was called.
    pub called: Vec<Called>,
    /// Gauges, at the sampling times common to all shards.
    pub samples: Vec<GaugeSample>,
    /// Stalls of the shard's loop.
    pub stalls: Vec<Stall>,
    /// All records up to this time are included.
    pub told_until: Timestamp,
    /// The end of the shard's measured phase, as far as it is known.
    pub measured_end: Option<Timestamp>,
    /// The last batch.
    pub last: bool,
    /// Requests that are already counted, for the table only.
    #[serde(skip)]
    pub counted: Vec<RequestRecord>,
    /// Some are already counted, and cannot be compared with the capture any more.
    #[serde(skip)]
    pub unpaired: bool,
    /// With the last batch: the shard's own counts.
    #[serde(skip)]
    pub counts: Option<Box<Counting>>,
}

impl Batch {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.weight() == 0 && self.samples.is_empty() && self.stalls.is_empty() && self.unverified == 0 && !self.last
    }

    /// Number of records, as limited by the queue.
    pub fn weight(&self) -> usize {
        self.requests.len() + self.exchanges.len() + self.connections.len() + self.called.len() + self.counted.len()
    }

    /// Space that it takes in the queue.
    pub fn takes(&self) -> Takes {
        Takes { records: self.weight(), exchanges: self.exchanges.len() }
    }

    /// Empties it, but keeps its allocations.
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

/// Space that a batch takes in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// Records in it.
    pub records: usize,
    /// Of these, exchanges.
    pub exchanges: usize,
}
