//! The list of runs: by the catalogue where it is up to date, from the folders where it is not.
//!
//! For each run a few small facts are asked of the file system: which files its summary, its progress file and its tags are, and, where
//! there is no summary, whether the folder is locked. While they are what they were, so is what was found there. The
//! standing is one of them because a search that is taken up again has its summary all the time, and says first there that it
//! goes on.

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

/// A list of runs, and what it took to make it.
#[derive(Debug)]
pub struct Listing {
    /// Every run, oldest first.
    pub entries: Vec<RunEntry>,
    /// Runs whose folders had to be read; the others were known from the catalogue.
    pub read: usize,
    /// What the catalogue was good for.
    pub catalogue: CatalogueUse,
}

/// What the catalogue was good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogueUse {
    /// It is up to date now.
    Kept,
    /// It was read, but could not be updated.
    Unwritten(String),
    /// It could not be read.
    Without(String),
    /// Nobody wanted it, or there is no run.
    Unasked,
}

pub(crate) fn by_folders(root: &Path, ids: &[String]) -> Result<Listing> {
    let mut entries = Vec::with_capacity(ids.len());
    for id in ids {
        entries.extend(look(root, id)?);
    }
    Ok(Listing { read: entries.len(), entries, catalogue: CatalogueUse::Unasked })
}

pub(crate) fn by_catalogue(root: &Path, ids: &[String]) -> Result<Listing> {
    if ids.is_empty() {
        return by_folders(root, ids);
    }
    match Catalogue::open(root) {
        Ok((catalogue, known)) => with(root, ids, known, catalogue),
        Err(why) => Ok(Listing { catalogue: CatalogueUse::Without(why), ..by_folders(root, ids)? }),
    }
}

pub(crate) fn rebuilt(root: &Path, ids: &[String]) -> Result<Listing> {
    if ids.is_empty() {
        return by_folders(root, ids);
    }
    let cannot = |why| StoreError::Catalogue { path: root.join(CATALOGUE), why };
    let catalogue = Catalogue::anew(root).map_err(cannot)?;
    let listing = with(root, ids, Default::default(), catalogue)?;
    match listing.catalogue {
        CatalogueUse::Kept => Ok(listing),
        CatalogueUse::Unwritten(why) | CatalogueUse::Without(why) => Err(cannot(why)),
        CatalogueUse::Unasked => Ok(listing),
    }
}

fn with(
    root: &Path,
    ids: &[String],
    mut known: std::collections::HashMap<String, Row>,
    catalogue: Catalogue,
) -> Result<Listing> {
    let (mut entries, mut news, mut read) = (Vec::with_capacity(ids.len()), Vec::new(), 0);
    for id in ids {
        let dir = root.join(id);
        let key = key(&dir);
        let kept = known.remove(id);
        if let (Some(row), Some(key)) = (&kept, &key)
            && row.key == *key
            && let Some(entry) = unpacked(row, root)
        {
            entries.push(entry);
            continue;
        }
        read += 1;
        let Some(entry) = look(root, id)? else { continue };
        // The key was taken before the look: a change in between makes the row stale, never wrong.
        if let Some(row) = key.and_then(|key| packed(&entry, key)) {
            news.push(row);
        }
        entries.push(entry);
    }
    // What is left belongs to no folder.
    let gone: Vec<String> = known.into_keys().collect();
    let told = if news.is_empty() && gone.is_empty() { Ok(()) } else { catalogue.change(&news, &gone) };
    let catalogue = told.map_or_else(CatalogueUse::Unwritten, |()| CatalogueUse::Kept);
    Ok(Listing { entries, read, catalogue })
}

/// Looks at a run; none where it has just been removed.
fn look(root: &Path, id: &str) -> Result<Option<RunEntry>> {
    let dir = root.join(id);
    match RunEntry::look(&dir) {
        Ok(entry) if matches!(entry.state, RunState::Unfinished { parts: 0, .. }) && !dir.exists() => Ok(None),
        Ok(entry) => Ok(Some(entry)),
        Err(_) if !dir.exists() => Ok(None),
        Err(error) => Err(error),
    }
}

/// By which files a run is what it is; none for one that goes on, which is looked at each time.
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

/// Which file, and in which state: its number, size, and moment of its last change of any kind, which nobody can set.
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

/// What the catalogue keeps of a run.
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
        // The one goes on; the other may be what another version of this program can read.
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
