//! Fourth stage: the run's clock, and the times at which everything begins and ends.

use std::time::Duration;

use load::{Load, LoadSpec};
use path::PathSpec;
use sys::clock::Clock;
use sys::signal::Interrupts;
use units::Timestamp;

use super::resolve::Resolved;
use super::resources::Resources;
use super::spec;
use crate::distances;
use crate::error::TestbedError;
use crate::shards::ShardPlan;
use plan::{Plan, StartAt};

/// Time between the end of all preparations and the start of the load, so that threads are running.
const START_LEAD: Duration = Duration::from_millis(50);
/// Time between the run's zero and a configured start: the same on every machine, so that the times of all shards are
/// comparable. About as long as without a configured start.
const CONFIGURED_START_LEAD: Duration = Duration::from_millis(100);
/// Interval at which the wall clock is read while waiting for a configured start.
const START_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Additional time for each process of the load.
const START_LEAD_PER_PROCESS: Duration = Duration::from_millis(10);
/// Time for which the cores of the testbed's server are observed without load: their activity then is not the server's.
const BASELINE_DURATION: Duration = Duration::from_millis(100);
/// Rate per second at which idle open connections are opened and closed: two cores with both ends and the path between
/// them sustain it without delay.
pub(super) const OPEN_PER_SECOND: u32 = 5_000;
/// Time between opening the last idle open connection and the start of the load.
const SETTLE_DURATION: Duration = Duration::from_secs(1);

/// When everything begins and ends, on the run's clock.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    /// The run's clock: its zero is the run's.
    pub clock: Clock,
    /// Start of opening idle open connections; before it there is no load.
    pub open_from: Timestamp,
    /// Start of the load.
    pub start: Timestamp,
    /// The measured phase, its end as far as it is known.
    pub measured: (Timestamp, Option<Timestamp>),
}

impl Schedule {
    /// Starts the clock; with a configured start (`--start-at`) when that is near. `interrupts`: with their number at
    /// the beginning of the run.
    ///
    /// # Errors
    /// The configured start has passed, or is too near for the preparations; the wait was interrupted.
    pub fn start(
        resolved: &Resolved,
        resources: &Resources,
        load_spec: &LoadSpec,
        interrupts: (&Interrupts, u32),
    ) -> Result<Self, TestbedError> {
        let plan = &resolved.plan;
        let preparation_time = preparation_time(load_spec, resources.shard_plan);
        let baseline = if plan.server.is_some() { BASELINE_DURATION } else { Duration::ZERO };
        let lead = START_LEAD + baseline + START_LEAD_PER_PROCESS * resources.shard_plan.processes() + preparation_time;
        let (clock, open_from) = match plan.shard.start_at {
            Some(at) => (wait_for(at, lead, interrupts)?, Timestamp::ZERO + CONFIGURED_START_LEAD),
            None => {
                let clock = Clock::start();
                (clock, clock.now() + lead)
            }
        };
        let start = open_from + opening(plan, resolved.spec.as_ref());
        let measured_from = start + plan.load.warmup;
        let measured = (measured_from, plan.load.duration.map(|duration| measured_from + duration));
        Ok(Schedule { clock, open_from, start, measured })
    }

    /// Start of the measured phase.
    pub fn measured_from(&self) -> Timestamp {
        self.measured.0
    }
}

/// Waits until the preparations for a load that begins at `at` must begin, and returns the run's clock. The zero is
/// [`CONFIGURED_START_LEAD`] before `at`, so that all shards of a load have the same times, however long each prepares.
fn wait_for(at: StartAt, lead: Duration, (interrupts, before): (&Interrupts, u32)) -> Result<Clock, TestbedError> {
    let ahead = |lead: Duration| {
        let from = at.unix_ns().saturating_sub(units::time::saturating_nanos(lead));
        let now = sys::clock::realtime_ns();
        from.checked_sub(now).map(Duration::from_nanos).ok_or_else(|| Duration::from_nanos(now - from))
    };
    if let Err(late) = ahead(lead) {
        let passed = ahead(Duration::ZERO).err();
        let why = match passed {
            Some(passed) => format!("has passed, {:.3} s ago", passed.as_secs_f64()),
            None => format!(
                "is too near: this machine prepares for {:.3} s, which is {:.3} s too long",
                lead.as_secs_f64(),
                late.as_secs_f64()
            ),
        };
        return Err(TestbedError::Plan(format!(
            "start_at = {at} (--start-at) {why}: expected a time far enough ahead for all machines to be ready"
        )));
    }
    // The wall clock may be set while this waits, so it is read again and again.
    while let Ok(left) = ahead(lead.max(CONFIGURED_START_LEAD)) {
        if interrupts.count() > before {
            return Err(TestbedError::Environment(
                "interrupted before the start (--start-at): nothing was sent".into(),
            ));
        }
        interrupts.wait(left.min(START_POLL_INTERVAL));
    }
    Ok(Clock::at_unix_ns(at.unix_ns().saturating_sub(units::time::saturating_nanos(CONFIGURED_START_LEAD))))
}

/// Time to prepare the input of all shards' loops, measured by doing it once: with a log of a million different
/// requests it takes seconds, and the load must not start meanwhile.
fn preparation_time(spec: &LoadSpec, shards: ShardPlan) -> Duration {
    let began = sys::clock::monotonic_ns();
    drop(Load::new(spec::shard(spec, shards, 0), Timestamp::ZERO));
    // One more than the number of loops, because it may take longer the next time.
    Duration::from_nanos(sys::clock::monotonic_ns().saturating_sub(began)).saturating_mul(shards.of + 1)
}

/// Time to open the idle open connections, until the last of them is established.
fn opening(plan: &Plan, spec: Option<&PathSpec>) -> Duration {
    let rtt = spec.map_or(Duration::ZERO, distances::longest_rtt);
    if plan.load.open_connections.is_some() { closing(plan) + SETTLE_DURATION + rtt * 2 } else { Duration::ZERO }
}

/// Time to close the idle open connections.
pub(super) fn closing(plan: &Plan) -> Duration {
    Duration::from_secs_f64(f64::from(plan.load.open_connections.unwrap_or(0)) / f64::from(OPEN_PER_SECOND))
}
