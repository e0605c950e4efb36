//! Whether the figures of a cache benchmark can be believed.

use std::time::Duration;

use schema::document::{Check, Document, Weight};
use schema::{CacheFigures, Wrong};

use super::draft::Draft;
use crate::evidence::Evidence;

/// The checks of a cache benchmark; none for other runs.
pub(super) fn checks(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let Some(cache) = &document.cache else { return Vec::new() };
    let mut checks: Vec<Check> = cache.points.iter().map(|point| responses_correct(&point.figures)).collect();
    checks.extend(cache.points.iter().map(|point| forwards_request_ids(&point.figures)));
    checks.extend(cache.points.iter().map(|point| exchanges_verified(&point.figures)));
    checks.push(wall_clock_stable(evidence.wall_drift));
    checks
}

/// A cache that returns wrong responses is fast for the wrong reason: its hit ratio and its times are not those of a
/// working cache. Many reverse proxies answer a reload from their cache by default: that alone only casts doubt.
fn responses_correct(figures: &CacheFigures) -> Check {
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
    let check = Draft::new("cache_responses_correct", weight, "responses");
    if figures.answered == 0 && incorrect == 0 {
        return check.not_applicable("there is no response (see server_answers)");
    }
    check.at_most(
        incorrect as f64,
        0.0,
        "responses that a client must not get: object, version and every byte are compared with the request",
        &format!("clients got wrong responses ({}){example}", kinds.join(", ")),
    )
}

/// Largest share of responses without a request id before the run is invalid: half a percentage point, the intended
/// precision of hit ratios. A cache may request on its own occasionally, when it prefetches.
const WITHOUT_IDENTITY_MAX: f64 = 0.005;

/// A hit is a response that was generated for another request. A response without a request id is recognised by its
/// time only.
fn forwards_request_ids(figures: &CacheFigures) -> Check {
    let CacheFigures { without_identity, answered, .. } = *figures;
    let is_much = without_identity as f64 > answered as f64 * WITHOUT_IDENTITY_MAX;
    let weight = if is_much { Weight::Invalid } else { Weight::Suspect };
    let check = Draft::new("cache_forwards_request_ids", weight, "responses");
    if figures.answered == 0 && without_identity == 0 {
        return check.not_applicable("there is no response (see server_answers)");
    }
    check.at_most(
        without_identity as f64,
        0.0,
        "responses that the origin generated for a request without an id, and that may be hits",
        &format!(
            "the proxy does not forward X-Yamabiko-Request-Id: {without_identity} of {answered} responses were generated for a request without \
             an id. Hits are recognised by their times only, and uncertain hits do not count: let the proxy forward the \
             field"
        ),
    )
}

/// Unverified exchanges are in no figure.
fn exchanges_verified(figures: &CacheFigures) -> Check {
    Draft::new("cache_exchanges_verified", Weight::Invalid, "exchanges").at_most(
        figures.unverified as f64,
        0.0,
        "exchanges that arrived faster than they could be verified, and are in no figure of the cache",
        &format!(
            "{} exchanges arrived faster than they could be verified: they are in no count, and the figures of the others \
             may be wrong, because a response is verified by earlier ones; lower the rate, or free a core",
            figures.unverified
        ),
    )
}

/// Objects change and expire by the wall clock, at client and origin: a step of it makes fresh copies stale and stale
/// ones fresh.
fn wall_clock_stable(drift: Option<Duration>) -> Check {
    let check = Draft::new("wall_clock_stable", Weight::Suspect, "ns");
    match drift {
        None => check.could_not_run("the wall clock was not compared with the run's clock"),
        Some(drift) => check.at_most(
            drift.as_nanos() as f64,
            polymix::verifier::CLOCK_SLACK_MS as f64 * 1e6,
            "movement of the wall clock, by which objects expire, against the run's clock",
            "the wall clock was set during the run, and objects expire by it: stale responses and false misses may be \
             caused by the clock; repeat the run",
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
    fn one_wrong_cache_response_fails_the_check() {
        assert_eq!(responses_correct(&figures(&[])).state, CheckState::Ok);
        assert_eq!(
            responses_correct(&figures(&[(Wrong::FalseMiss, 500)])).state,
            CheckState::Ok,
            "a finite cache evicts"
        );
        for wrong in Wrong::ALL.into_iter().filter(|wrong| wrong.is_incorrect()) {
            let check = responses_correct(&figures(&[(Wrong::FalseMiss, 1), (wrong, 1)]));
            assert_eq!((check.state, check.value), (CheckState::Failed, Some(1.0)), "{wrong:?}");
            let weight = if wrong == Wrong::HitOnReload { Weight::Suspect } else { Weight::Invalid };
            assert_eq!(check.weight, weight, "{wrong:?}");
            assert!(check.why.contains(&format!("(1 {})", wrong.name().replace('_', " "))), "{}", check.why);
            assert!(check.why.contains(&format!("GET /{}: made for request 3", wrong.name())), "{}", check.why);
        }
        let both = responses_correct(&figures(&[(Wrong::HitOnReload, 9), (Wrong::Stale, 1)]));
        assert_eq!((both.weight, both.value), (Weight::Invalid, Some(10.0)));
        assert_eq!(responses_correct(&CacheFigures::default()).state, CheckState::NotApplicable);
    }

    #[test]
    fn cache_responses_without_request_id_are_reported() {
        let of = |without_identity| forwards_request_ids(&CacheFigures { without_identity, ..figures(&[]) });
        assert_eq!(of(0).state, CheckState::Ok);
        for (without_identity, weight) in [(1, Weight::Suspect), (5, Weight::Suspect), (6, Weight::Invalid)] {
            let check = of(without_identity);
            assert_eq!((check.state, check.weight), (CheckState::Failed, weight), "{without_identity}");
            assert!(check.why.contains("does not forward X-Yamabiko-Request-Id"), "{}", check.why);
        }
        assert_eq!(forwards_request_ids(&CacheFigures::default()).state, CheckState::NotApplicable);
    }

    #[test]
    fn unverified_cache_exchanges_make_the_run_invalid() {
        let of = |unverified| exchanges_verified(&CacheFigures { unverified, ..figures(&[]) });
        assert_eq!(of(0).state, CheckState::Ok);
        assert_eq!((of(1).state, of(1).weight), (CheckState::Failed, Weight::Invalid));
    }

    #[test]
    fn a_wall_clock_that_was_set_makes_a_cache_run_suspect() {
        assert_eq!(wall_clock_stable(Some(Duration::from_millis(500))).state, CheckState::Ok);
        assert_eq!(wall_clock_stable(Some(Duration::from_nanos(500_000_001))).state, CheckState::Failed);
        assert_eq!(wall_clock_stable(None).state, CheckState::CouldNotRun);
    }
}
