//! Fourth stage: the run's clock, and when everything begins and ends on it.

use std::time::Duration;

use load::{Load, LoadSpec};
use path::PathSpec;
use sys::clock::Clock;
use units::Timestamp;

use super::resolve::Resolved;
use super::resources::Resources;
use super::spec;
use crate::distances;
use crate::lanes::LanePlan;
use plan::Plan;

/// The load starts so long after everything is ready, so that threads are in place.
const LEAD: Duration = Duration::from_millis(50);
/// And so much later for each process that takes part.
const LEAD_EACH: Duration = Duration::from_millis(10);
/// For so long the cores of a server of the lab are looked at before there is load: what they do then is not the server's.
const BASELINE: Duration = Duration::from_millis(100);
/// Connections that are held are opened and closed at this rate per second: a machine of two cores, both ends and the path
/// between them on it, carries it without delay.
pub(super) const OPEN_PER_SECOND: u32 = 5_000;
/// The load begins so long after the last of the held connections was begun.
const SETTLE: Duration = Duration::from_secs(1);

/// When everything begins and ends, on the run's clock.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    /// The run's clock: its zero is the run's.
    pub clock: Clock,
    /// Connections that are held are opened from here on; before it there is no load.
    pub open_from: Timestamp,
    /// The load starts.
    pub start: Timestamp,
    /// The measured phase, its end as far as it is known.
    pub measured: (Timestamp, Option<Timestamp>),
}

impl Schedule {
    /// Starts the clock.
    pub fn start(resolved: &Resolved, resources: &Resources, load_spec: &LoadSpec) -> Self {
        let plan = &resolved.plan;
        let building = building(load_spec, resources.lane_plan);
        let clock = Clock::start();
        let baseline = if plan.server.is_some() { BASELINE } else { Duration::ZERO };
        let open_from = clock.now() + LEAD + baseline + LEAD_EACH * resources.lane_plan.processes() + building;
        let start = open_from + opening(plan, resolved.spec.as_ref());
        let measured_from = start + plan.load.warmup;
        let measured = (measured_from, plan.load.duration.map(|duration| measured_from + duration));
        Schedule { clock, open_from, start, measured }
    }

    /// When the measured phase begins.
    pub fn measured_from(&self) -> Timestamp {
        self.measured.0
    }
}

/// How long it takes to make ready what the loops of all lanes work on, found by doing it once: with a log of a million
/// different requests it takes seconds, in which the load must not be due yet.
fn building(spec: &LoadSpec, lanes: LanePlan) -> Duration {
    let began = sys::clock::monotonic_ns();
    drop(Load::new(spec::lane(spec, lanes.lane(0)), Timestamp::ZERO));
    // One more than there are, since it may take longer the next time.
    Duration::from_nanos(sys::clock::monotonic_ns().saturating_sub(began)).saturating_mul(lanes.of + 1)
}

/// How long it takes to open the connections that are held, and until the last of them is established.
fn opening(plan: &Plan, spec: Option<&PathSpec>) -> Duration {
    let rtt = spec.map_or(Duration::ZERO, distances::longest_rtt);
    if plan.load.open_connections.is_some() { closing(plan) + SETTLE + rtt * 2 } else { Duration::ZERO }
}

/// How long it takes to close them.
pub(super) fn closing(plan: &Plan) -> Duration {
    Duration::from_secs_f64(f64::from(plan.load.open_connections.unwrap_or(0)) / f64::from(OPEN_PER_SECOND))
}
