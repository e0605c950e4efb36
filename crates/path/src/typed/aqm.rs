//! Queue disciplines.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::parse_duration;
use units::time::text::exact;

use super::text_or_table;
use crate::spec::{CoDel, Discipline, Pie};

const EXPECTED_FORM: &str = "a discipline is codel[:TARGET[,INTERVAL]], pie[:TARGET[,UPDATE]] or drop-tail; \
                      in files also { codel = { target = \"5ms\", interval = \"100ms\" } }";

impl FromStr for Discipline {
    type Err = String;

    /// `codel`, `codel:5ms`, `codel:5ms,100ms`, the same with `pie`, or `drop-tail`.
    fn from_str(typed: &str) -> Result<Self, String> {
        let (name, times) =
            typed.trim().split_once(':').map_or((typed.trim(), None), |(name, rest)| (name, Some(rest)));
        let times = times.map_or_else(Vec::new, |times| times.split(',').map(str::trim).collect());
        let times: Vec<Duration> = times
            .into_iter()
            .map(|time| positive(parse_duration(time).map_err(|error| error.to_string())?, "a time"))
            .collect::<Result<_, String>>()
            .map_err(|error| format!("{error}; {EXPECTED_FORM}"))?;
        let (first, second) = (times.first().copied(), times.get(1).copied());
        match name {
            "codel" if times.len() <= 2 => Ok(codel(first, second)),
            "pie" if times.len() <= 2 => pie(first, second).map_err(|error| format!("{error}; {EXPECTED_FORM}")),
            "drop-tail" if times.is_empty() => Ok(Discipline::DropTail),
            _ => Err(format!("`{typed}` is not a valid discipline; {EXPECTED_FORM}")),
        }
    }
}

fn codel(target: Option<Duration>, interval: Option<Duration>) -> Discipline {
    let default = CoDel::default();
    Discipline::CoDel(CoDel {
        target: target.unwrap_or(default.target),
        interval: interval.unwrap_or(default.interval),
    })
}

fn pie(target: Option<Duration>, update: Option<Duration>) -> Result<Discipline, String> {
    let default = Pie::default();
    let update = update.unwrap_or(default.update);
    // Each update of a non-empty queue is an event: more frequent updates would saturate the path.
    if update < UPDATE_MIN {
        return Err(format!(
            "PIE updates its probability at most every {}, not every {}",
            exact(UPDATE_MIN),
            exact(update)
        ));
    }
    Ok(Discipline::Pie(Pie { target: target.unwrap_or(default.target), update }))
}

const UPDATE_MIN: Duration = Duration::from_micros(100);

fn positive(time: Duration, what: &str) -> Result<Duration, String> {
    if time.is_zero() { Err(format!("{what} of a discipline must be above 0")) } else { Ok(time) }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discipline::DropTail => f.write_str("drop-tail"),
            Discipline::CoDel(codel) if *codel == CoDel::default() => f.write_str("codel"),
            Discipline::CoDel(CoDel { target, interval }) => {
                write!(f, "codel:{},{}", exact(*target), exact(*interval))
            }
            Discipline::Pie(pie) if *pie == Pie::default() => f.write_str("pie"),
            Discipline::Pie(Pie { target, update }) => write!(f, "pie:{},{}", exact(*target), exact(*update)),
        }
    }
}

impl Serialize for Discipline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `{ codel = { .. } }` or `{ pie = { .. } }`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Table {
    Codel(CoDelTyped),
    Pie(PieTyped),
}

/// CoDel's times as typed; each is optional.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CoDelTyped {
    #[serde(default, deserialize_with = "time")]
    target: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    interval: Option<Duration>,
}

/// PIE's times as typed; each is optional.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PieTyped {
    #[serde(default, deserialize_with = "time")]
    target: Option<Duration>,
    #[serde(default, deserialize_with = "update")]
    update: Option<Duration>,
}

fn update<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let update = time(deserializer)?;
    pie(None, update).map_err(serde::de::Error::custom)?;
    Ok(update)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let time = units::time::text::deserialize(deserializer)?;
    positive(time, "a time").map(Some).map_err(serde::de::Error::custom)
}

impl From<CoDelTyped> for Discipline {
    fn from(typed: CoDelTyped) -> Self {
        codel(typed.target, typed.interval)
    }
}

impl From<PieTyped> for Discipline {
    fn from(PieTyped { target, update }: PieTyped) -> Self {
        let default = Pie::default();
        Discipline::Pie(Pie { target: target.unwrap_or(default.target), update: update.unwrap_or(default.update) })
    }
}

impl From<Table> for Discipline {
    fn from(table: Table) -> Self {
        match table {
            Table::Codel(typed) => typed.into(),
            Table::Pie(typed) => typed.into(),
        }
    }
}

impl<'de> Deserialize<'de> for Discipline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::read::<D, Discipline, Table>(deserializer, EXPECTED_FORM)
    }
}
