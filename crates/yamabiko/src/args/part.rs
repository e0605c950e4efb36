//! `serve --part`: one part of a server, alone. Not in the help: what `predict --parts` measures, not a server.

use std::time::Duration;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartAlone {
    Parse,
    OpenRead,
    Open,
    OpenReadCold,
    LogLine,
    LogBuffered,
    HandshakeFull,
    HandshakeResumed,
    Records,
    Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartWaits {
    Epoll,
    #[value(name = "io_uring")]
    Uring,
    Threads,
}

impl PartAlone {
    /// As meant; none: the one that serves.
    pub fn local(self) -> Option<serve::LocalPart> {
        Some(match self {
            PartAlone::Parse => serve::LocalPart::Parse,
            PartAlone::OpenRead => serve::LocalPart::OpenRead,
            PartAlone::Open => serve::LocalPart::Open,
            PartAlone::OpenReadCold => serve::LocalPart::OpenReadCold,
            PartAlone::LogLine => serve::LocalPart::LogLine,
            PartAlone::LogBuffered => serve::LocalPart::LogBuffered,
            PartAlone::HandshakeFull => serve::LocalPart::HandshakeFull,
            PartAlone::HandshakeResumed => serve::LocalPart::HandshakeResumed,
            PartAlone::Records => serve::LocalPart::Records,
            PartAlone::Exchange => return None,
        })
    }
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
            let typed = PartAlone::from_str(part.name(), false).unwrap();
            assert_eq!(typed.local(), Some(part));
        }
    }
}
