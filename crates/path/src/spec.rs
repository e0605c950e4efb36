//! Configuration of a path: each client's two links, the shared links, and the changes during a run.

mod bottleneck;
mod change;
mod overtime;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use units::{BitRate, Limit};

pub use crate::effect::{EffectSpec, GilbertElliott, Reorder};
pub use bottleneck::{Bottleneck, CoDel, Discipline, Pie, Queue, QueueLimit, RateSpec};
pub use change::{Change, ChangeKind, ChangedLinks, Factor};
pub use overtime::{Between, DelayOverTime, DeliveryTrace};

/// The configuration of the whole path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathSpec {
    /// Each client's own path, in client order.
    pub clients: Vec<ClientPath>,
    /// Links that several clients share, between their own links and the server. A packet going up passes them in this
    /// order after its client's own link; one going down in the opposite order, before it.
    pub shared: Vec<SharedSpec>,
    /// Changes while the path is in use, in any order.
    pub changes: Vec<Change>,
}

impl PathSpec {
    /// Only the clients' own links, without changes.
    pub fn new(clients: Vec<ClientPath>) -> Self {
        PathSpec { clients, shared: Vec::new(), changes: Vec::new() }
    }

    /// Whether all links only delay, always by the same time: only then is a client's RTT the same for every packet.
    pub fn only_delays(&self) -> bool {
        self.shared.is_empty()
            && self.changes.iter().all(|change| !change.kind.is_of_links())
            && self.clients.iter().all(|client| client.up.only_delays() && client.down.only_delays())
    }
}

/// A link that several clients share.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSpec {
    /// Client numbers of its members.
    pub members: Range<u32>,
    /// On the way to the server, in order of travel.
    pub up: Vec<EffectSpec>,
    /// On the way to the clients, in order of travel.
    pub down: Vec<EffectSpec>,
}

/// One virtual client's path, both directions.
#[derive(Clone, Debug, PartialEq)]
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

    /// The configured RTT: both delays, without queueing, jitter or transmission time. If it follows a file, the mean
    /// over the file.
    pub fn rtt(&self) -> Duration {
        self.up.delay() + self.down.delay()
    }

    /// [`ClientPath::rtt`] in ns.
    pub fn rtt_ns(&self) -> u64 {
        units::time::saturating_nanos(self.rtt())
    }
}

/// One direction of one client's path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSpec {
    /// Propagation delay, after all effects: the mean over packets if effects vary it.
    pub propagation: Propagation,
    /// Effects before the propagation delay, in order of travel. By default (`LinkSpec::put`) loss, then the
    /// bottleneck, then jitter; any order can be configured.
    pub effects: Vec<EffectSpec>,
}

/// Propagation delay of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Propagation {
    /// Always the same.
    Constant(Duration),
    /// By the time at which a packet starts to travel; packets keep their order.
    OverTime(Arc<DelayOverTime>),
}

impl Default for Propagation {
    fn default() -> Self {
        Propagation::Constant(Duration::ZERO)
    }
}

impl LinkSpec {
    /// A link that only delays.
    pub const fn constant(delay: Duration) -> Self {
        LinkSpec { propagation: Propagation::Constant(delay), effects: Vec::new() }
    }

    /// One-way delay without queueing: propagation (its mean, if it changes) and the constant delays among the effects.
    pub fn delay(&self) -> Duration {
        let propagation = match &self.propagation {
            Propagation::Constant(delay) => *delay,
            Propagation::OverTime(series) => series.mean(),
        };
        let added = self.effects.iter().map(|effect| effect.expected().delay);
        added.fold(propagation, Duration::saturating_add)
    }

    /// Replaces the first effect of the same kind with `effect`; if there is none, inserts it before the first effect
    /// that comes later by default.
    pub fn put(&mut self, effect: EffectSpec) {
        let same = |other: &EffectSpec| std::mem::discriminant(other) == std::mem::discriminant(&effect);
        if let Some(place) = self.effects.iter().position(same) {
            self.effects[place] = effect;
            return;
        }
        let later = self.effects.iter().position(|other| other.rank() > effect.rank());
        self.effects.insert(later.unwrap_or(self.effects.len()), effect);
    }

    /// Mean share of wire packets that its loss effects drop, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.effects.iter().fold(0.0, |lost, effect| lost + (1.0 - lost) * effect.expected().dropped)
    }

    /// The lowest mean rate among its bottlenecks.
    pub fn rate(&self) -> Limit<BitRate> {
        let rates = self.bottlenecks().filter_map(|bottleneck| bottleneck.rate.mean());
        rates.min().map_or(Limit::Unlimited, Limit::At)
    }

    /// The link's bottlenecks, in order of travel.
    pub fn bottlenecks(&self) -> impl Iterator<Item = &Bottleneck> {
        self.effects.iter().filter_map(|effect| match effect {
            EffectSpec::Bottleneck(bottleneck) => Some(bottleneck),
            _ => None,
        })
    }

    /// Maximum deviation of a packet's delay from [`Self::delay`] by jitter, in either direction.
    pub fn jitter(&self) -> Duration {
        let jitters = self.effects.iter().map(|effect| effect.expected().jitter);
        jitters.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Whether every packet takes exactly the same time and none is changed.
    pub fn only_delays(&self) -> bool {
        matches!(self.propagation, Propagation::Constant(_))
            && self.effects.iter().all(|effect| effect.is_idle() || matches!(effect, EffectSpec::Delay(_)))
    }
}
