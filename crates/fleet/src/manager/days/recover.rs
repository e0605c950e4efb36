//! What a manager that was killed left behind, put right at the start.

use std::collections::HashSet;

use rusqlite::params;

use super::{day_named, files_in, number_of};
use crate::manager::data::Data;
use crate::manager::error::{Error, Result};
use crate::manager::notes::Notes;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Files that the index does not know, removed: their rows wait, or are in the file they were merged into, or were let go.
    pub removed: usize,
    /// Files that the index knew and that are gone, with their rows: somebody removed them, and the index knows them no more.
    pub vanished: Vec<(String, String, u64)>,
}

impl Recovered {
    pub(crate) fn tell(&self, notes: &Notes) {
        if self.removed > 0 {
            notes.say(&format!("removed {} files that were being made when the last manager ended", self.removed));
        }
        for (day, file, rows) in &self.vanished {
            notes.say(&format!("days/{day}/{file} is gone, and {rows} rows with it: somebody has removed it"));
        }
    }
}

/// Holds the files of days against the index. Files with names of others' making are left alone.
///
/// # Errors
/// A failure of the file system, SQLite's.
pub fn recover(data: &Data) -> Result<Recovered> {
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
            let is_ours = number_of(file.strip_suffix(".unfinished").unwrap_or(&file)).is_some();
            if names.contains(&(&*day, &*file)) {
                there.insert((day.clone(), file));
            } else if is_ours {
                let path = folder.join(&file);
                std::fs::remove_file(&path).map_err(|source| Error::io("unlink", &path, source))?;
                found.removed += 1;
            }
        }
        // Succeeds if nothing is in it.
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
