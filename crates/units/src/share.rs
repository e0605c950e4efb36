//! Shares of one core's CPU time.

use std::fmt;
use std::str::FromStr;

use crate::parse::{ParseError, serde_as_text, split, unit_error};

/// CPU time as a share of one core: `50%` is half a core, `150%` one and a half. From 1 % to 100 000 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct CpuShare(f64);

const EXPECTED: &str = "a CPU share is written like 50% (of one core), from 1% to 100000%";

impl CpuShare {
    /// The share in cores: 0.5 for `50%`.
    pub const fn cores(self) -> f64 {
        self.0
    }
}

impl FromStr for CpuShare {
    type Err = ParseError;

    /// # Errors
    /// The text has no number or no `%`, or is outside the range.
    fn from_str(typed: &str) -> Result<Self, ParseError> {
        let (value, unit) = split(typed, EXPECTED)?;
        if unit != "%" {
            return Err(unit_error(typed, unit, EXPECTED));
        }
        if !(1.0..=100_000.0).contains(&value) {
            return Err(ParseError::OutOfRange { typed: typed.to_owned(), expected: EXPECTED });
        }
        Ok(CpuShare(value / 100.0))
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Print the fewest digits that parse to the same share: in floating point, 0.57 times 100 is not exactly 57.
        let mut printed = (0..=17).map(|digits| format!("{:.digits$}%", self.0 * 100.0));
        let exact = |text: &String| text.parse() == Ok(*self);
        f.write_str(&printed.clone().find(exact).or_else(|| printed.next_back()).unwrap_or_default())
    }
}

serde_as_text!(CpuShare);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_shares_out_of_range_or_without_a_percent_sign_are_rejected() {
        assert_eq!("50%".parse::<CpuShare>().unwrap().cores(), 0.5);
        assert!("1%".parse::<CpuShare>().is_ok());
        assert!("0.9%".parse::<CpuShare>().is_err());
        assert!("0.5".parse::<CpuShare>().is_err());
        for typed in ["150%", "57%", "33.333333%", "1%"] {
            assert_eq!(typed.parse::<CpuShare>().unwrap().to_string(), typed);
        }
    }
}
