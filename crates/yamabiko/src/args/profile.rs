//! `profile` as typed.

use clap::{Args, Subcommand};
use plan::PathPlan;

use super::Learn;

#[derive(Debug, Subcommand)]
pub enum Profile {
    /// Names and figures of the built-in profiles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What a profile means, with plots
    Show(Show),
    /// Measure what the path really gives, and print asked beside got
    Check(Box<Check>),
    /// A profile from the packets of a real server: its clients' distances, losses and arrivals
    Learn(Box<Learn>),
}

#[derive(Args, Debug)]
pub struct Show {
    /// A built-in profile or a profile file
    pub name: String,
    /// Cut into so many clients
    #[arg(long, default_value_t = 100, value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub clients: u32,
    /// Print JSON
    #[arg(long, conflicts_with = "source")]
    pub json: bool,
    /// Print a built-in profile's file, with the sources of its figures
    #[arg(long)]
    pub source: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit status: 0 everything as asked; 3 something is not; 1 and 2 as everywhere.")]
pub struct Check {
    /// A built-in profile or a profile file; path options replace parts of it, or stand alone
    #[arg(conflicts_with = "path")]
    pub name: Option<String>,
    #[command(flatten)]
    pub path: PathPlan,
    /// Cut into so many clients, of whom some are probed
    #[arg(long, default_value_t = 100, value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub clients: u32,
    /// Measure about so long
    #[arg(long, default_value = "10s", value_parser = units::parse_duration, allow_hyphen_values = true)]
    pub duration: std::time::Duration,
    /// Compare with what this profile asks for, not with the one that is made
    #[arg(long, value_name = "PROFILE")]
    pub against: Option<String>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}
