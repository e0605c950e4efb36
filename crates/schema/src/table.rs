//! Tables: a record is defined once, by [`record!`](crate::record), and its columns follow from its fields.
//!
//! ```text
//!   record! { /// One request ..            row's meaning: documentation, the file's metadata, docs/concepts/columns.md
//!       pub struct RequestRecord in "requests" {
//!           /// When it was scheduled.      column's meaning, the same
//!           pub scheduled_at: Timestamp,     struct field; column scheduled_at_ns, BIGINT, ns, never null
//!           ..
//! ```
//!
//! A field's type says how many columns it is and of which kind ([`Columns`]): one for a number, a flag, a time or a name, two
//! for an address and its port, many for a group of fields. `store` writes columns to Parquet and reads them back, `report`
//! prints them as text; neither knows one record from another.
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

/// A record that is a row of a table.
pub trait Record: Clone + Send + 'static {
    /// Name of the table; of its file, without `.parquet`.
    const TABLE: &'static str;
    /// What one row is.
    const ROW: &'static str;
    /// Rows of a part and of a row group: bounds the memory of the writer.
    const ROWS_A_PART: usize;
    /// A row of which nothing is known yet; reading fills it column by column.
    const BLANK: Self;

    /// The columns, in the order of the file. They are made anew by each call: ask once for many rows.
    fn columns() -> Vec<Column<Self>>;

    /// The table without the way to fill it.
    fn table() -> Table {
        let columns = Self::columns().into_iter().map(|column| column.description).collect();
        Table { name: Self::TABLE, row: Self::ROW, columns }
    }
}

/// Rows of a part where the record does not say otherwise: about 18 MB of requests. In the joined file, a row group then has at
/// least the 122,880 rows that DuckDB hands to one thread.
pub const ROWS_A_PART_MAX: usize = 131_072;

/// One table of a run, as a reader of its Parquet file meets it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// Name of the file, without `.parquet`.
    pub name: &'static str,
    /// What one row is.
    pub row: &'static str,
    /// In the order of the file.
    pub columns: Vec<ColumnDescription>,
}

/// One column, as a reader of its Parquet file meets it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ColumnDescription {
    /// Name in the file.
    pub name: String,
    /// Type in the file.
    pub kind: Kind,
    /// Unit, or what the number counts; empty where there is none.
    pub unit: &'static str,
    /// Whether a row may have no value.
    pub nullable: bool,
    /// What it means; for a nullable column also when it is null.
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

    /// How values of this type run where the column does not say otherwise.
    pub(crate) const fn shape(self) -> Shape {
        match self {
            Kind::Integer => Shape::Rising,
            Kind::Float | Kind::Flag => Shape::Any,
            Kind::Text => Shape::Few,
        }
    }
}

/// How a column's values run from row to row, which decides their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Near the value before (times, sequence numbers): stored as differences.
    Rising,
    /// Few different values: stored as a dictionary.
    Few,
    /// Neither: stored as they are.
    Any,
}

/// The value of a column in one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// None.
    Null,
    /// Of [`Kind::Integer`].
    Integer(i64),
    /// Of [`Kind::Float`].
    Float(f64),
    /// Of [`Kind::Flag`].
    Flag(bool),
    /// Of [`Kind::Text`].
    Text(Cow<'a, str>),
}

/// A column of records `R`, and how to take its values from rows and put them back.
pub struct Column<R> {
    /// What readers see.
    pub description: ColumnDescription,
    /// How its values run.
    pub shape: Shape,
    pub(crate) get: Box<Get<R>>,
    pub(crate) set: Box<Set<R>>,
    pub(crate) collect: Box<Collect<R>>,
}

type Get<R> = dyn for<'a> Fn(&'a R) -> Value<'a> + Send;
type Set<R> = dyn Fn(&mut R, Value<'_>) -> bool + Send;
type Collect<R> = dyn Fn(&[R], &mut Values) + Send;

impl<R> Column<R> {
    /// The value in one row.
    pub fn get<'a>(&self, row: &'a R) -> Value<'a> {
        (self.get)(row)
    }

    /// Puts a value into a row. `false`, and the row stays as it is, where the field cannot have this value.
    pub fn set(&self, row: &mut R, value: Value<'_>) -> bool {
        (self.set)(row, value)
    }

    /// Adds the values of many rows to `values`, in one loop that is compiled for this column.
    pub fn collect(&self, rows: &[R], values: &mut Values) {
        (self.collect)(rows, values);
    }
}

/// Values of one column, row after row. Only the list of the column's kind is filled.
#[derive(Debug, Default)]
pub struct Values {
    /// One a row: 1 where it has a value, else 0.
    pub present: Vec<i16>,
    /// Integers of the rows that have one.
    pub integers: Vec<i64>,
    /// The same of floats.
    pub floats: Vec<f64>,
    /// The same of flags.
    pub flags: Vec<bool>,
    /// The same of texts, one behind the other.
    pub text: String,
    /// Where each text begins and ends in [`text`](Self::text). A text that equals the one before it is there once.
    pub texts: Vec<(usize, usize)>,
}

impl Values {
    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        self.present.clear();
        self.integers.clear();
        self.floats.clear();
        self.flags.clear();
        self.text.clear();
        self.texts.clear();
    }

    /// Adds the value of the next row.
    #[inline]
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
