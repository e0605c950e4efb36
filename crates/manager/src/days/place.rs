//! Writes pending rows to the files of their days ("placing").

use rusqlite::params;
use schema::FleetRow;
use store::PartWriter;

use super::ordered;
use crate::data::{CrashPoint, Data};
use crate::day_files::{DAY_NS, day_of, name_of, next_name, path_of};
use crate::error::{Error, Result};
use crate::ingest::unpacked;
use crate::notes::Notes;
use crate::quality;
use crate::tokens::signed;
use tap_protocol::{Batch, printable};

/// Result of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Rows written to files.
    pub rows: u64,
    /// Files created.
    pub files: usize,
    /// Rows of expired days: counted for their agents, and dropped.
    pub too_old: u64,
    /// Unreadable batches, by agent and number.
    pub set_aside: Vec<(String, u64)>,
    /// Whether more batches wait.
    pub more: bool,
}

impl Round {
    pub(super) fn log_to(&self, notes: &Notes) {
        for (agent, sequence) in &self.set_aside {
            notes.log(&format!(
                "batch {sequence} of {agent} cannot be read and was moved to the table set_aside of index.sqlite: its \
                 rows are lost; is the disk failing?"
            ));
        }
        if self.too_old > 0 {
            notes.trouble(&format!(
                "{} rows came after their day had been removed: counted for their agents",
                self.too_old
            ));
        }
    }
}

/// A pending batch as stored in the index.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    pub(crate) id: i64,
    pub(crate) agent: String,
    pub(crate) group: String,
    pub(crate) stream: String,
    pub(crate) sequence: u64,
    pub(crate) zero_ns: u64,
    pub(crate) clock_offset_ns: Option<i64>,
    pub(crate) rows: u64,
    pub(crate) body: Vec<u8>,
}

impl PendingBatch {
    /// Columns of pending and agents, as [`of`](Self::of) expects them.
    pub(crate) const COLUMNS: &'static str = "p.id, p.agent, coalesce(a.\"group\", ''), p.stream, p.sequence, p.zero_at, \
                                              p.clock_offset_ns, p.rows, p.body FROM pending p LEFT JOIN agents a ON a.name = p.agent";

    pub(crate) fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<PendingBatch> {
        let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
        Ok(PendingBatch {
            id: row.get(0)?,
            agent: row.get(1)?,
            group: row.get(2)?,
            stream: row.get(3)?,
            sequence: number(4)?,
            zero_ns: number(5)?,
            clock_offset_ns: row.get(6)?,
            rows: number(7)?,
            body: row.get(8)?,
        })
    }

    /// The batch's rows with their times and names, or why the stored batch is unreadable.
    pub(crate) fn placed(&self, into: &mut Vec<FleetRow>) -> std::result::Result<(), String> {
        let text =
            unpacked(&self.body).map_err(|error| error.to_string())?.ok_or("it is longer than a batch can be")?;
        let batch: Batch = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if batch.rows.len() as u64 != self.rows || batch.stream != self.stream || batch.sequence != self.sequence {
            return Err("it is another batch".to_owned());
        }
        let share = batch.share;
        into.extend((0..).zip(batch.rows).map(|(number, row)| FleetRow {
            agent: self.agent.clone(),
            group: self.group.clone(),
            stream: self.stream.clone(),
            sequence: self.sequence,
            number,
            at_unix_ns: self.zero_ns.saturating_add(row.ended_at_ns()),
            opened_at_unix_ns: self.zero_ns.saturating_add(row.opened_at_ns),
            zero_unix_ns: self.zero_ns,
            clock_offset_ns: self.clock_offset_ns,
            share,
            row,
        }));
        Ok(())
    }
}

/// Writes the oldest pending batches, some [`ROWS_PER_ROUND`] rows. Rows of days before `oldest_day` are dropped. On
/// an error everything is unchanged. A batch that the index rejects is set aside, so that it does not block the
/// others.
///
/// # Errors
/// A full disk, another file system error, SQLite's.
pub fn place(data: &Data, oldest_day: u64, now_ns: u64) -> Result<Round> {
    match write_some(data, ROWS_PER_ROUND, oldest_day, now_ns) {
        Err(error) if error.is_row_error() => {}
        outcome => return outcome,
    }
    // One batch causes the error: the oldest batch is written alone, and so on until the batch is found.
    match write_some(data, 1, oldest_day, now_ns) {
        Err(error) if error.is_row_error() => {
            let (waiting, more) = oldest(data, 1)?;
            let Some(batch) = waiting.first() else { return Ok(Round::default()) };
            data.change(|index| {
                set_aside(index, batch, &printable(&error.to_string()), now_ns)?;
                index.execute("DELETE FROM pending WHERE id = ?1", [batch.id])
            })?;
            let set_aside = vec![(batch.agent.clone(), batch.sequence)];
            Ok(Round { set_aside, more, ..Round::default() })
        }
        outcome => outcome,
    }
}

/// Writes the oldest batches, at least one and up to this number of rows.
fn write_some(data: &Data, rows_target: u64, oldest_day: u64, now_ns: u64) -> Result<Round> {
    let (waiting, more) = oldest(data, rows_target)?;
    if waiting.is_empty() {
        return Ok(Round::default());
    }
    let mut round = Round { more, ..Round::default() };
    let mut rows = Vec::new();
    let mut spoilt = Vec::new();
    for batch in &waiting {
        let before = rows.len();
        if let Err(why) = batch.placed(&mut rows) {
            rows.truncate(before);
            spoilt.push((batch, printable(&why)));
            round.set_aside.push((batch.agent.clone(), batch.sequence));
        }
    }
    let mut too_old = std::collections::BTreeMap::<String, u64>::new();
    rows.retain(|row| {
        let keeps = day_of(row.at_unix_ns) >= oldest_day;
        if !keeps {
            *too_old.entry(row.agent.clone()).or_default() += 1;
        }
        keeps
    });
    round.too_old = too_old.values().sum();
    round.rows = rows.len() as u64;
    // Finally by stream: an order that does not depend on the other rows in the file.
    rows.sort_unstable_by(ordered::order);
    let mut parts = Vec::new();
    let outcome = write_days(data, &rows, &mut parts).and_then(|()| {
        data.crash_at(CrashPoint::PartsNamed)?;
        data.change(|index| {
            for part in &parts {
                part.insert(index, now_ns)?;
            }
            quality::fold(index, &rows)?;
            for (agent, count) in &too_old {
                let add = "UPDATE agents SET rows_too_old = rows_too_old + ?2 WHERE name = ?1";
                index.prepare_cached(add)?.execute(params![agent, signed(*count)])?;
            }
            for (batch, why) in &spoilt {
                set_aside(index, batch, why, now_ns)?;
            }
            let mut remove = index.prepare_cached("DELETE FROM pending WHERE id = ?1")?;
            waiting.iter().try_for_each(|batch| remove.execute([batch.id]).map(drop))?;
            data.crash_at(CrashPoint::PlacedWritten)
        })?;
        data.crash_at(CrashPoint::PlacedCommitted)
    });
    round.files = parts.len();
    match outcome {
        Ok(()) => Ok(round),
        Err(error) => {
            remove_unlisted(data, &parts, &error);
            Err(error)
        }
    }
}

/// A written file that is not listed yet.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) day: String,
    pub(super) file: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

impl Part {
    pub(super) fn insert(&self, index: &rusqlite::Connection, now_ns: u64) -> rusqlite::Result<()> {
        index
            .prepare_cached(
                "INSERT INTO parts (day, file, rows, bytes, first_at, last_at, made_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                self.day,
                self.file,
                signed(self.rows),
                signed(self.bytes),
                signed(self.first_ns),
                signed(self.last_ns),
                signed(now_ns)
            ])
            .map(drop)
    }
}

/// Removes files that were not listed: a reader of all files would otherwise read their rows twice later.
pub(super) fn remove_unlisted(data: &Data, parts: &[Part], error: &Error) {
    if error.is_stop() {
        return;
    }
    // A transaction that failed during its commit may be committed all the same; then the files are listed and stay.
    // If that is unknown they stay as well, for the check at the next start.
    for part in parts {
        let known = data.read(|index| {
            index.query_row("SELECT count(*) FROM parts WHERE day = ?1 AND file = ?2", [&part.day, &part.file], |row| {
                row.get::<_, i64>(0)
            })
        });
        if matches!(known, Ok(0)) {
            let _ = std::fs::remove_file(path_of(data, &part.day, &part.file));
        }
    }
}

/// The oldest pending batches up to this number of rows, and whether there are more.
fn oldest(data: &Data, rows_target: u64) -> Result<(Vec<PendingBatch>, bool)> {
    data.read(|index| {
        let mut statement = index.prepare_cached(&format!("SELECT {} ORDER BY p.id", PendingBatch::COLUMNS))?;
        let mut found = statement.query([])?;
        let (mut waiting, mut rows) = (Vec::new(), 0);
        while rows < rows_target {
            let Some(row) = found.next()? else { return Ok((waiting, false)) };
            let batch = PendingBatch::of(row)?;
            rows += batch.rows;
            waiting.push(batch);
        }
        let more = found.next()?.is_some();
        Ok((waiting, more))
    })
}

/// Writes sorted rows, one file per day. `parts` lists the written files, also after an error.
fn write_days(data: &Data, rows: &[FleetRow], parts: &mut Vec<Part>) -> Result<()> {
    for of_day in rows.chunk_by(|a, b| day_of(a.at_unix_ns) == day_of(b.at_unix_ns)) {
        let (Some(first), Some(last)) = (of_day.first(), of_day.last()) else { continue };
        let day = name_of(first.at_unix_ns / DAY_NS);
        let folder = data.days().join(&day);
        std::fs::create_dir_all(&folder).map_err(|source| Error::io("mkdir", &folder, source))?;
        let file = next_name(data, &day)?;
        let path = path_of(data, &day, &file);
        let mut writer = PartWriter::<FleetRow>::begin(&path)?;
        if let Err(error) = writer.append(of_day) {
            writer.discard();
            return Err(error.into());
        }
        data.crash_at(CrashPoint::PartWritten)?;
        let finished = writer.finish()?;
        parts.push(Part {
            day,
            file,
            rows: finished.rows,
            bytes: finished.bytes,
            first_ns: first.at_unix_ns,
            last_ns: last.at_unix_ns,
        });
    }
    if !parts.is_empty() {
        sync_folder(&data.days())?;
    }
    Ok(())
}

/// A new day folder survives a power failure only after its parent is synced.
fn sync_folder(folder: &std::path::Path) -> Result<()> {
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| Error::io("fsync", folder, source))
}

/// Moves an unreadable batch to the table for inspection.
fn set_aside(index: &rusqlite::Connection, batch: &PendingBatch, why: &str, now_ns: u64) -> rusqlite::Result<()> {
    index
        .prepare_cached(
            "INSERT INTO set_aside (at, agent, stream, sequence, rows, why, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            signed(now_ns),
            batch.agent,
            batch.stream,
            signed(batch.sequence),
            signed(batch.rows),
            why,
            batch.body
        ])?;
    let keep = "DELETE FROM set_aside WHERE id <= (SELECT max(id) FROM set_aside) - ?1";
    index.prepare_cached(keep)?.execute([SET_ASIDE_MAX])?;
    let count = "UPDATE agents SET rows_spoilt = rows_spoilt + ?2 WHERE name = ?1";
    index.prepare_cached(count)?.execute(params![batch.agent, signed(batch.rows)]).map(drop)
}

/// Rows of one round, or of one larger batch: some 30 MB.
const ROWS_PER_ROUND: u64 = 20_000;
/// Maximum stored unreadable batches.
const SET_ASIDE_MAX: i64 = 100;
