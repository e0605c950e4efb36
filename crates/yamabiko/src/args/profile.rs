//! Arguments of `profile`.

use clap::{Args, Subcommand};
use plan::PathPlan;

use super::Learn;

#[derive(Debug, Subcommand)]
pub enum Profile {
    /// List the built-in profiles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the figures of a profile, with plots
    Show(Show),
    /// Measure a path: configured and measured figures
    Check(Box<Check>),
    /// Learn a profile from packets of a real server: RTTs, losses, arrivals
    Learn(Box<Learn>),
}

#[derive(Args, Debug)]
pub struct Show {
    /// Profile: a built-in name or a file
    pub name: String,
    /// Number of clients
    #[arg(long, default_value_t = 100, value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub clients: u32,
    /// Print JSON
    #[arg(long, conflicts_with = "source")]
    pub json: bool,
    /// Print the file of a built-in profile, with the sources of its figures
    #[arg(long)]
    pub source: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit status: 0 all figures as configured; 3 some are not; 1 and 2 as for every verb.")]
pub struct Check {
    /// Profile: a built-in name or a file; path options replace parts of it, or are used alone
    #[arg(conflicts_with = "path")]
    pub name: Option<String>,
    #[command(flatten)]
    pub path: PathPlan,
    /// Number of clients, of which some are probed
    #[arg(long, default_value_t = 100, value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub clients: u32,
    /// Approximate length of the measurement
    #[arg(long, default_value = "10s", value_parser = units::parse_duration, allow_hyphen_values = true)]
    pub duration: std::time::Duration,
    /// Compare with the figures of this profile instead
    #[arg(long, value_name = "PROFILE")]
    pub against: Option<String>,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
}
