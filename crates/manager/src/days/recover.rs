//! Repairs, at the start, the files of a manager that was killed.

use std::collections::HashSet;
use std::path::Path;

use rusqlite::params;

use crate::data::Data;
use crate::day_files::{day_named, files_in, number_of};
use crate::error::{Error, Result};
use crate::notes::Notes;

/// Result of the repairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of removed unfinished files.
    pub removed: usize,
    /// Complete files that the index does not list, moved to DATA/unknown: after a kill their rows are pending,
    /// merged, or expired; after an older index was restored, the index lacks the files.
    pub aside: Vec<String>,
    /// Files that the index listed and that are missing, with their rows; they are no longer listed.
    pub vanished: Vec<(String, String, u64)>,
}

impl Recovered {
    pub(crate) fn log_to(&self, notes: &Notes) {
        if self.removed > 0 {
            notes.log(&format!("removed {} unfinished files of the previous manager process", self.removed));
        }
        if !self.aside.is_empty() {
            let count = self.aside.len();
            notes.log(&format!(
                "moved {count} files that the index does not list to unknown/: after a kill this is expected and they \
                 can be removed; after an older index.sqlite was restored they contain the missing rows"
            ));
        }
        for (day, file, rows) in &self.vanished {
            notes.log(&format!(
                "days/{day}/{file} is missing, and {rows} rows with it: it was removed by another \
             program"
            ));
        }
    }
}

/// Compares the day files with the index. Files with other names are not changed.
///
/// # Errors
/// A file system error, SQLite's.
pub fn recover(data: &Data) -> Result<Recovered> {
    belongs(data)?;
    let known: Vec<(String, String, u64)> = data.read(|index| {
        let mut statement = index.prepare("SELECT day, file, rows FROM parts ORDER BY day, file")?;
        let rows =
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs())))?;
        Ok::<_, Error>(rows.collect::<rusqlite::Result<_>>()?)
    })?;
    let names: HashSet<(&str, &str)> = known.iter().map(|(day, file, _)| (&**day, &**file)).collect();
    let mut found = Recovered::default();
    let mut there = HashSet::new();
    for day in files_in(&data.days())? {
        let folder = data.days().join(&day);
        if day_named(&day).is_none() || !folder.is_dir() {
            continue;
        }
        for file in files_in(&folder)? {
            let path = folder.join(&file);
            if names.contains(&(&*day, &*file)) {
                there.insert((day.clone(), file));
            } else if number_of(&file).is_some() {
                found.aside.push(move_to_unknown(data, &path, format!("{day}-{file}"))?);
            } else if file.strip_suffix(".unfinished").and_then(number_of).is_some() {
                std::fs::remove_file(&path).map_err(|source| Error::io("unlink", &path, source))?;
                found.removed += 1;
            }
        }
        // Succeeds only if the folder is empty.
        let _ = std::fs::remove_dir(&folder);
    }
    found.vanished = known.into_iter().filter(|(day, file, _)| !there.contains(&(day.clone(), file.clone()))).collect();
    if !found.vanished.is_empty() {
        data.change(|index| {
            let mut forget = index.prepare("DELETE FROM parts WHERE day = ?1 AND file = ?2")?;
            found.vanished.iter().try_for_each(|(day, file, _)| forget.execute(params![day, file]).map(drop))
        })?;
    }
    Ok(found)
}

/// Moves a file out of the day folders.
fn move_to_unknown(data: &Data, path: &Path, name: String) -> Result<String> {
    let folder = data.folder().join("unknown");
    std::fs::create_dir_all(&folder).map_err(|source| Error::io("mkdir", &folder, source))?;
    // Of several files of one name the newest stays: they have the same rows.
    std::fs::rename(path, folder.join(&name)).map_err(|source| Error::io("rename", path, source))?;
    Ok(name)
}

/// Checks that the day files belong to this index. Otherwise a manager whose index is missing would move all files
/// away.
fn belongs(data: &Data) -> Result<()> {
    let path = data.days().join(OWNER_FILE);
    let said = match std::fs::read_to_string(&path) {
        Ok(said) => Some(said),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => return Err(Error::io("read", &path, source)),
    };
    let index_id = match data.fact(ID_FACT)? {
        Some(index_id) => index_id,
        None => {
            let index_id = web::Secret::random()?.text().to_owned();
            data.set_fact(ID_FACT, &index_id)?;
            index_id
        }
    };
    match said {
        Some(stored) if stored.trim() == index_id => Ok(()),
        None if !has_parts(data)? => {
            std::fs::write(&path, index_id + "\n").map_err(|source| Error::io("write", &path, source))
        }
        _ => Err(Error::Refused(format!(
            "{} belongs to another index than {}: restore that index, or move days/ away and start without its \
             contents",
            data.days().display(),
            data.folder().join("index.sqlite").display(),
        ))),
    }
}

/// A short form of the identifier of the index, for other programs: 16 hexadecimal digits.
///
/// # Errors
/// SQLite's.
pub(crate) fn short_id(data: &Data) -> Result<String> {
    let id = data.fact(ID_FACT)?.unwrap_or_default();
    let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
    Ok(digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether there is any day file.
fn has_parts(data: &Data) -> Result<bool> {
    for day in files_in(&data.days())?.iter().filter(|day| day_named(day).is_some()) {
        if files_in(&data.days().join(day))?.iter().any(|file| number_of(file).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The file in days/ with the identifier of its index, and the fact with the same identifier in the index.
const OWNER_FILE: &str = ".of";
const ID_FACT: &str = "id";
