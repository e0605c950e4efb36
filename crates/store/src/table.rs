//! The tables of a run: every column's name, type, unit and meaning, once.
//!
//! The same definition writes the Parquet schema, reads it back, prints `docs/concepts/columns.md` and is stored
//! inside each file under the key `yamabiko.columns`.

mod cache_exchanges;
mod connections;
mod distributions;
mod fleet;
mod page;
mod requests;
mod series;
mod server_series;
mod taps;
mod watch_series;
mod wire_requests;
mod words;

use std::borrow::Cow;

use schema::{
    CacheExchange, ConnectionRecord, DistributionRecord, RequestRecord, SecondRecord, ServerSecond, TapExchange,
    WatchSecond, WireRequest,
};

use crate::writer::ROWS_A_PART_MAX;

pub use fleet::FleetRow;
pub use page::columns_page;

/// Every table of the book.
pub fn columns() -> Vec<Table> {
    vec![
        described::<RequestRecord>(),
        described::<SecondRecord>(),
        described::<DistributionRecord>(),
        described::<ServerSecond>(),
        described::<ConnectionRecord>(),
        described::<WireRequest>(),
        described::<WatchSecond>(),
        described::<TapExchange>(),
        described::<CacheExchange>(),
        described::<FleetRow>(),
    ]
}

/// One table of a run, as a reader of its Parquet file meets it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Table {
    /// Name of the file, without `.parquet`.
    pub name: &'static str,
    /// What one row is.
    pub row: &'static str,
    /// In the order of the file.
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Column {
    /// Name in the file.
    pub name: &'static str,
    /// Type in the file.
    pub kind: Kind,
    /// Unit, or what the number counts; empty where there is none.
    pub unit: &'static str,
    /// Whether a row may have no value.
    pub nullable: bool,
    /// What it means; for a nullable column also when it is null.
    pub about: &'static str,
}

/// Type of a column. Integers are signed 64 bits throughout, so that a difference of two moments may be negative in
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
}

/// A record that is a row of a table.
pub trait Row: Clone + Send + 'static {
    /// Name of the table.
    const TABLE: &'static str;
    /// What one row is.
    const ROW: &'static str;
    /// Its columns, in the order of the file.
    const FIELDS: &'static [Field<Self>];
    /// A row of which nothing is known yet; reading fills it column by column.
    const BLANK: Self;
    /// Rows at which a part closes by itself, and rows of a row group in the joined file: bounds the memory of the
    /// writer.
    const ROWS_A_PART: usize = ROWS_A_PART_MAX;
}

/// A column and its place in the record.
pub struct Field<R: 'static> {
    /// What readers see.
    pub column: Column,
    /// How to take it from a row and put it back.
    pub cell: Cell<R>,
    /// How its values run, which decides the encoding.
    pub shape: Shape,
}

/// Takes a value from a row, and puts it back when reading. Text is put back only if it is known: `false` refuses it.
pub enum Cell<R: 'static> {
    /// For [`Kind::Integer`].
    Integer(fn(&R) -> Option<i64>, fn(&mut R, i64)),
    /// For [`Kind::Float`].
    Float(fn(&R) -> f64, fn(&mut R, f64)),
    /// For [`Kind::Flag`].
    Flag(fn(&R) -> bool, fn(&mut R, bool)),
    /// For [`Kind::Text`].
    Text(fn(&R) -> Option<Cow<'_, str>>, fn(&mut R, &str) -> bool),
}

/// How a column's values run from row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Near the value before (times, sequence numbers): stored as differences.
    Rising,
    /// Few different values: stored as a dictionary.
    Few,
    /// Neither: stored as they are.
    Any,
}

impl<R> Field<R> {
    pub(crate) const fn integer(
        name: &'static str,
        unit: &'static str,
        about: &'static str,
        take: fn(&R) -> Option<i64>,
        put: fn(&mut R, i64),
    ) -> Self {
        let column = Column { name, kind: Kind::Integer, unit, nullable: false, about };
        Field { column, cell: Cell::Integer(take, put), shape: Shape::Rising }
    }

    pub(crate) const fn float(
        name: &'static str,
        unit: &'static str,
        about: &'static str,
        take: fn(&R) -> f64,
        put: fn(&mut R, f64),
    ) -> Self {
        let column = Column { name, kind: Kind::Float, unit, nullable: false, about };
        Field { column, cell: Cell::Float(take, put), shape: Shape::Any }
    }

    pub(crate) const fn text(
        name: &'static str,
        about: &'static str,
        take: fn(&R) -> Option<Cow<'_, str>>,
        put: fn(&mut R, &str) -> bool,
    ) -> Self {
        let column = Column { name, kind: Kind::Text, unit: "", nullable: false, about };
        Field { column, cell: Cell::Text(take, put), shape: Shape::Few }
    }

    pub(crate) const fn nullable(mut self) -> Self {
        self.column.nullable = true;
        self
    }

    pub(crate) const fn few(mut self) -> Self {
        self.shape = Shape::Few;
        self
    }
}

/// The table a record belongs to, without the way to fill it.
pub(crate) fn described<R: Row>() -> Table {
    Table { name: R::TABLE, row: R::ROW, columns: R::FIELDS.iter().map(|field| field.column).collect() }
}

/// As INT64: no instant or count of a run comes near 2^63.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Back from INT64. Nothing is written negative; a file from elsewhere that holds such a value reads as 0.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_durations_carry_their_unit() {
        for table in columns() {
            let mut names: Vec<_> = table.columns.iter().map(|column| column.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
            for column in table.columns {
                assert_eq!(column.unit == "ns", column.name.ends_with("_ns"), "{}", column.name);
                assert_eq!(column.nullable, column.about.contains("Null"), "{}", column.name);
            }
        }
    }
}
