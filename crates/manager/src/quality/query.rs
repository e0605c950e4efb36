//! Questions about quality over time, and their answers: what the HTTP API hands out as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rusqlite::Connection;
use schema::FineBucket;
use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::scan::{Met, Tally, Wanted, attempts, scan};
use super::sides::Sides;
use super::stored::{Rest, Series, int};
use super::windows::WINDOW_S;
use super::{QualityError, SPANS_S};

/// A question. Every field may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// From this moment on, s since 1970 (UTC), back to the begin of its span; else an hour before `until_s`.
    pub from_s: Option<u64>,
    /// Up to this moment, on to the end of its span; else now.
    pub until_s: Option<u64>,
    /// Length of the spans.
    pub resolution: Resolution,
    /// What is told apart.
    pub by: By,
    /// Of this agent alone.
    pub agent: Option<String>,
    /// Of agents that are in this group now; empty: of those in none.
    pub group: Option<String>,
    /// Of this program alone; empty: of those whose name was not known.
    pub program: Option<String>,
    /// With this peer alone: an address, or what stands for a hashed one; empty: where it was not known.
    pub peer: Option<String>,
    /// Which ends of connections.
    pub side: Sides,
    /// Whether only whole times are wanted, no spans.
    pub whole_only: bool,
}

/// Lengths of spans. All begin at full ones, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The finest that gives at most 400 spans and is still kept.
    #[default]
    Auto,
    /// 60 s.
    Minute,
    /// 3600 s.
    Hour,
    /// 86,400 s.
    Day,
    /// Of the calendar, put together from days.
    Month,
}

/// What is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Nothing: all together.
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
    /// Ends of connections.
    Side,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Begin of the first span, s since 1970.
    pub from_s: u64,
    /// End of the last.
    pub until_s: u64,
    /// Length of the spans; never `auto`.
    pub resolution: Resolution,
    /// What is told apart.
    pub by: By,
    /// Length of availability's windows.
    pub window_s: u64,
    /// By how much a quantile may be too high, as a share of it. It is never too low.
    pub quantile_error: f64,
    /// First span of this resolution that is kept at all; absent: none. What lies before is not known at this resolution.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept_from_s: Option<u64>,
    /// Those with most attempts first; the one of all others last.
    pub groups: Vec<Group>,
    /// Groups that are together in the one of all others.
    pub groups_left_out: u64,
    /// Attempts that may have been meant, and were counted where an agent's programs and peers are not told apart any more.
    pub attempts_unlisted: u64,
}

/// What belongs together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Agent, group, program, peer or side. Absent where nothing is told apart, where it is not known, and of all others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// Whether these are all others: beyond what an answer has, or beyond what is kept apart.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub others: bool,
    /// The whole time.
    pub whole: Figures,
    /// Spans in which something was, in order. One that is not here had nothing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub spans: Vec<Span>,
}

/// A span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Its begin, s since 1970.
    pub begin_s: u64,
    /// What was in it.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Spans of a finest resolution.
const SPANS_AUTO: u64 = 400;
/// Spans of an answer, whatever was asked for.
const SPANS_MAX: u64 = 1500;
/// Groups of an answer.
pub const GROUPS_MAX: usize = 500;
/// Spans of all groups of an answer together.
const CELLS_MAX: usize = 20_000;
/// What is asked for where nobody says since when.
const TIME_S: u64 = 3600;

/// What a row belongs to: `Ok` of a name (empty: not known), `Err` of all others.
pub(super) type Key = Result<String, Others>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Others;

/// Answers. `now_s` is the manager's clock, s since 1970.
///
/// # Errors
/// A question that makes no sense, with what to ask instead; SQLite's.
pub fn query(index: &Connection, query: &Query, now_s: u64) -> Result<Quality, QualityError> {
    let time = Time::of(index, query, now_s)?;
    let agents = agents_of(index, query)?;
    let groups = if query.by == By::Group { groups_of(index)? } else { BTreeMap::new() };
    let wanted = Wanted {
        span_s: time.span_s,
        from_s: time.from_s,
        until_s: time.until_s,
        sides: query.side,
        agents,
        program: query.program.clone(),
        peer: query.peer.clone(),
        by_series: matches!(query.by, By::Program | By::Peer) || query.program.is_some() || query.peer.is_some(),
    };
    let most = if query.whole_only { GROUPS_MAX } else { GROUPS_MAX.min(CELLS_MAX / time.spans.max(1)).max(1) };
    let key = |agent: &str, series: &Series<'_>| -> Key { key_of(query.by, &groups, agent, series) };
    let (found, met, left_out) = gather(index, &wanted, &time, &key, most, query.whole_only)?;
    let mut answer = Quality {
        from_s: time.from_s,
        until_s: time.until_s,
        resolution: time.resolution,
        by: query.by,
        window_s: WINDOW_S,
        quantile_error: FineBucket::WIDTH,
        kept_from_s: kept_from(index, time.span_s)?,
        groups: Vec::new(),
        groups_left_out: left_out,
        attempts_unlisted: met.unlisted,
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
        answer.groups.push(Group {
            others: key.is_err(),
            key: key.ok().filter(|name| !name.is_empty() && query.by != By::None),
            whole: Figures::of(&gathered.whole, passed(time.from_s, time.until_s)),
            spans: gathered.spans.iter().map(span).collect(),
        });
    }
    Ok(answer)
}

/// What was found of a key.
#[derive(Default)]
struct Gathered {
    whole: Tally,
    spans: BTreeMap<u64, Tally>,
}

/// Reads, with at most `most` keys of their own. Mostly there are fewer and one reading does; where there are more, it is counted
/// first which have most attempts.
fn gather(
    index: &Connection,
    wanted: &Wanted,
    time: &Time,
    key: &dyn Fn(&str, &Series<'_>) -> Key,
    most: usize,
    whole_only: bool,
) -> Result<(BTreeMap<Key, Gathered>, Met, u64), QualityError> {
    let mut chosen: Option<BTreeSet<Key>> = None;
    let mut left_out = 0;
    loop {
        let mut found: BTreeMap<Key, Gathered> = BTreeMap::new();
        let mut is_over = false;
        let named = |agent: &str, series: &Series<'_>| {
            let key = key(agent, series);
            Some(if chosen.as_ref().is_some_and(|chosen| !chosen.contains(&key)) { Err(Others) } else { key })
        };
        let outcome = scan(index, wanted, named, |begin_s, key, tally| {
            if !found.contains_key(&key) && found.len() > most {
                is_over = true;
                // Ends the reading; nobody sees these words.
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
            return outcome.map(|met| (found, met, left_out));
        }
        let counts = attempts(index, wanted, |agent, series| Some(key(agent, series)))?;
        let mut counts: Vec<(Key, u64)> = counts.into_iter().filter(|(key, _)| key.is_ok()).collect();
        counts.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        left_out = counts.len().saturating_sub(most) as u64;
        chosen = Some(counts.into_iter().take(most).map(|(key, _)| key).collect());
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

/// The agents that a question is about; `None`: all.
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

fn kept_from(index: &Connection, span_s: u64) -> rusqlite::Result<Option<u64>> {
    let mut query = index.prepare_cached("SELECT min(begin_s) FROM quality WHERE span_s = ?1 AND whole = 1")?;
    let oldest: Option<i64> = query.query_row([int(span_s)], |row| row.get(0))?;
    Ok(oldest.map(|oldest| oldest.max(0) as u64))
}

/// The time of a question, in whole spans.
struct Time {
    resolution: Resolution,
    /// Of what is read: a day for months.
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
        // Nothing at all is known of a time before anything is: that is no reason to be coarse.
        let known_from = kept_from(index, SPANS_S[2])?.map(|first| first.max(from_s));
        for (resolution, span_s) in [Resolution::Minute, Resolution::Hour, Resolution::Day].into_iter().zip(SPANS_S) {
            let is_kept = match known_from {
                None => true,
                Some(first) => kept_from(index, span_s)?.is_some_and(|kept| kept < first.saturating_add(86_400)),
            };
            let time = time(resolution);
            if time.spans as u64 <= SPANS_AUTO && (is_kept || resolution == Resolution::Day) {
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

    /// Begin of the span in which a moment lies.
    fn begin_of(&self, at_s: u64) -> u64 {
        match self.resolution {
            Resolution::Month => month(at_s, 0),
            _ => at_s / self.span_s * self.span_s,
        }
    }

    /// End of the span in which a moment lies.
    fn end_of(&self, at_s: u64) -> u64 {
        match self.resolution {
            Resolution::Month => month(at_s, 1),
            _ => (at_s / self.span_s + 1) * self.span_s,
        }
    }
}

/// Begin of the month so many after that of a moment.
fn month(at_s: u64, after: i32) -> u64 {
    let begin = || {
        let moment = jiff::Timestamp::from_second(i64::try_from(at_s).ok()?).ok()?;
        let date = moment.to_zoned(jiff::tz::TimeZone::UTC).date().first_of_month();
        let date = date.checked_add(jiff::Span::new().months(after)).ok()?;
        u64::try_from(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second()).ok()
    };
    begin().unwrap_or(at_s)
}

/// 9998-12-31: what calendars can still add a month to.
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
