//! Facts about the manager: refused requests, retention, health.

use axum::extract::State as With;
use axum::response::Response;
use http::Uri;
use rusqlite::Connection;
use serde::Serialize;

use super::parameters::Parameters;
use super::responses::{ApiResponse, json};
use super::{State, now_ns};

#[derive(Serialize)]
struct Refusals {
    counts: Vec<Count>,
    last: Vec<Refused>,
}

#[derive(Serialize)]
struct Count {
    why: String,
    count: i64,
}

#[derive(Serialize)]
struct Refused {
    id: i64,
    at_unix_ns: i64,
    why: String,
    status: i64,
    agent: String,
    address: String,
    path: String,
    message: String,
}

/// `GET /api/1/refusals`
pub(super) async fn refusals(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, &["limit", "before"])?;
    let limit = parameters.number("limit", 1, 1_000, 100)?;
    let before = parameters.number("before", 1, i64::MAX as u64, i64::MAX as u64)?;
    let refusals = state.read(move |index| refusals_before(index, limit as i64, before as i64)).await?;
    Ok(json(&refusals))
}

fn refusals_before(index: &Connection, limit: i64, before: i64) -> rusqlite::Result<Refusals> {
    let mut statement = index.prepare_cached("SELECT why, count FROM refused ORDER BY why")?;
    let counts = statement.query_map([], |row| Ok(Count { why: row.get(0)?, count: row.get(1)? }))?;
    let counts = counts.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut statement = index.prepare_cached(
        "SELECT id, at, why, status, agent, address, path, message FROM refusals WHERE id < ?2 ORDER BY id DESC LIMIT ?1",
    )?;
    let last = statement.query_map([limit, before], |row| {
        Ok(Refused {
            id: row.get(0)?,
            at_unix_ns: row.get(1)?,
            why: row.get(2)?,
            status: row.get(3)?,
            agent: row.get(4)?,
            address: row.get(5)?,
            path: row.get(6)?,
            message: row.get(7)?,
        })
    })?;
    Ok(Refusals { counts, last: last.collect::<rusqlite::Result<_>>()? })
}

#[derive(Serialize)]
struct Retention {
    /// Retention of rows; absent: forever.
    keep_for_s: Option<u64>,
    /// Maximum bytes of their files; absent: unlimited.
    keep_bytes: Option<u64>,
    days: i64,
    oldest_day: Option<String>,
    newest_day: Option<String>,
    parts: i64,
    rows: i64,
    bytes: i64,
}

/// `GET /api/1/retention`
pub(super) async fn retention(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let facts = state.facts.clone();
    let retention = state
        .read(move |index| {
            let sql = "SELECT count(DISTINCT day), min(day), max(day), count(*), coalesce(sum(rows), 0), \
                       coalesce(sum(bytes), 0) FROM parts";
            index.query_row(sql, [], |row| {
                Ok(Retention {
                    keep_for_s: facts.keep_for_s,
                    keep_bytes: facts.keep_bytes,
                    days: row.get(0)?,
                    oldest_day: row.get(1)?,
                    newest_day: row.get(2)?,
                    parts: row.get(3)?,
                    rows: row.get(4)?,
                    bytes: row.get(5)?,
                })
            })
        })
        .await?;
    Ok(json(&retention))
}

#[derive(Serialize)]
struct Health {
    version: &'static str,
    now_unix_ns: u64,
    started_unix_ns: u64,
    /// Threads of the process; absent if /proc is unavailable.
    threads: Option<u64>,
    /// Resident memory in bytes.
    resident_bytes: Option<u64>,
    /// Batches that are stored and not yet in a day file.
    queue: Queue,
    /// When the newest day file was written.
    last_part_unix_ns: Option<i64>,
    index_bytes: u64,
    days_bytes: i64,
    disk_free_bytes: Option<u64>,
    agents: i64,
    /// Refused requests so far.
    refused: i64,
    /// Viewers of the page.
    viewers: usize,
}

#[derive(Serialize)]
struct Queue {
    batches: i64,
    rows: i64,
    oldest_unix_ns: Option<i64>,
}

/// `GET /api/1/health`
pub(super) async fn health(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let with = state.clone();
    let health = state.read(move |index| read_health(index, &with)).await?;
    Ok(json(&health))
}

fn read_health(index: &Connection, state: &State) -> rusqlite::Result<Health> {
    let one = |sql: &str| index.query_row(sql, [], |row| row.get::<_, i64>(0));
    let queue =
        index.query_row("SELECT count(*), coalesce(sum(rows), 0), min(received_at) FROM pending", [], |row| {
            Ok(Queue { batches: row.get(0)?, rows: row.get(1)?, oldest_unix_ns: row.get(2)? })
        })?;
    let (last_part_unix_ns, days_bytes) =
        index.query_row("SELECT max(made_at), coalesce(sum(bytes), 0) FROM parts", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let folder = state.data.folder();
    let bytes_of = |name: &str| std::fs::metadata(folder.join(name)).map_or(0, |found| found.len());
    let process = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Ok(Health {
        version: state.facts.version,
        now_unix_ns: now_ns(),
        started_unix_ns: state.started_unix_ns,
        threads: field(&process, "Threads:"),
        resident_bytes: field(&process, "VmRSS:").map(|kilobytes| kilobytes * 1024),
        queue,
        last_part_unix_ns,
        index_bytes: bytes_of("index.sqlite") + bytes_of("index.sqlite-wal"),
        days_bytes,
        disk_free_bytes: sys::probe::free_bytes(folder).ok(),
        agents: one("SELECT count(*) FROM agents")?,
        refused: one("SELECT coalesce(sum(count), 0) FROM refused")?,
        viewers: state.viewers(),
    })
}

/// A number in /proc/self/status.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_of_the_process_are_read_from_proc() {
        let status = "Name:\tyamabiko\nVmRSS:\t   12340 kB\nThreads:\t7\n";
        assert_eq!(
            (field(status, "Threads:"), field(status, "VmRSS:"), field(status, "Cpu:")),
            (Some(7), Some(12_340), None)
        );
    }
}
