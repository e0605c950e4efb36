//! Probabilities and shares.

use std::fmt;
use std::str::FromStr;

use crate::parse::{ParseError, split, trim_number, unit_error};

/// A probability from 0 to 1, typed as `0.01` or `1%`. A `1` without a percent sign is rejected: it may mean 1% or
/// 100%.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

const EXPECTED: &str = "a probability is written like 0.01 or 1%, from 0 to 100%";

impl Probability {
    /// Probability 0.
    pub const ZERO: Probability = Probability(0.0);

    /// From a number; `None` for NaN and outside 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Probability(value))
    }

    /// The probability as a number from 0 to 1.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    /// # Errors
    /// The text has no number or an unknown unit, is outside 0 to 1, or is a number of 1 or more without a percent
    /// sign.
    fn from_str(typed: &str) -> Result<Self, ParseError> {
        let (value, unit) = split(typed, EXPECTED)?;
        let value = match unit {
            "" if value >= 1.0 => return Err(ambiguous(typed.trim(), value)),
            "" => value,
            "%" => value / 100.0,
            _ => return Err(unit_error(typed, unit, EXPECTED)),
        };
        Probability::new(value).ok_or(ParseError::OutOfRange { typed: typed.to_owned(), expected: EXPECTED })
    }
}

fn ambiguous(typed: &str, value: f64) -> ParseError {
    ParseError::AmbiguousShare { typed: typed.to_owned(), hundredfold: trim_number(value * 100.0), expected: EXPECTED }
}

impl fmt::Display for Probability {
    /// Prints an exact form: parsing it gives the same probability.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1.0 { f.write_str("100%") } else { write!(f, "{}", self.0) }
    }
}

impl serde::Serialize for Probability {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Deserialization rejects the number 1 as ambiguous.
        if self.0 >= 1.0 { serializer.serialize_str("100%") } else { serializer.serialize_f64(self.0) }
    }
}

impl<'de> serde::Deserialize<'de> for Probability {
    /// Accepts a number from 0 to below 1, or text such as `"1%"`.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Probability;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Probability, E> {
                if value >= 1.0 {
                    return Err(E::custom(ambiguous(&value.to_string(), value)));
                }
                Probability::new(value).ok_or_else(|| E::custom(format!("{value} is out of range; {EXPECTED}")))
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Probability, E> {
                self.visit_f64(value as f64)
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Probability, E> {
                self.visit_f64(value as f64)
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Probability, E> {
                value.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Deserializes one of several shares that add up to 1, among which the number 1 can only mean 100%
/// (`#[serde(deserialize_with = "units::share_of_whole")]`).
///
/// # Errors
/// The value is neither a number from 0 to 1 nor text such as `"1%"`.
pub fn share_of_whole<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Probability, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged, expecting = "a share is written like 0.25 or \"25%\", from 0 to 1")]
    enum Typed {
        Number(f64),
        Text(String),
    }
    match <Typed as serde::Deserialize>::deserialize(deserializer)? {
        Typed::Number(value) => Probability::new(value)
            .ok_or_else(|| serde::de::Error::custom(format!("`{value}` is out of range; {EXPECTED}"))),
        Typed::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_fraction_parse_to_the_same_share() {
        assert_eq!("1%".parse::<Probability>(), "0.01".parse());
        assert!("100%".parse::<Probability>().is_ok());
        assert!("100.1%".parse::<Probability>().is_err());
        assert!("-0.1".parse::<Probability>().is_err());
        assert!("1.0001".parse::<Probability>().is_err());
    }

    #[test]
    fn ambiguous_shares_are_rejected_with_both_readings() {
        for (typed, hint) in
            [("1", "1% or 100%?"), ("1.0", "1.0% or 100%?"), ("5", "5% or 500%?"), (" 2 ", "2% or 200%?")]
        {
            let error = typed.parse::<Probability>().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
            let plan = serde_json::from_str::<Probability>(typed).unwrap_err().to_string();
            assert!(plan.contains("% or"), "{plan}");
        }
        #[derive(serde::Deserialize)]
        struct Class {
            #[serde(deserialize_with = "share_of_whole")]
            share: Probability,
        }
        let share = |text: &str| toml::from_str::<Class>(text).map(|class| class.share.value()).ok();
        let read = ["share = 1", "share = 0.5", "share = \"25%\"", "share = 1.5", "share = \"1\""].map(share);
        assert_eq!(read, [Some(1.0), Some(0.5), Some(0.25), None, None]);
        for (typed, value) in [("0.999", 0.999), ("100%", 1.0), ("1%", 0.01), ("0", 0.0)] {
            assert_eq!(typed.parse::<Probability>().unwrap().value(), value, "{typed}");
        }
        for value in [0.0, 0.25, 1.0] {
            let whole = Probability::new(value).unwrap();
            assert_eq!(whole.to_string().parse(), Ok(whole));
            let text = serde_json::to_string(&whole).unwrap();
            assert_eq!(serde_json::from_str::<Probability>(&text).unwrap(), whole);
        }
    }
}
