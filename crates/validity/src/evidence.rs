//! Evidence: what a run's vantage points counted, in the form in which the checks take it.

mod counting;
mod packets;
mod signed;
mod sockets;

use std::time::Duration;

use load::{DelayBounds, Levels, LittleTerms};
use plan::Plan;

pub use self::packets::{Agreed, Watched, WireEvidence, WireFigures, WireLevels};
pub use self::signed::Differences;
pub use self::sockets::{ClientTotals, KernelOpens, Opens, Outside, TapLevels};

/// What the checks take, besides the document itself.
pub struct Evidence<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The loop's own health.
    pub loop_health: &'a LoopHealth,
    /// How far reported times may be too long because of the generator itself.
    pub delays: &'a DelayBounds,
    /// Little's law from the records.
    pub little: &'a LittleTerms,
    /// Little's law as sampled.
    pub levels: &'a Levels,
    /// In-flight means, one a second of the measured phase.
    pub in_flight_by_second: &'a [f64],
    /// Packets lost at the TUN devices and refused by the kernel; `None` if the counters could not be read.
    pub mistaken_drops: Option<Mistaken>,
    /// Arrivals that found every connection busy and the cap reached.
    pub cap_hits: u64,
    /// How far the wall clock, by which objects of a mix change, has run apart from the run's; `None` without a mix.
    pub wall_drift: Option<Duration>,
    /// What is in the table of requests, where there is one.
    pub table: Option<Kept>,
    /// First error of writing the run to disk.
    pub store_error: Option<&'a str>,
    /// What became of the lab's server during the run, if it ended.
    pub server_ended: Option<&'a str>,
    /// Whether the run ended itself because too many arrivals were waiting.
    pub gave_up: bool,
    /// How many connections were opened and refused, where that was all that happened and the run stopped itself.
    pub all_refused: Option<u64>,
    /// Where connections go, in words.
    pub target: &'a str,
    /// How far handshakes of the measured phase were from what was asked, in ns.
    pub handshake_error: Option<schema::Quantiles>,
    /// Whether any link has a rate or a jitter, so that handshakes differ from the asked RTT.
    pub rtt_varies: bool,
    /// Whether the server is on another host, so that a handshake takes the real network's time as well.
    pub beyond: bool,
    /// Whether no link does anything but delay.
    pub only_delays: bool,
    /// The packet capture, where there was one.
    pub wire: Option<WireEvidence<'a>>,
}

/// How the loop itself fared in the measured phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoopHealth {
    /// The longest time for which nothing that became due could be served: a wake-up that came late, or one turn that
    /// took long (the process stopped, the core taken away).
    pub standstill: Duration,
    /// Time the loop spent waiting, sleeping or spinning.
    pub idle: Duration,
    /// Length of the measured phase as the loop saw it.
    pub wall: Duration,
    /// CPU time of the loop's thread.
    pub cpu: Duration,
}

impl LoopHealth {
    /// Share of the time in which the loop had work, 0 to 1. Time stolen while it had work counts as work.
    pub fn busy_share(&self) -> f64 {
        if self.wall.is_zero() { 0.0 } else { 1.0 - (self.idle.as_secs_f64() / self.wall.as_secs_f64()).min(1.0) }
    }
}

/// Packets that the instrument itself lost, and where, in words. `None` if the counters could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistaken {
    /// How many in all.
    pub packets: u64,
    /// Where: empty if none.
    pub places: String,
    /// Packets that the server's own cores had no time to receive: not counted above.
    pub not_received: u64,
}

/// What is in the table of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Rows in it.
    pub rows: u64,
    /// It holds one in so many of the run's requests, evenly; 1 for all.
    pub one_in: u64,
}
