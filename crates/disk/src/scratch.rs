//! The scratch file. It has no name, so that nothing remains of it.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use units::Bytes;

use experiment::ExperimentError;

/// Space that stays free: the larger of a twentieth of the file system and this.
const FREE_MIN: u64 = 256 << 20;

/// An open file without a name. Its space is freed when the last process with it open ends.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    size: Bytes,
    directory: PathBuf,
    file_system: String,
}

impl Scratch {
    /// Creates the file in `directory`, if enough space stays free.
    ///
    /// # Errors
    /// A missing or read-only folder, or too little space.
    pub fn make(directory: &Path, size: Bytes) -> Result<Scratch, ExperimentError> {
        let directory = fs::canonicalize(directory).map_err(ExperimentError::file(directory))?;
        if !directory.is_dir() {
            return Err(ExperimentError::Plan(format!("{} is not a folder", directory.display())));
        }
        let found = statvfs(&directory).map_err(|errno| ExperimentError::file(&directory)(errno.into()))?;
        let unit = found.fragment_size();
        check_free_space(&directory, size, found.blocks_available() * unit, found.blocks() * unit)?;
        let file = open_unnamed(&directory)?;
        file.set_len(size.0).map_err(ExperimentError::file(&directory))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let file_system = file_system_of(&mounts, &directory).unwrap_or_else(|| "unknown file system".to_owned());
        Ok(Scratch { file, size, directory, file_system })
    }

    /// Current size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Type and device of the file system, such as `ext4 on /dev/sda1`.
    pub fn file_system(&self) -> &str {
        &self.file_system
    }

    /// Path of the file in a process that inherited it.
    pub fn name(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Empties the file, keeping its size.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn empty(&self) -> Result<(), ExperimentError> {
        let done = self.file.set_len(0).and_then(|()| self.file.set_len(self.size.0));
        done.map_err(ExperimentError::file(&self.directory))
    }

    /// Truncates the file to the written size.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn truncate(&mut self, size: u64) -> Result<(), ExperimentError> {
        self.size = Bytes(size);
        self.file.set_len(size).map_err(ExperimentError::file(&self.directory))
    }
}

impl AsFd for Scratch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A file without a name (O_TMPFILE), or one deleted immediately if that is not supported.
fn open_unnamed(directory: &Path) -> Result<File, ExperimentError> {
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    if let Ok(file) = open(directory, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        return Ok(file.into());
    }
    tempfile::tempfile_in(directory).map_err(ExperimentError::file(directory))
}

/// Rejects a size that would fill the file system, given its available and total bytes.
fn check_free_space(directory: &Path, size: Bytes, available: u64, whole: u64) -> Result<(), ExperimentError> {
    let stays = (whole / 20).max(FREE_MIN);
    let most = available.saturating_sub(stays);
    if size.0 <= most {
        return Ok(());
    }
    let most = most >> 20;
    let instead = match most {
        ..16 => "there is no space for any".to_owned(),
        most => format!("give at most --size {most}MiB"),
    };
    Err(ExperimentError::Room(format!(
        "a file of {size} would fill the disk: {} has {} MiB free, of which {} MiB are to stay free; {instead}",
        directory.display(),
        available >> 20,
        stays >> 20
    )))
}

/// File system of `directory`: proc_pid_mountinfo(5).
fn file_system_of(mountinfo: &str, directory: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = unescaped(before.split(' ').nth(4)?);
        let mut after = after.split(' ');
        Some((point, after.next()?, after.next()?))
    });
    // The last mount at a point covers earlier ones.
    let found = mounts.filter(|(point, _, _)| directory.starts_with(point)).max_by_key(|(point, _, _)| point.len());
    found.map(|(_, kind, source)| format!("{kind} on {source}"))
}

/// Decodes octal escapes such as `\040` for a space.
fn unescaped(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escape, is)| text.replace(escape, is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::make(folder.path(), Bytes(32 << 20)).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(fs::metadata(scratch.name()).unwrap().len(), 32 << 20);
        scratch.truncate(1 << 20).unwrap();
        scratch.empty().unwrap();
        assert_eq!((fs::metadata(scratch.name()).unwrap().len(), scratch.size()), (1 << 20, Bytes(1 << 20)));
        assert!(scratch.file_system().contains(" on "), "{}", scratch.file_system());
        let unlinked: File = tempfile::tempfile_in(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{unlinked:?}");
    }

    #[test]
    fn path_that_is_not_a_folder_is_rejected() {
        let error = Scratch::make(Path::new("/no/such/folder"), Bytes(1)).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Scratch::make(file.path(), Bytes(1)).unwrap_err().to_string().contains("is not a folder"));
        assert!(Scratch::make(Path::new("/proc"), Bytes(1)).is_err());
    }

    #[test]
    fn size_that_would_fill_the_disk_is_rejected() {
        let gib = 1 << 30;
        let fits = |size, available, whole| check_free_space(Path::new("/srv"), Bytes(size), available, whole);
        assert!(fits(gib, 3 * gib, 20 * gib).is_ok());
        let why = fits(gib, gib + (100 << 20), 4 * gib).unwrap_err().to_string();
        assert!(why.contains("/srv has 1124 MiB free, of which 256 MiB") && why.contains("--size 868MiB"), "{why}");
        let why = fits(gib, 100 << 20, 4 * gib).unwrap_err().to_string();
        assert!(why.contains("there is no space for any"), "{why}");
        // Of a large file system a twentieth stays free.
        assert!(fits(gib, 50 * gib, 1000 * gib).is_err());
        let error = Scratch::make(&std::env::temp_dir(), Bytes(1 << 60)).unwrap_err();
        assert!(matches!(error, ExperimentError::Room(_)), "{error}");
    }

    #[test]
    fn deepest_and_latest_mount_determines_the_file_system() {
        let text = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                    30 22 0:5 / /srv rw shared:2 - tmpfs tmpfs rw\n\
                    31 22 0:6 / /srv/a\\040b rw - xfs /dev/vdb rw\n\
                    32 22 0:6 / /srv rw - btrfs /dev/vdc rw\n\
                    nonsense";
        let of = |path: &str| file_system_of(text, Path::new(path)).unwrap();
        assert_eq!(of("/home"), "ext4 on /dev/vda");
        assert_eq!(of("/srv/x"), "btrfs on /dev/vdc");
        assert_eq!(of("/srv/a b/c"), "xfs on /dev/vdb");
        assert_eq!(of("/srvx"), "ext4 on /dev/vda");
        assert_eq!(file_system_of("", Path::new("/")), None);
    }
}
