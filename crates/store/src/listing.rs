//! The list of runs, from the catalogue for unchanged folders and from the folders otherwise.
//!
//! For each run the list reads a key from the file system: inode, size and change time of the summary, the progress
//! file and the tags, and for a run without a summary whether the folder is locked. While the key is unchanged, the row
//! of the catalogue is valid. The progress file is part of the key because a resumed search has a summary all the time,
//! and only its progress file reports that the search is running again.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use schema::RequestRecord;
use serde::{Deserialize, Serialize};

use crate::catalogue::{CATALOGUE, Catalogue, Row};
use crate::entry::is_running;
use crate::folder::SUMMARY;
use crate::progress::PROGRESS_FILE;
use crate::tags::TAGS;
use crate::{Brief, Result, RunEntry, RunState, StoreError};
use schema::Record as _;

/// A list of runs, and the number of folders read for it.
#[derive(Debug)]
pub struct Listing {
    /// Every run, oldest first.
    pub entries: Vec<RunEntry>,
    /// Number of runs whose folders were read; the other runs came from the catalogue.
    pub read: usize,
    /// How the catalogue was used.
    pub catalogue: CatalogueUse,
}

/// How the catalogue was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogueUse {
    /// The catalogue was used and is up to date now.
    UpToDate,
    /// The catalogue was read, but could not be updated.
    Unwritten(String),
    /// The catalogue could not be read.
    Without(String),
    /// The catalogue was not requested, or there are no runs.
    Unused,
}

pub(crate) fn by_folders(root: &Path, ids: &[String]) -> Result<Listing> {
    let mut entries = Vec::with_capacity(ids.len());
    for id in ids {
        entries.extend(read_entry(root, id)?);
    }
    Ok(Listing { read: entries.len(), entries, catalogue: CatalogueUse::Unused })
}

pub(crate) fn by_catalogue(root: &Path, ids: &[String]) -> Result<Listing> {
    if ids.is_empty() {
        return by_folders(root, ids);
    }
    match Catalogue::open(root) {
        Ok((catalogue, rows)) => with(root, ids, rows, catalogue),
        Err(why) => Ok(Listing { catalogue: CatalogueUse::Without(why), ..by_folders(root, ids)? }),
    }
}

pub(crate) fn rebuilt(root: &Path, ids: &[String]) -> Result<Listing> {
    if ids.is_empty() {
        return by_folders(root, ids);
    }
    let cannot = |why| StoreError::Catalogue { path: root.join(CATALOGUE), why };
    let catalogue = Catalogue::create_empty(root).map_err(cannot)?;
    let listing = with(root, ids, Default::default(), catalogue)?;
    match listing.catalogue {
        CatalogueUse::UpToDate => Ok(listing),
        CatalogueUse::Unwritten(why) | CatalogueUse::Without(why) => Err(cannot(why)),
        CatalogueUse::Unused => Ok(listing),
    }
}

fn with(
    root: &Path,
    ids: &[String],
    mut rows: std::collections::HashMap<String, Row>,
    catalogue: Catalogue,
) -> Result<Listing> {
    let (mut entries, mut news, mut read) = (Vec::with_capacity(ids.len()), Vec::new(), 0);
    for id in ids {
        let dir = root.join(id);
        let key = key(&dir);
        let row = rows.remove(id);
        if let (Some(row), Some(key)) = (&row, &key)
            && row.key == *key
            && let Some(entry) = unpacked(row, root)
        {
            entries.push(entry);
            continue;
        }
        read += 1;
        let Some(entry) = read_entry(root, id)? else { continue };
        // The key is read before the entry: a change in between makes the row stale, never wrong.
        if let Some(row) = key.and_then(|key| packed(&entry, key)) {
            news.push(row);
        }
        entries.push(entry);
    }
    // The remaining rows have no folder.
    let removed: Vec<String> = rows.into_keys().collect();
    let changed = if news.is_empty() && removed.is_empty() { Ok(()) } else { catalogue.change(&news, &removed) };
    let catalogue = changed.map_or_else(CatalogueUse::Unwritten, |()| CatalogueUse::UpToDate);
    Ok(Listing { entries, read, catalogue })
}

/// Reads the entry of a run; `None` if the run has just been removed.
fn read_entry(root: &Path, id: &str) -> Result<Option<RunEntry>> {
    let dir = root.join(id);
    match RunEntry::read(&dir) {
        Ok(entry) if matches!(entry.state, RunState::Unfinished { parts: 0, .. }) && !dir.exists() => Ok(None),
        Ok(entry) => Ok(Some(entry)),
        Err(_) if !dir.exists() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The key of the files that determine a run's entry; `None` for a running run, which every list reads.
fn key(dir: &Path) -> Option<String> {
    let tags = stamp(&dir.join(TAGS))?;
    let summary = stamp(&dir.join(SUMMARY))?;
    if summary != ABSENT {
        return Some(format!("{summary} {} {tags}", stamp(&dir.join(PROGRESS_FILE))?));
    }
    if is_running(dir) {
        return None;
    }
    let (joined, parts) = (format!("{}.parquet", RequestRecord::TABLE), RequestRecord::TABLE);
    Some(format!("{summary} {} {} {tags}", stamp(&dir.join(joined))?, stamp(&dir.join(parts))?))
}

/// Identity and state of a file: inode, size and ctime, which no program can set.
fn stamp(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Ok(found) => Some(format!("{}:{}:{}.{:09}", found.ino(), found.size(), found.ctime(), found.ctime_nsec())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Some(ABSENT.to_owned())
        }
        Err(_) => None,
    }
}

const ABSENT: &str = "-";

/// The JSON body of a catalogue row.
#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<Box<Brief>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unfinished: Option<Parts>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Parts {
    parts: usize,
    rows: u64,
}

fn packed(entry: &RunEntry, key: String) -> Option<Row> {
    let mut body = Body { finished: None, unfinished: None, tags: entry.tags.clone() };
    match &entry.state {
        RunState::Finished(brief) => body.finished = Some(brief.clone()),
        RunState::Unfinished { parts, rows } => body.unfinished = Some(Parts { parts: *parts, rows: *rows }),
        // A running run changes; an unreadable document may be readable by another version of this program.
        RunState::Running { .. } | RunState::Unreadable { .. } => return None,
    }
    Some(Row { id: entry.id.clone(), key, body: serde_json::to_string(&body).ok()? })
}

fn unpacked(row: &Row, root: &Path) -> Option<RunEntry> {
    let body: Body = serde_json::from_str(&row.body).ok()?;
    let state = match (body.finished, body.unfinished) {
        (Some(brief), None) => RunState::Finished(brief),
        (None, Some(Parts { parts, rows })) => RunState::Unfinished { parts, rows },
        _ => return None,
    };
    Some(RunEntry { id: row.id.clone(), dir: root.join(&row.id), state, tags: body.tags })
}
