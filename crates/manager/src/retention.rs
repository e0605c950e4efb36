//! Retention of recorded exchanges: whole days, the oldest first, by age and by size.

use std::time::Duration;

use crate::data::{CrashPoint, Data};
use crate::day_files::{DAY_NS, day_named, day_of, files_in, number_of};
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::quality;

/// Configured retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age: a day is removed when all of it is older. `None`: unlimited.
    pub age: Option<Duration>,
    /// Maximum bytes of the day files; beyond, the oldest days are removed, never the newest. `None`: unlimited.
    pub bytes: Option<u64>,
}

impl Retention {
    /// The first day within the maximum age, in days since 1970.
    pub(crate) fn oldest_day(&self, now_ns: u64) -> u64 {
        match self.age {
            Some(age) => day_of(now_ns.saturating_sub(units::time::saturating_nanos(age))),
            None => 0,
        }
    }
}

/// A removed day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedDay {
    /// Name of the day.
    pub day: String,
    /// Number of its rows.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Removes expired days and days beyond the size limit, and expired quality spans.
///
/// # Errors
/// A failure of the file system, SQLite's.
pub fn apply(data: &Data, notes: &Notes, retention: &Retention, now_ns: u64) -> Result<Vec<RemovedDay>> {
    let mut days: Vec<RemovedDay> = data.read(|index| {
        let mut statement =
            index.prepare_cached("SELECT day, sum(rows), sum(bytes) FROM parts GROUP BY day ORDER BY day")?;
        let rows = statement.query_map([], |row| {
            let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
            Ok(RemovedDay { day: row.get(0)?, rows: number(1)?, bytes: number(2)? })
        })?;
        Ok::<_, Error>(rows.collect::<rusqlite::Result<_>>()?)
    })?;
    // A clock set far ahead must not remove everything: two days with rows are needed, which gives a day to notice. A
    // manager without new rows keeps all days.
    let newest = days.iter().rev().nth(1).or(days.last()).and_then(|day| day_named(&day.day));
    let now_ns = newest.map_or(now_ns, |day| now_ns.min((day + 3).saturating_mul(DAY_NS)));
    let oldest = retention.oldest_day(now_ns);
    let mut bytes: u64 = days.iter().map(|day| day.bytes).sum();
    let count = days.len();
    let mut removed = 0;
    while removed < count {
        let day = &days[removed];
        let is_over = day_named(&day.day).is_some_and(|number| number < oldest);
        let is_too_much = retention.bytes.is_some_and(|bytes_max| bytes > bytes_max) && removed + 1 < count;
        if !is_over && !is_too_much {
            break;
        }
        bytes -= day.bytes;
        removed += 1;
    }
    days.truncate(removed);
    for day in &days {
        remove_day(data, &day.day)?;
        notes.log(&format!("{} was removed: {} rows, {} bytes", day.day, day.rows, day.bytes));
    }
    if retention.bytes.is_some_and(|bytes_max| bytes > bytes_max) {
        notes.trouble(&format!("the newest day alone exceeds --keep-bytes: {bytes} bytes"));
    }
    let spans = quality::StoredSpans::default();
    while data.change(|index| quality::remove_expired_spans(index, now_ns / 1_000_000_000, &spans))? {}
    Ok(days)
}

/// Removes the day from the index first, so that a partly removed day is unlisted and is cleaned up at the next
/// start.
fn remove_day(data: &Data, day: &str) -> Result<()> {
    data.change(|index| index.execute("DELETE FROM parts WHERE day = ?1", [day]))?;
    data.crash_at(CrashPoint::DayForgotten)?;
    let folder = data.days().join(day);
    for file in files_in(&folder)?.into_iter().filter(|file| number_of(file).is_some()) {
        let path = folder.join(file);
        std::fs::remove_file(&path).map_err(|source| Error::io("unlink", &path, source))?;
    }
    // The folder stays if another program has put files into it.
    let _ = std::fs::remove_dir(&folder);
    Ok(())
}

/// Default maximum age: 400 days.
pub const MAX_AGE_DEFAULT: Duration = Duration::from_secs(400 * (DAY_NS / 1_000_000_000));
/// Default maximum size: 50 GB.
pub const MAX_BYTES_DEFAULT: u64 = 50_000_000_000;
