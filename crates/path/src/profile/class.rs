//! Classes of clients: from a quantile to a path.

use std::sync::Arc;
use std::time::Duration;

use super::rtt::Rtt;
use crate::spec::{ClientPath, DelayOverTime, EffectSpec, LinkSpec, Propagation};

/// A class of clients. Built by `document` from a file, or by [`super::Profile::constant`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    pub(super) name: Option<String>,
    pub(super) share: f64,
    pub(super) rtt: Rtt,
    pub(super) up_share: f64,
    /// In order of travel.
    pub(super) up: Vec<EffectSpec>,
    pub(super) down: Vec<EffectSpec>,
    pub(super) shared: Shared,
}

/// A link that several clients share.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shared {
    pub(super) up: Vec<EffectSpec>,
    pub(super) down: Vec<EffectSpec>,
}

impl Shared {
    pub(super) fn is_none(&self) -> bool {
        self.up.is_empty() && self.down.is_empty()
    }
}

impl Class {
    /// All clients at the same RTT, without effects.
    pub(super) fn constant(rtt: Duration) -> Self {
        Class {
            name: None,
            share: 1.0,
            rtt: Rtt::Constant(rtt),
            up_share: 0.5,
            up: Vec::new(),
            down: Vec::new(),
            shared: Shared::default(),
        }
    }

    /// The paths of `count` clients of the class, the nearest first.
    pub(super) fn clients(&self, count: u32) -> impl Iterator<Item = ClientPath> + '_ {
        // All clients share one series.
        let series = match &self.rtt {
            Rtt::OverTime(series) => Some(self.split(series)),
            _ => None,
        };
        (0..count).map(move |i| match &series {
            Some((up, down)) => self.path(Propagation::OverTime(up.clone()), Propagation::OverTime(down.clone())),
            None => self.client((f64::from(i) + 0.5) / f64::from(count)),
        })
    }

    /// The client at quantile `q` of the class.
    pub(super) fn client(&self, q: f64) -> ClientPath {
        let rtt = self.rtt.quantile(q);
        let up = rtt.mul_f64(self.up_share).min(rtt);
        self.path(Propagation::Constant(up), Propagation::Constant(rtt - up))
    }

    fn split(&self, series: &DelayOverTime) -> (Arc<DelayOverTime>, Arc<DelayOverTime>) {
        (Arc::new(series.scaled(self.up_share)), Arc::new(series.scaled(1.0 - self.up_share)))
    }

    fn path(&self, up: Propagation, down: Propagation) -> ClientPath {
        ClientPath {
            up: LinkSpec { propagation: up, effects: self.up.clone() },
            down: LinkSpec { propagation: down, effects: self.down.clone() },
        }
    }
}

/// Divides `n` into whole numbers in proportion to `shares`, which add to 1, by the largest remainder method
/// (Hamilton): each class gets the integer part of its quota, and the rest goes to the largest fractions, earlier
/// classes first.
pub(super) fn apportion(shares: &[f64], n: u32) -> Vec<u32> {
    let dues: Vec<f64> = shares.iter().map(|share| share * f64::from(n)).collect();
    // A quota that is a whole number except for rounding (0.7 x 10) must not lose one.
    let mut counts: Vec<u32> = dues.iter().map(|due| (due + 1e-6).floor() as u32).collect();
    let unassigned = n.saturating_sub(counts.iter().sum());
    let mut by_fraction: Vec<usize> = (0..dues.len()).collect();
    let fraction = |class: usize| dues[class] - f64::from(counts[class]);
    by_fraction.sort_by(|&a, &b| fraction(b).total_cmp(&fraction(a)));
    for &class in by_fraction.iter().cycle().take(unassigned as usize) {
        counts[class] += 1;
    }
    counts
}
