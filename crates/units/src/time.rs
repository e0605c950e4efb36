//! Timestamps of a run, and durations as text.
//!
//! A [`Timestamp`] counts nanoseconds since the start of the run on the monotonic clock. Crates that
//! compute read no clock: they take a `Timestamp` as an argument. Durations are `std::time::Duration`.
//! [`parse_duration`] and [`format_duration`] convert them from and to text, and [`text`] is the serde adapter
//! (`#[serde(with = "units::time::text")]`).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use crate::parse::{ParseError, split, trim_number, unit_error};

/// Nanoseconds since the time zero of the run, on the monotonic clock. Range: 0 to 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Time zero of the run.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Later than every time that occurs in a run.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// From nanoseconds since time zero of the run.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// Nanoseconds since time zero of the run.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since time zero of the run, for printing and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later than `self`.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds from `earlier` to `self`, negative if `earlier` is later than `self`. Clamped to `i64`.
    pub const fn nanos_since(self, earlier: Timestamp) -> i64 {
        let difference = self.0 as i128 - earlier.0 as i128;
        if difference > i64::MAX as i128 {
            i64::MAX
        } else if difference < i64::MIN as i128 {
            i64::MIN
        } else {
            difference as i64
        }
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates at [`Timestamp::MAX`].
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(saturating_nanos(duration)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates at [`Timestamp::ZERO`].
    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(saturating_nanos(duration)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

/// A duration as nanoseconds, saturating at `u64::MAX` (584 years).
pub fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const EXPECTED: &str = "a duration is written like 48ms, 250us, 1.5s, 2m, 1h or 1m30s, at most 1000h";

/// Parses `48ms`, `250us`, `10ns`, `1.5s`, `2m`, `1h`, and sums of these from the larger unit to the smaller, such as
/// `1m30s` or `1h 2m`. Only `0` is accepted without a unit.
///
/// # Errors
/// The text has no number, no unit or an unknown unit, units that are not in descending order, is negative, or is
/// over 1000 hours.
pub fn parse_duration(typed: &str) -> Result<Duration, ParseError> {
    let (mut nanos, mut larger) = (0.0, f64::INFINITY);
    let mut rest = typed.trim();
    loop {
        // A term such as `1m` ends where a digit follows its unit.
        let unit_at = rest.find(|c: char| c.is_alphabetic()).unwrap_or(rest.len());
        let end = rest[unit_at..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit_at + at);
        let (value, nanos_per_unit) = term(typed, &rest[..end])?;
        if nanos_per_unit >= larger {
            return Err(ParseError::OutOfRange { typed: typed.to_owned(), expected: EXPECTED });
        }
        nanos += value * nanos_per_unit;
        (rest, larger) = (&rest[end..], nanos_per_unit);
        if rest.is_empty() {
            break;
        }
    }
    if nanos > 3600e9 * 1000.0 {
        return Err(ParseError::OutOfRange { typed: typed.to_owned(), expected: EXPECTED });
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Splits one term of a duration into its number and the nanoseconds of its unit. `typed` is the whole text, for
/// errors.
fn term(typed: &str, text: &str) -> Result<(f64, f64), ParseError> {
    let (value, unit) = split(text, EXPECTED)?;
    let nanos_per_unit = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        "" if value == 0.0 => 1.0,
        _ => return Err(unit_error(typed, unit, EXPECTED)),
    };
    Ok((value, nanos_per_unit))
}

/// Prints a duration in the unit that fits its size: `48ms`, `1.25s`, `310us`, `90s`. At most five significant digits:
/// use [`text`] where the duration must parse back exactly.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    match duration.as_nanos() {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}us", trim_number(nanos / 1e3)),
        1_000_000..1_000_000_000 => format!("{}ms", trim_number(nanos / 1e6)),
        _ => format!("{}s", trim_number(nanos / 1e9)),
    }
}

/// Serde adapter: a duration as text that parses back to the same number of nanoseconds.
pub mod text {
    use std::borrow::Cow;
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Prints a duration as a whole number of the largest unit in which it is exact.
    pub fn exact(duration: Duration) -> String {
        let nanos = duration.as_nanos();
        match nanos {
            0 => "0s".to_owned(),
            n if n.is_multiple_of(1_000_000_000) => format!("{}s", n / 1_000_000_000),
            n if n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
            n if n.is_multiple_of(1_000) => format!("{}us", n / 1_000),
            n => format!("{n}ns"),
        }
    }

    /// Serializes the text that [`exact`] returns.
    ///
    /// # Errors
    /// Only those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&exact(*duration))
    }

    /// Deserializes the text that [`super::parse_duration`] accepts.
    ///
    /// # Errors
    /// Those of [`super::parse_duration`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let typed = Cow::<'de, str>::deserialize(deserializer)?;
        super::parse_duration(&typed).map_err(serde::de::Error::custom)
    }

    /// Serde adapter for `Option<Duration>`: `None` is an absent value.
    pub mod option {
        use std::borrow::Cow;
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serializer};

        /// Serializes `Some` as the text that [`super::exact`] returns.
        ///
        /// # Errors
        /// Only those of the serializer.
        pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            match duration {
                Some(duration) => serializer.serialize_str(&super::exact(*duration)),
                None => serializer.serialize_none(),
            }
        }

        /// Deserializes the text that [`crate::parse_duration`] accepts, or an absent value.
        ///
        /// # Errors
        /// Those of [`crate::parse_duration`].
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            let typed = Option::<Cow<'de, str>>::deserialize(deserializer)?;
            typed.map(|typed| crate::parse_duration(&typed).map_err(serde::de::Error::custom)).transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_need_a_known_unit() {
        assert_eq!(parse_duration("48ms"), Ok(Duration::from_millis(48)));
        assert_eq!(parse_duration(" 1.5 s "), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(matches!(parse_duration("48"), Err(ParseError::NoUnit { .. })));
        assert!(matches!(parse_duration("48 parsecs"), Err(ParseError::UnknownUnit { .. })));
        assert!(matches!(parse_duration("-48ms"), Err(ParseError::OutOfRange { .. })));
        assert!(matches!(parse_duration("ms"), Err(ParseError::NoNumber { .. })));
        assert!(matches!(parse_duration(""), Err(ParseError::NoNumber { .. })));
    }

    #[test]
    fn duration_sums_need_descending_units() {
        for (typed, millis) in [
            ("1m30s", 90_000),
            ("1h2m3s", 3_723_000),
            ("1m 30 s", 90_000),
            ("2s500ms", 2_500),
            ("0.5m0.5s", 30_500),
            ("1h0s", 3_600_000),
        ] {
            assert_eq!(parse_duration(typed), Ok(Duration::from_millis(millis)), "{typed}");
        }
        for typed in ["30s1m", "1s1s", "1m30", "1m-30s", "1m+30s", "1m30x", "m30s", "1mm", "1m,30s", "999h60m1s500h"] {
            assert!(parse_duration(typed).is_err(), "{typed}");
        }
        assert!(parse_duration("999h60m").is_ok());
        assert!(parse_duration("1000h1ms").is_err());
    }

    #[test]
    fn durations_over_1000_hours_are_rejected() {
        assert!(parse_duration("1000h").is_ok());
        assert!(matches!(parse_duration("1001h"), Err(ParseError::OutOfRange { .. })));
    }

    #[test]
    fn timestamp_arithmetic_saturates() {
        assert_eq!(Timestamp::from_nanos(5) - Duration::from_nanos(6), Timestamp::ZERO);
        assert_eq!(Timestamp::MAX + Duration::from_nanos(1), Timestamp::MAX);
        assert_eq!(Timestamp::from_nanos(3).nanos_since(Timestamp::from_nanos(5)), -2);
    }

    proptest! {
        #[test]
        fn exact_duration_text_round_trips(nanos in 0u64..3_600_000_000_000_000) {
            // An f64 has 53 bits of precision: whole nanoseconds are exact up to 104 days.
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&text::exact(duration)).unwrap(), duration);
        }

        #[test]
        fn readable_duration_text_is_within_rounding(nanos in 1u64..3_600_000_000_000) {
            let back = parse_duration(&format_duration(Duration::from_nanos(nanos))).unwrap().as_nanos() as f64;
            prop_assert!((back / nanos as f64 - 1.0).abs() < 1e-4);
        }
    }
}
