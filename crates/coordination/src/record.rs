//! What the coordination measured of one shard, stored in its run as [`FILE`].

use std::fs;
use std::io;
use std::path::Path;

use schema::document::ClockOffsets;
use serde::{Deserialize, Serialize};

/// Name of the file in a run's folder.
pub const FILE: &str = "coordination.json";
/// Most bytes of the file that are read; it has some 400.
const BYTES_MAX: u64 = 64 << 10;

/// The record of one shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The session.
    pub session: String,
    /// Number of the shard.
    pub index: u32,
    /// Number of shards.
    pub count: u32,
    /// The leader's process: offsets of two sessions are not comparable.
    pub leader: u64,
    /// The clock, compared with the leader's.
    pub clocks: ClockOffsets,
    /// Processor time of the coordinating process so far, in seconds.
    pub cpu_s: f64,
    /// Length of the time in which it was used, in seconds.
    pub wall_s: f64,
}

/// Writes the record into a run's folder.
///
/// # Errors
/// A full disk or another failure of the file system.
pub fn write(dir: &Path, record: &Record) -> io::Result<()> {
    let temporary = dir.join(format!("{FILE}.part"));
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    fs::write(&temporary, text)?;
    fs::File::open(&temporary)?.sync_all()?;
    fs::rename(temporary, dir.join(FILE))
}

/// The record of the run in `dir`; `None` for a run without coordination.
///
/// # Errors
/// The file cannot be read, or is not such a record.
pub fn read(dir: &Path) -> io::Result<Option<Record>> {
    let path = dir.join(FILE);
    let length = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{length} bytes: expected at most {BYTES_MAX}"),
        ));
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

/// The largest difference of two shards' clocks in nanoseconds; `None` if one was not measured before and after.
pub fn largest_difference(clocks: impl IntoIterator<Item = ClockOffsets>) -> Option<u64> {
    let intervals = clocks.into_iter().map(|clocks| clocks.interval()).collect::<Option<Vec<_>>>()?;
    let low = intervals.iter().map(|interval| interval.0).min()?;
    let high = intervals.iter().map(|interval| interval.1).max()?;
    Some(high.abs_diff(low))
}

#[cfg(test)]
mod tests {
    use schema::document::ClockOffset;

    use super::*;

    fn clocks(before: (i64, u64), after: Option<(i64, u64)>) -> ClockOffsets {
        let estimate = |(offset_ns, bound_ns)| ClockOffset { offset_ns, bound_ns, round_trips: 16 };
        ClockOffsets { before: Some(estimate(before)), after: after.map(estimate) }
    }

    #[test]
    fn the_largest_difference_has_the_bounds_and_the_drift() {
        let own = ClockOffsets { before: Some(ClockOffset::default()), after: Some(ClockOffset::default()) };
        assert_eq!(largest_difference([own, own]), Some(0));
        assert_eq!(largest_difference([own, clocks((50, 2), Some((57, 3)))]), Some(60));
        assert_eq!(largest_difference([clocks((-50, 2), Some((-40, 1))), clocks((5, 2), Some((5, 1)))]), Some(59));
        assert_eq!(largest_difference([own, clocks((50, 2), None)]), None);
        assert_eq!(largest_difference([]), None);
        assert_eq!(largest_difference([clocks((i64::MIN, 1), Some((i64::MAX, 1)))]), Some(u64::MAX));
    }

    #[test]
    fn records_are_read_as_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let record = Record {
            session: "s".into(),
            index: 1,
            count: 2,
            leader: 9,
            clocks: clocks((1, 2), None),
            cpu_s: 0.5,
            wall_s: 8.0,
        };
        write(dir.path(), &record).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(record));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(read(dir.path()).is_err());
    }
}
