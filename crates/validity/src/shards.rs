//! Checks of a load whose shards were made on several machines and merged: whether all of them are there, and whether
//! each can be believed.

use std::time::Duration;

use schema::document::{Check, Verdict, Weight};

use super::draft::Draft;

/// Gauges and seconds of two machines are added by their times: with a larger difference of the clocks, a second of the
/// sum is no longer a second.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_millis(100);
/// In a short phase the difference must also be below this share of it.
const CLOCK_DIFFERENCE_SHARE: u32 = 100;
/// Most shards in a message.
const NAMED_SHARDS_MAX: usize = 8;

/// What the checks of the shards compare.
#[derive(Clone, Debug, Default)]
pub struct ShardsEvidence {
    /// Number of shards of the load.
    pub count: u32,
    /// Missing shards, as text such as `3/8`.
    pub missing: Vec<String>,
    /// Whether missing shards are accepted (`--allow-missing`).
    pub allow_missing: bool,
    /// The shards with a result.
    pub shards: Vec<ShardEvidence>,
    /// The largest difference between the clocks of two machines; `None` if the error of one was not measured.
    pub clock_difference: Option<Duration>,
    /// Requests that all of them offered in the measured phase.
    pub offered: u64,
    /// Length of the measured phase.
    pub phase: Duration,
    /// Whether the phase of each shard ends by the schedule, and not by its own number of requests.
    pub ends_by_schedule: bool,
}

/// One shard with a result.
#[derive(Clone, Debug)]
pub struct ShardEvidence {
    /// Its name, such as `3/8`.
    pub name: String,
    /// The verdict of its own checks.
    pub verdict: Verdict,
    /// Names of its checks that failed or could not run.
    pub checks: Vec<String>,
    /// Arrivals of the whole schedule in its measured phase; `None` if an arrival is not one request.
    pub arrivals_of_all: Option<u64>,
    /// How much earlier than that of the last shard its measured phase ended.
    pub ended_early: Duration,
}

/// All checks of the shards, in the order in which they are shown.
pub fn shard_checks(evidence: &ShardsEvidence) -> Vec<Check> {
    vec![complete(evidence), valid(evidence), ended_together(evidence), cover_schedule(evidence), aligned(evidence)]
}

fn complete(evidence: &ShardsEvidence) -> Check {
    let weight = if evidence.allow_missing { Weight::Suspect } else { Weight::Invalid };
    let missing = &evidence.missing;
    Draft::new("shards_complete", weight, "shards").at_most(
        missing.len() as f64,
        0.0,
        &format!("missing shards of {}", evidence.count),
        &format!(
            "{} of {} shards have no result ({}): the load was smaller than the plan's by their part, and the figures are \
             those of the others",
            missing.len(),
            evidence.count,
            named(missing)
        ),
    )
}

fn valid(evidence: &ShardsEvidence) -> Check {
    let unwell: Vec<&ShardEvidence> = evidence.shards.iter().filter(|shard| shard.verdict != Verdict::Valid).collect();
    let is_invalid = unwell.iter().any(|shard| shard.verdict == Verdict::Invalid);
    let weight = if is_invalid { Weight::Invalid } else { Weight::Suspect };
    let texts: Vec<String> = unwell
        .iter()
        .map(|shard| format!("{} is {}: {}", shard.name, shard.verdict.name(), shard.checks.join(", ")))
        .collect();
    Draft::new("shards_valid", weight, "shards").at_most(
        unwell.len() as f64,
        0.0,
        "shards that are not valid by their own checks",
        &format!(
            "the figures of the whole include those of shards that are not valid ({}): see their own runs",
            texts.iter().take(NAMED_SHARDS_MAX).cloned().collect::<Vec<_>>().join("; ") + more(texts.len())
        ),
    )
}

fn ended_together(evidence: &ShardsEvidence) -> Check {
    let check = Draft::new("shards_ended_together", Weight::Invalid, "ns");
    if !evidence.ends_by_schedule {
        return check.not_applicable("each shard of a closed loop ends after its share of the requests");
    }
    let early: Vec<String> =
        evidence.shards.iter().filter(|shard| !shard.ended_early.is_zero()).map(|shard| shard.name.clone()).collect();
    let longest = evidence.shards.iter().map(|shard| shard.ended_early).max().unwrap_or_default();
    check.at_most(
        longest.as_nanos() as f64,
        0.0,
        "time by which a shard's measured phase ended before that of the last shard",
        &format!(
            "shards ended early ({}): they were interrupted or gave up, and the load was smaller than the plan's from then on",
            named(&early)
        ),
    )
}

/// Every shard draws the whole schedule, so that each knows how many arrivals all shards together must have made.
fn cover_schedule(evidence: &ShardsEvidence) -> Check {
    let check = Draft::new("shards_cover_schedule", Weight::Invalid, "requests");
    if !evidence.missing.is_empty() {
        return check.not_applicable("shards are missing (see shards_complete)");
    }
    if evidence.shards.iter().any(|shard| !shard.ended_early.is_zero()) {
        return check.not_applicable("shards ended early (see shards_ended_together)");
    }
    let Some(arrivals) = evidence.shards.iter().map(|shard| shard.arrivals_of_all).collect::<Option<Vec<u64>>>() else {
        return check.not_applicable("requests follow from responses, so the schedule does not say how many there are");
    };
    let farthest = arrivals.iter().map(|arrivals| arrivals.abs_diff(evidence.offered)).max().unwrap_or(0);
    check.at_most(
        farthest as f64,
        0.0,
        "arrivals of the whole schedule less requests that the shards offered",
        "the shards together did not offer each arrival of the schedule once: their schedules differ",
    )
}

/// The only times of two machines that are compared are those by which gauges and seconds are added.
fn aligned(evidence: &ShardsEvidence) -> Check {
    let check = Draft::new("shards_aligned", Weight::Suspect, "ns");
    let Some(difference) = evidence.clock_difference else {
        return check.could_not_run(
            "the error of a machine's wall clock is unknown, so gauges, seconds and Little's law add values of different \
             times; response times are each of one machine. Synchronise the clocks, by chrony for instance",
        );
    };
    let limit = CLOCK_DIFFERENCE_MAX.min(evidence.phase / CLOCK_DIFFERENCE_SHARE);
    check.at_most(
        difference.as_nanos() as f64,
        limit.as_nanos() as f64,
        "largest difference between the clocks of two machines, by which gauges and seconds were added",
        "the clocks of two machines may differ by so much that gauges, seconds and Little's law add values of different \
         times: synchronise the clocks. Response times are each of one machine",
    )
}

fn named(shards: &[String]) -> String {
    shards.iter().take(NAMED_SHARDS_MAX).cloned().collect::<Vec<_>>().join(", ") + more(shards.len())
}

fn more(shards: usize) -> &'static str {
    if shards > NAMED_SHARDS_MAX { ", .." } else { "" }
}

#[cfg(test)]
mod tests {
    use schema::document::{CheckState, Validity};

    use super::*;

    fn shard(name: &str) -> ShardEvidence {
        ShardEvidence {
            name: name.into(),
            verdict: Verdict::Valid,
            checks: Vec::new(),
            arrivals_of_all: Some(100),
            ended_early: Duration::ZERO,
        }
    }

    fn two() -> ShardsEvidence {
        ShardsEvidence {
            count: 2,
            shards: vec![shard("0/2"), shard("1/2")],
            clock_difference: Some(Duration::from_millis(9)),
            offered: 100,
            phase: Duration::from_secs(1),
            ends_by_schedule: true,
            ..ShardsEvidence::default()
        }
    }

    fn failed(evidence: &ShardsEvidence) -> (Verdict, Vec<(String, String)>) {
        let validity = Validity::from_checks(shard_checks(evidence));
        let failed = validity.checks.iter().filter(|check| check.state == CheckState::Failed);
        (validity.verdict, failed.map(|check| (check.name.clone(), check.why.clone())).collect())
    }

    #[test]
    fn two_valid_shards_are_valid() {
        assert_eq!(failed(&two()), (Verdict::Valid, Vec::new()));
    }

    #[test]
    fn a_missing_shard_is_named_and_invalid_unless_accepted() {
        let mut evidence = ShardsEvidence { missing: vec!["1/2".into()], ..two() };
        evidence.shards.pop();
        for (allow_missing, expected) in [(false, Verdict::Invalid), (true, Verdict::Suspect)] {
            evidence.allow_missing = allow_missing;
            let (verdict, failed) = failed(&evidence);
            assert_eq!((verdict, failed[0].0.as_str(), failed.len()), (expected, "shards_complete", 1));
            assert!(failed[0].1.contains("(1/2)"), "{}", failed[0].1);
        }
    }

    #[test]
    fn a_shard_that_is_not_valid_is_named_with_its_checks() {
        for verdict in [Verdict::Suspect, Verdict::Invalid] {
            let mut evidence = two();
            evidence.shards[1] = ShardEvidence { verdict, checks: vec!["client_cpu".into()], ..shard("1/2") };
            let (whole, failed) = failed(&evidence);
            assert_eq!((whole, failed[0].0.as_str()), (verdict, "shards_valid"));
            assert!(failed[0].1.contains(&format!("1/2 is {}: client_cpu", verdict.name())), "{}", failed[0].1);
        }
    }

    #[test]
    fn a_shard_that_ended_early_is_named_unless_its_end_is_its_own() {
        let mut evidence = two();
        evidence.shards[0].ended_early = Duration::from_millis(5);
        let (verdict, failed_checks) = failed(&evidence);
        assert_eq!((verdict, failed_checks[0].0.as_str()), (Verdict::Invalid, "shards_ended_together"));
        assert!(failed_checks[0].1.contains("(0/2)"));
        evidence.ends_by_schedule = false;
        assert_eq!(failed(&evidence).0, Verdict::Valid);
    }

    #[test]
    fn arrivals_made_twice_or_never_are_noticed() {
        for offered in [99, 101] {
            let (verdict, failed) = failed(&ShardsEvidence { offered, ..two() });
            assert_eq!((verdict, failed[0].0.as_str()), (Verdict::Invalid, "shards_cover_schedule"));
        }
        let mut evidence = two();
        evidence.shards[1].arrivals_of_all = Some(99);
        assert_eq!(failed(&evidence).0, Verdict::Invalid, "the shards drew different schedules");
        evidence.shards[1].arrivals_of_all = None;
        assert_eq!(failed(&evidence).0, Verdict::Valid);
    }

    #[test]
    fn clocks_must_be_known_and_close() {
        let with = |clock_difference: Option<u64>, phase: u64| {
            let clock_difference = clock_difference.map(Duration::from_millis);
            failed(&ShardsEvidence { clock_difference, phase: Duration::from_secs(phase), ..two() }).0
        };
        assert_eq!(with(Some(10), 1), Verdict::Valid);
        assert_eq!(with(Some(11), 1), Verdict::Suspect);
        assert_eq!(with(Some(100), 600), Verdict::Valid);
        assert_eq!(with(Some(101), 600), Verdict::Suspect);
        assert_eq!(with(None, 600), Verdict::Suspect);
    }
}
