//! The side of Little's law that is computed from records: the mean number present is the sum of the times spent,
//! divided by the length of the phase.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Timestamp;

/// Means over the measured phase, from the part of each request's and connection's time that lies *inside* the phase.
/// So requests and connections across its edges are counted exactly, for any length of the phase. Compared with the
/// sampled [`Levels`](crate::Levels).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LittleTerms {
    /// Mean number of requests in flight.
    pub in_flight: f64,
    /// Mean number of concurrent connections.
    pub connections: f64,
    /// Requests that were in flight at some time in the phase.
    pub requests_seen: u64,
    /// Connections that were open at some time in the phase.
    pub connections_seen: u64,
    /// Length of the phase.
    pub phase: Duration,
}

/// The sums of times.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Integrals {
    requests: Sum,
    connections: Sum,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Sum {
    nanos: u128,
    seen: u64,
}

impl Integrals {
    pub(super) fn add_request(&mut self, from: Timestamp, to: Timestamp, phase: (Timestamp, Option<Timestamp>)) {
        self.requests.add(from, to, phase);
    }

    pub(super) fn add_connection(&mut self, from: Timestamp, to: Timestamp, phase: (Timestamp, Option<Timestamp>)) {
        self.connections.add(from, to, phase);
    }

    pub(super) fn merge(&mut self, other: &Integrals) {
        self.requests.merge(other.requests);
        self.connections.merge(other.connections);
    }

    pub(super) fn terms(&self, phase: Duration) -> LittleTerms {
        let mean = |sum: Sum| if phase.is_zero() { 0.0 } else { sum.nanos as f64 / phase.as_nanos() as f64 };
        LittleTerms {
            in_flight: mean(self.requests),
            connections: mean(self.connections),
            requests_seen: self.requests.seen,
            connections_seen: self.connections.seen,
            phase,
        }
    }
}

impl Sum {
    fn merge(&mut self, other: Sum) {
        self.nanos += other.nanos;
        self.seen += other.seen;
    }

    fn add(&mut self, from: Timestamp, to: Timestamp, (start, end): (Timestamp, Option<Timestamp>)) {
        let (from, to) = (from.max(start), end.map_or(to, |end| to.min(end)));
        if from < to {
            self.nanos += to.since(from).as_nanos();
            self.seen += 1;
        }
    }
}
