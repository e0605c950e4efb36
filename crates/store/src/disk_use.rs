//! Disk space of a run, by table.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::{Result, StoreError};

/// Disk space of a run. Links are counted as links, never followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Sum of the file sizes in bytes.
    pub bytes: u64,
    /// Bytes of disk blocks that the files occupy.
    pub bytes_on_disk: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes by part: each table, all histogram logs (`hlog`), and all other files (`other`).
    pub parts: BTreeMap<String, u64>,
}

impl DiskUse {
    /// Adds the disk space of another run.
    pub fn add(&mut self, other: &DiskUse) {
        self.bytes += other.bytes;
        self.bytes_on_disk += other.bytes_on_disk;
        self.files += other.files;
        for (part, bytes) in &other.parts {
            *self.parts.entry(part.clone()).or_default() += bytes;
        }
    }
}

/// Disk space of the run in `dir`. Files that are removed during the count, such as joined parts, are not counted.
///
/// # Errors
/// A folder in `dir` cannot be read.
pub fn disk_use(dir: &Path) -> Result<DiskUse> {
    let mut used = DiskUse::default();
    walk(dir, "", 0, &mut used)?;
    Ok(used)
}

fn walk(dir: &Path, part: &str, depth: u32, used: &mut DiskUse) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if depth > 0 && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(StoreError::io("opendir", dir, source)),
    };
    for entry in entries {
        let entry = entry.map_err(|source| StoreError::io("readdir", dir, source))?;
        let Ok(metadata) = entry.metadata() else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        let of = if depth == 0 { part_of(&name, metadata.is_dir()) } else { part };
        if metadata.is_dir() {
            if depth < DEPTH_MAX {
                walk(&entry.path(), of, depth + 1, used)?;
            }
            continue;
        }
        used.files += 1;
        used.bytes += metadata.len();
        used.bytes_on_disk += metadata.blocks() * 512;
        *used.parts.entry(of.to_owned()).or_default() += metadata.len();
    }
    Ok(())
}

/// The part of a file or folder at the top of a run's folder: a table, `hlog` or `other`.
fn part_of(name: &str, folder: bool) -> &str {
    let name = name.strip_suffix(".unfinished").unwrap_or(name);
    let table = if folder { Some(name) } else { name.strip_suffix(".parquet") };
    match table {
        Some(table) if table.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => table,
        _ if name.ends_with(".hlog") => "hlog",
        _ => "other",
    }
}

/// Limit of nested folders: a run has at most two levels.
const DEPTH_MAX: u32 = 8;
