//! What a point does not know, said by checks: nothing of it may look like a zero.

use std::time::Duration;

use polymix::origin_figures::WorldFigures;
use polymix::{CacheWorkload, OriginFigures};
use schema::document::{Check, CheckState, Weight};
use units::RequestRate;

/// Of the requests that reach the origin so many may have lost their ask before the point is invalid: half a point, as near
/// as hit ratios are to be. A cache may ask in its own name now and then, when it fetches ahead.
const WITHOUT_ASK_MAX: f64 = 0.005;

/// A check that could not run, where an origin was there to be asked and what reached it is not known. `was_asked`: one was
/// there.
pub fn not_counted(rate: RequestRate, was_asked: bool, reached: Option<WorldFigures>) -> Option<Check> {
    (was_asked && reached.is_none()).then(|| Check::without_figure(format!("{rate}: origin counted"), CheckState::CouldNotRun, Weight::Suspect, "what reached the origin is not known, and neither is what the cache saved: it did not answer after the point, was \
              started again meanwhile, or was asked for more worlds than it counts"
            ))
}

/// A check that failed, if requests reached the origin without the name of their ask. What is made for nobody is told from
/// a hit by its moment alone.
pub fn asks_dropped(rate: RequestRate, reached: WorldFigures) -> Option<Check> {
    let WorldFigures { requests, without_request_id, .. } = reached;
    let limit = requests as f64 * WITHOUT_ASK_MAX;
    (without_request_id > 0).then(|| Check {
        name: format!("{rate}: asks reached the origin"),
        state: CheckState::Failed,
        weight: if without_request_id as f64 > limit { Weight::Invalid } else { Weight::Suspect },
        value: Some(without_request_id as f64),
        limit: Some(0.0),
        unit: "requests".into(),
        why: format!(
            "the proxy does not pass X-Yamabiko-Request-Id on: of {requests} requests that reached the origin {without_request_id} had lost it, \
             so that their answers name nobody, and hits are told by the moment alone"
        ),
    })
}

/// A check that could not run, if phases were to be judged by themselves and not every exchange is in the run's table.
/// `left_out`: how many are not. `phases`: how many measured phases have no figures for it.
pub fn phases_unjudged(rate: RequestRate, left_out: u64, phases: usize) -> Option<Check> {
    (left_out > 0 && phases > 0).then(|| Check {
        name: format!("{rate}: phases judged"),
        state: CheckState::CouldNotRun,
        weight: Weight::Suspect,
        value: Some(left_out as f64),
        limit: Some(0.0),
        unit: "exchanges".into(),
        why: format!(
            "{left_out} exchanges are not in the run's table, so that its {phases} measured phases cannot be judged one by one, and \
             have no figures: is the disk full, or too slow?"
        ),
    })
}

/// A check that failed, if points begin before the first answers have come: less is carried than offered then, whatever the cache does, and no
/// point counts towards seats.
pub fn warmup_short(rate: RequestRate, before: Duration, think_s: f64) -> Option<Check> {
    (before.as_secs_f64() < think_s).then(|| Check {
        name: format!("{rate}: warm-up covers the think time"),
        state: CheckState::Failed,
        weight: Weight::Suspect,
        value: Some(before.as_secs_f64()),
        limit: Some(think_s),
        unit: "s".into(),
        why: format!(
            "the load before the point, {}, is shorter than the origin thinks, {think_s:.1} s in the mean: what is measured is the \
             beginning, in which less is carried than offered; make points longer (--duration)",
            units::format_duration(before)
        ),
    })
}

/// A check that failed, if an origin that the lab started by the plan's own command is another than the sweep's: it cannot be
/// asked before the load. `said`: what it says of itself.
pub fn another_origin(rate: RequestRate, said: &OriginFigures, workload: &CacheWorkload, seed: u64) -> Option<Check> {
    let mut differences = said.digest.origin_differences(&workload.digest(seed));
    differences.extend((said.seed != seed).then_some("seed"));
    (!differences.is_empty()).then(|| Check::without_figure(format!("{rate}: the origin has this workload"), CheckState::Failed, Weight::Invalid, format!(
            "the origin that [origin] command started answers by another workload or seed than this sweep's: {} differ; start it with \
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
    fn what_is_not_known_is_said() {
        let reached = Some(WorldFigures::default());
        assert_eq!(not_counted(rate(), true, reached), None, "nothing, and that is known");
        assert_eq!(not_counted(rate(), false, None), None);
        let check = not_counted(rate(), true, None).unwrap();
        assert_eq!((check.state, check.weight, check.value), (CheckState::CouldNotRun, Weight::Suspect, None));

        assert_eq!(phases_unjudged(rate(), 0, 2), None);
        assert_eq!(phases_unjudged(rate(), 7, 0), None, "one without phases is judged as it goes");
        let check = phases_unjudged(rate(), 7, 2).unwrap();
        assert_eq!((check.state, check.value), (CheckState::CouldNotRun, Some(7.0)));
    }

    #[test]
    fn a_point_that_begins_before_the_first_answers_is_doubtful() {
        let second = Duration::from_secs(1);
        assert_eq!(warmup_short(rate(), second, 1.0), None);
        let check = warmup_short(rate(), second, 1.01).unwrap();
        assert_eq!((check.state, check.weight, check.value), (CheckState::Failed, Weight::Suspect, Some(1.0)));
    }

    #[test]
    fn an_origin_of_another_mix_spoils_a_point() {
        let workload = CacheWorkload::polymix(1);
        let said = OriginFigures { digest: workload.digest(7), seed: 7, ..OriginFigures::default() };
        assert_eq!(another_origin(rate(), &said, &workload, 7), None);
        assert_eq!(another_origin(rate(), &said, &CacheWorkload { recurrence: 0.1, ..workload.clone() }, 7), None);
        let check = another_origin(rate(), &said, &CacheWorkload { think: None, ..workload.clone() }, 8).unwrap();
        assert_eq!((check.state, check.weight), (CheckState::Failed, Weight::Invalid));
        assert!(check.why.contains("think, seed differ"), "{}", check.why);
    }

    #[test]
    fn asks_that_were_lost_spoil_a_point() {
        let dropped = |without_request_id| {
            asks_dropped(rate(), WorldFigures { requests: 1000, content_bytes: 0, without_request_id })
        };
        assert_eq!(dropped(0), None);
        for (without_request_id, weight) in [(1, Weight::Suspect), (5, Weight::Suspect), (6, Weight::Invalid)] {
            let check = dropped(without_request_id).unwrap();
            assert_eq!((check.state, check.weight), (CheckState::Failed, weight), "{without_request_id}");
            assert!(check.why.contains("X-Yamabiko-Request-Id"), "{}", check.why);
        }
    }
}
