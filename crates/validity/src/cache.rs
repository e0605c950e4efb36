//! Whether what a cache benchmark says of a cache may be believed.

use std::time::Duration;

use schema::document::{Check, Document, Weight};
use schema::{CacheFigures, Wrong};

use super::draft::Draft;
use crate::evidence::Evidence;

/// The checks of a cache benchmark; none without one.
pub(super) fn checks(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let Some(cache) = &document.cache else { return Vec::new() };
    let mut checks: Vec<Check> = cache.points.iter().map(|point| answers_right(&point.figures)).collect();
    checks.extend(cache.points.iter().map(|point| passes_asks_on(&point.figures)));
    checks.extend(cache.points.iter().map(|point| exchanges_judged(&point.figures)));
    checks.push(wall_clock_stable(evidence.wall_drift));
    checks
}

/// A cache that hands out what it must not is fast for the wrong reason: neither its hit ratio nor its times are those of a
/// cache. Many reverse proxies answer a reload from their copy unless told otherwise: that alone casts doubt, no more.
fn answers_right(figures: &CacheFigures) -> Check {
    let incorrect = figures.incorrect();
    let reloads = figures.wrong.get(Wrong::HitOnReload.name()).copied().unwrap_or(0);
    let weight = if incorrect > reloads { Weight::Invalid } else { Weight::Suspect };
    let kinds: Vec<String> = Wrong::ALL
        .into_iter()
        .filter(|wrong| wrong.is_incorrect())
        .filter_map(|wrong| Some(format!("{} {}", figures.wrong.get(wrong.name())?, wrong.name().replace('_', " "))))
        .collect();
    let example = figures.examples.iter().find(|example| example.kind != Wrong::FalseMiss.name());
    let example = example.map(|one| format!("; the first: {}: {}", one.request, one.why)).unwrap_or_default();
    let check = Draft::new("cache_responses_correct", weight, "answers");
    if figures.answered == 0 && incorrect == 0 {
        return check.not_applicable("not one answer came, as server_answers says");
    }
    check.at_most(
        incorrect as f64,
        0.0,
        "answers that a client must not get: every object, version and byte was held against the one asked for",
        &format!("clients got answers that they must not get ({}){example}", kinds.join(", ")),
    )
}

/// Of the answers so many may name nobody before the run is invalid: half a point, as near as hit ratios are to be. A cache
/// may ask in its own name now and then, when it fetches ahead.
const UNNAMED_MAX: f64 = 0.005;

/// A hit is an answer that was made for another. One that was made for nobody is told by its moment alone.
fn passes_asks_on(figures: &CacheFigures) -> Check {
    let CacheFigures { without_identity, answered, .. } = *figures;
    let is_much = without_identity as f64 > answered as f64 * UNNAMED_MAX;
    let weight = if is_much { Weight::Invalid } else { Weight::Suspect };
    let check = Draft::new("cache_forwards_request_ids", weight, "answers");
    if figures.answered == 0 && without_identity == 0 {
        return check.not_applicable("not one answer came, as server_answers says");
    }
    check.at_most(
        without_identity as f64,
        0.0,
        "answers that the origin made for a request without an ask, and that may or may not be hits",
        &format!(
            "the proxy does not pass X-Yamabiko-Request-Id on: {without_identity} of {answered} answers were made for a request that named \
             no ask. Hits are told by the moment alone, and those that may be none count as none: let the proxy pass the \
             field on"
        ),
    )
}

/// What nobody judged is in no figure.
fn exchanges_judged(figures: &CacheFigures) -> Check {
    Draft::new("cache_exchanges_verified", Weight::Invalid, "exchanges").at_most(
        figures.unverified as f64,
        0.0,
        "exchanges that came faster than they could be judged, and are in no count of the cache's figures",
        &format!(
            "{} exchanges came faster than they could be judged: they are in no count, and what the others say of the cache \
             may be wrong, since an answer is judged by those before it; lower the rate, or free a core",
            figures.unverified
        ),
    )
}

/// Objects change and expire by the wall clock, at both ends: a step of it makes fresh copies stale and stale ones fresh.
fn wall_clock_stable(drift: Option<Duration>) -> Check {
    let check = Draft::new("wall_clock_stable", Weight::Suspect, "ns");
    match drift {
        None => check.could_not_run("the wall clock was not compared with the run's own"),
        Some(drift) => check.at_most(
            drift.as_nanos() as f64,
            polymix::judge::CLOCK_SLACK_MS as f64 * 1e6,
            "how far the wall clock, by which objects expire, moved against the run's own",
            "the wall clock was set while the run went, and objects expire by it: stale answers and false misses may be \
             the clock's; repeat the run",
        ),
    }
}

#[cfg(test)]
mod tests {
    use schema::{CheckState, WrongExample};

    use super::*;

    fn figures(wrong: &[(Wrong, u64)]) -> CacheFigures {
        let example = |&(wrong, _): &(Wrong, u64)| WrongExample {
            kind: wrong.name().into(),
            request: format!("GET /{}", wrong.name()),
            sequence: 1,
            why: "made for request 3".into(),
        };
        CacheFigures {
            answered: 1000,
            wrong: wrong.iter().map(|&(wrong, count)| (wrong.name().to_owned(), count)).collect(),
            examples: wrong.iter().map(example).collect(),
            ..CacheFigures::default()
        }
    }

    #[test]
    fn one_wrong_answer_is_one_too_many() {
        assert_eq!(answers_right(&figures(&[])).state, CheckState::Ok);
        assert_eq!(answers_right(&figures(&[(Wrong::FalseMiss, 500)])).state, CheckState::Ok, "a finite cache evicts");
        for wrong in Wrong::ALL.into_iter().filter(|wrong| wrong.is_incorrect()) {
            let check = answers_right(&figures(&[(Wrong::FalseMiss, 1), (wrong, 1)]));
            assert_eq!((check.state, check.value), (CheckState::Failed, Some(1.0)), "{wrong:?}");
            let weight = if wrong == Wrong::HitOnReload { Weight::Suspect } else { Weight::Invalid };
            assert_eq!(check.weight, weight, "{wrong:?}");
            assert!(check.why.contains(&format!("(1 {})", wrong.name().replace('_', " "))), "{}", check.why);
            assert!(check.why.contains(&format!("GET /{}: made for request 3", wrong.name())), "{}", check.why);
        }
        let both = answers_right(&figures(&[(Wrong::HitOnReload, 9), (Wrong::Stale, 1)]));
        assert_eq!((both.weight, both.value), (Weight::Invalid, Some(10.0)));
        assert_eq!(answers_right(&CacheFigures::default()).state, CheckState::NotApplicable);
    }

    #[test]
    fn answers_that_name_nobody_are_told() {
        let of = |without_identity| passes_asks_on(&CacheFigures { without_identity, ..figures(&[]) });
        assert_eq!(of(0).state, CheckState::Ok);
        for (without_identity, weight) in [(1, Weight::Suspect), (5, Weight::Suspect), (6, Weight::Invalid)] {
            let check = of(without_identity);
            assert_eq!((check.state, check.weight), (CheckState::Failed, weight), "{without_identity}");
            assert!(check.why.contains("does not pass X-Yamabiko-Request-Id on"), "{}", check.why);
        }
        assert_eq!(passes_asks_on(&CacheFigures::default()).state, CheckState::NotApplicable);
    }

    #[test]
    fn what_nobody_judged_makes_the_run_invalid() {
        let of = |unverified| exchanges_judged(&CacheFigures { unverified, ..figures(&[]) });
        assert_eq!(of(0).state, CheckState::Ok);
        assert_eq!((of(1).state, of(1).weight), (CheckState::Failed, Weight::Invalid));
    }

    #[test]
    fn a_wall_clock_that_was_set_casts_doubt() {
        assert_eq!(wall_clock_stable(Some(Duration::from_millis(500))).state, CheckState::Ok);
        assert_eq!(wall_clock_stable(Some(Duration::from_nanos(500_000_001))).state, CheckState::Failed);
        assert_eq!(wall_clock_stable(None).state, CheckState::CouldNotRun);
    }
}
