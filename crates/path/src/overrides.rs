//! What a command line replaces in a profile.

use std::time::Duration;

use units::{BitRate, Probability};

use crate::spec::{Bottleneck, ClientPath, EffectSpec, Queue, QueueLimit, RateSpec};

/// Replacements for every client's path; `None` leaves what the profile says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Override {
    /// This RTT for everyone, half of it each way; the odd nanosecond goes down.
    pub rtt: Option<Duration>,
    /// Variation of each packet's delay, in both directions.
    pub variation: Option<Duration>,
    /// Loss probability, in both directions.
    pub loss: Option<Probability>,
    /// Bottleneck rate on the way up.
    pub up_rate: Option<BitRate>,
    /// Bottleneck rate on the way down.
    pub down_rate: Option<BitRate>,
    /// Queue limit, in both directions. It bites where there is a rate.
    pub queue: Option<QueueLimit>,
}

impl Override {
    /// Puts the replacements in.
    pub fn apply(&self, path: &mut ClientPath) {
        if let Some(rtt) = self.rtt {
            let ClientPath { up, down } = ClientPath::constant(rtt);
            path.up.propagation = up.propagation;
            path.down.propagation = down.propagation;
        }
        for (link, rate) in [(&mut path.up, self.up_rate), (&mut path.down, self.down_rate)] {
            if let Some(variation) = self.variation {
                link.put(EffectSpec::Variation(variation));
            }
            if let Some(loss) = self.loss {
                link.effects.retain(|effect| !matches!(effect, EffectSpec::GilbertElliott(_)));
                link.put(EffectSpec::Loss(loss));
            }
            if let Some(rate) = rate {
                let queue = link.bottlenecks().next().map_or(Queue::default(), |bottleneck| bottleneck.queue);
                link.put(EffectSpec::Bottleneck(Bottleneck { rate: RateSpec::Constant(rate), queue }));
            }
            if let Some(limit) = self.queue {
                for effect in &mut link.effects {
                    if let EffectSpec::Bottleneck(bottleneck) = effect {
                        bottleneck.queue.limit = limit;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Limit};

    use super::*;
    use crate::spec::Propagation;

    #[test]
    fn what_is_not_replaced_stays() {
        let mut path = ClientPath::constant(Duration::from_millis(10));
        path.up.put(EffectSpec::Loss(Probability::new(0.5).unwrap()));
        let before = path.clone();
        Override::default().apply(&mut path);
        assert_eq!(path, before);
        let replace = Override {
            rtt: Some(Duration::from_millis(48)),
            down_rate: BitRate::from_bits_per_second(10_000_000),
            queue: Some(QueueLimit::Bytes(Bytes(64_000))),
            ..Override::default()
        };
        replace.apply(&mut path);
        assert_eq!((path.rtt(), path.up.loss()), (Duration::from_millis(48), before.up.loss()));
        assert_eq!((path.up.rate(), path.down.rate()), (Limit::Unlimited, Limit::At(replace.down_rate.unwrap())));
        let limits: Vec<QueueLimit> = path.down.bottlenecks().map(|bottleneck| bottleneck.queue.limit).collect();
        assert_eq!(limits, [QueueLimit::Bytes(Bytes(64_000))]);
        assert!(matches!(path.down.propagation, Propagation::Constant(_)));
    }
}
