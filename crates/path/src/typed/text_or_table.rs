//! Values that are written as text, as a number, or as a table.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Reads a value in its command-line form, or as the table `T`. A number is read as its text, so that `0.01` needs no
/// quotes.
pub(crate) fn read<'de, D, V, T>(deserializer: D, expecting: &'static str) -> Result<V, D::Error>
where
    D: Deserializer<'de>,
    V: FromStr<Err: fmt::Display>,
    T: Deserialize<'de> + Into<V>,
{
    struct Typed<V, T>(&'static str, PhantomData<(V, T)>);

    impl<'de, V: FromStr<Err: fmt::Display>, T: Deserialize<'de> + Into<V>> Visitor<'de> for Typed<V, T> {
        type Value = V;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, typed: &str) -> Result<V, E> {
            typed.parse().map_err(E::custom)
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<V, E> {
            self.visit_str(&value.to_string())
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<V, E> {
            self.visit_str(&value.to_string())
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
        }
    }

    deserializer.deserialize_any(Typed::<V, T>(expecting, PhantomData))
}
