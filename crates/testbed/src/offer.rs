//! Prepares a plan's load: arrivals, phases, and the requests of a recording.
//!
//! ```text
//!   Plan --rate | phases | rate_file--> Arrivals::Open       the plan's own requests
//!        \-replay: an access log------> Arrivals::Logged     the log's requests and clients
//!        |-har: a browser's recording-> a session of its requests
//!        \-mix: a cache's workload----> requests of a world; fewer arrivals, because pages cause further requests
//! ```
//!
//! Files are read here, before anything else of a run is created.

mod har;
mod log;

use std::sync::Arc;
use std::time::Duration;

use load::workload::Choice;
use load::{Arrivals, Logged, PhaseSpan, Workload};
use polymix::CacheWorkload;
use schema::{Method, document};
use stats::Rng;

use crate::error::TestbedError;
use plan::{Plan, RateFile};

/// A plan's load with the contents of its files.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The plan, with settings from files written out: duration, clients.
    pub(crate) plan: Plan,
    /// Scheduled times, warm-up included.
    pub(crate) arrivals: Arrivals,
    /// Phases with their own results.
    pub(crate) phases: Vec<PhaseSpan>,
    /// Requests of a recording or a cache workload, instead of the plan's own.
    pub(crate) workload: Option<Workload>,
    /// The document's part on the replay, if a log is replayed.
    pub(crate) replay: Option<document::Replay>,
    /// The document's part on the recording, if a browser's recording is replayed.
    pub(crate) har: Option<document::Har>,
    /// Warnings to show before the result.
    pub(crate) notes: Vec<String>,
}

/// Reads the files of the plan.
///
/// # Errors
/// An unreadable or invalid file.
pub(crate) fn of(plan: &Plan) -> Result<Offer, TestbedError> {
    let mut plan = plan.clone();
    if plan.load.replay.is_some() {
        return replayed(plan);
    }
    let (mut notes, mut workload, mut part) = (Vec::new(), None, None);
    if let Some(file) = &plan.load.rate_file {
        let table = RateFile::read(file).map_err(TestbedError::Plan)?;
        let length = table.rate.length();
        notes.push(format!(
            "rates are read from column {} of {}, {} long",
            table.column,
            file.display(),
            units::format_duration(length)
        ));
        // If the rate is 0 after the table, a larger number of requests would never be reached.
        let ends = table.rate.per_second(length) == 0.0;
        if plan.load.duration.is_none() && (plan.load.requests.is_none() || ends) {
            plan.load.duration = Some(length);
        }
    }
    if let Some(har) = &plan.load.har {
        let read = har::read(&har.file, &plan.load)?;
        notes.extend(read.notes);
        (workload, part) = (Some(read.workload), Some(read.part));
    }
    let spacing = plan.load.arrivals.spacing().map_err(TestbedError::Plan)?;
    let mut arrival_share = 1.0;
    if let Some(mix) = &plan.load.cache_workload {
        let cache_workload = mix.workload(&plan.load, plan.seed, run_mark()).map_err(TestbedError::Plan)?;
        if let Choice::CacheWorkload(mix) = &cache_workload.choice {
            arrival_share = 1.0 / mix.world.spec.requests_per_arrival();
            notes.extend(mix_notes(&mix.world.spec, &plan, arrival_share));
        }
        workload = Some(cache_workload);
    }
    let arrivals = match plan.load.rate_over_time().map_err(TestbedError::Plan)? {
        Some(rate) => {
            let rate = if arrival_share < 1.0 { rate.scaled(arrival_share) } else { rate };
            let warmup = plan.load.warmup;
            let rate = if plan.load.warmup_rises { rate.after_rising(warmup) } else { rate.after(warmup) };
            Arrivals::Open { spacing, rate }
        }
        None => Arrivals::Closed,
    };
    let phases = plan.load.phases.iter().map(|phase| phase.span()).collect();
    Ok(Offer { plan, arrivals, phases, workload, replay: None, har: part, notes })
}

/// The requests of a plan's run, by the index in their records: methods and URLs as typed. Of a cache workload, a URL
/// for each kind of object.
///
/// # Errors
/// The errors of the plan's run: a log, a recording or a list that no longer exists.
pub fn requests_of(plan: &Plan) -> Result<Vec<(Method, String)>, TestbedError> {
    let offer = of(plan)?;
    let workload = match offer.workload {
        Some(workload) => workload,
        None => offer.plan.load.workload().map_err(TestbedError::Plan)?,
    };
    Ok(workload.requests.iter().map(|request| (request.method, request.target.url().to_owned())).collect())
}

/// A number that practically no other run of a cache workload has.
fn run_mark() -> u32 {
    Rng::new(sys::clock::realtime_ns(), u64::from(std::process::id())).next() as u32
}

/// Warnings of a cache workload before its result.
fn mix_notes(spec: &CacheWorkload, plan: &Plan, arrival_share: f64) -> Vec<String> {
    let mut notes = Vec::new();
    if arrival_share < 1.0 {
        notes.push(format!(
            "pages of {} have embedded objects: {:.0} % of the requests are arrivals, the others follow their page",
            spec.name,
            100.0 * arrival_share
        ));
    }
    if let (Some(each), Some(rate)) = (spec.per_client_rate, plan.load.rate) {
        let expected = (rate.per_second() / each).ceil().max(1.0);
        let clients = f64::from(plan.load.clients);
        if clients < expected / 2.0 || clients > expected * 2.0 {
            notes.push(format!(
                "a virtual user of {} makes {each} requests per second: this rate needs {expected:.0} clients, but the \
                 plan has {clients:.0} (--clients)",
                spec.name
            ));
        }
    }
    notes
}

fn replayed(mut plan: Plan) -> Result<Offer, TestbedError> {
    let replay_plan = plan.load.replay.clone().expect("a replay");
    let log = log::read(&replay_plan, &plan.load)?;
    let load = &mut plan.load;
    load.clients = log.clients;
    // Without a limit of the run a log is replayed once.
    let rounds = replay_plan.loops.or(if load.duration.is_none() { Some(1) } else { None });
    if let Some(rounds) = rounds {
        let whole_ns = log.round.as_nanos().saturating_mul(rounds.into());
        let whole = Duration::from_nanos(u64::try_from(whole_ns).unwrap_or(u64::MAX));
        let left = whole.saturating_sub(load.warmup);
        if left.is_zero() {
            return Err(TestbedError::Plan(format!(
                "the log lasts {}, which the warm-up would use completely: give a shorter warm-up (--warmup)",
                units::format_duration(whole)
            )));
        }
        load.duration = Some(load.duration.map_or(left, |duration| duration.min(left)));
    }
    let replay = document::Replay {
        rounds,
        requests_planned: rounds.map(|rounds| rounds.saturating_mul(log.part.requests_logged)),
        ..log.part
    };
    let notes = log::notes(&replay, load.warmup + load.duration.unwrap_or_default());
    let logged = Logged { arrivals: log.arrivals, round: log.round, rounds };
    Ok(Offer {
        plan,
        arrivals: Arrivals::Logged(Arc::new(logged)),
        phases: Vec::new(),
        workload: Some(log.workload),
        replay: Some(replay),
        har: None,
        notes,
    })
}

#[cfg(test)]
mod tests;
