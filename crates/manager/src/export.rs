//! Rows of a time range, from day files and pending batches.
//!
//! Each day is read on its own, in one transaction: its files (opened then, so that a merge or the retention may
//! remove them meanwhile) and the pending batches. A row belongs to one day and is in one place at that time, so it
//! occurs once. No transaction is held while a slow client receives rows.

use schema::FleetRow;
use std::ops::{self, ControlFlow};

use rusqlite::params;
use store::{PartFile, StoreError};

use crate::data::Data;
use crate::day_files::{DAY_NS, day_named, day_of, name_of, path_of};
use crate::days::PendingBatch;
use crate::days::ordered::{Ordered, Source};
use crate::error::{Error, Result};
use crate::tokens::signed;

/// The requested range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Rows that ended at or after this time, ns since 1970.
    pub from_ns: u64,
    /// Rows that ended before this time.
    pub until_ns: u64,
    /// Rows after this cursor.
    pub after: Option<Cursor>,
}

/// A row's position in the order of all rows: the parts of its name, compared one after another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// End time, ns since 1970.
    pub at_ns: u64,
    /// Stream name.
    pub stream: String,
    /// Batch number.
    pub sequence: u64,
    /// Index in the batch.
    pub number: u32,
}

impl Cursor {
    /// The cursor of a row.
    pub fn of(placed: &FleetRow) -> Cursor {
        Cursor {
            at_ns: placed.at_unix_ns,
            stream: placed.stream.clone(),
            sequence: placed.sequence,
            number: placed.number,
        }
    }
}

/// Result of reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Rows passed on.
    pub rows: u64,
    /// Missing files that the index lists, as `DAY/FILE`.
    pub missing: Vec<String>,
}

/// Passes rows to `on_row` in the order of their [`Cursor`]s, until the end or until `on_row` breaks. It reads files:
/// do not call it on threads that serve connections.
///
/// # Errors
/// A file cannot be read, SQLite's, or more pending rows than fit into memory.
pub fn rows(data: &Data, range: &Range, on_row: &mut dyn FnMut(FleetRow) -> ControlFlow<()>) -> Result<Exported> {
    let mut exported = Exported::default();
    let from_ns = range.from_ns.max(range.after.as_ref().map_or(0, |after| after.at_ns));
    for day in days(data, from_ns..range.until_ns)? {
        let within = from_ns.max(day * DAY_NS)..range.until_ns.min((day + 1).saturating_mul(DAY_NS));
        for row in day_rows(data, day, within, &mut exported.missing)? {
            let row = row?;
            // A cursor is computed only for the few rows with the same end time.
            let is_before = |after: &Cursor| row.at_unix_ns <= after.at_ns && Cursor::of(&row) <= *after;
            if range.after.as_ref().is_some_and(is_before) {
                continue;
            }
            exported.rows += 1;
            if on_row(row).is_break() {
                return Ok(exported);
            }
        }
    }
    Ok(exported)
}

/// Days with rows in the range, in order.
fn days(data: &Data, within: ops::Range<u64>) -> Result<Vec<u64>> {
    if within.is_empty() {
        return Ok(Vec::new());
    }
    data.read(|index| {
        let mut days = std::collections::BTreeSet::new();
        let (first, last) = (name_of(day_of(within.start)), name_of(day_of(within.end - 1).min(DAYS_MAX)));
        let mut statement = index.prepare_cached("SELECT DISTINCT day FROM parts WHERE day BETWEEN ?1 AND ?2")?;
        let names = statement.query_map(params![first, last], |row| row.get::<_, String>(0))?;
        for name in names {
            days.extend(day_named(&name?));
        }
        // Pending batches may have rows of several days.
        let mut statement =
            index.prepare_cached("SELECT first_at, last_at FROM pending WHERE last_at >= ?1 AND first_at < ?2")?;
        let bounds = [signed(within.start), signed(within.end)];
        let spans = statement.query_map(bounds, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        for span in spans {
            let (first, last) = span?;
            let first = day_of(first.unsigned_abs().max(within.start));
            let last = day_of(last.unsigned_abs().min(within.end - 1));
            days.extend(first..=last);
        }
        Ok::<_, Error>(days.into_iter().collect())
    })
}

/// The rows of a day in one consistent state.
fn day_rows(data: &Data, day: u64, within: ops::Range<u64>, missing: &mut Vec<String>) -> Result<Ordered> {
    let name = name_of(day);
    let mut tries = 0;
    loop {
        tries += 1;
        match snapshot(data, &name, &within, tries >= TRIES_MAX, missing) {
            // Merged between the query and the opening: the index lists the merged file by now.
            Err(Error::Store(StoreError::Io { source, .. }))
                if source.kind() == std::io::ErrorKind::NotFound && tries < TRIES_MAX => {}
            outcome => return Ok(Ordered::new(outcome?, within)),
        }
    }
}

fn snapshot(
    data: &Data,
    day: &str,
    within: &ops::Range<u64>,
    is_last: bool,
    missing: &mut Vec<String>,
) -> Result<Vec<Source>> {
    let bounds = [signed(within.start), signed(within.end)];
    let (mut sources, waiting) = data.read(|index| {
        let mut statement = index.prepare_cached(
            "SELECT file, first_at FROM parts WHERE day = ?1 AND last_at >= ?2 AND first_at < ?3 ORDER BY first_at",
        )?;
        let parts = statement.query_map(params![day, bounds[0], bounds[1]], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
        })?;
        let mut sources = Vec::new();
        for part in parts {
            let (file, first_ns) = part?;
            match PartFile::<FleetRow>::open(&path_of(data, day, &file)) {
                Ok(open) => sources.push(Source::file(first_ns, open)),
                Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound && is_last => {
                    missing.push(format!("{day}/{file}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let query = format!("SELECT {} WHERE p.last_at >= ?1 AND p.first_at < ?2 ORDER BY p.id", PendingBatch::COLUMNS);
        let mut statement = index.prepare_cached(&query)?;
        let found = statement.query_map(params![bounds[0], bounds[1]], PendingBatch::of)?;
        let mut waiting = Vec::new();
        let mut rows = 0;
        for batch in found {
            let batch = batch?;
            rows += batch.rows;
            if rows > WAITING_MAX {
                return Err(Error::Refused(
                    "more rows wait to be written to files than can be read in one request: try again in a minute, or \
                     for an earlier time"
                        .to_owned(),
                ));
            }
            waiting.push(batch);
        }
        Ok::<_, Error>((sources, waiting))
    })?;
    let mut rows = Vec::new();
    for batch in &waiting {
        let mut placed = Vec::new();
        // An unreadable batch is reported when it is written to files.
        if batch.placed(&mut placed).is_ok() {
            rows.extend(placed.into_iter().filter(|row| within.contains(&row.at_unix_ns)));
        }
    }
    sources.push(Source::rows(rows));
    Ok(sources)
}

/// Attempts for a day that changes meanwhile.
const TRIES_MAX: u32 = 4;
/// Maximum pending rows in memory: some 400 MB. A working manager has less than a tenth of that.
const WAITING_MAX: u64 = 400_000;
/// The year 9999: later day names do not sort.
const DAYS_MAX: u64 = 2_932_896;
