//! What a command line replaces in a profile.

use std::time::Duration;

use crate::effect::Effects;
use crate::spec::{Bottleneck, ClientPath, Discipline, EffectSpec, LinkSpec, Queue, QueueLimit, RateSpec};

/// Replacements for every client's path; `None` leaves what the profile says.
///
/// An effect takes the place of the first of its kind on the link, and others of its kind are gone; where there is
/// none, it is put in the usual order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Override {
    /// This RTT for everyone, half of it each way; the odd nanosecond goes down. Constant delays among the effects are
    /// part of an RTT, and go.
    pub rtt: Option<Duration>,
    /// Effects in both directions.
    pub effects: Effects,
    /// Bottleneck rate on the way up.
    pub up_rate: Option<RateSpec>,
    /// Bottleneck rate on the way down.
    pub down_rate: Option<RateSpec>,
    /// Queue limit, in both directions. It bites where there is a rate.
    pub queue: Option<QueueLimit>,
    /// Queue discipline, in both directions. It bites where there is a rate.
    pub discipline: Option<Discipline>,
}

impl Override {
    /// Puts the replacements in.
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

/// Puts `effect` in the place of the first of its key, and takes the others out.
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
    fn what_is_not_replaced_stays() {
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

    /// The place in the order of travel is kept, and what is replaced is replaced wholly.
    #[test]
    fn an_effect_takes_the_place_of_its_kind() {
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
