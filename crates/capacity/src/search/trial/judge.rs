//! The verdict of a trial: good, bad (the server's limit), the client's limit, or void.

use experiment::verdict;
use plan::Find;
use plan::slo::Slo;
use schema::document::{Check, CheckState, Document, Validity, Verdict, Weight};
use units::figures::duration_f64;

use super::TrialEvidence;

/// Verdict of a trial, with reasons.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialVerdict {
    /// The load passed.
    Good,
    /// The server's limit is exceeded.
    Bad(Vec<String>),
    /// The generator's limit is exceeded.
    ClientLimit(String),
    /// The trial was disturbed and does not count.
    Void(String),
}

impl TrialVerdict {
    /// Name in the document.
    pub const fn name(&self) -> &'static str {
        match self {
            TrialVerdict::Good => "good",
            TrialVerdict::Bad(_) => "bad",
            TrialVerdict::ClientLimit(_) => "client",
            TrialVerdict::Void(_) => "void",
        }
    }
}

/// Meaning of a failed validity check for the verdict on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckClass {
    /// The server's limit is exceeded.
    Server,
    /// The generator's limit is exceeded.
    Client,
    /// The generator or the path was late: the generator's limit if it was busy, otherwise a disturbance that only
    /// slows.
    Late,
    /// A disturbance that voids every trial.
    Void,
    /// A disturbance that only slows: a load that passed still passed; one that failed may pass another time.
    Slowed,
    /// May fail in a trial that failed; must pass in one that passed.
    WhereGood,
    /// Irrelevant for the load.
    Aside,
}

/// All checks of `validity` except those of a tap on the load, which a plan with `[capacity]` refuses. An unlisted
/// check voids the trial.
const CHECK_CLASSES: &[(&str, CheckClass)] = &[
    ("server_answers", CheckClass::Server),
    ("server_alive", CheckClass::Server),
    ("error_rate", CheckClass::Server),
    ("responses_whole", CheckClass::Server),
    ("early_responses", CheckClass::Server),
    ("responses_solicited", CheckClass::Void),
    ("requests_retried", CheckClass::WhereGood),
    ("vantage_points_agree_sends", CheckClass::WhereGood),
    ("server_host_receives", CheckClass::Server),
    ("connection_cap", CheckClass::Server),
    ("open_connections_established", CheckClass::Server),
    ("achieved_as_offered", CheckClass::Server),
    ("steady_state", CheckClass::Server),
    ("generator_on_time", CheckClass::Late),
    ("client_cpu", CheckClass::Client),
    ("client_descriptors_and_ports", CheckClass::Client),
    ("path_on_time", CheckClass::Late),
    ("no_unintended_drops", CheckClass::Client),
    ("conservation", CheckClass::Void),
    ("wire_clock", CheckClass::Void),
    ("tap_ring", CheckClass::Void),
    ("loop_not_stalled", CheckClass::Slowed),
    ("machine_undisturbed", CheckClass::Slowed),
    ("server_cores_undisturbed", CheckClass::Slowed),
    ("littles_law_requests", CheckClass::WhereGood),
    ("littles_law_connections", CheckClass::WhereGood),
    ("littles_law_wire_requests", CheckClass::WhereGood),
    ("littles_law_wire_connections", CheckClass::WhereGood),
    ("rtt_as_configured", CheckClass::WhereGood),
    ("rtt_tail_as_configured", CheckClass::WhereGood),
    ("rtt_at_server_as_configured", CheckClass::WhereGood),
    ("rtt_tail_at_server_as_configured", CheckClass::WhereGood),
    ("path_on_time_in_capture", CheckClass::WhereGood),
    ("wire_capture_drops", CheckClass::WhereGood),
    ("vantage_points_agree_requests", CheckClass::WhereGood),
    ("vantage_points_agree_connections", CheckClass::WhereGood),
    ("vantage_points_agree_service_time", CheckClass::WhereGood),
    ("vantage_points_agree_service_time_tail", CheckClass::WhereGood),
    ("cache_responses_correct", CheckClass::WhereGood),
    ("cache_exchanges_verified", CheckClass::WhereGood),
    ("wall_clock_stable", CheckClass::WhereGood),
    ("tap_loaded", CheckClass::WhereGood),
    ("cache_forwards_request_ids", CheckClass::WhereGood),
    ("tap_bytes_agree", CheckClass::WhereGood),
    ("tap_drops", CheckClass::WhereGood),
    ("tap_coverage", CheckClass::WhereGood),
    ("tap_capacity", CheckClass::WhereGood),
    ("tap_connections_agree", CheckClass::WhereGood),
    ("tap_connections_counted", CheckClass::WhereGood),
    ("records_stored", CheckClass::Aside),
    // Delayed packet analysis is complete nevertheless: `wire_capture_drops` reports missing packets, and the load uses
    // its own clock.
    ("wire_kept_up", CheckClass::Aside),
    // Attribution of CPU time does not affect whether the load passed.
    ("server_cpu_attributable", CheckClass::Aside),
    // Of several machines: the load was not that of the plan.
    ("shards_complete", CheckClass::Void),
    ("shards_ended_together", CheckClass::Void),
    ("shards_cover_schedule", CheckClass::Void),
    // The checks of the whole are computed from the counts of all machines. What a machine fails alone is a doubt about
    // the run, as an unknown clock is.
    ("shards_valid", CheckClass::Aside),
    ("shards_aligned", CheckClass::Aside),
];

/// Busy share below which the generator was not its own limit.
const BUSY_SHARE: f64 = 0.8;
/// Generator delay, over what is material, that counts near the generator's limit: half of the general limit.
const GENERATOR_ERROR_NEAR_LIMIT: f64 = 0.5;
/// Factor on the longest stall: further stalls of similar length are likely.
const STALLS_ASSUMED: f64 = 3.0;
/// Share of the generator's limit from which on a load is near it.
const NEAR_LIMIT_SHARE: f64 = 0.5;

/// The verdict of a trial. Precedence: void, client, bad, good.
pub fn judge(evidence: &TrialEvidence<'_>, slo: &Slo) -> TrialVerdict {
    let document = evidence.document;
    let failed = |class: CheckClass| {
        document
            .validity
            .checks
            .iter()
            .filter(move |check| check.state == CheckState::Failed && class_of(check) == class)
    };
    if document.run.interrupted && evidence.lost.is_none() {
        return TrialVerdict::Void("the trial was interrupted".into());
    }
    if let Some(check) = failed(CheckClass::Void).next() {
        return TrialVerdict::Void(check.why.clone());
    }
    let waited = failed(CheckClass::Server).any(|check| check.name == "connection_cap");
    if let Some(check) = failed(CheckClass::Client).next() {
        return TrialVerdict::ClientLimit(check.why.clone());
    }
    // Idle open connections carry few requests at uncritical times, so send lag only slows them.
    let is_of_connections = evidence.request.find == Find::Connections;
    let reasons = reasons(evidence, slo, failed(CheckClass::Server).map(|check| check.why.clone()).collect());
    if let Some(check) = failed(CheckClass::Late).next()
        && evidence.loop_busy >= BUSY_SHARE
    {
        return TrialVerdict::ClientLimit(check.why.clone());
    }
    // A check without a figure: requests were never made, so the load was lower than stated. Where requests waited for
    // connections, the server caused it.
    if let Some(check) = failed(CheckClass::Late).find(|check| check.value.is_none()) {
        let is_lost = !reasons.is_empty() && is_beyond(evidence, slo);
        if !waited && !is_of_connections && !is_lost {
            return TrialVerdict::Void(check.why.clone());
        }
    }
    let is_near =
        evidence.request.generator_limit.is_some_and(|limit| evidence.request.rate_per_s > NEAR_LIMIT_SHARE * limit);
    let error = generator_error(document);
    if is_near && error > GENERATOR_ERROR_NEAR_LIMIT && !waited {
        return TrialVerdict::ClientLimit(format!(
            "near its limit the generator was late: the response time may be too high by {:.1} times what is material",
            error
        ));
    }
    // Disturbances that only slow can only lengthen response times, so a load that passed still passed.
    let excess_ns = excess_ns(document, slo);
    // Where requests waited for connections, the server caused the lag.
    let late = failed(CheckClass::Late).filter(|_| !waited);
    let slowed = failed(CheckClass::Slowed).chain(late).find(|check| explains(check, excess_ns));
    match (reasons.is_empty(), slowed) {
        (false, Some(check)) if !is_beyond(evidence, slo) => TrialVerdict::Void(check.why.clone()),
        (false, _) => TrialVerdict::Bad(reasons),
        (true, _) => match failed(CheckClass::WhereGood).next() {
            Some(check) => TrialVerdict::Void(check.why.clone()),
            None => TrialVerdict::Good,
        },
    }
}

/// Why a trial of several machines was not the load of its plan: shards are missing. Where one is lost, the others are
/// interrupted, so this is the reason of everything else.
pub(super) fn missing_shards(document: &Document) -> Option<String> {
    let checks = &document.validity.checks;
    let missing = checks.iter().find(|check| check.name == "shards_complete" && check.state == CheckState::Failed);
    missing.map(|check| check.why.clone())
}

/// Possible effect of the generator's delay on the response time, over what is material.
pub(super) fn generator_error(document: &Document) -> f64 {
    let check = document.validity.checks.iter().find(|check| check.name == "generator_on_time");
    check.and_then(|check| Some(check.value? / check.limit?)).unwrap_or(0.0)
}

/// Largest relative excess of the response time over the objective's terms; 0 where all are met.
fn excess_ns(document: &Document, slo: &Slo) -> f64 {
    let terms = slo.judge(document).terms;
    let missed = terms.iter().filter(|term| !term.met && term.unit == "ns" && term.value.is_finite());
    missed.map(|term| term.value - term.limit).fold(0.0, f64::max)
}

/// Whether a failed check may explain this excess over the objective.
fn explains(check: &Check, excess_ns: f64) -> bool {
    match (check.name.as_str(), check.value) {
        // Its bound shows that the objective may have been met without the generator's delay, or that half of the
        // requests were delayed.
        ("generator_on_time", Some(_)) => check.weight == Weight::Invalid,
        // A server that processes requests in order lags by at most the stalls that it has not caught up with: one is
        // known, further ones are likely.
        ("loop_not_stalled", Some(longest)) => excess_ns <= STALLS_ASSUMED * longest,
        (_, Some(error)) if check.unit == "ns" => excess_ns <= error,
        _ => true,
    }
}

/// The class of a failed check. A timing error that is not material to any figure only slowed the trial.
fn class_of(check: &Check) -> CheckClass {
    let class =
        CHECK_CLASSES.iter().find(|(name, _)| *name == check.name).map_or(CheckClass::Void, |(_, class)| *class);
    match class {
        CheckClass::WhereGood if check.unit == "ns" && check.weight == Weight::Suspect => CheckClass::Slowed,
        class => class,
    }
}

/// Whether a validity check has a class.
#[cfg(test)]
pub(in crate::search) fn has_class(check: &str) -> bool {
    CHECK_CLASSES.iter().any(|(name, _)| *name == check)
}

/// All reasons why the load is too high.
fn reasons(evidence: &TrialEvidence<'_>, slo: &Slo, checks: Vec<String>) -> Vec<String> {
    let judged = slo.judge(evidence.document);
    let missed = judged.terms.iter().filter(|term| !term.met).map(|term| {
        let value = match term.unit.as_str() {
            _ if !term.value.is_finite() => "no response".to_owned(),
            "ns" => duration_f64(term.value),
            _ => format!("{:.2} %", 100.0 * term.value),
        };
        format!("{}: {value}", term.term)
    });
    let mut reasons: Vec<String> = missed.collect();
    if let Some(lost) = evidence.lost {
        reasons.push(lost.words());
    } else if evidence.growth.grows() {
        reasons.push(format!(
            "requests in flight grew by {:+.1} per second; the limit is {:.1}",
            evidence.growth.per_s, evidence.growth.bound_per_s
        ));
    }
    reasons.extend(checks);
    reasons
}

/// Whether the number in flight grew more than a disturbance could explain; then the load was too high nevertheless.
fn is_beyond(evidence: &TrialEvidence<'_>, slo: &Slo) -> bool {
    let checks = &evidence.document.validity.checks;
    // A stall closes no connection.
    if checks.iter().any(|check| check.name == "open_connections_established" && check.state == CheckState::Failed) {
        return true;
    }
    let value =
        |name: &str| checks.iter().find(|check| check.name == name).and_then(|check| check.value).unwrap_or(0.0);
    let actual_s = evidence.document.run.duration_s;
    // One stall is known; further ones are likely.
    let cores = evidence.document.server.as_ref().and_then(|server| server.cores.as_ref());
    let others_s = cores.map_or(0.0, |cores| cores.delayed_by_others_s);
    let stalled_s =
        STALLS_ASSUMED * value("loop_not_stalled") / 1e9 + value("machine_undisturbed") * actual_s + others_s;
    // A late generator has no more to send than what became due meanwhile.
    let is_late = checks.iter().any(|check| check.state == CheckState::Failed && class_of(check) == CheckClass::Late);
    let late_ns = evidence.document.load.as_ref().filter(|_| is_late).map_or(0, |load| load.send_lag_ns.max);
    let explained = (stalled_s + late_ns as f64 / 1e9).min(actual_s) * evidence.request.rate_per_s;
    let piled = match (evidence.lost, slo.response_limit()) {
        (Some(lost), _) => lost.in_flight(),
        (None, _) => (evidence.growth.per_s - evidence.growth.bound_per_s) * actual_s,
    };
    piled > 2.0 * explained
}

/// The verdict of a trial's run, with the checks that failed. Send lag over idle open connections makes it suspect
/// only, since the times of those few requests are uncritical.
pub(super) fn doubts(evidence: &TrialEvidence<'_>) -> (Verdict, Vec<String>) {
    let is_of_connections = evidence.request.find == Find::Connections;
    let lighter = |check: &Check| match class_of(check) {
        CheckClass::Late if is_of_connections => Check { weight: Weight::Suspect, ..check.clone() },
        _ => check.clone(),
    };
    let checks: Vec<Check> = verdict::doubts(&evidence.document.validity).map(lighter).collect();
    let names = checks.iter().map(|check| check.name.clone()).collect();
    (Validity::from_checks(checks).verdict, names)
}

/// For the generator's limit only the generator counts.
pub(super) fn limit(evidence: &TrialEvidence<'_>) -> TrialVerdict {
    let checks = &evidence.document.validity.checks;
    let failed = checks.iter().filter(|check| check.state == CheckState::Failed);
    // A small lag of an idle generator is a stall of the machine, not the generator's limit.
    let is_limit = |check: &&Check| match class_of(check) {
        CheckClass::Client => true,
        CheckClass::Late => check.weight == Weight::Invalid || evidence.loop_busy >= BUSY_SHARE,
        _ => false,
    };
    let mut generators = failed.filter(is_limit);
    match generators.next() {
        _ if evidence.document.run.interrupted => TrialVerdict::Void("the trial was interrupted".into()),
        Some(check) => TrialVerdict::ClientLimit(check.why.clone()),
        None => TrialVerdict::Good,
    }
}

pub(super) fn guess(evidence: &TrialEvidence<'_>) -> TrialVerdict {
    let answered = evidence.document.load.as_ref().is_some_and(|load| load.completed > 0);
    let ends = ["server_answers", "server_alive", "error_rate"];
    let failed = evidence
        .document
        .validity
        .checks
        .iter()
        .find(|check| check.state == CheckState::Failed && ends.contains(&check.name.as_str()));
    match failed {
        _ if evidence.document.run.interrupted => TrialVerdict::Void("the trial was interrupted".into()),
        Some(check) => TrialVerdict::Bad(vec![check.why.clone()]),
        None if !answered => TrialVerdict::Void("no request had a response".into()),
        None => TrialVerdict::Good,
    }
}

/// A calibration has no objective; the server only has to settle.
pub(super) fn calibration(evidence: &TrialEvidence<'_>, slo: &Slo) -> TrialVerdict {
    match judge(evidence, slo) {
        TrialVerdict::Bad(reasons) if evidence.lost.is_none() => {
            let ends = evidence.document.validity.checks.iter();
            let mut ends = ends.filter(|check| check.state == CheckState::Failed && check.name.starts_with("server_"));
            if ends.next().is_some() { TrialVerdict::Bad(reasons) } else { TrialVerdict::Good }
        }
        other => other,
    }
}
