//! Evidence: the counts of a run's vantage points, as input of the checks.

mod counting;
mod packets;
mod signed;
mod sockets;

use std::time::Duration;

use load::{DelayBounds, Levels, LittleTerms};
use plan::Plan;

pub use self::packets::{Agreed, Watched, WireEvidence, WireFigures, WireGauges};
pub use self::signed::Differences;
pub use self::sockets::{ClientTotals, KernelOpens, Opens, Outside, TapGauges};

/// Input of the checks, in addition to the document.
pub struct Evidence<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Stalls and CPU time of the load generator's loop.
    pub loop_health: &'a LoopHealth,
    /// Upper bounds of the generator's own delay in reported times.
    pub delays: &'a DelayBounds,
    /// Little's law from the records.
    pub little: &'a LittleTerms,
    /// Little's law as sampled.
    pub levels: &'a Levels,
    /// Mean numbers in flight, one per second of the measured phase.
    pub in_flight_by_second: &'a [f64],
    /// Packets lost at the TUN devices and refused by the kernel; `None` if the counters could not be read.
    pub unintended_drops: Option<UnintendedDrops>,
    /// Arrivals that waited because the limit of connections was reached.
    pub cap_hits: u64,
    /// Movement of the wall clock, by which objects of a workload change, against the run's clock; `None` without a
    /// workload.
    pub wall_drift: Option<Duration>,
    /// Rows of the table of requests, if there is one.
    pub table: Option<StoredRows>,
    /// First error of writing the run to disk.
    pub store_error: Option<&'a str>,
    /// How the server of the testbed ended, if it ended during the run.
    pub server_ended: Option<&'a str>,
    /// Whether the run ended early because too many arrivals were waiting.
    pub gave_up: bool,
    /// Number of refused connections, if all were refused and the run ended early.
    pub all_refused: Option<u64>,
    /// Target of the connections, as text.
    pub target: &'a str,
    /// Error of the handshakes' RTT in the measured phase, in ns.
    pub handshake_error: Option<schema::Quantiles>,
    /// Whether any link has a rate or jitter, so that handshakes differ from the configured RTT.
    pub rtt_varies: bool,
    /// Whether the server is on another host, so that a handshake includes the time of the real network.
    pub beyond: bool,
    /// Whether links have delay only.
    pub only_delays: bool,
    /// The packet capture, if there was one.
    pub wire: Option<WireEvidence<'a>>,
}

/// Loop of the load generator in the measured phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoopHealth {
    /// The longest stall: a late wake-up, or a long iteration (the process stopped, or preempted).
    pub longest_stall: Duration,
    /// Time that the loop spent waiting, sleeping or spinning.
    pub idle: Duration,
    /// Length of the measured phase, measured by the loop.
    pub wall: Duration,
    /// CPU time of the loop's thread, polling while it waits included.
    pub cpu: Duration,
    /// Time for which the thread was ready to run and had no core; `None` if the kernel does not measure it.
    pub run_queue_wait: Option<Duration>,
}

impl LoopHealth {
    /// Share of the time in which the loop was busy, 0 to 1. Stolen time of a busy loop counts as busy.
    pub fn busy_share(&self) -> f64 {
        if self.wall.is_zero() { 0.0 } else { 1.0 - (self.idle.as_secs_f64() / self.wall.as_secs_f64()).min(1.0) }
    }

    /// CPU time of the loop's work, at most: without stolen time, and without polling while it waits.
    pub fn work(&self) -> Duration {
        self.cpu.min(self.wall.saturating_sub(self.idle))
    }
}

/// Packets that the testbed itself lost. `None` if the counters could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnintendedDrops {
    /// Number of packets.
    pub packets: u64,
    /// Where they were lost, as text; empty if none.
    pub places: String,
    /// Packets that the server's own cores could not receive in time; not included above.
    pub not_received: u64,
}

/// Rows of the table of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoredRows {
    /// Number of rows.
    pub rows: u64,
    /// One row for this many requests; 1 if all are stored.
    pub one_in: u64,
}
