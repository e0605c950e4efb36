//! Bottlenecks: a rate with a queue in front of it.

use std::sync::Arc;
use std::time::Duration;

use units::{BitRate, Bytes};

use super::DeliveryTrace;

/// A rate with a queue in front of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// How fast it sends, counting whole IP packets.
    pub rate: RateSpec,
    /// What waits for it.
    pub queue: Queue,
}

/// How fast a bottleneck sends.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// Always at this rate.
    Constant(BitRate),
    /// At the moments a trace says.
    Trace(Arc<DeliveryTrace>),
}

impl RateSpec {
    /// The rate in the long run; `None` for a trace too slow to have one.
    pub fn mean(&self) -> Option<BitRate> {
        match self {
            RateSpec::Constant(rate) => Some(*rate),
            RateSpec::Trace(trace) => trace.mean_rate(),
        }
    }
}

/// What waits in front of a bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// How much there may be.
    pub limit: QueueLimit,
    /// Which packets are dropped before it is full.
    pub discipline: Discipline,
}

/// How much may wait in front of a bottleneck before packets are dropped at its tail. A packet that finds the link
/// idle always goes through, however small the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes not yet sent, counting what is left of the packet being sent, and the new packet.
    Bytes(Bytes),
    /// Packets not yet sent, counting the one being sent and the new one.
    Packets(u32),
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

/// Which packets a queue drops besides those that find it full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// None.
    #[default]
    DropTail,
    /// Controlled delay: at the head, when packets have stayed too long for too long (RFC 8289).
    CoDel(CoDel),
    /// Proportional integral controller enhanced: at the tail, with a probability that follows the delay (RFC 8033).
    Pie(Pie),
}

/// CoDel's two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Acceptable standing delay.
    pub target: Duration,
    /// How long the delay must stay above the target before the first drop: a typical RTT.
    pub interval: Duration,
}

impl Default for CoDel {
    /// 5 ms and 100 ms (RFC 8289, section 4.4).
    fn default() -> Self {
        CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// PIE's two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// QDELAY_REF: the delay it steers to.
    pub target: Duration,
    /// T_UPDATE: how often the probability is computed anew.
    pub update: Duration,
}

impl Default for Pie {
    /// 15 ms and 15 ms (RFC 8033, section 4.2).
    fn default() -> Self {
        Pie { target: Duration::from_millis(15), update: Duration::from_millis(15) }
    }
}
