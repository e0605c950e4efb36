//! Export of runs into an archive.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::header;
use crate::origin::IMPORTED;
use crate::{Result, StoreError};

/// Result of an export.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files in the archive.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Names in the runs' folders that were omitted: links, pipes and the like.
    pub left_out: Vec<PathBuf>,
}

/// Writes the runs in `dirs` as a gzipped tar, each under its own name. Regular files only: a link is never followed.
///
/// # Errors
/// [`StoreError::Refused`] if a run is still running, or a name does not fit into a tar header. Also I/O errors.
pub fn export(dirs: &[PathBuf], out: impl Write, out_name: &Path) -> Result<Exported> {
    let written = |source| StoreError::io("write", out_name, source);
    // The gzip header has no time and no name, so that the same runs give the same bytes.
    let mut gzip = GzEncoder::new(out, Compression::default());
    let mut exported = Exported::default();
    let mut names = Vec::new();
    for dir in dirs {
        let dir = fs::canonicalize(dir).map_err(|source| StoreError::io("realpath", dir, source))?;
        let refused = |why: &str| StoreError::Refused { what: dir.display().to_string(), why: why.to_owned() };
        let id = dir.file_name().and_then(|id| id.to_str()).ok_or_else(|| refused("its name is not text"))?.to_owned();
        if names.contains(&id) {
            return Err(refused("it was given twice"));
        }
        // The lock prevents other processes from resuming or removing the run during the export.
        let lock = File::open(&dir).map_err(|source| StoreError::io("open", &dir, source))?;
        if matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            return Err(refused("it is still running; wait until it ends"));
        }
        let mut files = Vec::new();
        gather(&dir, &id, 0, &mut files, &mut exported.left_out)?;
        files.sort();
        for (name, path) in files {
            let mut file = File::open(&path).map_err(|source| StoreError::io("open", &path, source))?;
            let found = file.metadata().map_err(|source| StoreError::io("stat", &path, source))?;
            let mtime = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let size = found.len();
            let head = header::emit(&name, size, mtime.map_or(0, |since| since.as_secs()))
                .ok_or_else(|| refused(&format!("the name {name} is too long for a tar archive")))?;
            gzip.write_all(&head).map_err(written)?;
            copy(&mut file, size, &mut gzip, &path, out_name)?;
            gzip.write_all(&[0; header::BLOCK][..header::padding(size)]).map_err(written)?;
            exported.files += 1;
            exported.bytes += size;
        }
        names.push(id);
    }
    gzip.write_all(&[0; 2 * header::BLOCK]).map_err(written)?;
    gzip.finish().and_then(|mut out| out.flush()).map_err(written)?;
    exported.left_out.sort();
    Ok(exported)
}

/// The regular files below `dir`, by their names in the archive.
fn gather(
    dir: &Path,
    name: &str,
    depth: usize,
    files: &mut Vec<(String, PathBuf)>,
    left_out: &mut Vec<PathBuf>,
) -> Result<()> {
    let entries = fs::read_dir(dir).map_err(|source| StoreError::io("opendir", dir, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| StoreError::io("readdir", dir, source))?;
        let kind = entry.file_type().map_err(|source| StoreError::io("stat", &entry.path(), source))?;
        let plain = entry.file_name().into_string().ok().filter(|name| super::import::part_refusal(name).is_none());
        match plain {
            // The import marker is valid in this run store only.
            Some(part) if depth == 0 && part == IMPORTED => {}
            Some(part) if kind.is_file() => files.push((format!("{name}/{part}"), entry.path())),
            Some(part) if kind.is_dir() && depth + 2 < super::import::DEPTH_MAX => {
                gather(&entry.path(), &format!("{name}/{part}"), depth + 1, files, left_out)?;
            }
            _ => left_out.push(entry.path()),
        }
    }
    Ok(())
}

/// Copies exactly `size` bytes, the size in the tar header.
fn copy(file: &mut File, size: u64, out: &mut impl Write, path: &Path, out_name: &Path) -> Result<()> {
    let mut remaining = size;
    let mut buffer = vec![0; 64 * 1024];
    while remaining > 0 {
        let length = buffer.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        let count = file.read(&mut buffer[..length]).map_err(|source| StoreError::io("read", path, source))?;
        if count == 0 {
            let shrunk = io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read");
            return Err(StoreError::io("read", path, shrunk));
        }
        out.write_all(&buffer[..count]).map_err(|source| StoreError::io("write", out_name, source))?;
        remaining -= count as u64;
    }
    Ok(())
}
