//! A constant delay in addition to the link's propagation delay.

use std::time::Duration;

use units::time::saturating_nanos;
use units::{Bytes, format_duration};

use super::EffectSpec;
use super::common::Time;
use super::kind::{Built, EffectKind, Expected, Site};

/// Delays every packet by the same time. A plain link stores the sum of its constant delays in one number.
#[derive(Debug)]
pub(crate) struct Delay;

impl Delay {
    pub(super) fn is_closed(_delay: &Duration) -> bool {
        true
    }
}

impl EffectKind for Delay {
    type Settings = Duration;
    type Form = Time;

    const KEY: &'static str = "delay";
    const RANK: u8 = 7;
    const STREAMS: &'static [u64] = &[];
    const DELAYS: bool = true;
    const IS_OF_ONE_CLIENT: bool = true;

    fn spec(form: Time) -> EffectSpec {
        EffectSpec::Delay(form.0)
    }

    fn form(delay: &Duration) -> Time {
        Time(*delay)
    }

    fn is_idle(delay: &Duration) -> bool {
        delay.is_zero()
    }

    fn describe(delay: &Duration) -> String {
        format!("delay {}", format_duration(*delay))
    }

    fn label(delay: &Duration) -> String {
        Self::describe(delay)
    }

    fn expected(delay: &Duration) -> Expected {
        Expected { delay: *delay, ..Expected::NOTHING }
    }

    fn added_ns(delay: &Duration, _size: Bytes) -> [f64; 2] {
        [delay.as_nanos() as f64; 2]
    }

    fn build<'a>(delay: &'a Duration, _site: &mut Site<'_>) -> Option<Built<'a>> {
        Some(Built::Delay(saturating_nanos(*delay)))
    }
}
