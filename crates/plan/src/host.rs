//! `[host]`: how the loop waits, where things run, how the load talks to the kernel.

use serde::{Deserialize, Serialize};

use super::named::named;

/// How the loop waits and where things run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "This machine"))]
pub struct HostPlan {
    /// How generator and path wait for the next due moment
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub wait: Wait,
    /// What processors do that have nothing to do: stay awake where that is allowed, or sleep
    #[serde(skip_serializing_if = "Idle::is_usual")]
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub idle: Idle,
    /// Which cores are whose [default: split for bench, float for net]
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t, hide_default_value = true))]
    pub placement: Placement,
    /// Make the load in so many threads, each with its own clients and connections
    #[serde(skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", default_value_t = 1, allow_hyphen_values = true))]
    #[cfg_attr(feature = "cli", arg(help_heading = "Load"))]
    pub threads: u32,
    /// How to talk to the kernel: io_uring where it has it and there is no TLS, or one of the two by name
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

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.threads == 0 || self.threads > Self::THREADS_MAX {
            return Err(format!(
                "threads = {} (--threads): from 1 to {} are possible",
                self.threads,
                Self::THREADS_MAX
            ));
        }
        Ok(())
    }
}

/// How the load talks to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// io_uring where the kernel has it and the load is not secured, epoll otherwise.
    #[default]
    Auto,
    /// io_uring: what is received is handed over, and requests are sent in batches.
    IoUring,
    /// epoll: a system call for each receive and each send.
    Epoll,
}

/// How the loop waits for the next due moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Sleep until the moment itself.
    Sleep,
    /// Sleep until 5 us before, then spin.
    #[default]
    Hybrid,
    /// Never sleep. Costs a core.
    Spin,
}

/// What this machine's processors do during the run when they have nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// They look for work, where this user may ask for that (PM QoS, a wake-up latency of 0): nothing that is due waits for
    /// a processor that sleeps, or that the hypervisor has lent to others meanwhile.
    #[default]
    Awake,
    /// What the system has them do.
    Sleep,
}

impl Idle {
    fn is_usual(&self) -> bool {
        *self == Idle::default()
    }
}

/// Which cores are whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The server on its own cores, generator and path on one of the others (with one core: float).
    #[default]
    Split,
    /// Wherever the kernel puts them.
    Float,
}

named!(Engine: Auto "auto", IoUring "io_uring" | "uring", Epoll "epoll");
named!(Wait: Sleep "sleep", Hybrid "hybrid", Spin "spin");
named!(Idle: Awake "awake", Sleep "sleep");
named!(Placement: Split "split", Float "float");

fn is_one(threads: &u32) -> bool {
    *threads == 1
}
