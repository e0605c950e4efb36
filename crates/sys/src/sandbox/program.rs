//! Resolves the name of a command to a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The file of `name`: itself if it has a slash, otherwise the first executable of that name on `path`, otherwise in
/// the sbin directories. `None` if there is none.
pub(super) fn find(name: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    let folders = std::env::split_paths(&path).chain(SBIN.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, AccessFlags::X_OK).is_ok()
}

/// The search path of execvp(3) without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_on_the_path_in_sbin_or_as_given() {
        let path = || Some(OsString::from("/nowhere:/bin"));
        assert_eq!(find(OsStr::new("sh"), path()), Some("/bin/sh".into()));
        assert_eq!(find(OsStr::new("sh"), None), Some("/bin/sh".into()));
        assert_eq!(find(OsStr::new("./x"), path()), Some("./x".into()));
        assert_eq!(find(OsStr::new("no-such-program"), path()), None);
        assert_eq!(find(OsStr::new(""), path()), None);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plain"), "not a program").unwrap();
        assert_eq!(find(OsStr::new("plain"), Some(folder.path().into())), None);
    }
}
