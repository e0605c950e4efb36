//! The plan: the complete description of a run, so that the same file repeats the same run.
//!
//! The command line and a plan file both become a [`Plan`]. A printed plan has every default written out. An unknown
//! key is an error: a misspelt option must not become a run that measures something else.

mod arrivals;
mod cache_workload;
mod capacity;
mod check;
#[cfg(feature = "cli")]
pub mod cli;
mod components;
mod host;
mod http2;
mod http3;
mod load;
mod named;
mod origin;
mod path;
mod proxy;
mod replay;
mod server;
mod shard;
pub mod slo;
mod target;
mod tls;
mod transport;
mod watch;
mod workload;

use std::path::Path;

use serde::{Deserialize, Serialize};
use units::Bytes;

pub use self::arrivals::RateFile;
pub use self::arrivals::{ArrivalKind, BurstsPlan, OfferedRate, PhaseKind, PhasePlan, SelfSimilarPlan, sweep};
pub use self::cache_workload::CacheWorkloadPlan;
pub use self::capacity::{CapacityPlan, Find, LoadLimit, TrialLoad};
pub use self::components::{BodyFrom, ComponentsPlan, LogLines, ObjectPlan, Waits};
pub use self::host::{Engine, HostPlan, Idle, Placement, Wait};
pub use self::http2::Http2Plan;
pub use self::http3::{CongestionControl, Http3Plan};
pub use self::load::{Body, HttpVersion, LoadPlan, Offered, Retry};

pub use self::origin::OriginPlan;
pub use self::path::PathPlan;
pub use self::proxy::Proxy;
pub use self::replay::{ClientMapping, HarPlan, LogFormat, ReplayPlan};
pub use self::server::{ServerPlan, ServerTcp};
pub use self::shard::{CoordinationOptions, ShardOf, ShardPlan, StartAt};
pub use self::target::{AddressFamily, TargetPlan, To};
pub use self::tls::{Alpn, TlsPlan, TlsVersion};
pub use self::transport::STREAMS;
pub use self::watch::{SNAPLEN_MAX, SNAPLEN_OF_HEADS, WatchAt, WatchPlan};
pub use self::workload::{
    ChoicePlan, ContentPlan, DrawnThink, ExpectPlan, ExtractPlan, LengthRange, ModelName, OnFailure, PARALLEL,
    RequestPlan, SessionPlan, StatusSet, StepPlan, ThinkPlan, Time, Turn, literal,
};
use crate::slo::Slo;

/// The plan of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the run, part of its directory's name: letters, digits, `-` and `_`.
    #[serde(default = "default_name")]
    pub name: String,
    /// Seed of all random choices.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// The load: what is requested, how often, and by whom.
    pub load: LoadPlan,
    /// The emulated network between clients and server; absent: none, the generator connects to the URL directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
    /// The server that the testbed starts; absent: it already runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerPlan>,
    /// The origin behind the proxy under test that the testbed starts; absent: there is none, or it already runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginPlan>,
    /// Addresses of the server, where the URL alone does not define them.
    #[serde(default)]
    pub target: TargetPlan,
    /// Packet capture at the ends of the path: an independent measurement of the same load.
    #[serde(default)]
    pub watch: WatchPlan,
    /// How the load generator waits, and on which cores each part runs.
    #[serde(default)]
    pub host: HostPlan,
    /// The part of the load that this machine makes, and the time at which all machines begin.
    #[serde(default, skip_serializing_if = "ShardPlan::is_unset")]
    pub shard: ShardPlan,
    /// The objective that the run must meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// The search for the highest load that keeps the objective; absent: a single run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPlan>,
    /// The model of a server for `predict --components`; other verbs ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<ComponentsPlan>,
}

impl Default for Plan {
    /// A run without a URL.
    fn default() -> Self {
        Plan {
            name: default_name(),
            seed: default_seed(),
            load: LoadPlan::default(),
            path: None,
            server: None,
            origin: None,
            target: TargetPlan::default(),
            watch: WatchPlan::default(),
            host: HostPlan::default(),
            shard: ShardPlan::default(),
            slo: None,
            capacity: None,
            components: None,
        }
    }
}

/// Why a plan is refused.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML, has an unknown key, or a quantity without its unit.
    #[error("{origin}:{line}: {message}")]
    Unreadable {
        /// The plan file.
        origin: String,
        /// The line, counted from 1.
        line: usize,
        /// The error on one line.
        message: String,
    },
    /// Two parts of the plan contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

/// Placeholder in a plan's server command for the absolute path of the plan file's directory. It is not quoted: write
/// it within double quotes.
const PLAN_FOLDER: &str = "$PLAN_FOLDER";

/// Replaces the placeholder of the directory in a command of a plan whose file is in `folder`.
pub fn in_folder(command: &str, folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    command.replace(PLAN_FOLDER, &folder.to_string_lossy())
}

impl Plan {
    /// Resolves the plan's relative file names against `folder`, the directory of its own file: files of the load, the
    /// profile of the path, and `$PLAN_FOLDER` in the server's command.
    pub fn find_files_from(&mut self, folder: &Path) {
        self.load.find_files_from(folder);
        if let Some(path) = &mut self.path {
            path.find_files_from(folder);
        }
        if let Some(server) = &mut self.server {
            server.command = in_folder(&server.command, folder);
        }
    }

    /// Reads a plan from TOML; `origin` names it in errors.
    ///
    /// # Errors
    /// Syntax, unknown keys, values out of range, and what [`Plan::check`] refuses.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, PlanError> {
        let mut plan: Plan = toml::from_str(text).map_err(|error| PlanError::Unreadable {
            origin: origin.to_owned(),
            line: 1 + error
                .span()
                .map_or(0, |span| text.bytes().take(span.start).filter(|&byte| byte == b'\n').count()),
            message: explain(error.message()),
        })?;
        plan.settle()?;
        Ok(plan)
    }

    /// Checks the plan and writes out the defaults that depend on other keys.
    ///
    /// # Errors
    /// What [`Plan::check`] refuses.
    pub fn settle(&mut self) -> Result<(), PlanError> {
        // The check needs complete phases.
        self.load.settle_phases();
        self.check()?;
        self.watch.at = Some(self.watch_at());
        self.load.settle_tls();
        self.load.settle_workload();
        Ok(())
    }

    /// The ends of the path at which packets are captured.
    pub fn watch_at(&self) -> WatchAt {
        let of_path = if self.watch.keep { WatchAt::Both } else { WatchAt::Server };
        self.watch.at.unwrap_or(if self.path.is_some() { of_path } else { WatchAt::None })
    }

    /// Bytes stored of each captured packet.
    pub fn snaplen(&self) -> Bytes {
        let default = if self.needs_whole_packets() { SNAPLEN_MAX } else { SNAPLEN_OF_HEADS };
        self.watch.snaplen.unwrap_or(default)
    }

    /// Whether a capture can read requests only in whole packets: they are encrypted, or in frames.
    pub fn needs_whole_packets(&self) -> bool {
        self.load.secure() || !self.load.http.is_http1()
    }

    /// The plan as TOML with every field that is set; [`Plan::from_toml`] reads it back.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a plan is plain tables of text and numbers")
    }
}

/// The message of the TOML parser on one line, with a hint for quantities without a unit.
fn explain(message: &str) -> String {
    let line = message.trim().replace('\n', "; ");
    if line.starts_with("invalid type") && line.ends_with("expected a string") {
        format!("{line}: a quantity is text with its unit, such as \"48ms\", \"110/s\" or \"10Mbit\"")
    } else {
        line
    }
}

fn default_name() -> String {
    "run".into()
}

fn default_seed() -> u64 {
    1
}

#[cfg(test)]
mod tests;
