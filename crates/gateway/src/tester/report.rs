//! Reports of a trial by both ends.

use std::collections::BTreeMap;

use schema::Quantiles;
use serde::{Deserialize, Serialize};
use stats::arrivals::ArrivalsSeen;

use super::message::Test;

/// Report of a trial by both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialReport {
    /// The test.
    pub test: Test,
    /// Report of the client.
    pub client: EndReport,
    /// Report of the server, with times of its own clock.
    pub server: EndReport,
    /// RTT of the probes from the client's side; absent without probes.
    pub rtt: Option<RttReport>,
    /// Counts of transactions or connections; absent for other tests.
    pub exchanges: Option<ExchangesReport>,
    /// Whether the trial was ended early on request.
    pub cut_short: bool,
}

/// Report of one end. Times are nanoseconds of its own monotonic clock and not comparable with those of the other end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndReport {
    /// Bytes received in the window: payload of streams, or whole IP packets without duplicates.
    pub bytes: u64,
    /// Start of the window. For streams the window is the trial without its warm-up, for packets the time from the
    /// first to the last arrival.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// Bytes received in the window, by stream.
    pub stream_bytes: Vec<u64>,
    /// Streams that ended before the window.
    pub broken: u32,
    /// Arrivals of packets; absent if this end receives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalsSeen>,
    /// Packets dropped by the full receive buffer of this end: losses of the tester, not of the gateway.
    pub overflowed: u64,
    /// Sent packets; absent if this end sends none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentReport>,
    /// CPU time of the threads of the trial at this end, in seconds.
    pub cpu_s: f64,
    /// Utilization of the busiest thread, 0 to 1. Near 1 this end is saturated.
    pub busiest: f64,
    /// Send and receive buffer of the first stream as reported by the kernel, which doubles the configured size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_bytes_actual: Option<[u32; 2]>,
}

/// Report of a sender of packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentReport {
    /// Packets to send, as configured.
    pub planned: u64,
    /// Packets passed to the kernel: numbers from 0 to one less than this.
    pub sent: u64,
    /// Time of the first packet on the sender's clock.
    pub from_ns: u64,
    /// Time of the last packet.
    pub to_ns: u64,
    /// Send lag: time between the scheduled time of a packet and its send call, in nanoseconds.
    pub lag_ns: Quantiles,
    /// Errors of send calls and their counts, those caused by ICMP messages (`no route to host`) included.
    pub errors: BTreeMap<String, u64>,
}

/// RTT of the probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RttReport {
    /// Probes sent.
    pub sent: u64,
    /// Probes that returned, without duplicates.
    pub received: u64,
    /// RTT in nanoseconds of the client's clock.
    pub ns: Quantiles,
}

/// Counts of a closed loop of transactions or new connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExchangesReport {
    /// Completed within the trial.
    pub done: u64,
    /// Completed per second of the trial.
    pub per_second: f64,
    /// Duration from `connect`, or from sending the request, to the last byte of the response, in nanoseconds.
    pub times_ns: Quantiles,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
    /// Completed in each time slice of [`ExchangesReport::SLICE_MS`]: shows when a connection table becomes full.
    pub by_slice: Vec<u32>,
}

impl ExchangesReport {
    /// Length of a time slice in milliseconds.
    pub const SLICE_MS: u32 = 100;

    /// Number of failures.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

impl SentReport {
    /// Measured rate of sent packets per second; 0 with fewer than two packets.
    pub fn per_second(&self) -> f64 {
        rate(self.sent.saturating_sub(1), self.from_ns, self.to_ns)
    }
}

impl EndReport {
    /// Bytes per second in the window; 0 if the window is empty.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.bytes, self.from_ns, self.to_ns)
    }
}

impl TrialReport {
    /// Report of the receiving end; for transactions and connections the client.
    pub fn receiver(&self) -> &EndReport {
        if self.test.is_up() { &self.server } else { &self.client }
    }

    /// Report of the sending end; for transactions and connections the server.
    pub fn sender(&self) -> &EndReport {
        if self.test.is_up() { &self.client } else { &self.server }
    }

    /// Throughput of streams at the receiver, payload in bits per second.
    pub fn bits_per_s(&self) -> f64 {
        self.receiver().bytes_per_s() * 8.0
    }
}

fn rate(count: u64, from_ns: u64, to_ns: u64) -> f64 {
    match to_ns.saturating_sub(from_ns) {
        0 => 0.0,
        lasted_ns => count as f64 / (lasted_ns as f64 / 1e9),
    }
}
