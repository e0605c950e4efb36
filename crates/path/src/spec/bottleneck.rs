//! Bottlenecks: a rate with a queue in front of it.

use std::sync::Arc;
use std::time::Duration;

use units::{BitRate, Bytes};

use super::DeliveryTrace;

/// A rate with a queue in front of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// Bit rate, counting whole IP packets.
    pub rate: RateSpec,
    /// The queue in front of it.
    pub queue: Queue,
}

/// Bit rate of a bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// Constant.
    Constant(BitRate),
    /// At the delivery times of a trace.
    Trace(Arc<DeliveryTrace>),
}

impl RateSpec {
    /// The mean rate in the long run; `None` for a trace below 1 bit/s.
    pub fn mean(&self) -> Option<BitRate> {
        match self {
            RateSpec::Constant(rate) => Some(*rate),
            RateSpec::Trace(trace) => trace.mean_rate(),
        }
    }
}

/// The queue in front of a bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// The queue's capacity.
    pub limit: QueueLimit,
    /// Which packets are dropped before it is full.
    pub discipline: Discipline,
}

/// Capacity of a queue before packets are dropped at its tail. A packet that arrives at an idle link always passes,
/// however small the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes not yet sent, including the remainder of the packet being sent, and the new packet.
    Bytes(Bytes),
    /// Packets not yet sent, including the one being sent and the new one.
    Packets(u32),
    /// Time that the new packet would wait before its first bit is sent.
    Time(Duration),
}

impl QueueLimit {
    /// 200 ms of waiting, at every rate. A fixed number of bytes would be a second at 512 kbit/s and negligible at 100
    /// Mbit/s; access links commonly have queues of 100 to 300 ms at their own rate, and 200 ms is one bandwidth-delay
    /// product of the more distant clients, so that one TCP connection can fill the link.
    pub const DEFAULT: QueueLimit = QueueLimit::Time(Duration::from_millis(200));
}

impl Default for QueueLimit {
    fn default() -> Self {
        QueueLimit::DEFAULT
    }
}

/// Which packets a queue drops in addition to those that find it full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// No others: only packets that find the queue full.
    #[default]
    DropTail,
    /// Controlled delay: drops at the head, when packets have waited too long for too long (RFC 8289).
    CoDel(CoDel),
    /// Proportional integral controller enhanced: drops at the tail, with a probability that follows the delay (RFC
    /// 8033).
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
