//! Batches of records from a shard to the recorder.

use load::{ConnectionEnd, GaugeSample, Stall};
use schema::{CacheExchange, RequestRecord};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::counting::Counting;
use crate::connect_call::ConnectCall;

/// All records of a shard since its last batch. It is sent unchanged between processes.
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
    pub connect_calls: Vec<ConnectCall>,
    /// Gauges, at the sampling times common to all shards.
    pub samples: Vec<GaugeSample>,
    /// Stalls of the shard's loop.
    pub stalls: Vec<Stall>,
    /// Times by which the machine woke or resumed the shard's loop late.
    pub late_wakeups: Vec<Stall>,
    /// All records up to this time are included.
    pub complete_until: Timestamp,
    /// The end of the shard's measured phase, as far as it is known.
    pub measured_end: Option<Timestamp>,
    /// Whether this is the shard's last batch.
    pub last: bool,
    /// Requests that are already counted, for the table only.
    #[serde(skip)]
    pub counted: Vec<RequestRecord>,
    /// Whether some requests were already counted by the shard, so that they cannot be compared with the capture.
    #[serde(skip)]
    pub unpaired: bool,
    /// With the last batch: the shard's own counts.
    #[serde(skip)]
    pub counts: Option<Box<Counting>>,
}

impl Batch {
    /// Whether the batch has nothing to report.
    pub fn is_empty(&self) -> bool {
        self.weight() == 0 && self.samples.is_empty() && self.stalls.is_empty() && self.unverified == 0 && !self.last
    }

    /// Number of records, as limited by the queue.
    pub fn weight(&self) -> usize {
        self.requests.len()
            + self.exchanges.len()
            + self.connections.len()
            + self.connect_calls.len()
            + self.counted.len()
    }

    /// Space of the batch in the queue.
    pub fn size(&self) -> BatchSize {
        BatchSize { records: self.weight(), exchanges: self.exchanges.len() }
    }

    /// Empties the batch, but keeps its allocations.
    pub fn clear(&mut self) {
        let Batch { requests, exchanges, connections, connect_calls, samples, stalls, late_wakeups, counted, .. } =
            self;
        requests.clear();
        exchanges.clear();
        connections.clear();
        connect_calls.clear();
        samples.clear();
        stalls.clear();
        late_wakeups.clear();
        counted.clear();
        (self.unverified, self.measured_end, self.last) = (0, None, false);
        self.complete_until = Timestamp::ZERO;
        (self.unpaired, self.counts) = (false, None);
    }
}

/// Space of a batch in the queue.
#[derive(Clone, Copy, Debug)]
pub struct BatchSize {
    /// Number of records.
    pub records: usize,
    /// Number of exchanges among the records.
    pub exchanges: usize,
}
