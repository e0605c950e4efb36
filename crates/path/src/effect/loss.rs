//! Loss: independent, every wire packet lost with the same probability; and the textual form of both kinds of loss.

use std::fmt;
use std::str::FromStr;

use schema::DropCause;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Bytes, Probability, Timestamp};

use super::burst::GilbertElliott;
use super::common::{exact_percent, percent};
use super::kind::{Built, ClosedForm, EffectKind, Expected, Fate, OptionText, Site, State};
use super::{ClosedEffect, EffectSpec};
use crate::draw::{Draw, Threshold};
use crate::typed::text_or_table;

/// Loss by one draw per packet. Its state is the random sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IndependentLoss(Threshold);

impl IndependentLoss {
    const STREAM: u64 = 0;

    fn new(probability: Probability) -> Self {
        IndependentLoss(Threshold::new(probability))
    }
}

impl EffectKind for IndependentLoss {
    type Settings = Probability;
    type Form = Loss;

    const KEY: &'static str = "loss";
    const RANK: u8 = 0;
    const STREAMS: &'static [u64] = &[Self::STREAM];
    const IS_LOSS: bool = true;
    const OPTION: Option<OptionText> = Some(OptionText {
        value_name: "LOSS",
        help: "Drop packets, each way: a probability such as 1%, or bursts, ge:P,R[,BAD[,GOOD]] (Gilbert-Elliott)",
    });

    fn spec(form: Loss) -> EffectSpec {
        form.effect()
    }

    fn form(probability: &Probability) -> Loss {
        Loss::Even(*probability)
    }

    fn is_idle(probability: &Probability) -> bool {
        *probability == Probability::ZERO
    }

    fn describe(probability: &Probability) -> String {
        format!("loss {}", percent(probability.value()))
    }

    fn label(probability: &Probability) -> String {
        format!("loss {}", exact_percent(*probability))
    }

    fn expected(probability: &Probability) -> Expected {
        Expected { dropped: probability.value(), ..Expected::NOTHING }
    }

    fn build<'a>(probability: &'a Probability, site: &mut Site<'_>) -> Option<Built<'a>> {
        let state = [site.draw(Self::STREAM).key(), 0];
        Some(Built::Closed(ClosedEffect::Loss(IndependentLoss::new(*probability)), state))
    }
}

impl ClosedForm for IndependentLoss {
    #[inline]
    fn handle(&self, [key, _]: &mut State, at: Timestamp, _size: Bytes) -> Fate {
        let mut draw = Draw::new(*key);
        let is_lost = self.0.hit(&mut draw);
        *key = draw.key();
        if is_lost { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(at) }
    }
}

/// How packets are lost. Typed as `1%`, or as `ge:P,R[,BAD[,GOOD]]`; in files also as `{ gilbert_elliott = { to_bad =
/// P, to_good = R, loss_bad = BAD, loss_good = GOOD } }`. BAD defaults to 1, GOOD to 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each packet independently with this probability.
    Even(Probability),
    /// In bursts.
    Bursts(GilbertElliott),
}

impl Loss {
    /// The effect that it defines.
    pub fn effect(self) -> EffectSpec {
        match self {
            Loss::Even(probability) => EffectSpec::Loss(probability),
            Loss::Bursts(model) => EffectSpec::GilbertElliott(model),
        }
    }

    /// Share of packets lost in the long run, 0 to 1.
    pub fn mean(self) -> f64 {
        match self {
            Loss::Even(probability) => probability.value(),
            Loss::Bursts(model) => model.mean_loss(),
        }
    }

    /// Whether no packet is ever lost.
    pub fn is_none(self) -> bool {
        self.mean() == 0.0
    }
}

const EXPECTED_FORM: &str = "loss is a probability such as 0.01 or \"1%\", or bursts: ge:P,R[,BAD[,GOOD]] or \
                      { gilbert_elliott = { to_bad = P, to_good = R, loss_bad = BAD, loss_good = GOOD } }";

impl FromStr for Loss {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let Some(parts) = typed.trim().strip_prefix("ge:") else {
            return typed.parse().map(Loss::Even).map_err(|error| format!("{error}; {EXPECTED_FORM}"));
        };
        let parts =
            parts.split(',').map(|part| part.trim().parse().map_err(|error| format!("{error}; {EXPECTED_FORM}")));
        let parts: Vec<Probability> = parts.collect::<Result<_, String>>()?;
        let table = match parts[..] {
            [to_bad, to_good] => Model { to_bad, to_good, loss_bad: always(), loss_good: Probability::ZERO },
            [to_bad, to_good, loss_bad] => Model { to_bad, to_good, loss_bad, loss_good: Probability::ZERO },
            [to_bad, to_good, loss_bad, loss_good] => Model { to_bad, to_good, loss_bad, loss_good },
            _ => return Err(format!("`{typed}` has {} parts, expected from 2 to 4; {EXPECTED_FORM}", parts.len())),
        };
        Ok(table.into())
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Even(probability) => probability.fmt(f),
            Loss::Bursts(GilbertElliott { to_bad, to_good, loss_good, loss_bad }) => {
                write!(f, "ge:{to_bad},{to_good},{loss_bad},{loss_good}")
            }
        }
    }
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Loss::Even(probability) => probability.serialize(serializer),
            Loss::Bursts(_) => serializer.collect_str(self),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    gilbert_elliott: Model,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    to_bad: Probability,
    to_good: Probability,
    #[serde(default = "always")]
    loss_bad: Probability,
    #[serde(default)]
    loss_good: Probability,
}

fn always() -> Probability {
    Probability::new(1.0).expect("1 is a probability")
}

impl From<Model> for Loss {
    fn from(Model { to_bad, to_good, loss_bad, loss_good }: Model) -> Self {
        Loss::Bursts(GilbertElliott { to_bad, to_good, loss_good, loss_bad })
    }
}

impl From<Table> for Loss {
    fn from(table: Table) -> Self {
        table.gilbert_elliott.into()
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::read::<D, Loss, Table>(deserializer, EXPECTED_FORM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(probability: f64, packets: u32) -> u32 {
        let (loss, mut state) = (IndependentLoss::new(Probability::new(probability).unwrap()), [11, 0]);
        let fates = (0..packets).map(|_| loss.handle(&mut state, Timestamp::ZERO, Bytes(0)));
        fates.filter(|fate| *fate != Fate::Leaves(Timestamp::ZERO)).count() as u32
    }

    #[test]
    fn loss_probability_0_drops_none_and_1_drops_all() {
        assert_eq!(lost(0.0, 10_000), 0);
        assert_eq!(lost(1.0, 10_000), 10_000);
    }

    #[test]
    fn independent_loss_share_is_the_probability() {
        // Standard error of 1 % over 10^6 packets is 100 packets; five of them.
        let lost = lost(0.01, 1_000_000);
        assert!((9_500..=10_500).contains(&lost), "{lost}");
    }

    #[test]
    fn independent_losses_are_uncorrelated() {
        // After a loss the next packet is lost as often as any other: 10^6 x 0.1 x 0.1 pairs, standard error about 95.
        let (loss, mut state) = (IndependentLoss::new(Probability::new(0.1).unwrap()), [12, 0]);
        let fates: Vec<bool> = (0..1_000_000)
            .map(|_| loss.handle(&mut state, Timestamp::ZERO, Bytes(0)) == Fate::Dropped(DropCause::Loss))
            .collect();
        let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count();
        assert!((9_500..=10_500).contains(&pairs), "{pairs}");
    }
}
