//! Objectives: `p99 < 200ms, errors < 0.1%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schema::document::{self, Document, Quantiles, SloTerm};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Probability, parse_duration};

/// An objective: terms that must all be met. Percentiles are of the response time, from the scheduled time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    typed: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    typed: String,
    quantity: Quantity,
    inclusive: bool,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Time(TimeFigure),
    Errors,
}

/// A figure of a distribution of times, by the name that people type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFigure {
    /// `mean`
    Mean,
    /// `p50`, `median`
    P50,
    /// `p75`
    P75,
    /// `p90`
    P90,
    /// `p95`
    P95,
    /// `p99`
    P99,
    /// `p99.9`
    P999,
    /// `p99.99`
    P9999,
    /// `max`
    Max,
}

impl TimeFigure {
    /// The figure of that name.
    pub fn named(name: &str) -> Option<TimeFigure> {
        Some(match name {
            "mean" => TimeFigure::Mean,
            "p50" | "median" => TimeFigure::P50,
            "p75" => TimeFigure::P75,
            "p90" => TimeFigure::P90,
            "p95" => TimeFigure::P95,
            "p99" => TimeFigure::P99,
            "p99.9" => TimeFigure::P999,
            "p99.99" => TimeFigure::P9999,
            "max" => TimeFigure::Max,
            _ => return None,
        })
    }

    /// Its value in ns; `None` for an empty distribution.
    pub fn of(self, q: &Quantiles) -> Option<f64> {
        let value = match self {
            TimeFigure::Mean => q.mean,
            TimeFigure::P50 => q.p50 as f64,
            TimeFigure::P75 => q.p75 as f64,
            TimeFigure::P90 => q.p90 as f64,
            TimeFigure::P95 => q.p95 as f64,
            TimeFigure::P99 => q.p99 as f64,
            TimeFigure::P999 => q.p99_9 as f64,
            TimeFigure::P9999 => q.p99_99 as f64,
            TimeFigure::Max => q.max as f64,
        };
        Some(value).filter(|_| q.count > 0)
    }

    /// The name as typed.
    pub fn name(self) -> &'static str {
        match self {
            TimeFigure::Mean => "mean",
            TimeFigure::P50 => "p50",
            TimeFigure::P75 => "p75",
            TimeFigure::P90 => "p90",
            TimeFigure::P95 => "p95",
            TimeFigure::P99 => "p99",
            TimeFigure::P999 => "p99.9",
            TimeFigure::P9999 => "p99.99",
            TimeFigure::Max => "max",
        }
    }

    /// Whether `count` values are enough to judge the figure: at least twenty values must lie beyond a percentile.
    pub fn is_known(self, count: u64) -> bool {
        count > 0 && (self == TimeFigure::Mean || stats::materiality::is_known(count, self.tail()))
    }

    /// The share of the values that may be above the figure; 1 for the mean, which limits no share.
    fn tail(self) -> f64 {
        match self {
            TimeFigure::Mean => 1.0,
            TimeFigure::P50 => 0.5,
            TimeFigure::P75 => 0.25,
            TimeFigure::P90 => 0.1,
            TimeFigure::P95 => 0.05,
            TimeFigure::P99 => 0.01,
            TimeFigure::P999 => 0.001,
            TimeFigure::P9999 => 0.0001,
            TimeFigure::Max => 0.0,
        }
    }
}

const EXPECTED_FORM: &str = "expected a form such as 'p99 < 200ms, errors < 0.1%' (mean, p50, p75, p90, p95, p99, \
                      p99.9, p99.99, max, errors)";

impl Slo {
    /// Judges a run by the objective. A run without a load meets no term.
    pub fn judge(&self, document: &Document) -> document::Slo {
        let terms: Vec<SloTerm> = self.terms.iter().map(|term| term.judge(document)).collect();
        document::Slo { objective: self.typed.clone(), met: terms.iter().all(|term| term.met), terms }
    }
}

/// Bounds that follow from an objective, for programs that plan a run by it or end one early.
impl Slo {
    /// The lowest limit of a response time; `None` if the objective limits errors only.
    pub fn response_limit(&self) -> Option<Duration> {
        self.tails().map(|(_, limit)| limit).min()
    }

    /// For each term on a percentile, the mean or the maximum: the share of the requests that may take longer (1 for
    /// the mean), and the limit.
    pub fn tails(&self) -> impl Iterator<Item = (f64, Duration)> {
        self.terms.iter().filter_map(|term| Some((term.quantity.tail()?, Duration::from_nanos(term.limit as u64))))
    }

    /// The highest allowed share of errors; 1 if the objective does not limit errors.
    pub fn errors_limit(&self) -> f64 {
        let errors = self.terms.iter().filter(|term| term.quantity == Quantity::Errors);
        errors.map(|term| term.limit).fold(1.0, f64::min)
    }

    /// Requests that failed, were in flight at the end or got an error status, over those offered: the value of
    /// `errors`. 1 without a load.
    pub fn error_ratio(&self, document: &Document) -> f64 {
        document.load.as_ref().map_or(1.0, |load| Quantity::Errors.of(load))
    }

    /// Requests needed to judge the smallest tail of the objective (twenty beyond it); 0 if there is none.
    pub fn requests_min(&self) -> u64 {
        let tails = self.tails().map(|(share, _)| share).filter(|share| *share > 0.0 && *share < 1.0);
        tails.map(stats::materiality::values_needed).max().unwrap_or(0)
    }
}

impl Term {
    fn judge(&self, document: &Document) -> SloTerm {
        let value = document.load.as_ref().map_or(f64::INFINITY, |load| self.quantity.of(load));
        let met = if self.inclusive { value <= self.limit } else { value < self.limit };
        let unit = if self.quantity == Quantity::Errors { "ratio" } else { "ns" };
        SloTerm { term: self.typed.clone(), value, limit: self.limit, unit: unit.into(), met }
    }
}

impl Quantity {
    /// The share of the requests that may take longer than the limit; none for terms that are not on times.
    fn tail(self) -> Option<f64> {
        match self {
            Quantity::Time(figure) => Some(figure.tail()),
            Quantity::Errors => None,
        }
    }

    fn of(self, load: &document::Load) -> f64 {
        match self {
            Quantity::Time(figure) => figure.of(&load.response_time_ns).unwrap_or(f64::INFINITY),
            Quantity::Errors => error_ratio(load),
        }
    }
}

/// Errors as an objective counts them, over the requests offered: requests that failed for any cause, those without a
/// response at the end, and complete responses with an error status ([`error_responses`]). 1 if none was offered.
pub fn error_ratio(load: &document::Load) -> f64 {
    let failed: u64 = load.failed.values().sum();
    let errors = failed + load.in_flight_at_end + error_responses(load);
    if load.offered_requests == 0 { 1.0 } else { errors as f64 / load.offered_requests as f64 }
}

/// Complete responses with a status other than 2xx and 3xx. If the plan defines the expected status of every request,
/// requests with another status have failed and none is counted here, as in the check `error_rate`.
fn error_responses(load: &document::Load) -> u64 {
    let is_error = |status: &str| !load.statuses_expected && !status.starts_with(['2', '3']);
    load.status.iter().filter(|(status, _)| is_error(status)).map(|(_, count)| count).sum()
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let terms: Vec<Term> = typed
            .split(',')
            .map(str::trim)
            .filter(|term| !term.is_empty())
            .map(Term::parse)
            .collect::<Result<_, _>>()?;
        if terms.is_empty() {
            return Err(format!("the objective is empty: {EXPECTED_FORM}"));
        }
        Ok(Slo { typed: typed.to_owned(), terms })
    }
}

impl Term {
    fn parse(typed: &str) -> Result<Self, String> {
        let at = typed.find('<').ok_or_else(|| format!("`{typed}` has no `<`: {EXPECTED_FORM}"))?;
        let (name, rest) = (typed[..at].trim(), &typed[at + 1..]);
        let (inclusive, limit) = match rest.strip_prefix('=') {
            Some(limit) => (true, limit.trim()),
            None => (false, rest.trim()),
        };
        let quantity = match (TimeFigure::named(name), name) {
            (Some(figure), _) => Quantity::Time(figure),
            (None, "errors") => Quantity::Errors,
            _ => return Err(format!("`{name}` is not a quantity of an objective: {EXPECTED_FORM}")),
        };
        let limit = if quantity == Quantity::Errors {
            limit.parse::<Probability>().map_err(|error| error.to_string())?.value()
        } else {
            parse_duration(limit).map_err(|error| error.to_string())?.as_nanos() as f64
        };
        Ok(Term { typed: typed.to_owned(), quantity, inclusive, limit })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

impl Serialize for Slo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.typed)
    }
}

impl<'de> Deserialize<'de> for Slo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slo_terms_parse_with_their_units() {
        let slo: Slo = "p99 < 200ms, errors <= 0.1%".parse().unwrap();
        assert_eq!(slo.terms.len(), 2);
        assert_eq!(slo.terms[0].limit, 200e6);
        assert!(slo.terms[1].inclusive);
        for wrong in ["", "p99", "p98 < 1ms", "p99 < 200", "errors < 2", "p99 > 1ms"] {
            assert!(wrong.parse::<Slo>().is_err(), "{wrong}");
        }
        let hint = "errors < 1".parse::<Slo>().unwrap_err();
        assert!(hint.contains("1% or 100%?"), "{hint}");
        assert_eq!("p99 < 1m30s, errors <= 100%".parse::<Slo>().unwrap().terms[1].limit, 1.0);
    }

    #[test]
    fn figures_of_a_distribution_parse_by_name() {
        let q = Quantiles {
            count: 1,
            mean: 1.5,
            p50: 2,
            p75: 3,
            p90: 4,
            p95: 5,
            p99: 6,
            p99_9: 7,
            p99_99: 8,
            max: 9,
            ..Quantiles::default()
        };
        let names = ["mean", "median", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
        let values = names.map(|name| TimeFigure::named(name).unwrap().of(&q).unwrap());
        assert_eq!(values, [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!((TimeFigure::named("p98"), TimeFigure::P50.of(&Quantiles::default())), (None, None));
    }

    #[test]
    fn slo_bounds_have_lowest_limit_shares_and_error_share() {
        let of = |typed: &str| typed.parse::<Slo>().unwrap();
        let slo = of("p99 < 200ms, mean < 50ms, errors < 0.1%");
        assert_eq!(slo.response_limit(), Some(Duration::from_millis(50)));
        assert_eq!((slo.errors_limit(), slo.requests_min()), (0.001, 2_000));
        assert_eq!((of("max < 1s").errors_limit(), of("max < 1s").requests_min()), (1.0, 0));
        assert_eq!(of("p99.9 < 1s").requests_min(), 20_000);
        assert_eq!(of("errors < 1%").response_limit(), None);
    }

    #[test]
    fn slo_errors_count_failures_error_statuses_and_unfinished_requests() {
        let mut load = document::Load { offered_requests: 1000, ..Default::default() };
        load.failed.insert("reset".into(), 1);
        for (status, count) in [("200", 900), ("204", 10), ("301", 20), ("304", 30), ("404", 5), ("429", 3), ("503", 2)]
        {
            load.status.insert(status.into(), count);
        }
        load.in_flight_at_end = 1;
        assert_eq!(Quantity::Errors.of(&load), 0.012);
        // A plan that expects statuses, 404 among them, has failed the requests that got others.
        load.statuses_expected = true;
        assert_eq!(Quantity::Errors.of(&load), 0.002);
    }
}
