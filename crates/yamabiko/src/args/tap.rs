//! `tap` and `tap slice` as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tap::{By, Only, PeerMatch};
use units::parse_duration;

#[cfg(feature = "agent")]
use super::Agent;
#[cfg(feature = "manager")]
use super::Manager;
use super::{PageForms, ShowOptions};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Tap {
    #[command(subcommand)]
    pub what: Option<TapWhat>,
    /// Follow only connections with this peer (192.0.2.7, 192.0.2.0/24), this port of the service (443), or both
    /// (192.0.2.7:443); may be given more than once
    #[arg(long, value_name = "PEER|PORT")]
    pub only: Vec<Only>,
    /// Tell figures on stderr every second
    #[arg(long)]
    pub progress: bool,
    #[command(flatten)]
    pub show: ShowOptions,
    #[command(flatten)]
    pub window: Window,
    /// Write one JSON document to this file, and no page to stderr; `-` is stdout, after the program's own output
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub json: Option<PathBuf>,
    /// Write the page to this file instead of stderr
    #[arg(short, long, value_name = "FILE", value_parser = crate::page_file::output, conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Name in the run's folder
    #[arg(long, default_value = "tap")]
    pub name: String,
    /// Do not keep the run in the book
    #[arg(long)]
    pub no_save: bool,
    /// Only put the program under the tap that this machine's agent keeps (`tap agent`), in the agent's folder, and become it
    #[cfg(feature = "agent")]
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with_all = ["only", "progress", "json", "output", "no_save"])]
    pub agent: Option<Option<PathBuf>>,
    /// Program and arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Window {
    /// Availability is also told as the share of windows of this length in which an attempt succeeded
    #[arg(long, default_value = "10s", value_parser = window, allow_hyphen_values = true)]
    pub window: Duration,
}

#[derive(Debug, Subcommand)]
pub enum TapWhat {
    /// Figures of the exchanges that meet conditions, over any number of runs
    Slice(Box<Slice>),
    /// Keep a standing tap on this machine, and hand what it sees to a manager
    #[cfg(feature = "agent")]
    Agent(Box<Agent>),
    /// Gather what the agents of many machines saw: by day, by program and peer, on one page
    #[cfg(feature = "manager")]
    Manager(Box<Manager>),
}

#[derive(Args, Debug)]
pub struct Slice {
    /// Runs: names, beginnings of names, folders, or `last`; without one, the last run that has a tap
    pub runs: Vec<String>,
    /// Instead of names: the last so many runs that have a tap
    #[arg(long, value_name = "N", conflicts_with = "runs", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Of these, or without --last of all, the ones of this name
    #[arg(long, conflicts_with = "runs")]
    pub name: Option<String>,
    /// Only with this peer: an address or a network; may be given more than once, as all conditions
    #[arg(long, help_heading = "Conditions")]
    pub peer: Vec<PeerMatch>,
    /// Only with a service at this port
    #[arg(long, help_heading = "Conditions")]
    pub port: Vec<u16>,
    /// Only of this program, by its whole name
    #[arg(long, help_heading = "Conditions")]
    pub program: Vec<String>,
    /// Only what ended since: a moment (2026-11-22T10:00:00Z, 2026-11-22), or so long ago (1h)
    #[arg(long, value_name = "WHEN", help_heading = "Conditions")]
    pub since: Option<String>,
    /// Only what ended before: written as --since
    #[arg(long, value_name = "WHEN", help_heading = "Conditions")]
    pub until: Option<String>,
    /// Figures for each of these
    #[arg(long, value_enum)]
    pub by: Option<ByName>,
    #[command(flatten)]
    pub window: Window,
    /// Print one JSON document and nothing else
    #[arg(long, conflicts_with_all = ["html", "svg", "md"])]
    pub json: bool,
    #[command(flatten)]
    pub forms: PageForms,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ByName {
    Peer,
    Port,
    Program,
    Minute,
}

impl From<ByName> for By {
    fn from(name: ByName) -> By {
        match name {
            ByName::Peer => By::Peer,
            ByName::Port => By::Port,
            ByName::Program => By::Program,
            ByName::Minute => By::Minute,
        }
    }
}

fn window(typed: &str) -> Result<Duration, String> {
    match parse_duration(typed) {
        Ok(window) if window.is_zero() => Err("a window has a length, such as 10s".to_owned()),
        Ok(window) => Ok(window),
        Err(error) => Err(error.to_string()),
    }
}
