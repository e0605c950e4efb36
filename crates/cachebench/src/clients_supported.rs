//! Number of clients that a cache supports.
//!
//! School gateway paper: a class of 40 clients makes about 40 requests a second at its peak. The paper states the rate
//! that a machine sustains in words ("usable to about 40/s"). This module defines it: the highest measured rate at
//! which, as at every lower one,
//!
//! - fewer than 1 % of the requests failed, and the point was not ended early;
//! - the offered rate was achieved within 5 % and what chance explains;
//! - hits took less than a second in the mean.
//!
//! Excluded are interrupted points, points that satisfy the rule in a run that is not valid, and points that violate it
//! in a run whose load generator is in doubt. Excluded points are listed. If all are excluded, no number is stated.

use schema::document::{CheckState, Validity, Verdict, Weight};
use schema::{CachePoint, ClientsSupported, UncountedRun};
use units::RequestRate;

/// Highest tolerable share of failures.
const ERRORS_MAX: f64 = 0.01;
/// Tolerated shortfall of the achieved rate, as a share of the offered rate.
const SHORTFALL_MAX: f64 = 0.05;
/// Limit of the mean response time of hits.
const HITS_MEAN_NS_MAX: f64 = 1e9;
/// Standard deviations attributed to chance.
const DEVIATIONS: f64 = 3.0;

/// The rule as stated in the document.
const RULE: &str = "the highest rate measured at which, as at every lower one, fewer than 1 % of the requests failed, the \
                    offered rate was achieved within 5 %, and hits took under 1 s in the mean; of valid runs that were \
                    complete";

/// Checks about the cache rather than the load generator: a point that violates the rule counts although they fail.
const CACHE_CHECKS: [&str; 5] =
    ["server_alive", "responses_whole", "error_rate", "achieved_as_offered", "steady_state"];
/// Checks about the client's own connections: with them failed, requests fail before they reach the cache.
const CONNECTION_CHECKS: [&str; 2] = ["client_descriptors_and_ports", "open_connections_established"];

/// Validity of a point's run as far as the number of clients is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvidence {
    verdict: Verdict,
    /// Failed checks about the load generator.
    generator_failures: Vec<String>,
    /// Failed checks about the cache.
    cache_failures: Vec<String>,
}

impl RunEvidence {
    /// Evidence of a run with these checks.
    pub fn of(validity: &Validity) -> RunEvidence {
        let bad = validity.checks.iter().filter(|check| {
            // Many caches serve a reload from their copy by default, which does not affect the number of clients.
            let is_reloads = check.name == "cache_responses_correct" && check.weight == Weight::Suspect;
            matches!(check.state, CheckState::Failed | CheckState::CouldNotRun) && !is_reloads
        });
        let (cache_failures, generator_failures): (Vec<String>, Vec<String>) =
            bad.map(|check| check.name.clone()).partition(|name| CACHE_CHECKS.contains(&name.as_str()));
        let verdict =
            if cache_failures.is_empty() && generator_failures.is_empty() { Verdict::Valid } else { validity.verdict };
        RunEvidence { verdict, generator_failures, cache_failures }
    }

    /// Adds a reason to doubt the achieved rate.
    pub fn with_doubt(mut self, why: &str) -> RunEvidence {
        self.verdict = self.verdict.max(Verdict::Suspect);
        self.generator_failures.push(why.to_owned());
        self
    }

    fn because(&self) -> String {
        let names: Vec<String> =
            self.generator_failures.iter().chain(&self.cache_failures).map(|name| name.replace('_', " ")).collect();
        format!("{}: {}", self.verdict.name(), names.join(", "))
    }
}

/// Outcome of a point.
enum Evidence {
    Sustained,
    Unsustained,
    Excluded(String),
}

fn evidence(point: &CachePoint, run: &RunEvidence) -> Evidence {
    if point.interrupted {
        return Evidence::Excluded("it was interrupted".to_owned());
    }
    // Without any response nothing was measured.
    if point.figures.answered == 0 {
        return Evidence::Excluded("nothing was answered".to_owned());
    }
    if is_sustained(point) {
        let is_valid = run.verdict == Verdict::Valid;
        return if is_valid { Evidence::Sustained } else { Evidence::Excluded(run.because()) };
    }
    let is_client_fault = run.generator_failures.iter().any(|name| CONNECTION_CHECKS.contains(&name.as_str()));
    // Failures count even if requests were sent late.
    if run.generator_failures.is_empty() || (failed(point) && !is_client_fault) {
        Evidence::Unsustained
    } else {
        Evidence::Excluded(run.because())
    }
}

/// Result of the rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SupportResult {
    /// Clients supported; `None` if no point counts.
    pub supported: Option<ClientsSupported>,
    /// If no point counts: the excluded points and the reasons.
    pub not_counted: Vec<UncountedRun>,
}

/// Applies the rule to points, each with its configured rate (the offered one differs by chance) and the validity of
/// its run. `client_rate` is the request rate of one client.
pub fn of<'a>(
    points: impl IntoIterator<Item = (f64, &'a CachePoint, &'a RunEvidence)>,
    client_rate: RequestRate,
) -> SupportResult {
    let mut sustained = Vec::new();
    let mut failed_rates = Vec::new();
    let mut not_counted = Vec::new();
    for (rate, point, run) in points {
        if point.figures.requests == 0 {
            continue;
        }
        match evidence(point, run) {
            Evidence::Sustained => sustained.push(rate),
            Evidence::Unsustained => failed_rates.push(rate),
            Evidence::Excluded(why) => not_counted.push(UncountedRun { rate_per_s: rate, why }),
        }
    }
    if sustained.is_empty() && failed_rates.is_empty() {
        return SupportResult { supported: None, not_counted };
    }
    let unsustained = failed_rates.into_iter().min_by(f64::total_cmp);
    // A rate measured more than once with different outcomes is not sustained.
    let below = sustained.into_iter().filter(|rate| unsustained.is_none_or(|unsustained| *rate < unsustained));
    let highest = below.max_by(f64::total_cmp).unwrap_or(0.0);
    let supported = ClientsSupported {
        // Epsilon for rates that a float cannot represent.
        clients: (highest / client_rate.per_second() + 1e-9).floor() as u64,
        rate_per_client_per_s: client_rate.per_second(),
        unsustained_rate_per_s: unsustained,
        not_counted,
        rule: RULE.to_owned(),
    };
    SupportResult { supported: Some(supported), not_counted: Vec::new() }
}

/// Whether a point satisfies the rule.
pub fn is_sustained(point: &CachePoint) -> bool {
    let figures = &point.figures;
    let offered = point.offered_rate_per_s;
    // Requests in flight at both ends of the phase differ by chance; their number follows from Little's law.
    let in_flight = offered * figures.response_time_ns.mean / 1e9;
    let chance = DEVIATIONS * (2.0 * in_flight).sqrt() / point.duration_s.max(1e-9);
    let hits = &figures.hits_response_time_ns;
    !failed(point)
        && point.achieved_rate_per_s >= offered * (1.0 - SHORTFALL_MAX) - chance
        && (hits.count == 0 || hits.mean < HITS_MEAN_NS_MAX)
}

/// Whether too many requests failed.
fn failed(point: &CachePoint) -> bool {
    point.ended_early || point.figures.error_ratio.is_none_or(|ratio| ratio >= ERRORS_MAX)
}

#[cfg(test)]
mod tests {
    use schema::CacheFigures;
    use schema::document::{Check, Quantiles};

    use super::*;

    fn point(rate: f64) -> CachePoint {
        let quantiles = |mean| Quantiles { count: 100, mean, ..Quantiles::default() };
        CachePoint {
            offered_rate_per_s: rate,
            achieved_rate_per_s: rate,
            duration_s: 54.0,
            figures: CacheFigures {
                requests: 100,
                answered: 100,
                error_ratio: Some(0.0),
                response_time_ns: quantiles(1e9),
                hits_response_time_ns: quantiles(5e6),
                ..CacheFigures::default()
            },
            ..CachePoint::default()
        }
    }

    fn supported(points: &[(f64, CachePoint)], client_rate: f64) -> Option<ClientsSupported> {
        let valid = run_evidence(&[]);
        let points = points.iter().map(|(rate, point)| (*rate, point, &valid));
        of(points, RequestRate::from_per_second(client_rate).unwrap()).supported
    }

    /// Evidence of a run in which these checks failed.
    fn run_evidence(failed: &[(&str, Weight)]) -> RunEvidence {
        let check = |&(name, weight): &(&str, Weight)| Check {
            name: name.into(),
            state: CheckState::Failed,
            weight,
            value: None,
            limit: None,
            unit: String::new(),
            why: String::new(),
        };
        RunEvidence::of(&Validity::from_checks(failed.iter().map(check).collect()))
    }

    fn sustained_point(rate: f64) -> (f64, CachePoint) {
        // The offered rate is close to the configured one.
        (rate, point(rate * 0.99))
    }

    #[test]
    fn clients_supported_follow_from_the_highest_rate_below_the_first_failure() {
        let failing =
            CachePoint { figures: CacheFigures { error_ratio: Some(0.3), ..point(40.0).figures }, ..point(40.0) };
        let failing = (40.0, failing);
        let found =
            supported(&[sustained_point(80.0), sustained_point(20.0), failing.clone(), sustained_point(30.0)], 1.0)
                .unwrap();
        assert_eq!(
            (found.clients, found.unsustained_rate_per_s),
            (30, Some(40.0)),
            "80/s above a failed rate does not count"
        );
        assert_eq!(
            supported(&[sustained_point(30.0), sustained_point(40.0), failing.clone()], 1.0).unwrap().clients,
            30,
            "40/s failed once"
        );
        let all = supported(&[sustained_point(40.0)], 1.0).unwrap();
        assert_eq!((all.clients, all.unsustained_rate_per_s), (40, None));
        assert_eq!(supported(&[failing], 1.0).unwrap().clients, 0);
        assert_eq!(supported(&[sustained_point(40.0)], 2.0).unwrap().clients, 20);
        assert_eq!(supported(&[sustained_point(0.3)], 0.1).unwrap().clients, 3);
        assert!(supported(&[], 1.0).is_none());
        assert!(supported(&[(5.0, CachePoint::default())], 1.0).is_none());
    }

    #[test]
    fn rule_limits_are_one_percent_errors_one_second_and_five_percent_shortfall() {
        let with = |figures: CacheFigures| CachePoint { figures, ..point(40.0) };
        let figures = point(40.0).figures;
        assert!(is_sustained(&with(CacheFigures { error_ratio: Some(0.0099), ..figures.clone() })));
        assert!(!is_sustained(&with(CacheFigures { error_ratio: Some(0.01), ..figures.clone() })));
        let hits = |mean| Quantiles { count: 9, mean, ..Quantiles::default() };
        assert!(is_sustained(&with(CacheFigures { hits_response_time_ns: hits(0.99e9), ..figures.clone() })));
        assert!(!is_sustained(&with(CacheFigures { hits_response_time_ns: hits(1.0e9), ..figures.clone() })));
        assert!(is_sustained(&with(CacheFigures { hits_response_time_ns: Quantiles::default(), ..figures })));
        assert!(!is_sustained(&CachePoint { ended_early: true, ..point(40.0) }));
        // 40/s of a second each: 3 x sqrt(80) / 54 is 0.5/s of chance added to the tolerated shortfall of 2/s.
        assert!(is_sustained(&CachePoint { achieved_rate_per_s: 37.6, ..point(40.0) }));
        assert!(!is_sustained(&CachePoint { achieved_rate_per_s: 37.4, ..point(40.0) }));
    }

    #[test]
    fn interrupted_and_invalid_points_are_excluded() {
        let one = RequestRate::from_per_second(1.0).unwrap();
        let found = |points: &[(CachePoint, RunEvidence)]| {
            of(points.iter().map(|(point, run_evidence)| (point.offered_rate_per_s, point, run_evidence)), one)
        };
        let late = run_evidence(&[("generator_on_time", Weight::Invalid)]);
        let growing = run_evidence(&[("steady_state", Weight::Suspect)]);
        let interrupted = CachePoint { interrupted: true, ..point(40.0) };
        for (point, run_evidence, why) in [
            (interrupted.clone(), run_evidence(&[]), "it was interrupted"),
            (point(40.0), late.clone(), "invalid: generator on time"),
            (point(40.0), growing.clone(), "suspect: steady state"),
        ] {
            let alone = found(&[(point.clone(), run_evidence.clone())]);
            assert_eq!(alone.supported, None, "{why}");
            assert_eq!(alone.not_counted, [UncountedRun { rate_per_s: 40.0, why: why.into() }]);
            let with_valid_point =
                found(&[(super::tests::point(20.0), super::tests::run_evidence(&[])), (point, run_evidence)]);
            let supported = with_valid_point.supported.unwrap();
            assert_eq!(
                (supported.clients, supported.unsustained_rate_per_s, supported.not_counted.len()),
                (20, None, 1),
                "{why}"
            );
        }
        let silent = CachePoint {
            figures: CacheFigures { answered: 0, error_ratio: Some(1.0), ..point(5.0).figures },
            ..point(5.0)
        };
        let excluded = found(&[(silent, run_evidence(&[("server_answers", Weight::Invalid)]))]);
        assert_eq!(
            (excluded.supported, excluded.not_counted[0].why.as_str()),
            (None, "nothing was answered"),
            "no server at the address"
        );
        // A violation counts if the cache caused it.
        let failing = |run_evidence| {
            let figures = CacheFigures { error_ratio: Some(0.6), ..point(40.0).figures };
            found(&[(CachePoint { figures, ended_early: true, ..point(40.0) }, run_evidence)]).supported
        };
        for run_evidence in [growing, late.clone(), run_evidence(&[("server_alive", Weight::Invalid)])] {
            assert_eq!(failing(run_evidence).unwrap().unsustained_rate_per_s, Some(40.0));
        }
        assert_eq!(failing(run_evidence(&[("client_descriptors_and_ports", Weight::Invalid)])), None);
        let behind = CachePoint { achieved_rate_per_s: 20.0, ..point(40.0) };
        assert_eq!(
            found(&[(behind.clone(), late)]).supported,
            None,
            "load generator or cache was too slow: unknown which"
        );
        let short = run_evidence(&[]).with_doubt("warm-up shorter than the think time");
        assert_eq!(found(&[(behind.clone(), short)]).supported, None, "the phase began before the first responses");
        let below_offered = run_evidence(&[("achieved_as_offered", Weight::Suspect)]);
        assert_eq!(found(&[(behind, below_offered)]).supported.unwrap().unsustained_rate_per_s, Some(40.0));
        // A cached reload depends on the cache's configuration; other incorrect responses exclude the point.
        let reloads = run_evidence(&[("cache_responses_correct", Weight::Suspect)]);
        assert_eq!(found(&[(point(40.0), reloads)]).supported.unwrap().clients, 40);
        let wrong = run_evidence(&[("cache_responses_correct", Weight::Invalid)]);
        assert_eq!(found(&[(point(40.0), wrong)]).supported, None);
    }
}
