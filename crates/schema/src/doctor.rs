//! What this machine can and cannot do: the JSON document of `doctor`.

use serde::{Deserialize, Serialize};

use crate::document::{Host, Quantiles};

/// Schema of [`DoctorDocument`].
pub const SCHEMA: &str = "yamabiko.doctor/2";

/// The verb of [`DoctorDocument::verbs`] that is the main job: a server of the testbed behind a path. A machine on which it
/// does not work lacks something.
pub const MAIN_VERB: &str = "bench --server";

/// The document of `doctor`. It is of a machine and not of a run: no run, no validity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoctorDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine.
    pub host: Host,
    /// What each verb can do here.
    pub verbs: Vec<Ability>,
    /// What was found, by area.
    pub findings: Vec<Finding>,
    /// What was measured; absent where measuring was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

impl DoctorDocument {
    /// State of the verb, or part of a verb, with this name.
    pub fn verb(&self, name: &str) -> Option<&Ability> {
        self.verbs.iter().find(|ability| ability.verb == name)
    }

    /// Whether [`MAIN_VERB`] works, in part at least.
    pub fn ready(&self) -> bool {
        self.verb(MAIN_VERB).is_some_and(|ability| ability.state != AbilityState::No)
    }
}

/// One result of an inspection or a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What part of the machine it is of.
    pub area: Area,
    /// Its name, the same in every document: lower case, no version or figure in it.
    pub name: String,
    /// What was found, in words.
    pub found: String,
    /// Rating.
    pub state: State,
    /// Verbs and figures that it affects; empty where it is ok.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<String>,
    /// What would fix it: a command, or what to ask for. Absent where it is ok, and where nothing would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// A part of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// What this user may do.
    Rights,
    /// What a path is built from.
    Network,
    /// Kernel, cores, memory, limits.
    Machine,
    /// Clock and timers.
    Time,
}

impl Area {
    /// All, in the order in which they are shown.
    pub const ALL: [Area; 4] = [Area::Rights, Area::Network, Area::Machine, Area::Time];

    /// As a heading.
    pub const fn name(self) -> &'static str {
        match self {
            Area::Rights => "rights",
            Area::Network => "network",
            Area::Machine => "machine",
            Area::Time => "time",
        }
    }
}

/// Rating of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Fine,
    /// Everything works, and some figure or comfort suffers.
    WorthKnowing,
    /// A verb, or a part of one, does not work.
    Lacking,
}

impl State {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            State::Fine => "fine",
            State::WorthKnowing => "worth knowing",
            State::Lacking => "lacking",
        }
    }
}

/// What a verb, or a part of one, can do here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ability {
    /// As typed: `bench --server`, `watch -i`.
    pub verb: String,
    /// What it is for.
    pub about: String,
    /// Whether it works.
    pub state: AbilityState,
    /// Why not, or what is different here; empty where it works as it should.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What would fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// Whether a verb works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbilityState {
    /// It works.
    Works,
    /// It works, and not as well as on another machine or for another user.
    InPart,
    /// It does not.
    No,
}

impl AbilityState {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            AbilityState::Works => "works",
            AbilityState::InPart => "in part",
            AbilityState::No => "no",
        }
    }
}

/// What was measured in about two seconds: a quick look, not a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How long it took.
    pub duration_s: f64,
    /// Scheduling class of the measuring thread: that of the loop, as far as allowed.
    pub scheduling: String,
    /// The core it was pinned to; absent where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// How late a thread wakes, by wait mode and lead time.
    pub wake_up: Vec<WakeUp>,
    /// One reading of the clock: means of some hundred readings in a row each.
    pub clock_read_ns: Quantiles,
    /// One write of a small UDP packet to a TUN, the receiver's network stack included; absent where there is no TUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tun_write_ns: Option<Quantiles>,
    /// Share of all cores' time that the hypervisor took meanwhile, 0 to 1.
    pub steal_share: f64,
    /// Share of all cores' time that was used meanwhile, by any process, 0 to 1.
    pub busy_share: f64,
}

/// How late a thread wakes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeUp {
    /// `hybrid` or `sleep`, as of `--wait`.
    pub wait: String,
    /// Lead time: from the begin of the wait to the time requested.
    pub ahead_ns: u64,
    /// Wake-up time less the time requested. Of few waits: with 20 values the 99th
    /// percentile is the largest.
    pub late_ns: Quantiles,
}
