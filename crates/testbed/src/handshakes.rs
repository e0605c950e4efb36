//! Handshakes as a witness of the path: connect called to connection established, by the load's own clock.
//!
//! The clock reads before connect(2) and after the loop has seen the socket writable, so a handshake contains the
//! path both ways, the kernel of both ends, and the loop's own delay in seeing it.

use load::ConnectionEnd;
use stats::Histogram;
use units::Timestamp;

/// A SYN or SYN-ACK that was lost is sent again after a second (RFC 6298): a handshake this much longer than asked
/// says nothing about the path's delay.
const RETRANSMITTED_NS: u64 = 900_000_000;

/// Collects handshakes, those of the warm-up included: kept connections are mostly opened there, and the path is the
/// same from the run's zero to its end.
#[derive(Debug)]
pub struct Handshakes {
    asked_ns: Vec<u64>,
    got: Histogram,
    error: Histogram,
    measured_from: Timestamp,
    measured_error: Histogram,
}

impl Handshakes {
    /// `asked_ns`: each client's asked RTT.
    pub fn new(measured_from: Timestamp, asked_ns: Vec<u64>) -> Self {
        Handshakes {
            asked_ns,
            got: Histogram::new(),
            error: Histogram::new(),
            measured_from,
            measured_error: Histogram::new(),
        }
    }

    /// Takes a connection's handshake, if it was established.
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

    /// Adds what another collected of the same clients.
    pub fn merge(&mut self, other: &Handshakes) {
        self.got.merge(&other.got);
        self.error.merge(&other.error);
        self.measured_error.merge(&other.measured_error);
    }

    /// Every handshake.
    pub fn got(&self) -> &Histogram {
        &self.got
    }

    /// The same, of the measured phase alone: connections opened all at once at the start are not in it.
    pub fn measured_error(&self) -> &Histogram {
        &self.measured_error
    }

    /// Absolute difference from the client's asked RTT, of handshakes that lost no packet.
    pub fn error(&self) -> &Histogram {
        &self.error
    }
}
