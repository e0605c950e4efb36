//! The folder of a tap daemon: library and ring under fixed names, for programs that the tap does not start.
//!
//! ```text
//!   /run/yamabiko-tap/            0711, the agent's user        programs:  LD_PRELOAD=FOLDER/libyamabiko_tap.so
//!     libyamabiko_tap.so          0755, replaced by rename                 YAMABIKO_TAP=FOLDER
//!     ring                        0600, the agent's user's, replaced by rename
//!     ring.USER                   0600, that user's, created on request
//!     ask                         the socket for requests
//!     users                       0600, the index of each user's ring
//!     agent.lock                  0600, locked by the running agent
//! ```
//!
//! Its path is public, so another user could create it first: the folder and its path must belong to this user (or
//! root), and no other user may write there. Nothing in it is opened through a symbolic link. Stricter permissions than
//! above are kept.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use sys::file_lock::FileLock;

use super::trust::{self, Leaf};
use super::{LIBRARY, LIBRARY_NAME, RING_NAME, environment_in, loadable, usable};
use crate::error::{Error, Result};

/// The lock file of the agent. Clean-up skips a folder that has it.
pub(super) const LOCK_NAME: &str = "agent.lock";
/// Name of the folder.
const NAME: &str = "yamabiko-tap";
/// Locations for root: on a tmpfs mounted by its unit; in /run, if not mounted noexec as on Debian; and on the disk.
/// Never a directory where every user can create it first.
const ROOTS: [&str; 3] = ["/run/yamabiko", "/run", FALLBACK_ROOT];
/// The last of [`ROOTS`], created if it does not exist.
const FALLBACK_ROOT: &str = "/var/lib/yamabiko";

/// A locked daemon folder. It stays when this is dropped, for running programs.
#[derive(Debug)]
pub struct DaemonFolder {
    path: PathBuf,
    dir: File,
    /// Locked while this lives.
    _lock: FileLock,
}

impl DaemonFolder {
    /// Creates or adopts the folder, and writes the library into it if it is missing or of another version. Programs
    /// that mapped the old library still use it.
    ///
    /// # Errors
    /// Another agent uses the folder ([`Error::InUse`]); the folder is not safe ([`Error::Unsafe`]); programs could not
    /// load a library from there; the disk is full.
    pub fn open(path: &Path) -> Result<DaemonFolder> {
        if LIBRARY.is_empty() {
            return Err(Error::Unsupported);
        }
        if path.parent() == Some(Path::new(FALLBACK_ROOT)) && geteuid().is_root() {
            // If it cannot be created, the next call fails.
            let _ = DirBuilder::new().mode(0o711).create(FALLBACK_ROOT);
        }
        let path = trusted_path(path)?;
        let created = match DirBuilder::new().mode(0o711).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(Error::file("create", &path)(error)),
        };
        let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
        let dir = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let dir = dir.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR) => {
                refused(&path, "it is not a directory, or it is a symbolic link to one".to_owned())
            }
            _ => Error::file("open", &path)(error),
        })?;
        let metadata = dir.metadata().map_err(Error::file("look at", &path))?;
        if metadata.uid() != geteuid().as_raw() {
            return Err(refused(&path, format!("it belongs to user {}, not to this user", metadata.uid())));
        }
        if created {
            // The mode does not depend on the umask.
            change_mode(&dir, 0o711, &path)?;
        } else if metadata.mode() & 0o022 != 0 {
            let why =
                format!("other users may write to it (mode {:04o}): run chmod go-w on it", metadata.mode() & 0o7777);
            return Err(refused(&path, why));
        }
        let lock = lock(&dir, &path)?;
        let held = dir.metadata().map_err(Error::file("look at", &path))?;
        let there = fs::symlink_metadata(&path).map_err(Error::file("look at", &path))?;
        if (held.dev(), held.ino()) != (there.dev(), there.ino()) {
            return Err(refused(&path, "another directory has just been put in its place: try again".to_owned()));
        }
        let folder = DaemonFolder { path, dir, _lock: lock };
        folder.install_library()?;
        Ok(folder)
    }

    /// Default path: for root the first of [`ROOTS`] from which programs can load a library; for others in
    /// $XDG_RUNTIME_DIR, otherwise in /dev/shm with the user's number.
    pub fn default_path() -> PathBuf {
        let user = geteuid();
        let is_usable = |parent: &Path| usable(parent).is_ok();
        if user.is_root() {
            let parent = ROOTS.iter().map(Path::new).find(|parent| is_usable(parent));
            return parent.unwrap_or(Path::new(FALLBACK_ROOT)).join(NAME);
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        match runtime.filter(|path| path.is_absolute() && is_usable(path)) {
            Some(runtime) => runtime.join(NAME),
            None => numbered(user),
        }
    }

    /// The daemon folder for programs of this user: this user's own folder, otherwise root's.
    ///
    /// # Errors
    /// No such folder exists: no agent has run since boot.
    pub fn find() -> Result<PathBuf> {
        let mut all = vec![DaemonFolder::default_path()];
        all.extend(ROOTS.iter().map(|parent| Path::new(parent).join(NAME)));
        let has_a_ring = |path: &&PathBuf| path.join(RING_NAME).exists() && path.join(LIBRARY_NAME).exists();
        all.iter().find(has_a_ring).cloned().ok_or_else(|| Error::NoAgent { path: all[0].clone() })
    }

    /// Environment for a program that the agent of `path` records; `preload` is its previous LD_PRELOAD. The agent
    /// need not run: records wait in the ring.
    ///
    /// # Errors
    /// The ring or the library is missing: no agent has run. Another user can replace the library ([`Error::Unsafe`]).
    pub fn environment_of(path: &Path, preload: Option<&OsStr>) -> Result<[(&'static str, OsString); 2]> {
        let path = std::path::absolute(path).map_err(Error::file("find", path))?;
        if !path.join(RING_NAME).exists() || !path.join(LIBRARY_NAME).exists() {
            return Err(Error::NoAgent { path });
        }
        let safe = trust::check(&path, Leaf::Private).map_err(|why| refused(&path, why))?;
        let library = trust::check(&path.join(LIBRARY_NAME), Leaf::Private).map_err(|why| refused(&path, why))?;
        if library.parent() != Some(&safe) {
            return Err(refused(&path, format!("{LIBRARY_NAME} in it is a symbolic link")));
        }
        Ok(environment_in(&safe, preload))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.path.join(LIBRARY_NAME)
    }

    /// The file of the ring.
    pub fn ring(&self) -> PathBuf {
        self.path.join(RING_NAME)
    }

    /// See [`Folder::environment`](super::Folder::environment).
    pub fn environment(&self, preload: Option<&OsStr>) -> [(&'static str, OsString); 2] {
        environment_in(&self.path, preload)
    }

    /// Opens the existing ring, if it is a file of this user with one name.
    pub(crate) fn ring_file(&self) -> Result<Option<File>> {
        self.existing(RING_NAME, OFlag::O_RDWR)
    }

    /// Opens the existing ring of another user, if it belongs to that user, is private, and has one name.
    pub(crate) fn users_ring_file(&self, user: u32) -> Result<File> {
        let name = format!("{RING_NAME}.{user}");
        let path = self.path.join(&name);
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.dir, name.as_str(), flags, Mode::empty());
        let file = File::from(file.map_err(|errno| Error::file("open", &path)(errno.into()))?);
        let metadata = file.metadata().map_err(Error::file("look at", &path))?;
        let belongs_to_user = metadata.is_file() && metadata.uid() == user && metadata.nlink() == 1;
        if belongs_to_user { Ok(file) } else { Err(refused(&path, "it is not a file of that user".to_owned())) }
    }

    /// Removes the rings of other users, which belonged to a ring that is recreated.
    pub(crate) fn remove_user_rings(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"ring.") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Creates a file for a new ring under a temporary name.
    pub(crate) fn new_ring_file(&self) -> Result<File> {
        self.new_file(NEW_RING)
    }

    /// Renames the new ring over the old one.
    pub(crate) fn install_ring(&self) -> Result<()> {
        self.rename(NEW_RING, RING_NAME)
    }

    fn install_library(&self) -> Result<()> {
        let path = self.library();
        if let Some(mut file) = self.existing(LIBRARY_NAME, OFlag::O_RDONLY)? {
            let mut there = Vec::with_capacity(LIBRARY.len());
            let mode = file.metadata().map_err(Error::file("look at", &path))?.mode() & 0o7777;
            file.read_to_end(&mut there).map_err(Error::file("read", &path))?;
            if there == LIBRARY && mode == 0o755 {
                return Ok(());
            }
        }
        let mut file = self.new_file(NEW_LIBRARY)?;
        file.write_all(LIBRARY).map_err(Error::file("write", &path))?;
        change_mode(&file, 0o755, &path)?;
        self.rename(NEW_LIBRARY, LIBRARY_NAME)
    }

    /// Opens an existing file; `None` if it was not created by this user: it is replaced.
    fn existing(&self, name: &str, access: OFlag) -> Result<Option<File>> {
        let flags = access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let path = self.path.join(name);
        let file = match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT | Errno::ELOOP | Errno::EISDIR | Errno::ENXIO) => return Ok(None),
            Err(errno) => return Err(Error::file("open", &path)(errno.into())),
        };
        let metadata = file.metadata().map_err(Error::file("look at", &path))?;
        let is_own_file = metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.nlink() == 1;
        Ok(is_own_file.then_some(file))
    }

    /// Creates a private file. A leftover of a killed agent is removed.
    fn new_file(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        match unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(Error::file("remove", &path)(errno.into())),
        }
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        file.map(File::from).map_err(|errno| Error::file("create", &path)(errno.into()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let error = |errno: Errno| Error::file("rename to", &self.path.join(to))(errno.into());
        renameat(&self.dir, from, &self.dir, to).map_err(error)
    }
}

const NEW_RING: &str = "ring.new";
const NEW_LIBRARY: &str = "libyamabiko_tap.so.new";

fn numbered(user: nix::unistd::Uid) -> PathBuf {
    Path::new("/dev/shm").join(format!("{NAME}-{user}"))
}

fn refused(path: &Path, why: String) -> Error {
    Error::Unsafe { path: path.to_owned(), why }
}

fn change_mode(file: &File, mode: u32, path: &Path) -> Result<()> {
    let error = |errno: Errno| Error::file("change the mode of", path)(errno.into());
    fchmod(file, Mode::from_bits_truncate(mode)).map_err(error)
}

/// The path with symbolic links resolved except in its last part, if no other user can replace it.
fn trusted_path(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(Error::file("find", path))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused(&path, "it cannot hold a directory".to_owned()));
    };
    let parent = fs::canonicalize(parent).map_err(Error::file("find", parent))?;
    let place = parent.join(name);
    loadable(&parent)
        .map_err(|why| refused(&place, format!("programs could not load the library from there: {why}")))?;
    if name.to_string_lossy().contains([' ', ':', '$']) {
        return Err(refused(&place, "a character in its name has a special meaning in LD_PRELOAD".to_owned()));
    }
    trust::check(&parent, Leaf::Shared).map_err(|why| refused(&place, why))?;
    Ok(place)
}

/// Locks the folder for one agent. The file has its process number for the error message of a second one.
fn lock(dir: &File, path: &Path) -> Result<FileLock> {
    let name = path.join(LOCK_NAME);
    let error = |errno: Errno| Error::file("open", &name)(errno.into());
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = openat(dir, LOCK_NAME, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(error)?;
    let file = File::from(file);
    if !file.metadata().is_ok_and(|file| file.is_file() && file.uid() == geteuid().as_raw()) {
        return Err(refused(path, format!("{LOCK_NAME} in it is not a file of this user")));
    }
    let mut lock = match FileLock::exclusive(file) {
        Ok(lock) => lock,
        Err((file, TryLockError::WouldBlock)) => {
            let mut text = String::new();
            let _ = file.take(20).read_to_string(&mut text);
            return Err(Error::InUse { path: path.to_owned(), pid: text.trim().parse().ok() });
        }
        Err((_, TryLockError::Error(error))) => return Err(Error::file("lock", &name)(error)),
    };
    let file = lock.file();
    change_mode(file, 0o600, &name)?;
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(Error::file("write", &name))?;
    Ok(lock)
}

#[cfg(test)]
mod tests;
