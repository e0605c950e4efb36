//! Rates: bits per second of links, requests per second of a load.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Bytes;
use crate::parse::{ParseError, serde_as_text, split, unit_error};

/// Bits per second on a link, counting whole IP packets, from 1 bit/s to 1000 Gbit/s. A link that forwards nothing is
/// an outage, not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

const BITS_EXPECTED: &str = "a bit rate is written like 512kbit, 10Mbit, 1Gbit or 10Mbit/s, from 1bit to 1000Gbit";

impl BitRate {
    /// From bits per second; `None` outside 1 to 10^12.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits >= 1 && bits <= 1_000_000_000_000 { Some(BitRate(bits)) } else { None }
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Transmission time of `bytes`: `(whole nanoseconds, remainder)`. The remainder is the numerator of a fraction of
    /// a nanosecond with the denominator [`Self::bits_per_second`]. Pass it to the next packet's call, otherwise the
    /// rate drifts upward.
    pub const fn nanos_for(self, bytes: Bytes, remainder: u64) -> (u64, u64) {
        let numerator = bytes.0 as u128 * 8 * 1_000_000_000 + remainder as u128;
        ((numerator / self.0 as u128) as u64, (numerator % self.0 as u128) as u64)
    }

    /// Bytes that the link transmits in `duration`, rounded down.
    pub const fn bytes_in(self, duration: Duration) -> Bytes {
        Bytes((self.0 as u128 * duration.as_nanos() / 8 / 1_000_000_000) as u64)
    }
}

impl FromStr for BitRate {
    type Err = ParseError;

    /// # Errors
    /// The text has no number, no unit or an unknown unit, or is outside 1 bit/s to 1000 Gbit/s.
    fn from_str(typed: &str) -> Result<Self, ParseError> {
        let (value, unit) = split(typed, BITS_EXPECTED)?;
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            // `bps` means bits per second, as is usual for links. Bytes per second are not accepted.
            "bps" => 1.0,
            "kbps" => 1e3,
            "mbps" => 1e6,
            "gbps" => 1e9,
            _ => return Err(unit_error(typed, unit, BITS_EXPECTED)),
        };
        BitRate::from_bits_per_second((value * factor).round() as u64)
            .ok_or(ParseError::OutOfRange { typed: typed.to_owned(), expected: BITS_EXPECTED })
    }
}

impl fmt::Display for BitRate {
    /// Prints an exact form: parsing it gives the same rate.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        match bits {
            b if b >= 1_000_000_000 && b.is_multiple_of(1_000_000) => {
                write!(f, "{}Gbit", bits as f64 / 1e9)
            }
            b if b >= 1_000_000 && b.is_multiple_of(1_000) => write!(f, "{}Mbit", bits as f64 / 1e6),
            b if b >= 1_000 && b.is_multiple_of(1_000) => write!(f, "{}kbit", bits / 1_000),
            _ => write!(f, "{bits}bit"),
        }
    }
}

serde_as_text!(BitRate);

/// Requests (or connections, or arrivals) per second. Above 0, at most 10^9.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RequestRate(f64);

const RATE_EXPECTED: &str =
    "a rate is written like 110/s, 10k/s, 6000/m or 20000000/day, above 0 and at most 1000000000/s";

impl RequestRate {
    /// One request per second.
    pub const ONE: RequestRate = RequestRate(1.0);

    /// From requests per second; `None` unless above 0, finite and at most 10^9.
    pub fn from_per_second(rate: f64) -> Option<Self> {
        (rate > 0.0 && rate <= 1e9).then_some(RequestRate(rate))
    }

    /// Requests per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// Mean time between two arrivals, rounded to the nanosecond.
    pub fn mean_interval(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.0)
    }
}

impl FromStr for RequestRate {
    type Err = ParseError;

    /// # Errors
    /// The text has no number, no unit or an unknown unit, or is zero, negative, or over 10^9 per second.
    fn from_str(typed: &str) -> Result<Self, ParseError> {
        let (value, unit) = split(typed, RATE_EXPECTED)?;
        let seconds = match unit {
            "M/s" => 1e-6,
            "/s" | "per second" | "rps" => 1.0,
            "/m" | "/min" | "per minute" => 60.0,
            "/h" | "/hour" | "per hour" => 3600.0,
            "/day" | "/d" | "per day" => 86_400.0,
            "k/s" => 1e-3,
            _ => return Err(unit_error(typed, unit, RATE_EXPECTED)),
        };
        RequestRate::from_per_second(value / seconds)
            .ok_or(ParseError::OutOfRange { typed: typed.to_owned(), expected: RATE_EXPECTED })
    }
}

impl fmt::Display for RequestRate {
    /// Prints the shortest decimal that parses to the same rate.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

serde_as_text!(RequestRate);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rate_needs_its_unit() {
        assert_eq!("110/s".parse::<RequestRate>().unwrap().per_second(), 110.0);
        assert_eq!("6600/m".parse::<RequestRate>().unwrap().per_second(), 110.0);
        assert!(matches!("110".parse::<RequestRate>(), Err(ParseError::NoUnit { .. })));
        assert!(matches!("0/s".parse::<RequestRate>(), Err(ParseError::OutOfRange { .. })));
        assert!(matches!("-1/s".parse::<RequestRate>(), Err(ParseError::OutOfRange { .. })));
    }

    #[test]
    fn bit_rates_are_bits_not_bytes() {
        assert_eq!("10Mbit".parse::<BitRate>().unwrap().bits_per_second(), 10_000_000);
        assert_eq!("512kbit/s".parse::<BitRate>().unwrap().bits_per_second(), 512_000);
        assert!(matches!("10MB/s".parse::<BitRate>(), Err(ParseError::UnknownUnit { .. })));
        assert!(matches!("0bit".parse::<BitRate>(), Err(ParseError::OutOfRange { .. })));
        assert!(matches!("1001Gbit".parse::<BitRate>(), Err(ParseError::OutOfRange { .. })));
    }

    proptest! {
        /// With the remainder passed on, the transmission times of any number of packets are exact to the nanosecond.
        #[test]
        fn transmission_times_carry_the_remainder(
            bits in 1_000u64..10_000_000_000,
            sizes in prop::collection::vec(40u64..1500, 1..200),
        ) {
            let rate = BitRate::from_bits_per_second(bits).unwrap();
            let (mut nanos, mut remainder) = (0u64, 0u64);
            for &size in &sizes {
                let (step, rest) = rate.nanos_for(Bytes(size), remainder);
                nanos += step;
                remainder = rest;
            }
            let total: u64 = sizes.iter().sum();
            prop_assert_eq!(nanos, (u128::from(total) * 8_000_000_000 / u128::from(bits)) as u64);
        }

        #[test]
        fn printed_rates_round_trip(bits in 1u64..1_000_000_000_000) {
            let rate = BitRate::from_bits_per_second(bits).unwrap();
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let round = BitRate::from_bits_per_second((bits / 1_000_000).max(1) * 1_000_000).unwrap();
            prop_assert_eq!(round.to_string().parse(), Ok(round));
        }
    }
}
