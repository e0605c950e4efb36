//! `[load.replay]` and `[load.har]`: requests from an access log or a browser's recording.

use std::path::PathBuf;

use load::Target;
use serde::{Deserialize, Serialize};

use super::LoadPlan;
#[cfg(feature = "cli")]
use super::cli::ARRIVALS;
use super::named::named;

/// Replay of an access log: each request at its logged time, by its logged client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = ARRIVALS))]
pub struct ReplayPlan {
    /// Send the requests of this access log to the URL's host at the logged times, each logged client as one client
    #[cfg_attr(feature = "cli", arg(id = "replay", long = "replay", value_name = "FILE", required = false))]
    pub file: PathBuf,
    /// Parse the log in this format [default: by its first line]
    #[serde(default)]
    #[cfg_attr(
        feature = "cli",
        arg(id = "log_format", long = "log-format", value_name = "FORMAT", requires = "replay")
    )]
    #[cfg_attr(feature = "cli", arg(value_enum, default_value_t, hide_default_value = true))]
    pub format: LogFormat,
    /// Multiply the times between logged requests by this; 0.5 is twice as fast
    #[serde(default = "as_logged", deserialize_with = "units::count::factor")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FACTOR", requires = "replay", allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "1", value_parser = units::parse_factor))]
    pub time_scale: f64,
    /// Replay the log this many times [default: once, or until --duration]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", requires = "replay", allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(value_parser = units::parse_count))]
    pub loops: Option<u64>,
    /// How logged clients become clients of the load.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub clients: ClientMapping,
}

/// Format of an access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// By its first lines: JSON if they begin with a brace.
    #[default]
    Auto,
    /// The common or the combined log format.
    Combined,
    /// JSON Lines, an object per line.
    Json,
}

named!(LogFormat: Auto "auto" (hidden), Combined "combined", Json "json");

/// How logged clients become clients of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientMapping {
    /// One client for each logged client, in the order of first appearance, with its own address and distance; beyond
    /// the highest number of clients, several logged clients share one.
    #[default]
    Mapped,
}

/// An HTTP archive (HAR 1.2), replayed as a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HarPlan {
    /// The HAR file.
    pub file: PathBuf,
}

fn as_logged() -> f64 {
    1.0
}

impl ReplayPlan {
    /// The log unchanged, once.
    pub fn of(file: PathBuf) -> Self {
        ReplayPlan { file, format: LogFormat::Auto, time_scale: 1.0, loops: None, clients: ClientMapping::Mapped }
    }
}

impl LoadPlan {
    /// Refuses settings that a recording defines itself.
    pub(super) fn check_replay(&self) -> Result<(), String> {
        let own = match (&self.replay, &self.har) {
            (None, None) => return Ok(()),
            (Some(_), None) => "a replay uses the log's methods, and logs have no bodies",
            (None, Some(_)) => "a recording (har) has its own methods and bodies",
            (Some(_), Some(_)) => {
                return Err("replay and har both define the requests: leave one of the two out".into());
            }
        };
        if self.has_body() || self.method != schema::Method::Get {
            return Err(format!("{own}: leave method and body out"));
        }
        if self.choice.is_some() {
            return Err("a log or recording (replay, har) has its own order: leave choice out".into());
        }
        if self.url.is_empty() {
            return Err("a log or recording (replay, har) is replayed against one host: give its url".into());
        }
        let host = Target::parse(&self.url).map_err(|error| error.to_string())?;
        if host.path_and_query != "/" {
            return Err(format!(
                "url = \"{}\" is only the host of a log or recording (replay, har), which has its own paths: leave its \
                 path out",
                self.url
            ));
        }
        let Some(replay) = &self.replay else { return Ok(()) };
        // Beyond these limits a time would exceed a run, or all requests would coincide.
        if !(1e-6..=1e6).contains(&replay.time_scale) {
            return Err(format!("time_scale = {} (--time-scale): expected 0.000001 to 1000000", replay.time_scale));
        }
        if replay.loops == Some(0) {
            return Err("loops = 0 (--loops): expected 1 or more".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    #[test]
    fn settings_that_a_recording_defines_itself_are_refused() {
        let refused = |load: &str| {
            let text = format!("[load]\nduration = \"1s\"\n{load}");
            Plan::from_toml(&text, "x").unwrap_err().to_string()
        };
        for recording in ["[load.replay]\nfile = \"x\"", "[load.har]\nfile = \"x\""] {
            for (keys, why) in [
                ("", "give its url"),
                ("url = \"http://h/a\"", "leave its path out"),
                ("url = \"http://h?a\"", "leave its path out"),
                ("url = \"h\"", "http://h"),
                ("url = \"http://h/\"\nmethod = \"HEAD\"", "leave method and body out"),
                ("url = \"http://h/\"\nbody = \"b\"", "leave method and body out"),
                ("url = \"http://h/\"\nchoice = \"weighted\"", "leave choice out"),
                ("url = \"http://h/\"\nurls = \"list\"", "leave urls"),
            ] {
                let message = refused(&format!("{keys}\n{recording}\n"));
                assert!(message.contains(why), "{keys}: {message}");
            }
            let text = format!("[load]\nurl = \"http://h\"\nduration = \"1s\"\n{recording}\n");
            let plan = Plan::from_toml(&text, "x").unwrap();
            assert_eq!(Plan::from_toml(&plan.to_toml(), "print").unwrap(), plan);
        }
    }
}
