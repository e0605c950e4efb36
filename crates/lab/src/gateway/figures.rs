//! What a lab counts: the gateway's processor time, what its links carried, what its kernel did.

use std::time::Duration;

use sys::cgroup::Periods;

/// What the gateway used since it was made, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayUsed {
    /// The moment, on the monotonic clock.
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
    /// The most memory that its processes had, in bytes; absent where it is not counted.
    pub memory_max: Option<u64>,
    /// Packets for which the rings of its card had no room: those from the clients, those from the server.
    pub overflowed: [u64; 2],
}

/// What one link did since it was made, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// The moment, on the monotonic clock.
    pub at: Duration,
    /// Towards the server.
    pub up: DirectionFigures,
    /// Towards the clients.
    pub down: DirectionFigures,
    /// How long its loop ran.
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

/// What the gateway's kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Packets forwarded.
    pub forwarded: u64,
    /// For which it had no route.
    pub no_route: u64,
    /// Malformed ones, and those whose time to live was over.
    pub header_errors: u64,
    /// Connections that are tracked now; absent where none are.
    pub tracked: Option<u64>,
    /// Packets dropped because a connection could not be tracked; absent where none are.
    pub untracked_drops: Option<u64>,
}

/// What is to be said of a lab beside its figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabFacts {
    /// For how long at a time the gateway stands still by its share; absent without one.
    pub stands_still: Option<Duration>,
    /// What the card itself takes for a packet, in nanoseconds: to take it out of the ring and hand it to the kernel.
    pub card_ns_a_packet: Option<f64>,
    /// Where things run, in words.
    pub placement: String,
    /// Whether processor time is that of a control group; otherwise of /proc.
    pub by_cgroup: bool,
    /// What the user should know, a sentence each.
    pub notes: Vec<String>,
}
