//! Duplication: some packets arrive twice, the copy directly after the original.

use units::{Bytes, Probability, Timestamp};

use super::common::{exact_percent, percent};
use super::kind::{Built, EffectKind, Expected, OptionText, Sign, Site, Step, Stepwise, Symptom};
use super::{EffectSpec, SteppedEffect};
use crate::draw::Chance;

/// Adds a copy after some packets.
#[derive(Debug)]
pub(crate) struct Duplication(Chance);

impl Duplication {
    const STREAM: u64 = 5;
}

impl EffectKind for Duplication {
    type Settings = Probability;
    type Form = Probability;

    const KEY: &'static str = "duplicate";
    const RANK: u8 = 3;
    const STREAMS: &'static [u64] = &[Self::STREAM];
    const SYMPTOM: Option<Symptom> = Some(Symptom { name: "duplicated", sign: Sign::Again });
    const OPTION: Option<OptionText> =
        Some(OptionText { value_name: "P", help: "Duplicate packets with this probability, each way" });

    fn spec(form: Probability) -> EffectSpec {
        EffectSpec::Duplicate(form)
    }

    fn form(probability: &Probability) -> Probability {
        *probability
    }

    fn is_idle(probability: &Probability) -> bool {
        *probability == Probability::ZERO
    }

    fn describe(probability: &Probability) -> String {
        format!("{} duplicated", percent(probability.value()))
    }

    fn label(probability: &Probability) -> String {
        format!("duplicate {}", exact_percent(*probability))
    }

    fn expected(probability: &Probability) -> Expected {
        Expected { copies: probability.value(), shown: probability.value(), ..Expected::NOTHING }
    }

    fn build<'a>(probability: &'a Probability, site: &mut Site<'_>) -> Option<Built<'a>> {
        Some(Built::Stepped(SteppedEffect::Duplicate(Duplication(site.chance(*probability, Self::STREAM)))))
    }
}

impl Stepwise for Duplication {
    #[inline]
    fn handle(&mut self, at: Timestamp, _size: Bytes) -> Step {
        if self.0.hit() { Step::Duplicated } else { Step::Leaves(at) }
    }
}
