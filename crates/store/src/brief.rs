//! Summary of a finished run for lists.

use std::collections::{BTreeMap, BTreeSet};

use schema::Verdict;
use schema::document::{Document, Load, Quantiles};
use serde::{Deserialize, Serialize};

use crate::run_store::has_id_shape;

/// A finished run in a list. All fields come from summary.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// Wall clock at the run's zero, RFC 3339, UTC.
    pub started_at: String,
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// The command that repeats the run.
    pub command: String,
    /// URLs of the run: those of its command, or the first of its plan; empty if neither has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Figures of the load; `None` without a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<BriefLoad>,
    /// Ids of other runs in the document, in order: the trials of an experiment, the runs compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// The load of a run in a list: fields of [`Load`] of the same names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BriefLoad {
    /// Requests scheduled in the measured phase.
    pub offered_requests: u64,
    /// Requests scheduled per second.
    pub offered_rate_per_s: f64,
    /// Responses completed within the measured phase, a second.
    pub achieved_rate_per_s: f64,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
    /// Offered requests that were neither completed nor failed at the end.
    pub in_flight_at_end: u64,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// done - scheduled.
    pub response_time_ns: Quantiles,
}

impl Brief {
    /// The brief of the run `id` with this document. `text` is the stored JSON of the document, which is searched for
    /// ids of other runs; `plan` is the plan's TOML.
    pub fn of(id: &str, document: &Document, text: &str, plan: &str) -> Brief {
        Brief {
            url: url(&document.run.command, plan),
            started_at: document.run.started_at.clone(),
            duration_s: document.run.duration_s,
            command: document.run.command.clone(),
            verdict: document.validity.verdict,
            load: document.load.as_ref().map(BriefLoad::of),
            names: named(id, text),
        }
    }

    /// The verb of the run's command: `bench`, `capacity` ..; empty if the command has none.
    pub fn verb(&self) -> &str {
        let word = self.command.split_whitespace().nth(1).unwrap_or_default();
        if word.starts_with('-') { "" } else { word }
    }
}

impl BriefLoad {
    fn of(load: &Load) -> BriefLoad {
        BriefLoad {
            offered_requests: load.offered_requests,
            offered_rate_per_s: load.offered_rate_per_s,
            achieved_rate_per_s: load.achieved_rate_per_s,
            failed: load.failed.clone(),
            in_flight_at_end: load.in_flight_at_end,
            status: load.status.clone(),
            response_time_ns: load.response_time_ns,
        }
    }
}

/// The URLs of the command, else the first URL of the plan.
fn url(command: &str, plan: &str) -> String {
    let words = command.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
    let typed: Vec<&str> = words.filter(|word| word.starts_with("http://") || word.starts_with("https://")).collect();
    if !typed.is_empty() {
        return typed.join(", ");
    }
    plan.lines().find_map(url_of_line).unwrap_or_default().to_owned()
}

/// The URL of a plan's line `url = "http://.."`.
fn url_of_line(line: &str) -> Option<&str> {
    let value = line.trim().strip_prefix("url")?.trim_start().strip_prefix('=')?;
    Some(value.trim().strip_prefix('"')?.split_once('"')?.0)
}

/// Ids of other runs in a text: words that have the form of a run id. A word that is not the id of a stored run does no
/// harm: ids are only looked up in the run store.
fn named(id: &str, text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let ids: BTreeSet<&str> = words.filter(|word| *word != id && has_id_shape(word)).collect();
    ids.into_iter().take(NAMES_MAX).map(str::to_owned).collect()
}

/// Limit of ids in a document: more runs than any experiment makes.
const NAMES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_found_anywhere_in_a_text() {
        let text = r#"{"run":"20261120-093005-bench-abcd","notes":["made as 20261120-093006-trial-efgh, kept"],
                       "dir":"/runs/20261120-093004-capacity-self"}"#;
        let names = named("20261120-093004-capacity-self", text);
        assert_eq!(names, ["20261120-093005-bench-abcd", "20261120-093006-trial-efgh"]);
    }

    #[test]
    fn the_url_is_taken_from_the_command_or_the_plan() {
        assert_eq!(url("yamabiko bench 'http://server/a b' --rtt 48ms", ""), "http://server/a");
        let two = "yamabiko compare --url http://a/ --url https://b:8443/x";
        assert_eq!(url(two, "url = \"http://c/\""), "http://a/, https://b:8443/x");
        let plan =
            "server = \"exec x\"\n[load]\nurls = 3\nurl   = \"http://server:8080/\" # the page\nurl = \"http://b/\"\n";
        assert_eq!(url("yamabiko run shop.toml", plan), "http://server:8080/");
        assert_eq!(url("yamabiko demo", "url = 7\nurl = \"http"), "");
    }

    #[test]
    fn the_verb_is_the_second_word_of_the_command() {
        let of = |command: &str| Brief {
            started_at: String::new(),
            duration_s: 0.0,
            command: command.into(),
            url: String::new(),
            verdict: Verdict::Valid,
            load: None,
            names: Vec::new(),
        };
        assert_eq!(of("yamabiko bench http://server/").verb(), "bench");
        assert_eq!(of("yamabiko --help").verb(), "");
        assert_eq!(of("").verb(), "");
    }
}
