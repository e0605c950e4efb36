//! Quantities with units, so that no bare number crosses a public boundary.
//!
//! Everything typed by a person (`48ms`, `10Mbit`, `110/s`, `1%`) is parsed here, refused here when its unit is
//! missing, and printed here in the form that parses back. What is printed for people to read is in [`figures`]. Arithmetic that can overflow saturates or is checked,
//! and says which. Durations are [`std::time::Duration`]; instants are [`Timestamp`].
//!
//! Start with [`time`]: all other crates speak in its timestamps.

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

/// A quantity that may have no bound. Zero never means "infinite" anywhere in this project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit<T> {
    /// Bounded by this value.
    At(T),
    /// No bound.
    #[default]
    Unlimited,
}

impl<T> Limit<T> {
    /// The bound, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Limit::At(value) => Some(value),
            Limit::Unlimited => None,
        }
    }
}
