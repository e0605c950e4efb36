//! What a command line replaces in a profile.

use std::time::Duration;

use units::{BitRate, Limit, Probability};

use crate::spec::{ClientPath, QueueLimit};

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
            path.up.delay = up.delay;
            path.down.delay = down.delay;
        }
        for (link, rate) in [(&mut path.up, self.up_rate), (&mut path.down, self.down_rate)] {
            link.variation = self.variation.unwrap_or(link.variation);
            link.loss = self.loss.unwrap_or(link.loss);
            link.rate = rate.map_or(link.rate, Limit::At);
            link.queue = self.queue.unwrap_or(link.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    #[test]
    fn what_is_not_replaced_stays() {
        let mut path = ClientPath::constant(Duration::from_millis(10));
        path.up.loss = Probability::new(0.5).unwrap();
        let before = path;
        Override::default().apply(&mut path);
        assert_eq!(path, before);
        let replace = Override {
            rtt: Some(Duration::from_millis(48)),
            down_rate: BitRate::from_bits_per_second(10_000_000),
            queue: Some(QueueLimit::Bytes(Bytes(64_000))),
            ..Override::default()
        };
        replace.apply(&mut path);
        assert_eq!((path.rtt(), path.up.loss), (Duration::from_millis(48), before.up.loss));
        assert_eq!((path.up.rate, path.down.rate), (Limit::Unlimited, Limit::At(replace.down_rate.unwrap())));
        assert_eq!(path.down.queue, QueueLimit::Bytes(Bytes(64_000)));
    }
}
