//! Command-line options that replace parts of a profile.

use std::time::Duration;

use crate::effect::Effects;
use crate::spec::{Bottleneck, ClientPath, Discipline, EffectSpec, LinkSpec, Queue, QueueLimit, RateSpec};

/// Replacements for every client's path; `None` keeps the profile's value.
///
/// An effect replaces the first of its kind on the link, and others of its kind are removed; if there is none, it is
/// inserted at its default position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Override {
    /// This RTT for all clients, half of it each way; the odd nanosecond goes down. Constant delays among the effects
    /// are part of an RTT and are removed.
    pub rtt: Option<Duration>,
    /// Effects in both directions.
    pub effects: Effects,
    /// Bottleneck rate on the way up.
    pub up_rate: Option<RateSpec>,
    /// Bottleneck rate on the way down.
    pub down_rate: Option<RateSpec>,
    /// Queue limit, in both directions; without a rate it has no effect.
    pub queue: Option<QueueLimit>,
    /// Queue discipline, in both directions; without a rate it has no effect.
    pub discipline: Option<Discipline>,
}

impl Override {
    /// Applies the replacements.
    pub fn apply(&self, path: &mut ClientPath) {
        if let Some(rtt) = self.rtt {
            let ClientPath { up, down } = ClientPath::constant(rtt);
            path.up.propagation = up.propagation;
            path.down.propagation = down.propagation;
            for link in [&mut path.up, &mut path.down] {
                link.effects.retain(|effect| !matches!(effect, EffectSpec::Delay(_)));
            }
        }
        for (link, rate) in [(&mut path.up, &self.up_rate), (&mut path.down, &self.down_rate)] {
            self.effects.iter().for_each(|effect| replace(link, effect.clone()));
            if let Some(rate) = rate.clone() {
                let queue = link.bottlenecks().next().map_or(Queue::default(), |bottleneck| bottleneck.queue);
                replace(link, EffectSpec::Bottleneck(Bottleneck { rate, queue }));
            }
            for effect in &mut link.effects {
                if let EffectSpec::Bottleneck(bottleneck) = effect {
                    bottleneck.queue.limit = self.queue.unwrap_or(bottleneck.queue.limit);
                    bottleneck.queue.discipline = self.discipline.unwrap_or(bottleneck.queue.discipline);
                }
            }
        }
    }
}

/// Replaces the first effect of the same key with `effect`, and removes the others.
fn replace(link: &mut LinkSpec, effect: EffectSpec) {
    let key = effect.key();
    match link.effects.iter().position(|other| other.key() == key) {
        Some(place) => {
            link.effects[place] = effect;
            let mut index = 0;
            link.effects.retain(|effect| {
                index += 1;
                index - 1 == place || effect.key() != key
            });
        }
        None => link.put(effect),
    }
}

#[cfg(test)]
mod tests {
    use units::{BitRate, Bytes, Limit, Probability};

    use super::*;
    use crate::spec::{CoDel, GilbertElliott, Propagation};
    use crate::typed::Loss;

    fn probability(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    #[test]
    fn empty_override_leaves_the_path_unchanged() {
        let mut path = ClientPath::constant(Duration::from_millis(10));
        path.up.put(EffectSpec::Loss(probability(0.5)));
        let before = path.clone();
        Override::default().apply(&mut path);
        assert_eq!(path, before);
        let rate = BitRate::from_bits_per_second(10_000_000).unwrap();
        let replace = Override {
            rtt: Some(Duration::from_millis(48)),
            down_rate: Some(RateSpec::Constant(rate)),
            queue: Some(QueueLimit::Bytes(Bytes(64_000))),
            discipline: Some(Discipline::CoDel(CoDel::default())),
            ..Override::default()
        };
        replace.apply(&mut path);
        assert_eq!((path.rtt(), path.up.loss()), (Duration::from_millis(48), before.up.loss()));
        assert_eq!((path.up.rate(), path.down.rate()), (Limit::Unlimited, Limit::At(rate)));
        let queues: Vec<Queue> = path.down.bottlenecks().map(|bottleneck| bottleneck.queue).collect();
        let queue = Queue { limit: replace.queue.unwrap(), discipline: replace.discipline.unwrap() };
        assert_eq!(queues, [queue]);
        assert!(matches!(path.down.propagation, Propagation::Constant(_)));
    }

    /// The position in the order of travel stays, and all settings of the replaced effect are replaced.
    #[test]
    fn override_replaces_an_effect_of_the_same_kind_at_its_position() {
        let one = probability(1.0);
        let bursts = GilbertElliott { to_bad: one, to_good: one, loss_good: one, loss_bad: one };
        let rate = RateSpec::Constant(BitRate::from_bits_per_second(1_000_000).unwrap());
        let bottleneck = EffectSpec::Bottleneck(Bottleneck { rate, queue: Queue::default() });
        let mut path = ClientPath::constant(Duration::from_millis(10));
        path.up.effects = vec![
            EffectSpec::Delay(Duration::from_millis(3)),
            bottleneck.clone(),
            EffectSpec::GilbertElliott(bursts),
            EffectSpec::Loss(probability(0.2)),
        ];
        let loss = Loss::Even(probability(0.01));
        let effects = [loss.effect()].into_iter().collect();
        let replace = Override { rtt: Some(Duration::from_millis(5)), effects, ..Override::default() };
        replace.apply(&mut path);
        assert_eq!(path.up.effects, [bottleneck, loss.effect()]);
        assert_eq!(path.down.effects, [loss.effect()]);
        assert_eq!(path.rtt(), Duration::from_millis(5));
    }
}
