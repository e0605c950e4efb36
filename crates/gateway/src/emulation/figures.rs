//! What a lab counts: the gateway's processor time, what its links carried, what its kernel did.
//!
//! All are running totals at one moment. `since` gives what lies between two.

use std::time::Duration;

use sys::cgroup::Periods;

/// What the gateway used since it was made, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayUsed {
    /// The moment, on the monotonic clock. In a difference: how long it was.
    pub at: Duration,
    /// Processor time of everything at the gateway: card and programs.
    pub cpu: Duration,
    /// Of the card: forwarding and translation.
    pub card: Duration,
    /// Of the programs at the gateway.
    pub programs: Duration,
    /// How long it was held back by its share; absent where no share can be set.
    pub throttled: Option<Duration>,
    /// Periods of its share, and those in which it was used up; absent where no share can be set.
    pub periods: Option<Periods>,
    /// The most memory that its processes ever had, in bytes; absent where it is not counted.
    pub memory_max: Option<u64>,
    /// Packets for which the rings of its card had no room, since the gateway stood still or was too slow: those from the
    /// clients, those from the server.
    pub overflowed: [u64; 2],
}

impl GatewayUsed {
    /// From `earlier` to `self`; of the memory the most ever.
    pub fn since(&self, earlier: &GatewayUsed) -> GatewayUsed {
        let [client, server] = [0, 1].map(|end| self.overflowed[end].saturating_sub(earlier.overflowed[end]));
        GatewayUsed {
            at: self.at.saturating_sub(earlier.at),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            card: self.card.saturating_sub(earlier.card),
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

    /// Of a difference: processor time over its length, in cores.
    pub fn cores(&self) -> f64 {
        share(self.cpu, self.at)
    }
}

/// What one link did since it was made, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// The moment, on the monotonic clock. In a difference: how long it was.
    pub at: Duration,
    /// Towards the server.
    pub up: DirectionFigures,
    /// Towards the clients.
    pub down: DirectionFigures,
    /// How long its loop ran, as of its last tick.
    pub ran: Duration,
    /// How long its loop wanted to run and had no core.
    pub stood: Duration,
    /// Packets that were written, big segments counted once.
    pub written: u64,
    /// Of these, more than 1 ms after they were due.
    pub late: u64,
    /// Packets lost by the lab itself: where a device's queue was full, or the kernel would not take one.
    pub mistaken: u64,
}

impl LinkFigures {
    /// From `earlier` to `self`.
    pub fn since(&self, earlier: &LinkFigures) -> LinkFigures {
        LinkFigures {
            at: self.at.saturating_sub(earlier.at),
            up: self.up.since(&earlier.up),
            down: self.down.since(&earlier.down),
            ran: self.ran.saturating_sub(earlier.ran),
            stood: self.stood.saturating_sub(earlier.stood),
            written: self.written.saturating_sub(earlier.written),
            late: self.late.saturating_sub(earlier.late),
            mistaken: self.mistaken.saturating_sub(earlier.mistaken),
        }
    }

    /// Of a difference: share of the time in which the loop ran or wanted to, 0 to 1. At 1 it carries no more than it did.
    pub fn busy_share(&self) -> f64 {
        share(self.ran + self.stood, self.at).min(1.0)
    }

    /// Of a difference: share of packets that were more than 1 ms late, 0 to 1.
    pub fn late_share(&self) -> f64 {
        if self.written == 0 { 0.0 } else { self.late as f64 / self.written as f64 }
    }
}

/// What a link carried one way, in wire packets and bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionFigures {
    /// Handed to the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Handed on by the link.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Lost by chance, as asked.
    pub lost: u64,
    /// Dropped because the link's queue was full.
    pub queue_full: u64,
    /// Dropped for any other cause: malformed, of no one.
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

/// What the gateway's kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Packets forwarded; a big segment counts once.
    pub forwarded: u64,
    /// For which it had no route.
    pub no_route: u64,
    /// Malformed ones, and those whose time to live was over. The lab itself sends some at its start, to see what the card
    /// takes for one.
    pub header_errors: u64,
    /// Connections that are tracked at this moment; absent where none are.
    pub tracked: Option<u64>,
    /// Packets dropped because a connection could not be tracked; absent where none are.
    pub untracked_drops: Option<u64>,
}

impl GatewayCounts {
    /// From `earlier` to `self`; connections as of `self`.
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

/// What is to be said of a lab beside its figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabFacts {
    /// For how long at a time the gateway may stand still by its share: usually, and seldom; absent without one.
    pub stall_lengths: Option<[Duration; 2]>,
    /// What the card itself takes for a packet where many come at once, in nanoseconds: to take it out of the ring and hand it to
    /// the kernel, which drops it there. Measured while the lab is made; absent where that did not succeed.
    pub card_ns_a_packet: Option<f64>,
    /// The same for one that comes alone, for which the card has to be woken, as a processor has to be interrupted.
    pub card_ns_alone: Option<f64>,
    /// Where things run, in words.
    pub placement: String,
    /// What processors did that had nothing to do.
    pub idle: String,
    /// Whether processor time is that of a control group; otherwise of /proc.
    pub by_cgroup: bool,
    /// Whether all of it is in a user namespace.
    pub rootless: bool,
    /// What the user should know, a sentence each.
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

        let then =
            LinkFigures { at: ms(0), ran: ms(10), stood: ms(10), written: 10, late: 5, ..LinkFigures::default() };
        let now = LinkFigures { at: ms(100), ran: ms(60), stood: ms(20), written: 110, late: 6, ..then };
        let between = now.since(&then);
        assert_eq!((between.busy_share(), between.late_share()), (0.6, 0.01));
        assert_eq!(LinkFigures { stood: ms(500), ..now }.since(&then).busy_share(), 1.0);
    }
}
