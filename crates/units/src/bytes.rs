//! Amounts of data.

use std::fmt;
use std::str::FromStr;

use crate::parse::{ParseError, serde_as_text, split, unit_error};

/// An amount of data in bytes. `KB`, `MB`, `GB` are powers of 1000, `KiB`, `MiB`, `GiB` powers of 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const EXPECTED: &str = "an amount is written like 512B, 64KB, 64KiB or 1.5MB, at most 1000TB";

impl FromStr for Bytes {
    type Err = ParseError;

    /// # Errors
    /// The text has no number, no unit or an unknown unit, is negative, or is over 1000 TB.
    fn from_str(typed: &str) -> Result<Self, ParseError> {
        let (value, unit) = split(typed, EXPECTED)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "b" | "byte" | "bytes" => 1.0,
            "kb" | "k" => 1e3,
            "mb" | "m" => 1e6,
            "gb" | "g" => 1e9,
            "tb" | "t" => 1e12,
            "kib" | "ki" => 1024.0,
            "mib" | "mi" => 1024.0 * 1024.0,
            "gib" | "gi" => 1024.0 * 1024.0 * 1024.0,
            "" if value == 0.0 => 1.0,
            _ => return Err(unit_error(typed, unit, EXPECTED)),
        };
        let bytes = value * factor;
        if bytes > 1e15 {
            return Err(ParseError::OutOfRange { typed: typed.to_owned(), expected: EXPECTED });
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

impl fmt::Display for Bytes {
    /// Prints an exact form: parsing it gives the same amount.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (factor, unit) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if bytes >= factor && bytes.is_multiple_of(factor) && !bytes.is_multiple_of(1000) {
                return write!(f, "{}{unit}", bytes / factor);
            }
        }
        match bytes {
            0..1_000 => write!(f, "{bytes}B"),
            1_000..1_000_000 => write!(f, "{}KB", bytes as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{}MB", bytes as f64 / 1e6),
            _ => write!(f, "{}GB", bytes as f64 / 1e9),
        }
    }
}

serde_as_text!(Bytes);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!("64KB".parse(), Ok(Bytes(64_000)));
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!("1.5MB".parse(), Ok(Bytes(1_500_000)));
        assert!(matches!("64".parse::<Bytes>(), Err(ParseError::NoUnit { .. })));
        assert!(matches!("1001TB".parse::<Bytes>(), Err(ParseError::OutOfRange { .. })));
    }

    #[test]
    fn printed_byte_sizes_round_trip() {
        for bytes in [0, 1, 999, 1000, 1024, 65_536, 64_000, 1_500_000, 10_240, 1 << 30] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }

    proptest! {
        #[test]
        fn every_printed_byte_size_round_trips(bytes in 0u64..1_000_000_000_000_000) {
            prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }
}
