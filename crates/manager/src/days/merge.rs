//! Merges small files of a day: a day written every five seconds would otherwise have 17,280 files.
//!
//! File sizes grow by factors of about eight: eight files of one size become one of the next, so a row is written
//! some four times in all. The remaining files of a past day are merged once it has had no new rows for ten minutes.

use std::collections::HashSet;

use rusqlite::params;
use schema::{FleetRow, Record as _};
use store::{PartFile, PartWriter};

use super::ordered::{Ordered, Source};
use super::place::{Part, remove_unlisted};
use crate::data::{CrashPoint, Data};
use crate::day_files::{day_named, day_of, next_name, path_of};
use crate::error::{Error, Result};
use crate::notes::Notes;

/// Files that cannot be merged, since one of them is unreadable: skipped until the next start.
pub type SkippedFiles = HashSet<(String, String)>;

/// Result of one merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The day.
    pub day: String,
    /// Number of files that were merged.
    pub files: usize,
    /// Why the files were not merged: one of them cannot be read.
    pub trouble: Option<String>,
}

impl Merged {
    pub(super) fn log_to(&self, notes: &Notes) {
        if let Some(trouble) = &self.trouble {
            notes.log(&format!("files of {} are not merged, since one of them cannot be read: {trouble}", self.day));
        }
    }
}

/// Merges files once, if worthwhile; `None` if not.
///
/// # Errors
/// A full disk, another file system error, SQLite's; everything is then unchanged.
pub fn merge(data: &Data, skipped_files: &mut SkippedFiles, now_ns: u64) -> Result<Option<Merged>> {
    let Some(parts) = parts_to_merge(data, skipped_files, now_ns)? else { return Ok(None) };
    let day = parts[0].day.clone();
    let files = parts.len();
    match merge_parts(data, &parts, now_ns) {
        Ok(()) => Ok(Some(Merged { day, files, trouble: None })),
        Err(error @ (Error::Store(_) | Error::Refused(_))) if !error.is_disk_full() => {
            skipped_files.extend(parts.into_iter().map(|part| (part.day, part.file)));
            Ok(Some(Merged { day, files, trouble: Some(error.to_string()) }))
        }
        Err(error) => Err(error),
    }
}

fn merge_parts(data: &Data, parts: &[Part], now_ns: u64) -> Result<()> {
    let day = &parts[0].day;
    let mut sources = Vec::new();
    for part in parts {
        sources.push(Source::file(part.first_ns, PartFile::open(&path_of(data, day, &part.file))?));
    }
    let file = next_name(data, day)?;
    let mut writer = PartWriter::<FleetRow>::begin(&path_of(data, day, &file))?;
    if let Err(error) = copy(Ordered::new(sources, 0..u64::MAX), &mut writer) {
        writer.discard();
        return Err(error);
    }
    let finished = writer.finish()?;
    let merged = Part {
        day: day.clone(),
        file,
        rows: finished.rows,
        bytes: finished.bytes,
        first_ns: parts.iter().map(|part| part.first_ns).min().unwrap_or(0),
        last_ns: parts.iter().map(|part| part.last_ns).max().unwrap_or(0),
    };
    let outcome = replace_parts(data, parts, &merged, now_ns);
    if let Err(error) = outcome {
        remove_unlisted(data, &[merged], &error);
        return Err(error);
    }
    data.crash_at(CrashPoint::MergedCommitted)?;
    for (at, part) in parts.iter().enumerate() {
        let path = path_of(data, day, &part.file);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("unlink", &path, source));
            }
            _ => {}
        }
        if at == 0 {
            data.crash_at(CrashPoint::MergedHalfRemoved)?;
        }
    }
    Ok(())
}

fn copy(rows: Ordered, writer: &mut PartWriter<FleetRow>) -> Result<()> {
    let mut group = Vec::with_capacity(FleetRow::ROWS_A_PART);
    for row in rows {
        group.push(row?);
        if group.len() == FleetRow::ROWS_A_PART {
            writer.append(&group)?;
            group.clear();
        }
    }
    Ok(writer.append(&group)?)
}

/// Replaces the original files by the merged one in the index.
fn replace_parts(data: &Data, parts: &[Part], merged: &Part, now_ns: u64) -> Result<()> {
    data.crash_at(CrashPoint::MergedNamed)?;
    let rows: u64 = parts.iter().map(|part| part.rows).sum();
    if merged.rows != rows {
        let why = format!(
            "a merged file of {} has {} rows instead of {rows}: the original files stay",
            merged.day, merged.rows
        );
        return Err(Error::Refused(why));
    }
    data.change(|index| {
        let mut remove = index.prepare_cached("DELETE FROM parts WHERE day = ?1 AND file = ?2")?;
        for part in parts {
            remove.execute(params![part.day, part.file])?;
        }
        merged.insert(index, now_ns)?;
        Ok::<_, Error>(())
    })
}

/// Files of one day that are worth merging.
fn parts_to_merge(data: &Data, skipped_files: &SkippedFiles, now_ns: u64) -> Result<Option<Vec<Part>>> {
    let today = day_of(now_ns);
    data.read(|index| {
        let mut statement = index.prepare_cached(
            "SELECT day, file, rows, bytes, first_at, last_at, made_at FROM parts WHERE rows < ?1 \
             ORDER BY day, length(file), file",
        )?;
        let found = statement.query_map([UNMERGED_ROWS_MIN], |row| {
            let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.unsigned_abs());
            let part = Part {
                day: row.get(0)?,
                file: row.get(1)?,
                rows: number(2)?,
                bytes: number(3)?,
                first_ns: number(4)?,
                last_ns: number(5)?,
            };
            Ok((part, number(6)?))
        })?;
        let mut small: Vec<(Part, u64)> = found.collect::<rusqlite::Result<_>>()?;
        small.retain(|(part, _)| !skipped_files.contains(&(part.day.clone(), part.file.clone())));
        let mut rest = small.into_iter().peekable();
        while let Some((first, made)) = rest.next() {
            let mut of_day = vec![(first, made)];
            while let Some(next) = rest.next_if(|(part, _)| part.day == of_day[0].0.day) {
                of_day.push(next);
            }
            let is_over = day_named(&of_day[0].0.day).is_some_and(|day| day < today)
                && of_day.iter().all(|(_, made)| made.saturating_add(QUIET_NS) < now_ns);
            let parts: Vec<Part> = of_day.into_iter().map(|(part, _)| part).collect();
            if let Some(chosen) = select_parts(parts, is_over) {
                return Ok(Some(chosen));
            }
        }
        Ok(None)
    })
}

/// Selects from the small files of a day, in the order of creation.
fn select_parts(parts: Vec<Part>, is_over: bool) -> Option<Vec<Part>> {
    let step = |part: &Part| STEPS.iter().position(|bound| part.rows < *bound).unwrap_or(STEPS.len());
    for expected in 0..=STEPS.len() {
        if parts.iter().filter(|part| step(part) == expected).count() >= FILES_PER_MERGE {
            return Some(parts.into_iter().filter(|part| step(part) == expected).take(FILES_PER_MERGE).collect());
        }
    }
    if is_over && parts.len() > 1 {
        // The smallest first: large files are rewritten as rarely as possible.
        let mut parts = parts;
        parts.sort_by_key(|part| part.rows);
        parts.truncate(FILES_PER_MERGE);
        return Some(parts);
    }
    None
}

/// Maximum number of files in a merge. Each has a row group of some 14 MB in memory if all overlap.
const FILES_PER_MERGE: usize = 8;
/// Limits of sizes, in rows; the last size ends at [`UNMERGED_ROWS_MIN`].
const STEPS: [u64; 3] = [2_048, 16_384, 131_072];
/// A file of this many rows is not merged any more: some 40 MB.
const UNMERGED_ROWS_MIN: i64 = 1_000_000;
/// Time without new rows after which the remaining files of a past day are merged.
const QUIET_NS: u64 = 600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, rows: u64) -> Part {
        let file = format!("part-{number:06}.parquet");
        Part { day: "2026-11-23".into(), file, rows, bytes: 1, first_ns: 0, last_ns: 0 }
    }

    #[test]
    fn eight_files_of_one_size_are_merged_and_the_remaining_files_after_the_day_ended() {
        let sizes = |of: &[u64]| of.iter().zip(1..).map(|(rows, number)| part(number, *rows)).collect::<Vec<_>>();
        let chosen_of = |of: &[u64], is_over| {
            select_parts(sizes(of), is_over).map(|parts| parts.iter().map(|part| part.rows).collect::<Vec<_>>())
        };
        assert_eq!(chosen_of(&[1; 7], false), None);
        assert_eq!(chosen_of(&[1; 9], false), Some(vec![1; 8]));
        assert_eq!(chosen_of(&[20_000, 1, 1, 1, 1, 1, 1, 1, 1], false), Some(vec![1; 8]));
        assert_eq!(chosen_of(&[1, 1, 1, 1, 3_000, 3_000, 3_000, 3_000], false), None);
        assert_eq!(chosen_of(&[900_000; 8], false), Some(vec![900_000; 8]));
        assert_eq!(chosen_of(&[5, 900_000], true), Some(vec![5, 900_000]));
        assert_eq!(chosen_of(&[5], true), None);
        assert_eq!(chosen_of(&[900_000, 9, 3_000, 8], true), Some(vec![8, 9, 3_000, 900_000]));
    }
}
