//! Changes while a path is in use.

use std::ops::Range;
use std::time::Duration;

use units::Probability;

/// One change: from `at` on, for `duration` (otherwise permanently), on all links of `place`.
///
/// Times count from the start of the measured phase ([`crate::Network::set_start`]). Overlapping changes of one kind
/// are multiplied if they are factors; of replacing values, the one that began last is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When the change begins.
    pub at: Duration,
    /// Duration of the change; `None`: to the end.
    pub duration: Option<Duration>,
    /// The links concerned.
    pub place: ChangedLinks,
    /// The property that changes.
    pub kind: ChangeKind,
}

/// The links that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedLinks {
    /// The own links of these clients, by number, both directions.
    Clients(Range<u32>),
    /// The shared link of this number, both directions.
    Shared(usize),
}

/// The property that changes, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeKind {
    /// Every packet that reaches the link is dropped. Packets in transit continue.
    Outage,
    /// Propagation delay, and constant delays among the effects, of packets that start to travel during the change.
    /// Order is kept.
    Delay(Factor),
    /// Rate of every bottleneck, also for the remainder of the packets that wait in front of it.
    Rate(Factor),
    /// The client's address translation (NAT) forgets its mappings: every connection of the client, TCP or UDP, continues
    /// from another port as the server sees it. It has no end.
    Rebind,
    /// The client moves its QUIC connections to other ports of its own (RFC 9000, section 9). Packets are not changed:
    /// the client does it.
    Migrate,
    /// Independent loss, replacing the link's own loss effects of either kind (before all effects if it has none).
    Loss(Probability),
}

impl ChangeKind {
    /// Whether packets pass links differently during the change.
    pub fn is_of_links(self) -> bool {
        !matches!(self, ChangeKind::Rebind | ChangeKind::Migrate)
    }
}

/// A positive, finite factor.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// `None` unless from 1/1,000,000 to 1,000,000.
    pub fn new(value: f64) -> Option<Self> {
        (1e-6..=1e6).contains(&value).then_some(Factor(value))
    }

    /// The number itself.
    pub fn value(self) -> f64 {
        self.0
    }
}
