//! Rules in the index: put, removed, listed, and judged minute after minute.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};

use super::events::{self, Event};
use super::machine::{Instance, State, step};
use super::rule::Rule;
use super::values::{Losses, Moment, values};
use super::{RULES_MAX, SUBJECTS_MAX};

/// Why a rule was not put.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlertError {
    /// The rule makes no sense: the asker can mend it.
    #[error("{0}")]
    Asked(String),
    /// The index cannot be changed.
    #[error("changing the index: {0}")]
    Index(#[from] rusqlite::Error),
}

/// A rule and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The rule.
    pub rule: Rule,
    /// The worst of its subjects: firing, pending, fine, no data.
    pub state: State,
    /// End of the last minute that was judged, s since 1970; absent: none yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evaluated_s: Option<u64>,
    /// Why it could not be judged, where that is so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<String>,
    /// The worst first; at most [`LISTED_MAX`].
    pub subjects: Vec<Subject>,
    /// Those that are not listed.
    pub subjects_left_out: u64,
}

/// What a rule looks at by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Its name; empty where the rule looks at all together, or where it is not known.
    pub subject: String,
    /// How it stands.
    #[serde(flatten)]
    pub instance: Instance,
    /// The value in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value_text: Option<String>,
}

/// Subjects of a rule in a list.
pub const LISTED_MAX: usize = 100;

/// How a rule stands, as kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Standing {
    evaluated_s: u64,
    subjects: BTreeMap<String, Instance>,
    #[serde(default)]
    losses: Losses,
    #[serde(default)]
    trouble: Option<String>,
}

/// Puts a rule, in place of one of its name. One that is not the same begins anew: what fired by the old one is over.
///
/// # Errors
/// A rule that makes no sense, one too many; SQLite's.
pub fn put(change: &Transaction<'_>, rule: &Rule, now_s: u64) -> Result<(), AlertError> {
    rule.limits().map_err(AlertError::Asked)?;
    let text = serde_json::to_string(rule).map_err(|error| AlertError::Asked(error.to_string()))?;
    let known =
        change.query_row("SELECT rule FROM alerts WHERE name = ?1", [&rule.name], |row| row.get::<_, String>(0));
    match known.optional()? {
        Some(known) if known == text => return Ok(()),
        Some(_) => end(change, &rule.name, now_s, "the rule was changed")?,
        None => {
            let count = change.query_row("SELECT count(*) FROM alerts", [], |row| row.get::<_, i64>(0))?;
            if count >= RULES_MAX as i64 {
                return Err(AlertError::Asked(format!(
                    "there are {RULES_MAX} rules, which is as many as there may be: remove one"
                )));
            }
        }
    }
    let standing = serde_json::to_string(&Standing::default()).unwrap_or_default();
    change.execute(
        "INSERT OR REPLACE INTO alerts (name, rule, standing) VALUES (?1, ?2, ?3)",
        params![rule.name, text, standing],
    )?;
    Ok(())
}

/// Removes a rule; what fired by it is over. Returns whether there was one.
///
/// # Errors
/// SQLite's.
pub fn remove(change: &Transaction<'_>, name: &str, now_s: u64) -> Result<bool, AlertError> {
    end(change, name, now_s, "the rule was removed")?;
    Ok(change.execute("DELETE FROM alerts WHERE name = ?1", [name])? > 0)
}

fn end(change: &Transaction<'_>, name: &str, now_s: u64, why: &str) -> rusqlite::Result<()> {
    let known = rows(change)?.into_iter().find(|row| row.rule.name == name);
    let Some(Row { rule, standing, .. }) = known else { return Ok(()) };
    let firing = standing.subjects.iter().filter(|(_, instance)| instance.firing_since_s.is_some());
    let ended: Vec<Event> =
        firing.map(|(subject, instance)| Event::ended(&rule, subject, instance, now_s, why)).collect();
    events::keep(change, &ended)
}

/// Every rule and how it stands, by name.
///
/// # Errors
/// SQLite's.
pub fn list(index: &Connection) -> rusqlite::Result<Vec<Alert>> {
    let listed = |row: Row| {
        let Row { rule, standing, .. } = row;
        let mut subjects: Vec<(String, Instance)> = standing.subjects.into_iter().collect();
        let total = subjects.len();
        // What fired and has no data now is not over.
        let weight =
            |instance: &Instance| if instance.firing_since_s.is_some() { State::Firing } else { instance.state };
        let state = subjects.iter().map(|(_, instance)| weight(instance)).max().unwrap_or_default();
        subjects.sort_by(|(a, x), (b, y)| weight(y).cmp(&weight(x)).then_with(|| a.cmp(b)));
        subjects.truncate(LISTED_MAX);
        let subject = |(subject, instance): (String, Instance)| Subject {
            subject,
            value_text: instance.value.map(|value| rule.metric.text(value)),
            instance,
        };
        Alert {
            state,
            evaluated_s: (standing.evaluated_s > 0).then_some(standing.evaluated_s),
            trouble: standing.trouble,
            subjects_left_out: (total - subjects.len()) as u64,
            subjects: subjects.into_iter().map(subject).collect(),
            rule,
        }
    };
    Ok(rows(index)?.into_iter().map(listed).collect())
}

struct Row {
    rule: Rule,
    /// As it stands in the index.
    text: String,
    standing: Standing,
}

fn rows(index: &Connection) -> rusqlite::Result<Vec<Row>> {
    let mut query = index.prepare_cached("SELECT rule, standing FROM alerts ORDER BY name")?;
    let texts = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let broken = |error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
    };
    texts
        .map(|texts| {
            let (text, standing) = texts?;
            let rule = serde_json::from_str(&text).map_err(broken)?;
            // A standing that cannot be read is one of another version: begun anew.
            Ok(Row { rule, text, standing: serde_json::from_str(&standing).unwrap_or_default() })
        })
        .collect()
}

/// What judging a rule brought.
pub(super) struct Judged {
    name: String,
    text: String,
    standing: String,
    events: Vec<Event>,
}

/// Judges every rule of which the minute was not judged yet.
///
/// # Errors
/// SQLite's.
pub(super) fn judge(index: &Connection, moment: Moment) -> rusqlite::Result<Vec<Judged>> {
    let mut judged = Vec::new();
    for Row { rule, text, mut standing } in rows(index)? {
        // One that was judged long after this minute was judged by a clock that has been set back.
        let is_judged = standing.evaluated_s >= moment.end_s && standing.evaluated_s <= moment.end_s + CLOCK_BACK_S;
        let Ok(limits) = rule.limits() else { continue };
        if is_judged {
            continue;
        }
        let mut events = Vec::new();
        match values(index, &rule, &limits, moment, &mut standing.losses) {
            Ok(values) => {
                standing.trouble = None;
                let names: BTreeSet<String> = standing.subjects.keys().chain(values.keys()).cloned().collect();
                for subject in names {
                    if standing.subjects.len() >= 2 * SUBJECTS_MAX && !standing.subjects.contains_key(&subject) {
                        continue;
                    }
                    let was = standing.subjects.get(&subject).copied().unwrap_or_default();
                    let value = values.get(&subject).copied().flatten();
                    let (now, turn) = step(&limits, was, moment.end_s, value);
                    events.extend(turn.map(|turn| Event::of(&rule, &limits, &subject, &was, &now, turn)));
                    let is_gone =
                        now.state == State::NoData && now.firing_since_s.is_none() && !values.contains_key(&subject);
                    if is_gone {
                        standing.subjects.remove(&subject);
                    } else {
                        standing.subjects.insert(subject, now);
                    }
                }
            }
            Err(error) => standing.trouble = Some(report::figures::plain(&error.to_string())),
        }
        standing.evaluated_s = moment.end_s;
        let standing = serde_json::to_string(&standing).unwrap_or_default();
        judged.push(Judged { name: rule.name, text, standing, events });
    }
    Ok(judged)
}

/// Keeps what was judged; of a rule that was changed meanwhile nothing. Returns whether something happened.
///
/// # Errors
/// SQLite's.
pub(super) fn keep(change: &Transaction<'_>, judged: &[Judged]) -> rusqlite::Result<bool> {
    let mut happened = false;
    for Judged { name, text, standing, events } in judged {
        let kept = change
            .prepare_cached("UPDATE alerts SET standing = ?3 WHERE name = ?1 AND rule = ?2")?
            .execute(params![name, text, standing])?;
        if kept == 1 && !events.is_empty() {
            events::keep(change, events)?;
            happened = true;
        }
    }
    Ok(happened)
}

const CLOCK_BACK_S: u64 = 3600;
