//! A profile as typed, and what it means.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use units::time::saturating_nanos;
use units::{BitRate, Bytes, Limit, Probability, parse_duration};

use super::curve::{Curve, read_sample};
use super::error::ProfileError;
use super::rtt::Rtt;
use super::{Access, Class, Files, Profile};
use crate::spec::QueueLimit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    #[serde(default)]
    about: String,
    clients: Vec<ClassTyped>,
    shared: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTyped {
    share: Probability,
    rtt: RttTyped,
    #[serde(default, with = "units::time::text")]
    variation: Duration,
    #[serde(default = "half")]
    up_share: Probability,
    #[serde(default)]
    up: AccessTyped,
    #[serde(default)]
    down: AccessTyped,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessTyped {
    rate: Option<BitRate>,
    queue: Option<QueueTyped>,
    loss: Option<LossTyped>,
}

/// `"48ms"`, or a table of one distribution.
enum RttTyped {
    Constant(Duration),
    Distribution(Distribution),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Distribution {
    Lognormal(LogNormalTyped),
    Quantiles(QuantilesTyped),
    File(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogNormalTyped {
    #[serde(with = "units::time::text")]
    median: Duration,
    sigma: f64,
    #[serde(default, with = "units::time::text::option")]
    min: Option<Duration>,
    #[serde(default, with = "units::time::text::option")]
    max: Option<Duration>,
}

/// `"curve.csv"`, or the rows themselves: `[[0.1, "9ms"], [0.5, "48ms"]]`.
enum QuantilesTyped {
    File(PathBuf),
    Rows(Vec<(f64, u64)>),
}

/// `"64KB"` or `"200ms"`.
struct QueueTyped(QueueLimit);

/// A probability; the table of a loss model is refused by its name.
struct LossTyped(Probability);

/// Shares may miss 1 by this much: six decimal places, as people round.
const SHARES_TOLERANCE: f64 = 1e-6;

/// Reads `text` as the profile in `file`.
pub(super) fn parse(text: &str, file: &Path, files: Files<'_>) -> Result<Profile, ProfileError> {
    let document: Document = toml::from_str(text).map_err(|error| syntax(text, file, &error))?;
    let wrong = |message: String| ProfileError::Content { file: file.to_owned(), message };
    if document.shared.is_some() {
        return Err(wrong("[shared] (an access link all clients share) is not supported yet; leave it out".to_owned()));
    }
    let total = document.clients.iter().fold(0.0, |sum, class| sum + class.share.value());
    if (total - 1.0).abs() > SHARES_TOLERANCE {
        return Err(wrong(format!("the shares of all [[clients]] add to {total}, not to 1")));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let classes = document.clients.into_iter().enumerate().map(|(index, class)| {
        let within = |message: String| wrong(format!("[[clients]] number {}: {message}", index + 1));
        meaning(class, folder, files, within)
    });
    Ok(Profile { name: document.name, about: document.about, classes: classes.collect::<Result<_, _>>()? })
}

/// What one class means.
fn meaning(
    typed: ClassTyped,
    folder: &Path,
    files: Files<'_>,
    wrong: impl Fn(String) -> ProfileError,
) -> Result<Class, ProfileError> {
    let access = |direction: &str, typed: AccessTyped| {
        if typed.queue.is_some() && typed.rate.is_none() {
            return Err(wrong(format!("{direction}: a queue without a rate never fills; give a rate or leave it out")));
        }
        Ok(Access {
            rate: typed.rate.map_or(Limit::Unlimited, Limit::At),
            queue: typed.queue.map_or(QueueLimit::DEFAULT, |queue| queue.0),
            loss: typed.loss.map_or(Probability::ZERO, |loss| loss.0),
        })
    };
    let rtt = match typed.rtt {
        RttTyped::Constant(rtt) => Rtt::Constant(rtt),
        RttTyped::Distribution(Distribution::Lognormal(typed)) => log_normal(typed).map_err(&wrong)?,
        RttTyped::Distribution(Distribution::Quantiles(QuantilesTyped::File(file))) => {
            Rtt::Quantiles(Curve::read(&folder.join(file), files)?)
        }
        RttTyped::Distribution(Distribution::Quantiles(QuantilesTyped::Rows(rows))) => {
            let within = |(index, message)| wrong(format!("quantiles, row {}: {message}", index + 1));
            Rtt::Quantiles(Curve::new(rows).map_err(within)?)
        }
        RttTyped::Distribution(Distribution::File(file)) => Rtt::Sample(read_sample(&folder.join(file), files)?),
    };
    Ok(Class {
        share: typed.share.value(),
        rtt,
        variation: typed.variation,
        up_share: typed.up_share.value(),
        up: access("up", typed.up)?,
        down: access("down", typed.down)?,
    })
}

fn log_normal(LogNormalTyped { median, sigma, min, max }: LogNormalTyped) -> Result<Rtt, String> {
    let (min, max) = (min.unwrap_or(Duration::ZERO), max.unwrap_or(LONGEST));
    if median.is_zero() {
        return Err("lognormal: the median must be above 0".to_owned());
    }
    // e^(10 x 8): beyond anything that is a distance.
    if !(0.0..=10.0).contains(&sigma) {
        return Err(format!("lognormal: sigma is {sigma}, but must be from 0 to 10"));
    }
    if min > max {
        return Err("lognormal: min is above max".to_owned());
    }
    Ok(Rtt::LogNormal { median, sigma, min, max })
}

/// Where a log-normal distribution without `max` is cut: as far as a typed duration goes.
pub(super) const LONGEST: Duration = Duration::from_secs(3_600_000);

fn half() -> Probability {
    Probability::new(0.5).expect("one half is a probability")
}

/// TOML's own message with file and line, on one line.
fn syntax(text: &str, file: &Path, error: &toml::de::Error) -> ProfileError {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => {
            let line = text.bytes().take(span.start).filter(|&byte| byte == b'\n').count() + 1;
            ProfileError::Line { file: file.to_owned(), line, message }
        }
        None => ProfileError::Content { file: file.to_owned(), message },
    }
}

impl<'de> Deserialize<'de> for RttTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = RttTyped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RTT such as \"48ms\", or { lognormal = .. }, { quantiles = .. }, { file = \"..\" }")
            }

            fn visit_str<E: Error>(self, typed: &str) -> Result<RttTyped, E> {
                parse_duration(typed).map(RttTyped::Constant).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RttTyped, A::Error> {
                Distribution::deserialize(MapAccessDeserializer::new(map)).map(RttTyped::Distribution)
            }
        }

        deserializer.deserialize_any(Typed)
    }
}

impl<'de> Deserialize<'de> for QuantilesTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = QuantilesTyped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a CSV file, or rows such as [[0.1, \"9ms\"], [0.5, \"48ms\"]]")
            }

            fn visit_str<E: Error>(self, typed: &str) -> Result<QuantilesTyped, E> {
                Ok(QuantilesTyped::File(typed.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut typed: A) -> Result<QuantilesTyped, A::Error> {
                let mut rows = Vec::new();
                while let Some((quantile, RttText(rtt))) = typed.next_element::<(f64, RttText)>()? {
                    rows.push((quantile, saturating_nanos(rtt)));
                }
                Ok(QuantilesTyped::Rows(rows))
            }
        }

        deserializer.deserialize_any(Typed)
    }
}

/// One RTT with its unit.
#[derive(Deserialize)]
#[serde(transparent)]
struct RttText(#[serde(with = "units::time::text")] Duration);

impl<'de> Deserialize<'de> for QueueTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let typed = String::deserialize(deserializer)?;
        let bytes = typed.parse::<Bytes>().map(QueueLimit::Bytes);
        let limit = bytes.or_else(|_| parse_duration(&typed).map(QueueLimit::Time));
        limit.map(QueueTyped).map_err(|_| {
            D::Error::custom(format!("`{typed}` is not a queue limit; it is written like 64KB (bytes) or 200ms (time)"))
        })
    }
}

impl<'de> Deserialize<'de> for LossTyped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;

        impl<'de> Visitor<'de> for Typed {
            type Value = LossTyped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a probability such as 0.01 or \"1%\"")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<LossTyped, E> {
                Probability::new(value)
                    .map(LossTyped)
                    .ok_or_else(|| E::custom(format!("{value} is not a probability, from 0 to 1")))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<LossTyped, E> {
                self.visit_f64(value as f64)
            }

            fn visit_str<E: Error>(self, typed: &str) -> Result<LossTyped, E> {
                typed.parse().map(LossTyped).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LossTyped, A::Error> {
                match map.next_key::<String>()? {
                    Some(model) if model == "gilbert_elliott" => Err(A::Error::custom(
                        "loss by gilbert_elliott is not supported yet; give a probability such as 0.01",
                    )),
                    _ => Err(A::Error::custom("loss is a probability such as 0.01 or \"1%\"")),
                }
            }
        }

        deserializer.deserialize_any(Typed)
    }
}
