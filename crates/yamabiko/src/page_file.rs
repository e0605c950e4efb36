//! Writes output files (pages, plots, documents) atomically.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::without_os_error_number;

/// Writes `bytes` to a temporary file next to `path`, syncs it, and renames it: after a failure or crash `path` is the
/// old or the new file. An existing path that is not a regular file (a pipe, /dev/stdout) is written directly.
///
/// # Errors
/// The folder is missing or not writable, the disk is full.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_by(path, |file| Ok(file.write_all(bytes)?))
}

/// Like [`write`], with the content that `fill` writes piece by piece.
///
/// # Errors
/// Those of [`write`] and of `fill`; then nothing is written.
pub fn write_by(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    // A symbolic link stays: the file that it points to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
        let mut file = BufWriter::new(File::options().write(true).open(&target).with_context(|| cannot(path))?);
        fill(&mut file).with_context(|| cannot(path))?;
        return file.flush().with_context(|| cannot(path));
    }
    let folder = folder_of(&target);
    let mut file = tempfile::Builder::new()
        .prefix(".yamabiko-")
        .permissions(readable())
        .tempfile_in(folder)
        .with_context(|| cannot(path))?;
    let mut buffered = BufWriter::new(&mut file);
    fill(&mut buffered).with_context(|| cannot(path))?;
    buffered.flush().with_context(|| cannot(path))?;
    drop(buffered);
    file.as_file().sync_all().with_context(|| cannot(path))?;
    file.persist(&target).map_err(|error| error.error).with_context(|| cannot(path))?;
    Ok(())
}

/// Beginning of the message that an output file cannot be written.
pub const CANNOT_WRITE: &str = "cannot write it: ";

/// Parses the path of an output file and checks that it can be written, so that an error is reported before the run,
/// not after it. `-` is the standard output.
///
/// # Errors
/// The folder is missing or not writable, or the path exists and cannot be written.
pub fn output(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    if path == Path::new("-") {
        return Ok(path);
    }
    let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let attempt = match fs::metadata(&target) {
        Ok(found) if found.is_dir() => Err(std::io::Error::from(std::io::ErrorKind::IsADirectory)),
        // A pipe is not opened: without a reader the open would block, and a reader would see an empty file.
        Ok(found) if !found.is_file() => Ok(()),
        _ => tempfile::Builder::new().prefix(".yamabiko-").tempfile_in(folder_of(&target)).map(drop),
    };
    // Removes the name of the temporary file from the error.
    let plain = |error: std::io::Error| error.raw_os_error().map_or(error, std::io::Error::from_raw_os_error);
    attempt
        .map(|()| path)
        .map_err(|error| format!("{CANNOT_WRITE}{}", without_os_error_number(&plain(error).to_string())))
}

fn folder_of(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The `file://` URL of a path.
pub fn url(path: &Path) -> String {
    let whole = fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    let mut url = String::from("file://");
    for &byte in whole.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => url.push(char::from(byte)),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// File name of a plot: its title in lower case, words joined by dashes, with a number if the name is in `taken`. The
/// name is added to `taken`.
pub fn name_of(title: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name = String::new();
    for c in title.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name = match name.trim_end_matches('-') {
        "" => "plot",
        name => name,
    };
    let numbered = (2..).map(|number| format!("{name}-{number}.svg"));
    let free = std::iter::once(format!("{name}.svg")).chain(numbered).find(|name| !taken.contains(name));
    let name = free.expect("the sequence of numbers is endless");
    taken.insert(name.clone());
    name
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// The default permissions of a new file, `rw-rw-rw-` less the umask; a temporary file would be readable by its owner
/// only.
fn readable() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_file_is_written_completely_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a page.html");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, b"three").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read_link(&link).unwrap()), (b"three".to_vec(), path.clone()));
        // No temporary file remains in the folder.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(url(&path).ends_with("/a%20page.html"), "{}", url(&path));
    }

    #[test]
    fn unwritable_output_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for valid in ["-".into(), "/dev/null".into(), text(&folder.path().join("new.json"))] {
            assert_eq!(output(&valid), Ok(valid.into()));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the check leaves no file");
        for (invalid, why) in
            [(text(&folder.path().join("no/such.json")), "No such file"), (text(folder.path()), "directory")]
        {
            let error = output(&invalid).unwrap_err();
            assert!(error.contains(why), "{invalid}: {error}");
        }
    }

    #[test]
    fn unwritable_output_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("missing/page.html"), b"x").unwrap_err();
        assert!(error.to_string().starts_with("cannot write ") && error.is::<std::io::Error>(), "{error:?}");
        assert!(write(folder.path(), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn plot_files_are_named_by_their_titles() {
        let mut taken = BTreeSet::new();
        let mut name = |title| name_of(title, &mut taken);
        assert_eq!(name("Round-trip time: configured and measured"), "round-trip-time-configured-and-measured.svg");
        assert_eq!([name("../../etc"), name("Etc"), name("甲子園")], ["etc.svg", "etc-2.svg", "plot.svg"]);
    }
}
