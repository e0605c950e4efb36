//! Queries about quality over time, and their results, as returned by the HTTP API.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rusqlite::Connection;
use schema::FineBucket;
use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::scan::{RowSelection, ScanStats, Tally, attempts, scan};
use super::sides::Sides;
use super::stored::{Rest, Series, int};
use super::windows::WINDOW_S;
use super::{QualityError, SPANS_S};

/// A query. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// Start, s since 1970 (UTC), rounded down to a span; default: an hour before `until_s`.
    pub from_s: Option<u64>,
    /// End, rounded up to a span; default: now.
    pub until_s: Option<u64>,
    /// Length of the spans.
    pub resolution: Resolution,
    /// Grouping.
    pub by: By,
    /// Only this agent.
    pub agent: Option<String>,
    /// Only agents currently in this group; empty: those without a group.
    pub group: Option<String>,
    /// Only this program; empty: those of unknown name.
    pub program: Option<String>,
    /// Only this peer: an address, or a hash; empty: unknown peers.
    pub peer: Option<String>,
    /// Side of the connections.
    pub side: Sides,
    /// Whether only whole times are requested, no spans.
    pub whole_only: bool,
}

/// Lengths of spans, aligned to UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The finest that gives at most 400 spans and is still stored.
    #[default]
    Auto,
    /// 60 s.
    Minute,
    /// 3600 s.
    Hour,
    /// 86,400 s.
    Day,
    /// Calendar months, summed from days.
    Month,
}

/// Grouping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// No grouping.
    #[default]
    None,
    /// Agents.
    Agent,
    /// Groups of agents, as they are now.
    Group,
    /// Programs, by name.
    Program,
    /// Peers, by address.
    Peer,
    /// Sides of connections.
    Side,
}

/// The result of a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Start of the first span, s since 1970.
    pub from_s: u64,
    /// End of the last span.
    pub until_s: u64,
    /// Length of the spans; never `auto`.
    pub resolution: Resolution,
    /// Grouping.
    pub by: By,
    /// Length of the windows of availability.
    pub window_s: u64,
    /// Maximum relative error of a quantile upward. It is never too low.
    pub quantile_error: f64,
    /// First stored span of this resolution; absent: none. Earlier data is not available at this resolution.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept_from_s: Option<u64>,
    /// Groups with most attempts first; the sum of all others last.
    pub groups: Vec<Group>,
    /// Number of groups in the sum of all others.
    pub groups_left_out: u64,
    /// Attempts that may match, but whose programs and peers are no longer stored separately.
    pub attempts_unlisted: u64,
}

/// A group of series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Agent, group, program, peer or side. Absent without grouping, if unknown, and for all others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// Whether this is the sum of all others: beyond the limit of a result, or of stored series.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub others: bool,
    /// The whole time.
    pub whole: Figures,
    /// Spans with attempts, in order. Missing spans had none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub spans: Vec<Span>,
}

/// A span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Start of the span, s since 1970.
    pub begin_s: u64,
    /// Figures of the span.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Target spans of the automatic resolution.
const SPANS_AUTO: u64 = 400;
/// Maximum spans of a result.
const SPANS_MAX: u64 = 1500;
/// Maximum groups of a result.
pub const GROUPS_MAX: usize = 500;
/// Maximum spans of all groups of a result together.
const CELLS_MAX: usize = 20_000;
/// Default length of the time.
const TIME_S: u64 = 3600;

/// The group of a row: `Ok` with a name (empty: unknown), `Err` for all others.
pub(super) type Key = Result<String, Others>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Others;

/// Runs the query. `now_s` is the manager's clock, s since 1970.
///
/// # Errors
/// An invalid query, with what to do; SQLite's.
pub fn query(index: &Connection, query: &Query, now_s: u64) -> Result<Quality, QualityError> {
    let time = Time::of(index, query, now_s)?;
    let agents = agents_of(index, query)?;
    let groups = if query.by == By::Group { groups_of(index)? } else { BTreeMap::new() };
    let selection = RowSelection {
        span_s: time.span_s,
        from_s: time.from_s,
        until_s: time.until_s,
        sides: query.side,
        agents,
        program: query.program.clone(),
        peer: query.peer.clone(),
        by_series: matches!(query.by, By::Program | By::Peer) || query.program.is_some() || query.peer.is_some(),
    };
    let groups_max = if query.whole_only { GROUPS_MAX } else { GROUPS_MAX.min(CELLS_MAX / time.spans.max(1)).max(1) };
    let key = |agent: &str, series: &Series<'_>| -> Key { key_of(query.by, &groups, agent, series) };
    let (found, stats, groups_merged) = gather(index, &selection, &time, &key, groups_max, query.whole_only)?;
    let mut result = Quality {
        from_s: time.from_s,
        until_s: time.until_s,
        resolution: time.resolution,
        by: query.by,
        window_s: WINDOW_S,
        quantile_error: FineBucket::WIDTH,
        kept_from_s: first_stored_s(index, time.span_s)?,
        groups: Vec::new(),
        groups_left_out: groups_merged,
        attempts_unlisted: stats.unlisted,
    };
    let mut found: Vec<(Key, Gathered)> = found.into_iter().collect();
    found.sort_by(|(a, x), (b, y)| {
        let order = |key: &Key, gathered: &Gathered| (key.is_err(), std::cmp::Reverse(gathered.whole.sums.attempts));
        order(a, x).cmp(&order(b, y)).then_with(|| a.cmp(b))
    });
    for (key, gathered) in found {
        let passed = |begin_s: u64, end_s: u64| end_s.min(now_s).saturating_sub(begin_s);
        let span = |(&begin_s, tally): (&u64, &Tally)| Span {
            begin_s,
            figures: Figures::of(tally, passed(begin_s, time.end_of(begin_s))),
        };
        result.groups.push(Group {
            others: key.is_err(),
            key: key.ok().filter(|name| !name.is_empty() && query.by != By::None),
            whole: Figures::of(&gathered.whole, passed(time.from_s, time.until_s)),
            spans: gathered.spans.iter().map(span).collect(),
        });
    }
    Ok(result)
}

/// The figures of a key.
#[derive(Default)]
struct Gathered {
    whole: Tally,
    spans: BTreeMap<u64, Tally>,
}

/// Reads, with at most `groups_max` separate keys. Usually there are fewer and one pass suffices; otherwise a first
/// pass counts which have most attempts.
fn gather(
    index: &Connection,
    selection: &RowSelection,
    time: &Time,
    key: &dyn Fn(&str, &Series<'_>) -> Key,
    groups_max: usize,
    whole_only: bool,
) -> Result<(BTreeMap<Key, Gathered>, ScanStats, u64), QualityError> {
    let mut chosen: Option<BTreeSet<Key>> = None;
    let mut groups_merged = 0;
    loop {
        let mut found: BTreeMap<Key, Gathered> = BTreeMap::new();
        let mut is_over = false;
        let named = |agent: &str, series: &Series<'_>| {
            let key = key(agent, series);
            Some(if chosen.as_ref().is_some_and(|chosen| !chosen.contains(&key)) { Err(Others) } else { key })
        };
        let outcome = scan(index, selection, named, |begin_s, key, tally| {
            if !found.contains_key(&key) && found.len() > groups_max {
                is_over = true;
                // The error ends the scan; its text is not used.
                return Err(QualityError::InvalidQuery(String::new()));
            }
            let gathered = found.entry(key).or_default();
            gathered.whole.merge(&tally);
            if !whole_only {
                gathered.spans.entry(time.begin_of(begin_s)).or_default().merge(&tally);
            }
            Ok(())
        });
        if !is_over || chosen.is_some() {
            return outcome.map(|stats| (found, stats, groups_merged));
        }
        let counts = attempts(index, selection, |agent, series| Some(key(agent, series)))?;
        let mut counts: Vec<(Key, u64)> = counts.into_iter().filter(|(key, _)| key.is_ok()).collect();
        counts.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        groups_merged = counts.len().saturating_sub(groups_max) as u64;
        chosen = Some(counts.into_iter().take(groups_max).map(|(key, _)| key).collect());
    }
}

pub(super) fn key_of(by: By, groups: &BTreeMap<String, String>, agent: &str, series: &Series<'_>) -> Key {
    match by {
        By::None => Ok(String::new()),
        By::Agent => Ok(agent.to_owned()),
        By::Group => Ok(groups.get(agent).cloned().unwrap_or_default()),
        By::Side => Ok(series.side.to_owned()),
        By::Program if series.rest == Rest::Programs => Err(Others),
        By::Program => Ok(series.program.to_owned()),
        By::Peer if series.rest != Rest::None => Err(Others),
        By::Peer => Ok(series.peer.to_owned()),
    }
}

/// Agents and their groups, as they are now.
pub(super) fn groups_of(index: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut query = index.prepare_cached("SELECT name, \"group\" FROM agents")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// The agents of a query; `None`: all.
fn agents_of(index: &Connection, query: &Query) -> rusqlite::Result<Option<BTreeSet<String>>> {
    named_agents(index, query.agent.as_deref(), query.group.as_deref())
}

/// The agents of this name and in this group; `None`: all.
pub(crate) fn named_agents(
    index: &Connection,
    agent: Option<&str>,
    group: Option<&str>,
) -> rusqlite::Result<Option<BTreeSet<String>>> {
    let Some(group) = group else { return Ok(agent.map(|agent| [agent.to_owned()].into())) };
    let of_group = groups_of(index)?.into_iter().filter(|(_, of)| of == group).map(|(name, _)| name);
    Ok(Some(of_group.filter(|name| agent.is_none_or(|agent| agent == name)).collect()))
}

fn first_stored_s(index: &Connection, span_s: u64) -> rusqlite::Result<Option<u64>> {
    let mut query = index.prepare_cached("SELECT min(begin_s) FROM quality WHERE span_s = ?1 AND whole = 1")?;
    let oldest: Option<i64> = query.query_row([int(span_s)], |row| row.get(0))?;
    Ok(oldest.map(|oldest| oldest.max(0) as u64))
}

/// The time of a query, in whole spans.
struct Time {
    resolution: Resolution,
    /// Length of the spans that are read: a day for months.
    span_s: u64,
    from_s: u64,
    until_s: u64,
    spans: usize,
}

impl Time {
    fn of(index: &Connection, query: &Query, now_s: u64) -> Result<Time, QualityError> {
        let until_s = query.until_s.unwrap_or(now_s);
        let from_s = query.from_s.unwrap_or(until_s.saturating_sub(TIME_S));
        if until_s <= from_s {
            return Err(QualityError::InvalidQuery("from_s must be before until_s".to_owned()));
        }
        if until_s > LAST_S {
            return Err(QualityError::InvalidQuery(format!(
                "until_s is after the year 9998: expected at most {LAST_S}, in seconds since 1970"
            )));
        }
        let time = |resolution| Time::in_spans(resolution, from_s, until_s);
        if query.resolution != Resolution::Auto {
            let time = time(query.resolution);
            if time.spans as u64 > SPANS_MAX {
                return Err(QualityError::InvalidQuery(format!(
                    "{} spans exceed the maximum of {SPANS_MAX}: choose a shorter time, or a coarser resolution",
                    time.spans
                )));
            }
            return Ok(time);
        }
        // Without any stored data there is no reason for a coarse resolution.
        let known_from = first_stored_s(index, SPANS_S[2])?.map(|first| first.max(from_s));
        for (resolution, span_s) in [Resolution::Minute, Resolution::Hour, Resolution::Day].into_iter().zip(SPANS_S) {
            let is_stored = match known_from {
                None => true,
                Some(first) => {
                    first_stored_s(index, span_s)?.is_some_and(|stored_from| stored_from < first.saturating_add(86_400))
                }
            };
            let time = time(resolution);
            if time.spans as u64 <= SPANS_AUTO && (is_stored || resolution == Resolution::Day) {
                return Ok(time);
            }
        }
        Ok(time(Resolution::Month))
    }

    fn in_spans(resolution: Resolution, from_s: u64, until_s: u64) -> Time {
        let span_s = match resolution {
            Resolution::Minute => SPANS_S[0],
            Resolution::Hour => SPANS_S[1],
            _ => SPANS_S[2],
        };
        let mut time = Time { resolution, span_s, from_s: 0, until_s: 0, spans: 0 };
        time.from_s = time.begin_of(from_s);
        time.until_s = time.end_of(until_s - 1);
        let length = if resolution == Resolution::Month { 28 * span_s } else { span_s };
        time.spans = ((time.until_s - time.from_s) / length) as usize;
        time
    }

    /// Start of the span that contains a time.
    fn begin_of(&self, at_s: u64) -> u64 {
        match self.resolution {
            Resolution::Month => month(at_s, 0),
            _ => at_s / self.span_s * self.span_s,
        }
    }

    /// End of the span that contains a time.
    fn end_of(&self, at_s: u64) -> u64 {
        match self.resolution {
            Resolution::Month => month(at_s, 1),
            _ => (at_s / self.span_s + 1) * self.span_s,
        }
    }
}

/// Start of the month this number of months after that of a time.
fn month(at_s: u64, after: i32) -> u64 {
    let begin = || {
        let timestamp = jiff::Timestamp::from_second(i64::try_from(at_s).ok()?).ok()?;
        let date = timestamp.to_zoned(jiff::tz::TimeZone::UTC).date().first_of_month();
        let date = date.checked_add(jiff::Span::new().months(after)).ok()?;
        u64::try_from(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second()).ok()
    };
    begin().unwrap_or(at_s)
}

/// 9998-12-31: calendar functions can still add a month.
pub(super) const LAST_S: u64 = 253_370_678_400;

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::None => "none",
            By::Agent => "agent",
            By::Group => "group",
            By::Program => "program",
            By::Peer => "peer",
            By::Side => "side",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_the_calendar() {
        let of = |at_s| Time::in_spans(Resolution::Month, at_s, at_s + 1);
        // 2024-02-29 12:00 UTC.
        let time = of(1_709_208_000);
        assert_eq!((time.from_s, time.until_s, time.span_s), (1_706_745_600, 1_709_251_200, 86_400));
        assert_eq!(of(0).from_s, 0);
        assert_eq!(of(LAST_S).until_s - of(LAST_S).from_s, 31 * 86_400);
    }

    #[test]
    fn spans_begin_and_end_on_full_units() {
        let time = Time::in_spans(Resolution::Hour, 3599, 7201);
        assert_eq!((time.from_s, time.until_s, time.spans), (0, 10_800, 3));
        let time = Time::in_spans(Resolution::Minute, 60, 120);
        assert_eq!((time.from_s, time.until_s, time.spans), (60, 120, 1));
    }
}
