//! Alerts: rules that define when figures are bad, the state of each, and the notifications.
//!
//! ```text
//!   table quality, agents ──each minute──▶ values ──▶ machine ──▶ state      one transaction: the state of all rules,
//!                          (settled ones)            (pure)  └──▶ alert_log  and the events as rows
//!                                                                    ├──▶ DATA/alerts.log  JSON lines
//!                                                                    └──▶ webhook          POST, until accepted
//! ```
//!
//! Each rule is evaluated once for each full minute, half a minute after its end, over the time that ends with it.
//! Late rows change stored figures and fire no alert about the past; a manager that was stopped resumes with the
//! present. Events are in the index before they are sent, and are delivered at least once, under the same number
//! each time.
//!
//! Read [`Rule`] first, then `state_machine`.

mod events;
mod log_file;
mod rule;
mod rule_store;
mod signal;
mod state_machine;
mod threads;
mod values;
mod webhook;

#[cfg(test)]
mod tests;

pub use events::{Event, EventKind, log};
pub use rule::{Metric, Rule};
pub use rule_store::{Alert, AlertError, Subject, list, put, remove};
pub use state_machine::{Instance, State};
pub use threads::AlertThreads;

pub(super) use signal::Signal;

/// Maximum number of rules.
pub const RULES_MAX: usize = 200;
/// Agents, programs and other subjects that one rule evaluates separately: those with most attempts.
pub const SUBJECTS_MAX: usize = 500;
