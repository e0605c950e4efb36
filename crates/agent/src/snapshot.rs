//! A snapshot: the whole state of the recorder, from which journal entries continue.

use std::io;

use serde::{Deserialize, Serialize};
use tap::daemon_state::DaemonState;

use crate::clock::ClockReading;
use crate::disk::{Disk, Durability};
use tap_protocol::Settings;

/// The recorder's state without unsealed rows: a snapshot is written when there are no such rows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Number of the last journal entry that the snapshot contains.
    pub through: u64,
    /// Boot whose zero the times count from; empty: none yet.
    pub boot: String,
    /// Time of the last entry.
    pub clock: ClockReading,
    /// The applied settings; version 0: no settings were received yet.
    pub settings: Settings,
    /// The state of the tap.
    pub tap: DaemonState,
}

/// Result of reading the snapshot file.
#[derive(Debug)]
pub(crate) enum StoredSnapshot {
    /// A valid snapshot.
    Snapshot(Box<Snapshot>),
    /// No snapshot file exists.
    None,
    /// A snapshot of another version, or a changed file.
    Unreadable,
}

/// Writes the snapshot in place of the previous one. Returns its length.
///
/// # Errors
/// No space, or the disk failed: the previous snapshot is unchanged.
pub(crate) fn write(disk: &Disk, snapshot: &Snapshot) -> io::Result<u64> {
    let payload = postcard::to_stdvec(snapshot).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&crate::FORMAT.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    disk.put(FILE, &bytes, Durability::Yes)?;
    Ok(bytes.len() as u64)
}

/// Reads the snapshot.
///
/// # Errors
/// The disk failed.
pub(crate) fn read(disk: &Disk) -> io::Result<StoredSnapshot> {
    let Some(bytes) = disk.get(FILE, u64::MAX)? else { return Ok(StoredSnapshot::None) };
    Ok(parse(&bytes).map_or(StoredSnapshot::Unreadable, |snapshot| StoredSnapshot::Snapshot(Box::new(snapshot))))
}

fn parse(bytes: &[u8]) -> Option<Snapshot> {
    let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&crate::FORMAT.to_le_bytes())?;
    let (sum, payload) = rest.split_first_chunk::<4>()?;
    (crc32fast::hash(payload) == u32::from_le_bytes(*sum)).then(|| postcard::from_bytes(payload).ok())?
}

const FILE: &str = "snapshot";
const MAGIC: &[u8; 8] = b"ybksnaps";
const HEADER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_back_or_is_reported_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).unwrap();
        assert!(matches!(read(&disk).unwrap(), StoredSnapshot::None));
        let snapshot = Snapshot {
            through: 7,
            boot: "b".into(),
            clock: ClockReading { at_ns: 1, zero_own_unix_ns: 2, suspended_ns: -3 },
            settings: Settings { only: vec!["443".into()], ..Settings::default() },
            tap: DaemonState::new(vec!["443".parse().unwrap()]),
        };
        let length = write(&disk, &snapshot).unwrap();
        assert_eq!(disk.length(FILE).unwrap(), Some(length));
        let StoredSnapshot::Snapshot(back) = read(&disk).unwrap() else { panic!() };
        assert_eq!((back.through, &*back.boot, back.clock), (7, "b", snapshot.clock));
        assert_eq!((back.settings, back.tap), (snapshot.settings, snapshot.tap));
        let path = folder.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(read(&disk).unwrap(), StoredSnapshot::Unreadable));
    }
}
