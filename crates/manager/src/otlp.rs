//! Export beyond one manager: the same figures, every 15 s, to any OpenTelemetry receiver over HTTP.
//!
//! ```text
//!   days: rows of a part ──fold──▶ table otlp: sums since each series began ──▶ messages ──gzip, POST──▶ URL
//!         (one transaction)        (agent, group, program, peer, side)           every 15 s, a thread of its own
//! ```
//!
//! All sums are cumulative: a lost or repeated message changes nothing, since the next has all data again. Sums and
//! their start times are in the index, so a restarted manager continues them. Rows count once, in the transaction
//! that writes them to a file; a late row counts when it arrives, since metrics have no other place for it.
//!
//! Metrics and attributes are listed in docs/concepts/tap-quality.md. Read `sums` first, then `metrics`, then `sender`.

mod metrics;
mod sender;
mod sums;

#[cfg(test)]
mod tests;

pub use sender::{Plan, Sender};
pub use sums::{SERIES_MAX, fold, off};
