//! The textual form of a profile, and its conversion.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use units::time::saturating_nanos;
use units::{Probability, parse_duration};

use super::class::{Class, Shared};
use super::curve::{Curve, read_sample};
use super::error::ProfileError;
use super::link::{Folder, LinkTyped};
use super::rtt::Rtt;
use super::series::read_series;
use super::{Files, Profile};
use crate::spec::{Between, DelayOverTime, EffectSpec};
use crate::typed::{PlannedChange, name_of_class};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    #[serde(default)]
    about: String,
    clients: Vec<ClassTyped>,
    #[serde(default)]
    shared: SharedTyped,
    #[serde(default)]
    changes: Vec<PlannedChange>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTyped {
    name: Option<String>,
    #[serde(deserialize_with = "units::share_of_whole")]
    share: Probability,
    rtt: RttTyped,
    #[serde(default, with = "units::time::text")]
    jitter: Duration,
    #[serde(default = "half", deserialize_with = "units::share_of_whole")]
    up_share: Probability,
    #[serde(default)]
    up: LinkTyped,
    #[serde(default)]
    down: LinkTyped,
    #[serde(default)]
    shared: SharedTyped,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedTyped {
    #[serde(default)]
    up: LinkTyped,
    #[serde(default)]
    down: LinkTyped,
}

/// `"48ms"`, or a table of one distribution.
enum RttTyped {
    Constant(Duration),
    Table(RttTable),
}

/// Exactly one of the first four keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RttTable {
    lognormal: Option<LogNormalTyped>,
    quantiles: Option<QuantilesTyped>,
    file: Option<PathBuf>,
    over_time: Option<OverTimeTyped>,
    /// With `over_time` only, as is `repeats`.
    between: Option<BetweenTyped>,
    repeats: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BetweenTyped {
    Steps,
    Lines,
}

/// `"rtts.csv"`, or the rows themselves: `[["0s", "48ms"], ["10s", "96ms"]]`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "over_time is the name of a CSV file, or rows such as [[\"0s\", \"48ms\"]]")]
enum OverTimeTyped {
    File(PathBuf),
    Rows(Vec<(TimeText, TimeText)>),
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

/// Tolerance of the sum of all shares: six decimal places, as people round.
const SHARES_TOLERANCE: f64 = 1e-6;

/// Reads `text` as the profile in `file`.
pub(super) fn parse(text: &str, file: &Path, files: Files<'_>) -> Result<Profile, ProfileError> {
    let document: Document = toml::from_str(text).map_err(|error| syntax(text, file, &error))?;
    let wrong = |message: String| ProfileError::Content { file: file.to_owned(), message };
    let total = document.clients.iter().fold(0.0, |sum, class| sum + class.share.value());
    if (total - 1.0).abs() > SHARES_TOLERANCE {
        return Err(wrong(format!("the shares of all [[clients]] add to {total}, not to 1")));
    }
    let folder = Folder { path: file.parent().unwrap_or(Path::new("")), files };
    let classes = document.clients.into_iter().enumerate().map(|(index, class)| {
        let within = |message: String| wrong(format!("[[clients]] number {}: {message}", index + 1));
        meaning(class, folder, within)
    });
    let classes: Vec<Class> = classes.collect::<Result<_, _>>()?;
    for (index, class) in classes.iter().enumerate() {
        if let Some(name) = &class.name
            && classes[..index].iter().any(|other| other.name.as_ref() == Some(name))
        {
            return Err(wrong(format!("two [[clients]] have the name `{name}`; names must differ")));
        }
    }
    let shared = shared(document.shared, folder, |message| wrong(format!("[shared] {message}")))?;
    let mut profile = Profile { name: document.name, about: document.about, classes, shared, changes: Vec::new() };
    for (index, change) in document.changes.into_iter().enumerate() {
        profile.add(change).map_err(|message| wrong(format!("[[changes]] number {}: {message}", index + 1)))?;
    }
    Ok(profile)
}

/// Converts one class.
fn meaning(
    typed: ClassTyped,
    folder: Folder<'_>,
    wrong: impl Fn(String) -> ProfileError,
) -> Result<Class, ProfileError> {
    if let Some(name) = &typed.name {
        name_of_class(name).map_err(&wrong)?;
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong(format!("the name `{name}` could be the number of a class; add a letter to it")));
        }
    }
    let link = |direction: &str, link: LinkTyped| {
        let within = |message: String| wrong(format!("{direction}: {message}"));
        let mut effects = link.effects(folder, within)?;
        let varies = |effect: &EffectSpec| matches!(effect, EffectSpec::Jitter(_));
        if !typed.jitter.is_zero() {
            if effects.iter().any(varies) {
                return Err(wrong(format!("{direction}: jitter is given here and for the whole class; leave one out")));
            }
            // Last, next to the propagation delay that it varies.
            effects.push(EffectSpec::Jitter(typed.jitter));
        }
        Ok::<_, ProfileError>(effects)
    };
    Ok(Class {
        name: typed.name,
        share: typed.share.value(),
        rtt: rtt(typed.rtt, folder, &wrong)?,
        up_share: typed.up_share.value(),
        up: link("up", typed.up)?,
        down: link("down", typed.down)?,
        shared: shared(typed.shared, folder, |message| wrong(format!("shared {message}")))?,
    })
}

/// A link that many clients share: rates and losses, no distance of its own.
fn shared(
    typed: SharedTyped,
    folder: Folder<'_>,
    wrong: impl Fn(String) -> ProfileError,
) -> Result<Shared, ProfileError> {
    let link = |direction: &str, link: LinkTyped| {
        let within = |message: String| wrong(format!("{direction}: {message}"));
        let effects = link.effects(folder, within)?;
        if effects.iter().any(EffectSpec::is_of_one_client) {
            return Err(wrong(format!(
                "{direction}: a shared link has no delay or jitter; set rtt and jitter of the clients instead"
            )));
        }
        Ok(effects)
    };
    Ok(Shared { up: link("up", typed.up)?, down: link("down", typed.down)? })
}

fn rtt(typed: RttTyped, folder: Folder<'_>, wrong: impl Fn(String) -> ProfileError) -> Result<Rtt, ProfileError> {
    let table = match typed {
        RttTyped::Constant(rtt) => return Ok(Rtt::Constant(rtt)),
        RttTyped::Table(table) => table,
    };
    if table.over_time.is_none() && (table.between.is_some() || table.repeats.is_some()) {
        return Err(wrong("rtt: between and repeats belong to over_time".to_owned()));
    }
    let at = |file: PathBuf| folder.path.join(file);
    match (table.lognormal, table.quantiles, table.file, table.over_time) {
        (Some(typed), None, None, None) => log_normal(typed).map_err(&wrong),
        (None, Some(QuantilesTyped::File(file)), None, None) => {
            Ok(Rtt::Quantiles(Curve::read(&at(file), folder.files)?))
        }
        (None, Some(QuantilesTyped::Rows(rows)), None, None) => {
            let within = |(index, message)| wrong(format!("quantiles, row {}: {message}", index + 1));
            Ok(Rtt::Quantiles(Curve::new(rows).map_err(within)?))
        }
        (None, None, Some(file), None) => Ok(Rtt::Sample(read_sample(&at(file), folder.files)?)),
        (None, None, None, Some(typed)) => {
            let between = match table.between {
                Some(BetweenTyped::Lines) => Between::Lines,
                Some(BetweenTyped::Steps) | None => Between::Steps,
            };
            let repeats = table.repeats.unwrap_or(false);
            let series = match typed {
                OverTimeTyped::File(file) => read_series(&at(file), folder.files, between, repeats)?,
                OverTimeTyped::Rows(rows) => {
                    let points = rows.into_iter().map(|(TimeText(time), TimeText(rtt))| (time, rtt)).collect();
                    DelayOverTime::new(points, between, repeats)
                        .map_err(|(index, message)| wrong(format!("over_time, row {}: {message}", index + 1)))?
                }
            };
            Ok(Rtt::OverTime(series))
        }
        _ => Err(wrong("rtt: expected exactly one of lognormal, quantiles, file, over_time".to_owned())),
    }
}

fn log_normal(LogNormalTyped { median, sigma, min, max }: LogNormalTyped) -> Result<Rtt, String> {
    let (min, max) = (min.unwrap_or(Duration::ZERO), max.unwrap_or(RTT_MAX));
    if median.is_zero() {
        return Err("lognormal: the median must be above 0".to_owned());
    }
    // e^(10 x 8): beyond any realistic distance.
    if !(0.0..=10.0).contains(&sigma) {
        return Err(format!("lognormal: sigma is {sigma}, but must be from 0 to 10"));
    }
    if min > max {
        return Err("lognormal: min is above max".to_owned());
    }
    Ok(Rtt::LogNormal { median, sigma, min, max })
}

/// Upper bound of a log-normal distribution without `max`: the longest duration that can be typed.
pub(super) const RTT_MAX: Duration = Duration::from_secs(3_600_000);

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
                f.write_str("an RTT such as \"48ms\", or { lognormal = .. }, { quantiles = .. }, { file = \"..\" }, { over_time = .. }")
            }

            fn visit_str<E: Error>(self, typed: &str) -> Result<RttTyped, E> {
                parse_duration(typed).map(RttTyped::Constant).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RttTyped, A::Error> {
                RttTable::deserialize(MapAccessDeserializer::new(map)).map(RttTyped::Table)
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
                while let Some((quantile, TimeText(rtt))) = typed.next_element::<(f64, TimeText)>()? {
                    rows.push((quantile, saturating_nanos(rtt)));
                }
                Ok(QuantilesTyped::Rows(rows))
            }
        }

        deserializer.deserialize_any(Typed)
    }
}

/// A time with its unit.
#[derive(Deserialize)]
#[serde(transparent)]
struct TimeText(#[serde(with = "units::time::text")] Duration);
