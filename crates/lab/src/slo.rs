//! Objectives: `p99 < 200ms, errors < 0.1%`.

use std::fmt;
use std::str::FromStr;

use ledger::document::{self, Document, SloTerm};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Probability, parse_duration};

/// An objective: terms that must all hold. Quantiles are of the response time, from the intended moment.
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
    Mean,
    P50,
    P75,
    P90,
    P95,
    P99,
    P999,
    P9999,
    Max,
    Errors,
}

const WANTED: &str = "an objective is written like 'p99 < 200ms, errors < 0.1%' (mean, p50, p75, p90, p95, p99, \
                      p99.9, p99.99, max, errors)";

impl Slo {
    /// Holds the objective against a run. Without a load part nothing is met.
    pub fn judge(&self, document: &Document) -> document::Slo {
        let terms: Vec<SloTerm> = self.terms.iter().map(|term| term.judge(document)).collect();
        document::Slo { objective: self.typed.clone(), met: terms.iter().all(|term| term.met), terms }
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
    fn of(self, load: &document::Load) -> f64 {
        let q = &load.response_time_ns;
        if q.count == 0 && self != Quantity::Errors {
            return f64::INFINITY;
        }
        match self {
            Quantity::Mean => q.mean,
            Quantity::P50 => q.p50 as f64,
            Quantity::P75 => q.p75 as f64,
            Quantity::P90 => q.p90 as f64,
            Quantity::P95 => q.p95 as f64,
            Quantity::P99 => q.p99 as f64,
            Quantity::P999 => q.p99_9 as f64,
            Quantity::P9999 => q.p99_99 as f64,
            Quantity::Max => q.max as f64,
            Quantity::Errors => {
                let failed: u64 = load.failed.values().sum();
                let errors = failed + load.in_flight_at_end + server_errors(load);
                if load.offered_requests == 0 { 1.0 } else { errors as f64 / load.offered_requests as f64 }
            }
        }
    }
}

/// Responses of class 5xx: whole, but an error to the user who asked.
fn server_errors(load: &document::Load) -> u64 {
    load.status.iter().filter(|(status, _)| status.starts_with('5')).map(|(_, count)| count).sum()
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
            return Err(format!("the objective is empty; {WANTED}"));
        }
        Ok(Slo { typed: typed.to_owned(), terms })
    }
}

impl Term {
    fn parse(typed: &str) -> Result<Self, String> {
        let at = typed.find('<').ok_or_else(|| format!("`{typed}` has no `<`; {WANTED}"))?;
        let (name, rest) = (typed[..at].trim(), &typed[at + 1..]);
        let (inclusive, limit) = match rest.strip_prefix('=') {
            Some(limit) => (true, limit.trim()),
            None => (false, rest.trim()),
        };
        let quantity = match name {
            "mean" => Quantity::Mean,
            "p50" | "median" => Quantity::P50,
            "p75" => Quantity::P75,
            "p90" => Quantity::P90,
            "p95" => Quantity::P95,
            "p99" => Quantity::P99,
            "p99.9" => Quantity::P999,
            "p99.99" => Quantity::P9999,
            "max" => Quantity::Max,
            "errors" => Quantity::Errors,
            _ => return Err(format!("`{name}` is not a quantity of an objective; {WANTED}")),
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
    fn terms_parse_with_their_units() {
        let slo: Slo = "p99 < 200ms, errors <= 0.1%".parse().unwrap();
        assert_eq!(slo.terms.len(), 2);
        assert_eq!(slo.terms[0].limit, 200e6);
        assert!(slo.terms[1].inclusive);
        for wrong in ["", "p99", "p98 < 1ms", "p99 < 200", "errors < 2", "p99 > 1ms"] {
            assert!(wrong.parse::<Slo>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_count_failures_server_errors_and_the_unfinished() {
        let mut load = document::Load { offered_requests: 1000, ..Default::default() };
        load.failed.insert("reset".into(), 1);
        load.status.insert("503".into(), 2);
        load.status.insert("404".into(), 5);
        load.in_flight_at_end = 1;
        assert_eq!(Quantity::Errors.of(&load), 0.004);
    }
}
