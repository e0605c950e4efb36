//! Fields of records, and their columns.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Cell, Column, ColumnDescription, Kind, Shape, Value};

/// A type of a record's field, with one or more columns.
pub trait Columns: Sized + 'static {
    /// Initial value of a field.
    const BLANK: Self;

    /// Appends the columns of `field`, which is accessed in records `R` by `get` (`None`: this record has no such
    /// field) and by `get_mut`.
    fn columns<R, G, M>(field: Field<G, M>, columns: &mut Vec<Column<R>>)
    where
        R: 'static,
        G: Fn(&R) -> Option<&Self> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut Self + Copy + Send + 'static;
}

/// A field under conversion to columns: its properties, and its access in a record.
#[derive(Clone, Debug)]
pub struct Field<G, M> {
    /// Name of the column, or prefix of the names of several columns.
    pub name: String,
    /// Unit; empty without a unit.
    pub unit: &'static str,
    /// Meaning.
    pub about: &'static str,
    /// Shape of its values; `None`: the default of its kind.
    pub shape: Option<Shape>,
    /// Whether a row may have no value although the field's type always has one; for a group, no value in any of its
    /// columns.
    pub nullable: bool,
    /// Reads the field.
    pub get: G,
    /// Returns the field for a change.
    pub get_mut: M,
}

impl<G, M> Field<G, M> {
    /// A field with access by `get`, which returns `None` if a record has no such field, and by `get_mut`.
    pub fn new<R, T>(name: &str, about: &'static str, get: G, get_mut: M) -> Self
    where
        G: Fn(&R) -> Option<&T>,
        M: Fn(&mut R) -> &mut T,
    {
        Field { name: name.to_owned(), unit: "", about, shape: None, nullable: false, get, get_mut }
    }

    /// A field of this group. If a row may have no value of the group, it may have no value of the field.
    pub fn part<R, T, U>(
        &self,
        name: &str,
        about: &'static str,
        part: impl Fn(&T) -> Option<&U> + Copy + Send + 'static,
        part_mut: impl Fn(&mut T) -> &mut U + Copy + Send + 'static,
    ) -> Field<impl Fn(&R) -> Option<&U> + Copy + Send + 'static, impl Fn(&mut R) -> &mut U + Copy + Send + 'static>
    where
        T: 'static,
        G: Fn(&R) -> Option<&T> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut T + Copy + Send + 'static,
    {
        let (get, get_mut) = (self.get, self.get_mut);
        let name = joined(&self.name, name);
        let field =
            Field::new(&name, about, move |row: &R| get(row).and_then(part), move |row: &mut R| part_mut(get_mut(row)));
        Field { nullable: self.nullable, ..field }
    }

    /// The port of an address that may be unknown.
    pub fn port(&self) -> Self
    where
        G: Copy,
        M: Copy,
    {
        let about = "Its port. Null where the address is.";
        Field { name: joined(&self.name, "port"), about, ..*self }
    }

    /// Sets another name in `group`.
    pub fn named<H, N>(self, group: &Field<H, N>, name: &str) -> Self {
        Field { name: joined(&group.name, name), ..self }
    }

    /// Sets the unit.
    pub fn unit(self, unit: &'static str) -> Self {
        Field { unit, ..self }
    }

    /// Marks the values as few and distinct, for dictionary encoding.
    pub fn few(self) -> Self {
        Field { shape: Some(Shape::Few), ..self }
    }

    /// Marks the field as nullable, although its type always has a value.
    pub fn nullable(self) -> Self {
        Field { nullable: true, ..self }
    }

    /// Appends one column: `value` converts the field into the column's value, `read` converts it back.
    pub fn column<R, T, V, S>(self, kind: Kind, nullable: bool, value: V, read: S, columns: &mut Vec<Column<R>>)
    where
        R: 'static,
        T: 'static,
        G: Fn(&R) -> Option<&T> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut T + Copy + Send + 'static,
        V: Fn(&T) -> Value<'_> + Copy + Send + 'static,
        S: Fn(&mut T, Value<'_>) -> bool + Copy + Send + 'static,
    {
        let Field { name, unit, about, shape, get, get_mut, .. } = self;
        let unit = if unit.is_empty() && name.ends_with("_ns") { "ns" } else { unit };
        let nullable = nullable || self.nullable;
        columns.push(Column {
            description: ColumnDescription { name, kind, unit, nullable, about },
            shape: shape.unwrap_or(kind.shape()),
            get: Box::new(move |row| get(row).map_or(Value::Null, value)),
            set: Box::new(move |row, value| read(get_mut(row), value)),
            collect: Box::new(move |rows, values| {
                rows.iter().for_each(|row| values.push(get(row).map_or(Value::Null, value)));
            }),
        });
    }
}

/// Name of a column of a group of fields.
fn joined(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}_{name}") }
}

impl<T: Cell> Columns for T {
    const BLANK: Self = T::BLANK;

    fn columns<R, G, M>(mut field: Field<G, M>, columns: &mut Vec<Column<R>>)
    where
        R: 'static,
        G: Fn(&R) -> Option<&Self> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut Self + Copy + Send + 'static,
    {
        field.name.push_str(T::SUFFIX);
        field.column(
            T::KIND,
            T::NULLABLE,
            T::value,
            |field, value| match T::read(value) {
                Some(value) => {
                    *field = value;
                    true
                }
                None => false,
            },
            columns,
        );
    }
}

/// An address and its port: two columns; the name of the second one ends in `_port`.
impl Columns for SocketAddr {
    const BLANK: Self = NO_ADDRESS;

    fn columns<R, G, M>(field: Field<G, M>, columns: &mut Vec<Column<R>>)
    where
        R: 'static,
        G: Fn(&R) -> Option<&Self> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut Self + Copy + Send + 'static,
    {
        let port = Field { about: "Its port.", ..field.port() };
        field.column(
            Kind::Text,
            false,
            |end: &SocketAddr| Value::Text(end.ip().to_string().into()),
            |end, value| ip_of(&value).map(|ip| end.set_ip(ip)).is_some(),
            columns,
        );
        port.column(
            Kind::Integer,
            false,
            |end: &SocketAddr| Value::Integer(end.port().into()),
            |end, value| port_of(&value).map(|port| end.set_port(port)).is_some(),
            columns,
        );
    }
}

impl Columns for Option<SocketAddr> {
    const BLANK: Self = None;

    fn columns<R, G, M>(field: Field<G, M>, columns: &mut Vec<Column<R>>)
    where
        R: 'static,
        G: Fn(&R) -> Option<&Self> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut Self + Copy + Send + 'static,
    {
        let port = field.port();
        field.column(
            Kind::Text,
            true,
            |end: &Option<SocketAddr>| end.map_or(Value::Null, |end| Value::Text(end.ip().to_string().into())),
            |end, value| ip_of(&value).map(|ip| end.get_or_insert(NO_ADDRESS).set_ip(ip)).is_some(),
            columns,
        );
        port.column(
            Kind::Integer,
            true,
            |end: &Option<SocketAddr>| end.map_or(Value::Null, |end| Value::Integer(end.port().into())),
            |end, value| port_of(&value).map(|port| end.get_or_insert(NO_ADDRESS).set_port(port)).is_some(),
            columns,
        );
    }
}

fn ip_of(value: &Value<'_>) -> Option<IpAddr> {
    if let Value::Text(text) = value { text.parse().ok() } else { None }
}

fn port_of(value: &Value<'_>) -> Option<u16> {
    if let Value::Integer(port) = *value { port.try_into().ok() } else { None }
}

const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
