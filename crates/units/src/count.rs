//! Counts and factors as people type them.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

use crate::parse::{ParseError, split, unit_error};

const COUNT_EXPECTED: &str = "a number is whole and written like 250, 10k or 1.5M (k, M and G are powers of 1000)";
const FACTOR_EXPECTED: &str = "a factor is written like 2x, x2, 0.5, 50% or 1/60, above 0";

/// Parses a whole number: `250`, `1_000`, `10k`, `1.5M`, `2G`; `k`, `M` and `G` are powers of 1000.
///
/// # Errors
/// The text has no number or an unknown unit, or the value is not whole, is negative, or is over 2^53.
pub fn parse_count(typed: &str) -> Result<u64, ParseError> {
    let (value, unit) = split(typed, COUNT_EXPECTED)?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(unit_error(typed, unit, COUNT_EXPECTED)),
    };
    let count = value * factor;
    // In floating point, 1.1 times 1000 is not exactly 1100.
    if (count - count.round()).abs() > 1e-6 || count > EXACT_MAX {
        return Err(ParseError::OutOfRange { typed: typed.to_owned(), expected: COUNT_EXPECTED });
    }
    Ok(count.round() as u64)
}

/// Parses a whole number of at most 32 bits, in the forms that [`parse_count`] accepts.
///
/// # Errors
/// Those of [`parse_count`], or the value is over 2^32 - 1.
pub fn parse_count_u32(typed: &str) -> Result<u32, ParseError> {
    let out_of_range = |_| ParseError::OutOfRange { typed: typed.to_owned(), expected: COUNT_EXPECTED };
    parse_count(typed)?.try_into().map_err(out_of_range)
}

/// Parses a factor: `2x`, `x2`, `×2`, `0.5`, `50%`, `1/60`.
///
/// # Errors
/// The text has no number or an unknown unit, or the value is 0, negative or not finite.
pub fn parse_factor(typed: &str) -> Result<f64, ParseError> {
    let text = typed.trim();
    let bare = text.strip_prefix(['x', 'X', '×']).unwrap_or(text);
    let has_prefix = bare.len() < text.len();
    let factor = match bare.split_once('/') {
        Some((above, below)) => plain(typed, above)? / plain(typed, below)?,
        None => match split(bare, FACTOR_EXPECTED)? {
            (value, "") => value,
            (value, "%") if !has_prefix => value / 100.0,
            (value, "x" | "X" | "×") if !has_prefix => value,
            (_, unit) => return Err(unit_error(typed, unit, FACTOR_EXPECTED)),
        },
    };
    if factor.is_finite() && factor > 0.0 {
        Ok(factor)
    } else {
        Err(ParseError::OutOfRange { typed: typed.to_owned(), expected: FACTOR_EXPECTED })
    }
}

fn plain(typed: &str, text: &str) -> Result<f64, ParseError> {
    match split(text, FACTOR_EXPECTED)? {
        (value, "") => Ok(value),
        (_, unit) => Err(unit_error(typed, unit, FACTOR_EXPECTED)),
    }
}

/// A count in a document: a number, or text that [`parse_count`] accepts. Used by the functions for
/// `#[serde(deserialize_with = "units::count::..")]`.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a whole number of 0 or more, or text such as \"10k\"")]
enum Typed {
    Whole(u64),
    Text(String),
}

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a factor such as 2.0 or \"2x\"")]
enum TypedFactor {
    Number(f64),
    Text(String),
}

/// Deserializes a count from a number or from text.
///
/// # Errors
/// Those of [`parse_count`].
pub fn u64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Typed::deserialize(deserializer)? {
        Typed::Whole(count) => Ok(count),
        Typed::Text(text) => parse_count(&text).map_err(D::Error::custom),
    }
}

/// Deserializes a count of at most 32 bits from a number or from text.
///
/// # Errors
/// Those of [`parse_count_u32`].
pub fn u32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let count = u64(deserializer)?;
    count.try_into().map_err(|_| D::Error::custom(format!("{count} is out of range; at most 4294967295 is possible")))
}

/// Deserializes an optional count; combine with `#[serde(default)]`.
///
/// # Errors
/// Those of [`parse_count`].
pub fn option_u64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    u64(deserializer).map(Some)
}

/// Deserializes an optional count of at most 32 bits; combine with `#[serde(default)]`.
///
/// # Errors
/// Those of [`parse_count_u32`].
pub fn option_u32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    u32(deserializer).map(Some)
}

/// Deserializes a factor from a number or from text. The caller checks the range of numbers.
///
/// # Errors
/// Those of [`parse_factor`] for text.
pub fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match TypedFactor::deserialize(deserializer)? {
        TypedFactor::Number(factor) => Ok(factor),
        TypedFactor::Text(text) => parse_factor(&text).map_err(D::Error::custom),
    }
}

/// Whole numbers up to 2^53 are exact in an `f64`.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_decimal_prefixes() {
        for (typed, count) in [
            ("0", 0),
            ("250", 250),
            ("1_000", 1000),
            ("10k", 10_000),
            ("1.1K", 1100),
            ("1.5M", 1_500_000),
            ("2 G", 2_000_000_000),
        ] {
            assert_eq!(parse_count(typed), Ok(count), "{typed}");
        }
        for typed in ["", "k", "1.5", "0.0001k", "-1", "10m", "10kk", "10 000", "1e3", "10000000G"] {
            assert!(parse_count(typed).is_err(), "{typed}");
        }
        assert_eq!(parse_count_u32("4294967295"), Ok(u32::MAX));
        assert!(parse_count_u32("4294967296").is_err());
    }

    #[test]
    fn counts_are_deserialized_from_numbers_and_text() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Plan {
            #[serde(default, deserialize_with = "option_u32")]
            clients: Option<u32>,
            #[serde(deserialize_with = "super::u64")]
            requests: u64,
            #[serde(deserialize_with = "super::factor")]
            scale: f64,
        }
        let read = |text: &str| toml::from_str::<Plan>(text);
        let expected = Plan { clients: Some(10_000), requests: 2_000_000, scale: 2.0 };
        assert_eq!(read("clients = \"10k\"\nrequests = \"2M\"\nscale = \"2x\"").unwrap(), expected);
        assert_eq!(read("clients = 10000\nrequests = 2000000\nscale = 2").unwrap(), expected);
        assert_eq!(read("requests = 1\nscale = 0.5").unwrap().clients, None);
        for wrong in ["requests = -1\nscale = 1", "requests = 1.5\nscale = 1", "requests = \"x\"\nscale = 1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("clients = 4294967296\nrequests = 1\nscale = 1").is_err());
    }

    #[test]
    fn factors_are_parsed_in_every_form() {
        for (typed, factor) in [
            ("2x", 2.0),
            ("x2", 2.0),
            ("×0.5", 0.5),
            ("2", 2.0),
            ("1.5 x", 1.5),
            ("50%", 0.5),
            ("200%", 2.0),
            ("1/60", 1.0 / 60.0),
        ] {
            assert_eq!(parse_factor(typed), Ok(factor), "{typed}");
        }
        for typed in ["", "x", "0", "0x", "-1", "x2x", "x2%", "1/0", "1/x", "2y", "1/2/3", "inf", "NaN"] {
            assert!(parse_factor(typed).is_err(), "{typed}");
        }
    }
}
