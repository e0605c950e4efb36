//! Measures a path from the clients' end with datagrams and a TCP stream, and compares configured with measured values.
//!
//! ```text
//!   clients' namespace                path                    server's namespace
//!   sender (one socket a client) --> pings, probes, floods --> server end: counts, responds
//!   client end: counts          <-- responses, floods     <--
//! ```
//!
//! The ends' own sockets count everything; the path's counters are not used. `expected` computes expected values,
//! `ends` measures, `judge` compares both.

mod ends;
mod expected;
mod judge;
mod message;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use path::PathSpec;
use sys::clock::Clock;
use sys::sched::{RealTimeLock, Urgency};
use sys::signal::Wake;

use crate::distances;
use crate::drive::Drive;
use crate::drive::progress::Progress;
use crate::error::TestbedError;
use crate::host::CorePlan;
use crate::topology::{self, Topology};
use ends::Ends;
use plan::{Engine, PathPlan, ServerTcp, Wait};

pub use judge::{Row, State, Unit};

/// Settings of a check.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// The path to measure.
    pub path: PathPlan,
    /// The path whose configuration gives the expected values; `None`: the measured path's own.
    pub against: Option<PathPlan>,
    /// Number of clients.
    pub clients: u32,
    /// Approximate time to measure.
    pub duration: Duration,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Results of a check.
#[derive(Clone, Debug)]
pub struct CheckOutcome {
    /// Name of the measured path.
    pub name: String,
    /// Configured and measured values.
    pub rows: Vec<Row>,
    /// What was left out and why, one sentence each.
    pub notes: Vec<String>,
}

impl CheckOutcome {
    /// Whether all judged values are as configured.
    pub fn is_as_configured(&self) -> bool {
        self.rows.iter().all(|row| row.state != State::Outside)
    }
}

/// Creates the path and measures it. Call it while this process has one thread.
///
/// # Errors
/// A path that cannot be created, a machine that lacks a feature, or failing sockets.
pub fn check(plan: &CheckPlan) -> Result<CheckOutcome, TestbedError> {
    if plan.clients == 0 || plan.clients > path::AddressPlan::CLIENTS_MAX {
        return Err(TestbedError::Plan(format!(
            "--clients {}: expected 1 to {}",
            plan.clients,
            path::AddressPlan::CLIENTS_MAX
        )));
    }
    let mut spec = distances::spec(&plan.path, plan.clients)?;
    let mut reference = match &plan.against {
        Some(against) => distances::spec(against, plan.clients)?,
        None => spec.clone(),
    };
    let mut notes = Vec::new();
    if !spec.changes.is_empty() || !reference.changes.is_empty() {
        notes.push("changes at given times are ignored: the path is measured without them".to_owned());
        spec.changes.clear();
        reference.changes.clear();
    }
    let rootless = topology::gain_privilege()?;
    let mut topology = Topology::new(None, &CorePlan::default(), None, rootless)?;
    let mut path_io =
        topology.connect(&spec, plan.path.offload, &ServerTcp::default(), &CorePlan::default(), plan.seed)?;
    let ends = Ends::open(&topology)?;
    let progress = Arc::new(Progress::default());
    let stop = Wake::new().map_err(TestbedError::system("eventfd"))?;
    let keeps_time = distances::keeps_time(&spec);
    let clock = Clock::start();
    path_io.set_start(clock.now());
    let outcome = std::thread::scope(|scope| {
        let mut drive = Drive {
            clock,
            wait: Wait::default(),
            engine: Engine::default(),
            path: Some(path_io),
            load: None,
            progress: Arc::clone(&progress),
            stop: std::os::fd::AsFd::as_fd(&stop),
            drain: Duration::ZERO,
            others: Vec::new(),
            own_core: false,
            shares_core: false,
            urgency: Urgency::Ordinary,
            grace: Duration::ZERO,
        };
        let right = keeps_time.then(RealTimeLock::acquire).flatten();
        let thread = std::thread::Builder::new()
            .name("path".into())
            .spawn_scoped(scope, move || {
                // A path without a load runs at real-time priority, as in `net`.
                let urgency = if right.is_some() { Urgency::RealTime } else { Urgency::High };
                drive.urgency = urgency.apply_to_this_thread();
                drive.run()
            })
            .map_err(TestbedError::system("start the path"))?;
        let outcome = measure(plan, &reference, &ends);
        progress.request_stop(1, units::Timestamp::ZERO);
        stop.wake();
        thread.join().expect("the path does not panic").map_err(TestbedError::system("the path"))?;
        outcome
    })?;
    let (rows, more) = outcome;
    notes.extend(more);
    Ok(CheckOutcome { name: distances::name(&plan.path), rows, notes })
}

/// Runs pings, probes and floods one after another, and compares their results.
fn measure(plan: &CheckPlan, reference: &PathSpec, ends: &Ends) -> Result<(Vec<Row>, Vec<String>), TestbedError> {
    let failed = TestbedError::system("measure the path");
    let groups = expected::groups(reference);
    let mut notes = Vec::new();
    let judged = &groups[..groups.len().min(expected::GROUPS_MAX)];
    if judged.len() < groups.len() {
        notes.push(format!(
            "of {} kinds of links, the {} with the most clients were probed for loss and rate",
            groups.len(),
            judged.len()
        ));
    }
    for group in judged.iter().filter(|group| !group.alone) {
        notes.push(format!("client {} stands for {} clients with the same links", group.client + 1, group.clients));
    }
    let work = || -> std::io::Result<Vec<Row>> {
        let sample = expected::sample(reference);
        let seconds = plan.duration.as_secs_f64();
        let mut rows = judge::rtts(reference, &ends.ping(&sample, reference, Duration::from_secs_f64(seconds * 0.25))?);
        let probes = Duration::from_secs_f64(seconds * 0.3);
        for group in judged {
            // One kind of link after another: two simultaneous floods would measure the machine.
            let share = judged.len() as u32;
            let probed = ends.probe(group.client, reference, probes / share)?;
            rows.extend(judge::losses(reference, group, &probed));
            let floods = Duration::from_secs_f64(seconds * 0.3) / share / 2;
            for up in [true, false] {
                if let Some(flood) = expected::flood(reference, group.client, up) {
                    let measured = ends.flood(group.client, reference, up, &flood, floods)?;
                    rows.push(judge::rate(group, up, &flood, measured, floods));
                }
            }
        }
        let streams = Duration::from_secs_f64(seconds * 0.15) / 2;
        for up in [true, false] {
            let measured = ends.stream(judged[0].client, up, streams)?;
            rows.push(judge::stream(reference, &judged[0], up, measured));
        }
        Ok(rows)
    };
    let rows = work().map_err(failed)?;
    Ok((rows, notes))
}
