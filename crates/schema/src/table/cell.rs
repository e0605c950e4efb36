//! Field types with a single column.

use std::sync::Arc;

use units::Timestamp;

use super::escape::{escaped, unescaped};
use super::{Column, Field, Kind, Value};
use crate::explain_rows::{FrameKind, WaitCause};
use crate::share::{Cause, Confidence, Rule};
use crate::{
    CacheContent, CacheForm, ConnectionState, FailureCause, Framing, Measure, Method, RecordEnd, TapError, TapOutcome,
    TapSide, Wrong,
};

/// A field type with a single column.
pub trait Cell: Sized + 'static {
    /// Type of the column.
    const KIND: Kind;
    /// Whether the column may have no value.
    const NULLABLE: bool = false;
    /// Suffix of the column's name after the field's name.
    const SUFFIX: &'static str = "";
    /// Initial value of a field.
    const BLANK: Self;

    /// Converts the field into the column's value.
    fn value(&self) -> Value<'_>;

    /// Converts the column's value into the field; `None` if this type has no such value.
    fn read(value: Value<'_>) -> Option<Self>;
}

/// An enumeration that files store by the names of its values.
pub trait Named: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];
    /// Initial value of a field.
    const BLANK: Self;

    /// The name in files.
    fn file_name(self) -> &'static str;
}

macro_rules! named {
    ($($type:ident: $name:ident, $blank:ident;)*) => {$(
        impl Named for $type {
            const ALL: &'static [Self] = &$type::ALL;
            const BLANK: Self = $type::$blank;

            fn file_name(self) -> &'static str {
                self.$name()
            }
        }
    )*};
}

named! {
    CacheContent: name, NotLooked;
    CacheForm: name, Basic;
    Cause: as_str, Unknown;
    Confidence: as_str, Weak;
    ConnectionState: as_str, Oth;
    FailureCause: name, Aborted;
    FrameKind: as_str, Data;
    Framing: as_str, Exact;
    Measure: name, ResponseTime;
    Method: as_str, Get;
    RecordEnd: as_str, Closed;
    Rule: as_str, NoInput;
    TapOutcome: as_str, Succeeded;
    TapSide: as_str, Client;
    WaitCause: as_str, CpuLimit;
    Wrong: name, Foreign;
}

impl<T: Named> Cell for T {
    const KIND: Kind = Kind::Text;
    const BLANK: Self = T::BLANK;

    fn value(&self) -> Value<'_> {
        Value::Text(self.file_name().into())
    }

    fn read(value: Value<'_>) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        T::ALL.iter().copied().find(|known| known.file_name() == text)
    }
}

impl<T: Cell> Cell for Option<T> {
    const KIND: Kind = T::KIND;
    const NULLABLE: bool = true;
    const SUFFIX: &'static str = T::SUFFIX;
    const BLANK: Self = None;

    #[inline]
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, T::value)
    }

    fn read(value: Value<'_>) -> Option<Self> {
        T::read(value).map(Some)
    }
}

/// Values above 2^63 - 1, which no time and no count of a run reaches, are stored as 2^63 - 1.
macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Cell for $integer {
            const KIND: Kind = Kind::Integer;
            const BLANK: Self = 0;

            #[inline]
            fn value(&self) -> Value<'_> {
                Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }

            fn read(value: Value<'_>) -> Option<Self> {
                if let Value::Integer(value) = value { value.try_into().ok() } else { None }
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 i64);

impl Cell for Timestamp {
    const KIND: Kind = Kind::Integer;
    const SUFFIX: &'static str = "_ns";
    const BLANK: Self = Timestamp::ZERO;

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Integer(i64::try_from(self.as_nanos()).unwrap_or(i64::MAX))
    }

    fn read(value: Value<'_>) -> Option<Self> {
        u64::read(value).map(Timestamp::from_nanos)
    }
}

impl Cell for f64 {
    const KIND: Kind = Kind::Float;
    const BLANK: Self = 0.0;

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Float(*self)
    }

    fn read(value: Value<'_>) -> Option<Self> {
        if let Value::Float(value) = value { Some(value) } else { None }
    }
}

impl Cell for bool {
    const KIND: Kind = Kind::Flag;
    const BLANK: Self = false;

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Flag(*self)
    }

    fn read(value: Value<'_>) -> Option<Self> {
        if let Value::Flag(value) = value { Some(value) } else { None }
    }
}

/// Text, stored unchanged.
impl Cell for String {
    const KIND: Kind = Kind::Text;
    const BLANK: Self = String::new();

    fn value(&self) -> Value<'_> {
        Value::Text(self.as_str().into())
    }

    fn read(value: Value<'_>) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.into_owned()) } else { None }
    }
}

/// Untrusted bytes. Control characters, the backslash and bytes that are not UTF-8 are stored as `\xNN`.
impl Cell for Option<Arc<[u8]>> {
    const KIND: Kind = Kind::Text;
    const NULLABLE: bool = true;
    const BLANK: Self = None;

    fn value(&self) -> Value<'_> {
        self.as_deref().map_or(Value::Null, |bytes| Value::Text(escaped(bytes)))
    }

    fn read(value: Value<'_>) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        Some(Some(unescaped(&text)?.into()))
    }
}

/// Untrusted text, escaped as bytes are.
impl Cell for Option<Arc<str>> {
    const KIND: Kind = Kind::Text;
    const NULLABLE: bool = true;
    const BLANK: Self = None;

    fn value(&self) -> Value<'_> {
        self.as_deref().map_or(Value::Null, |text| Value::Text(escaped(text.as_bytes())))
    }

    fn read(value: Value<'_>) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        Some(Some(String::from_utf8(unescaped(&text)?).ok()?.into()))
    }
}

impl Cell for TapError {
    const KIND: Kind = Kind::Text;
    const BLANK: Self = TapError::NoResponse;

    fn value(&self) -> Value<'_> {
        Value::Text(self.name().into())
    }

    fn read(value: Value<'_>) -> Option<Self> {
        if let Value::Text(text) = value { TapError::from_name(&text) } else { None }
    }
}

/// A flag as an integer column: 1 or 0.
pub fn zero_or_one<R, G, M>(field: Field<G, M>, columns: &mut Vec<Column<R>>)
where
    R: 'static,
    G: Fn(&R) -> Option<&bool> + Copy + Send + 'static,
    M: Fn(&mut R) -> &mut bool + Copy + Send + 'static,
{
    let read = |flag: &mut bool, value: Value<'_>| {
        let Value::Integer(value) = value else { return false };
        *flag = value != 0;
        true
    };
    field.column(Kind::Integer, false, |flag: &bool| Value::Integer((*flag).into()), read, columns);
}

/// A time in seconds that may be unknown, as a column of whole nanoseconds.
pub fn nanoseconds<R, G, M>(field: Field<G, M>, columns: &mut Vec<Column<R>>)
where
    R: 'static,
    G: Fn(&R) -> Option<&Option<f64>> + Copy + Send + 'static,
    M: Fn(&mut R) -> &mut Option<f64> + Copy + Send + 'static,
{
    field.column(
        Kind::Integer,
        true,
        |seconds: &Option<f64>| seconds.map_or(Value::Null, |seconds| Value::Integer((seconds * 1e9).round() as i64)),
        |seconds, value| {
            let Value::Integer(nanoseconds) = value else { return false };
            *seconds = Some(nanoseconds as f64 / 1e9);
            true
        },
        columns,
    );
}
