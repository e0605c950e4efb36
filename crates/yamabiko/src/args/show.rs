//! The option `--live` of every verb that makes a run.

use clap::Args;

/// Option of the live web page.
#[derive(Args, Clone, Debug, Default)]
pub struct ShowOptions {
    /// Show the run in the browser: serve a page and print its URL on stderr, on a free port of loopback, or on this address, such
    /// as --live=0.0.0.0:7030
    #[cfg_attr(feature = "web", arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true))]
    #[cfg_attr(feature = "web", arg(default_missing_value = "", help_heading = "Result"))]
    #[cfg_attr(not(feature = "web"), arg(skip))]
    pub live: Option<String>,
}
