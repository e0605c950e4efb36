//! An alert rule as typed, and parsed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{Probability, parse_duration};

use crate::quality::{By, Sides};
use tap_protocol::is_name;

/// An alert rule. Quantities are text with a unit, and are shown as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name of the rule, as of agents: 1 to 63 of `a-z`, `0-9`, `-`, `.`, `_`.
    pub name: String,
    /// The metric.
    pub metric: Metric,
    /// Threshold. The value is bad above it; for `availability` and `attempts` below it. `250ms` for times, `1%` for
    /// ratios, a number for `attempts` and `records_lost`.
    pub threshold: String,
    /// Time over which the value is computed, in whole minutes up to a day. Not used by `agent_silent` and
    /// `agent_lag`.
    #[serde(default = "over")]
    pub over: String,
    /// How long the value must be bad before the alert fires; `0s`: immediately.
    #[serde(default = "at_once", rename = "for")]
    pub hold: String,
    /// Minimum attempts; with fewer there is no value.
    #[serde(default = "one")]
    pub min_attempts: u64,
    /// Value at which a firing alert counts as good again; default: the threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// How long the value must be good before the alert ends; `0s`: immediately.
    #[serde(default = "at_once")]
    pub ends_after: String,
    /// What is evaluated separately. `agent_silent`, `agent_lag` and `records_lost` are always per agent.
    #[serde(default)]
    pub by: By,
    /// Only this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only agents in this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Only this peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The side of the connections.
    #[serde(default)]
    pub side: Sides,
}

/// Metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Median response time.
    ResponseP50,
    /// 95th percentile.
    ResponseP95,
    /// 99th percentile.
    ResponseP99,
    /// 99.9th percentile.
    ResponseP999,
    /// Share of attempts that failed.
    ErrorRatio,
    /// Share of the windows of 10 s in which something succeeded.
    Availability,
    /// Number of attempts in the time: too few are bad.
    Attempts,
    /// Time since the last message of an agent.
    AgentSilent,
    /// Age of the newest data of an agent, whose rest waits in its spool.
    AgentLag,
    /// Records and rows that an agent lost in the time.
    RecordsLost,
}

impl Metric {
    /// Whether low values are bad.
    pub(super) const fn is_below(self) -> bool {
        matches!(self, Metric::Availability | Metric::Attempts)
    }

    /// Whether it is measured per agent, not from exchanges.
    pub(super) const fn is_of_agents(self) -> bool {
        matches!(self, Metric::AgentSilent | Metric::AgentLag | Metric::RecordsLost)
    }

    /// The quantile of response times, if it is one.
    pub(super) const fn quantile(self) -> Option<f64> {
        match self {
            Metric::ResponseP50 => Some(0.5),
            Metric::ResponseP95 => Some(0.95),
            Metric::ResponseP99 => Some(0.99),
            Metric::ResponseP999 => Some(0.999),
            _ => None,
        }
    }

    /// Name of the metric in a rule.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::ResponseP50 => "response_p50",
            Metric::ResponseP95 => "response_p95",
            Metric::ResponseP99 => "response_p99",
            Metric::ResponseP999 => "response_p999",
            Metric::ErrorRatio => "error_ratio",
            Metric::Availability => "availability",
            Metric::Attempts => "attempts",
            Metric::AgentSilent => "agent_silent",
            Metric::AgentLag => "agent_lag",
            Metric::RecordsLost => "records_lost",
        }
    }

    /// A value as text for people.
    pub fn text(self, value: f64) -> String {
        match self {
            Metric::ErrorRatio | Metric::Availability => report::figures::share(value),
            Metric::Attempts | Metric::RecordsLost => report::figures::count(value.round().max(0.0) as u64),
            Metric::AgentSilent | Metric::AgentLag => report::figures::duration_f64(value * 1e9),
            _ => report::figures::duration_f64(value),
        }
    }

    fn amount(self, typed: &str) -> Result<f64, String> {
        match self {
            Metric::ErrorRatio | Metric::Availability => {
                typed.parse::<Probability>().map(Probability::value).map_err(|error| error.to_string())
            }
            Metric::Attempts | Metric::RecordsLost => {
                let number = typed.trim().parse::<u64>().map(|number| number as f64);
                number.map_err(|_| {
                    format!(
                        "`{}` is not a valid number: expected a whole number, such as 100",
                        report::figures::plain(typed)
                    )
                })
            }
            Metric::AgentSilent | Metric::AgentLag => Ok(duration(typed)?.as_secs_f64()),
            _ => Ok(duration(typed)?.as_nanos() as f64),
        }
    }
}

/// A parsed rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// Whether low values are bad.
    pub below: bool,
    pub threshold: f64,
    pub ends_at: f64,
    pub over_s: u64,
    pub hold_s: u64,
    pub ends_after_s: u64,
}

impl Limits {
    /// Whether a value is bad.
    pub fn is_bad(&self, value: f64) -> bool {
        if self.below { value < self.threshold } else { value > self.threshold }
    }

    /// Whether a value is good enough for a firing alert to end.
    pub fn is_good(&self, value: f64) -> bool {
        if self.below { value >= self.ends_at } else { value <= self.ends_at }
    }
}

impl Rule {
    /// Parses the rule.
    ///
    /// # Errors
    /// A sentence with the problem and what is expected.
    pub(super) fn limits(&self) -> Result<Limits, String> {
        let with_field = |field: &str, error: String| format!("{field}: {}", report::figures::plain(&error));
        if !is_name(&self.name) {
            return Err("name: expected 1 to 63 of a-z, 0-9, -, ., _, the first a letter or digit".to_owned());
        }
        let texts = [&self.agent, &self.group, &self.program, &self.peer];
        if texts.into_iter().flatten().chain([&self.threshold]).any(|text| text.len() > 255) {
            return Err("a text of the rule is too long: at most 255 bytes expected".to_owned());
        }
        let below = self.metric.is_below();
        let threshold = self.metric.amount(&self.threshold).map_err(|error| with_field("threshold", error))?;
        let ends_at = match &self.ends_at {
            Some(typed) => self.metric.amount(typed).map_err(|error| with_field("ends_at", error))?,
            None => threshold,
        };
        if (below && ends_at < threshold) || (!below && ends_at > threshold) {
            let side = if below { "above" } else { "below" };
            return Err(format!("ends_at must be better than the threshold: {side} it"));
        }
        let seconds = |field: &str, typed: &str| -> Result<u64, String> {
            let whole = duration(typed).map_err(|error| with_field(field, error))?.as_secs();
            if whole > DAY_S { Err(format!("{field}: at most 24h")) } else { Ok(whole) }
        };
        let over_s = seconds("over", &self.over)?;
        if over_s == 0 || !over_s.is_multiple_of(60) {
            return Err("over: expected whole minutes, at least one, such as 5m".to_owned());
        }
        if self.metric.is_of_agents() {
            if !matches!(self.by, By::None | By::Agent) || self.program.is_some() || self.peer.is_some() {
                return Err(format!(
                    "{} is measured per agent: only `agent` and `group` can narrow it",
                    self.metric.name()
                ));
            }
        } else if self.by == By::Side {
            return Err("by: expected none, agent, group, program or peer; choose the end with `side`".to_owned());
        }
        let (hold_s, ends_after_s) = (seconds("for", &self.hold)?, seconds("ends_after", &self.ends_after)?);
        Ok(Limits { below, threshold, ends_at, over_s, hold_s, ends_after_s })
    }

    /// What it evaluates separately.
    pub(super) fn grouping(&self) -> By {
        if self.metric.is_of_agents() { By::Agent } else { self.by }
    }
}

fn duration(typed: &str) -> Result<Duration, String> {
    parse_duration(typed).map_err(|error| error.to_string())
}

fn over() -> String {
    "5m".to_owned()
}

fn at_once() -> String {
    "0s".to_owned()
}

const fn one() -> u64 {
    1
}

const DAY_S: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Limits, String> {
        let rule: Rule = serde_json::from_str(text).map_err(|error| error.to_string())?;
        assert_eq!(serde_json::from_str::<Rule>(&serde_json::to_string(&rule).unwrap()).unwrap(), rule);
        rule.limits()
    }

    #[test]
    fn alert_rules_parse_as_typed() {
        let limits = rule(
            r#"{"name":"slow","metric":"response_p99","threshold":"250ms","over":"5m","for":"3m","min_attempts":100,
                "ends_at":"200ms","ends_after":"10m","by":"agent","group":"shops"}"#,
        );
        let expected =
            Limits { below: false, threshold: 250e6, ends_at: 200e6, over_s: 300, hold_s: 180, ends_after_s: 600 };
        assert_eq!(limits, Ok(expected));
        let limits = rule(r#"{"name":"down","metric":"availability","threshold":"99%"}"#).unwrap();
        assert!(limits.is_bad(0.98) && !limits.is_bad(0.99) && limits.is_good(0.99) && !limits.is_good(0.98));
        let limits = rule(r#"{"name":"idle","metric":"attempts","threshold":"10","ends_at":"20"}"#).unwrap();
        assert!(limits.is_bad(9.0) && !limits.is_bad(10.0) && !limits.is_good(19.0) && limits.is_good(20.0));
        assert_eq!(rule(r#"{"name":"gone","metric":"agent_silent","threshold":"2m"}"#).unwrap().threshold, 120.0);
    }

    #[test]
    fn errors_in_alert_rules_name_the_field() {
        for (text, word) in [
            (r#"{"name":"A","metric":"attempts","threshold":"1"}"#, "name"),
            (r#"{"name":"a","metric":"response_p99","threshold":"250"}"#, "no unit"),
            (r#"{"name":"a","metric":"error_ratio","threshold":"110%"}"#, "threshold"),
            (r#"{"name":"a","metric":"attempts","threshold":"-1"}"#, "whole number"),
            (r#"{"name":"a","metric":"error_ratio","threshold":"1%","ends_at":"2%"}"#, "below it"),
            (r#"{"name":"a","metric":"availability","threshold":"99%","ends_at":"98%"}"#, "above it"),
            (r#"{"name":"a","metric":"error_ratio","threshold":"1%","over":"30s"}"#, "over"),
            (r#"{"name":"a","metric":"error_ratio","threshold":"1%","for":"25h"}"#, "for"),
            (r#"{"name":"a","metric":"agent_silent","threshold":"1m","program":"curl"}"#, "per agent"),
            (r#"{"name":"a","metric":"error_ratio","threshold":"1%","by":"side"}"#, "by"),
            (r#"{"name":"a","metric":"nothing","threshold":"1%"}"#, "unknown variant"),
            (r#"{"name":"a","metric":"error_ratio","threshold":"1%","run":"rm"}"#, "unknown field"),
            ("{\"name\":\"a\",\"metric\":\"error_ratio\",\"threshold\":\"\\u001b[31m\"}", "\\u{1b}"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.contains(word) && !error.contains('\u{1b}'), "{text}: {error}");
        }
    }
}
