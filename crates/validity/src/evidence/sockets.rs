//! What the sockets of programs showed, and what their kernel counted.

use load::LevelStatistics;
use schema::{TapExchange, TapOutcome, TapSide};

/// What programs did as clients, over the whole run and wherever to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// Connections on which connect was called.
    pub called: u64,
    /// Exchanges with an answer and no error.
    pub succeeded: u64,
    /// Bytes that programs handed to the kernel.
    pub sent_bytes: u64,
    /// Bytes that they took from it.
    pub received_bytes: u64,
}

impl ClientTotals {
    /// Adds one exchange of a program.
    pub fn add(&mut self, row: &TapExchange) {
        if row.side != TapSide::Client || row.connection.is_none() {
            return;
        }
        self.called += u64::from(row.last);
        self.succeeded += u64::from(row.exchange.is_some() && row.outcome == TapOutcome::Succeeded);
        self.sent_bytes += row.sent_bytes;
        self.received_bytes += row.received_bytes;
    }
}

/// Connections that programs opened to elsewhere than the loopback, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Connections that were made.
    pub connections: u64,
    /// Bytes that programs handed to the kernel.
    pub sent_bytes: u64,
    /// Bytes that they took from it.
    pub received_bytes: u64,
}

impl Outside {
    /// Adds one exchange of a program.
    pub fn add(&mut self, row: &TapExchange) {
        if row.side != TapSide::Client || row.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback()) {
            return;
        }
        let made = row.exchange.is_some() || row.outcome == TapOutcome::Unused;
        self.connections += u64::from(row.last && made);
        self.sent_bytes += row.sent_bytes;
        self.received_bytes += row.received_bytes;
    }
}

/// Connections that a namespace's processes made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opens {
    /// SYNs sent for a new connection, retransmissions not counted.
    pub active: u64,
    /// Handshakes that came from outside.
    pub passive: u64,
}

/// What the kernel counted during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOpens {
    /// How many.
    pub opens: Opens,
    /// Whether all processes of the namespace are the run's own.
    pub is_own: bool,
}

/// Both sides of the law, over the measured phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TapLevels {
    /// Connections in process, sampled.
    pub connections: LevelStatistics,
    /// Samples taken.
    pub samples: u64,
    /// Time that connections were in process within the phase, summed from rows, in ns.
    pub connections_ns: u128,
    /// Length of the phase in ns.
    pub phase_ns: u64,
}
