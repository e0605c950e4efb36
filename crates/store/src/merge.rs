//! Joining of parts into one file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::decode::Input;
use crate::encode::{Encoder, Output};
use crate::reader::part_paths;
use crate::{Result, StoreError, files};
use schema::Record;

/// A finished table: one Parquet file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTable {
    /// The Parquet file.
    pub path: PathBuf,
    /// Rows in the file.
    pub rows: u64,
    /// File size in bytes.
    pub bytes: u64,
}

/// Joins the parts of table `R` under `dir` into `dir/<table>.parquet` and then removes the parts. Rows are encoded
/// again into row groups of the size that analysis programs expect; row groups of at least a quarter of that size are
/// copied. Memory is bounded by one such group. A table without parts becomes an empty file. With `keeps`, only rows for
/// which it is true are written.
///
/// # Errors
/// I/O and Parquet errors. The parts stay unchanged, and no partial file remains.
pub(crate) fn join_parts<R: Record>(
    dir: &Path,
    encoder: &mut Encoder<R>,
    keeps: Option<&dyn Fn(&R) -> bool>,
) -> Result<FinishedTable> {
    let path = dir.join(format!("{}.parquet", R::TABLE));
    let folder = dir.join(R::TABLE);
    let unfinished = files::unfinished(&path);
    let outcome = write_joined(&folder, &path, &unfinished, encoder, keeps);
    replace_parts(&folder, &unfinished, outcome)
}

/// Writes `rows` as `dir/<table>.parquet`, in place of the parts, which are then removed.
///
/// # Errors
/// See [`join_parts`].
pub(crate) fn write_table<R: Record>(dir: &Path, encoder: &mut Encoder<R>, rows: &[R]) -> Result<FinishedTable> {
    let path = dir.join(format!("{}.parquet", R::TABLE));
    let unfinished = files::unfinished(&path);
    let write = |encoder: &mut Encoder<R>| {
        let mut output = encoder.begin(&unfinished)?;
        for rows in rows.chunks(R::ROWS_A_PART) {
            append(encoder, &mut output, &unfinished, rows)?;
        }
        publish::<R>(output, &unfinished, &path, rows.len() as u64)
    };
    let outcome = write(encoder);
    replace_parts(&dir.join(R::TABLE), &unfinished, outcome)
}

/// Removes the superfluous files: the parts of a finished table, or an unfinished table.
fn replace_parts(folder: &Path, unfinished: &Path, outcome: Result<FinishedTable>) -> Result<FinishedTable> {
    if outcome.is_err() {
        files::discard(unfinished);
        return outcome;
    }
    // The joined file is durable under its final name, so the parts are superfluous now.
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(StoreError::io("rmdir", folder, source)),
        _ => outcome,
    }
}

fn write_joined<R: Record>(
    folder: &Path,
    path: &Path,
    unfinished: &Path,
    encoder: &mut Encoder<R>,
    keeps: Option<&dyn Fn(&R) -> bool>,
) -> Result<FinishedTable> {
    let parts = part_paths(folder)?;
    let mut output = encoder.begin(unfinished)?;
    let mut rows = 0;
    let mut pending = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let input = Input::open(part)?;
        for group in 0..input.groups() {
            // A group that is large enough, or the last group, is copied without re-encoding.
            let is_last = pending.is_empty() && at + 1 == parts.len() && group + 1 == input.groups();
            let is_large = input.rows_of(group)? >= R::ROWS_A_PART / COPIED_GROUP_DIVISOR;
            if keeps.is_none() && (is_last || is_large) && encoder.wrote(&input) {
                rows += append(encoder, &mut output, unfinished, &pending)?;
                pending.clear();
                rows += input.copy_group(group, &mut output, unfinished)?;
                continue;
            }
            let before = pending.len();
            input.read_group(group, &mut pending)?;
            if let Some(keeps) = keeps {
                let mut at = 0;
                pending.retain(|row| {
                    at += 1;
                    at <= before || keeps(row)
                });
            }
            while pending.len() >= R::ROWS_A_PART {
                let rest = pending.split_off(R::ROWS_A_PART);
                rows += append(encoder, &mut output, unfinished, &pending)?;
                pending = rest;
            }
        }
    }
    rows += append(encoder, &mut output, unfinished, &pending)?;
    publish::<R>(output, unfinished, path, rows)
}

/// A row group of at least the expected rows divided by this is copied: encoding its rows again would cost a run of
/// many requests as much as writing the parts did.
const COPIED_GROUP_DIVISOR: usize = 4;

/// Ends a file, syncs it and renames it to its final name.
fn publish<R: Record>(output: Output, unfinished: &Path, path: &Path, rows: u64) -> Result<FinishedTable> {
    let file = Encoder::<R>::end(output, unfinished)?;
    files::publish(&file, unfinished, path)?;
    let bytes = file.metadata().map_err(|source| StoreError::io("stat", path, source))?.len();
    Ok(FinishedTable { path: path.to_owned(), rows, bytes })
}

fn append<R: Record>(encoder: &mut Encoder<R>, output: &mut Output, path: &Path, rows: &[R]) -> Result<u64> {
    encoder.append(output, path, rows)?;
    Ok(rows.len() as u64)
}
