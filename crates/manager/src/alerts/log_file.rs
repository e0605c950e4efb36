//! DATA/alerts.log: alert events, one JSON object a line. Rotated by size.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::events::Event;
use crate::error::{Error, Result};

/// The alert log file.
pub struct LogFile {
    path: PathBuf,
    bytes_max: u64,
}

/// Bytes of the file before it becomes `alerts.log.1`.
pub const BYTES_MAX: u64 = 10_000_000;
/// Number of rotated files.
const FILES_MAX: u32 = 4;

impl LogFile {
    /// The log file in this folder.
    pub fn new(folder: &Path, bytes_max: u64) -> LogFile {
        LogFile { path: folder.join("alerts.log"), bytes_max }
    }

    /// Appends lines; they are on the disk when it returns.
    ///
    /// # Errors
    /// I/O errors. Some of the lines may be written then, and are written again later.
    pub fn append(&self, events: &[Event]) -> Result<()> {
        let failed = |operation, source| Error::io(operation, &self.path, source);
        if fs::metadata(&self.path).is_ok_and(|found| found.len() >= self.bytes_max) {
            self.rotate().map_err(|source| failed("rename", source))?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o640).open(&self.path);
        let mut file = file.map_err(|source| failed("open", source))?;
        // Ends a line that a full disk cut short, so that the next line is readable.
        let length = file.metadata().map_err(|source| failed("fstat", source))?.len();
        let mut lines = if ends_with_a_complete_line(&self.path, length) { String::new() } else { "\n".to_owned() };
        for event in events {
            lines.push_str(&serde_json::to_string(event).unwrap_or_default());
            lines.push('\n');
        }
        file.write_all(lines.as_bytes()).map_err(|source| failed("write", source))?;
        file.sync_data().map_err(|source| failed("fsync", source))
    }

    fn rotate(&self) -> std::io::Result<()> {
        let numbered = |number: u32| self.path.with_extension(format!("log.{number}"));
        for number in (1..FILES_MAX).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, numbered(1))
    }
}

/// Whether the file's last byte ends a line.
fn ends_with_a_complete_line(path: &Path, length: u64) -> bool {
    let mut last = [b'\n'];
    let read = fs::File::open(path).and_then(|file| file.read_at(&mut last, length.saturating_sub(1)));
    length == 0 || read.is_err() || last[0] == b'\n'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::tests::event;

    #[test]
    fn alert_log_lines_are_complete_and_files_are_rotated_by_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.log");
        let log = LogFile::new(folder.path(), 2000);
        fs::write(&path, "{\"cut").unwrap();
        for _ in 0..100 {
            log.append(&[event("a"), event("b")]).unwrap();
        }
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["alerts.log", "alerts.log.1", "alerts.log.2", "alerts.log.3", "alerts.log.4"]);
        for name in names {
            let text = fs::read_to_string(folder.path().join(&name)).unwrap();
            assert!(text.len() < 4000 && text.ends_with('\n'));
            assert!(text.lines().all(|line| serde_json::from_str::<Event>(line).is_ok()), "{name}");
        }
        // The line that was cut stays a separate line.
        fs::write(&path, "{\"cut").unwrap();
        log.append(&[event("a")]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.lines().count(), text.lines().next()), (2, Some("{\"cut")));
    }
}
