//! Text formats that several effects share.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{ParseError, Probability, parse_duration};

/// A share in percent, to four decimal places.
pub(super) fn percent(share: f64) -> String {
    format!("{}%", (share * 1e6).round() / 1e4)
}

/// A probability in percent, unrounded.
pub(super) fn exact_percent(probability: Probability) -> String {
    format!("{}%", probability.value() * 100.0)
}

/// A time with its unit, such as `5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Time(#[serde(with = "units::time::text")] pub(super) Duration);

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(typed: &str) -> Result<Self, ParseError> {
        parse_duration(typed).map(Time)
    }
}

/// The textual form of an effect that no single key sets: reading it always fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoForm;

impl FromStr for NoForm {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        Err(format!("`{typed}` alone does not define an effect"))
    }
}

impl Serialize for NoForm {
    fn serialize<S: Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("the effect has no single value"))
    }
}

impl<'de> Deserialize<'de> for NoForm {
    fn deserialize<D: Deserializer<'de>>(_deserializer: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("one value alone does not define an effect"))
    }
}
