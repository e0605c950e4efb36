//! The verdict of a trial: good, too much for the server, too much for the generator, or void.

use experiment::verdict;
use plan::Find;
use plan::slo::Slo;
use schema::document::{Check, CheckState, Document, Validity, Verdict, Weight};

use super::{TrialEvidence, milliseconds};

/// On which side of the answer a trial puts its load, and why.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    /// It is not too much.
    Good,
    /// It is too much for the server.
    Bad(Vec<String>),
    /// It is too much for the generator.
    ClientLimit(String),
    /// Something disturbed it: it counts for nothing.
    Void(String),
}

impl Judged {
    /// As in the document.
    pub const fn name(&self) -> &'static str {
        match self {
            Judged::Good => "good",
            Judged::Bad(_) => "bad",
            Judged::ClientLimit(_) => "client",
            Judged::Void(_) => "void",
        }
    }
}

/// What a check of the gate that did not hold says of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The server cannot do it.
    Server,
    /// The generator cannot.
    Client,
    /// The generator or the path was late: it was too much for it where it was busy, else something slowed it down.
    Late,
    /// Something disturbed the trial, whatever it shows.
    Void,
    /// Something slowed it down: a load that held all the same held, one that did not may hold another time.
    Slowed,
    /// Under a load that is too much it may fail for that reason; under one that holds it must hold.
    WhereGood,
    /// It says nothing of the load.
    Aside,
}

/// Every check of `validity` but those of the load's own tap, which a plan with `[capacity]` refuses. One that is not here makes a
/// trial void.
const CLASSES: &[(&str, Class)] = &[
    ("server_answers", Class::Server),
    ("server_alive", Class::Server),
    ("error_rate", Class::Server),
    ("responses_whole", Class::Server),
    ("early_responses", Class::Server),
    ("responses_solicited", Class::Void),
    ("requests_retried", Class::WhereGood),
    ("vantage_points_agree_sends", Class::WhereGood),
    ("server_host_receives", Class::Server),
    ("connection_cap", Class::Server),
    ("open_connections_established", Class::Server),
    ("achieved_as_offered", Class::Server),
    ("steady_state", Class::Server),
    ("generator_on_time", Class::Late),
    ("client_cpu", Class::Client),
    ("client_descriptors_and_ports", Class::Client),
    ("path_on_time", Class::Late),
    ("no_unintended_drops", Class::Client),
    ("conservation", Class::Void),
    ("wire_clock", Class::Void),
    ("tap_ring", Class::Void),
    ("loop_not_stalled", Class::Slowed),
    ("machine_undisturbed", Class::Slowed),
    ("server_cores_undisturbed", Class::Slowed),
    ("littles_law_requests", Class::WhereGood),
    ("littles_law_connections", Class::WhereGood),
    ("littles_law_wire_requests", Class::WhereGood),
    ("littles_law_wire_connections", Class::WhereGood),
    ("rtt_as_configured", Class::WhereGood),
    ("rtt_tail_as_configured", Class::WhereGood),
    ("rtt_at_server_as_configured", Class::WhereGood),
    ("rtt_tail_at_server_as_configured", Class::WhereGood),
    ("path_on_time_in_capture", Class::WhereGood),
    ("wire_capture_drops", Class::WhereGood),
    ("vantage_points_agree_requests", Class::WhereGood),
    ("vantage_points_agree_connections", Class::WhereGood),
    ("vantage_points_agree_service_time", Class::WhereGood),
    ("vantage_points_agree_service_time_tail", Class::WhereGood),
    ("cache_responses_correct", Class::WhereGood),
    ("cache_exchanges_verified", Class::WhereGood),
    ("wall_clock_stable", Class::WhereGood),
    ("tap_loaded", Class::WhereGood),
    ("cache_forwards_request_ids", Class::WhereGood),
    ("tap_bytes_agree", Class::WhereGood),
    ("tap_drops", Class::WhereGood),
    ("tap_coverage", Class::WhereGood),
    ("tap_capacity", Class::WhereGood),
    ("tap_connections_agree", Class::WhereGood),
    ("tap_connections_counted", Class::WhereGood),
    ("records_stored", Class::Aside),
    // What was analysed late was analysed: whether packets are missing is asked of `wire_capture_drops`, and the load is judged by its own clock.
    ("wire_kept_up", Class::Aside),
    // Whose the processor time was says nothing of whether the load was carried.
    ("server_cpu_attributable", Class::Aside),
];

/// A generator that was less busy than this was not the limit of what it made.
const BUSY_SHARE: f64 = 0.8;
/// The generator's own delay, over what is material, that is too much near the generator's limit: half of what is anywhere.
const ERROR_NEAR: f64 = 0.5;
/// The longest stall is known; that there were so many like it is likely.
const STALLS: f64 = 3.0;
/// From this share of its limit on the generator is near it.
const NEAR: f64 = 0.5;

/// On which side of the answer a trial puts its load. In the order of precedence: disturbed, the generator's limit, too much, good.
pub fn judge(seen: &TrialEvidence<'_>, slo: &Slo) -> Judged {
    let document = seen.document;
    let failed = |class: Class| {
        document
            .validity
            .checks
            .iter()
            .filter(move |check| check.state == CheckState::Failed && class_of(check) == class)
    };
    if document.run.interrupted && seen.lost.is_none() {
        return Judged::Void("it was interrupted".into());
    }
    if let Some(check) = failed(Class::Void).next() {
        return Judged::Void(check.why.clone());
    }
    let waited = failed(Class::Server).any(|check| check.name == "connection_cap");
    if let Some(check) = failed(Class::Client).next() {
        return Judged::ClientLimit(check.why.clone());
    }
    // Over connections that are held little is asked for, and when is not what is sought: being late slows it down, and no more.
    let holds = seen.asked.find == Find::Connections;
    let reasons = reasons(seen, slo, failed(Class::Server).map(|check| check.why.clone()).collect());
    if let Some(check) = failed(Class::Late).next()
        && seen.loop_busy >= BUSY_SHARE
    {
        return Judged::ClientLimit(check.why.clone());
    }
    // Without a figure: requests were never made, so that less was asked for than is said. Where connections were waited for, that is the
    // server's doing.
    if let Some(check) = failed(Class::Late).find(|check| check.value.is_none()) {
        let is_lost = !reasons.is_empty() && is_beyond(seen, slo);
        if !waited && !holds && !is_lost {
            return Judged::Void(check.why.clone());
        }
    }
    let is_near = seen.asked.generator_limit.is_some_and(|limit| seen.asked.rate_per_s > NEAR * limit);
    let error = generator_error(document);
    if is_near && error > ERROR_NEAR && !waited {
        return Judged::ClientLimit(format!(
            "near its limit the generator was late: it may have raised the response time by {:.1} times what is material",
            error
        ));
    }
    // What slowed a trial down only ever makes response times longer: what held all the same held.
    let excess_ns = excess_ns(document, slo);
    // Where connections were waited for, the lateness is the server's.
    let late = failed(Class::Late).filter(|_| !waited);
    let slowed = failed(Class::Slowed).chain(late).find(|check| explains(check, excess_ns));
    match (reasons.is_empty(), slowed) {
        (false, Some(check)) if !is_beyond(seen, slo) => Judged::Void(check.why.clone()),
        (false, _) => Judged::Bad(reasons),
        (true, _) => match failed(Class::WhereGood).next() {
            Some(check) => Judged::Void(check.why.clone()),
            None => Judged::Good,
        },
    }
}

/// How far the generator's own delay may have raised the response time, over what is material.
pub(super) fn generator_error(document: &Document) -> f64 {
    let check = document.validity.checks.iter().find(|check| check.name == "generator_on_time");
    check.and_then(|check| Some(check.value? / check.limit?)).unwrap_or(0.0)
}

/// By how much the response time misses the objective: the most of its terms; 0 where it misses none.
fn excess_ns(document: &Document, slo: &Slo) -> f64 {
    let terms = slo.judge(document).terms;
    let missed = terms.iter().filter(|term| !term.met && term.unit == "ns" && term.value.is_finite());
    missed.map(|term| term.value - term.limit).fold(0.0, f64::max)
}

/// Whether what a check found may be why the response time misses the objective by so much.
fn explains(check: &Check, excess_ns: f64) -> bool {
    match (check.name.as_str(), check.value) {
        // Its bound says so: without the generator's delay the objective may have been met, or half of the requests were delayed.
        ("generator_on_time", Some(_)) => check.weight == Weight::Invalid,
        // A server that takes requests in turn is behind by no more than the stalls that it has not caught up with: one is known, and that there were
        // several such is likely.
        ("loop_not_stalled", Some(longest)) => excess_ns <= STALLS * longest,
        (_, Some(error)) if check.unit == "ns" => excess_ns <= error,
        _ => true,
    }
}

/// What a check says of a load. An error of time that takes the meaning from no figure only slowed the trial down.
fn class_of(check: &Check) -> Class {
    let class = CLASSES.iter().find(|(name, _)| *name == check.name).map_or(Class::Void, |(_, class)| *class);
    match class {
        Class::WhereGood if check.unit == "ns" && check.weight == Weight::Suspect => Class::Slowed,
        class => class,
    }
}

/// Whether a check of the gate has a class.
#[cfg(test)]
pub(in crate::search) fn knows(check: &str) -> bool {
    CLASSES.iter().any(|(name, _)| *name == check)
}

/// Everything that says that the load is too much.
fn reasons(seen: &TrialEvidence<'_>, slo: &Slo, checks: Vec<String>) -> Vec<String> {
    let judged = slo.judge(seen.document);
    let missed = judged.terms.iter().filter(|term| !term.met).map(|term| {
        let value = match term.unit.as_str() {
            _ if !term.value.is_finite() => "nothing was answered".to_owned(),
            "ns" => milliseconds(term.value),
            _ => format!("{:.2} %", 100.0 * term.value),
        };
        format!("{}: {value}", term.term)
    });
    let mut reasons: Vec<String> = missed.collect();
    if let Some(lost) = seen.lost {
        reasons.push(lost.words());
    } else if seen.growth.grows() {
        reasons.push(format!(
            "requests piled up: {:+.1} a second in flight, where {:.1} is the bound",
            seen.growth.per_s, seen.growth.bound_per_s
        ));
    }
    reasons.extend(checks);
    reasons
}

/// Whether more piled up than what slowed the trial down could explain: then it was too much all the same.
fn is_beyond(seen: &TrialEvidence<'_>, slo: &Slo) -> bool {
    let checks = &seen.document.validity.checks;
    // No standstill closes a connection.
    if checks.iter().any(|check| check.name == "open_connections_established" && check.state == CheckState::Failed) {
        return true;
    }
    let value =
        |name: &str| checks.iter().find(|check| check.name == name).and_then(|check| check.value).unwrap_or(0.0);
    let actual_s = seen.document.run.duration_s;
    // One standstill is known; that there were several such is likely.
    let cores = seen.document.server.as_ref().and_then(|server| server.cores.as_ref());
    let others_s = cores.map_or(0.0, |cores| cores.delayed_by_others_s);
    let away_s = STALLS * value("loop_not_stalled") / 1e9 + value("machine_undisturbed") * actual_s + others_s;
    // A generator that is late never has more to send than came due while it was.
    let is_late = checks.iter().any(|check| check.state == CheckState::Failed && class_of(check) == Class::Late);
    let late_ns = seen.document.load.as_ref().filter(|_| is_late).map_or(0, |load| load.send_lag_ns.max);
    let explained = (away_s + late_ns as f64 / 1e9).min(actual_s) * seen.asked.rate_per_s;
    let piled = match (seen.lost, slo.response_limit()) {
        (Some(lost), _) => lost.in_flight(),
        (None, _) => (seen.growth.per_s - seen.growth.bound_per_s) * actual_s,
    };
    piled > 2.0 * explained
}

/// The verdict of a trial's own run, with the checks that did not hold. A generator that was late over connections that are only held makes it
/// suspect and no more: when little is asked for is not what is sought.
pub(super) fn doubts(seen: &TrialEvidence<'_>) -> (Verdict, Vec<String>) {
    let holds = seen.asked.find == Find::Connections;
    let lighter = |check: &Check| match class_of(check) {
        Class::Late if holds => Check { weight: Weight::Suspect, ..check.clone() },
        _ => check.clone(),
    };
    let checks: Vec<Check> = verdict::doubts(&seen.document.validity).map(lighter).collect();
    let names = checks.iter().map(|check| check.name.clone()).collect();
    (Validity::from_checks(checks).verdict, names)
}

/// Of the generator's own limit nothing counts but the generator.
pub(super) fn limit(seen: &TrialEvidence<'_>) -> Judged {
    let checks = &seen.document.validity.checks;
    let failed = checks.iter().filter(|check| check.state == CheckState::Failed);
    // Late by little, and not for want of time: a stall of the machine is no limit.
    let is_limit = |check: &&Check| match class_of(check) {
        Class::Client => true,
        Class::Late => check.weight == Weight::Invalid || seen.loop_busy >= BUSY_SHARE,
        _ => false,
    };
    let mut generators = failed.filter(is_limit);
    match generators.next() {
        _ if seen.document.run.interrupted => Judged::Void("it was interrupted".into()),
        Some(check) => Judged::ClientLimit(check.why.clone()),
        None => Judged::Good,
    }
}

pub(super) fn guess(seen: &TrialEvidence<'_>) -> Judged {
    let answered = seen.document.load.as_ref().is_some_and(|load| load.completed > 0);
    let ends = ["server_answers", "server_alive", "error_rate"];
    let failed = seen
        .document
        .validity
        .checks
        .iter()
        .find(|check| check.state == CheckState::Failed && ends.contains(&check.name.as_str()));
    match failed {
        _ if seen.document.run.interrupted => Judged::Void("it was interrupted".into()),
        Some(check) => Judged::Bad(vec![check.why.clone()]),
        None if !answered => Judged::Void("nothing was answered in it".into()),
        None => Judged::Good,
    }
}

/// At this load the server is to settle, not to keep an objective.
pub(super) fn calibration(seen: &TrialEvidence<'_>, slo: &Slo) -> Judged {
    match judge(seen, slo) {
        Judged::Bad(reasons) if seen.lost.is_none() => {
            let ends = seen.document.validity.checks.iter();
            let mut ends = ends.filter(|check| check.state == CheckState::Failed && check.name.starts_with("server_"));
            if ends.next().is_some() { Judged::Bad(reasons) } else { Judged::Good }
        }
        other => other,
    }
}
