//! The result of a trial, and the cost of its processes.

use std::time::Duration;

use serde_json::Value;

use super::faults::FaultCounts;
use super::process::Cost;

/// Cost of the processes, killed ones included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Sum over all starts of the manager.
    pub manager: Cost,
    /// Sum of all agents; peak memory of one agent.
    pub agents: Cost,
    /// Sum of all talkers.
    pub talkers: Cost,
}

/// The result of a trial.
#[derive(Debug)]
pub struct Outcome {
    /// The JSON result of `readers/fleet.py check`.
    pub found: Value,
    /// Over NATS the JSON result of `readers/fleet.py differing` for both managers.
    pub between_managers: Value,
    /// The injected faults.
    pub faults_injected: FaultCounts,
    /// The cost of the processes.
    pub costs: Costs,
    /// From the first talker's start to the last row stored.
    pub elapsed: Duration,
    /// From the last talker's end to the last row stored.
    pub storage_delay: Duration,
}

impl Outcome {
    /// Counts of the comparison that must be 0 if each exchange is stored exactly once and correctly.
    pub fn checks(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        const MUST_BE_ZERO: [&str; 12] = [
            "missing",
            "duplicated",
            "unexpected",
            "wrong_order",
            "wrong_connection",
            "wrong_day",
            "wrong_time",
            "refused_wrong",
            "unused_wrong",
            "lost_records",
            "dropped_rows",
            "unaccounted",
        ];
        MUST_BE_ZERO.into_iter().map(|name| (name, &self.found[name]))
    }

    /// The checks whose count is not 0.
    pub fn failures(&self) -> Vec<String> {
        let wrong = self.checks().filter(|(_, value)| value.as_u64() != Some(0));
        wrong.map(|(name, value)| format!("{name}: {value}")).collect()
    }
}
