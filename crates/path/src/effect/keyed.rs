//! Effects by their keys: in tables of files, as options, in sequence.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer, forward_to_deserialize_any};

use super::kind::{EffectKind, OptionText, Symptom};
use super::{EffectSpec, KINDS};

/// Properties of a kind of effect that do not depend on its settings.
pub(super) struct KindProperties {
    key: &'static str,
    rank: u8,
    option: Option<OptionText>,
    symptom: Option<Symptom>,
    parse: fn(&str) -> Result<EffectSpec, String>,
    streams: &'static [u64],
}

impl KindProperties {
    pub(super) const fn of<K: EffectKind>() -> Self {
        KindProperties {
            key: K::KEY,
            rank: K::RANK,
            option: K::OPTION,
            symptom: K::SYMPTOM,
            parse: |typed| typed.parse::<K::Form>().map(K::spec).map_err(|error| error.to_string()),
            streams: K::STREAMS,
        }
    }
}

/// Two effects that shared a random sequence would depend on one another.
const _: () = {
    let mut taken = [false; 256];
    taken[crate::build::CHANGED_LOSS as usize] = true;
    let mut kind = 0;
    while kind < KINDS.len() {
        let mut at = 0;
        while at < KINDS[kind].streams.len() {
            let stream = KINDS[kind].streams[at] as usize;
            assert!(stream < taken.len() && !taken[stream], "a random sequence belongs to one effect");
            taken[stream] = true;
            at += 1;
        }
        kind += 1;
    }
};

/// An effect that can be set for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectOption {
    /// The key: in `[path]` of a plan, and with two dashes as an option.
    pub key: &'static str,
    /// The option's help text.
    pub text: OptionText,
}

/// Effects of both directions of every client's link, at most one per key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects(Vec<EffectSpec>);

impl Effects {
    /// The effects that can be set, in the order of the help.
    pub fn options() -> impl Iterator<Item = EffectOption> {
        KINDS.iter().filter_map(|kind| kind.option.map(|text| EffectOption { key: kind.key, text }))
    }

    /// Parses `typed` as the effect of `key`; `None` for an unknown key.
    pub fn parse(key: &str, typed: &str) -> Option<Result<EffectSpec, String>> {
        let kind = KINDS.iter().find(|kind| kind.key == key && kind.option.is_some())?;
        Some((kind.parse)(typed))
    }

    /// The effect of a key.
    pub fn get(&self, key: &str) -> Option<&EffectSpec> {
        self.0.iter().find(|effect| effect.key() == key)
    }

    /// Sets an effect, replacing the one of the same key.
    pub fn set(&mut self, effect: EffectSpec) {
        self.0.retain(|other| other.key() != effect.key());
        let place = |effect: &EffectSpec| KINDS.iter().position(|kind| kind.key == effect.key());
        let later = self.0.iter().position(|other| place(other) > place(&effect));
        self.0.insert(later.unwrap_or(self.0.len()), effect);
    }

    /// All effects, in the order of [`Self::options`].
    pub fn iter(&self) -> std::slice::Iter<'_, EffectSpec> {
        self.0.iter()
    }

    /// Whether no effect is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a table that has the fields of `T`, and effects.
    ///
    /// # Errors
    /// The errors of `T`; an effect with an invalid value; a key that is neither a field nor an effect.
    pub fn read_with_effects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(table: D) -> Result<(T, Self), D::Error> {
        read_with_effects(table, |kind| kind.option.is_some())
            .map(|(fields, effects)| (fields, effects.into_iter().collect()))
    }
}

impl FromIterator<EffectSpec> for Effects {
    fn from_iter<I: IntoIterator<Item = EffectSpec>>(all: I) -> Self {
        let mut effects = Effects::default();
        all.into_iter().for_each(|effect| effects.set(effect));
        effects
    }
}

impl Serialize for Effects {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|effect| effect.write(&mut table))?;
        table.end()
    }
}

#[cfg(feature = "cli")]
impl clap::Args for Effects {
    fn augment_args(command: clap::Command) -> clap::Command {
        Effects::options().fold(command, |command, EffectOption { key, text }| {
            let parse = move |typed: &str| Effects::parse(key, typed).expect("an option is an effect");
            let option = clap::Arg::new(key).long(key).value_name(text.value_name).help(text.help);
            command.arg(option.allow_hyphen_values(true).value_parser(parse))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

#[cfg(feature = "cli")]
impl clap::FromArgMatches for Effects {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        Ok(Effects::options().filter_map(|option| matches.get_one::<EffectSpec>(option.key).cloned()).collect())
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        Effects::from_arg_matches(matches)?.iter().for_each(|effect| self.set(effect.clone()));
        Ok(())
    }
}

/// All symptoms of effects, in the order of their rows.
pub fn symptoms() -> Vec<Symptom> {
    let mut symptoms: Vec<Symptom> = KINDS.iter().filter_map(|kind| kind.symptom).collect();
    symptoms.sort_by_key(|symptom| symptom.sign.order());
    symptoms
}

/// Reads a link's table that has the fields of `T`, and effects of any kind that is not a field.
pub(crate) fn read_link_table<'de, T, D>(table: D) -> Result<(T, Vec<EffectSpec>), D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    read_with_effects(table, |_| true)
}

fn read_with_effects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    table: D,
    accepts: fn(&KindProperties) -> bool,
) -> Result<(T, Vec<EffectSpec>), D::Error> {
    let mut effects = Vec::new();
    let fields = T::deserialize(TableWithEffects { table, accepts, effects: &mut effects })?;
    Ok((fields, effects))
}

/// A table whose effects go to `effects`; its visitor receives the other fields.
struct TableWithEffects<'a, T> {
    table: T,
    accepts: fn(&KindProperties) -> bool,
    effects: &'a mut Vec<EffectSpec>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for TableWithEffects<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.table.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let TableWithEffects { table, accepts, effects } = self;
        table.deserialize_map(FieldsAndEffects { visitor, fields, accepts, effects })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Splits a table between the visitor of its fields and the effects.
struct FieldsAndEffects<'a, V> {
    visitor: V,
    fields: &'static [&'static str],
    accepts: fn(&KindProperties) -> bool,
    effects: &'a mut Vec<EffectSpec>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for FieldsAndEffects<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<M: MapAccess<'de>>(self, table: M) -> Result<V::Value, M::Error> {
        let FieldsAndEffects { visitor, fields, accepts, effects } = self;
        visitor.visit_map(FieldsOnly { table, fields, accepts, effects })
    }
}

/// The fields of a table; effects are read on the way.
struct FieldsOnly<'a, M> {
    table: M,
    fields: &'static [&'static str],
    accepts: fn(&KindProperties) -> bool,
    effects: &'a mut Vec<EffectSpec>,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for FieldsOnly<'_, M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        let mut seed = Some(seed);
        loop {
            let key = KeySeed { seed: &mut seed, fields: self.fields, accepts: self.accepts, of: PhantomData };
            match self.table.next_key_seed(key)? {
                None => return Ok(None),
                Some(Key::Field(key)) => return Ok(Some(key)),
                Some(Key::Effect(key)) => self.effects.push(EffectSpec::read(key, &mut self.table)?),
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, M::Error> {
        self.table.next_value_seed(seed)
    }
}

enum Key<T> {
    Field(T),
    Effect(&'static str),
}

/// Distinguishes keys of fields from those of effects. Unknown keys are rejected while they are read, so that errors
/// have their line.
struct KeySeed<'a, 'de, K: DeserializeSeed<'de>> {
    seed: &'a mut Option<K>,
    fields: &'static [&'static str],
    accepts: fn(&KindProperties) -> bool,
    of: PhantomData<&'de ()>,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<'_, 'de, K> {
    type Value = Key<K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for KeySeed<'_, 'de, K> {
    type Value = Key<K::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        let mut effects: Vec<&KindProperties> = KINDS.iter().filter(|kind| (self.accepts)(kind)).collect();
        if self.fields.contains(&key) {
            let seed = self.seed.take().ok_or_else(|| E::custom("a field is read twice"))?;
            let key: StrDeserializer<'_, E> = key.into_deserializer();
            return seed.deserialize(key).map(Key::Field);
        }
        if let Some(kind) = effects.iter().find(|kind| kind.key == key) {
            return Ok(Key::Effect(kind.key));
        }
        effects.sort_by_key(|kind| kind.rank);
        let mut known = self.fields.to_vec();
        known.extend(effects.iter().map(|kind| kind.key));
        let mut seen = std::collections::HashSet::new();
        known.retain(|key| seen.insert(*key));
        let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
        Err(E::custom(format_args!("unknown field `{key}`, expected one of {}", known.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_listed_in_the_order_of_the_options() {
        let typed = [("reorder", "1%,5ms"), ("loss", "2%"), ("jitter", "1ms"), ("loss", "ge:1%,30%")];
        let effects: Effects =
            typed.into_iter().map(|(key, typed)| Effects::parse(key, typed).unwrap().unwrap()).collect();
        let labels: Vec<String> = effects.iter().map(EffectSpec::label).collect();
        assert_eq!(labels, ["jitter 1ms", "loss ge:0.01,0.3,100%,0", "reorder 1% by 5ms"]);
        let text = toml::to_string(&effects).unwrap();
        assert_eq!(text, "jitter = \"1ms\"\nloss = \"ge:0.01,0.3,100%,0\"\nreorder = \"0.01,5ms\"\n");
        assert!(Effects::parse("delay", "1ms").is_none() && Effects::parse("corrupt", "1").unwrap().is_err());
    }
}
