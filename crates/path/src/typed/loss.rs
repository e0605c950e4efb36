//! Loss: even, or in bursts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::Probability;

use super::text_or_table;
use crate::spec::{EffectSpec, GilbertElliott};

/// How packets are lost. Typed as `1%`, or as `ge:P,R[,BAD[,GOOD]]`; in files also as
/// `{ gilbert_elliott = { to_bad = P, to_good = R, loss_bad = BAD, loss_good = GOOD } }`. BAD is 1 and GOOD 0 where
/// they are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each packet with this probability.
    Even(Probability),
    /// In bursts.
    Bursts(GilbertElliott),
}

impl Loss {
    /// The effect that it means.
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

    /// Whether nothing is ever lost.
    pub fn is_none(self) -> bool {
        self.mean() == 0.0
    }
}

const WANTED: &str = "loss is a probability such as 0.01 or \"1%\", or bursts: ge:P,R[,BAD[,GOOD]] or \
                      { gilbert_elliott = { to_bad = P, to_good = R, loss_bad = BAD, loss_good = GOOD } }";

impl FromStr for Loss {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let Some(parts) = typed.trim().strip_prefix("ge:") else {
            return typed.parse().map(Loss::Even).map_err(|error| format!("{error}; {WANTED}"));
        };
        let parts = parts.split(',').map(|part| part.trim().parse().map_err(|error| format!("{error}; {WANTED}")));
        let parts: Vec<Probability> = parts.collect::<Result<_, String>>()?;
        let table = match parts[..] {
            [to_bad, to_good] => Model { to_bad, to_good, loss_bad: always(), loss_good: Probability::ZERO },
            [to_bad, to_good, loss_bad] => Model { to_bad, to_good, loss_bad, loss_good: Probability::ZERO },
            [to_bad, to_good, loss_bad, loss_good] => Model { to_bad, to_good, loss_bad, loss_good },
            _ => return Err(format!("`{typed}` has {} parts, from 2 to 4 are wanted; {WANTED}", parts.len())),
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
        text_or_table::read::<D, Loss, Table>(deserializer, WANTED)
    }
}
