//! Sums over a time that ends at a full minute: what alerts look at, minute after minute.
//!
//! Whole hours in the middle are read as hours, so that a day is 24 spans and two hours' minutes, not 1440.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::query::{By, groups_of, key_of, named_agents};
use super::scan::{Tally, Wanted, scan};
use super::sides::Sides;
use super::{QualityError, SPANS_S};

/// What is summed up.
#[derive(Clone, Copy, Debug)]
pub struct Over<'a> {
    /// From this full minute on, s since 1970.
    pub from_s: u64,
    /// Up to this one.
    pub until_s: u64,
    /// What is told apart.
    pub by: By,
    /// Which ends of connections.
    pub sides: Sides,
    /// Of this agent.
    pub agent: Option<&'a str>,
    /// Of agents in this group.
    pub group: Option<&'a str>,
    /// Of this program.
    pub program: Option<&'a str>,
    /// With this peer.
    pub peer: Option<&'a str>,
}

/// The sums of each that is told apart, by name (empty: not known, or nothing is told apart). What found no room to be told apart is not here.
///
/// # Errors
/// SQLite's; too much to read.
pub fn over(index: &Connection, over: &Over<'_>) -> Result<BTreeMap<String, Tally>, QualityError> {
    let [minute, hour, _] = SPANS_S;
    let groups = if over.by == By::Group { groups_of(index)? } else { BTreeMap::new() };
    let mut found: BTreeMap<String, Tally> = BTreeMap::new();
    let (first, last) = (over.from_s.div_ceil(hour) * hour, over.until_s / hour * hour);
    let parts = if first < last {
        [(minute, over.from_s, first), (hour, first, last), (minute, last, over.until_s)]
    } else {
        [(minute, over.from_s, over.until_s), (hour, 0, 0), (minute, 0, 0)]
    };
    for (span_s, from_s, until_s) in parts.into_iter().filter(|(_, from, until)| from < until) {
        let wanted = Wanted {
            span_s,
            from_s,
            until_s,
            sides: over.sides,
            agents: named_agents(index, over.agent, over.group)?,
            program: over.program.map(str::to_owned),
            peer: over.peer.map(str::to_owned),
            by_series: matches!(over.by, By::Program | By::Peer) || over.program.is_some() || over.peer.is_some(),
        };
        scan(
            index,
            &wanted,
            |agent, series| key_of(over.by, &groups, agent, series).ok(),
            |_, key, tally| {
                found.entry(key).or_default().merge(&tally);
                Ok(())
            },
        )?;
    }
    Ok(found)
}
