//! Cumulative sums of each series, in the table `otlp`.

use std::collections::{BTreeMap, HashMap};

use report::export::otlp::Exponential;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use schema::{FleetRow, TapOutcome};
use serde::{Deserialize, Serialize};
use sys::clock::realtime_ns;

use crate::data::Data;
use crate::error::Result;
use crate::quality::{CAUSES_MAX, OTHER_CAUSE, response_ns};

/// Maximum number of separate series. All others are counted as one, without attributes.
pub const SERIES_MAX: i64 = 2000;

/// Identity of a series; `None`: all others.
pub type Name = Option<[String; 5]>;

/// A series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Agent, group, program, peer, side.
    pub name: Name,
    /// Start time, ns since 1970.
    pub started_ns: u64,
    /// Sums of the series.
    pub sums: Sums,
}

/// Sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    pub attempts: u64,
    /// Failed attempts by cause.
    pub failed: BTreeMap<String, u64>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub connections: u64,
    pub response: Exponential,
}

impl Sums {
    fn add(&mut self, fleet_row: &FleetRow) {
        let row = &fleet_row.row;
        if row.connection.is_none() {
            return;
        }
        self.connections += u64::from(row.last);
        self.sent_bytes = self.sent_bytes.saturating_add(row.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(row.received_bytes);
        let failed = row.outcome == TapOutcome::Failed.as_str();
        if failed || row.outcome == TapOutcome::Succeeded.as_str() {
            self.attempts += 1;
        }
        if failed {
            self.fail(row.error.as_deref().unwrap_or("unknown"), 1);
        }
        if let Some(ns) = response_ns(row) {
            self.response.record(ns);
        }
    }

    fn merge(&mut self, other: &Sums) {
        self.attempts += other.attempts;
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
        self.connections += other.connections;
        other.failed.iter().for_each(|(cause, count)| self.fail(cause, *count));
        self.response.merge(&other.response);
    }

    fn fail(&mut self, cause: &str, count: u64) {
        let is_separate = self.failed.contains_key(cause) || self.failed.len() < CAUSES_MAX;
        *self.failed.entry(if is_separate { cause } else { OTHER_CAUSE }.to_owned()).or_insert(0) += count;
    }
}

/// Adds rows, if OTLP is on: within the transaction that writes them to files.
///
/// # Errors
/// SQLite's.
pub fn fold(change: &Transaction<'_>, rows: &[FleetRow]) -> rusqlite::Result<()> {
    if rows.is_empty() || !is_on(change)? {
        return Ok(());
    }
    let mut new_sums: HashMap<[&str; 5], Sums> = HashMap::new();
    // Written once per peer, not per row.
    let mut peers = HashMap::new();
    for fleet_row in rows {
        let address = fleet_row.row.peer.as_ref().map(|peer| peer.address);
        peers.entry(address).or_insert_with(|| address.map(|address| address.to_string()).unwrap_or_default());
    }
    for fleet_row in rows {
        let row = &fleet_row.row;
        let peer = &peers[&row.peer.as_ref().map(|peer| peer.address)];
        let program = row.program.as_deref().unwrap_or_default();
        new_sums.entry([&fleet_row.agent, &fleet_row.group, program, peer, &row.side]).or_default().add(fleet_row);
    }
    let now = int(realtime_ns());
    let count = change.query_row("SELECT count(*) FROM otlp", [], |row| row.get::<_, i64>(0))?;
    let mut free_series = (SERIES_MAX - count).max(0);
    let mut others = Sums::default();
    let mut new_sums: Vec<([&str; 5], Sums)> = new_sums.into_iter().collect();
    new_sums.sort_by_key(|(name, _)| *name);
    for (name, sums) in new_sums {
        let key = serde_json::to_string(&name).unwrap_or_default();
        match read(change, &key)? {
            Some(mut stored) => {
                stored.merge(&sums);
                update(change, &key, &stored, now)?;
            }
            None if free_series > 0 => {
                free_series -= 1;
                insert(change, &key, &sums, now)?;
            }
            None => others.merge(&sums),
        }
    }
    if others != Sums::default() {
        match read(change, OTHERS)? {
            Some(mut stored) => {
                stored.merge(&others);
                update(change, OTHERS, &stored, now)?;
            }
            None => insert(change, OTHERS, &others, now)?,
        }
    }
    // A series without rows for a day ends, to make room; if it returns it has a new start time, which receivers
    // understand.
    change
        .prepare_cached("DELETE FROM otlp WHERE last_at < ?1 AND series != ?2")?
        .execute(params![now - DAY_NS, OTHERS])?;
    Ok(())
}

/// Switches [`fold`] on.
pub(super) fn on(change: &Transaction<'_>) -> rusqlite::Result<()> {
    change.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('otlp', 'on')", [])?;
    Ok(())
}

/// Switches counting off and removes the sums: a series continued later would hide what was not counted meanwhile.
/// For a manager started without a receiver.
///
/// # Errors
/// SQLite's.
pub fn off(data: &Data) -> Result<()> {
    if !data.read(is_on)? {
        return Ok(());
    }
    data.change(|change| {
        change.execute("DELETE FROM facts WHERE name = 'otlp'", [])?;
        change.execute("DELETE FROM otlp", [])?;
        Ok(())
    })
}

fn is_on(index: &Connection) -> rusqlite::Result<bool> {
    let mut query = index.prepare_cached("SELECT 1 FROM facts WHERE name = 'otlp'")?;
    Ok(query.query_row([], |_| Ok(())).optional()?.is_some())
}

/// Every series, in order.
pub(super) fn all(index: &Connection) -> rusqlite::Result<Vec<Series>> {
    let mut query = index.prepare_cached("SELECT series, started_at, body FROM otlp ORDER BY series")?;
    let rows = query.query_map([], |row| {
        let key: String = row.get(0)?;
        let name = serde_json::from_str(&key).map_err(|_| broken(0, Type::Text))?;
        let sums = postcard::from_bytes(row.get_ref(2)?.as_blob()?).map_err(|_| broken(2, Type::Blob))?;
        Ok(Series { name, started_ns: row.get::<_, i64>(1)?.max(0) as u64, sums })
    })?;
    rows.collect()
}

fn read(change: &Transaction<'_>, key: &str) -> rusqlite::Result<Option<Sums>> {
    let mut query = change.prepare_cached("SELECT body FROM otlp WHERE series = ?1")?;
    let found = query
        .query_row([key], |row| postcard::from_bytes(row.get_ref(0)?.as_blob()?).map_err(|_| broken(0, Type::Blob)));
    found.optional()
}

fn insert(change: &Transaction<'_>, key: &str, sums: &Sums, now: i64) -> rusqlite::Result<()> {
    let body = postcard::to_stdvec(sums).unwrap_or_default();
    let mut statement =
        change.prepare_cached("INSERT INTO otlp (series, started_at, last_at, body) VALUES (?1, ?2, ?2, ?3)")?;
    statement.execute(params![key, now, body])?;
    Ok(())
}

fn update(change: &Transaction<'_>, key: &str, sums: &Sums, now: i64) -> rusqlite::Result<()> {
    let body = postcard::to_stdvec(sums).unwrap_or_default();
    let mut statement = change.prepare_cached("UPDATE otlp SET last_at = ?2, body = ?3 WHERE series = ?1")?;
    statement.execute(params![key, now, body])?;
    Ok(())
}

fn broken(column: usize, of: Type) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, of, "a series of the table otlp that cannot be read".into())
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Key of the series of all others, as JSON.
const OTHERS: &str = "null";
const DAY_NS: i64 = 86_400_000_000_000;
