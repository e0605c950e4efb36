//! Handshakes as a measurement of the path: connect called to connection established, by the load's own clock.
//!
//! The clock is read before connect(2) and after the loop has seen the socket writable, so a handshake includes the
//! path in both directions, the kernel of both ends, and the loop's own delay.

use load::ConnectionEnd;
use stats::Histogram;
use units::Timestamp;

/// A lost SYN or SYN-ACK is retransmitted after a second (RFC 6298): a handshake this much longer than configured does
/// not describe the path's delay.
const RETRANSMITTED_NS: u64 = 900_000_000;

/// Collects handshakes, including those of the warm-up: persistent connections are mostly opened there, and the path is
/// the same during the whole run.
#[derive(Debug)]
pub struct Handshakes {
    asked_ns: Vec<u64>,
    got: Histogram,
    error: Histogram,
    measured_from: Timestamp,
    measured_error: Histogram,
}

impl Handshakes {
    /// `asked_ns`: each client's configured RTT.
    pub fn new(measured_from: Timestamp, asked_ns: Vec<u64>) -> Self {
        Handshakes {
            asked_ns,
            got: Histogram::new(),
            error: Histogram::new(),
            measured_from,
            measured_error: Histogram::new(),
        }
    }

    /// Adds a connection's handshake, if it was established.
    pub fn add(&mut self, end: &ConnectionEnd) {
        let (Some(connected_at), Some(&asked)) = (end.connected_at, self.asked_ns.get(end.client as usize)) else {
            return;
        };
        let got = connected_at.as_nanos().saturating_sub(end.opened_at.as_nanos());
        self.got.record(got);
        if got < asked + RETRANSMITTED_NS {
            self.error.record(got.abs_diff(asked));
            if end.opened_at >= self.measured_from {
                self.measured_error.record(got.abs_diff(asked));
            }
        }
    }

    /// Adds the handshakes of another collection of the same clients.
    pub fn merge(&mut self, other: &Handshakes) {
        self.got.merge(&other.got);
        self.error.merge(&other.error);
        self.measured_error.merge(&other.measured_error);
    }

    /// All handshakes.
    pub fn got(&self) -> &Histogram {
        &self.got
    }

    /// Handshakes of the measured phase only: connections opened together at the start are not in it.
    pub fn measured_error(&self) -> &Histogram {
        &self.measured_error
    }

    /// Absolute difference from the client's configured RTT, of handshakes without packet loss.
    pub fn error(&self) -> &Histogram {
        &self.error
    }
}
