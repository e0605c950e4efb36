//! UTC days, and the names of the files in a day's folder.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::OptionalExtension as _;

use crate::data::Data;
use crate::error::{Error, Result};

/// Nanoseconds of a day.
pub(crate) const DAY_NS: u64 = 86_400_000_000_000;

/// The UTC day of a time: days since 1970.
pub(crate) fn day_of(at_ns: u64) -> u64 {
    at_ns / DAY_NS
}

/// A day's name: `2026-11-23`.
pub(crate) fn name_of(day: u64) -> String {
    let mut timestamp = store::rfc3339(UNIX_EPOCH + Duration::from_secs(day.saturating_mul(86_400)));
    timestamp.truncate("2026-11-23".len());
    timestamp
}

/// The day of a name; `None` for other text.
pub(crate) fn day_named(name: &str) -> Option<u64> {
    Some(store::unix_ms(&format!("{name}T00:00:00.000Z"))? / 86_400_000)
}

/// Path of a part.
pub(crate) fn path_of(data: &Data, day: &str, file: &str) -> PathBuf {
    data.days().join(day).join(file)
}

/// The number in a part's name; `None` for other names.
pub(crate) fn number_of(file: &str) -> Option<u64> {
    file.strip_prefix("part-")?.strip_suffix(".parquet")?.parse().ok()
}

/// A name that no file of the day has or had while the index listed one: numbers rise.
pub(crate) fn next_name(data: &Data, day: &str) -> Result<String> {
    // The longest names are the latest, beyond 999,999.
    let newest = "SELECT file FROM parts WHERE day = ?1 ORDER BY length(file) DESC, file DESC LIMIT 1";
    let known: Option<String> = data.read(|index| index.query_row(newest, [day], |row| row.get(0)).optional())?;
    let there = files_in(&data.days().join(day))?;
    let numbers = known.iter().chain(&there).filter_map(|file| number_of(file));
    Ok(format!("part-{:06}.parquet", numbers.max().unwrap_or(0) + 1))
}

/// Names in a folder; none if there is no folder.
pub(crate) fn files_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::io("opendir", folder, source)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.collect::<std::io::Result<_>>().map_err(|source| Error::io("readdir", folder, source))
}
