//! The journal: the entries that the agent recorded since its last snapshot. A restarted agent applies the
//! entries again and reaches the state of the killed one.
//!
//! ```text
//!   journal-00000000000000000001   magic, format, first number ║ length, CRC, number, bytes │ length, CRC, number, bytes │ ..
//! ```
//!
//! Entries are numbered from 1 and never reused. An entry cut off by a SIGKILL was never applied: the rings' tails
//! move only after a complete entry, so its records are still in the rings. Writes do not wait for the disk: a power
//! failure loses the rings as well.

use std::fs::File;
use std::io;

use crate::disk::{Disk, Durability};

/// The journal, open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    disk: Disk,
    file: File,
    name: String,
    /// Bytes of complete entries.
    length: u64,
    /// Whether an incomplete entry follows and must be removed first.
    has_gap: bool,
    /// Number of the next entry.
    next: u64,
}

/// Result of reading the existing entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The entries follow the snapshot without a gap. At most the last entry was cut off.
    Complete,
    /// Entries after this one are missing or unreadable: the disk lost them, or the file was changed.
    Damaged(u64),
}

impl Journal {
    /// Opens the journal of a folder, or creates one, after entry `from`, and passes all later entries to `on_entry` in
    /// order. `on_entry` returns whether it could decode the entry.
    ///
    /// # Errors
    /// A file cannot be read or created; or `on_entry` failed.
    pub fn open(
        disk: &Disk,
        from: u64,
        on_entry: &mut dyn FnMut(u64, &[u8]) -> io::Result<bool>,
    ) -> io::Result<(Journal, Reading)> {
        let mut next = from + 1;
        let mut reading = Reading::Complete;
        let mut last = None;
        for name in disk.names(PREFIX, "")? {
            let bytes = disk.get(&name, u64::MAX)?.unwrap_or_default();
            let mut at = HEADER;
            if !has_valid_header(&name, &bytes) {
                (at, reading) = (0, Reading::Damaged(next - 1));
            }
            while reading == Reading::Complete {
                match entry_at(&bytes, at) {
                    NextEntry::Entry(number, payload) => {
                        if number > next || (number == next && !on_entry(number, payload)?) {
                            reading = Reading::Damaged(next - 1);
                            break;
                        }
                        next = next.max(number + 1);
                        at += FRAME + payload.len();
                    }
                    NextEntry::End => break,
                    NextEntry::Invalid => reading = Reading::Damaged(next - 1),
                }
            }
            last = Some((name, at as u64, bytes.len() as u64));
        }
        let journal = match last {
            // Entries after damage are not used: the journal restarts.
            Some((name, length, file_length)) if reading == Reading::Complete && length > 0 => {
                let file = disk.open_append(&name)?;
                Journal { disk: disk.clone(), file, name, length, has_gap: file_length > length, next }
            }
            _ => Journal::begin(disk, next)?,
        };
        Ok((journal, reading))
    }

    fn begin(disk: &Disk, next: u64) -> io::Result<Journal> {
        let name = format!("{PREFIX}{next:020}");
        // The header is complete when the file gets its name.
        disk.put(&name, &header(next), Durability::No)?;
        let file = disk.open_append(&name)?;
        Ok(Journal { disk: disk.clone(), file, name, length: HEADER as u64, has_gap: false, next })
    }

    /// Adds an entry; returns its number. After an error the entry is absent, and the call can be repeated.
    ///
    /// # Errors
    /// No space, or the disk failed.
    pub fn add(&mut self, payload: &[u8]) -> io::Result<u64> {
        if self.has_gap {
            self.disk.truncate(&self.file, self.length)?;
            self.has_gap = false;
        }
        let number = self.next;
        let frame = frame(number, payload);
        self.has_gap = true;
        self.disk.add(&mut self.file, &frame)?;
        self.has_gap = false;
        self.length += frame.len() as u64;
        self.next = number + 1;
        Ok(number)
    }

    /// Number of the last entry; 0: none yet.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Skips all numbers up to this one, which were used elsewhere.
    ///
    /// # Errors
    /// The new file cannot be created.
    pub fn skip_to(&mut self, last: u64) -> io::Result<()> {
        if last >= self.next {
            self.next = last + 1;
            self.restart()?;
        }
        Ok(())
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.length
    }

    /// Restarts the journal after a snapshot, which contains all entries.
    ///
    /// # Errors
    /// The new file cannot be created: then the old one stays in use.
    pub fn restart(&mut self) -> io::Result<()> {
        let old = self.disk.names(PREFIX, "")?;
        let new = Journal::begin(&self.disk, self.next)?;
        for name in old.iter().filter(|name| **name != new.name) {
            self.disk.remove(name)?;
        }
        *self = new;
        Ok(())
    }
}

const PREFIX: &str = "journal-";
const MAGIC: &[u8; 8] = b"ybkjourn";
/// Magic, format and first number.
const HEADER: usize = 20;
/// Length of the payload, CRC-32 of number and payload, number.
const FRAME: usize = 16;

fn header(first: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&crate::FORMAT.to_le_bytes());
    header[12..].copy_from_slice(&first.to_le_bytes());
    header
}

fn has_valid_header(name: &str, bytes: &[u8]) -> bool {
    let first = name.strip_prefix(PREFIX).and_then(|digits| digits.parse().ok());
    first.is_some_and(|first| bytes.starts_with(&header(first)))
}

fn frame(number: u64, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("an entry has at most the records of the rings: some megabytes");
    let mut frame = Vec::with_capacity(FRAME + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&crc(number, payload).to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The result of decoding at a position of the file.
enum NextEntry<'a> {
    Entry(u64, &'a [u8]),
    /// The end of the file, or an entry that a kill cut off.
    End,
    /// Invalid bytes. A kill does not produce them.
    Invalid,
}

fn entry_at(bytes: &[u8], at: usize) -> NextEntry<'_> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some((head, rest)) = rest.split_first_chunk::<FRAME>() else { return NextEntry::End };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let number = u64::from_le_bytes([head[8], head[9], head[10], head[11], head[12], head[13], head[14], head[15]]);
    match rest.get(..length as usize) {
        None => NextEntry::End,
        Some(payload) if crc(number, payload) == sum => NextEntry::Entry(number, payload),
        Some(_) => NextEntry::Invalid,
    }
}

fn crc(number: u64, payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(payload);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::crash_point::CrashPoint;

    fn read(disk: &Disk, from: u64) -> (Journal, Reading, Vec<(u64, Vec<u8>)>) {
        let mut entries = Vec::new();
        let (journal, reading) = Journal::open(disk, from, &mut |number, bytes| {
            entries.push((number, bytes.to_vec()));
            Ok(true)
        })
        .unwrap();
        (journal, reading, entries)
    }

    #[test]
    fn journal_entries_read_back_without_a_torn_last_entry() {
        // Killed at each step of three entries: finished entries exist, and numbering continues.
        for steps in 0..12 {
            let folder = tempfile::tempdir().unwrap();
            let crash_point = CrashPoint::default();
            let disk = Disk::with_crash_point(folder.path(), &crash_point).unwrap();
            crash_point.crash_after(steps);
            let mut added = 0;
            if let Ok((mut journal, _)) = Journal::open(&disk, 0, &mut |_, _| Ok(true)) {
                added = (1..=3_u8).take_while(|n| journal.add(&[*n; 40]).is_ok()).count();
            }
            let disk = Disk::open(folder.path()).unwrap();
            let (mut journal, reading, entries) = read(&disk, 0);
            assert_eq!((reading, entries.len()), (Reading::Complete, added), "{steps}");
            assert_eq!(journal.add(b"next").unwrap(), added as u64 + 1);
            let (_, reading, entries) = read(&disk, 0);
            assert_eq!((reading, entries.len()), (Reading::Complete, added + 1));
            assert_eq!(entries[added], (added as u64 + 1, b"next".to_vec()));
        }
    }

    #[test]
    fn the_journal_restarts_after_a_snapshot_despite_a_kill_at_any_step() {
        for steps in 0..8 {
            let folder = tempfile::tempdir().unwrap();
            let crash_point = CrashPoint::default();
            let disk = Disk::with_crash_point(folder.path(), &crash_point).unwrap();
            let (mut journal, ..) = read(&disk, 0);
            (0..5).for_each(|_| assert!(journal.add(b"entry").is_ok()));
            crash_point.crash_after(steps);
            let _ = journal.restart();
            let disk = Disk::open(folder.path()).unwrap();
            // The snapshot has five entries.
            let (mut journal, reading, entries) = read(&disk, 5);
            assert_eq!((reading, entries.len(), journal.last()), (Reading::Complete, 0, 5), "{steps}");
            assert_eq!(journal.add(b"six").unwrap(), 6);
            assert_eq!(read(&disk, 5).2, [(6, b"six".to_vec())]);
        }
    }

    #[test]
    fn the_journal_continues_after_a_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let crash_point = CrashPoint::default();
        let disk = Disk::with_crash_point(folder.path(), &crash_point).unwrap();
        let (mut journal, ..) = read(&disk, 0);
        journal.add(b"one").unwrap();
        crash_point.fill(true);
        for _ in 0..3 {
            assert!(crate::disk::is_full(&journal.add(b"two").unwrap_err()));
        }
        crash_point.fill(false);
        assert_eq!(journal.add(b"two").unwrap(), 2);
        assert_eq!(read(&disk, 0).2, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    }

    #[test]
    fn a_damaged_journal_is_reported_and_numbering_continues() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).unwrap();
        let (mut journal, ..) = read(&disk, 0);
        (0..3).for_each(|_| assert!(journal.add(b"entry").is_ok()));
        // An older snapshot, or none, with a journal that begins later.
        journal.restart().unwrap();
        journal.add(b"four").unwrap();
        let (mut journal, reading, entries) = read(&disk, 1);
        assert_eq!((reading, entries.len()), (Reading::Damaged(1), 0));
        journal.skip_to(9).unwrap();
        assert_eq!(journal.add(b"ten").unwrap(), 10);
        assert_eq!(read(&disk, 9).2, [(10, b"ten".to_vec())]);
        // Skipping backwards does nothing.
        journal.skip_to(3).unwrap();
        assert_eq!((journal.last(), journal.bytes()), (10, (HEADER + FRAME + 3) as u64));
    }

    #[test]
    fn a_flipped_bit_ends_the_reading_of_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).unwrap();
        let (mut journal, ..) = read(&disk, 0);
        (0..3).for_each(|_| assert!(journal.add(b"entry").is_ok()));
        let path = folder.path().join(&journal.name);
        let mut bytes = std::fs::read(&path).unwrap();
        let second = HEADER + FRAME + 5 + FRAME;
        bytes[second] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let (_, reading, entries) = read(&disk, 0);
        assert_eq!((reading, entries.len()), (Reading::Damaged(1), 1));
    }
}
