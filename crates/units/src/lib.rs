//! Quantities with units, so that no bare number crosses a public boundary.
//!
//! This crate parses every quantity that a user types (`48ms`, `10Mbit`, `110/s`, `1%`), rejects quantities without a
//! unit, and prints them in a form that parses back. [`figures`] formats numbers for reports. Arithmetic that can
//! overflow saturates or is checked, and its documentation states which. Durations are [`std::time::Duration`];
//! instants are [`Timestamp`].
//!
//! Start with [`time`]: all other crates use its timestamps.

mod bytes;
pub mod count;
pub mod figures;
mod parse;
mod printable;
mod probability;
mod rate;
mod share;
pub mod time;

pub use bytes::Bytes;
pub use count::{parse_count, parse_count_u32, parse_factor};
pub use parse::ParseError;
pub use printable::{is_unprintable, printable, printable_lines};
pub use probability::{Probability, share_of_whole};
pub use rate::{BitRate, RequestRate};
pub use share::CpuShare;
pub use time::{Timestamp, format_duration, parse_duration};

/// A quantity that may be unbounded. In this project zero never means "unlimited".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit<T> {
    /// Bounded by this value.
    At(T),
    /// No bound.
    #[default]
    Unlimited,
}

impl<T> Limit<T> {
    /// The bound, or `None` if unlimited.
    pub fn value(self) -> Option<T> {
        match self {
            Limit::At(value) => Some(value),
            Limit::Unlimited => None,
        }
    }
}
