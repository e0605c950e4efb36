//! The last hour of every agent, minute by minute, in one pass: the sparklines in the list of agents.

use std::collections::BTreeMap;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::scan::{RowSelection, scan};
use super::sides::Sides;
use super::{QualityError, SPANS_S};

/// The last hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sparklines {
    /// Start of the first minute, s since 1970.
    pub from_s: u64,
    /// Length of a step: 60.
    pub span_s: u64,
    /// By agent; agents without rows are absent.
    pub agents: BTreeMap<String, Sparkline>,
}

/// An agent's last hour: 60 values, the last for the current minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sparkline {
    /// Attempts that ended.
    pub attempts: Vec<u64>,
    /// Failed attempts.
    pub failed: Vec<u64>,
    /// Median response time; `null` without successes.
    pub response_p50_ns: Vec<Option<u64>>,
    /// 99th percentile; likewise.
    pub response_p99_ns: Vec<Option<u64>>,
}

/// Minutes.
const MINUTES: usize = 60;

/// The last hour up to the end of the minute of `now_s` (the manager's clock, s since 1970).
///
/// # Errors
/// SQLite's.
pub fn read_sparklines(index: &Connection, now_s: u64, sides: Sides) -> Result<Sparklines, QualityError> {
    let span_s = SPANS_S[0];
    let until_s = (now_s / span_s + 1) * span_s;
    let from_s = until_s.saturating_sub(MINUTES as u64 * span_s);
    let selection =
        RowSelection { span_s, from_s, until_s, sides, agents: None, program: None, peer: None, by_series: false };
    let mut agents: BTreeMap<String, Sparkline> = BTreeMap::new();
    scan(
        index,
        &selection,
        |agent, _| Some(agent.to_owned()),
        |begin_s, agent, tally| {
            let spark = agents.entry(agent).or_insert_with(|| Sparkline {
                attempts: vec![0; MINUTES],
                failed: vec![0; MINUTES],
                response_p50_ns: vec![None; MINUTES],
                response_p99_ns: vec![None; MINUTES],
            });
            let at = ((begin_s - from_s) / span_s) as usize;
            spark.attempts[at] = tally.sums.attempts;
            spark.failed[at] = tally.sums.failed;
            spark.response_p50_ns[at] = tally.sums.response.quantile(0.5);
            spark.response_p99_ns[at] = tally.sums.response.quantile(0.99);
            Ok(())
        },
    )?;
    Ok(Sparklines { from_s, span_s, agents })
}
