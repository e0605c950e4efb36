//! Origin of a run: made in this run store, or imported, and with which others.
//!
//! A document that came with an archive may name runs that were made here. Such a reference is not trusted, so an import
//! marks each run, all runs of one archive alike. What an archive itself brings under that name is written over.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Result, files};

/// The mark of the import that the run in `dir` came with; `None` for a run that was made here, or was imported by a version
/// of this program that left no marks.
pub fn imported_with(dir: &Path) -> Option<String> {
    let path = dir.join(IMPORTED);
    let found = path.symlink_metadata().ok()?;
    let mut text = Vec::new();
    if found.is_file()
        && let Ok(file) = File::open(&path)
    {
        let _ = file.take(MARK_MAX).read_to_end(&mut text);
    }
    // Whatever else stands there, it was not made here.
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Leaves the mark.
pub(crate) fn mark(dir: &Path, mark: &str) -> Result<()> {
    files::write_whole(&dir.join(IMPORTED), format!("{mark}\n").as_bytes())
}

/// The file, in the run's folder. It concerns this run store only, and goes into no archive.
pub(crate) const IMPORTED: &str = "imported.txt";
/// More than any mark.
const MARK_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_import_mark_round_trips_and_any_file_in_its_place_counts() {
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
