//! What the two ends saw of a trial.

use std::collections::BTreeMap;

use schema::Quantiles;
use serde::{Deserialize, Serialize};
use stats::arrivals::ArrivalsSeen;

use super::message::Test;

/// A trial, as both ends saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSeen {
    /// What was done.
    pub test: Test,
    /// What the client saw and did.
    pub client: EndReport,
    /// What the server saw and did, by its own clock.
    pub server: EndReport,
    /// Round trips of the probes, client - server - client, where there were any.
    pub rtt: Option<RttSeen>,
    /// Transactions or connections, where the test was one of them.
    pub exchanges: Option<ExchangesSeen>,
    /// It was ended early, on request.
    pub cut_short: bool,
}

/// What one end saw and did. Its moments are those of its own monotonic clock: compare them with nothing of the other's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndReport {
    /// Received in the window: of streams their bytes, of packets those of the IP packets that arrived for the first time.
    pub bytes: u64,
    /// The window: of streams what is left of the trial after its omitted beginning, of packets from the first arrival to
    /// the last.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// Received in the window, by stream.
    pub stream_bytes: Vec<u64>,
    /// Streams that ended before the window did.
    pub broken: u32,
    /// What arrived of the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalsSeen>,
    /// Packets that this end's own socket had no room for: the tester's loss, not the gateway's.
    pub overflowed: u64,
    /// What was sent of the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentSeen>,
    /// Processor time of the threads that did the trial at this end, in seconds.
    pub cpu_s: f64,
    /// Share of the trial's time that the busiest of them was on a processor: near 1, this end was the limit.
    pub busiest: f64,
    /// Send and receive buffer of the first stream as the kernel says it (it doubles what is asked for).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_bytes_actual: Option<[u32; 2]>,
}

/// What a sender of packets did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentSeen {
    /// Packets asked for.
    pub asked: u64,
    /// Packets handed to the kernel: numbers 0 to one less.
    pub sent: u64,
    /// First and last hand-over, by the sender's clock.
    pub from_ns: u64,
    /// The last.
    pub to_ns: u64,
    /// How much later than its moment each was handed over, in nanoseconds.
    pub lag_ns: Quantiles,
    /// What sends failed with, and how often: an ICMP answer among them (`no route to host`).
    pub errors: BTreeMap<String, u64>,
}

/// Round trips of timestamped datagrams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RttSeen {
    /// Probes sent.
    pub sent: u64,
    /// Probes that came back, the first of each number.
    pub received: u64,
    /// Their times, in nanoseconds of the client's clock.
    pub ns: Quantiles,
}

/// A closed loop of transactions, or of new connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExchangesSeen {
    /// Done within the trial.
    pub done: u64,
    /// Over the trial's time.
    pub per_second: f64,
    /// Of each, from asking (connect called; request written) to the last byte of the answer, in nanoseconds.
    pub times_ns: Quantiles,
    /// Those that failed, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Done in each [`ExchangesSeen::SLICE_MS`] of the trial: where a table is full, it shows here.
    pub by_slice: Vec<u32>,
}

impl ExchangesSeen {
    /// Length of a slice.
    pub const SLICE_MS: u32 = 100;

    /// All that failed.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

impl SentSeen {
    /// Packets a second as sent; 0 with fewer than two.
    pub fn per_second(&self) -> f64 {
        rate(self.sent.saturating_sub(1), self.from_ns, self.to_ns)
    }
}

impl EndReport {
    /// Bytes a second over the window; 0 where it has no length.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.bytes, self.from_ns, self.to_ns)
    }
}

impl TrialSeen {
    /// The end that receives: of transactions and connections the client.
    pub fn receiver(&self) -> &EndReport {
        if self.test.is_up() { &self.server } else { &self.client }
    }

    /// The end that sends: of transactions and connections the server.
    pub fn sender(&self) -> &EndReport {
        if self.test.is_up() { &self.client } else { &self.server }
    }

    /// Payload of streams in bits a second, at the receiver.
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
