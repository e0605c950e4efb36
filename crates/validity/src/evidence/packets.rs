//! What packets at the server's end showed.

use std::collections::BTreeMap;
use std::time::Duration;

use load::LevelStatistics;
use schema::document::PathFromOutside;
use schema::{Level, WatchSecond};
use stats::Histogram;
use watch::Counts;

use super::Differences;

/// What the packet capture left behind.
#[derive(Clone, Copy)]
pub struct WireEvidence<'a> {
    /// The watching thread's.
    pub watched: &'a Watched,
    /// The recorder's.
    pub figures: &'a WireFigures,
    /// Length of the measured phase in nanoseconds.
    pub phase_ns: f64,
}

/// What the thread knows when it has ended, besides the records.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The device at the server's end.
    pub device: String,
    /// Levels over the measured phase.
    pub levels: WireLevels,
    /// Counts of the whole capture.
    pub whole: Counts,
    /// Counts of the measured phase.
    pub measured: Counts,
    /// Packets that found no room in a ring, over the whole capture.
    pub drops: u64,
    /// The same at the clients' end.
    pub client_drops: u64,
    /// Records that the recorder was too far behind to take.
    pub records_lost: u64,
    /// How far the wall clock moved against the run's clock, in ns.
    pub clock_deviation_ns: u64,
    /// The longest time from a packet to its analysis.
    pub lag: Duration,
    /// CPU time the thread used.
    pub cpu: Duration,
    /// How long it ran.
    pub wall: Duration,
    /// The path from outside, with both ends watched.
    pub between: Option<PathFromOutside>,
    /// Why it could not go on, if it could not.
    pub failure: Option<String>,
}

impl Watched {
    /// What the capture itself cost, in words.
    pub fn cost(&self) -> String {
        let share = if self.wall.is_zero() { 0.0 } else { self.cpu.as_secs_f64() / self.wall.as_secs_f64() };
        format!("{:.1}% of a core, at most {:.0} ms behind", 100.0 * share, self.lag.as_secs_f64() * 1e3)
    }
}

/// What was sampled over the measured phase.
#[derive(Clone, Debug, Default)]
pub struct WireLevels {
    /// Connections in process: SYN seen, not both FINs nor a RST.
    pub connections: LevelStatistics,
    /// Transactions in progress: first byte of the request seen, last byte of its response not.
    pub in_flight: LevelStatistics,
    /// HTTP sessions: connections in process on which a request was seen.
    pub sessions: Level,
    /// Samples taken.
    pub samples: u64,
}

/// Distributions and counts of the measured phase.
#[derive(Clone, Debug, Default)]
pub struct WireFigures {
    /// ACK - SYN-ACK of the handshakes completed in the phase.
    pub handshake_rtt: Histogram,
    /// The same less the client's asked RTT, absolute.
    pub handshake_error: Histogram,
    /// Last byte of the request to last byte of its response, of requests begun in the phase.
    pub service_time: Histogram,
    /// Connections whose SYN came in the phase.
    pub connections_opened: u64,
    /// Requests whose first byte came in the phase.
    pub requests: u64,
    /// Responses whose last byte came in the phase.
    pub responses: u64,
    /// Of the requests, those whose response was not seen to its end.
    pub incomplete: u64,
    /// Of the requests, those whose ends were found by changes of direction.
    pub by_direction: u64,
    /// Responses to these requests by status code.
    pub status: BTreeMap<u16, u64>,
    /// Connections opened in the phase, by how they stood at their end.
    pub states: BTreeMap<&'static str, u64>,
    /// Bytes acknowledged and never seen, whole capture.
    pub missing_bytes: u64,
    /// Packets that filled a hole, of connections opened in the phase.
    pub out_of_order: u64,
    /// Packets with payload, of the seconds that the phase touches.
    pub data_packets: u64,
    /// Those that repeated bytes, of the same seconds.
    pub retransmitted: u64,
    /// Connections whose SYN was answered, whole capture.
    pub made: u64,
    /// Payload from the clients, each byte once, whole capture.
    pub up_bytes: u64,
    /// Payload to the clients, likewise.
    pub down_bytes: u64,
    /// Connections on which something else than HTTP was spoken: payload both ways and not one request.
    pub not_http: u64,
    /// Time that connections spent in process within the phase, in ns.
    pub connections_ns: u128,
    /// Time that requests spent in flight within the phase, in ns.
    pub in_flight_ns: u128,
    /// Requests begun before the phase ended whose answer was not seen whole: when they left flight is not known.
    pub unended: u64,
    /// Requests in flight within the phase whose ends were found by changes of direction.
    pub ended_by_direction: u64,
    /// Every second of the run.
    pub seconds: Vec<WatchSecond>,
    /// Load and wire held against each other, where there was a load.
    pub agreed: Option<Agreed>,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// Requests that both saw whole.
    pub both: u64,
    /// Whole for the load, and not seen, or not whole, on the wire.
    pub load_only: u64,
    /// Whole on the wire, and unknown to the load.
    pub wire_only: u64,
    /// Whole on the wire, failed for the load: it gave up, or the run ended, while the answer was on its way.
    pub failed_at_load: u64,
    /// Requests of the load that failed.
    pub load_failed: u64,
    /// Whole for both, with different status codes.
    pub status_differs: u64,
    /// Times that the load sent a request, retries included.
    pub load_sent: u64,
    /// Of these, the ones that may never have passed the server's end: sends of requests that failed, and all but the last of
    /// those that were retried.
    pub load_sent_in_vain: u64,
    /// Requests whose first byte passed the server's end.
    pub wire_requests: u64,
    /// Connections on which the load called connect.
    pub load_called: u64,
    /// Of these, those that were established.
    pub load_established: u64,
    /// Connections whose SYN the wire saw.
    pub wire_opened: u64,
    /// Load's service time less the wire's less the client's RTT, of requests of the measured phase.
    pub differences: Differences,
    /// Records had to be thrown away unpaired.
    pub overflowed: bool,
}

impl Agreed {
    /// Requests that one vantage point saw whole and the other cannot account for. What the load gave up on may have been
    /// answered all the same.
    pub fn unaccounted(&self) -> u64 {
        let given_up = self.load_failed.saturating_sub(self.failed_at_load);
        self.load_only + self.wire_only.saturating_sub(given_up)
    }

    /// Requests that passed the server's end and the load did not send, and requests that the load sent and that did not pass
    /// there although they were answered.
    pub fn sends_unaccounted(&self) -> u64 {
        let unsent = self.wire_requests.saturating_sub(self.load_sent);
        unsent + self.load_sent.saturating_sub(self.wire_requests + self.load_sent_in_vain)
    }

    /// Connections that one witness counts and the other cannot account for: every one that the load established had a
    /// SYN on the wire, and every SYN was a connect of the load's.
    pub fn connections_unaccounted(&self) -> u64 {
        self.load_established.saturating_sub(self.wire_opened) + self.wire_opened.saturating_sub(self.load_called)
    }
}
