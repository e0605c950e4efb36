//! Arguments of `serve` for its access log and its status figures.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

/// Options of the access log and the status page.
#[derive(Args, Debug)]
#[command(next_help_heading = "Log and figures")]
pub struct LogOptions {
    /// Append an access log to this file; `-` is standard output. SIGHUP reopens it
    #[arg(long, value_name = "FILE", conflicts_with = "max")]
    pub log: Option<PathBuf>,
    /// Use this log format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Combined, requires = "log")]
    pub log_format: Format,
    /// Log addresses without their host part: 192.0.2.0, 2001:db8::
    #[arg(long, requires = "log")]
    pub log_anonymous: bool,
    /// Choose who may read /-/status: `local` is clients at loopback addresses
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Readers::Local, conflicts_with = "max")]
    pub status: Readers,
}

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Combined Log Format of Apache and nginx, times in UTC
    Combined,
    /// Combined, followed by microseconds, cache result and reason, `complete` or `truncated`
    Extended,
}

/// Readers of the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Readers {
    Local,
    All,
    Off,
}

impl LogOptions {
    /// The log, opened; `None` without `--log`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(&self) -> Result<Option<serve::Log>> {
        let Some(file) = &self.log else { return Ok(None) };
        let to = match file.as_os_str().as_encoded_bytes() {
            b"-" => serve::LogTarget::Stdout,
            _ => serve::LogTarget::File(file.clone()),
        };
        let format = match self.log_format {
            Format::Combined => serve::LogFormat::Combined,
            Format::Extended => serve::LogFormat::Extended,
        };
        Ok(Some(serve::Log::open(serve::LogSpec { to, format, anonymous: self.log_anonymous })?))
    }

    /// Who may read the figures.
    pub fn status(&self) -> serve::StatusSpec {
        match self.status {
            Readers::Local => serve::StatusSpec::Local,
            Readers::All => serve::StatusSpec::All,
            Readers::Off => serve::StatusSpec::Off,
        }
    }
}
