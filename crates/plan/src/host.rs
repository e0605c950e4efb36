//! `[host]`: waits of the load generator, placement on cores, and system calls of the load.

use serde::{Deserialize, Serialize};

use super::named::named;

/// How the load generator waits, and on which cores each part runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "This machine"))]
pub struct HostPlan {
    /// Wait this way for the next due time of generator and path
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub wait: Wait,
    /// Let idle processors stay awake (where permitted), or sleep
    #[serde(skip_serializing_if = "Idle::is_usual")]
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub idle: Idle,
    /// Assign cores this way [default: split for bench, float for net]
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t, hide_default_value = true))]
    pub placement: Placement,
    /// Generate the load in this many threads, each with its own clients and connections
    #[serde(skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", default_value_t = 1, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(help_heading = "Load"))]
    pub threads: u32,
    /// Use this kernel interface: io_uring where available and without TLS, or one of the two by name
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t, help_heading = "Load"))]
    pub engine: Engine,
}

impl Default for HostPlan {
    fn default() -> Self {
        HostPlan {
            wait: Wait::default(),
            idle: Idle::default(),
            placement: Placement::default(),
            threads: 1,
            engine: Engine::default(),
        }
    }
}

impl HostPlan {
    /// Most threads.
    pub const THREADS_MAX: u32 = 64;

    /// Refuses numbers out of range.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.threads == 0 || self.threads > Self::THREADS_MAX {
            return Err(format!("threads = {} (--threads): expected 1 to {}", self.threads, Self::THREADS_MAX));
        }
        Ok(())
    }
}

/// The kernel interface of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// io_uring where the kernel supports it and the load has no TLS, otherwise epoll.
    #[default]
    Auto,
    /// io_uring: the kernel delivers received data, and requests are sent in batches.
    IoUring,
    /// epoll: a system call for each receive and each send.
    Epoll,
}

/// How the load generator waits for the next due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Sleep until the due time.
    Sleep,
    /// Sleep until 5 us before, then spin.
    #[default]
    Hybrid,
    /// Never sleep; uses a whole core.
    Spin,
}

/// What idle processors of this machine do during the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// They poll for work, where this user may request that (PM QoS, a wake-up latency of 0): nothing that is due waits
    /// for a sleeping processor, or for one that the hypervisor lent to others.
    #[default]
    Awake,
    /// The system's default.
    Sleep,
}

impl Idle {
    fn is_usual(&self) -> bool {
        *self == Idle::default()
    }
}

/// Which cores each part runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The server on its own cores, generator and path on one of the others (with one core: float).
    #[default]
    Split,
    /// Any core that the kernel chooses.
    Float,
}

named!(Engine: Auto "auto", IoUring "io_uring" | "uring", Epoll "epoll");
named!(Wait: Sleep "sleep", Hybrid "hybrid", Spin "spin");
named!(Idle: Awake "awake", Sleep "sleep");
named!(Placement: Split "split", Float "float");

fn is_one(threads: &u32) -> bool {
    *threads == 1
}
