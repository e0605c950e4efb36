//! Whether other users can replace a file at a path: a library there runs in every recorded program.
//!
//! ```text
//!   /              root's, 0755      each component is opened below the one before it, links are not followed, and the
//!   /dev/shm       root's, 1777      owner and permissions are read from the descriptor
//!   /dev/shm/X     must be this user's: in a sticky folder only its owner can rename or replace it
//! ```

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

/// Requirements for the last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// A folder in which others may create files, but not change those of other users (/dev/shm, /tmp).
    Shared,
    /// A folder or file that only its owner can write.
    Private,
}

/// The path with symbolic links resolved, if only root and this user control it; root trusts root only. Otherwise the
/// reason.
pub(super) fn check(path: &Path, leaf: Leaf) -> Result<PathBuf, String> {
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let parts: Vec<Component<'_>> = path.components().collect();
    let mut above: Option<File> = None;
    let mut so_far = PathBuf::new();
    for (number, part) in parts.iter().enumerate() {
        so_far.push(part);
        let is_last = number + 1 == parts.len();
        let folder = if is_last { OFlag::empty() } else { OFlag::O_DIRECTORY };
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | folder;
        let opened = match &above {
            Some(above) => openat(above, part.as_os_str(), flags, Mode::empty()),
            None => openat(AT_FDCWD, part.as_os_str(), flags, Mode::empty()),
        };
        let file = File::from(opened.map_err(|errno: Errno| format!("{}: {}", so_far.display(), errno.desc()))?);
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if metadata.file_type().is_symlink() {
            return Err(format!("{} has just become a symbolic link", so_far.display()));
        }
        let owner = metadata.uid();
        if !is_trusted(owner) {
            return Err(format!("{} belongs to user {owner}, who can replace its contents", so_far.display()));
        }
        let is_shared = metadata.is_dir() && metadata.mode() & 0o1000 != 0 && (!is_last || leaf == Leaf::Shared);
        if metadata.mode() & 0o022 != 0 && !is_shared {
            return Err(format!("other users may write to {} and replace its contents", so_far.display()));
        }
        above = Some(file);
    }
    Ok(path)
}

/// Root, and this user. In a user namespace without root, root's folders seem to belong to the overflow user.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw() || (owner == overflow() && !is_root_here())
}

fn overflow() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65_534)
}

/// Whether this user namespace has the machine's root.
fn is_root_here() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next(), words.next()) == (Some("0"), Some("0"))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_path_that_other_users_can_replace_is_not_trusted() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("library.so");
        fs::write(&file, "").unwrap();
        let why = |path: &Path| check(path, Leaf::Private).unwrap_err();
        assert_eq!(check(&file, Leaf::Private).unwrap(), fs::canonicalize(&file).unwrap());
        set(&file, 0o666);
        assert!(why(&file).contains("other users may write to"), "{}", why(&file));
        set(&file, 0o644);
        for mode in [0o777, 0o775] {
            set(&folder, mode);
            assert!(why(&file).contains("other users may write to"), "{mode:o}");
        }
        // A sticky folder, as /dev/shm: only this user can rename or replace its files there.
        set(&folder, 0o1777);
        assert!(check(&file, Leaf::Private).is_ok() && check(&folder, Leaf::Shared).is_ok());
        assert!(why(&folder).contains("other users may write to"));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
            assert!(why(&file).contains("belongs to user 65534"));
            std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
            assert!(why(&file).contains("folder belongs to user 65534"));
        }
        let link = parent.path().join("link");
        symlink("/usr", &link).unwrap();
        assert_eq!(check(&link, Leaf::Private).unwrap(), Path::new("/usr"), "the returned path has no symbolic link");
        assert!(check(&parent.path().join("none"), Leaf::Private).is_err());
    }
}
