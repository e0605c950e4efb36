//! A snapshot: the whole state of the recorder, from which journal entries continue.

use std::io;

use serde::{Deserialize, Serialize};
use tap::standing::Standing;

use crate::clock::Moment;
use crate::disk::{Disk, Durability};
use tap_protocol::Settings;

/// The recorder's state without unsealed rows: a snapshot is written when there are none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// The last entry in it.
    pub through: u64,
    /// Boot whose zero the times count from; empty: none yet.
    pub boot: String,
    /// Time of the last entry.
    pub moment: Moment,
    /// The applied settings; version 0: no settings were received yet.
    pub settings: Settings,
    /// The state of the tap.
    pub standing: Standing,
}

/// Result of reading.
#[derive(Debug)]
pub(crate) enum Found {
    /// A valid snapshot.
    Snapshot(Box<Snapshot>),
    /// There is no snapshot.
    None,
    /// A snapshot of another version, or a changed file.
    Unreadable,
}

/// Writes the snapshot in place of the previous one. Returns its length.
///
/// # Errors
/// No space, or the disk failed: the previous one is unchanged.
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
pub(crate) fn read(disk: &Disk) -> io::Result<Found> {
    let Some(bytes) = disk.get(FILE, u64::MAX)? else { return Ok(Found::None) };
    Ok(parsed(&bytes).map_or(Found::Unreadable, |snapshot| Found::Snapshot(Box::new(snapshot))))
}

fn parsed(bytes: &[u8]) -> Option<Snapshot> {
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
        assert!(matches!(read(&disk).unwrap(), Found::None));
        let snapshot = Snapshot {
            through: 7,
            boot: "b".into(),
            moment: Moment { at_ns: 1, zero_own_unix_ns: 2, suspended_ns: -3 },
            settings: Settings { only: vec!["443".into()], ..Settings::default() },
            standing: Standing::new(vec!["443".parse().unwrap()]),
        };
        let length = write(&disk, &snapshot).unwrap();
        assert_eq!(disk.length(FILE).unwrap(), Some(length));
        let Found::Snapshot(back) = read(&disk).unwrap() else { panic!() };
        assert_eq!((back.through, &*back.boot, back.moment), (7, "b", snapshot.moment));
        assert_eq!((back.settings, back.standing), (snapshot.settings, snapshot.standing));
        let path = folder.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(read(&disk).unwrap(), Found::Unreadable));
    }
}
