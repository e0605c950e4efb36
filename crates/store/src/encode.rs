//! Encoding of rows as Parquet.

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
use schema::table::{Column, Kind, Record, Shape, Values};

use crate::decode::Input;
use crate::{Result, StoreError};

/// Encodes rows of one table. Schema and properties are built once and used for every file.
pub(crate) struct Encoder<R: Record> {
    columns: Vec<Column<R>>,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    /// Buffer for one column, reused for all columns to avoid allocations.
    values: Values,
    texts: Vec<ByteArray>,
}

/// A Parquet file being written, one row group at a time.
pub(crate) type Output = SerializedFileWriter<File>;

impl<R: Record> Encoder<R> {
    pub(crate) fn new() -> Self {
        let columns = R::columns();
        let (schema, properties) = (schema(&columns), Arc::new(properties(&columns)));
        Encoder { columns, schema, properties, values: Values::default(), texts: Vec::new() }
    }

    /// Begins a file at `path`, which must be the name of an unfinished file.
    pub(crate) fn begin(&self, path: &Path) -> Result<Output> {
        let file = File::create(path).map_err(|source| StoreError::io("create", path, source))?;
        SerializedFileWriter::new(file, self.schema.clone(), self.properties.clone())
            .map_err(|source| StoreError::parquet(path, source))
    }

    /// Adds one row group; does nothing without rows.
    pub(crate) fn append(&mut self, output: &mut Output, path: &Path, rows: &[R]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.append_group(output, rows).map_err(|source| StoreError::parquet(path, source))
    }

    fn append_group(&mut self, output: &mut Output, rows: &[R]) -> Result<(), ParquetError> {
        let mut group = output.next_row_group()?;
        for column in &self.columns {
            self.values.clear();
            column.collect(rows, &mut self.values);
            let nullable = column.description.nullable;
            debug_assert!(nullable || !self.values.present.contains(&0), "{} is null", column.description.name);
            write(&mut group, column.description.kind, nullable, &self.values, &mut self.texts)?;
        }
        group.close()?;
        Ok(())
    }

    /// Whether a file has exactly the columns that this encoder writes.
    pub(crate) fn wrote(&self, input: &Input) -> bool {
        input.schema() == &*self.schema
    }

    /// Writes the footer and returns the file, not yet synced.
    pub(crate) fn end(mut output: Output, path: &Path) -> Result<File> {
        // `into_inner` would also flush, but would convert the system's error to text: a full disk must be reported as
        // such.
        output.finish().map_err(|source| StoreError::parquet(path, source))?;
        output.inner().try_clone().map_err(|source| StoreError::io("dup", path, source))
    }
}

/// Writes the next column of a row group.
fn write(
    group: &mut SerializedRowGroupWriter<'_, File>,
    kind: Kind,
    nullable: bool,
    values: &Values,
    texts: &mut Vec<ByteArray>,
) -> Result<(), ParquetError> {
    let mut writer = group.next_column()?.expect("the schema has as many columns as the table");
    let levels = nullable.then_some(&values.present[..]);
    match kind {
        Kind::Integer => writer.typed::<Int64Type>().write_batch(&values.integers, levels, None)?,
        Kind::Float => writer.typed::<DoubleType>().write_batch(&values.floats, levels, None)?,
        Kind::Flag => writer.typed::<BoolType>().write_batch(&values.flags, levels, None)?,
        Kind::Text => {
            // All texts of a column share one buffer.
            let text = ByteArray::from(values.text.as_bytes().to_vec());
            texts.clear();
            texts.extend(values.texts.iter().map(|&(begin, end)| text.slice(begin, end - begin)));
            writer.typed::<ByteArrayType>().write_batch(texts, levels, None)?
        }
    };
    writer.close()
}

fn schema<R: Record>(columns: &[Column<R>]) -> TypePtr {
    let fields = columns
        .iter()
        .map(|column| {
            let (physical, logical) = match column.description.kind {
                Kind::Integer => (Physical::INT64, None),
                Kind::Float => (Physical::DOUBLE, None),
                Kind::Flag => (Physical::BOOLEAN, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            let repetition = if column.description.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            Type::primitive_type_builder(&column.description.name, physical)
                .with_repetition(repetition)
                .with_logical_type(logical)
                .build()
                .map(Arc::new)
                .expect("the table's types are ones Parquet has")
        })
        .collect();
    Arc::new(Type::group_type_builder(R::TABLE).with_fields(fields).build().expect("a flat group is a valid schema"))
}

fn properties<R: Record>(columns: &[Column<R>]) -> WriterProperties {
    let about = serde_json::to_string(&R::table()).expect("a table is plain text and flags");
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("yamabiko ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(vec![KeyValue::new("yamabiko.columns".to_owned(), about)]));
    for column in columns {
        let path = ColumnPath::from(column.description.name.as_str());
        builder = builder.set_column_dictionary_enabled(path.clone(), column.shape == Shape::Few);
        if column.shape == Shape::Rising {
            builder = builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    builder.build()
}
