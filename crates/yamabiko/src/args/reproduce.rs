//! `reproduce`, as typed.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use units::parse_duration;

/// What to make again.
#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// P1 (about 2001): connections in process inside one server, whose users are next door, 48 ms away, or as far as
    /// a real audience. Five experiments with Apache, two of them with httperf
    Koshien(Koshien),
}

#[derive(Args, Debug)]
pub struct Koshien {
    /// Length of each experiment, after 8 s of warm-up
    #[arg(short, long, default_value = "60s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// As long as the paper's: 100,000 requests in each, some 15 minutes
    #[arg(long, conflicts_with = "duration")]
    pub full: bool,
    /// Only these experiments, such as 2,5
    #[arg(short, long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [1, 2, 3, 4, 5])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub experiments: Vec<u8>,
    /// The server's TCP: a first window of 2 segments and reno, or what this machine's kernel does
    #[arg(short, long, value_enum, default_value_t = Setting::Both)]
    pub setting: Setting,
    /// Write the page to this file too
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setting {
    /// As in 2001
    #[value(name = "2001")]
    Year2001,
    /// As today
    Today,
    /// One after the other
    Both,
}
