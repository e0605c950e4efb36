//! Sums over a time that ends at a full minute: the input of alerts.
//!
//! Whole hours are read as hours, so that a day is 24 spans and two hours' minutes, not 1440.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::query::{By, groups_of, key_of, named_agents};
use super::scan::{RowSelection, Tally, scan};
use super::sides::Sides;
use super::{QualityError, SPANS_S};

/// The rows to sum.
#[derive(Clone, Copy, Debug)]
pub struct SumQuery<'a> {
    /// Start, a full minute, s since 1970.
    pub from_s: u64,
    /// End, likewise.
    pub until_s: u64,
    /// Grouping.
    pub by: By,
    /// Side of the connections.
    pub sides: Sides,
    /// Only this agent.
    pub agent: Option<&'a str>,
    /// Only agents in this group.
    pub group: Option<&'a str>,
    /// Only this program.
    pub program: Option<&'a str>,
    /// Only this peer.
    pub peer: Option<&'a str>,
}

/// The sums of each group, by name (empty: unknown, or no grouping). Series beyond the limits are not included.
///
/// # Errors
/// SQLite's; too much to read.
pub fn sum_over(index: &Connection, query: &SumQuery<'_>) -> Result<BTreeMap<String, Tally>, QualityError> {
    let [minute, hour, _] = SPANS_S;
    let groups = if query.by == By::Group { groups_of(index)? } else { BTreeMap::new() };
    let mut found: BTreeMap<String, Tally> = BTreeMap::new();
    let (first, last) = (query.from_s.div_ceil(hour) * hour, query.until_s / hour * hour);
    let parts = if first < last {
        [(minute, query.from_s, first), (hour, first, last), (minute, last, query.until_s)]
    } else {
        [(minute, query.from_s, query.until_s), (hour, 0, 0), (minute, 0, 0)]
    };
    for (span_s, from_s, until_s) in parts.into_iter().filter(|(_, from, until)| from < until) {
        let selection = RowSelection {
            span_s,
            from_s,
            until_s,
            sides: query.sides,
            agents: named_agents(index, query.agent, query.group)?,
            program: query.program.map(str::to_owned),
            peer: query.peer.map(str::to_owned),
            by_series: matches!(query.by, By::Program | By::Peer) || query.program.is_some() || query.peer.is_some(),
        };
        scan(
            index,
            &selection,
            |agent, series| key_of(query.by, &groups, agent, series).ok(),
            |_, key, tally| {
                found.entry(key).or_default().merge(&tally);
                Ok(())
            },
        )?;
    }
    Ok(found)
}
