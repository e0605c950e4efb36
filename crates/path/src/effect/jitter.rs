//! Jitter: the delay varies from packet to packet, and the order is kept.

use std::time::Duration;

use units::time::saturating_nanos;
use units::{Bytes, Timestamp, format_duration};

use super::common::Time;
use super::kind::{Built, ClosedForm, EffectKind, Expected, Fate, OptionText, Site, State};
use super::{ClosedEffect, EffectSpec};
use crate::draw::Draw;

/// The delay of a packet beyond that of the fastest one: drawn uniformly from 0 to twice the jitter, both ends
/// included. The link's constant delay is shorter by the jitter, so the mean is the configured delay.
///
/// A packet never overtakes its predecessor: if packets follow one another within the jitter, some wait for their
/// predecessor, so the *measured* delays have a slightly larger mean and a smaller variation than configured. Packets
/// farther apart than twice the jitter get exactly the delay drawn.
///
/// The state of a jitter is the random sequence, and the departure time of the previous packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Jitter {
    /// Number of whole nanoseconds to draw from.
    span: u64,
}

impl Jitter {
    const STREAM: u64 = 1;

    /// A jitter of `nanos` nanoseconds in either direction.
    fn new(nanos: u64) -> Self {
        Jitter { span: nanos.saturating_mul(2).saturating_add(1) }
    }
}

impl EffectKind for Jitter {
    type Settings = Duration;
    type Form = Time;

    const KEY: &'static str = "jitter";
    const RANK: u8 = 6;
    const STREAMS: &'static [u64] = &[Self::STREAM];
    const DELAYS: bool = true;
    const IS_OF_ONE_CLIENT: bool = true;
    const OPTION: Option<OptionText> =
        Some(OptionText { value_name: "JITTER", help: "Vary the delay of each packet by up to this, each way" });

    fn spec(form: Time) -> EffectSpec {
        EffectSpec::Jitter(form.0)
    }

    fn form(jitter: &Duration) -> Time {
        Time(*jitter)
    }

    fn is_idle(jitter: &Duration) -> bool {
        jitter.is_zero()
    }

    fn check(jitter: &Duration, rtt: Duration) -> Result<(), String> {
        if *jitter * 2 <= rtt {
            return Ok(());
        }
        Err(format!(
            "jitter = {} is more than half of rtt = {}: no packet can be that early",
            format_duration(*jitter),
            format_duration(rtt)
        ))
    }

    fn describe(jitter: &Duration) -> String {
        format!("+-{}", format_duration(*jitter))
    }

    fn label(jitter: &Duration) -> String {
        format!("jitter {}", format_duration(*jitter))
    }

    fn expected(jitter: &Duration) -> Expected {
        Expected { jitter: *jitter, ..Expected::NOTHING }
    }

    fn added_ns(jitter: &Duration, _size: Bytes) -> [f64; 2] {
        // The lower quartile of the sum of two uniform draws lies 0.59 of one draw's width below the mean; that of nine
        // pings lies more than 1.5 below once in 400.
        let nanos = jitter.as_nanos() as f64 * 0.75;
        [-nanos, nanos]
    }

    /// No delay is negative: the jitter is cut to the link's remaining shortest delay.
    fn build<'a>(jitter: &'a Duration, site: &mut Site<'_>) -> Option<Built<'a>> {
        let nanos = saturating_nanos(*jitter).min(*site.remaining_ns);
        *site.remaining_ns -= nanos;
        let state = [site.draw(Self::STREAM).key(), 0];
        (nanos > 0).then(|| Built::Closed(ClosedEffect::Jitter(Jitter::new(nanos)), state))
    }
}

impl ClosedForm for Jitter {
    const ACTS_PER_WIRE_PACKET: bool = false;

    #[inline]
    fn handle(&self, [key, last]: &mut State, at: Timestamp, _size: Bytes) -> Fate {
        let mut draw = Draw::new(*key);
        let leaves = at.as_nanos().saturating_add(draw.below(self.span));
        *key = draw.key();
        *last = leaves.max(*last);
        Fate::Leaves(Timestamp::from_nanos(*last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaves((jitter, state): &mut (Jitter, State), at: u64) -> u64 {
        match jitter.handle(state, Timestamp::from_nanos(at), Bytes(0)) {
            Fate::Leaves(leaves) => leaves.as_nanos(),
            Fate::Dropped(cause) => panic!("{cause:?}"),
        }
    }

    #[test]
    fn jitter_of_packets_far_apart_has_the_configured_mean_and_range() {
        let mut jitter = (Jitter::new(100_000), [2, 0]);
        let drawn: Vec<f64> = (0..100_000u64)
            .map(|packet| (leaves(&mut jitter, packet * 1_000_000) - packet * 1_000_000) as f64)
            .collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        // Uniform over 200 us: standard deviation 57.7 us, standard error 0.18 us; five of them.
        assert!((mean - 100_000.0).abs() < 920.0, "{mean}");
        let (low, high) = drawn.iter().fold((f64::MAX, 0f64), |(low, high), &x| (low.min(x), high.max(x)));
        assert!(low < 100.0 && (199_900.0..=200_000.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn jitter_draws_both_ends_of_its_range_and_nothing_beyond() {
        let mut jitter = (Jitter::new(3), [1, 0]);
        let drawn: Vec<u64> = (0..1000).map(|packet| leaves(&mut jitter, packet * 100) - packet * 100).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&6)));
    }

    proptest! {
        /// Never early, never later than configured unless behind a predecessor, never out of order.
        #[test]
        fn jitter_keeps_the_order_of_packets(
            jitter in 0u64..2_000_000, seed: u64, gaps in prop::collection::vec(0u64..3_000_000, 1..100),
        ) {
            let mut link = (Jitter::new(jitter), [seed, 0]);
            let (mut now, mut last) = (0, 0);
            for gap in gaps {
                now += gap;
                let leaves = leaves(&mut link, now);
                prop_assert!(leaves >= now.max(last));
                prop_assert!(leaves <= (now + 2 * jitter).max(last));
                last = leaves;
            }
        }
    }
}
