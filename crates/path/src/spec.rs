//! What is asked of one client's path.

use std::time::Duration;

use units::{BitRate, Bytes, Limit, Probability};

/// One direction of one client's path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// One-way delay: mean over packets where there is variation. Queueing for a rate comes on top.
    pub delay: Duration,
    /// Each packet's delay is drawn evenly from `delay - variation` to `delay + variation`, and then held back behind
    /// the packet before it: order is kept. Cut to `delay` where it is larger, since no delay is negative.
    pub variation: Duration,
    /// Chance that a wire packet is lost, each independently of the others.
    pub loss: Probability,
    /// Bottleneck rate, counting whole IP packets.
    pub rate: Limit<BitRate>,
    /// How much may wait for the bottleneck. Without a rate nothing ever waits.
    pub queue: QueueLimit,
}

impl LinkSpec {
    /// A link that only delays.
    pub const fn constant(delay: Duration) -> Self {
        LinkSpec {
            delay,
            variation: Duration::ZERO,
            loss: Probability::ZERO,
            rate: Limit::Unlimited,
            queue: QueueLimit::DEFAULT,
        }
    }

    /// True when loss or rate act on it, so that super-packets must be cut into wire packets first.
    pub fn acts_per_wire_packet(&self) -> bool {
        self.loss.value() > 0.0 || self.rate.value().is_some()
    }
}

/// How much may wait in front of a bottleneck before packets are dropped at its tail. A packet that finds the link
/// idle always goes through, however small the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes not yet sent, counting what is left of the packet being sent, and the new packet.
    Bytes(Bytes),
    /// Time the new packet would have to wait before its first bit is sent.
    Time(Duration),
}

impl QueueLimit {
    /// 200 ms of waiting, at every rate. A number of bytes would be a second at 512 kbit/s and nothing at 100 Mbit/s;
    /// access links are commonly built with 100 to 300 ms at their own rate, and 200 ms holds one bandwidth-delay
    /// product of the farther clients, so that one TCP connection can fill the link.
    pub const DEFAULT: QueueLimit = QueueLimit::Time(Duration::from_millis(200));
}

impl Default for QueueLimit {
    fn default() -> Self {
        QueueLimit::DEFAULT
    }
}

/// One virtual client's path, both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientPath {
    /// Client to server.
    pub up: LinkSpec,
    /// Server to client.
    pub down: LinkSpec,
}

impl ClientPath {
    /// A path that only delays: half of `rtt` each way; the odd nanosecond goes down.
    pub fn constant(rtt: Duration) -> Self {
        let up = rtt / 2;
        ClientPath { up: LinkSpec::constant(up), down: LinkSpec::constant(rtt - up) }
    }

    /// The RTT asked for: both delays, without queueing, variation or transmission time.
    pub fn rtt(&self) -> Duration {
        self.up.delay + self.down.delay
    }
}
