//! What changes while a path is in use.

use std::ops::Range;
use std::time::Duration;

use units::Probability;

/// One change: from `at` on, for `lasts` (for good otherwise), in all links that `place` names.
///
/// Moments count from the start of what is measured ([`crate::Network::set_start`]). Changes of one kind that overlap
/// are multiplied where they are factors; of values that replace, the one that began last holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When it begins.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Option<Duration>,
    /// Where.
    pub place: Where,
    /// What becomes different.
    pub kind: ChangeKind,
}

/// The links that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// The own links of these clients, by number, both directions.
    Clients(Range<u32>),
    /// The shared link of this number, both directions.
    Shared(usize),
}

/// What becomes different.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeKind {
    /// Every packet that reaches the link is dropped. What is on the way already goes on.
    Outage,
    /// Propagation delay, and constant delays among the effects, of packets that start to travel meanwhile. Order is kept.
    Delay(Factor),
    /// Rate of every bottleneck, for what is left of the packets that wait in front of it, too.
    Rate(Factor),
    /// Independent loss, in the place of the link's own loss effects of either kind (before all effects where it has none).
    Loss(Probability),
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
