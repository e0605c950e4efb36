//! Handshakes as a measurement of the path: connect called to connection established, by the load's own clock.
//!
//! The clock is read before connect(2) and after the loop has seen the socket writable, so a handshake includes the
//! path in both directions, the kernel of both ends, and the loop's own delay.

use load::ConnectionEnd;
use serde::{Deserialize, Serialize};
use stats::Histogram;
use units::Timestamp;

/// A handshake this much longer than the configured RTT has a retransmitted SYN or SYN-ACK, which is sent after a
/// second (RFC 6298), and does not show the path's delay.
const RETRANSMITTED_NS: u64 = 900_000_000;

/// Collects handshakes, including those of the warm-up: persistent connections are mostly opened there, and the path is
/// the same during the whole run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handshakes {
    configured_ns: Vec<u64>,
    rtts: Histogram,
    error: Histogram,
    measured_from: Timestamp,
    measured_error: Histogram,
}

impl Handshakes {
    /// `configured_ns`: each client's configured RTT.
    pub fn new(measured_from: Timestamp, configured_ns: Vec<u64>) -> Self {
        Handshakes {
            configured_ns,
            rtts: Histogram::new(),
            error: Histogram::new(),
            measured_from,
            measured_error: Histogram::new(),
        }
    }

    /// Adds a connection's handshake, if it was established.
    pub fn add(&mut self, end: &ConnectionEnd) {
        let (Some(connected_at), Some(&configured)) = (end.connected_at, self.configured_ns.get(end.client as usize))
        else {
            return;
        };
        let rtt = connected_at.as_nanos().saturating_sub(end.opened_at.as_nanos());
        self.rtts.record(rtt);
        if rtt < configured + RETRANSMITTED_NS {
            self.error.record(rtt.abs_diff(configured));
            if end.opened_at >= self.measured_from {
                self.measured_error.record(rtt.abs_diff(configured));
            }
        }
    }

    /// Whether both have the same clients and the same measured phase.
    pub fn is_of_same_clients(&self, other: &Handshakes) -> bool {
        self.configured_ns == other.configured_ns && self.measured_from == other.measured_from
    }

    /// Adds the handshakes of another collection of the same clients.
    pub fn merge(&mut self, other: &Handshakes) {
        self.rtts.merge(&other.rtts);
        self.error.merge(&other.error);
        self.measured_error.merge(&other.measured_error);
    }

    /// RTTs of all handshakes.
    pub fn rtts(&self) -> &Histogram {
        &self.rtts
    }

    /// RTT errors of the handshakes of the measured phase, without those of connections opened before it.
    pub fn measured_error(&self) -> &Histogram {
        &self.measured_error
    }

    /// Absolute difference from the client's configured RTT, of handshakes without packet loss.
    pub fn error(&self) -> &Histogram {
        &self.error
    }
}
