//! The agent: runs a tap daemon on its machine, and forwards the recorded exchanges to the manager.
//!
//! ```text
//!   programs ─rings─▶ recorder ─journal─▶ rows ─select─▶ batches ─▶ spool ─▶ sender ══▶ manager
//!                         │  (killed: resumes where it was)        (bounded)     │
//!                         └──────────────────── settings ◀──────────────────────┘
//! ```
//!
//! The batches and the manager's replies are defined by [`tap_protocol`].
//!
//! Start with `recorder`, which explains why a killed agent neither loses nor duplicates a row, then read `spool` and
//! `sender`. `disk` has every call that changes a file, so that tests can end an agent between any two of them. `run`
//! puts the parts together, and [`status`] is the file that `tap agent --status` prints.

mod bounds;
mod clock;
mod destination;
mod disk;
mod journal;
mod link;
mod log_link;
mod recorder;
mod run;
mod selection;
mod sender;
mod shared_status;
mod snapshot;
mod spool;
pub mod status;
mod text;
mod token;

#[cfg(test)]
mod tests;

pub use destination::{Destination, ManagerAddress, base};
pub use run::{Addresses, Agent, Plan};
pub use status::Status;

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The configuration is invalid.
    #[error("{0}")]
    Plan(String),
    /// A call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its file.
        what: String,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// A requirement of the machine is missing.
    #[error("{0}")]
    Environment(String),
    /// The tap folder or the rings cannot be used.
    #[error(transparent)]
    Tap(#[from] tap::error::Error),
    /// The manager's certificates cannot be read.
    #[error(transparent)]
    Post(#[from] web::post::PostError),
}

impl AgentError {
    /// Whether the configuration is wrong, and not the machine.
    pub fn is_plan_error(&self) -> bool {
        use web::post::PostError;
        matches!(self, AgentError::Plan(_) | AgentError::Post(PostError::Certificate(_) | PostError::Empty(_)))
    }
}

/// Version of the snapshot and journal formats. It includes the version of the tap's state.
pub(crate) const FORMAT: u32 = tap::daemon_state::DaemonState::FORMAT << 8 | 1;
