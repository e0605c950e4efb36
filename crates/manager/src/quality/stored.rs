//! Rows of the table `quality`: read, written, removed.

use std::collections::BTreeMap;

use rusqlite::types::Type;
use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::sums::Sums;
use super::time_histogram::TimeHistogram;
use super::windows::Windows;

/// Columns of a row's figures, in the order in which [`figures`] reads them.
pub const FIGURES: &str = "attempts, failed, attempts_estimated, sent_estimated, received_estimated, sent_bytes, received_bytes, \
                           receive_ns, receive_bytes, connections, connections_failed, lookups_failed, causes, response, windows";

/// Key of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey<'a> {
    pub span_s: u64,
    pub begin_s: u64,
    pub agent: &'a str,
    pub series: Series<'a>,
}

/// Which series of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series<'a> {
    /// All series of a side.
    pub whole: bool,
    pub rest: Rest,
    pub side: &'a str,
    pub program: &'a str,
    pub peer: &'a str,
}

/// Whether a row is one series, or the sum of series beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rest {
    /// One series.
    #[default]
    None,
    /// The other peers of the program.
    Peers,
    /// All other programs.
    Programs,
}

impl Rest {
    /// The stored form.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// Parses the stored form.
    pub fn of(number: i64) -> Rest {
        match number {
            0 => Rest::None,
            1 => Rest::Peers,
            _ => Rest::Programs,
        }
    }
}

/// Retention of spans, in seconds before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSpans {
    /// Minutes.
    pub minutes_s: u64,
    /// Hours.
    pub hours_s: u64,
    /// Days; `None`: forever.
    pub days_s: Option<u64>,
}

impl Default for StoredSpans {
    /// Minutes for 32 days (to compare a month by minute), hours for 400 (a year and a month), days forever.
    fn default() -> Self {
        StoredSpans { minutes_s: 32 * 86_400, hours_s: 400 * 86_400, days_s: None }
    }
}

/// Removes expired spans. One call does a limited amount of work; returns whether there is more.
///
/// # Errors
/// SQLite's.
pub fn remove_expired_spans(change: &Transaction<'_>, now_s: u64, kept: &StoredSpans) -> rusqlite::Result<bool> {
    let mut is_more = false;
    // A clock set ahead must not remove everything: the newest span must be at most two days old.
    let mut newest = change.prepare_cached("SELECT max(begin_s) FROM quality WHERE span_s = ?1 AND whole = 1")?;
    let newest: Option<i64> = newest.query_row([int(super::SPANS_S[2])], |row| row.get(0))?;
    let Some(newest) = newest else { return Ok(false) };
    let now_s = now_s.min(newest.max(0) as u64 + NEWEST_AGE_S);
    for (span_s, keep_s) in super::SPANS_S.into_iter().zip([Some(kept.minutes_s), Some(kept.hours_s), kept.days_s]) {
        let Some(before) = keep_s.and_then(|keep| now_s.checked_sub(keep)) else { continue };
        // A span that began earlier and reaches into the retention stays.
        let before = before / span_s * span_s;
        for whole in [1, 0] {
            let mut oldest =
                change.prepare_cached("SELECT min(begin_s) FROM quality WHERE span_s = ?1 AND whole = ?2")?;
            let oldest: Option<i64> = oldest.query_row(params![int(span_s), whole], |row| row.get(0))?;
            let Some(oldest) = oldest.map(|oldest| oldest.max(0) as u64).filter(|oldest| *oldest < before) else {
                continue;
            };
            let until = before.min(oldest.saturating_add(SPANS_PER_DELETE * span_s));
            is_more |= until < before;
            change
                .prepare_cached("DELETE FROM quality WHERE span_s = ?1 AND whole = ?2 AND begin_s < ?3")?
                .execute(params![int(span_s), whole, int(until)])?;
        }
    }
    Ok(is_more)
}

/// Maximum age of the newest day's start.
const NEWEST_AGE_S: u64 = 2 * 86_400;
/// Spans of a resolution removed in one call: two hours' minutes.
const SPANS_PER_DELETE: u64 = 120;

/// The figures of one key, if any.
pub fn read(change: &Transaction<'_>, key: &RowKey<'_>) -> rusqlite::Result<Option<(Sums, Windows)>> {
    let series = key.series;
    let mut query = change.prepare_cached(&format!(
        "SELECT {FIGURES} FROM quality WHERE span_s = ?1 AND whole = ?2 AND begin_s = ?3 AND agent = ?4 AND rest = ?5 \
         AND side = ?6 AND program = ?7 AND peer = ?8"
    ))?;
    let at = params![
        int(key.span_s),
        series.whole,
        int(key.begin_s),
        key.agent,
        series.rest.number(),
        series.side,
        series.program,
        series.peer
    ];
    query.query_row(at, |row| figures(row, 0, key.span_s)).optional()
}

/// Replaces the figures of a key.
pub fn write(change: &Transaction<'_>, key: &RowKey<'_>, sums: &Sums, windows: &Windows) -> rusqlite::Result<()> {
    let series = key.series;
    let causes =
        if sums.causes.is_empty() { String::new() } else { serde_json::to_string(&sums.causes).unwrap_or_default() };
    change
        .prepare_cached(&format!(
            "INSERT OR REPLACE INTO quality (span_s, whole, begin_s, agent, rest, side, program, peer, {FIGURES}) VALUES \
             (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)"
        ))?
        .execute(params![
            int(key.span_s),
            series.whole,
            int(key.begin_s),
            key.agent,
            series.rest.number(),
            series.side,
            series.program,
            series.peer,
            int(sums.attempts),
            int(sums.failed),
            sums.attempts_estimated,
            sums.sent_estimated,
            sums.received_estimated,
            int(sums.sent_bytes),
            int(sums.received_bytes),
            int(sums.receive_ns),
            int(sums.receive_bytes),
            int(sums.connections),
            int(sums.connections_failed),
            int(sums.lookups_failed),
            causes,
            sums.response.encode(),
            windows.encode(),
        ])?;
    Ok(())
}

/// The figures that start at column `first`.
pub fn figures(row: &Row<'_>, first: usize, span_s: u64) -> rusqlite::Result<(Sums, Windows)> {
    let whole = |at: usize| row.get::<_, i64>(first + at).map(|value| value.max(0) as u64);
    let real = |at: usize| row.get::<_, f64>(first + at);
    let causes = row.get_ref(first + 12)?.as_str()?;
    let causes: BTreeMap<String, u64> = if causes.is_empty() {
        BTreeMap::new()
    } else {
        serde_json::from_str(causes).map_err(|_| broken(first + 12, Type::Text))?
    };
    let response =
        TimeHistogram::decode(row.get_ref(first + 13)?.as_blob()?).ok_or_else(|| broken(first + 13, Type::Blob))?;
    let windows =
        Windows::decode(row.get_ref(first + 14)?.as_blob()?, span_s).ok_or_else(|| broken(first + 14, Type::Blob))?;
    let sums = Sums {
        attempts: whole(0)?,
        failed: whole(1)?,
        attempts_estimated: real(2)?,
        sent_estimated: real(3)?,
        received_estimated: real(4)?,
        sent_bytes: whole(5)?,
        received_bytes: whole(6)?,
        receive_ns: whole(7)?,
        receive_bytes: whole(8)?,
        connections: whole(9)?,
        connections_failed: whole(10)?,
        lookups_failed: whole(11)?,
        causes,
        response,
    };
    Ok((sums, windows))
}

fn broken(column: usize, of: Type) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, of, "figures of the table quality that cannot be read".into())
}

/// Converts to a signed integer of SQLite.
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
