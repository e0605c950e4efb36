//! Reads spans: rows of the table in order, grouped by a key.
//!
//! Rows are ordered by span and agent, so all series of an agent at a time are adjacent: their windows are merged
//! there (a window counts once, however many series had attempts in it) and are plain counts from then on.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Row, Statement, params};

use super::sides::Sides;
use super::stored::{FIGURES, Rest, Series, figures, int};
use super::sums::Sums;
use super::windows::Windows;
use super::{QualityError, SPANS_S};

/// The rows to read.
#[derive(Clone, Debug)]
pub struct RowSelection {
    /// Length of the spans: one of [`SPANS_S`].
    pub span_s: u64,
    /// Start of the first span, s since 1970.
    pub from_s: u64,
    /// End of the last span.
    pub until_s: u64,
    /// Side of the connections.
    pub sides: Sides,
    /// Only these agents; `None`: all.
    pub agents: Option<BTreeSet<String>>,
    /// Only this program.
    pub program: Option<String>,
    /// Only this peer.
    pub peer: Option<String>,
    /// Whether programs or peers are separate. Otherwise each agent is read as a whole, which is much less.
    pub by_series: bool,
}

/// Sums of one or more spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Everything except the windows.
    pub sums: Sums,
    /// Windows with attempts, separate for each agent.
    pub tried: u64,
    /// Windows with a success.
    pub succeeded: u64,
}

impl Tally {
    /// Adds the sums of another span or agent.
    pub fn merge(&mut self, other: &Tally) {
        self.sums.merge(&other.sums);
        self.tried += other.tried;
        self.succeeded += other.succeeded;
    }
}

/// Statistics of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Rows read.
    pub rows: u64,
    /// Attempts that may match, where programs or peers are no longer separate.
    pub unlisted: u64,
}

/// Maximum rows of one query. A month by day of 200 agents with 100 series each is 620,000.
pub const ROWS_MAX: u64 = 1_000_000;

/// Reads the rows. `key` returns the key of a row (`None`: skip it); `on_row` receives the start of a span, the key,
/// and the sums of one agent: each agent and key once per span.
///
/// # Errors
/// SQLite's; more rows than one query may read.
pub fn scan<K: Ord>(
    index: &Connection,
    selection: &RowSelection,
    mut key: impl FnMut(&str, &Series<'_>) -> Option<K>,
    mut on_row: impl FnMut(u64, K, Tally) -> Result<(), QualityError>,
) -> Result<ScanStats, QualityError> {
    let mut open: BTreeMap<K, (Sums, Windows)> = BTreeMap::new();
    let mut at: (u64, String) = (0, String::new());
    let mut close = |at: &(u64, String), open: &mut BTreeMap<K, (Sums, Windows)>| -> Result<(), QualityError> {
        while let Some((key, (sums, windows))) = open.pop_first() {
            let (tried, succeeded) = windows.counts();
            on_row(at.0, key, Tally { sums, tried, succeeded })?;
        }
        Ok(())
    };
    let stats = for_each_row(index, selection, FIGURES, |begin_s, agent, series, row| {
        if at.0 != begin_s || at.1 != agent {
            close(&at, &mut open)?;
            at = (begin_s, agent.to_owned());
        }
        let Some(key) = key(agent, series) else { return Ok(()) };
        let (sums, windows) = figures(row, FIRST, selection.span_s)?;
        match open.get_mut(&key) {
            Some((all, all_windows)) => {
                all.merge(&sums);
                all_windows.merge(&windows);
            }
            None => {
                open.insert(key, (sums, windows));
            }
        }
        Ok(())
    })?;
    close(&at, &mut open)?;
    Ok(stats)
}

/// The attempts of each key, without reading the other figures.
///
/// # Errors
/// As [`scan`].
pub fn attempts<K: Ord>(
    index: &Connection,
    selection: &RowSelection,
    mut key: impl FnMut(&str, &Series<'_>) -> Option<K>,
) -> Result<BTreeMap<K, u64>, QualityError> {
    let mut found: BTreeMap<K, u64> = BTreeMap::new();
    for_each_row(index, selection, "attempts", |_, agent, series, row| {
        if let Some(key) = key(agent, series) {
            *found.entry(key).or_insert(0) += row.get::<_, i64>(FIRST)?.max(0) as u64;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Column of the first figure; the columns before are the six key columns and the attempts.
const FIRST: usize = 7;

fn for_each_row(
    index: &Connection,
    selection: &RowSelection,
    columns: &str,
    mut on_row: impl FnMut(u64, &str, &Series<'_>, &Row<'_>) -> Result<(), QualityError>,
) -> Result<ScanStats, QualityError> {
    debug_assert!(SPANS_S.contains(&selection.span_s));
    let mut stats = ScanStats::default();
    let mut one = |row: &Row<'_>| -> Result<(), QualityError> {
        stats.rows += 1;
        if stats.rows > ROWS_MAX {
            return Err(QualityError::InvalidQuery(format!(
                "the query would read more than {ROWS_MAX} spans of series: choose a shorter time, a coarser \
                 resolution, one agent or one program"
            )));
        }
        let text = |at: usize| -> rusqlite::Result<&str> { Ok(row.get_ref(at)?.as_str()?) };
        let agent = text(1)?;
        if selection.agents.as_ref().is_some_and(|agents| !agents.contains(agent)) {
            return Ok(());
        }
        let series = Series {
            whole: !selection.by_series,
            rest: Rest::of(row.get(2)?),
            side: text(3)?,
            program: text(4)?,
            peer: text(5)?,
        };
        match selection.match_series(&series) {
            SeriesMatch::Yes => on_row(row.get::<_, i64>(0)?.max(0) as u64, agent, &series, row),
            SeriesMatch::No => Ok(()),
            SeriesMatch::Perhaps => {
                stats.unlisted += row.get::<_, i64>(6)?.max(0) as u64;
                Ok(())
            }
        }
    };
    let select = format!(
        "SELECT begin_s, agent, rest, side, program, peer, attempts, {columns} FROM quality \
         WHERE span_s = ?1 AND whole = ?2 AND begin_s >= ?3 AND begin_s < ?4"
    );
    let mut run = |query: &mut Statement<'_>, parameters: &[&dyn rusqlite::ToSql]| -> Result<(), QualityError> {
        let mut rows = query.query(parameters)?;
        while let Some(row) = rows.next()? {
            one(row)?;
        }
        Ok(())
    };
    let (span, whole) = (int(selection.span_s), !selection.by_series);
    let spans = selection.until_s.saturating_sub(selection.from_s) / selection.span_s;
    match &selection.agents {
        // A seek for each span and agent reads less than all rows of the others.
        Some(agents) if agents.len() as u64 <= SEEKS_PER_SPAN && agents.len() as u64 * spans <= SEEKS_MAX => {
            let mut query = index.prepare_cached(&format!(
                "{select} AND agent = ?5 ORDER BY begin_s, agent, rest, side, program, peer"
            ))?;
            for begin_s in (selection.from_s..selection.until_s).step_by(selection.span_s as usize) {
                for agent in agents {
                    let (from, until) = (int(begin_s), int(begin_s + selection.span_s));
                    run(&mut query, params![span, whole, from, until, agent])?;
                }
            }
        }
        _ => {
            let mut query =
                index.prepare_cached(&format!("{select} ORDER BY begin_s, agent, rest, side, program, peer"))?;
            run(&mut query, params![span, whole, int(selection.from_s), int(selection.until_s)])?;
        }
    }
    Ok(stats)
}

/// Maximum agents for which each span is searched separately, and maximum seeks in all.
const SEEKS_PER_SPAN: u64 = 16;
const SEEKS_MAX: u64 = 100_000;

enum SeriesMatch {
    Yes,
    No,
    /// The row is part of a sum of other series.
    Perhaps,
}

impl RowSelection {
    fn match_series(&self, series: &Series<'_>) -> SeriesMatch {
        if !self.sides.has(series.side) {
            return SeriesMatch::No;
        }
        if series.whole {
            return SeriesMatch::Yes;
        }
        let is_other =
            |selection: &Option<String>, is: &str| selection.as_deref().is_some_and(|selection| selection != is);
        match series.rest {
            Rest::Programs if self.program.is_some() || self.peer.is_some() => SeriesMatch::Perhaps,
            Rest::Programs => SeriesMatch::Yes,
            _ if is_other(&self.program, series.program) => SeriesMatch::No,
            Rest::Peers if self.peer.is_some() => SeriesMatch::Perhaps,
            Rest::None if is_other(&self.peer, series.peer) => SeriesMatch::No,
            _ => SeriesMatch::Yes,
        }
    }
}
