//! `serve --part`: one part of a server, alone. Not in the help: what `predict --parts` measures, not a server.

use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use units::{Bytes, parse_duration};

#[derive(Args, Debug)]
pub struct PartOptions {
    /// Do one part of a server over and over in this folder, and print what it cost; `exchange` serves
    #[arg(long, value_enum, value_name = "PART", requires = "dir", conflicts_with = "only", hide = true)]
    pub part: Option<PartAlone>,
    /// Bytes of one: of a file, a head, an answer
    #[arg(long, value_name = "SIZE", default_value = "0B", requires = "part", hide = true)]
    pub part_bytes: Bytes,
    /// Rounds
    #[arg(long, value_name = "NUMBER", default_value_t = 5, requires = "part", hide = true)]
    pub part_rounds: u32,
    /// Processor time of a round
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration, requires = "part", hide = true)]
    pub part_time: Duration,
    /// How `exchange` waits
    #[arg(long, value_enum, default_value_t = PartWaits::Epoll, requires = "part", hide = true)]
    pub part_waits: PartWaits,
    /// `exchange` lets the kernel send a file, instead of sending from memory
    #[arg(long, requires = "part", hide = true)]
    pub part_sendfile: bool,
    /// `exchange` closes after each answer
    #[arg(long, requires = "part", hide = true)]
    pub part_close: bool,
}

/// Typed by the names that the crate has which does them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartAlone {
    /// One that needs no network.
    Local(serve::LocalPart),
    /// The one that serves.
    Exchange,
}

impl ValueEnum for PartAlone {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [PartAlone; serve::LocalPart::ALL.len() + 1] = {
            let mut all = [PartAlone::Exchange; serve::LocalPart::ALL.len() + 1];
            let mut at = 0;
            while at < serve::LocalPart::ALL.len() {
                all[at] = PartAlone::Local(serve::LocalPart::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            PartAlone::Local(part) => part.name(),
            PartAlone::Exchange => "exchange",
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartWaits {
    Epoll,
    #[value(name = "io_uring")]
    Uring,
    Threads,
}

impl From<PartWaits> for serve::ExchangeWaits {
    fn from(typed: PartWaits) -> Self {
        match typed {
            PartWaits::Epoll => serve::ExchangeWaits::Epoll,
            PartWaits::Uring => serve::ExchangeWaits::Uring,
            PartWaits::Threads => serve::ExchangeWaits::Threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suite names parts by the words of the crate that has them.
    #[test]
    fn parts_are_typed_by_their_names() {
        for part in serve::LocalPart::ALL {
            assert_eq!(PartAlone::from_str(part.name(), false), Ok(PartAlone::Local(part)));
        }
        assert_eq!(PartAlone::from_str("exchange", false), Ok(PartAlone::Exchange));
    }
}
