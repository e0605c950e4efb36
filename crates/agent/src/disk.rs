//! All file operations of an agent. This module makes every change, one after another, so that tests can end
//! the agent between any two of them, or simulate a full disk.
//!
//! A SIGKILL keeps all finished calls, and at worst a part of the last write. A power failure may keep less: only
//! [`Disk::put`] with [`Durability::Yes`] waits for the disk.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder that one agent uses alone.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    #[cfg(test)]
    crash_point: crash_point::CrashPoint,
}

/// Whether a write waits until the file is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The file survives a power failure.
    Yes,
    /// The file survives the process.
    No,
}

impl Disk {
    /// Opens the folder, creates it with access for its owner only, and removes unfinished files of a killed agent.
    pub fn open(folder: &Path) -> io::Result<Disk> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let disk = Disk {
            folder: folder.to_owned(),
            #[cfg(test)]
            crash_point: crash_point::CrashPoint::default(),
        };
        disk.remove_unfinished_files()?;
        Ok(disk)
    }

    /// Opens a folder in this folder.
    pub fn below(&self, name: &str) -> io::Result<Disk> {
        let disk = Disk {
            folder: self.folder.join(name),
            #[cfg(test)]
            crash_point: self.crash_point.clone(),
        };
        disk.step()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&disk.folder)?;
        disk.remove_unfinished_files()?;
        Ok(disk)
    }

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of the files with this prefix and suffix, in order.
    pub fn names(&self, prefix: &str, suffix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            if let Ok(name) = entry?.file_name().into_string()
                && name.starts_with(prefix)
                && name.ends_with(suffix)
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The contents of a file, at most `max` bytes; `None` if it does not exist.
    pub fn get(&self, name: &str, max: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.folder.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// The length of a file; `None` if it does not exist.
    pub fn length(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.folder.join(name)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a complete file under its name, or none; replaces an existing one.
    pub fn put(&self, name: &str, bytes: &[u8], durability: Durability) -> io::Result<()> {
        let unfinished_path = self.folder.join(unfinished_name(name));
        let outcome = self.write_and_rename(&unfinished_path, name, bytes, durability);
        if outcome.is_err() && self.step().is_ok() {
            // An error of the clean-up would hide the first error; the next start cleans up.
            let _ = fs::remove_file(&unfinished_path);
        }
        outcome
    }

    fn write_and_rename(
        &self,
        unfinished_path: &Path,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> io::Result<()> {
        self.step()?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(unfinished_path)?;
        self.write(&mut file, bytes)?;
        if durability == Durability::Yes {
            self.step()?;
            sync(&file)?;
        }
        self.step()?;
        fs::rename(unfinished_path, self.folder.join(name))?;
        if durability == Durability::Yes {
            self.step()?;
            sync(&File::open(&self.folder)?)?;
        }
        Ok(())
    }

    /// Opens a file for appending; creates it if needed.
    pub fn open_append(&self, name: &str) -> io::Result<File> {
        self.step()?;
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(self.folder.join(name))
    }

    /// Appends to a file opened by [`Disk::open_append`]. After an error a part may be written.
    pub fn add(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        self.write(file, bytes)
    }

    /// Truncates an open file. Needs no disk space.
    pub fn truncate(&self, file: &File, length: u64) -> io::Result<()> {
        self.step()?;
        file.set_len(length)
    }

    /// Truncates a file by name.
    pub fn truncate_file(&self, name: &str, length: u64) -> io::Result<()> {
        self.truncate(&OpenOptions::new().write(true).open(self.folder.join(name))?, length)
    }

    /// Removes a file; a missing file is not an error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.step()?;
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_unfinished_files(&self) -> io::Result<()> {
        for name in self.names("", UNFINISHED_SUFFIX)? {
            self.remove(&name)?;
        }
        Ok(())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "in tests the agent may crash here")]
    fn step(&self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "in tests the agent may crash here")]
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }
}

/// Waits until the file is on the disk, except in tests, which do not simulate power failures.
fn sync(file: &File) -> io::Result<()> {
    if cfg!(test) { Ok(()) } else { file.sync_all() }
}

fn unfinished_name(name: &str) -> OsString {
    OsString::from(format!("{name}{UNFINISHED_SUFFIX}"))
}

/// Suffix of a file that is not complete yet.
const UNFINISHED_SUFFIX: &str = ".unfinished";

/// Whether the disk or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Ends an agent in tests: after a number of calls every call fails, as if the process had been killed.
#[cfg(test)]
pub(crate) mod crash_point {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Shared by all parts of one process.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct CrashPoint(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        /// File operations until the crash; `None`: no crash.
        steps_left: Option<u64>,
        full: bool,
        crashed: bool,
    }

    impl CrashPoint {
        /// Simulates a crash after `steps` more file operations.
        pub fn crash_after(&self, steps: u64) {
            self.0.lock().unwrap().steps_left = Some(steps);
        }

        /// Sets whether the disk is full.
        pub fn fill(&self, full: bool) {
            self.0.lock().unwrap().full = full;
        }

        /// Whether the process has ended.
        pub fn has_crashed(&self) -> bool {
            self.0.lock().unwrap().crashed
        }

        /// Called before every file operation.
        pub fn step(&self) -> io::Result<()> {
            if matches!(self.next_outcome(), StepOutcome::Continue) { Ok(()) } else { Err(killed()) }
        }

        fn next_outcome(&self) -> StepOutcome {
            let mut state = self.0.lock().unwrap();
            match state.steps_left {
                _ if state.crashed => return StepOutcome::Crashed,
                Some(0) => {
                    state.crashed = true;
                    return StepOutcome::Crash;
                }
                Some(steps_left) => state.steps_left = Some(steps_left - 1),
                None => {}
            }
            StepOutcome::Continue
        }

        fn is_full(&self) -> bool {
            self.0.lock().unwrap().full
        }
    }

    impl Disk {
        /// Opens the folder for a process that `crash_point` ends.
        pub fn with_crash_point(folder: &Path, crash_point: &CrashPoint) -> io::Result<Disk> {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let disk = Disk { folder: folder.to_owned(), crash_point: crash_point.clone() };
            disk.remove_unfinished_files()?;
            Ok(disk)
        }

        pub(super) fn step(&self) -> io::Result<()> {
            self.crash_point.step()
        }

        pub(super) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
            match self.crash_point.next_outcome() {
                StepOutcome::Continue if self.crash_point.is_full() => {
                    // A write to a full disk writes a part of the bytes.
                    file.write_all(&bytes[..bytes.len() / 2])?;
                    Err(io::ErrorKind::StorageFull.into())
                }
                StepOutcome::Continue => file.write_all(bytes),
                StepOutcome::Crash => {
                    // The process is killed within the call.
                    file.write_all(&bytes[..bytes.len() * 2 / 3])?;
                    Err(killed())
                }
                StepOutcome::Crashed => Err(killed()),
            }
        }
    }

    enum StepOutcome {
        Continue,
        Crash,
        Crashed,
    }

    fn killed() -> io::Error {
        io::Error::other("killed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_complete_or_absent_after_a_kill_at_any_step() {
        let folder = tempfile::tempdir().unwrap();
        let (mut complete, mut absent) = (0, 0);
        for steps in 0..12 {
            let crash_point = crash_point::CrashPoint::default();
            let disk = Disk::with_crash_point(&folder.path().join(steps.to_string()), &crash_point).unwrap();
            crash_point.crash_after(steps);
            let outcome = disk.put("file", b"all of it", Durability::Yes);
            let after = Disk::open(disk.folder()).unwrap();
            assert_eq!(after.names("", UNFINISHED_SUFFIX).unwrap(), [""; 0]);
            match after.get("file", 100).unwrap() {
                Some(bytes) => {
                    assert_eq!(bytes, b"all of it");
                    complete += 1;
                }
                None => {
                    assert!(outcome.is_err());
                    absent += 1;
                }
            }
        }
        assert!(complete > 5 && absent == 4, "{complete} {absent}");
    }

    #[test]
    fn on_a_full_disk_the_old_file_stays_complete() {
        let folder = tempfile::tempdir().unwrap();
        let crash_point = crash_point::CrashPoint::default();
        let disk = Disk::with_crash_point(folder.path(), &crash_point).unwrap();
        disk.put("file", b"old", Durability::No).unwrap();
        crash_point.fill(true);
        assert!(is_full(&disk.put("file", b"new", Durability::No).unwrap_err()));
        assert_eq!(disk.get("file", 100).unwrap().unwrap(), b"old");
        assert_eq!(disk.names("file", "").unwrap(), ["file"]);
        crash_point.fill(false);
        disk.put("file", b"new", Durability::No).unwrap();
        assert_eq!(disk.get("file", 2).unwrap().unwrap(), b"ne");
        disk.truncate_file("file", 1).unwrap();
        assert_eq!((disk.length("file").unwrap(), disk.length("other").unwrap()), (Some(1), None));
        disk.remove("file").unwrap();
        disk.remove("file").unwrap();
    }
}
