//! Splits a typed quantity into number and unit, and defines the error that all quantities share.

/// Why a typed quantity was rejected. The message contains the typed text and the accepted form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text does not begin with a number.
    #[error("`{typed}` does not begin with a number; {expected}")]
    NoNumber {
        /// The text as typed.
        typed: String,
        /// The accepted form, with an example.
        expected: &'static str,
    },
    /// The number has no unit.
    #[error("`{typed}` has no unit; {expected}")]
    NoUnit {
        /// The text as typed.
        typed: String,
        /// The accepted form, with an example.
        expected: &'static str,
    },
    /// The quantity does not have this unit.
    #[error("`{unit}` in `{typed}` is not a known unit; {expected}")]
    UnknownUnit {
        /// The text as typed.
        typed: String,
        /// The unit as typed.
        unit: String,
        /// The accepted form, with an example.
        expected: &'static str,
    },
    /// A number of 1 or more without a percent sign where a share is expected. The percent sign may be missing.
    #[error("`{typed}` is ambiguous as a share: {typed}% or {hundredfold}%? {expected}")]
    AmbiguousShare {
        /// The text as typed.
        typed: String,
        /// The number in percent, read as a fraction.
        hundredfold: String,
        /// The accepted form, with an example.
        expected: &'static str,
    },
    /// The number is negative, not finite, or too large.
    #[error("`{typed}` is out of range; {expected}")]
    OutOfRange {
        /// The text as typed.
        typed: String,
        /// The valid range.
        expected: &'static str,
    },
}

/// Splits `12.5 Mbit/s` into `(12.5, "Mbit/s")`. The unit may be empty; the caller decides whether that is an error.
pub(crate) fn split<'a>(typed: &'a str, expected: &'static str) -> Result<(f64, &'a str), ParseError> {
    let text = typed.trim();
    let end = text
        .char_indices()
        .find(|&(at, c)| !(c.is_ascii_digit() || c == '.' || c == '_' || (at == 0 && (c == '-' || c == '+'))))
        .map_or(text.len(), |(at, _)| at);
    let number: String = text[..end].chars().filter(|&c| c != '_').collect();
    let value: f64 = number.parse().map_err(|_| ParseError::NoNumber { typed: typed.to_owned(), expected })?;
    if !value.is_finite() || value < 0.0 || number.starts_with('-') {
        return Err(ParseError::OutOfRange { typed: typed.to_owned(), expected });
    }
    Ok((value, text[end..].trim()))
}

pub(crate) fn unit_error(typed: &str, unit: &str, expected: &'static str) -> ParseError {
    if unit.is_empty() {
        ParseError::NoUnit { typed: typed.to_owned(), expected }
    } else {
        ParseError::UnknownUnit { typed: typed.to_owned(), unit: unit.to_owned(), expected }
    }
}

/// Prints a value with the fewest digits that are exact to one part in 10 000, without a trailing `.0`.
pub(crate) fn trim_number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (4 - value.abs().log10().floor() as i32).clamp(0, 9) };
    let text = format!("{value:.*}", digits as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Implements `Serialize`/`Deserialize` as the text form that `Display` prints and `FromStr` reads.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;
