//! Counts of records, cheap enough for a shard to count itself.

use load::{ConnectionEnd, Delays, SecondGauges, Tally};
use schema::{RequestRecord, SecondRecord};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::handshakes::Handshakes;

/// All counts of the load's records, by recorder or shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counting {
    /// The load's figures.
    pub tally: Tally,
    /// Handshakes compared with the configured RTTs, if there is a path.
    pub handshakes: Option<Handshakes>,
    /// The generator's own delays in the counted requests.
    pub delays: Delays,
    /// Requests counted.
    pub requests: u64,
}

impl Counting {
    /// Empty counts.
    pub fn new(tally: Tally, handshakes: Option<Handshakes>) -> Self {
        let delays = tally.delays();
        Counting { tally, handshakes, delays, requests: 0 }
    }

    /// Sets the end of the measured phase.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.tally.set_measured_end(end);
        self.delays.set_measured_end(end);
    }

    /// Counts a request that has ended.
    pub fn add_request(&mut self, request: &RequestRecord) {
        self.requests += 1;
        self.tally.add_request(request);
    }

    /// Counts a connection that has ended.
    pub fn add_connection(&mut self, end: &ConnectionEnd) {
        self.tally.add_connection(end);
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.add(end);
        }
    }

    /// Adds other counts of the same load.
    pub fn merge(&mut self, other: Counting) {
        self.requests += other.requests;
        self.tally.merge(other.tally);
        self.delays.merge(other.delays);
        if let (Some(own), Some(other)) = (&mut self.handshakes, &other.handshakes) {
            own.merge(other);
        }
    }

    /// Whether `other` has counts of the same load, so that both can be merged.
    pub fn is_of_same_load(&self, other: &Counting) -> bool {
        let handshakes = match (&self.handshakes, &other.handshakes) {
            (Some(own), Some(other)) => own.is_of_same_clients(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        handshakes && self.tally.is_of_same_load(&other.tally)
    }

    /// Adds the counts of another machine for the same load ([`Self::is_of_same_load`]).
    pub fn merge_machine(&mut self, other: Counting) {
        self.requests += other.requests;
        self.tally.merge(other.tally);
        self.delays.merge_machine(other.delays);
        if let (Some(own), Some(other)) = (&mut self.handshakes, &other.handshakes) {
            own.merge(other);
        }
    }

    /// One second of the series so far.
    pub fn second(&self, second: u32, levels: SecondGauges) -> SecondRecord {
        self.tally.second(second, levels)
    }
}
