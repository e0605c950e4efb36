//! Arguments of `tap` and `tap slice`.

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
    /// (192.0.2.7:443); may be repeated
    #[arg(long, value_name = "PEER|PORT")]
    pub only: Vec<Only>,
    /// Print figures on stderr every second
    #[arg(long)]
    pub progress: bool,
    #[command(flatten)]
    pub show: ShowOptions,
    #[command(flatten)]
    pub window: Window,
    /// Write one JSON document to this file instead of the report to stderr; `-` is stdout, after the program's output
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub json: Option<PathBuf>,
    /// Write the report to this file instead of stderr
    #[arg(short, long, value_name = "FILE", value_parser = crate::page_file::output, conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Set the run's name, a part of its folder's name
    #[arg(long, default_value = "tap")]
    pub name: String,
    /// Do not store the run
    #[arg(long)]
    pub no_save: bool,
    /// Let this machine's agent (`tap agent`) record the program, and replace this process by it
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
    /// Length of the time windows of availability (share of windows with a successful attempt)
    #[arg(long, default_value = "10s", value_parser = window, allow_hyphen_values = true)]
    pub window: Duration,
}

#[derive(Debug, Subcommand)]
pub enum TapWhat {
    /// Figures of selected exchanges over several runs
    Slice(Box<Slice>),
    /// Run the tap daemon of this machine, which reports to a manager
    #[cfg(feature = "agent")]
    Agent(Box<Agent>),
    /// Collect the data of many agents, with a web page
    #[cfg(feature = "manager")]
    Manager(Box<Manager>),
}

#[derive(Args, Debug)]
pub struct Slice {
    /// Runs: names, starts of names, folders, or `last` [default: the last run with a tap]
    pub runs: Vec<String>,
    /// The last N runs with a tap, instead of names
    #[arg(long, value_name = "N", conflicts_with = "runs", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Only runs with this name
    #[arg(long, conflicts_with = "runs")]
    pub name: Option<String>,
    /// Only with this peer: an address or a network. Every condition may be repeated
    #[arg(long, help_heading = "Conditions")]
    pub peer: Vec<PeerMatch>,
    /// Only with a service at this port
    #[arg(long, help_heading = "Conditions")]
    pub port: Vec<u16>,
    /// Only of this program, by its full name
    #[arg(long, help_heading = "Conditions")]
    pub program: Vec<String>,
    /// Only exchanges that ended since a time (2026-11-22T10:00:00Z, 2026-11-22), or this long ago (1h)
    #[arg(long, value_name = "TIME", help_heading = "Conditions")]
    pub since: Option<String>,
    /// Only exchanges that ended before; format as for --since
    #[arg(long, value_name = "TIME", help_heading = "Conditions")]
    pub until: Option<String>,
    /// Group the figures by this
    #[arg(long, value_enum)]
    pub by: Option<ByName>,
    #[command(flatten)]
    pub window: Window,
    /// Print one JSON document only
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

fn window(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(window) if window.is_zero() => Err("expected a window longer than 0, such as 10s".to_owned()),
        Ok(window) => Ok(window),
        Err(error) => Err(error.to_string()),
    }
}
