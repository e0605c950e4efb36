//! Tables: a record is defined once, by [`record!`](crate::record), and its columns follow from its fields.
//!
//! ```text
//!   record! { /// One request ..            row's meaning: documentation, the file's metadata, docs/concepts/columns.md
//!       pub struct RequestRecord in "requests" {
//!           /// When it was scheduled.      column's meaning: the same three uses
//!           pub scheduled_at: Timestamp,     struct field; column scheduled_at_ns, BIGINT, ns, never null
//!           ..
//! ```
//!
//! A field's type determines the number and kind of its columns ([`Columns`]): one for a number, a flag, a time or a
//! name, two for an address and its port, many for a group of fields. `store` writes columns to Parquet and reads them,
//! `report` prints them as text; neither has code for a specific record.
//!
//! Read [`Record`] first, then [`Column`], then the macro.

mod cell;
mod escape;
mod field;
mod record;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use cell::{Cell, Named, nanoseconds, zero_or_one};
pub use field::{Columns, Field};
pub use record::rows_a_part;

/// A record: one row of a table.
pub trait Record: Clone + Send + 'static {
    /// Name of the table, which is its file name without `.parquet`.
    const TABLE: &'static str;
    /// Description of one row.
    const ROW: &'static str;
    /// Rows of a part and of a row group: bounds the memory of the writer.
    const ROWS_A_PART: usize;
    /// A row without values; reading fills it column by column.
    const BLANK: Self;

    /// The columns, in the order of the file. Each call builds them again, so call it once for many rows.
    fn columns() -> Vec<Column<Self>>;

    /// The description of the table, without access to records.
    fn table() -> Table {
        let columns = Self::columns().into_iter().map(|column| column.description).collect();
        Table { name: Self::TABLE, row: Self::ROW, columns }
    }
}

/// Default number of rows of a part: about 18 MB of requests. In the joined file a row group then has at least the
/// 122,880 rows that DuckDB processes per thread.
pub const ROWS_A_PART_MAX: usize = 131_072;

/// Description of a table of a run, for readers of its Parquet file.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// Name of the file, without `.parquet`.
    pub name: &'static str,
    /// Description of one row.
    pub row: &'static str,
    /// The columns in the order of the file.
    pub columns: Vec<ColumnDescription>,
}

/// Description of a column, for readers of its Parquet file.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ColumnDescription {
    /// Name in the file.
    pub name: String,
    /// Type in the file.
    pub kind: Kind,
    /// Unit, or the counted items; empty without a unit.
    pub unit: &'static str,
    /// Whether a row may have no value.
    pub nullable: bool,
    /// Meaning; for a nullable column also the condition of null.
    pub about: &'static str,
}

/// Type of a column. Integers are signed 64 bits throughout, so that a difference of two times may be negative in
/// any query language; values above 2^63 - 1 are written as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// INT64.
    Integer,
    /// DOUBLE.
    Float,
    /// BOOLEAN.
    Flag,
    /// BYTE_ARRAY, UTF-8, dictionary-encoded.
    Text,
}

impl Kind {
    /// The type's name in SQL.
    pub const fn sql(self) -> &'static str {
        match self {
            Kind::Integer => "BIGINT",
            Kind::Float => "DOUBLE",
            Kind::Flag => "BOOLEAN",
            Kind::Text => "VARCHAR",
        }
    }

    /// Default shape of values of this type.
    pub(crate) const fn shape(self) -> Shape {
        match self {
            Kind::Integer => Shape::Rising,
            Kind::Float | Kind::Flag => Shape::Any,
            Kind::Text => Shape::Few,
        }
    }
}

/// How a column's values change from row to row, which determines their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Close to the previous value (times, sequence numbers): stored as differences.
    Rising,
    /// Few distinct values: stored as a dictionary.
    Few,
    /// Neither: stored plain.
    Any,
}

/// The value of a column in one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// Value of [`Kind::Integer`].
    Integer(i64),
    /// Value of [`Kind::Float`].
    Float(f64),
    /// Value of [`Kind::Flag`].
    Flag(bool),
    /// Value of [`Kind::Text`].
    Text(Cow<'a, str>),
}

/// A column of records `R`, with access to its value in a row.
pub struct Column<R> {
    /// Description for readers.
    pub description: ColumnDescription,
    /// Shape of its values.
    pub shape: Shape,
    pub(crate) get: Box<Get<R>>,
    pub(crate) set: Box<Set<R>>,
    pub(crate) collect: Box<Collect<R>>,
}

type Get<R> = dyn for<'a> Fn(&'a R) -> Value<'a> + Send;
type Set<R> = dyn Fn(&mut R, Value<'_>) -> bool + Send;
type Collect<R> = dyn Fn(&[R], &mut Values) + Send;

impl<R> Column<R> {
    /// Reads the value from a row.
    pub fn get<'a>(&self, row: &'a R) -> Value<'a> {
        (self.get)(row)
    }

    /// Sets the value in a row. Returns `false` and leaves the row unchanged if the field cannot have this value.
    pub fn set(&self, row: &mut R, value: Value<'_>) -> bool {
        (self.set)(row, value)
    }

    /// Appends the values of many rows to `values`, in one loop that is compiled for this column.
    pub fn collect(&self, rows: &[R], values: &mut Values) {
        (self.collect)(rows, values);
    }
}

/// Values of one column, in the order of rows. Only the list of the column's kind is filled.
#[derive(Debug, Default)]
pub struct Values {
    /// Definition level of each row: 1 with a value, otherwise 0.
    pub present: Vec<i16>,
    /// Integers of the rows with a value.
    pub integers: Vec<i64>,
    /// Floats of the rows with a value.
    pub floats: Vec<f64>,
    /// Flags of the rows with a value.
    pub flags: Vec<bool>,
    /// Texts of the rows with a value, concatenated.
    pub text: String,
    /// Range of each text in [`text`](Self::text). A text equal to the previous one is stored once.
    pub texts: Vec<(usize, usize)>,
}

impl Values {
    /// Removes all values and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.present.clear();
        self.integers.clear();
        self.floats.clear();
        self.flags.clear();
        self.text.clear();
        self.texts.clear();
    }

    /// Appends the value of the next row.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: Value<'_>) {
        self.present.push(i16::from(!matches!(value, Value::Null)));
        match value {
            Value::Null => {}
            Value::Integer(value) => self.integers.push(value),
            Value::Float(value) => self.floats.push(value),
            Value::Flag(value) => self.flags.push(value),
            Value::Text(text) => self.push_text(&text),
        }
    }

    #[inline(never)]
    fn push_text(&mut self, text: &str) {
        let last = self.texts.last().copied().filter(|&(begin, end)| self.text[begin..end] == *text);
        let place = last.unwrap_or_else(|| {
            let begin = self.text.len();
            self.text.push_str(text);
            (begin, self.text.len())
        });
        self.texts.push(place);
    }
}
