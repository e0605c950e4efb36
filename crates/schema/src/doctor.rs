//! The JSON document of `doctor`: what works on this machine, which figures suffer, and how to fix both.

use serde::{Deserialize, Serialize};

use crate::document::{Host, Quantiles};

/// Schema of [`DoctorDocument`].
pub const SCHEMA: &str = "yamabiko.doctor/2";

/// The main verb of [`DoctorDocument::verbs`]: a server of the testbed behind a path. Without it a machine is not
/// ready.
pub const MAIN_VERB: &str = "bench --server";

/// The document of `doctor`. It describes a machine, not a run, and has no verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoctorDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine.
    pub host: Host,
    /// State of each verb on this machine.
    pub verbs: Vec<Ability>,
    /// Findings, by area.
    pub findings: Vec<Finding>,
    /// Measured timers; absent with `--quick`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

impl DoctorDocument {
    /// The state of the verb, or part of a verb, with this name.
    pub fn verb(&self, name: &str) -> Option<&Ability> {
        self.verbs.iter().find(|ability| ability.verb == name)
    }

    /// Whether [`MAIN_VERB`] works, at least partially.
    pub fn ready(&self) -> bool {
        self.verb(MAIN_VERB).is_some_and(|ability| ability.state != VerbState::Missing)
    }
}

/// One property of the machine that was read, tried or measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Area of the machine.
    pub area: Area,
    /// Name, the same in every document: without versions or figures.
    pub name: String,
    /// The found value, as text.
    pub found: String,
    /// State of the finding.
    pub state: State,
    /// Affected verbs and figures; empty if it is ok.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<String>,
    /// Fix: a command, or what to request. Absent if the state is ok, or without a fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// An area of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Privileges of this user.
    Rights,
    /// Network features that a path needs.
    Network,
    /// Kernel, cores, memory, limits.
    Machine,
    /// Clock and timers.
    Time,
}

impl Area {
    /// All areas, in the order in which they are shown.
    pub const ALL: [Area; 4] = [Area::Rights, Area::Network, Area::Machine, Area::Time];

    /// The heading.
    pub const fn name(self) -> &'static str {
        match self {
            Area::Rights => "rights",
            Area::Network => "network",
            Area::Machine => "machine",
            Area::Time => "time",
        }
    }
}

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No problem.
    Ok,
    /// Everything works, but a figure is less precise or a step is less convenient. Serialised as `worth_knowing`.
    #[serde(rename = "worth_knowing")]
    Note,
    /// A verb, or a part of one, does not work.
    Missing,
}

impl State {
    /// The state as text.
    pub const fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Note => "note",
            State::Missing => "missing",
        }
    }
}

/// State of a verb, or of a part of one, on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ability {
    /// The verb as typed: `bench --server`, `watch -i`.
    pub verb: String,
    /// Purpose of the verb.
    pub about: String,
    /// State of the verb.
    pub state: VerbState,
    /// The reason of a state other than ok; empty if it is ok.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Fix of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// State of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerbState {
    /// The verb works.
    Ok,
    /// The verb works, but not as well as on another machine or for another user.
    Partial,
    /// The verb does not work.
    Missing,
}

impl VerbState {
    /// The state as text.
    pub const fn name(self) -> &'static str {
        match self {
            VerbState::Ok => "ok",
            VerbState::Partial => "partial",
            VerbState::Missing => "missing",
        }
    }
}

/// Timers, clock and TUN, measured for about two seconds: an estimate, not a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Duration of the measurement.
    pub duration_s: f64,
    /// Scheduling class of the measuring thread: that of the load generator, as far as permitted.
    pub scheduling: String,
    /// The core that the thread was pinned to; absent without pinning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// Wake-up delay of a thread, by kind of wait and by length.
    pub wake_up: Vec<WakeUp>,
    /// One reading of the clock: each value is the mean of a hundred consecutive readings.
    pub clock_read_ns: Quantiles,
    /// One write of a small UDP packet to a TUN, including the receiver's network stack; absent without a TUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tun_write_ns: Option<Quantiles>,
    /// Share of all cores' time that the hypervisor took during the measurement, 0 to 1.
    pub steal_share: f64,
    /// Share of all cores' time that any program used during the measurement, 0 to 1.
    pub busy_share: f64,
}

/// Wake-up delay of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeUp {
    /// `hybrid` or `sleep`, as of `--wait`.
    pub wait: String,
    /// Length of the wait.
    pub ahead_ns: u64,
    /// Actual less requested time of waking up. With 20 values the 99th percentile is the maximum.
    pub late_ns: Quantiles,
}
