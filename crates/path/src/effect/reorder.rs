//! Reordering: some packets are delayed, so that later packets overtake them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::time::saturating_nanos;
use units::time::text::exact;
use units::{Bytes, Probability, Timestamp, format_duration, parse_duration};

use super::common::{exact_percent, percent};
use super::kind::{Built, EffectKind, Expected, OptionText, Sign, Site, Step, Stepwise, Symptom};
use super::{EffectSpec, SteppedEffect};
use crate::draw::Chance;
use crate::typed::text_or_table;

/// Packets that are overtaken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is delayed.
    pub probability: Probability,
    /// Additional delay: packets that follow within this time overtake it.
    pub by: Duration,
}

/// Delays some packets.
#[derive(Debug)]
pub(crate) struct Reordering {
    chance: Chance,
    by_ns: u64,
}

impl Reordering {
    const STREAM: u64 = 6;
}

impl EffectKind for Reordering {
    type Settings = Reorder;
    type Form = Reorder;

    const KEY: &'static str = "reorder";
    const RANK: u8 = 5;
    const STREAMS: &'static [u64] = &[Self::STREAM];
    const DELAYS: bool = true;
    const SYMPTOM: Option<Symptom> = Some(Symptom { name: "reordered", sign: Sign::Late });
    const OPTION: Option<OptionText> = Some(OptionText {
        value_name: "P[,TIME]",
        help: "Reorder packets, each way: a probability, and the delay of a reordered packet [default: 5ms]",
    });

    fn spec(form: Reorder) -> EffectSpec {
        EffectSpec::Reorder(form)
    }

    fn form(reorder: &Reorder) -> Reorder {
        *reorder
    }

    fn is_idle(reorder: &Reorder) -> bool {
        reorder.probability == Probability::ZERO || reorder.by.is_zero()
    }

    fn describe(reorder: &Reorder) -> String {
        format!("{} reordered by {}", percent(reorder.probability.value()), format_duration(reorder.by))
    }

    fn label(reorder: &Reorder) -> String {
        format!("reorder {} by {}", exact_percent(reorder.probability), exact(reorder.by))
    }

    fn expected(reorder: &Reorder) -> Expected {
        let shown = if reorder.by.is_zero() { 0.0 } else { reorder.probability.value() };
        Expected { shown, reorder_delay: reorder.by, ..Expected::NOTHING }
    }

    fn added_ns(reorder: &Reorder, _size: Bytes) -> [f64; 2] {
        // With a probability above 10 %, the delayed packets influence the median.
        let is_often = reorder.probability.value() > 0.1;
        [0.0, if is_often { reorder.by.as_nanos() as f64 } else { 0.0 }]
    }

    fn build<'a>(reorder: &'a Reorder, site: &mut Site<'_>) -> Option<Built<'a>> {
        let chance = site.chance(reorder.probability, Self::STREAM);
        Some(Built::Stepped(SteppedEffect::Reorder(Reordering { chance, by_ns: saturating_nanos(reorder.by) })))
    }
}

impl Stepwise for Reordering {
    const KEEPS_ORDER: bool = false;

    #[inline]
    fn handle(&mut self, at: Timestamp, _size: Bytes) -> Step {
        if self.chance.hit() {
            Step::Reordered(Timestamp::from_nanos(at.as_nanos().saturating_add(self.by_ns)))
        } else {
            Step::Leaves(at)
        }
    }
}

/// Default additional delay: on a link of 10 Mbit/s enough packets overtake the delayed one for a sender to consider it
/// lost (three duplicate ACKs).
pub const REORDER_BY: Duration = Duration::from_millis(5);

const EXPECTED_FORM: &str =
    "reordering is written P or P,TIME such as 1%,5ms; in files also { probability = \"1%\", by = \"5ms\" }";

impl FromStr for Reorder {
    type Err = String;

    /// `1%` or `1%,5ms`.
    fn from_str(typed: &str) -> Result<Self, String> {
        let (probability, by) =
            typed.split_once(',').map_or((typed, None), |(probability, by)| (probability, Some(by)));
        let wrong = |error: units::ParseError| format!("{error}; {EXPECTED_FORM}");
        Ok(Reorder {
            probability: probability.trim().parse().map_err(wrong)?,
            by: by.map_or(Ok(REORDER_BY), |by| parse_duration(by.trim())).map_err(wrong)?,
        })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.probability, exact(self.by))
    }
}

impl Serialize for Reorder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    probability: Probability,
    #[serde(with = "units::time::text", default = "default_delay")]
    by: Duration,
}

fn default_delay() -> Duration {
    REORDER_BY
}

impl From<Table> for Reorder {
    fn from(Table { probability, by }: Table) -> Self {
        Reorder { probability, by }
    }
}

impl<'de> Deserialize<'de> for Reorder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::read::<D, Reorder, Table>(deserializer, EXPECTED_FORM)
    }
}
