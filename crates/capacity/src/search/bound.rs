//! Which resource the server ran out of.

use std::collections::BTreeMap;

use schema::{BoundBy, TrialPart};

/// Of what it may have, a server uses all if it uses so much.
const CORES_SHARE: f64 = 0.95;
/// A share that it is held to it cannot use all of: what is left of a period when it is woken late is lost. Used so far, or held back in
/// so many of its periods, the share is what binds it.
const HELD_SHARE: f64 = 0.8;
/// And has enough left if it uses less than this.
const IDLE_SHARE: f64 = 0.8;
/// Bad trials up to so far above the bracket are about the bound; those far above are about overload.
const NEAR: f64 = 1.1;
/// Requests wait for something if they take so many times what they take where none waits.
const QUEUED: f64 = 1.5;

/// What bound the server at the answer, by the lowest load that was too much.
pub fn bound_by(trials: &[TrialPart], lower: f64, upper: f64) -> BoundBy {
    let near = |trial: &&TrialPart| {
        trial.verdict == "bad"
            && trial.load >= lower
            && trial.load <= NEAR * upper
            && ["short", "long", "overload"].contains(&trial.stage.as_str())
    };
    // The longest first: a trial that ended early says less.
    let Some(bad) = trials.iter().filter(near).max_by(|a, b| a.actual_s.total_cmp(&b.actual_s)) else {
        return named("unknown", "no trial was too much near the answer", &[]);
    };
    let busy = bad.cpu_busy;
    let throttled = bad.server.and_then(|server| server.throttled_share);
    if let Some(missing) = bad.connections_missing.filter(|missing| *missing > 0.5) {
        let words = format!(
            "it refuses or closes connections ({missing:.0} of {:.0} were not there): by a limit of its own on connections or open files, or since \
             it keeps idle ones for a shorter time than lies between two requests of one",
            bad.load
        );
        return named("connections", &words, &[("missing", missing)]);
    }
    if bad.error_ratio > 0.0 && !bad.why.is_empty() && bad.why.iter().all(|why| why.starts_with("errors")) {
        return named("errors", "it answers with errors before it becomes slow", &[("error_ratio", bad.error_ratio)]);
    }
    match (bad.server, busy) {
        (Some(server), Some(busy))
            if server.held && (throttled.is_some_and(|share| share > HELD_SHARE) || busy > HELD_SHARE) =>
        {
            let words = format!(
                "its share of the processor, {:.0} % of a core, is used up ({:.0} %)",
                100.0 * server.may_use_cores,
                100.0 * busy.min(1.0)
            );
            named("cpu_quota", &words, &[("cpu_busy", busy), ("throttled_share", throttled.unwrap_or(0.0))])
        }
        (Some(server), Some(busy))
            if !server.held && busy + server.receive_cores.unwrap_or(0.0) / server.may_use_cores > CORES_SHARE =>
        {
            let words = format!("its {} used up ({:.0} %)", cores(server.may_use_cores), 100.0 * busy);
            named("cores", &words, &[("cpu_busy", busy), ("receive_cores", server.receive_cores.unwrap_or(0.0))])
        }
        // Connections that the kernel took and nobody serves.
        (Some(_), Some(busy)) if busy < IDLE_SHARE && bad.connections_missing.is_some() => {
            let words = format!(
                "all of them were open, and on some nothing was answered in time, though only {:.0} % of its processor is used: it serves no more \
                 at once, as one with a worker for each connection does",
                100.0 * busy
            );
            named("connections", &words, &[("cpu_busy", busy), ("missing", 0.0)])
        }
        (Some(_), Some(busy)) if busy < IDLE_SHARE && is_queued(trials, bad) => {
            let at_once = at_once(trials, bad);
            let words = format!(
                "it carries no more though only {:.0} % of its processor is used: something else has a limit, such as its number of workers \
                 (by Little's law it has about {at_once:.1} requests at work at once)",
                100.0 * busy
            );
            named("workers", &words, &[("cpu_busy", busy), ("at_once", at_once)])
        }
        (Some(_), Some(busy)) => {
            let words = format!(
                "requests take too long before anything is used up ({:.0} % of its processor is)",
                100.0 * busy
            );
            named("unknown", &words, &[("cpu_busy", busy)])
        }
        _ => named("unknown", "the server is not the lab's: what it used is not known", &[]),
    }
}

/// Whether requests wait for something in a trial: they pile up, or take longer than they do where none waits.
fn is_queued(trials: &[TrialPart], bad: &TrialPart) -> bool {
    bad.growth_per_s > bad.growth_bound_per_s
        || fastest(trials).is_some_and(|fastest| bad.response_time_ns.mean > QUEUED * fastest)
}

/// What a request takes where none waits: the least mean response time of the trials that held.
fn fastest(trials: &[TrialPart]) -> Option<f64> {
    let good = trials
        .iter()
        .filter(|trial| trial.verdict == "good" && ["calibration", "short", "long"].contains(&trial.stage.as_str()));
    good.map(|trial| trial.response_time_ns.mean).filter(|mean| *mean > 0.0).reduce(f64::min)
}

/// How many requests the server has at work at once when it can carry no more: the rate, times what a request takes where none waits.
fn at_once(trials: &[TrialPart], bad: &TrialPart) -> f64 {
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

    fn bad(busy: f64, held: bool, throttled: Option<f64>) -> TrialPart {
        let server = TrialServer {
            may_use_cores: 1.0,
            held,
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
    fn connections_bind_where_some_are_refused_or_not_served() {
        let held = |missing: f64| TrialPart { connections_missing: Some(missing), ..bad(0.1, false, None) };
        let refused = bound_by(&[held(2.0)], 100.0, 102.0);
        assert_eq!((refused.name.as_str(), refused.figures["missing"]), ("connections", 2.0));
        assert!(refused.words.contains("2 of 102 were not there"), "{}", refused.words);
        let waits = bound_by(&[held(0.0)], 100.0, 102.0);
        assert!(waits.name == "connections" && waits.words.contains("nothing was answered in time"), "{waits:?}");
        // Where the processor is used up, that is it.
        assert_eq!(of(TrialPart { connections_missing: Some(0.0), ..bad(1.0, false, None) }), "cores");
    }

    fn of(trial: TrialPart) -> String {
        bound_by(&[trial], 100.0, 102.0).name
    }

    #[test]
    fn the_quota_the_cores_and_what_is_neither() {
        assert_eq!(of(bad(0.93, true, Some(0.95))), "cpu_quota");
        assert_eq!(of(bad(0.97, true, None)), "cpu_quota");
        assert_eq!(of(bad(0.96, false, None)), "cores");
        assert_eq!(of(bad(0.3, false, None)), "workers");
        // Boundary pairs: all of it used, and not quite; room left, and not quite.
        assert_eq!(of(bad(0.94, false, None)), "unknown");
        assert_eq!(of(bad(0.79, true, Some(0.5))), "workers");
        assert_eq!(of(bad(0.81, true, Some(0.5))), "cpu_quota");
        assert_eq!(of(bad(0.79, true, Some(0.81))), "cpu_quota");
        assert_eq!(of(bad(0.79, false, None)), "workers");
        assert_eq!(of(bad(0.81, false, None)), "unknown");
    }

    #[test]
    fn without_the_labs_server_it_is_unknown_and_far_above_says_nothing() {
        assert_eq!(of(TrialPart { server: None, cpu_busy: None, ..bad(0.9, false, None) }), "unknown");
        assert_eq!(of(TrialPart { load: 113.0, ..bad(0.97, false, None) }), "unknown");
        assert_eq!(
            of(TrialPart { why: vec!["errors < 1%: 3.00 %".into()], error_ratio: 0.03, ..bad(0.5, false, None) }),
            "errors"
        );
    }

    #[test]
    fn workers_are_counted_by_littles_law() {
        let times = Quantiles { count: 1000, mean: 20e6, ..Quantiles::default() };
        let light = TrialPart {
            stage: "short".into(),
            verdict: "good".into(),
            response_time_ns: times,
            ..TrialPart::default()
        };
        let bound = bound_by(&[light, TrialPart { achieved_rate_per_s: 200.0, ..bad(0.1, false, None) }], 100.0, 102.0);
        assert!((bound.figures["at_once"] - 4.0).abs() < 1e-9, "{bound:?}");
    }
}
