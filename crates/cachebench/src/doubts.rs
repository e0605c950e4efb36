//! Validity checks of points: figures that are unknown are reported, so that they are not taken for zero.

use std::time::Duration;

use polymix::origin_figures::WorldFigures;
use polymix::{CacheWorkload, OriginFigures};
use schema::document::{Check, CheckState, Weight};
use units::RequestRate;

/// Tolerated share of requests at the origin without request id before the point is invalid: 0.5 %, the accuracy of hit
/// ratios. A cache may make requests of its own, for prefetching.
const WITHOUT_REQUEST_ID_MAX: f64 = 0.005;

/// A check that could not run, if there was an origin and its counts are unknown. `has_origin`: whether there was one.
pub fn not_counted(rate: RequestRate, has_origin: bool, reached: Option<WorldFigures>) -> Option<Check> {
    (has_origin && reached.is_none()).then(|| Check::without_figure(format!("{rate}: origin counted"), CheckState::CouldNotRun, Weight::Suspect, "the requests that reached the origin are unknown, and so are those that the cache saved: the origin did not respond after the point, was \
              restarted during it, or counts fewer worlds than were requested"
            ))
}

/// A failed check, if requests reached the origin without request id. Their responses are recognized as hits by time
/// only.
pub fn request_ids_dropped(rate: RequestRate, reached: WorldFigures) -> Option<Check> {
    let WorldFigures { requests, without_request_id, .. } = reached;
    let limit = requests as f64 * WITHOUT_REQUEST_ID_MAX;
    (without_request_id > 0).then(|| Check {
        name: format!("{rate}: request ids reached the origin"),
        state: CheckState::Failed,
        weight: if without_request_id as f64 > limit { Weight::Invalid } else { Weight::Suspect },
        value: Some(without_request_id as f64),
        limit: Some(0.0),
        unit: "requests".into(),
        why: format!(
            "the proxy does not forward X-Yamabiko-Request-Id: of {requests} requests that reached the origin {without_request_id} had none, \
             so that hits are recognized by time only; let the proxy forward the field"
        ),
    })
}

/// A check that could not run, if phases need figures of their own and exchanges are missing from the run's table.
/// `left_out`: number of missing exchanges. `phases`: number of measured phases without figures.
pub fn phases_unverified(rate: RequestRate, left_out: u64, phases: usize) -> Option<Check> {
    (left_out > 0 && phases > 0).then(|| Check {
        name: format!("{rate}: phases verified"),
        state: CheckState::CouldNotRun,
        weight: Weight::Suspect,
        value: Some(left_out as f64),
        limit: Some(0.0),
        unit: "exchanges".into(),
        why: format!(
            "{left_out} exchanges are missing from the run's table, so that its {phases} measured phases cannot be verified separately and \
             have no figures: is the disk full, or too slow?"
        ),
    })
}

/// A failed check, if points begin before the first responses can arrive: the achieved rate is then below the offered
/// one, whatever the cache does, and no point counts for the clients supported.
pub fn warmup_short(rate: RequestRate, before: Duration, think_s: f64) -> Option<Check> {
    (before.as_secs_f64() < think_s).then(|| Check {
        name: format!("{rate}: warm-up covers the think time"),
        state: CheckState::Failed,
        weight: Weight::Suspect,
        value: Some(before.as_secs_f64()),
        limit: Some(think_s),
        unit: "s".into(),
        why: format!(
            "the load before the point, {}, is shorter than the mean think time of the origin, {think_s:.1} s: the point includes the \
             start, when less is achieved than offered; make points longer (--duration)",
            units::format_duration(before)
        ),
    })
}

/// A failed check, if the origin started by the plan's `[origin] command` has another workload or seed than the sweep,
/// which is known only after the load. `figures`: its counters.
pub fn origin_mismatch(
    rate: RequestRate,
    figures: &OriginFigures,
    workload: &CacheWorkload,
    seed: u64,
) -> Option<Check> {
    let mut differences = figures.digest.origin_differences(&workload.digest(seed));
    differences.extend((figures.seed != seed).then_some("seed"));
    (!differences.is_empty()).then(|| Check::without_figure(format!("{rate}: origin workload"), CheckState::Failed, Weight::Invalid, format!(
            "the origin started by [origin] command has another workload or seed than this sweep: {} differ; start it with \
             the same, or leave the command out",
            differences.join(", ")
        )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate() -> RequestRate {
        RequestRate::from_per_second(5.0).unwrap()
    }

    #[test]
    fn unknown_origin_counts_and_unverified_phases_are_reported() {
        let reached = Some(WorldFigures::default());
        assert_eq!(not_counted(rate(), true, reached), None, "a known zero");
        assert_eq!(not_counted(rate(), false, None), None);
        let check = not_counted(rate(), true, None).unwrap();
        assert_eq!((check.state, check.weight, check.value), (CheckState::CouldNotRun, Weight::Suspect, None));

        assert_eq!(phases_unverified(rate(), 0, 2), None);
        assert_eq!(phases_unverified(rate(), 7, 0), None, "without phases exchanges are verified during the run");
        let check = phases_unverified(rate(), 7, 2).unwrap();
        assert_eq!((check.state, check.value), (CheckState::CouldNotRun, Some(7.0)));
    }

    #[test]
    fn warm_up_shorter_than_the_think_time_is_suspect() {
        let second = Duration::from_secs(1);
        assert_eq!(warmup_short(rate(), second, 1.0), None);
        let check = warmup_short(rate(), second, 1.01).unwrap();
        assert_eq!((check.state, check.weight, check.value), (CheckState::Failed, Weight::Suspect, Some(1.0)));
    }

    #[test]
    fn origin_with_another_workload_or_seed_invalidates_the_point() {
        let workload = CacheWorkload::polymix(1);
        let origin_figures = OriginFigures { digest: workload.digest(7), seed: 7, ..OriginFigures::default() };
        assert_eq!(origin_mismatch(rate(), &origin_figures, &workload, 7), None);
        assert_eq!(
            origin_mismatch(rate(), &origin_figures, &CacheWorkload { recurrence: 0.1, ..workload.clone() }, 7),
            None
        );
        let check =
            origin_mismatch(rate(), &origin_figures, &CacheWorkload { think: None, ..workload.clone() }, 8).unwrap();
        assert_eq!((check.state, check.weight), (CheckState::Failed, Weight::Invalid));
        assert!(check.why.contains("think, seed differ"), "{}", check.why);
    }

    #[test]
    fn missing_request_ids_are_suspect_and_above_half_a_percent_invalid() {
        let dropped = |without_request_id| {
            request_ids_dropped(rate(), WorldFigures { requests: 1000, content_bytes: 0, without_request_id })
        };
        assert_eq!(dropped(0), None);
        for (without_request_id, weight) in [(1, Weight::Suspect), (5, Weight::Suspect), (6, Weight::Invalid)] {
            let check = dropped(without_request_id).unwrap();
            assert_eq!((check.state, check.weight), (CheckState::Failed, weight), "{without_request_id}");
            assert!(check.why.contains("X-Yamabiko-Request-Id"), "{}", check.why);
        }
    }
}
