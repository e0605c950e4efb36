//! Results of the tap of programs' sockets, and counts of their kernel.

use load::GaugeStatistics;
use schema::{TapExchange, TapOutcome, TapSide};

/// Traffic of programs as clients, over the whole run and to any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// Connections on which connect was called.
    pub called: u64,
    /// Exchanges with a response and without an error.
    pub succeeded: u64,
    /// Bytes that programs wrote.
    pub sent_bytes: u64,
    /// Bytes that programs read.
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

/// Connections of programs to other addresses than loopback, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Connections made.
    pub connections: u64,
    /// Bytes that programs wrote.
    pub sent_bytes: u64,
    /// Bytes that programs read.
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

/// Connections made by the processes of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opens {
    /// SYNs of new connections, without retransmissions.
    pub active: u64,
    /// Handshakes from outside.
    pub passive: u64,
}

/// Counts of the kernel during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOpens {
    /// Number of connections.
    pub opens: Opens,
    /// Whether all processes of the namespace belong to the run.
    pub is_own: bool,
}

/// Both sides of Little's law, over the measured phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TapGauges {
    /// Open connections, sampled.
    pub connections: GaugeStatistics,
    /// Number of samples.
    pub samples: u64,
    /// Time during which connections were open within the phase, from rows, in ns.
    pub connections_ns: u128,
    /// Length of the phase in ns.
    pub phase_ns: u64,
}
