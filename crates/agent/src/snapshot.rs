//! The snapshot: all that the entries so far have made, so that they need not be applied again.

use std::io;

use serde::{Deserialize, Serialize};
use tap::standing::Standing;

use crate::clock::Moment;
use crate::disk::{Disk, Lasting};
use tap_protocol::Settings;

/// What the keeper is, apart from rows that are not sealed: a snapshot is made where there are none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// The last entry in it.
    pub through: u64,
    /// The boot that its moments count from; empty: none yet.
    pub boot: String,
    /// The moment of the last entry.
    pub moment: Moment,
    /// What is gone by; version 0: what an agent does that was never told anything.
    pub settings: Settings,
    /// The collector.
    pub standing: Standing,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Found {
    /// It.
    Snapshot(Box<Snapshot>),
    /// None was made.
    None,
    /// One of another version of the program, or one that somebody changed.
    Unreadable,
}

/// Writes it, in place of the one before. Gives its length.
///
/// # Errors
/// No room, or the disk failed: the one before is still there.
pub(crate) fn write(disk: &Disk, snapshot: &Snapshot) -> io::Result<u64> {
    let payload = postcard::to_stdvec(snapshot).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&crate::FORMAT.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    disk.put(FILE, &bytes, Lasting::Yes)?;
    Ok(bytes.len() as u64)
}

/// Reads it.
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
    fn it_reads_back_or_is_told_unreadable() {
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
