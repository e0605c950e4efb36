//! Conditions on a run's figures: `p99 > 200ms`.

use std::str::FromStr;

use plan::slo::TimeFigure;
use schema::document::Load;
use store::{Brief, BriefLoad};
use units::{Probability, RequestRate, parse_duration};

/// A condition on a figure of a run. Times are response times. A run without the figure does not meet the condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    quantity: Quantity,
    comparison: Comparison,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Time(TimeFigure),
    Errors,
    Offered,
    Achieved,
    Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Condition {
    /// Whether a run's figures meet the condition.
    pub fn is_met(&self, brief: &Brief) -> bool {
        self.quantity.of(brief).is_some_and(|value| match self.comparison {
            Comparison::Below => value < self.limit,
            Comparison::AtMost => value <= self.limit,
            Comparison::Above => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
        })
    }
}

impl Quantity {
    fn of(self, brief: &Brief) -> Option<f64> {
        if self == Quantity::Duration {
            return Some(brief.duration_s);
        }
        let load = brief.load.as_ref()?;
        Some(match self {
            Quantity::Time(figure) => figure.of(&load.response_time_ns)?,
            Quantity::Errors => error_ratio(load),
            Quantity::Offered => load.offered_rate_per_s,
            Quantity::Achieved => load.achieved_rate_per_s,
            Quantity::Duration => brief.duration_s,
        })
    }
}

/// The error ratio of a run, as `--slo` counts errors.
fn error_ratio(brief: &BriefLoad) -> f64 {
    plan::slo::error_ratio(&Load {
        offered_requests: brief.offered_requests,
        failed: brief.failed.clone(),
        in_flight_at_end: brief.in_flight_at_end,
        status: brief.status.clone(),
        ..Load::default()
    })
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or_else(|| format!("`{text}` has neither `<` nor `>`; {EXPECTED}"))?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let (sign, limit) = rest.split_at(if rest[1..].starts_with('=') { 2 } else { 1 });
        let comparison = match sign {
            "<" => Comparison::Below,
            "<=" => Comparison::AtMost,
            ">" => Comparison::Above,
            _ => Comparison::AtLeast,
        };
        let quantity = match (TimeFigure::named(name), name) {
            (Some(figure), _) => Quantity::Time(figure),
            (None, "errors") => Quantity::Errors,
            (None, "offered") => Quantity::Offered,
            (None, "achieved") => Quantity::Achieved,
            (None, "duration") => Quantity::Duration,
            _ => return Err(format!("`{name}` is not a known figure; {EXPECTED}")),
        };
        let limit = limit.trim();
        let limit = match quantity {
            Quantity::Errors => limit.parse::<Probability>().map_err(|error| error.to_string())?.value(),
            Quantity::Offered | Quantity::Achieved => {
                let rate = limit.parse::<RequestRate>().map_err(|error| error.to_string())?;
                1.0 / rate.mean_interval().as_secs_f64()
            }
            Quantity::Duration => parse_duration(limit).map_err(|error| error.to_string())?.as_secs_f64(),
            Quantity::Time(_) => parse_duration(limit).map_err(|error| error.to_string())?.as_nanos() as f64,
        };
        Ok(Condition { quantity, comparison, limit })
    }
}

const EXPECTED: &str = "expected a condition such as 'p99 > 200ms', 'errors >= 1%' or 'achieved < 1000/s' (mean, p50, p75, p90, \
                      p95, p99, p99.9, p99.99, max, errors, offered, achieved, duration)";

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Verdict;
    use schema::document::Quantiles;

    fn brief() -> Brief {
        let load = BriefLoad {
            offered_requests: 1000,
            offered_rate_per_s: 100.0,
            achieved_rate_per_s: 99.0,
            failed: [("reset".to_owned(), 5)].into(),
            in_flight_at_end: 1,
            status: [("200".to_owned(), 990), ("503".to_owned(), 4)].into(),
            response_time_ns: Quantiles { count: 995, p99: 200_000_000, mean: 50e6, ..Quantiles::default() },
        };
        Brief {
            started_at: String::new(),
            duration_s: 10.0,
            command: String::new(),
            url: String::new(),
            verdict: Verdict::Valid,
            load: Some(load),
            names: Vec::new(),
        }
    }

    #[test]
    fn condition_compares_at_its_boundary() {
        let is_met = |text: &str| text.parse::<Condition>().unwrap().is_met(&brief());
        assert!(is_met("p99 >= 200ms") && is_met("p99<=200ms") && !is_met("p99 > 200ms") && !is_met("p99 < 200ms"));
        assert!(is_met("mean > 49ms") && is_met("errors >= 1%") && !is_met("errors > 1%") && is_met("errors < 1.1%"));
        assert!(is_met("achieved < 100/s") && is_met("offered > 5999/m") && is_met("duration >= 10s"));
    }

    #[test]
    fn run_without_the_figure_meets_no_condition() {
        let mut brief = brief();
        brief.load = None;
        for text in ["p99 < 1s", "p99 > 0s", "errors < 1%", "achieved > 1/s"] {
            assert!(!text.parse::<Condition>().unwrap().is_met(&brief), "{text}");
        }
    }

    #[test]
    fn malformed_condition_is_refused() {
        for (text, expected) in [
            ("p99", "neither `<` nor `>`"),
            ("p98 > 1ms", "`p98`"),
            ("p99 > 200", "unit"),
            ("errors > 2", "0 to 1"),
            ("achieved > 10", "unit"),
            ("<", "``"),
        ] {
            let refused = text.parse::<Condition>().unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
