//! The road past one manager: the same figures, each 15 s, to any receiver of OpenTelemetry over HTTP.
//!
//! ```text
//!   days: rows of a part ──fold──▶ table otlp: sums since each series began ──▶ messages ──gzip, POST──▶ URL
//!         (one transaction)        (agent, group, program, peer, side)           every 15 s, a thread of its own
//! ```
//!
//! Everything is cumulative: a message that is lost, or sent twice, changes nothing, since the next says all of it again. Sums and the
//! moments since which they count are in the index, so a manager that was killed goes on. Rows count when they are placed, once, in the
//! transaction that makes their part; one that comes a day late counts when it comes, as metrics have no other place for it.
//!
//! Metrics and attributes are listed in docs/concepts/tap-quality.md. Read `sums` first, then `metrics`, then `sender`.

mod metrics;
mod sender;
mod sums;

#[cfg(test)]
mod tests;

pub use sender::{Plan, Sender};
pub use sums::{SERIES_MAX, fold, off};
