use proptest::prelude::*;

use super::*;
use crate::Rng;

const SECOND: Duration = Duration::from_secs(1);

fn goal() -> Goal {
    Goal {
        trial: SECOND,
        sum: SECOND,
        exceed_ratio: 0.5,
        width: 0.02,
        min: 1.0,
        max: f64::INFINITY,
        start: 100.0,
        ramp: 2.0,
        ramp_max: 2.0,
        whole: false,
    }
}

fn full(load: f64, good: bool) -> Trial {
    Trial { load, lasted: SECOND, full: true, good }
}

/// Result and number of trials of a search in a system with the given capacity.
fn search_result(goal: Goal, capacity: f64) -> (SearchResult, usize) {
    let mut search = Search::new(goal);
    while let Step::Try(load) = search.next() {
        search.add(full(load, load <= capacity));
        assert!(search.trials().len() < 1000, "the search does not end: {search:?}");
    }
    (search.result(), search.trials().len())
}

#[test]
fn a_load_limit_below_the_upper_bound_ends_the_search() {
    // The load 80 is good, 160 is too high, and the generator makes `cap` at most.
    let result_with = |cap: f64| {
        let mut search = Search::new(Goal { start: 80.0, ..goal() });
        search.add(full(80.0, true));
        search.add(full(160.0, false));
        search.cap(cap);
        while let Step::Try(load) = search.next() {
            assert!(load <= cap, "the search requests {load}, but the limit is {cap}");
            search.add(full(load, true));
            assert!(search.trials().len() < 100, "the search does not end: {search:?}");
        }
        search.result()
    };
    assert_eq!(result_with(105.0), SearchResult::NoUpper { lower: 105.0, why: Cap::Generator });
    // A limit just below the upper bound is within the width.
    assert!(matches!(result_with(159.0), SearchResult::Regular { .. }));
}

#[test]
fn search_steps_grow_from_a_distant_start() {
    for (capacity, first) in [(346.0, [165.0, 173.25, 191.0, 232.2, 343.1]), (80.0, [165.0, 157.1, 142.5, 117.3, 79.4])]
    {
        let mut search = Search::new(Goal { start: 165.0, ramp: 1.05, ..goal() });
        for expected in first {
            let Step::Try(load) = search.next() else { panic!("{search:?}") };
            assert!((load - expected).abs() < 0.1, "{load} instead of {expected}");
            search.add(full(load, load <= capacity));
        }
    }
    let of = |ramp_max| search_result(Goal { start: 165.0, ramp: 1.05, ramp_max, ..goal() }, 346.0);
    let ((result, trials), (_, by_small_steps)) = (of(2.0), of(1.05));
    assert!(matches!(result, SearchResult::Regular { lower, upper } if lower <= 346.0 && 346.0 < upper), "{result:?}");
    assert!(3 * trials <= 2 * by_small_steps, "{trials} and {by_small_steps}");
}

#[test]
fn one_long_trial_decides_if_one_is_configured() {
    assert_eq!(classify(&[], &goal()), Bound::Undecided);
    assert_eq!(classify(&[full(1.0, true)], &goal()), Bound::Lower);
    assert_eq!(classify(&[full(1.0, false)], &goal()), Bound::Upper);
    // A bad trial that ended early counts as a full bad trial.
    let early = Trial { lasted: SECOND / 10, ..full(1.0, false) };
    assert_eq!(classify(&[early], &goal()), Bound::Upper);
}

#[test]
fn a_majority_of_long_trials_decides_a_load() {
    let goal = Goal { sum: 5 * SECOND, ..goal() };
    let of = |outcomes: &[bool]| classify(&outcomes.iter().map(|&good| full(1.0, good)).collect::<Vec<_>>(), &goal);
    assert_eq!(of(&[true, true]), Bound::Undecided);
    assert_eq!(of(&[true, true, true]), Bound::Lower);
    assert_eq!(of(&[true, false, true, false]), Bound::Undecided);
    assert_eq!(of(&[true, false, true, false, true]), Bound::Lower);
    assert_eq!(of(&[false, false, false]), Bound::Upper);
}

#[test]
fn with_no_allowed_failures_one_bad_trial_rejects_the_load() {
    let goal = Goal { sum: 3 * SECOND, exceed_ratio: 0.0, ..goal() };
    assert_eq!(classify(&[full(1.0, true), full(1.0, true)], &goal), Bound::Undecided);
    assert_eq!(classify(&[full(1.0, true), full(1.0, false)], &goal), Bound::Upper);
    assert_eq!(classify(&[full(1.0, true); 3], &goal), Bound::Lower);
}

#[test]
fn short_trials_can_only_reject_a_load() {
    let short = |good| Trial { full: false, ..full(1.0, good) };
    assert_eq!(classify(&[short(true); 9], &goal()), Bound::Undecided);
    assert_eq!(classify(&[short(false)], &goal()), Bound::Upper);
    // With an exceed ratio of one half, one good short trial compensates one bad.
    assert_eq!(classify(&[short(false), short(true)], &goal()), Bound::Undecided);
    assert_eq!(classify(&[short(false), short(true), full(1.0, true)], &goal()), Bound::Lower);
}

#[test]
fn the_search_reports_its_limit_and_open_ends() {
    let capped = Goal { max: 150.0, ..goal() };
    assert_eq!(search_result(capped, 1e9).0, SearchResult::NoUpper { lower: 150.0, why: Cap::Max });
    assert_eq!(search_result(goal(), 0.5).0, SearchResult::NoLower { upper: 1.0 });
    let mut search = Search::new(goal());
    search.cap(120.0);
    while let Step::Try(load) = search.next() {
        search.add(full(load, true));
    }
    assert_eq!(search.result(), SearchResult::NoUpper { lower: 120.0, why: Cap::Generator });
    search.cap(0.5);
    assert_eq!(search.next(), Step::Done);
    assert_eq!(Search::new(goal()).result(), SearchResult::Open { lower: None, upper: None });
}

#[test]
fn the_lowest_rejected_load_is_the_upper_bound() {
    let mut search = Search::new(goal());
    for (load, good) in [(100.0, true), (200.0, true), (150.0, false), (120.0, true)] {
        search.add(full(load, good));
    }
    assert_eq!(search.bounds(), (Some(120.0), Some(150.0)));
}

#[test]
fn an_undecided_load_is_decided_while_it_can_change_the_result() {
    let mut search = Search::new(Goal { sum: 3 * SECOND, ..goal() });
    search.add(full(100.0, true));
    assert_eq!(search.next(), Step::Try(100.0));
    search.add(full(100.0, true));
    assert_eq!(search.next(), Step::Try(200.0));
    search.add(full(200.0, true));
    search.add(full(150.0, false));
    search.add(full(150.0, false));
    // The load 200 is above the upper bound, so it is not tried again.
    assert_ne!(search.next(), Step::Try(200.0));
}

#[test]
fn loads_in_users_are_whole_numbers() {
    for capacity in 1..400 {
        let goal = Goal { whole: true, max: 350.0, ..goal() };
        let (result, _) = search_result(goal, f64::from(capacity) + 0.5);
        match result {
            SearchResult::Regular { lower, upper } => {
                assert_eq!((lower.fract(), upper.fract()), (0.0, 0.0));
                assert!(lower <= f64::from(capacity) && upper > f64::from(capacity), "{capacity}: {lower} {upper}");
                assert!(upper - lower <= 1.0 || upper / lower <= 1.02, "{capacity}: {lower} {upper}");
            }
            SearchResult::NoUpper { lower, .. } => {
                assert!(capacity >= 350 && lower == 350.0, "{capacity}: {lower}")
            }
            other => panic!("{capacity}: {other:?}"),
        }
    }
}

proptest! {
    /// With a sharp capacity, the search finds a bracket within the width in few trials.
    #[test]
    fn a_sharp_capacity_is_bracketed_within_the_width(
        capacity in 1.5_f64..1e7,
        start in 1.0_f64..1e6,
        width in 0.001_f64..0.5,
        ramp in 1.05_f64..4.0,
        growth in 1.0_f64..3.0,
    ) {
        let ramp_max = ramp * growth;
        let (result, trials) = search_result(Goal { width, start, ramp, ramp_max, ..goal() }, capacity);
        let SearchResult::Regular { lower, upper } = result else { panic!("{result:?}") };
        prop_assert!(lower <= capacity && capacity < upper, "{lower} {capacity} {upper}");
        prop_assert!(upper / lower <= (1.0 + width) * (1.0 + 1e-6), "{lower} {upper}");
        let growing = (ramp_max.ln() / ramp.ln()).log2().ceil();
        let ramps = growing + ((capacity / start).ln().abs() / ramp_max.ln()).ceil() + 2.0;
        let halvings = (ramp_max.ln() / width.ln_1p()).log2().max(0.0).ceil() + 2.0;
        prop_assert!(trials as f64 <= ramps + halvings, "{trials} > {ramps} + {halvings}");
    }

    /// A load is decided exactly when no result of the remaining time can change the classification.
    #[test]
    fn a_load_is_decided_when_no_further_trial_can_change_it(
        outcomes in prop::collection::vec(any::<bool>(), 0..9),
        sum in 1_u32..9,
        tenths in 0_u32..10,
    ) {
        let goal = Goal { sum: sum * SECOND, exceed_ratio: f64::from(tenths) / 10.0, ..goal() };
        let trials: Vec<Trial> = outcomes.iter().map(|&good| full(1.0, good)).collect();
        let whole = trials.len().max(sum as usize);
        let bad = outcomes.iter().filter(|&&good| !good).count();
        // Every possible number of bad trials among the remaining ones.
        let verdicts: Vec<bool> =
            (0..=whole - trials.len()).map(|more| (bad + more) as f64 <= whole as f64 * goal.exceed_ratio + 1e-12).collect();
        let expected = match (verdicts.iter().all(|&good| good), verdicts.iter().any(|&good| good)) {
            (true, _) => Bound::Lower,
            (_, false) => Bound::Upper,
            _ => Bound::Undecided,
        };
        prop_assert_eq!(classify(&trials, &goal), expected);
    }

    /// With the same trials, a new search continues from the same state.
    #[test]
    fn a_search_is_resumed_from_its_trials(capacity in 2.0_f64..1e5, cut in 0_usize..20) {
        let mut search = Search::new(goal());
        while let Step::Try(load) = search.next() {
            search.add(full(load, load <= capacity));
        }
        let cut = cut.min(search.trials().len());
        let mut resumed = Search::new(goal());
        search.trials()[..cut].iter().for_each(|&trial| resumed.add(trial));
        while let Step::Try(load) = resumed.next() {
            resumed.add(full(load, load <= capacity));
        }
        prop_assert_eq!(resumed.trials(), search.trials());
    }
}

/// Near its capacity, trials of a real system are good or bad at random.
#[test]
fn noise_near_the_capacity_changes_the_result_little() {
    let mut near = 0;
    for seed in 0..1000 {
        let mut rng = Rng::new(seed, 1);
        let mut search = Search::new(goal());
        while let Step::Try(load) = search.next() {
            // The probability of a good trial is 1/2 at the capacity, 1 or 0 at a distance of 1 %.
            let headroom = (1234.0 - load) / 1234.0;
            let good = rng.uniform() < (0.5 + headroom / 0.02).clamp(0.0, 1.0);
            search.add(full(load, good));
            assert!(search.trials().len() < 100);
        }
        let SearchResult::Regular { lower, .. } = search.result() else { panic!() };
        near += usize::from((lower / 1234.0 - 1.0).abs() <= 0.03);
    }
    assert!(near >= 990, "{near} of 1000");
}
