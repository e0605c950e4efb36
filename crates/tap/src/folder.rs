//! The folder with the library for programs: private to the run, and removed with it.
//!
//! The folder is on a tmpfs if possible, since programs write to the ring in it at any time. Every user may load the
//! library, since a recorded program may change its user and then start another; only this user may open the ring, and
//! each other user has a separate one ([`crate::rings::Policy`]). The folder's path belongs to root or this user
//! ([`trust`]).
//!
//! The owner holds a lock on the folder. A folder whose lock is free remains from a SIGKILL, or serves programs that
//! still run: the loader looks for the library for each program that they start, and prints an error if it is
//! missing. The next [`Folder::create`] removes it if no process has it mapped.
//!
//! [`DaemonFolder`] is the folder of a tap daemon: at a fixed path, for programs that start without the tap, while
//! agents come and go.

mod daemon;
mod trust;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::BuildHasher;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::error::{Error, Result};

pub use daemon::DaemonFolder;
use trust::Leaf;

/// The compiled library.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libyamabiko_tap.so"));

/// File name of the library. The interposer searches for this name in LD_PRELOAD.
pub const LIBRARY_NAME: &str = "libyamabiko_tap.so";

/// The ring's file name.
const RING_NAME: &str = "ring";

/// Prefix of the folder's name.
pub(crate) const PREFIX: &str = "yamabiko-tap-";

/// The library on disk, and the location of the ring. Removed when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Whether the folder stays, for programs that still run.
    is_abandoned: bool,
    /// The lock of the folder, held until this is dropped.
    lock: File,
}

impl Folder {
    /// Creates the folder below `parent`, or below the first usable of /dev/shm, $XDG_RUNTIME_DIR, $TMPDIR and /tmp,
    /// and writes the library into it. Removes folders of ended processes there.
    ///
    /// # Errors
    /// No folder is usable, or this machine has no interposer.
    pub fn create(parent: Option<&Path>) -> Result<Folder> {
        let parents = match parent {
            Some(parent) => vec![parent.to_owned()],
            None => candidates(),
        };
        first(&parents, Ok)
    }

    /// Creates the folder and calls `fill` on it, in the first of the folders of [`Folder::create`] where both
    /// succeed. A file system too small for a second concurrent tap is skipped.
    ///
    /// # Errors
    /// No folder is usable: each is named, with the reason.
    pub fn create_with<T>(fill: impl FnMut(Folder) -> Result<T>) -> Result<T> {
        first(&candidates(), fill)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.path.join(LIBRARY_NAME)
    }

    /// The file of the ring, made by [`crate::rings::Rings::create`].
    pub fn ring(&self) -> PathBuf {
        self.path.join(RING_NAME)
    }

    /// Leaves the library for programs that still run, and removes the rings: programs that they start later find
    /// none, and run without being recorded.
    pub fn abandon(mut self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name() != LIBRARY_NAME {
                let _ = fs::remove_file(entry.path());
            }
        }
        self.is_abandoned = true;
    }

    /// Sets whether the lock survives an exec of this process; returns its descriptor.
    pub(crate) fn set_kept_over_exec(&self, is_kept: bool) -> Result<RawFd> {
        let flags = if is_kept { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
        fcntl(&self.lock, FcntlArg::F_SETFD(flags))
            .map_err(|errno| Error::file("fcntl F_SETFD on", &self.path)(errno.into()))?;
        Ok(self.lock.as_raw_fd())
    }

    /// Adopts the folder that the previous image of this process created and locked, by the lock's descriptor.
    /// Call it once per descriptor.
    pub(crate) fn adopt(path: PathBuf, lock: RawFd) -> Result<Folder> {
        let identity = |file: &Path| fs::metadata(file).map(|it| (it.dev(), it.ino()));
        let held = identity(Path::new(&format!("/proc/self/fd/{lock}")));
        let same = held.and_then(|held| Ok(held == identity(&path)?)).map_err(Error::file("take over", &path))?;
        if !same {
            return Err(Error::file("take over", &path)(std::io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: it is open on this very folder, which only the previous image had open, for this image.
        let lock = File::from(unsafe { OwnedFd::from_raw_fd(lock) });
        let folder = Folder { path, is_abandoned: false, lock };
        folder.set_kept_over_exec(false)?;
        Ok(folder)
    }

    /// Environment for a program. The entries of an existing LD_PRELOAD, `preload`, stay after the tap library.
    pub fn environment(&self, preload: Option<&OsStr>) -> [(&'static str, OsString); 2] {
        environment_in(&self.path, preload)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_abandoned {
            return;
        }
        // Files that cannot be removed now are removed by the next start.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn environment_in(folder: &Path, preload: Option<&OsStr>) -> [(&'static str, OsString); 2] {
    let mut list = folder.join(LIBRARY_NAME).into_os_string();
    if let Some(others) = preload.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    [("LD_PRELOAD", list), ("YAMABIKO_TAP", folder.as_os_str().to_owned())]
}

/// Calls `fill` on a folder below the first of `parents` where it succeeds.
fn first<T>(parents: &[PathBuf], mut fill: impl FnMut(Folder) -> Result<T>) -> Result<T> {
    if LIBRARY.is_empty() {
        return Err(Error::Unsupported);
    }
    let mut tried = Vec::new();
    // Clean-up runs in all of them: an earlier tap may have used another one.
    parents.iter().for_each(|parent| sweep(parent));
    for parent in parents {
        match usable(parent).and_then(|()| make(parent).and_then(&mut fill).map_err(|error| error.to_string())) {
            Ok(filled) => return Ok(filled),
            Err(why) => tried.push(format!("{} ({why})", parent.display())),
        }
    }
    Err(Error::NoFolder { tried: tried.join(", ") })
}

fn candidates() -> Vec<PathBuf> {
    let named = |key: &str| std::env::var_os(key).map(PathBuf::from);
    [Some("/dev/shm".into()), named("XDG_RUNTIME_DIR"), named("TMPDIR"), Some("/tmp".into())]
        .into_iter()
        .flatten()
        .filter(|path| path.is_absolute())
        .collect()
}

/// Whether the loader can load a library from `parent`, and only this user and root can put one there; otherwise the
/// reason.
fn usable(parent: &Path) -> std::result::Result<(), String> {
    loadable(parent)?;
    trust::check(parent, Leaf::Shared).map(drop)
}

fn loadable(parent: &Path) -> std::result::Result<(), String> {
    if parent.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$')) {
        return Err("a character in its name has a special meaning in LD_PRELOAD".to_owned());
    }
    let flags = statvfs(parent).map_err(|errno| errno.desc().to_owned())?.flags();
    if flags.contains(FsFlags::ST_NOEXEC) {
        return Err("mounted noexec".to_owned());
    }
    Ok(())
}

fn make(parent: &Path) -> Result<Folder> {
    let random = || std::hash::RandomState::new().hash_one(std::process::id());
    let path = parent.join(format!("{PREFIX}{:016x}{:016x}", random(), random()));
    DirBuilder::new().mode(0o711).create(&path).map_err(Error::file("create", &path))?;
    // Just created and still unused: a link or a folder of another user is rejected.
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let lock = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(Error::file("open", &path))?;
    let owner = lock.metadata().map_err(Error::file("look at", &path))?.uid();
    if owner != nix::unistd::geteuid().as_raw() {
        return Err(Error::file("open", &path)(std::io::ErrorKind::PermissionDenied.into()));
    }
    lock.try_lock().map_err(|error| Error::file("lock", &path)(error.into()))?;
    let folder = Folder { path, is_abandoned: false, lock };
    // The mode does not depend on the umask.
    let open_to_all = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::file("change the mode of", path))
    };
    open_to_all(&folder.path, 0o711)?;
    let library = folder.library();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&library)
        .map_err(Error::file("create", &library))?;
    file.write_all(LIBRARY).map_err(Error::file("write", &library))?;
    open_to_all(&library, 0o755)?;
    Ok(folder)
}

/// Removes folders without a lock holder whose files no process has mapped. A folder just created and not locked yet
/// may be hit: its creator then reports an error.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_tap_folder = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_tap_folder
            && is_folder
            // A daemon folder waits for its agent.
            && !entry.path().join(daemon::LOCK_NAME).exists()
            && let Ok(folder) = File::open(entry.path())
            && folder.metadata().is_ok_and(|folder| folder.uid() == nix::unistd::geteuid().as_raw())
            && folder.try_lock().is_ok()
            && !is_mapped(&entry.file_name())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether any process whose maps this process may read has the library of the folder `name` mapped.
fn is_mapped(name: &OsStr) -> bool {
    let has_it = |maps: Vec<u8>| maps.windows(name.len()).any(|part| part == name.as_bytes());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |entry: &fs::DirEntry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
    processes.filter(is_number).any(|entry| fs::read(entry.path().join("maps")).is_ok_and(has_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_removed_with_its_owner_and_an_abandoned_one_by_the_next_start() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join(format!("{PREFIX}left"));
        fs::create_dir(&abandoned).unwrap();
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        let folder = Folder::create(Some(parent.path())).unwrap();
        assert!(!abandoned.exists() && other.exists());
        assert_eq!(fs::read(folder.library()).unwrap(), LIBRARY);
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o711);
        let second = Folder::create(Some(parent.path())).unwrap();
        assert!(folder.path().exists() && second.path() != folder.path());
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists() && second.path().exists());
    }

    #[test]
    fn programs_that_outlive_the_tap_keep_the_library_without_loader_errors() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(Some(parent.path())).unwrap();
        fs::write(folder.ring(), "a ring").unwrap();
        fs::write(folder.path().join("ring.65534"), "another user's").unwrap();
        let (path, ring) = (folder.path().to_owned(), folder.ring());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "read go; /bin/true; exit 3"]).envs(folder.environment(None));
        let (input, output) = (std::process::Stdio::piped(), std::process::Stdio::piped());
        let mut shell = shell.stdin(input).stderr(output).spawn().unwrap();
        while !is_mapped(path.file_name().unwrap()) {
            std::thread::yield_now();
        }
        folder.abandon();
        assert!(!ring.exists() && !path.join("ring.65534").exists());
        drop(Folder::create(Some(parent.path())).unwrap());
        assert!(path.exists(), "a folder whose library is mapped is not removed");
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let output = shell.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(3), Vec::new()));
        drop(Folder::create(Some(parent.path())).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_adopted_over_exec_by_its_lock_is_the_same_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(Some(parent.path())).unwrap();
        let closes_on_exec = || FdFlag::from_bits_retain(fcntl(&folder.lock, FcntlArg::F_GETFD).unwrap());
        assert_eq!(closes_on_exec(), FdFlag::FD_CLOEXEC);
        let lock = folder.set_kept_over_exec(true).unwrap();
        assert_eq!(closes_on_exec(), FdFlag::empty());
        let path = folder.path().to_owned();
        // As after exec: the object no longer exists, its descriptor is open.
        std::mem::forget(folder);
        assert!(Folder::adopt(parent.path().to_owned(), lock).is_err(), "a lock of another folder");
        assert!(Folder::adopt(path.clone(), 9999).is_err(), "not an open descriptor");
        let folder = Folder::adopt(path.clone(), lock).unwrap();
        drop(Folder::create(Some(parent.path())).unwrap());
        assert!(path.exists(), "a locked folder is not removed");
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn an_existing_ld_preload_is_kept_after_the_tap_library() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(Some(parent.path())).unwrap();
        let [(_, alone), (_, path)] = folder.environment(None);
        assert_eq!((Path::new(&alone), Path::new(&path)), (&*folder.library(), folder.path()));
        let [(_, both), _] = folder.environment(Some(OsStr::new("/a.so /b.so")));
        assert_eq!(both.to_str().unwrap(), format!("{}:/a.so /b.so", folder.library().display()));
    }

    #[test]
    fn a_file_system_without_space_is_skipped_and_named_in_the_error() {
        let (small, large) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let parents = [small.path().to_owned(), large.path().to_owned()];
        let full =
            |folder: &Folder| Error::file("find memory for", &folder.ring())(std::io::ErrorKind::StorageFull.into());
        let folder =
            first(
                &parents,
                |folder| {
                    if folder.path().starts_with(small.path()) { Err(full(&folder)) } else { Ok(folder) }
                },
            );
        assert!(folder.unwrap().path().starts_with(large.path()));
        assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0, "the failed attempt leaves no files");
        let error = first(&parents, |folder| Err::<(), _>(full(&folder))).unwrap_err().to_string();
        for parent in &parents {
            assert!(error.contains(&format!("{} (find memory for {}", parent.display(), parent.display())), "{error}");
        }
    }

    #[test]
    fn a_folder_name_with_a_separator_of_ld_preload_is_rejected() {
        let parent = tempfile::tempdir().unwrap();
        let split = parent.path().join("a b");
        fs::create_dir(&split).unwrap();
        assert!(Folder::create(Some(&split)).unwrap_err().to_string().contains("meaning in LD_PRELOAD"));
    }
}
