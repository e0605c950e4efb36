//! An agent's folder: every call that changes a file in it, one after another, so that tests can end the agent between any
//! two, or find the disk full.
//!
//! A SIGKILL leaves what calls did so far, and at worst the beginning of what the last write had to say. A power cut may
//! leave less: only [`Disk::put`] with [`Lasting::Yes`] waits for the disk.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder that one agent has to itself.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    #[cfg(test)]
    fuse: fuse::Fuse,
}

/// Whether a file is waited for until it is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// It outlives a power cut.
    Yes,
    /// It outlives this process.
    No,
}

impl Disk {
    /// The folder, made if it is not there, for its owner alone. What an agent that was killed left half made is removed.
    pub fn open(folder: &Path) -> io::Result<Disk> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let disk = Disk {
            folder: folder.to_owned(),
            #[cfg(test)]
            fuse: fuse::Fuse::default(),
        };
        disk.sweep()?;
        Ok(disk)
    }

    /// The same of a folder in this one.
    pub fn below(&self, name: &str) -> io::Result<Disk> {
        let disk = Disk {
            folder: self.folder.join(name),
            #[cfg(test)]
            fuse: self.fuse.clone(),
        };
        disk.step()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&disk.folder)?;
        disk.sweep()?;
        Ok(disk)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of the files that begin with `prefix` and end with `suffix`, in order.
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

    /// A file's bytes, at most `max`; `None` where it is not there.
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

    /// A file's length; `None` where it is not there.
    pub fn length(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.folder.join(name)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file whole under its name, or not at all; in place of the one that may be there.
    pub fn put(&self, name: &str, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
        let half = self.folder.join(half_made(name));
        let outcome = self.put_by(&half, name, bytes, lasting);
        if outcome.is_err() && self.step().is_ok() {
            // Its own failure would hide the one that led here; the next start sweeps.
            let _ = fs::remove_file(&half);
        }
        outcome
    }

    fn put_by(&self, half: &Path, name: &str, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
        self.step()?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(half)?;
        self.write(&mut file, bytes)?;
        if lasting == Lasting::Yes {
            self.step()?;
            sync(&file)?;
        }
        self.step()?;
        fs::rename(half, self.folder.join(name))?;
        if lasting == Lasting::Yes {
            self.step()?;
            sync(&File::open(&self.folder)?)?;
        }
        Ok(())
    }

    /// Opens a file to add to it; makes it if it is not there.
    pub fn to_add(&self, name: &str) -> io::Result<File> {
        self.step()?;
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(self.folder.join(name))
    }

    /// Adds to a file that [`Disk::to_add`] opened. After an error some of it may be there.
    pub fn add(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        self.write(file, bytes)
    }

    /// Cuts an open file. Needs no room.
    pub fn cut(&self, file: &File, length: u64) -> io::Result<()> {
        self.step()?;
        file.set_len(length)
    }

    /// The same by name.
    pub fn cut_named(&self, name: &str, length: u64) -> io::Result<()> {
        self.cut(&OpenOptions::new().write(true).open(self.folder.join(name))?, length)
    }

    /// Removes a file; one that is not there is no error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.step()?;
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sweep(&self) -> io::Result<()> {
        for name in self.names("", HALF_MADE)? {
            self.remove(&name)?;
        }
        Ok(())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "in tests the agent may end here")]
    fn step(&self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "in tests the agent may end here")]
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }
}

/// A test's power is not cut.
fn sync(file: &File) -> io::Result<()> {
    if cfg!(test) { Ok(()) } else { file.sync_all() }
}

fn half_made(name: &str) -> OsString {
    OsString::from(format!("{name}{HALF_MADE}"))
}

/// What the name of a file ends with until it is whole.
const HALF_MADE: &str = ".unfinished";

/// Whether the disk, or what the user may have of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// How tests end an agent: after so many calls nothing goes any more, as if it had been killed there.
#[cfg(test)]
pub(crate) mod fuse {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Shared by all that stands for one process.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Fuse(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        /// Calls until the end; `None`: no end.
        left: Option<u64>,
        full: bool,
        dead: bool,
    }

    impl Fuse {
        /// Burns through after `steps` more calls.
        pub fn light(&self, steps: u64) {
            self.0.lock().unwrap().left = Some(steps);
        }

        /// From now on there is no room, or there is again.
        pub fn fill(&self, full: bool) {
            self.0.lock().unwrap().full = full;
        }

        /// Whether it has burnt through.
        pub fn is_dead(&self) -> bool {
            self.0.lock().unwrap().dead
        }

        /// A call that matters is about to be made.
        pub fn step(&self) -> io::Result<()> {
            if matches!(self.burn(), Burn::Goes) { Ok(()) } else { Err(killed()) }
        }

        fn burn(&self) -> Burn {
            let mut state = self.0.lock().unwrap();
            match state.left {
                _ if state.dead => return Burn::Dead,
                Some(0) => {
                    state.dead = true;
                    return Burn::Ends;
                }
                Some(left) => state.left = Some(left - 1),
                None => {}
            }
            Burn::Goes
        }

        fn is_full(&self) -> bool {
            self.0.lock().unwrap().full
        }
    }

    impl Disk {
        /// The folder of a process that `fuse` ends.
        pub fn with_fuse(folder: &Path, fuse: &Fuse) -> io::Result<Disk> {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let disk = Disk { folder: folder.to_owned(), fuse: fuse.clone() };
            disk.sweep()?;
            Ok(disk)
        }

        pub(super) fn step(&self) -> io::Result<()> {
            self.fuse.step()
        }

        pub(super) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
            match self.fuse.burn() {
                Burn::Goes if self.fuse.is_full() => {
                    // As a full disk does: some of it.
                    file.write_all(&bytes[..bytes.len() / 2])?;
                    Err(io::ErrorKind::StorageFull.into())
                }
                Burn::Goes => file.write_all(bytes),
                Burn::Ends => {
                    // Killed within the call.
                    file.write_all(&bytes[..bytes.len() * 2 / 3])?;
                    Err(killed())
                }
                Burn::Dead => Err(killed()),
            }
        }
    }

    enum Burn {
        Goes,
        Ends,
        Dead,
    }

    fn killed() -> io::Error {
        io::Error::other("killed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there_whenever_its_maker_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let (mut whole, mut none) = (0, 0);
        for steps in 0..12 {
            let fuse = fuse::Fuse::default();
            let disk = Disk::with_fuse(&folder.path().join(steps.to_string()), &fuse).unwrap();
            fuse.light(steps);
            let outcome = disk.put("file", b"all of it", Lasting::Yes);
            let after = Disk::open(disk.folder()).unwrap();
            assert_eq!(after.names("", HALF_MADE).unwrap(), [""; 0]);
            match after.get("file", 100).unwrap() {
                Some(bytes) => {
                    assert_eq!(bytes, b"all of it");
                    whole += 1;
                }
                None => {
                    assert!(outcome.is_err());
                    none += 1;
                }
            }
        }
        assert!(whole > 5 && none == 4, "{whole} {none}");
    }

    #[test]
    fn a_full_disk_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let fuse = fuse::Fuse::default();
        let disk = Disk::with_fuse(folder.path(), &fuse).unwrap();
        disk.put("file", b"old", Lasting::No).unwrap();
        fuse.fill(true);
        assert!(is_full(&disk.put("file", b"new", Lasting::No).unwrap_err()));
        assert_eq!(disk.get("file", 100).unwrap().unwrap(), b"old");
        assert_eq!(disk.names("file", "").unwrap(), ["file"]);
        fuse.fill(false);
        disk.put("file", b"new", Lasting::No).unwrap();
        assert_eq!(disk.get("file", 2).unwrap().unwrap(), b"ne");
        disk.cut_named("file", 1).unwrap();
        assert_eq!((disk.length("file").unwrap(), disk.length("other").unwrap()), (Some(1), None));
        disk.remove("file").unwrap();
        disk.remove("file").unwrap();
    }
}
