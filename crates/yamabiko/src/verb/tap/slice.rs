//! `yamabiko tap slice`: filters and groups the tap records of any number of runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;
use report::tap_slice::{self, SliceTimes};
use schema::TapSide;
use schema::tap_part::{SLICE_SCHEMA, TapSlice, TapSliceRun};
use store::RunStore;
use tap::{By, Filter, Slicer};

use crate::args::Slice;
use crate::exit::Exit;
use crate::terminal;
use crate::verb::bench::print;

/// Reads the tap records of the runs and prints the figures of those that match the conditions.
pub fn run(arguments: &Slice) -> Result<Exit> {
    let now = sys::clock::realtime_ns();
    let (since, until) = (parse_time(arguments.since.as_deref(), now)?, parse_time(arguments.until.as_deref(), now)?);
    let filter = Filter {
        peers: arguments.peer.clone(),
        ports: arguments.port.clone(),
        programs: arguments.program.clone(),
        since_ns: since,
        until_ns: until,
    };
    let by = arguments.by.map(By::from);
    let window_ns = units::time::saturating_nanos(arguments.window.window);
    let mut slicer = Slicer::new(filter, by, window_ns);
    let dirs = runs(arguments)?;
    let mut table_failures = Vec::new();
    let runs = dirs.iter().zip(0..).map(|(dir, number)| read(dir, number, &mut slicer, &mut table_failures)).collect();
    let (rows, rows_taken) = slicer.rows();
    // Without readable rows there are no figures; an empty result would look like a time without traffic.
    ensure!(rows > 0 || table_failures.is_empty(), "{}", table_failures.join("; "));
    let slice = TapSlice {
        schema: SLICE_SCHEMA.into(),
        runs,
        conditions: conditions(arguments),
        rows,
        rows_taken,
        client: slicer.view(TapSide::Client),
        server: slicer.view(TapSide::Server),
        lookups: slicer.lookups().part(),
        by: by.map(|by| by.as_str().to_owned()),
        groups: slicer.groups(|second| rfc3339(second.saturating_mul(1_000_000_000))),
    };
    show(arguments, &slice, &slicer)?;
    ensure!(table_failures.is_empty(), "the figures lack rows: {}", table_failures.join("; "));
    Ok(Exit::Success)
}

fn show(arguments: &Slice, slice: &TapSlice, slicer: &Slicer) -> Result<()> {
    if arguments.json {
        return print(&(serde_json::to_string_pretty(slice)? + "\n"));
    }
    if !arguments.forms.any() {
        return print(&report::terminal::tap_slice(slice, terminal::style()));
    }
    let sides = [("as clients", TapSide::Client), ("as servers", TapSide::Server)];
    let times: Vec<SliceTimes<'_>> = sides
        .into_iter()
        .filter_map(|(name, side)| {
            let of = slicer.sides().side(side)?;
            Some(SliceTimes { name, response: &of.response, setup: &of.setup, connection: &of.connection })
        })
        .collect();
    arguments.forms.write(tap_slice::page(slice, &times))
}

/// The folders of the selected runs, oldest first, each once.
fn runs(arguments: &Slice) -> Result<Vec<PathBuf>> {
    let run_store = RunStore::open()?;
    if !arguments.runs.is_empty() {
        let mut dirs: Vec<PathBuf> = Vec::new();
        for name in &arguments.runs {
            let dir = run_store.find(name)?;
            ensure!(has_tap(&dir), "{}: the run has no tap; `yamabiko tap -- COMMAND` makes one", dir.display());
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        return Ok(dirs);
    }
    let named = |dir: &Path| {
        let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        arguments.name.as_ref().is_none_or(|name| name_of(&id) == name)
    };
    let mut dirs: Vec<PathBuf> = run_store.dirs()?.into_iter().filter(|dir| named(dir) && has_tap(dir)).collect();
    let runs_max = match (arguments.last, &arguments.name) {
        (Some(last), _) => last as usize,
        (None, Some(_)) => usize::MAX,
        (None, None) => 1,
    };
    dirs.drain(..dirs.len().saturating_sub(runs_max));
    if dirs.is_empty() {
        bail!("no matching run with a tap in {}; `yamabiko tap -- COMMAND` makes one", run_store.root().display());
    }
    Ok(dirs)
}

/// The name in a run's ID: NAME of `20261122-100000-NAME-abcd`.
fn name_of(id: &str) -> &str {
    let (from, to) = ("yyyymmdd-hhmmss-".len(), id.len().saturating_sub("-abcd".len()));
    id.get(from..to).unwrap_or_default()
}

fn has_tap(dir: &Path) -> bool {
    dir.join("taps.parquet").exists() || dir.join("taps").is_dir()
}

/// Reads one run into the slicer. The result lists what could not be read. `table_failures` gets the failures to read
/// the run's table.
fn read(dir: &Path, number: u32, slicer: &mut Slicer, table_failures: &mut Vec<String>) -> TapSliceRun {
    let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut unread = Vec::new();
    let document = store::read_summary(dir);
    let (started_at, verdict) = match &document {
        Ok(document) => (document.run.started_at.clone(), Some(document.validity.verdict)),
        // Without a document the start is known to the second, from the folder's name.
        Err(error) => {
            unread.push(error.to_string());
            (start_of_id(&id).unwrap_or_default(), None)
        }
    };
    let zero_ns = started_at.parse::<Timestamp>().map_or(0, |at| u64::try_from(at.as_nanosecond()).unwrap_or(0));
    let failures_before = table_failures.len();
    match store::read_taps(dir) {
        Err(error) => table_failures.push(error.to_string()),
        Ok(rows) => {
            for row in rows {
                match row {
                    Ok(row) => slicer.add(number, zero_ns, &row),
                    Err(error) => table_failures.push(error.to_string()),
                }
            }
        }
    }
    unread.extend_from_slice(&table_failures[failures_before..]);
    TapSliceRun { id, started_at, verdict, unread: unread.join("; ") }
}

/// The start time in a run's ID, as RFC 3339.
fn start_of_id(id: &str) -> Option<String> {
    let part = |from, to| id.get(from..to);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
    Some(format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

fn conditions(arguments: &Slice) -> Vec<String> {
    let mut conditions: Vec<String> = Vec::new();
    let peers = arguments.peer.iter().map(|peer| format!("peer {peer}"));
    conditions.extend(peers);
    conditions.extend(arguments.port.iter().map(|port| format!("port {port}")));
    conditions.extend(arguments.program.iter().map(|program| format!("program {program}")));
    conditions.extend(arguments.since.iter().map(|since| format!("since {since}")));
    conditions.extend(arguments.until.iter().map(|until| format!("until {until}")));
    conditions
}

/// Parses a date, a date with a time, or an age before `now_ns`, into nanoseconds since 1970.
fn parse_time(typed: Option<&str>, now_ns: u64) -> Result<Option<u64>> {
    let Some(typed) = typed else { return Ok(None) };
    if let Ok(ago) = units::parse_duration(typed) {
        return Ok(Some(now_ns.saturating_sub(units::time::saturating_nanos(ago))));
    }
    let at = typed.parse::<Timestamp>().or_else(|error| {
        // A time without a zone is in UTC, as every stored time.
        let whole =
            typed.parse::<civil::DateTime>().or_else(|_| typed.parse::<civil::Date>().map(|day| day.at(0, 0, 0, 0)));
        whole.and_then(|at| at.to_zoned(TimeZone::UTC)).map(|at| at.timestamp()).map_err(|_| error)
    });
    let at = at.map_err(|_| {
        anyhow::anyhow!(
            "`{typed}` is not a valid time: expected a form such as 2026-11-22T10:00:00Z, 2026-11-22 10:00, 2026-11-22, \
             or 1h (ago)"
        )
    })?;
    Ok(Some(u64::try_from(at.as_nanosecond()).unwrap_or(0)))
}

fn rfc3339(ns: u64) -> String {
    store::rfc3339(UNIX_EPOCH + Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_times_are_dates_times_or_ages() {
        let now = 1_800_000_000 * 1_000_000_000;
        let at = |typed| parse_time(Some(typed), now).unwrap().unwrap() / 1_000_000_000;
        assert_eq!(at("1h"), 1_800_000_000 - 3_600);
        assert_eq!(at("2027-01-15T08:00:00Z"), 1_800_000_000);
        assert_eq!(at("2027-01-15T09:00:00+01:00"), 1_800_000_000);
        assert_eq!(at("2027-01-15 08:00"), 1_800_000_000);
        assert_eq!(at("2027-01-15"), 1_800_000_000 - 8 * 3_600);
        assert!(parse_time(Some("yesterday"), now).is_err());
        assert_eq!(parse_time(None, now).unwrap(), None);
    }

    #[test]
    fn run_name_contains_name_and_start_time() {
        assert_eq!(name_of("20261122-100000-my-shop-abcd"), "my-shop");
        assert_eq!(name_of("odd"), "");
        assert_eq!(start_of_id("20261122-100102-tap-abcd").as_deref(), Some("2026-11-22T10:01:02Z"));
    }
}
