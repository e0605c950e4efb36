//! Origin of a run: made in this run store, or imported, and with which other runs.
//!
//! An imported document may contain ids of local runs. Such a reference is not trusted, so an import writes a marker
//! file for each run, with the same text for all runs of one archive. A file of that name in the archive is
//! overwritten.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Result, files};

/// The marker of the import of the run in `dir`; `None` for a run that was made in this run store, or was imported by a
/// version of this program without markers.
pub fn imported_with(dir: &Path) -> Option<String> {
    let path = dir.join(IMPORTED);
    let metadata = path.symlink_metadata().ok()?;
    let mut text = Vec::new();
    if metadata.is_file()
        && let Ok(file) = File::open(&path)
    {
        let _ = file.take(MARK_MAX).read_to_end(&mut text);
    }
    // Anything but a readable regular file counts as imported.
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Writes the marker file.
pub(crate) fn mark(dir: &Path, mark: &str) -> Result<()> {
    files::write_whole(&dir.join(IMPORTED), format!("{mark}\n").as_bytes())
}

/// Name of the marker file in the run's folder. An export omits it.
pub(crate) const IMPORTED: &str = "imported.txt";
/// Read limit in bytes: longer than any marker.
const MARK_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_import_marker_round_trips_and_any_file_of_that_name_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(imported_with(dir.path()), None);
        mark(dir.path(), "0042-7").unwrap();
        assert_eq!(imported_with(dir.path()).as_deref(), Some("0042-7"));
        let path = dir.path().join(IMPORTED);
        fs::write(&path, "x".repeat(100_000)).unwrap();
        assert_eq!(imported_with(dir.path()).unwrap().len() as u64, MARK_MAX);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(imported_with(dir.path()).as_deref(), Some(""));
    }
}
