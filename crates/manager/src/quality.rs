//! Quality over time: figures by minute, hour, day and month, of agents, groups, programs, peers and sides.
//!
//! ```text
//!   days: rows of a part ──fold──▶ table quality: minutes, hours, days ──scan──┬──▶ query       figures
//!         (one transaction)        of agents, and of their series (bounded)    ├──▶ compare     two sets
//!                                                                              ├──▶ sparklines  the last hour
//!                                                                              └──▶ alerts
//! ```
//!
//! A row counts in the spans in which it ended, on the manager's clock, at all three resolutions, in the transaction
//! that writes it to a day file: exactly once, and late rows in their own spans. Sums, histograms and windows can be
//! added, so any spans and any series can be combined. docs/concepts/tap.md defines the figures,
//! docs/concepts/tap-quality.md how they are stored.
//!
//! Read `sums` first, then [`fold`], then [`Query`].

mod compare;
mod figures;
mod fold;
mod query;
mod scan;
mod sides;
mod sparklines;
mod stored;
mod sum_query;
mod sums;
mod time_histogram;
mod windows;

#[cfg(test)]
pub(super) mod tests;

pub use compare::{CompareMetric, Compared, ComparedSet, ComparedSide, Comparison, compare};
pub use figures::{Availability, Figures, ResponseTimes};
pub use fold::{PROGRAMS_MAX, SERIES_MAX, SERVER_SERIES_MAX, fold};
pub use query::{By, Group, Quality, Query, Resolution, Span, query};
pub use sides::Sides;
pub use sparklines::{Sparkline, Sparklines, read_sparklines};
pub use stored::{StoredSpans, remove_expired_spans};

pub(super) use query::named_agents;
pub(super) use scan::Tally;
pub(super) use sum_query::{SumQuery, sum_over};
pub(super) use sums::{CAUSES_MAX, OTHER_CAUSE, response_ns};

/// Lengths of stored spans: a minute, an hour, a day, in seconds.
pub const SPANS_S: [u64; 3] = [60, 3600, 86_400];

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QualityError {
    /// The query is invalid: the client can correct it.
    #[error("{0}")]
    InvalidQuery(String),
    /// The index cannot be read.
    #[error("reading the index: {0}")]
    Index(#[from] rusqlite::Error),
}
