//! Alerts: rules that say when figures are bad, how each stands, and who is told.
//!
//! ```text
//!   table quality, agents ──each minute──▶ values ──▶ machine ──▶ standing        one transaction: how all stand, and
//!                          (settled ones)            (pure)  └──▶ alert_log       what happened, as rows
//!                                                                    ├──▶ DATA/alerts.log    JSON lines
//!                                                                    └──▶ webhook            POST, until it is taken
//! ```
//!
//! A rule is judged for each full minute once, half a minute after its end, over the time that ends with it. So rows that come late
//! change what is kept and fire no alarm of yesterday; and a manager that was away begins with the present. What happened is
//! in the index before anyone is told, and is told at least once, under a number that is the same each time.
//!
//! Read [`Rule`] first, then `machine`.

mod book;
mod events;
mod keeper;
mod log_file;
mod machine;
mod rule;
mod signal;
mod values;
mod webhook;

#[cfg(test)]
mod tests;

pub use book::{Alert, AlertError, Subject, list, put, remove};
pub use events::{Event, Happened, log};
pub use keeper::Keeper;
pub use machine::{Instance, State};
pub use rule::{Metric, Rule};

pub(super) use signal::Signal;

/// Rules that there may be.
pub const RULES_MAX: usize = 200;
/// Agents, programs and so on that one rule looks at by themselves; those with most attempts.
pub const SUBJECTS_MAX: usize = 500;
