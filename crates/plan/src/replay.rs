//! Requests from a recording: an access log, or what a browser recorded.

use std::path::PathBuf;

use load::Target;
use serde::{Deserialize, Serialize};

use super::LoadPlan;
#[cfg(feature = "cli")]
use super::cli::ARRIVALS;
use super::named::named;

/// An access log, replayed: each request at its own time, by its own client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = ARRIVALS))]
pub struct ReplayPlan {
    /// Replay this access log: its requests at its times, each logged client one virtual client; they go to the URL's
    /// host
    #[cfg_attr(feature = "cli", arg(id = "replay", long = "replay", value_name = "FILE", required = false))]
    pub file: PathBuf,
    /// How the log is written [default: by its first line]
    #[serde(default)]
    #[cfg_attr(
        feature = "cli",
        arg(id = "log_format", long = "log-format", value_name = "FORMAT", requires = "replay")
    )]
    #[cfg_attr(feature = "cli", arg(value_enum, default_value_t, hide_default_value = true))]
    pub format: LogFormat,
    /// Multiply times between logged requests by this; 0.5 is twice as fast
    #[serde(default = "as_logged", deserialize_with = "units::count::factor")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FACTOR", requires = "replay", allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(default_value = "1", value_parser = units::parse_factor))]
    pub time_scale: f64,
    /// Replay the log so many times [default: once, or until --duration]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", requires = "replay", allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(value_parser = units::parse_count))]
    pub loops: Option<u64>,
    /// Who asks.
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub clients: ClientMapping,
}

/// How an access log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// By its first lines: JSON where they begin with a brace.
    #[default]
    Auto,
    /// The common or the combined log format.
    Combined,
    /// An object a line.
    Json,
}

named!(LogFormat: Auto "auto" (hidden), Combined "combined", Json "json");

/// Which virtual client stands for a logged one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientMapping {
    /// One for each, in the order of first appearance, with its own address and distance; of more than there can be,
    /// several share one.
    #[default]
    Mapped,
}

/// An HTTP archive (HAR 1.2), turned into a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HarPlan {
    /// The archive.
    pub file: PathBuf,
}

fn as_logged() -> f64 {
    1.0
}

impl ReplayPlan {
    /// A log as it is, once.
    pub fn of(file: PathBuf) -> Self {
        ReplayPlan { file, format: LogFormat::Auto, time_scale: 1.0, loops: None, clients: ClientMapping::Mapped }
    }
}

impl LoadPlan {
    /// Refuses recordings that cannot be replayed as asked.
    pub(super) fn check_replay(&self) -> Result<(), String> {
        let own = match (&self.replay, &self.har) {
            (None, None) => return Ok(()),
            (Some(_), None) => "a replay has the log's own methods, and logs have no bodies",
            (None, Some(_)) => "a recording (har) has its own methods and bodies",
            (Some(_), Some(_)) => {
                return Err("replay and har both say what is asked for: leave one of the two out".into());
            }
        };
        if self.has_body() || self.method != schema::Method::Get {
            return Err(format!("{own}: leave method and body out"));
        }
        if self.choice.is_some() {
            return Err("a log or recording (replay, har) has an order of its own: leave choice out".into());
        }
        if self.url.is_empty() {
            return Err("a log or recording (replay, har) is replayed against one host: give its url".into());
        }
        let host = Target::parse(&self.url).map_err(|error| error.to_string())?;
        if host.path_and_query != "/" {
            return Err(format!(
                "url = \"{}\" stands for the host of a log or recording (replay, har), which has paths of its own: leave its \
                 path out",
                self.url
            ));
        }
        let Some(replay) = &self.replay else { return Ok(()) };
        // Beyond these a time would leave the range of a run, or two requests would fall together.
        if !(1e-6..=1e6).contains(&replay.time_scale) {
            return Err(format!(
                "time_scale = {} (--time-scale): from 0.000001 to 1000000 is possible",
                replay.time_scale
            ));
        }
        if replay.loops == Some(0) {
            return Err("loops = 0 (--loops): nothing would be replayed".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    #[test]
    fn what_a_recording_says_itself_is_refused() {
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
                let said = refused(&format!("{keys}\n{recording}\n"));
                assert!(said.contains(why), "{keys}: {said}");
            }
            let text = format!("[load]\nurl = \"http://h\"\nduration = \"1s\"\n{recording}\n");
            let plan = Plan::from_toml(&text, "x").unwrap();
            assert_eq!(Plan::from_toml(&plan.to_toml(), "print").unwrap(), plan);
        }
    }
}
