//! Packets that are overtaken, as typed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::time::text::exact;
use units::{Probability, parse_duration};

use super::text_or_table;
use crate::spec::Reorder;

/// How long a packet is held back where nobody says: some packets of a link of 10 Mbit/s overtake it meanwhile, enough
/// for a sender to take it for lost (three duplicate ACKs).
pub const REORDER_BY: Duration = Duration::from_millis(5);

const WANTED: &str =
    "reordering is written P or P,TIME such as 1%,5ms; in files also { probability = \"1%\", by = \"5ms\" }";

impl FromStr for Reorder {
    type Err = String;

    /// `1%` or `1%,5ms`.
    fn from_str(typed: &str) -> Result<Self, String> {
        let (probability, by) =
            typed.split_once(',').map_or((typed, None), |(probability, by)| (probability, Some(by)));
        let wrong = |error: units::ParseError| format!("{error}; {WANTED}");
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
    #[serde(with = "units::time::text", default = "usual")]
    by: Duration,
}

fn usual() -> Duration {
    REORDER_BY
}

impl From<Table> for Reorder {
    fn from(Table { probability, by }: Table) -> Self {
        Reorder { probability, by }
    }
}

impl<'de> Deserialize<'de> for Reorder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::read::<D, Reorder, Table>(deserializer, WANTED)
    }
}
