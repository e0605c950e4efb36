//! The textual form of a link: a table of effects in their default order, or an array of tables in the order of travel.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};

use super::Files;
use super::error::ProfileError;
use crate::effect::read_link_table;
use crate::spec::{Bottleneck, Discipline, EffectSpec, LinkSpec, Queue, QueueLimit};
use crate::typed::{CoDelTyped, PieTyped, Rate};

/// `{ rate = .., loss = .. }`, or `[ { rate = .. }, { loss = .. } ]`.
pub(super) enum LinkTyped {
    DefaultOrder(EffectsTyped),
    AsWritten(Vec<EffectsTyped>),
}

impl Default for LinkTyped {
    fn default() -> Self {
        LinkTyped::DefaultOrder(EffectsTyped::default())
    }
}

/// Effects of one table, at most one of each key.
#[derive(Default)]
pub(super) struct EffectsTyped {
    bottleneck: BottleneckTyped,
    others: Vec<EffectSpec>,
}

/// A rate and its queue: one effect of two keys.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BottleneckTyped {
    rate: Option<Rate>,
    queue: Option<QueueTyped>,
}

/// `"64KB"`, or `{ limit = "64KB", codel = {} }`.
struct QueueTyped(Queue);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueTable {
    limit: Option<QueueLimit>,
    codel: Option<CoDelTyped>,
    pie: Option<PieTyped>,
}

/// The directory of a profile, and how to read its files.
#[derive(Clone, Copy)]
pub(super) struct Folder<'a> {
    pub(super) path: &'a Path,
    pub(super) files: Files<'a>,
}

impl LinkTyped {
    /// The effects in order of travel. `wrong` turns a sentence into an error with its location.
    pub(super) fn effects(
        self,
        folder: Folder<'_>,
        wrong: impl Fn(String) -> ProfileError,
    ) -> Result<Vec<EffectSpec>, ProfileError> {
        match self {
            LinkTyped::DefaultOrder(typed) => {
                let mut link = LinkSpec::default();
                for effect in typed.effects(folder, &wrong)? {
                    link.put(effect);
                }
                Ok(link.effects)
            }
            LinkTyped::AsWritten(steps) => {
                if steps.len() > STEPS_MAX {
                    return Err(wrong(format!("{} steps: a link may have at most {STEPS_MAX}", steps.len())));
                }
                let mut all = Vec::new();
                for (index, typed) in steps.into_iter().enumerate() {
                    let within = |message: String| wrong(format!("step {}: {message}", index + 1));
                    let number = typed.number();
                    if number != 1 {
                        return Err(within(format!(
                            "expected one effect in each step (a rate with its queue is one), found {number}"
                        )));
                    }
                    all.extend(typed.effects(folder, within)?);
                }
                Ok(all)
            }
        }
    }
}

/// Maximum number of steps, beyond any realistic link; with the effects of options and classes, below the path's
/// maximum of 250.
const STEPS_MAX: usize = 200;

impl EffectsTyped {
    /// Number of effects in the table.
    fn number(&self) -> usize {
        self.others.len() + usize::from(self.bottleneck.rate.is_some() || self.bottleneck.queue.is_some())
    }

    /// The effects that are not idle.
    fn effects(
        self,
        folder: Folder<'_>,
        wrong: impl Fn(String) -> ProfileError,
    ) -> Result<Vec<EffectSpec>, ProfileError> {
        let BottleneckTyped { rate, queue } = self.bottleneck;
        if queue.is_some() && rate.is_none() {
            return Err(wrong("a queue without a rate never fills; add a rate or remove the queue".to_owned()));
        }
        let mut effects = self.others;
        if let Some(rate) = rate {
            let queue = queue.map_or(Queue::default(), |queue| queue.0);
            effects.push(EffectSpec::Bottleneck(Bottleneck { rate: rate.spec(folder.path, folder.files)?, queue }));
        }
        effects.retain(|effect| !effect.is_idle());
        Ok(effects)
    }
}

impl<'de> Deserialize<'de> for EffectsTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_link_table(deserializer).map(|(bottleneck, others)| EffectsTyped { bottleneck, others })
    }
}

impl<'de> Deserialize<'de> for LinkTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = LinkTyped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a link: a table such as { rate = \"8Mbit\", loss = \"1%\" }, or an array of tables with one effect \
                     each, in the order of travel",
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LinkTyped, A::Error> {
                EffectsTyped::deserialize(MapAccessDeserializer::new(map)).map(LinkTyped::DefaultOrder)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, steps: A) -> Result<LinkTyped, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(steps)).map(LinkTyped::AsWritten)
            }
        }

        deserializer.deserialize_any(Typed)
    }
}

impl<'de> Deserialize<'de> for QueueTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = QueueTyped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a queue: \"64KB\", \"100 packets\", \"200ms\", or { limit = \"64KB\", codel = {} }")
            }

            fn visit_str<E: Error>(self, typed: &str) -> Result<QueueTyped, E> {
                let limit = typed.parse().map_err(E::custom)?;
                Ok(QueueTyped(Queue { limit, discipline: Discipline::DropTail }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QueueTyped, A::Error> {
                let table = QueueTable::deserialize(MapAccessDeserializer::new(map))?;
                let discipline = match (table.codel, table.pie) {
                    (None, None) => Discipline::DropTail,
                    (Some(codel), None) => codel.into(),
                    (None, Some(pie)) => pie.into(),
                    (Some(_), Some(_)) => return Err(A::Error::custom("a queue may have codel or pie, not both")),
                };
                Ok(QueueTyped(Queue { limit: table.limit.unwrap_or_default(), discipline }))
            }
        }

        deserializer.deserialize_any(Typed)
    }
}
