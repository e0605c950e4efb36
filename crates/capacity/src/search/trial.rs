//! A trial: its request, its figures, its verdict.

mod judge;

use std::time::Duration;

use load::Span;
use plan::slo::Slo;
use plan::{Find, Plan};
use schema::document::Document;
use schema::{TrialPart, TrialSecond, TrialServer};
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(super) use self::judge::has_class;
pub use self::judge::{TrialVerdict, judge};
use self::judge::{calibration, doubts, generator_error, guess, limit};
use super::findings;
use super::growth::{Growth, growth};
use super::trial_run::TrialRun;
use super::warmup;
use experiment::watchdog::ObjectiveLost;

/// The purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A closed loop for a second: an initial estimate of the server's throughput.
    Guess,
    /// The generator's limit.
    Limit,
    /// The time until the server settles.
    Calibration,
    /// The short stage.
    Short,
    /// A search of long trials.
    Long,
    /// Confirmation at the result or below it.
    Confirmation,
    /// Overload above the result.
    Overload,
}

impl Purpose {
    /// Name in the document.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Guess => "guess",
            Purpose::Limit => "limit",
            Purpose::Calibration => "calibration",
            Purpose::Short => "short",
            Purpose::Long => "long",
            Purpose::Confirmation => "confirmation",
            Purpose::Overload => "overload",
        }
    }

    /// Whether the trial is long enough to be stored as a run.
    pub const fn is_stored(self) -> bool {
        matches!(self, Purpose::Long | Purpose::Confirmation)
    }
}

/// A trial to be made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialRequest {
    /// The searched quantity.
    pub find: Find,
    /// Purpose of the trial.
    pub purpose: Purpose,
    /// Number of the long search, from 1; 0: none.
    pub search: u32,
    /// The load, in the unit of the search; for [`Purpose::Guess`] connections of a closed loop, for [`Purpose::Limit`]
    /// requests per second.
    pub load: f64,
    /// Requests per second of this load with immediate responses.
    pub rate_per_s: f64,
    /// Length of the measured phase.
    pub lasts: Duration,
    /// Length of the warm-up.
    pub warmup: Duration,
    /// Width of its search, by which growth is judged.
    pub width: f64,
    /// The generator's limit in requests per second, as far as known: near it, send lag is the generator's fault.
    pub generator_limit: Option<f64>,
}

/// Evidence for the verdict of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialEvidence<'a> {
    /// The document of the run.
    pub document: &'a Document,
    /// Growth of the number in flight.
    pub growth: Growth,
    /// Busy share of the generator.
    pub loop_busy: f64,
    /// Why the trial was ended early, if it was.
    pub lost: Option<&'a ObjectiveLost>,
    /// The trial requested.
    pub request: &'a TrialRequest,
}

/// Figures, verdict and findings of a trial.
pub fn part(run: &TrialRun, request: &TrialRequest, lost: Option<&ObjectiveLost>, plan: &Plan, slo: &Slo) -> TrialPart {
    let document = &run.document;
    let levels: Vec<f64> = run.spans.iter().map(|span| span.in_flight_mean + span.backlog_mean).collect();
    let growth = growth_of(request, &levels);
    let evidence = TrialEvidence { document, growth, loop_busy: run.loop_busy, lost, request };
    let judged = match (judge::missing_shards(document), request.purpose) {
        (Some(why), _) => TrialVerdict::Void(why),
        // For the generator's limit only the timing error and the load of the generator count.
        (None, Purpose::Limit) => limit(&evidence),
        // A closed loop has no objective.
        (None, Purpose::Guess) => guess(&evidence),
        (None, Purpose::Calibration) => calibration(&evidence, slo),
        (None, _) => judge(&evidence, slo),
    };
    let mut part = figures(&evidence, slo);
    part.server = server(run, plan);
    part.cpu_busy = part.server.map(|server| server.cpu_cores / server.may_use_cores);
    if request.purpose.is_stored() {
        part.run = document.run.id.clone();
    }
    if request.purpose == Purpose::Calibration {
        part.settled_s = warmup::settled(&run.spans);
    }
    let is_bad = matches!(judged, TrialVerdict::Bad(_));
    if matches!(request.purpose, Purpose::Confirmation | Purpose::Long) || is_bad {
        part.findings = findings::of_trial(&run.spans, &run.server_seconds, request.purpose, plan);
    }
    if request.purpose == Purpose::Confirmation {
        part.seconds = seconds(run);
    }
    with(part, judged)
}

/// Growth of the number in flight. Users bound the number themselves: no more requests can wait than there are users.
pub(super) fn growth_of(request: &TrialRequest, levels: &[f64]) -> Growth {
    match request.find {
        Find::Users => Growth::default(),
        _ => growth(levels, Span::LENGTH, request.rate_per_s, request.width),
    }
}

/// A trial with its verdict.
pub(super) fn with(part: TrialPart, judged: TrialVerdict) -> TrialPart {
    let verdict = judged.name().to_owned();
    let why = match judged {
        TrialVerdict::Good => return TrialPart { verdict, ..part },
        TrialVerdict::Bad(reasons) => reasons,
        TrialVerdict::ClientLimit(why) | TrialVerdict::Void(why) => vec![why],
    };
    TrialPart { verdict, why, run_verdict: String::new(), run_doubts: Vec::new(), ..part }
}

/// Figures that depend on the evidence alone.
pub(super) fn figures(evidence: &TrialEvidence<'_>, slo: &Slo) -> TrialPart {
    let request = evidence.request;
    let nothing = schema::document::Load::default();
    let load = evidence.document.load.as_ref().unwrap_or(&nothing);
    let checks = &evidence.document.validity.checks;
    let value = |name: &str| checks.iter().find(|check| check.name == name).and_then(|check| check.value);
    let (run_verdict, run_doubts) = doubts(evidence);
    TrialPart {
        run_verdict: run_verdict.name().into(),
        run_doubts,
        stage: request.purpose.name().into(),
        search: request.search,
        load: request.load,
        planned_s: request.lasts.as_secs_f64(),
        actual_s: evidence.document.run.duration_s,
        achieved_rate_per_s: load.achieved_rate_per_s,
        response_time_ns: load.response_time_ns,
        error_ratio: slo.error_ratio(evidence.document),
        in_flight: load.in_flight,
        growth_per_s: evidence.growth.per_s,
        growth_bound_per_s: evidence.growth.bound_per_s,
        connections: load.connections.mean,
        connections_missing: value("open_connections_established"),
        steal_share: evidence.document.run.host.steal_share,
        cpu_probe_ns: evidence.document.run.host.cpu_probe_ns,
        stall_ns: value("loop_not_stalled").map_or(0, |ns| ns as u64),
        send_lag_p99_ns: load.send_lag_ns.p99,
        generator_error: generator_error(evidence.document),
        loop_busy: evidence.loop_busy,
        response_bytes: if load.completed > 0 { load.bytes_received as f64 / load.completed as f64 } else { 0.0 },
        ..TrialPart::default()
    }
}

/// Resource usage of the server.
fn server(run: &TrialRun, plan: &Plan) -> Option<TrialServer> {
    let used = run.document.server.as_ref()?;
    let actual_s = run.document.run.duration_s.max(1e-3);
    let cpu_limit = plan.server.as_ref().and_then(|server| server.share());
    let cores = run.document.run.host.server_cores.as_deref().map_or(run.document.run.host.cores, cores_of);
    let (periods, throttled) = run.server_seconds.iter().fold((0, 0), |(periods, throttled), second| {
        (periods + second.periods.unwrap_or(0), throttled + second.periods_throttled.unwrap_or(0))
    });
    Some(TrialServer {
        cpu_cores: (used.cpu_user_s + used.cpu_system_s) / actual_s,
        receive_cores: used.cpu_receive_s.map(|receive_s| receive_s / actual_s),
        may_use_cores: cpu_limit.map_or(f64::from(cores.max(1)), |share| share.cores()),
        limited: cpu_limit.is_some(),
        throttled_share: (cpu_limit.is_some() && periods > 0).then(|| throttled as f64 / periods as f64),
        rss_bytes_max: used.rss_bytes_max,
    })
}

/// Number of cores in a list such as `0,2-3`.
fn cores_of(list: &str) -> u32 {
    let count = |part: &str| match part.split_once('-') {
        Some((from, to)) => Some(to.parse::<u32>().ok()?.checked_sub(from.parse().ok()?)? + 1),
        None => part.parse::<u32>().ok().map(|_| 1),
    };
    list.split(',').filter_map(|part| count(part.trim())).sum()
}

/// The trial second by second.
fn seconds(run: &TrialRun) -> Vec<TrialSecond> {
    let second = |(second, spans): (usize, &[Span])| {
        let completed: u64 = spans.iter().map(|span| span.completed).sum();
        let time: f64 = spans.iter().map(|span| span.response_mean_ns * span.completed as f64).sum();
        let level: f64 = spans.iter().map(|span| span.in_flight_mean + span.backlog_mean).sum();
        let server = run.server_seconds.iter().find(|server| server.second as usize == second);
        TrialSecond {
            second: second as u32,
            completed,
            failed: spans.iter().map(|span| span.failed).sum(),
            response_mean_ns: (completed > 0).then(|| time / completed as f64),
            in_flight: level / spans.len() as f64,
            cpu_s: server.map(|server| (server.cpu_user_s + server.cpu_system_s) / server.elapsed_s.max(1e-3)),
            rss_bytes: server.map(|server| server.rss_bytes),
        }
    };
    let whole = (Duration::from_secs(1).as_nanos() / Span::LENGTH.as_nanos()) as usize;
    run.spans.chunks_exact(whole).enumerate().map(second).collect()
}
