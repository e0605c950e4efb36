//! The limiting resource of the server.

use std::collections::BTreeMap;

use schema::{BoundBy, TrialPart};

/// Used share of the available CPU from which on the CPU counts as used up.
const CORES_SHARE: f64 = 0.95;
/// With a CPU limit, time is lost when the server is woken late in a period, so the limit counts as reached at this
/// used share, or when the server was throttled in this share of the periods.
const QUOTA_USED_SHARE: f64 = 0.8;
/// Used share below which the server has CPU time left.
const IDLE_SHARE: f64 = 0.8;
/// Failed trials up to this multiple of the bracket show the limit; those further above show overload.
const LIMIT_FACTOR_MAX: f64 = 1.1;
/// Requests wait for a resource if their mean time is this multiple of the time without waiting.
const QUEUEING_FACTOR: f64 = 1.5;

/// The limiting resource at the result, from the lowest load that failed.
pub fn bound_by(trials: &[TrialPart], lower: f64, upper: f64) -> BoundBy {
    let near = |trial: &&TrialPart| {
        trial.verdict == "bad"
            && trial.load >= lower
            && trial.load <= LIMIT_FACTOR_MAX * upper
            && ["short", "long", "overload"].contains(&trial.stage.as_str())
    };
    // Longest first: a trial that ended early has less evidence.
    let Some(bad) = trials.iter().filter(near).max_by(|a, b| a.actual_s.total_cmp(&b.actual_s)) else {
        return named("unknown", "no failed trial near the result", &[]);
    };
    let busy = bad.cpu_busy;
    let throttled = bad.server.and_then(|server| server.throttled_share);
    if let Some(missing) = bad.connections_missing.filter(|missing| *missing > 0.5) {
        let words = format!(
            "the server refuses or closes connections ({missing:.0} of {:.0} missing): its limit on connections or \
             open files is reached, or its keep-alive timeout is shorter than the time between two requests of a \
             connection",
            bad.load
        );
        return named("connections", &words, &[("missing", missing)]);
    }
    if bad.error_ratio > 0.0 && !bad.why.is_empty() && bad.why.iter().all(|why| why.starts_with("errors")) {
        return named(
            "errors",
            "the server responds with errors before it becomes slow",
            &[("error_ratio", bad.error_ratio)],
        );
    }
    match (bad.server, busy) {
        (Some(server), Some(busy))
            if server.limited
                && (throttled.is_some_and(|share| share > QUOTA_USED_SHARE) || busy > QUOTA_USED_SHARE) =>
        {
            let words = format!(
                "the server's CPU limit, {:.0} % of a core, is used up ({:.0} %)",
                100.0 * server.may_use_cores,
                100.0 * busy.min(1.0)
            );
            named("cpu_quota", &words, &[("cpu_busy", busy), ("throttled_share", throttled.unwrap_or(0.0))])
        }
        (Some(server), Some(busy))
            if !server.limited && busy + server.receive_cores.unwrap_or(0.0) / server.may_use_cores > CORES_SHARE =>
        {
            let words = format!("the server's {} used up ({:.0} %)", cores(server.may_use_cores), 100.0 * busy);
            named("cores", &words, &[("cpu_busy", busy), ("receive_cores", server.receive_cores.unwrap_or(0.0))])
        }
        // Connections that the kernel accepted and the server does not serve.
        (Some(_), Some(busy)) if busy < IDLE_SHARE && bad.connections_missing.is_some() => {
            let words = format!(
                "all connections were open and some requests had no response in time, while only {:.0} % of the \
                 server's CPU is used: the number of connections served at the same time is limited, as in a server \
                 with one worker per connection",
                100.0 * busy
            );
            named("connections", &words, &[("cpu_busy", busy), ("missing", 0.0)])
        }
        (Some(_), Some(busy)) if busy < IDLE_SHARE && is_queued(trials, bad) => {
            let concurrent_requests = concurrent_requests(trials, bad);
            let words = format!(
                "throughput does not rise although only {:.0} % of the server's CPU is used: another limit applies, \
                 such as the number of workers (by Little's law about {concurrent_requests:.1} requests are processed \
                 concurrently)",
                100.0 * busy
            );
            named("workers", &words, &[("cpu_busy", busy), ("concurrent_requests", concurrent_requests)])
        }
        (Some(_), Some(busy)) => {
            let words = format!(
                "response times exceed the objective before any resource is used up (CPU at {:.0} %)",
                100.0 * busy
            );
            named("unknown", &words, &[("cpu_busy", busy)])
        }
        _ => named("unknown", "the server was not started by Yamabiko, so its resource usage is unknown", &[]),
    }
}

/// Whether requests wait for a resource: their number grows, or they take longer than without waiting.
fn is_queued(trials: &[TrialPart], bad: &TrialPart) -> bool {
    bad.growth_per_s > bad.growth_bound_per_s
        || fastest(trials).is_some_and(|fastest| bad.response_time_ns.mean > QUEUEING_FACTOR * fastest)
}

/// Response time without waiting: the lowest mean of the trials that passed.
fn fastest(trials: &[TrialPart]) -> Option<f64> {
    let good = trials
        .iter()
        .filter(|trial| trial.verdict == "good" && ["calibration", "short", "long"].contains(&trial.stage.as_str()));
    good.map(|trial| trial.response_time_ns.mean).filter(|mean| *mean > 0.0).reduce(f64::min)
}

/// Requests that the server processes concurrently at its limit: rate times response time without waiting.
fn concurrent_requests(trials: &[TrialPart], bad: &TrialPart) -> f64 {
    fastest(trials).map_or(0.0, |fastest| bad.achieved_rate_per_s * fastest / 1e9)
}

fn cores(number: f64) -> String {
    if number <= 1.0 { "core is".into() } else { format!("{number:.0} cores are") }
}

fn named(name: &str, words: &str, figures: &[(&str, f64)]) -> BoundBy {
    let figures: BTreeMap<String, f64> = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    BoundBy { name: name.into(), words: words.into(), figures }
}

#[cfg(test)]
mod tests {
    use schema::{Quantiles, TrialServer};

    use super::*;

    fn bad(busy: f64, limited: bool, throttled: Option<f64>) -> TrialPart {
        let server = TrialServer {
            may_use_cores: 1.0,
            limited,
            throttled_share: throttled,
            cpu_cores: busy,
            ..TrialServer::default()
        };
        TrialPart {
            stage: "long".into(),
            verdict: "bad".into(),
            why: vec!["p99 < 200ms: 400 ms".into()],
            load: 102.0,
            growth_per_s: 2.0,
            growth_bound_per_s: 1.0,
            achieved_rate_per_s: 100.0,
            cpu_busy: Some(busy),
            server: Some(server),
            ..TrialPart::default()
        }
    }

    #[test]
    fn refused_or_unserved_connections_are_the_limit() {
        let missing_trial = |missing: f64| TrialPart { connections_missing: Some(missing), ..bad(0.1, false, None) };
        let refused = bound_by(&[missing_trial(2.0)], 100.0, 102.0);
        assert_eq!((refused.name.as_str(), refused.figures["missing"]), ("connections", 2.0));
        assert!(refused.words.contains("2 of 102 missing"), "{}", refused.words);
        let waits = bound_by(&[missing_trial(0.0)], 100.0, 102.0);
        assert!(waits.name == "connections" && waits.words.contains("no response in time"), "{waits:?}");
        // A used-up CPU is the limit, even if requests also wait for other resources.
        assert_eq!(of(TrialPart { connections_missing: Some(0.0), ..bad(1.0, false, None) }), "cores");
    }

    fn of(trial: TrialPart) -> String {
        bound_by(&[trial], 100.0, 102.0).name
    }

    #[test]
    fn limit_is_quota_cores_errors_or_unknown() {
        assert_eq!(of(bad(0.93, true, Some(0.95))), "cpu_quota");
        assert_eq!(of(bad(0.97, true, None)), "cpu_quota");
        assert_eq!(of(bad(0.96, false, None)), "cores");
        assert_eq!(of(bad(0.3, false, None)), "workers");
        // Boundary values: just used up and just not; just CPU left and just not.
        assert_eq!(of(bad(0.94, false, None)), "unknown");
        assert_eq!(of(bad(0.79, true, Some(0.5))), "workers");
        assert_eq!(of(bad(0.81, true, Some(0.5))), "cpu_quota");
        assert_eq!(of(bad(0.79, true, Some(0.81))), "cpu_quota");
        assert_eq!(of(bad(0.79, false, None)), "workers");
        assert_eq!(of(bad(0.81, false, None)), "unknown");
    }

    #[test]
    fn limit_is_unknown_without_a_started_server_or_far_above_the_bracket() {
        assert_eq!(of(TrialPart { server: None, cpu_busy: None, ..bad(0.9, false, None) }), "unknown");
        assert_eq!(of(TrialPart { load: 113.0, ..bad(0.97, false, None) }), "unknown");
        assert_eq!(
            of(TrialPart { why: vec!["errors < 1%: 3.00 %".into()], error_ratio: 0.03, ..bad(0.5, false, None) }),
            "errors"
        );
    }

    #[test]
    fn workers_are_estimated_by_littles_law() {
        let times = Quantiles { count: 1000, mean: 20e6, ..Quantiles::default() };
        let light = TrialPart {
            stage: "short".into(),
            verdict: "good".into(),
            response_time_ns: times,
            ..TrialPart::default()
        };
        let bound = bound_by(&[light, TrialPart { achieved_rate_per_s: 200.0, ..bad(0.1, false, None) }], 100.0, 102.0);
        assert!((bound.figures["concurrent_requests"] - 4.0).abs() < 1e-9, "{bound:?}");
    }
}
