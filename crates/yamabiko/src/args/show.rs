//! `--live`, of every verb that runs.

use clap::Args;

/// Whether there is a page on which the run can be watched.
#[derive(Args, Clone, Debug, Default)]
pub struct ShowOptions {
    /// Serve a page on which the run can be watched while it goes, and say its URL on stderr: on loopback at a free port, or at
    /// this address, such as --live=0.0.0.0:7030
    #[cfg_attr(feature = "web", arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true))]
    #[cfg_attr(feature = "web", arg(default_missing_value = "", help_heading = "Result"))]
    #[cfg_attr(not(feature = "web"), arg(skip))]
    pub live: Option<String>,
}
