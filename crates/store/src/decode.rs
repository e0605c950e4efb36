//! Decoding of Parquet files into rows.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::Type;
use schema::table::{Column, Kind, Record, Value};

use crate::encode::Output;
use crate::{Result, StoreError};

/// An open Parquet file of one table.
pub(crate) struct Input {
    path: PathBuf,
    /// File size in bytes.
    length: u64,
    reader: SerializedFileReader<File>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| StoreError::io("open", path, source))?;
        let length = file.metadata().map_err(|source| StoreError::io("stat", path, source))?.len();
        let reader = SerializedFileReader::new(file).map_err(|source| StoreError::parquet(path, source))?;
        Ok(Input { path: path.to_owned(), length, reader })
    }

    /// Rows in the whole file.
    pub(crate) fn rows(&self) -> u64 {
        u64::try_from(self.reader.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    pub(crate) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Metadata of a row group from the footer; `None` if there is no row group with this number.
    pub(crate) fn group_metadata(&self, index: usize) -> Option<&RowGroupMetaData> {
        self.reader.metadata().row_groups().get(index)
    }

    /// The columns.
    pub(crate) fn schema(&self) -> &Type {
        self.reader.metadata().file_metadata().schema()
    }

    /// Rows of one row group.
    pub(crate) fn rows_of(&self, index: usize) -> Result<usize> {
        let group = self.reader.get_row_group(index).map_err(|source| self.broken(source))?;
        self.checked_rows(&*group)
    }

    /// Copies one row group without re-encoding to `output` at `to`. Returns its number of rows.
    pub(crate) fn copy_group(&self, index: usize, output: &mut Output, to: &Path) -> Result<u64> {
        let rows = self.rows_of(index)? as u64;
        let file = File::open(&self.path).map_err(|source| StoreError::io("open", &self.path, source))?;
        let group = self.reader.metadata().row_group(index);
        let mut copy = || {
            let mut into = output.next_row_group()?;
            for chunk in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: chunk.compressed_size().unsigned_abs(),
                    rows_written: rows,
                    metadata: chunk.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                into.append_column(&file, close)?;
            }
            into.close().map(drop)
        };
        copy().map_err(|source| StoreError::parquet(to, source))?;
        Ok(rows)
    }

    /// Appends all rows of one row group to `rows`. On an error `rows` is unchanged.
    pub(crate) fn read_group<R: Record>(&self, index: usize, rows: &mut Vec<R>) -> Result<()> {
        let before = rows.len();
        let outcome = self.fill_group(index, rows, before);
        if outcome.is_err() {
            rows.truncate(before);
        }
        outcome
    }

    fn fill_group<R: Record>(&self, index: usize, rows: &mut Vec<R>, before: usize) -> Result<()> {
        let group = self.reader.get_row_group(index).map_err(|source| self.broken(source))?;
        let count = self.checked_rows(&*group)?;
        rows.resize(before + count, R::BLANK);
        R::columns().iter().try_for_each(|column| self.fill_column(&*group, column, &mut rows[before..]))
    }

    /// Number of rows of a group, after validation of the footer. The parquet crate trusts the footer: a corrupt footer
    /// would make it panic or allocate without limit.
    fn checked_rows(&self, group: &dyn RowGroupReader) -> Result<usize> {
        let metadata = group.metadata();
        let rows = metadata.num_rows();
        let sane = (0..=ROWS_A_GROUP_MAX).contains(&rows)
            && metadata.columns().iter().all(|chunk| {
                let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
                let end = start.checked_add(chunk.compressed_size());
                start >= 0
                    && chunk.data_page_offset() >= 0
                    && chunk.compressed_size() >= 0
                    && end.is_some_and(|end| end.unsigned_abs() <= self.length)
                    && chunk.num_values() == rows
            });
        if sane {
            return Ok(rows as usize);
        }
        Err(self.broken(ParquetError::General("its footer does not match its length".to_owned())))
    }

    fn fill_column<R: Record>(&self, group: &dyn RowGroupReader, column: &Column<R>, rows: &mut [R]) -> Result<()> {
        // Columns are matched by name, not by position: a later version may add columns.
        let description = &column.description;
        let schema = group.metadata().schema_descr();
        let Some(at) = schema.columns().iter().position(|there| there.path().string() == description.name) else {
            return if description.nullable { Ok(()) } else { Err(self.wrong_column(column)) };
        };
        let nullable = schema.column(at).max_def_level() > 0;
        let reader = group.get_column_reader(at).map_err(|source| self.broken(source))?;
        match (description.kind, reader) {
            (Kind::Integer, ColumnReader::Int64ColumnReader(reader)) => {
                self.put(reader, nullable, column, rows, |&value| Value::Integer(value))
            }
            (Kind::Float, ColumnReader::DoubleColumnReader(reader)) => {
                self.put(reader, nullable, column, rows, |&value| Value::Float(value))
            }
            (Kind::Flag, ColumnReader::BoolColumnReader(reader)) => {
                self.put(reader, nullable, column, rows, |&value| Value::Flag(value))
            }
            (Kind::Text, ColumnReader::ByteArrayColumnReader(reader)) => {
                self.put(reader, nullable, column, rows, |text| Value::Text(String::from_utf8_lossy(text.data())))
            }
            _ => Err(self.wrong_column(column)),
        }
    }

    /// Reads a whole column chunk and sets each value in its row, skipping rows without a value. `value` converts a
    /// stored value into the column's value.
    fn put<D: DataType, R>(
        &self,
        mut reader: ColumnReaderImpl<D>,
        nullable: bool,
        column: &Column<R>,
        rows: &mut [R],
        value: impl for<'a> Fn(&'a D::T) -> Value<'a>,
    ) -> Result<()> {
        let (mut values, mut levels) = (Vec::with_capacity(rows.len()), Vec::new());
        let (records, _, _) = reader
            .read_records(rows.len(), nullable.then_some(&mut levels), None, &mut values)
            .map_err(|source| self.broken(source))?;
        if records != rows.len() {
            return Err(self.broken(ParquetError::EOF(format!("{records} of {} rows are there", rows.len()))));
        }
        let present = |at: usize| !nullable || levels[at] > 0;
        let filled = rows.iter_mut().enumerate().filter(|&(at, _)| present(at));
        filled.zip(&values).try_for_each(|((_, row), read)| {
            if column.set(row, value(read)) {
                return Ok(());
            }
            match value(read) {
                Value::Text(text) => Err(StoreError::Value {
                    path: self.path.clone(),
                    column: column.description.name.clone(),
                    value: text.into_owned(),
                }),
                // A number outside of the field's range leaves the field empty.
                _ => Ok(()),
            }
        })
    }

    fn broken(&self, source: ParquetError) -> StoreError {
        StoreError::parquet(&self.path, source)
    }

    fn wrong_column<R>(&self, column: &Column<R>) -> StoreError {
        let name = column.description.name.clone();
        StoreError::Column { path: self.path.clone(), column: name, expected: column.description.kind.sql() }
    }
}

/// A hundred times the rows that this crate writes into one group: about 2 GB.
const ROWS_A_GROUP_MAX: i64 = 13_107_200;
