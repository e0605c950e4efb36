//! One Parquet file by its path, written and read row group by row group: for the daily files of the tap manager.

use std::path::{Path, PathBuf};

use parquet::file::statistics::Statistics;

use crate::decode::Input;
use crate::encode::{Encoder, Output};
use crate::merge::FinishedTable;
use crate::{Result, StoreError, files};
use schema::Record;

/// A Parquet file that is being written, as `NAME.unfinished` until it is complete and synced. A drop without
/// [`finish`](Self::finish) leaves the unfinished file; [`discard`](Self::discard) removes it.
pub struct PartWriter<R: Record> {
    path: PathBuf,
    unfinished: PathBuf,
    encoder: Encoder<R>,
    output: Output,
    rows: u64,
}

impl<R: Record> PartWriter<R> {
    /// Begins the file that gets the name `path` when it is finished.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(path: &Path) -> Result<Self> {
        let encoder = Encoder::new();
        let unfinished = files::unfinished(path);
        let output = encoder.begin(&unfinished)?;
        Ok(PartWriter { path: path.to_owned(), unfinished, encoder, output, rows: 0 })
    }

    /// Adds rows, as row groups of at most [`Record::ROWS_A_PART`] rows each.
    ///
    /// # Errors
    /// A full disk or another failure of the file system. The caller must then discard the file.
    pub fn append(&mut self, rows: &[R]) -> Result<()> {
        for group in rows.chunks(R::ROWS_A_PART) {
            self.encoder.append(&mut self.output, &self.unfinished, group)?;
        }
        self.rows += rows.len() as u64;
        Ok(())
    }

    /// Writes the footer, syncs the file, and renames it to its final name.
    ///
    /// # Errors
    /// As for [`append`](Self::append); the unfinished file is removed.
    pub fn finish(self) -> Result<FinishedTable> {
        let PartWriter { path, unfinished, output, rows, .. } = self;
        let outcome = Encoder::<R>::end(output, &unfinished).and_then(|file| {
            let bytes = file.metadata().map_err(|source| StoreError::io("stat", &unfinished, source))?.len();
            files::publish(&file, &unfinished, &path)?;
            Ok(FinishedTable { path, rows, bytes })
        });
        if outcome.is_err() {
            files::discard(&unfinished);
        }
        outcome
    }

    /// Removes the unfinished file.
    pub fn discard(self) {
        files::discard(&self.unfinished);
    }
}

/// An open Parquet file, readable row group by row group. It stays readable if the file is removed meanwhile.
pub struct PartFile<R: Record> {
    input: Input,
    row: std::marker::PhantomData<R>,
}

impl<R: Record> PartFile<R> {
    /// Opens the file and reads its footer.
    ///
    /// # Errors
    /// The file does not exist, or is not a Parquet file.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(PartFile { input: Input::open(path)?, row: std::marker::PhantomData })
    }

    /// Number of row groups.
    pub fn groups(&self) -> usize {
        self.input.groups()
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.input.rows()
    }

    /// Minimum and maximum of an integer column in a row group, from the file's statistics; `None` without statistics.
    pub fn range_of(&self, group: usize, column: &str) -> Option<(i64, i64)> {
        let group = self.input.group_metadata(group)?;
        let chunk = group.columns().iter().find(|chunk| chunk.column_path().string() == column)?;
        match chunk.statistics()? {
            Statistics::Int64(of) => Some((*of.min_opt()?, *of.max_opt()?)),
            _ => None,
        }
    }

    /// Appends all rows of a row group to `rows`. On an error `rows` is unchanged.
    ///
    /// # Errors
    /// The file is damaged, or of another table.
    pub fn read_group(&self, group: usize, rows: &mut Vec<R>) -> Result<()> {
        self.input.read_group(group, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{FleetRow, TapPeer, TapRow};

    fn row(at: u64) -> FleetRow {
        FleetRow {
            agent: "shop-7".into(),
            stream: "0".repeat(32),
            sequence: 3,
            number: 7,
            at_unix_ns: at,
            clock_offset_ns: Some(-5),
            share: 0.25,
            row: TapRow {
                program: Some("curl".into()),
                side: "client".into(),
                peer: Some(TapPeer { address: "h:00000000000000ff".parse().unwrap(), port: 65_535 }),
                outcome: "failed".into(),
                error: Some("ECONNREFUSED".into()),
                exchange: Some(2),
                ..TapRow::default()
            },
            ..FleetRow::BLANK
        }
    }

    #[test]
    fn a_part_file_is_complete_or_absent_and_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-000001.parquet");
        let rows: Vec<FleetRow> = (0..FleetRow::ROWS_A_PART as u64 + 10).map(row).collect();
        let mut writer = PartWriter::begin(&path).unwrap();
        writer.append(&rows).unwrap();
        assert!(!path.exists());
        let finished = writer.finish().unwrap();
        assert_eq!((finished.rows, finished.bytes), (rows.len() as u64, path.metadata().unwrap().len()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        let file = PartFile::<FleetRow>::open(&path).unwrap();
        assert_eq!((file.groups(), file.rows()), (2, rows.len() as u64));
        assert_eq!(file.range_of(0, "at_unix_ns"), Some((0, FleetRow::ROWS_A_PART as i64 - 1)));
        assert_eq!(file.range_of(1, "at_unix_ns").unwrap().0, FleetRow::ROWS_A_PART as i64);
        assert_eq!(
            (file.range_of(0, "agent"), file.range_of(2, "at_unix_ns"), file.range_of(0, "x")),
            (None, None, None)
        );
        std::fs::remove_file(&path).unwrap();
        let mut read = Vec::new();
        (0..file.groups()).for_each(|group| file.read_group(group, &mut read).unwrap());
        assert_eq!(read, rows);
    }

    #[test]
    fn a_discarded_part_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part-000001.parquet");
        let mut writer = PartWriter::begin(&path).unwrap();
        writer.append(&[row(1)]).unwrap();
        writer.discard();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(matches!(PartFile::<FleetRow>::open(&path), Err(StoreError::Io { .. })));
    }
}
