//! Checks of the whole: those of one run, computed from the sums; those of the shards; and of evidence that is not
//! merged, such as packet captures, the worst of the shards.

use std::time::Duration;

use coordination::record::largest_difference;
use load::{DelayBounds, Levels};
use plan::{Plan, WatchAt};
use schema::Document;
use schema::document::{Check, CheckState, Validity};
use validity::evidence::Evidence;
use validity::{ShardEvidence, ShardsEvidence, shard_checks};

use crate::source::Sources;
use crate::sum::{self, Sum};

/// All checks of the merged run.
pub(crate) fn of(
    document: &Document,
    sources: &Sources,
    sum: &Sum,
    outcome: &load::Outcome,
    (levels, delays): (&Levels, &DelayBounds),
    allow_missing: bool,
) -> Vec<Check> {
    let plan = without_capture(&sources.plan);
    let seconds = outcome.seconds.iter().filter(|second| second.measured);
    let in_flight_by_second: Vec<f64> = seconds.map(|second| second.in_flight_mean).collect();
    let store_error = sum.store_error(sources);
    let any = |fact: fn(&testbed::shard_state::Facts) -> bool| sum.facts.iter().any(fact);
    let handshakes = sum.counting.handshakes.as_ref();
    let evidence = Evidence {
        plan: &plan,
        loop_health: &sum.end.health,
        delays,
        little: &outcome.little,
        levels,
        in_flight_by_second: &in_flight_by_second,
        unintended_drops: sum.unintended_drops(sources),
        cap_hits: sum.end.live.cap_hits,
        wall_drift: None,
        table: sum.table(),
        store_error: store_error.as_deref(),
        server_ended: None,
        gave_up: any(|facts| facts.gave_up),
        all_refused: sum.all_refused(),
        target: &sum.facts[0].target,
        handshake_error: handshakes.map(|handshakes| handshakes.measured_error().quantiles()),
        rtt_varies: any(|facts| facts.rtt_varies),
        beyond: any(|facts| facts.beyond),
        only_delays: sum.facts.iter().all(|facts| facts.only_delays),
        wire: None,
    };
    let mut checks = shard_checks(&of_shards(document, sources, sum, allow_missing));
    checks.extend(with_worst(validity::checks(document, &evidence), sources));
    checks
}

fn of_shards(document: &Document, sources: &Sources, sum: &Sum, allow_missing: bool) -> ShardsEvidence {
    let shards = sources.complete.iter().zip(&sum.facts).map(|(source, facts)| ShardEvidence {
        name: sources.name(source.index),
        verdict: source.document.validity.verdict,
        checks: unwell(&source.document.validity),
        arrivals_of_all: source.part().arrivals_of_all,
        ended_early: sum.measured.1.since(facts.measured.1),
    });
    let load = &sources.plan.load;
    ShardsEvidence {
        count: sources.count,
        missing: sources.missing.keys().map(|&index| sources.name(index)).collect(),
        allow_missing,
        shards: shards.collect(),
        clock_difference: clock_difference(sources).map(Duration::from_nanos),
        offered: document.load.as_ref().map_or(0, |load| load.offered_requests),
        phase: sum.measured.1.since(sum.measured.0),
        ends_by_schedule: load.requests.is_none() || load.is_open() && load.session.is_empty(),
    }
}

/// The largest difference of two machines' clocks, in nanoseconds: as the coordination measured it, otherwise as each
/// machine's own clock is bounded.
fn clock_difference(sources: &Sources) -> Option<u64> {
    let records: Option<Vec<_>> = sources.complete.iter().map(|source| source.coordination.as_ref()).collect();
    // Offsets from different leaders are not comparable.
    let records = records.filter(|records| records.windows(2).all(|two| two[0].leader == two[1].leader));
    let measured = records.and_then(|records| largest_difference(records.iter().map(|record| record.clocks)));
    measured.or_else(|| sum::clock_difference(sources.complete.iter().map(|source| &source.part().clock)))
}

/// Names of the checks that failed or could not run.
pub(crate) fn unwell(validity: &Validity) -> Vec<String> {
    let unwell = |check: &&Check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun);
    validity.checks.iter().filter(unwell).map(|check| check.name.clone()).collect()
}

/// Packets were captured by each shard for itself.
fn without_capture(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.watch.at = Some(WatchAt::None);
    plan
}

/// Checks whose evidence is not merged do not apply to the sums. In their place stands the worst of the shards' own;
/// checks that only the shards have are added.
fn with_worst(mut checks: Vec<Check>, sources: &Sources) -> Vec<Check> {
    let own = sources
        .complete
        .iter()
        .flat_map(|source| source.document.validity.checks.iter().map(move |check| (source.index, check)));
    for (index, check) in own.filter(|(_, check)| check.state != CheckState::NotApplicable) {
        let why =
            format!("the worst of the shards, each by its own evidence: shard {}: {}", sources.name(index), check.why);
        let worst = Check { why, ..check.clone() };
        match checks.iter_mut().find(|merged| merged.name == check.name) {
            Some(merged)
                if merged.state == CheckState::NotApplicable || is_of_shard(merged) && is_worse(&worst, merged) =>
            {
                *merged = worst;
            }
            Some(_) => {}
            None => checks.push(worst),
        }
    }
    checks
}

fn is_of_shard(check: &Check) -> bool {
    check.why.starts_with("the worst of the shards")
}

/// By the verdict, then by the figure.
fn is_worse(check: &Check, than: &Check) -> bool {
    let verdict = |check: &Check| Validity::from_checks(vec![check.clone()]).verdict;
    (verdict(check), check.value.unwrap_or(0.0)) > (verdict(than), than.value.unwrap_or(0.0))
}
