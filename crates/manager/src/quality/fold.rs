//! Adds rows to the table `quality`, in the transaction that writes them to files.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Transaction, params};
use schema::{FleetRow, TapSide};

use super::SPANS_S;
use super::stored::{Rest, RowKey, Series, int, read, write};
use super::sums::Sums;
use super::windows::{WINDOW_S, Windows};
use crate::otlp;
use schema::TapAddress;

/// Maximum separate series (side, program and peer) of an agent in one span. Later ones count as other peers of their
/// program.
pub const SERIES_MAX: i64 = 200;
/// Maximum of these on the accepting side, whose peers are arbitrary clients.
pub const SERVER_SERIES_MAX: i64 = 20;
/// Maximum programs with other peers; later ones count as all other programs.
pub const PROGRAMS_MAX: i64 = 50;

/// Adds rows to the spans in which they ended and, if OTLP is on, to its sums. The caller's transaction makes this
/// atomic.
///
/// # Errors
/// SQLite's; the transaction must be rolled back.
pub fn fold(change: &Transaction<'_>, rows: &[FleetRow]) -> rusqlite::Result<()> {
    // Each row is read once; hours and days are summed from minutes.
    let mut minutes: HashMap<(u64, &str, Name<'_>), NewFigures> = HashMap::new();
    for fleet_row in rows {
        let at_s = fleet_row.at_unix_ns / 1_000_000_000;
        let begin_s = at_s / MINUTE_S * MINUTE_S;
        let row = &fleet_row.row;
        let peer = row.peer.as_ref().map(|peer| peer.address);
        let name = (row.side.as_str(), row.program.as_deref().unwrap_or_default(), peer);
        let new_figures = minutes.entry((begin_s, fleet_row.agent.as_str(), name)).or_default();
        let before = (new_figures.sums.attempts, new_figures.sums.failed);
        new_figures.sums.add(row, fleet_row.share);
        if new_figures.sums.attempts > before.0 {
            new_figures.windows.note(((at_s - begin_s) / WINDOW_S) as u32, new_figures.sums.failed == before.1);
        }
    }
    for span_s in SPANS_S {
        let mut spans: BTreeMap<(u64, &str), BTreeMap<Name<'_>, NewFigures>> = BTreeMap::new();
        for ((minute_s, agent, name), new_figures) in &minutes {
            let begin_s = minute_s / span_s * span_s;
            let all = spans.entry((begin_s, *agent)).or_default().entry(*name).or_default();
            all.sums.merge(&new_figures.sums);
            all.windows.merge_at(&new_figures.windows, ((minute_s - begin_s) / WINDOW_S) as u32);
        }
        for ((begin_s, agent), series) in &spans {
            fold_span(change, span_s, *begin_s, agent, series)?;
        }
    }
    otlp::fold(change, rows)
}

/// A series: side, program (empty: unknown), peer.
type Name<'a> = (&'a str, &'a str, Option<TapAddress>);

/// The shortest of [`SPANS_S`].
const MINUTE_S: u64 = SPANS_S[0];

/// Figures to add to a row of the table.
#[derive(Default)]
struct NewFigures {
    sums: Sums,
    windows: Windows,
}

impl NewFigures {
    fn merge(&mut self, other: &NewFigures) {
        self.sums.merge(&other.sums);
        self.windows.merge(&other.windows);
    }
}

fn fold_span(
    change: &Transaction<'_>,
    span_s: u64,
    begin_s: u64,
    agent: &str,
    series: &BTreeMap<Name<'_>, NewFigures>,
) -> rusqlite::Result<()> {
    let mut sides: BTreeMap<&str, NewFigures> = BTreeMap::new();
    let mut rest: BTreeMap<(&str, &str), NewFigures> = BTreeMap::new();
    let mut limit = SeriesLimit { change, span_s, begin_s, agent, free_series: [None; 3] };
    for ((side, program, peer), figures) in series {
        sides.entry(side).or_default().merge(figures);
        let peer = peer.map(|address| address.to_string()).unwrap_or_default();
        let key = RowKey {
            span_s,
            begin_s,
            agent,
            series: Series { whole: false, rest: Rest::None, side, program, peer: &peer },
        };
        if !limit.add_within_limit(&key, figures)? {
            rest.entry((*side, *program)).or_default().merge(figures);
        }
    }
    let mut others: BTreeMap<&str, NewFigures> = BTreeMap::new();
    for ((side, program), figures) in &rest {
        let key = RowKey {
            span_s,
            begin_s,
            agent,
            series: Series { whole: false, rest: Rest::Peers, side, program, peer: "" },
        };
        if !limit.add_within_limit(&key, figures)? {
            others.entry(side).or_default().merge(figures);
        }
    }
    for (side, figures) in &others {
        add(
            change,
            &RowKey {
                span_s,
                begin_s,
                agent,
                series: Series { whole: false, rest: Rest::Programs, side, program: "", peer: "" },
            },
            figures,
        )?;
    }
    for (side, figures) in &sides {
        add(
            change,
            &RowKey {
                span_s,
                begin_s,
                agent,
                series: Series { whole: true, rest: Rest::None, side, program: "", peer: "" },
            },
            figures,
        )?;
    }
    Ok(())
}

/// The number of series that an agent's span may still add.
struct SeriesLimit<'a> {
    change: &'a Transaction<'a>,
    span_s: u64,
    begin_s: u64,
    agent: &'a str,
    /// Separate series, other peers, and separate accepting series; counted when the first new series is added.
    free_series: [Option<i64>; 3],
}

impl SeriesLimit<'_> {
    /// Adds figures to an existing place, or to a new one within the limit. Returns whether it did.
    fn add_within_limit(&mut self, key: &RowKey<'_>, figures: &NewFigures) -> rusqlite::Result<bool> {
        if let Some((mut sums, mut windows)) = read(self.change, key)? {
            sums.merge(&figures.sums);
            windows.merge(&figures.windows);
            write(self.change, key, &sums, &windows)?;
            return Ok(true);
        }
        let is_single_series = key.series.rest == Rest::None;
        let is_server_series = is_single_series && key.series.side == TapSide::Server.as_str();
        let bounds = [
            (is_single_series, 0, SERIES_MAX),
            (!is_single_series, 1, PROGRAMS_MAX),
            (is_server_series, 2, SERVER_SERIES_MAX),
        ];
        for (_, of, series_max) in bounds.into_iter().filter(|(applies, ..)| *applies) {
            if *self.free_series(of, series_max)? <= 0 {
                return Ok(false);
            }
        }
        for (_, of, series_max) in bounds.into_iter().filter(|(applies, ..)| *applies) {
            *self.free_series(of, series_max)? -= 1;
        }
        write(self.change, key, &figures.sums, &figures.windows)?;
        Ok(true)
    }

    fn free_series(&mut self, of: usize, series_max: i64) -> rusqlite::Result<&mut i64> {
        let free_series = match self.free_series[of] {
            Some(free_series) => free_series,
            None => {
                let mut count = self.change.prepare_cached(
                    "SELECT count(*) FROM quality WHERE span_s = ?1 AND whole = 0 AND begin_s = ?2 AND agent = ?3 AND rest = ?4 \
                     AND (?5 = '' OR side = ?5)",
                )?;
                let (rest, side) = if of == 1 {
                    (Rest::Peers, "")
                } else {
                    (Rest::None, if of == 2 { TapSide::Server.as_str() } else { "" })
                };
                let at = params![int(self.span_s), int(self.begin_s), self.agent, rest.number(), side];
                series_max - count.query_row(at, |row| row.get::<_, i64>(0))?
            }
        };
        Ok(self.free_series[of].insert(free_series))
    }
}

/// Adds figures to a place without a limit.
fn add(change: &Transaction<'_>, key: &RowKey<'_>, figures: &NewFigures) -> rusqlite::Result<()> {
    let (mut sums, mut windows) = read(change, key)?.unwrap_or_default();
    sums.merge(&figures.sums);
    windows.merge(&figures.windows);
    write(change, key, &sums, &windows)
}
