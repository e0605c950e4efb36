//! A bottleneck: a bit rate with a queue in front of it. `spec/bottleneck.rs` describes the queue. Packets pass it by
//! `rate.rs` where a few numbers suffice as state, by `queue.rs` otherwise. It is written as two keys, `rate` and
//! `queue`, which `profile/link.rs` reads.

use std::time::Duration;

use units::{BitRate, Bytes, format_duration};

use super::common::NoForm;
use super::kind::{Built, EffectKind, Expected, Site};
use super::rate::Rate;
use super::{ClosedEffect, EffectSpec};
use crate::spec::{Bottleneck, Discipline, QueueLimit, RateSpec};

/// The random sequence of PIE.
const STREAM: u64 = 7;

impl Bottleneck {
    /// Whether a few numbers suffice as state while the rate does not change.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.rate, RateSpec::Constant(_))
            && self.queue.discipline == Discipline::DropTail
            && !matches!(self.queue.limit, QueueLimit::Packets(_))
    }
}

impl EffectKind for Bottleneck {
    type Settings = Bottleneck;
    type Form = NoForm;

    const KEY: &'static str = "rate";
    const RANK: u8 = 4;
    const STREAMS: &'static [u64] = &[STREAM];
    const DELAYS: bool = true;

    fn spec(_form: NoForm) -> EffectSpec {
        unreachable!("nothing is read as `NoForm`")
    }

    fn form(_bottleneck: &Bottleneck) -> NoForm {
        NoForm
    }

    fn is_idle(_bottleneck: &Bottleneck) -> bool {
        false
    }

    fn describe(bottleneck: &Bottleneck) -> String {
        let rate = match &bottleneck.rate {
            RateSpec::Constant(rate) => rate.to_string(),
            RateSpec::Trace(trace) => {
                // Rounded to 1 kbit/s: further digits of a mean are not significant.
                let round = |rate: BitRate| BitRate::from_bits_per_second((rate.bits_per_second() + 500) / 1000 * 1000);
                let mean = trace.mean_rate().and_then(round).map_or("under 1kbit".to_owned(), |rate| rate.to_string());
                format!("trace of {}, mean {mean}", format_duration(trace.length()))
            }
        };
        let limit = match bottleneck.queue.limit {
            QueueLimit::Time(time) => format_duration(time),
            limit => limit.to_string(),
        };
        match bottleneck.queue.discipline {
            Discipline::DropTail => format!("{rate}, queue {limit}"),
            discipline => format!("{rate}, queue {limit} {discipline}"),
        }
    }

    fn label(bottleneck: &Bottleneck) -> String {
        format!("rate {}", Self::describe(bottleneck))
    }

    fn expected(_bottleneck: &Bottleneck) -> Expected {
        Expected::NOTHING
    }

    fn added_ns(bottleneck: &Bottleneck, size: Bytes) -> [f64; 2] {
        match &bottleneck.rate {
            RateSpec::Constant(rate) => [Duration::from_nanos(rate.nanos_for(size, 0).0).as_nanos() as f64; 2],
            // The packet waits for the next delivery time of the trace.
            RateSpec::Trace(trace) => {
                let times = trace.times_ms();
                let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
                let longest = gaps.chain(times.first().copied()).max().unwrap_or(0);
                [0.0, longest as f64 * 1e6]
            }
        }
    }

    fn build<'a>(bottleneck: &'a Bottleneck, site: &mut Site<'_>) -> Option<Built<'a>> {
        match bottleneck.rate {
            RateSpec::Constant(rate) if bottleneck.is_closed() && !site.changes_rate => {
                Some(Built::Closed(ClosedEffect::Rate(Rate::new(rate, bottleneck.queue.limit)), [0; 2]))
            }
            _ => Some(Built::Queue(bottleneck, site.draw(STREAM))),
        }
    }
}
