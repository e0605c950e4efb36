//! The verdict of several runs together: that of the worst run on which a figure depends.
//!
//! ```text
//!   runs with their checks ------------> of_run, each by name; of_runs, by check --.
//!   parts whose verdict only is stored -------------------------------> of_parts --+--> checks of the summary -->
//!   Validity::from_checks
//!   checks with the same result in many runs --------------------------> merge_repeated --'
//! ```
//!
//! Every summary of an experiment uses these functions, so the verdict of its checks is that of the worst part. A part
//! that was repeated, or is left out for another reason, is not passed if no figure depends on it; the caller counts
//! and reports it.

use std::collections::BTreeMap;

use schema::document::{Check, CheckState, Validity, Verdict, Weight};

/// The checks of one run: those that are not ok, and one check for all others.
pub fn of_run(name: &str, validity: &Validity) -> Vec<Check> {
    let mut checks: Vec<Check> = doubts(validity)
        .map(|check| Check { name: format!("{name}: {}", check.name), ..check.clone() })
        .chain(unexplained(validity).map(|check| Check { name: format!("{name}: {}", check.name), ..check }))
        .collect();
    if checks.is_empty() {
        let held = validity.checks.iter().filter(|check| check.state == CheckState::Ok).count();
        checks.push(Check {
            name: format!("{name}: its own checks"),
            state: CheckState::Ok,
            weight: Weight::Invalid,
            value: Some(held as f64),
            limit: None,
            unit: "checks".into(),
            why: "every check of the run that applies passed".into(),
        });
    }
    checks
}

/// The checks of many runs in a few lines: each that failed in some runs, with their number and the first reason, and
/// one for checks that passed in all. Without any run it could not run.
pub fn of_runs<'a>(runs: impl Iterator<Item = (&'a str, &'a Validity)>) -> Vec<Check> {
    let mut of_all = 0;
    let mut by_name: BTreeMap<(String, Verdict), (Vec<&str>, Check)> = BTreeMap::new();
    for (run, validity) in runs {
        of_all += 1;
        for check in doubts(validity).cloned().chain(unexplained(validity)) {
            let key = (check.name.clone(), verdict_of(&check));
            by_name.entry(key).or_insert_with(|| (Vec::new(), check)).0.push(run);
        }
    }
    if by_name.is_empty() {
        let (state, why) = match of_all {
            0 => (CheckState::CouldNotRun, "there is no counted run"),
            _ => (CheckState::Ok, "every check that applies passed in all counted runs"),
        };
        return vec![Check {
            name: "runs_valid".into(),
            state,
            weight: Weight::Invalid,
            value: Some(f64::from(of_all)),
            limit: None,
            unit: "runs".into(),
            why: why.into(),
        }];
    }
    let summary = by_name.into_values().map(|(runs, first)| {
        let named = match &runs[..] {
            [some @ .., last] if some.len() < 4 => [some, &[*last]].concat().join(", "),
            _ => format!("{}, {} and {} more", runs[0], runs[1], runs.len() - 2),
        };
        Check {
            why: format!("in {} of {of_all} runs ({named}): {}", runs.len(), first.why),
            name: format!("runs: {}", first.name),
            ..first
        }
    });
    summary.collect()
}

/// A check that could not run, if there is no check: a summary without any part, such as an interrupted experiment,
/// must not be valid.
pub fn nothing_measured(checks: &[Check]) -> Option<Check> {
    checks.is_empty().then(|| of_runs(std::iter::empty())).and_then(|mut none| none.pop())
}

/// A part of which only the verdict and its failed checks are stored.
#[derive(Clone, Copy, Debug)]
pub struct JudgedPart<'a> {
    /// The name in documents; an unknown name counts as the worst verdict.
    pub verdict: &'a str,
    /// Names of the failed checks.
    pub doubts: &'a [String],
}

/// One check of all parts on which figures depend, such as `loads`; `left_out`: number of other parts.
pub fn of_parts<'a>(name: &str, what: &str, parts: impl Iterator<Item = JudgedPart<'a>>, left_out: usize) -> Check {
    let (mut all, mut doubtful, mut worst, mut names) = (0u32, 0u32, Verdict::Valid, Vec::new());
    for part in parts {
        all += 1;
        let verdict = named(part.verdict);
        if verdict != Verdict::Valid {
            doubtful += 1;
            names.extend(part.doubts.iter().map(String::as_str));
        }
        worst = worst.max(verdict);
    }
    names.sort_unstable();
    names.dedup();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let why = match doubtful {
        0 => format!("{what} that figures depend on: all {all} are valid"),
        some => format!("{what} that figures depend on and that are not valid, {some} of {all}{names}"),
    };
    Check {
        name: name.into(),
        state: if worst == Verdict::Valid { CheckState::Ok } else { CheckState::Failed },
        weight: if worst == Verdict::Invalid { Weight::Invalid } else { Weight::Suspect },
        value: Some(f64::from(doubtful)),
        limit: Some(0.0),
        unit: what.into(),
        why: if left_out == 0 { why } else { format!("{why}; {left_out} more are left out of every figure") },
    }
}

/// If the same check fails with the same reason in three runs or more it appears once, with the worst of them: each
/// run's own document has its own.
pub fn merge_repeated(checks: Vec<Check>) -> Vec<Check> {
    let parts = |check: &Check| match check.name.rsplit_once(": ") {
        Some((run, name)) => (run.to_owned(), name.to_owned()),
        None => (String::new(), check.name.clone()),
    };
    let is_same_check = |a: &Check, b: &Check| {
        parts(a).1 == parts(b).1
            && (a.state, a.weight, a.limit, &a.unit, &a.why) == (b.state, b.weight, b.limit, &b.unit, &b.why)
    };
    let excess = |check: &Check| check.value.zip(check.limit).map_or(0.0, |(value, limit)| (value - limit).abs());
    let mut merged: Vec<Check> = Vec::with_capacity(checks.len());
    for check in &checks {
        let group: Vec<&Check> = checks.iter().filter(|other| is_same_check(check, other)).collect();
        if matches!(check.state, CheckState::Ok | CheckState::NotApplicable) || group.len() < FOLDED_RUNS_MIN {
            merged.push(check.clone());
        } else if std::ptr::eq(group[0], check) {
            let worst = group.iter().copied().max_by(|a, b| excess(a).total_cmp(&excess(b))).unwrap_or(check);
            let (run, name) = parts(worst);
            merged.push(Check { name: format!("{} runs, worst in {run}: {name}", group.len()), ..worst.clone() });
        }
    }
    merged
}

/// The verdict of this name.
pub fn named(verdict: &str) -> Verdict {
    let known = [Verdict::Valid, Verdict::Suspect].into_iter().find(|known| known.name() == verdict);
    known.unwrap_or(Verdict::Invalid)
}

/// Checks that failed, or could not run.
pub fn doubts(validity: &Validity) -> impl Iterator<Item = &Check> {
    validity.checks.iter().filter(|check| verdict_of(check) != Verdict::Valid)
}

/// The verdict of a single check.
fn verdict_of(check: &Check) -> Verdict {
    Validity::from_checks(vec![check.clone()]).verdict
}

/// The verdict of a run may be worse than its checks, for example of another version; the worse one counts.
fn unexplained(validity: &Validity) -> Option<Check> {
    let verdict = validity.verdict;
    let by_checks = doubts(validity).map(verdict_of).max().unwrap_or(Verdict::Valid);
    (by_checks < verdict).then(|| Check {
        name: "verdict".into(),
        state: CheckState::Failed,
        weight: if verdict == Verdict::Invalid { Weight::Invalid } else { Weight::Suspect },
        value: None,
        limit: None,
        unit: String::new(),
        why: format!("the verdict of the run is {}, which no check in its document explains", verdict.name()),
    })
}

/// Number of runs from which one line represents all runs with the same check and reason.
const FOLDED_RUNS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, state: CheckState, weight: Weight, why: &str) -> Check {
        Check {
            name: name.into(),
            state,
            weight,
            value: Some(2.0),
            limit: Some(1.0),
            unit: "%".into(),
            why: why.into(),
        }
    }

    fn failing(name: &str, state: CheckState, weight: Weight) -> Validity {
        Validity::from_checks(vec![check(name, state, weight, "too late")])
    }

    #[test]
    fn verdicts_of_runs_are_carried_over_to_the_summary() {
        let passed = failing("a", CheckState::Ok, Weight::Invalid);
        let late = failing("generator_on_time", CheckState::Failed, Weight::Invalid);
        let blind = failing("wire", CheckState::CouldNotRun, Weight::Invalid);
        let verdict =
            |of: &[&Validity]| Validity::from_checks(of_runs(of.iter().map(|&validity| ("x", validity)))).verdict;
        assert_eq!(verdict(&[&passed, &passed]), Verdict::Valid);
        assert_eq!(verdict(&[&passed, &blind]), Verdict::Suspect);
        assert_eq!(verdict(&[&passed, &blind, &late]), Verdict::Invalid);
        let summary = of_runs([("A", &late), ("B", &passed), ("C", &late)].into_iter());
        assert_eq!(summary.len(), 1);
        assert_eq!(
            (summary[0].name.as_str(), summary[0].why.as_str()),
            ("runs: generator_on_time", "in 2 of 3 runs (A, C): too late")
        );
        let many = vec![("x", &late); 9];
        assert_eq!(of_runs(many.into_iter())[0].why, "in 9 of 9 runs (x, x and 7 more): too late");
        // The same check with two weights counts with the heavier one.
        let lighter = failing("generator_on_time", CheckState::Failed, Weight::Suspect);
        assert_eq!(verdict(&[&lighter, &late]), Verdict::Invalid);
        assert_eq!(verdict(&[]), Verdict::Suspect, "nothing was measured");
    }

    #[test]
    fn the_same_failed_check_of_three_runs_appears_once_with_the_worst() {
        let failed = |name: &str, value: f64, why: &str| Check {
            value: Some(value),
            ..check(name, CheckState::Failed, Weight::Suspect, why)
        };
        let two = vec![failed("a: late", 2.0, "busy"), failed("b: late", 3.0, "busy")];
        assert_eq!(merge_repeated(two.clone()), two);
        let mut more = two;
        more.push(failed("c: late", 2.5, "another reason"));
        more.push(Check { value: Some(9.0), ..check("a: its own checks", CheckState::Ok, Weight::Suspect, "held") });
        more.push(failed("forwarding, small: x: late", 1.5, "busy"));
        let names: Vec<(String, Option<f64>)> =
            merge_repeated(more).into_iter().map(|check| (check.name, check.value)).collect();
        let expected = [("3 runs, worst in b: late", 3.0), ("c: late", 2.5), ("a: its own checks", 9.0)];
        assert_eq!(names, expected.map(|(name, value)| (name.to_owned(), Some(value))));
    }

    #[test]
    fn parts_are_counted_and_named() {
        let late = ["generator_on_time".to_owned()];
        let (good, bad) =
            (JudgedPart { verdict: "valid", doubts: &[] }, JudgedPart { verdict: "suspect", doubts: &late });
        let all = of_parts("loads_valid", "loads", [good, good].into_iter(), 1);
        assert_eq!((all.state, all.value), (CheckState::Ok, Some(0.0)));
        assert_eq!(all.why, "loads that figures depend on: all 2 are valid; 1 more are left out of every figure");
        let some = of_parts("loads_valid", "loads", [good, bad].into_iter(), 0);
        assert_eq!((some.state, some.weight, some.value), (CheckState::Failed, Weight::Suspect, Some(1.0)));
        assert_eq!(some.why, "loads that figures depend on and that are not valid, 1 of 2: generator_on_time");
        let worst = of_parts("x", "loads", [bad, JudgedPart { verdict: "invalid", doubts: &[] }].into_iter(), 0);
        assert_eq!(worst.weight, Weight::Invalid);
        assert_eq!(named("good"), Verdict::Invalid, "an unknown verdict counts as invalid");
    }

    fn validities() -> impl Strategy<Value = Vec<Validity>> {
        let states = prop::sample::select(vec![
            CheckState::Ok,
            CheckState::Failed,
            CheckState::NotApplicable,
            CheckState::CouldNotRun,
        ]);
        let weights = prop::sample::select(vec![Weight::Suspect, Weight::Invalid]);
        let one =
            ("[ab]", states, weights, "[xy]").prop_map(|(name, state, weight, why)| check(&name, state, weight, &why));
        let verdicts = prop::sample::select(vec![Verdict::Valid, Verdict::Suspect, Verdict::Invalid]);
        let run =
            (prop::collection::vec(one, 0..4), prop::option::weighted(0.2, verdicts)).prop_map(|(checks, worse)| {
                let summary = Validity::from_checks(checks);
                // A document's verdict may be worse than its checks.
                Validity { verdict: worse.map_or(summary.verdict, |worse| worse.max(summary.verdict)), ..summary }
            });
        prop::collection::vec(run, 1..8)
    }

    proptest! {
        #[test]
        fn no_summary_is_better_than_its_worst_part(runs in validities()) {
            let worst = runs.iter().map(|run| run.verdict).max().unwrap();
            let verdict = |checks: Vec<Check>| Validity::from_checks(checks).verdict;
            let named: Vec<(String, &Validity)> = runs.iter().enumerate().map(|(n, run)| (format!("run {n}"), run)).collect();
            let each: Vec<Check> = named.iter().flat_map(|(name, run)| of_run(name, run)).collect();
            prop_assert_eq!(verdict(each.clone()), worst);
            prop_assert_eq!(verdict(merge_repeated(each)), worst);
            prop_assert_eq!(verdict(of_runs(named.iter().map(|(name, run)| (name.as_str(), *run)))), worst);
            let parts = runs.iter().map(|run| JudgedPart { verdict: run.verdict.name(), doubts: &[] });
            prop_assert_eq!(verdict(vec![of_parts("x", "runs", parts, 3)]), worst);
        }
    }
}
