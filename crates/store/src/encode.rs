//! Rows to Parquet.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::decode::Input;
use crate::table::{Cell, Field, Kind, Row, Shape, described};
use crate::{Result, StoreError};

/// Encodes rows of one table; what is the same for every file is made once.
pub(crate) struct Encoder<R: Row> {
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    columns: Columns<R>,
}

/// A Parquet file being written, one row group at a time.
pub(crate) type Output = SerializedFileWriter<File>;

impl<R: Row> Encoder<R> {
    pub(crate) fn new() -> Self {
        Encoder { schema: schema::<R>(), properties: Arc::new(properties::<R>()), columns: Columns::default() }
    }

    /// Begins a file at `path`, which must bear the name of an unfinished file.
    pub(crate) fn begin(&self, path: &Path) -> Result<Output> {
        let file = File::create(path).map_err(|source| StoreError::io("create", path, source))?;
        SerializedFileWriter::new(file, self.schema.clone(), self.properties.clone())
            .map_err(|source| StoreError::parquet(path, source))
    }

    /// Adds one row group; nothing for no rows.
    pub(crate) fn append(&mut self, output: &mut Output, path: &Path, rows: &[R]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.append_group(output, rows).map_err(|source| StoreError::parquet(path, source))
    }

    fn append_group(&mut self, output: &mut Output, rows: &[R]) -> Result<(), ParquetError> {
        let mut group = output.next_row_group()?;
        for field in R::FIELDS {
            self.columns.write(&mut group, field, rows)?;
        }
        group.close()?;
        Ok(())
    }

    /// Whether a file's columns are those that this encoder writes.
    pub(crate) fn wrote(&self, input: &Input) -> bool {
        input.schema() == &*self.schema
    }

    /// Writes the footer and hands back the file, not yet synced.
    pub(crate) fn end(mut output: Output, path: &Path) -> Result<File> {
        // `into_inner` would flush, too, but turn the system's error into text: a full disk must be told as such.
        output.finish().map_err(|source| StoreError::parquet(path, source))?;
        output.inner().try_clone().map_err(|source| StoreError::io("dup", path, source))
    }
}

/// Scratch columns, kept from group to group so that encoding does not allocate them anew.
struct Columns<R> {
    present: Vec<i16>,
    integers: Vec<i64>,
    floats: Vec<f64>,
    flags: Vec<bool>,
    texts: Vec<ByteArray>,
    row: std::marker::PhantomData<R>,
}

impl<R> Default for Columns<R> {
    fn default() -> Self {
        Columns {
            present: Vec::new(),
            integers: Vec::new(),
            floats: Vec::new(),
            flags: Vec::new(),
            texts: Vec::new(),
            row: std::marker::PhantomData,
        }
    }
}

impl<R: Row> Columns<R> {
    fn write(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, File>,
        field: &Field<R>,
        rows: &[R],
    ) -> Result<(), ParquetError> {
        let mut writer = group.next_column()?.expect("the schema has as many columns as the table");
        self.present.clear();
        match field.cell {
            Cell::Integer(take, _) => {
                self.integers.clear();
                for row in rows {
                    let value = take(row);
                    self.present.push(i16::from(value.is_some()));
                    self.integers.extend(value);
                }
                let levels = field.column.nullable.then_some(&self.present[..]);
                debug_assert!(levels.is_some() || self.integers.len() == rows.len(), "{} is null", field.column.name);
                writer.typed::<Int64Type>().write_batch(&self.integers, levels, None)?;
            }
            Cell::Float(take, _) => {
                self.floats.clear();
                self.floats.extend(rows.iter().map(take));
                writer.typed::<DoubleType>().write_batch(&self.floats, None, None)?;
            }
            Cell::Flag(take, _) => {
                self.flags.clear();
                self.flags.extend(rows.iter().map(take));
                writer.typed::<BoolType>().write_batch(&self.flags, None, None)?;
            }
            Cell::Text(take, _) => {
                self.texts.clear();
                for row in rows {
                    let value = take(row);
                    self.present.push(i16::from(value.is_some()));
                    let Some(text) = value else { continue };
                    // Most texts are that of the row before: shared, not allocated again.
                    let again = self.texts.last().filter(|last| last.data() == text.as_bytes()).cloned();
                    self.texts.push(again.unwrap_or_else(|| ByteArray::from(text.into_owned().into_bytes())));
                }
                let levels = field.column.nullable.then_some(&self.present[..]);
                writer.typed::<ByteArrayType>().write_batch(&self.texts, levels, None)?;
            }
        }
        writer.close()
    }
}

fn schema<R: Row>() -> TypePtr {
    let fields = R::FIELDS
        .iter()
        .map(|field| {
            let (physical, logical) = match field.column.kind {
                Kind::Integer => (Physical::INT64, None),
                Kind::Float => (Physical::DOUBLE, None),
                Kind::Flag => (Physical::BOOLEAN, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let repetition = if field.column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            Type::primitive_type_builder(field.column.name, physical)
                .with_repetition(repetition)
                .with_logical_type(logical)
                .build()
                .map(Arc::new)
                .expect("the table's types are ones Parquet has")
        })
        .collect();
    Arc::new(Type::group_type_builder(R::TABLE).with_fields(fields).build().expect("a flat group is a valid schema"))
}

fn properties<R: Row>() -> WriterProperties {
    let about = serde_json::to_string(&described::<R>()).expect("a table is plain text and flags");
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("yamabiko ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(vec![KeyValue::new("yamabiko.columns".to_owned(), about)]));
    for field in R::FIELDS {
        let path = ColumnPath::from(field.column.name);
        builder = builder.set_column_dictionary_enabled(path.clone(), field.shape == Shape::Few);
        if field.shape == Shape::Rising {
            builder = builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    builder.build()
}
