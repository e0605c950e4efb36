//! Counters of the emulation: resource usage of the gateway, packets on its links, counters of its kernel.
//!
//! All are totals at one time. `since` gives the difference of two readings.

use std::time::Duration;

use sys::cgroup::Periods;

/// Resource usage of the gateway since its start, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayUsed {
    /// Time of the reading on the monotonic clock; in a difference the elapsed time.
    pub at: Duration,
    /// CPU time of emulated host and programs.
    pub cpu: Duration,
    /// CPU time of the emulated host: forwarding and translation.
    pub host_process: Duration,
    /// CPU time of the programs at the gateway.
    pub programs: Duration,
    /// Time throttled by the CPU limit; absent without control group.
    pub throttled: Option<Duration>,
    /// Periods of the CPU limit, and throttled ones; absent without control group.
    pub periods: Option<Periods>,
    /// Peak memory in bytes; absent if not counted.
    pub memory_max: Option<u64>,
    /// Packets dropped since the queue of the emulated host was full: from the clients, from the server.
    pub overflowed: [u64; 2],
}

impl GatewayUsed {
    /// Difference from `earlier` to `self`; `memory_max` stays.
    pub fn since(&self, earlier: &GatewayUsed) -> GatewayUsed {
        let [client, server] = [0, 1].map(|end| self.overflowed[end].saturating_sub(earlier.overflowed[end]));
        GatewayUsed {
            at: self.at.saturating_sub(earlier.at),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            host_process: self.host_process.saturating_sub(earlier.host_process),
            programs: self.programs.saturating_sub(earlier.programs),
            throttled: self.throttled.zip(earlier.throttled).map(|(now, then)| now.saturating_sub(then)),
            periods: self.periods.zip(earlier.periods).map(|(now, then)| Periods {
                all: now.all.saturating_sub(then.all),
                throttled: now.throttled.saturating_sub(then.throttled),
            }),
            memory_max: self.memory_max,
            overflowed: [client, server],
        }
    }

    /// Of a difference: CPU time over elapsed time, in cores.
    pub fn cores(&self) -> f64 {
        share(self.cpu, self.at)
    }
}

/// Counters of a link since its start, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// Time of the reading on the monotonic clock; in a difference the elapsed time.
    pub at: Duration,
    /// Client to server.
    pub up: DirectionFigures,
    /// Server to client.
    pub down: DirectionFigures,
    /// CPU time of its loop.
    pub ran: Duration,
    /// Time its loop was runnable without a core.
    pub waited_for_core: Duration,
    /// Packets written; unsplit segments count once.
    pub written: u64,
    /// Packets written more than 1 ms late.
    pub late: u64,
    /// Packets dropped by the testbed itself, at a device.
    pub unintended_drops: u64,
}

impl LinkFigures {
    /// Difference from `earlier` to `self`.
    pub fn since(&self, earlier: &LinkFigures) -> LinkFigures {
        LinkFigures {
            at: self.at.saturating_sub(earlier.at),
            up: self.up.since(&earlier.up),
            down: self.down.since(&earlier.down),
            ran: self.ran.saturating_sub(earlier.ran),
            waited_for_core: self.waited_for_core.saturating_sub(earlier.waited_for_core),
            written: self.written.saturating_sub(earlier.written),
            late: self.late.saturating_sub(earlier.late),
            unintended_drops: self.unintended_drops.saturating_sub(earlier.unintended_drops),
        }
    }

    /// Of a difference: utilization of the loop, 0 to 1, including time without a core. At 1 it is saturated.
    pub fn busy_share(&self) -> f64 {
        share(self.ran + self.waited_for_core, self.at).min(1.0)
    }

    /// Of a difference: share of packets that were more than 1 ms late, 0 to 1.
    pub fn late_share(&self) -> f64 {
        if self.written == 0 { 0.0 } else { self.late as f64 / self.written as f64 }
    }
}

/// Counters of one direction, in packets on the wire and bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionFigures {
    /// Packets sent into the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets forwarded by the link.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets lost at random, as configured.
    pub lost: u64,
    /// Packets dropped by the full queue.
    pub queue_full: u64,
    /// Packets dropped for other reasons: malformed, unknown address.
    pub others: u64,
}

impl DirectionFigures {
    fn since(&self, earlier: &DirectionFigures) -> DirectionFigures {
        DirectionFigures {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            delivered_bytes: self.delivered_bytes.saturating_sub(earlier.delivered_bytes),
            lost: self.lost.saturating_sub(earlier.lost),
            queue_full: self.queue_full.saturating_sub(earlier.queue_full),
            others: self.others.saturating_sub(earlier.others),
        }
    }
}

/// Counters of the gateway's kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Packets forwarded; unsplit segments count once.
    pub forwarded: u64,
    /// Packets without route.
    pub no_route: u64,
    /// Malformed packets and those with expired time to live. The emulation sends some at its start, to measure the
    /// cost of a packet.
    pub header_errors: u64,
    /// Tracked connections now; absent without tracking.
    pub tracked: Option<u64>,
    /// Packets dropped since a connection could not be tracked; absent without tracking.
    pub untracked_drops: Option<u64>,
}

impl GatewayCounts {
    /// Difference from `earlier` to `self`; `tracked` stays.
    pub fn since(&self, earlier: &GatewayCounts) -> GatewayCounts {
        GatewayCounts {
            forwarded: self.forwarded.saturating_sub(earlier.forwarded),
            no_route: self.no_route.saturating_sub(earlier.no_route),
            header_errors: self.header_errors.saturating_sub(earlier.header_errors),
            tracked: self.tracked,
            untracked_drops: self.untracked_drops.map(|now| now.saturating_sub(earlier.untracked_drops.unwrap_or(0))),
        }
    }
}

/// Facts about an emulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmulationFacts {
    /// Longest stall caused by the CPU share, usually and rarely; absent without one.
    pub stall_lengths: Option<[Duration; 2]>,
    /// CPU time of the emulated host itself per packet of a burst in nanoseconds, from its queue to the kernel, which
    /// drops the packet. Measured at the start; absent if that failed.
    pub host_ns_per_packet: Option<f64>,
    /// The same for an isolated packet, which has to wake the emulated host.
    pub host_ns_per_isolated_packet: Option<f64>,
    /// Placement on cores, in words.
    pub placement: String,
    /// Idle behaviour of the cores.
    pub idle: String,
    /// Whether CPU time is that of a control group; otherwise from /proc.
    pub by_cgroup: bool,
    /// Whether the emulation is in a user namespace.
    pub rootless: bool,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn shares_are_computed_over_the_interval() {
        let then = GatewayUsed { at: ms(1000), cpu: ms(50), overflowed: [3, 0], ..GatewayUsed::default() };
        let now = GatewayUsed { at: ms(3000), cpu: ms(250), overflowed: [5, 1], ..GatewayUsed::default() };
        let between = now.since(&then);
        assert_eq!((between.cores(), between.overflowed), (0.1, [2, 1]));
        assert_eq!(then.since(&then).cores(), 0.0);

        let then = LinkFigures {
            at: ms(0),
            ran: ms(10),
            waited_for_core: ms(10),
            written: 10,
            late: 5,
            ..LinkFigures::default()
        };
        let now = LinkFigures { at: ms(100), ran: ms(60), waited_for_core: ms(20), written: 110, late: 6, ..then };
        let between = now.since(&then);
        assert_eq!((between.busy_share(), between.late_share()), (0.6, 0.01));
        assert_eq!(LinkFigures { waited_for_core: ms(500), ..now }.since(&then).busy_share(), 1.0);
    }
}
