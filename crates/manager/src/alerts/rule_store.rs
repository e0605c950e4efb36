//! Rules in the index: stored, removed, listed, and evaluated each minute.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};

use super::events::{self, Event};
use super::rule::Rule;
use super::state_machine::{Instance, State, step};
use super::values::{EvaluationTime, LossHistory, values};
use super::{RULES_MAX, SUBJECTS_MAX};

/// Why a rule was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlertError {
    /// The rule is invalid: the client can correct it.
    #[error("{0}")]
    InvalidRule(String),
    /// The index cannot be changed.
    #[error("changing the index: {0}")]
    Index(#[from] rusqlite::Error),
}

/// A rule and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The rule.
    pub rule: Rule,
    /// The worst state of its subjects: firing, pending, ok, no data.
    pub state: State,
    /// End of the last evaluated minute, s since 1970; absent: none yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evaluated_s: Option<u64>,
    /// Why it could not be evaluated, if so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<String>,
    /// The worst first; at most [`LISTED_MAX`].
    pub subjects: Vec<Subject>,
    /// Number of subjects that are not listed.
    pub subjects_left_out: u64,
}

/// What a rule evaluates separately: an agent, program, peer or group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Name of the subject; empty if the rule covers everything together, or if the name is unknown.
    pub subject: String,
    /// State of the subject.
    #[serde(flatten)]
    pub instance: Instance,
    /// The value in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value_text: Option<String>,
}

/// Maximum number of listed subjects of a rule.
pub const LISTED_MAX: usize = 100;

/// State of a rule, as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RuleState {
    evaluated_s: u64,
    subjects: BTreeMap<String, Instance>,
    #[serde(default)]
    losses: LossHistory,
    #[serde(default)]
    trouble: Option<String>,
}

/// Stores a rule, in place of one of its name. A changed rule restarts: its alerts are resolved.
///
/// # Errors
/// An invalid rule, too many rules; SQLite's.
pub fn put(change: &Transaction<'_>, rule: &Rule, now_s: u64) -> Result<(), AlertError> {
    rule.limits().map_err(AlertError::InvalidRule)?;
    let text = serde_json::to_string(rule).map_err(|error| AlertError::InvalidRule(error.to_string()))?;
    let known =
        change.query_row("SELECT rule FROM alerts WHERE name = ?1", [&rule.name], |row| row.get::<_, String>(0));
    match known.optional()? {
        Some(known) if known == text => return Ok(()),
        Some(_) => end(change, &rule.name, now_s, "the rule was changed")?,
        None => {
            let count = change.query_row("SELECT count(*) FROM alerts", [], |row| row.get::<_, i64>(0))?;
            if count >= RULES_MAX as i64 {
                return Err(AlertError::InvalidRule(format!(
                    "there are {RULES_MAX} rules, which is the maximum: remove one"
                )));
            }
        }
    }
    let state = serde_json::to_string(&RuleState::default()).unwrap_or_default();
    change.execute(
        "INSERT OR REPLACE INTO alerts (name, rule, standing) VALUES (?1, ?2, ?3)",
        params![rule.name, text, state],
    )?;
    Ok(())
}

/// Removes a rule and resolves its alerts. Returns whether it existed.
///
/// # Errors
/// SQLite's.
pub fn remove(change: &Transaction<'_>, name: &str, now_s: u64) -> Result<bool, AlertError> {
    end(change, name, now_s, "the rule was removed")?;
    Ok(change.execute("DELETE FROM alerts WHERE name = ?1", [name])? > 0)
}

fn end(change: &Transaction<'_>, name: &str, now_s: u64, why: &str) -> rusqlite::Result<()> {
    let known = rows(change)?.into_iter().find(|row| row.rule.name == name);
    let Some(Row { rule, state, .. }) = known else { return Ok(()) };
    let firing = state.subjects.iter().filter(|(_, instance)| instance.firing_since_s.is_some());
    let resolved: Vec<Event> =
        firing.map(|(subject, instance)| Event::resolved(&rule, subject, instance, now_s, why)).collect();
    events::store(change, &resolved)
}

/// All rules and their states, by name.
///
/// # Errors
/// SQLite's.
pub fn list(index: &Connection) -> rusqlite::Result<Vec<Alert>> {
    let listed = |row: Row| {
        let Row { rule, state, .. } = row;
        let mut subjects: Vec<(String, Instance)> = state.subjects.into_iter().collect();
        let total = subjects.len();
        // An alert that fired and has no data now is not resolved.
        let weight =
            |instance: &Instance| if instance.firing_since_s.is_some() { State::Firing } else { instance.state };
        let worst = subjects.iter().map(|(_, instance)| weight(instance)).max().unwrap_or_default();
        subjects.sort_by(|(a, x), (b, y)| weight(y).cmp(&weight(x)).then_with(|| a.cmp(b)));
        subjects.truncate(LISTED_MAX);
        let subject = |(subject, instance): (String, Instance)| Subject {
            subject,
            value_text: instance.value.map(|value| rule.metric.text(value)),
            instance,
        };
        Alert {
            state: worst,
            evaluated_s: (state.evaluated_s > 0).then_some(state.evaluated_s),
            trouble: state.trouble,
            subjects_left_out: (total - subjects.len()) as u64,
            subjects: subjects.into_iter().map(subject).collect(),
            rule,
        }
    };
    Ok(rows(index)?.into_iter().map(listed).collect())
}

struct Row {
    rule: Rule,
    /// The rule as stored in the index.
    text: String,
    state: RuleState,
}

fn rows(index: &Connection) -> rusqlite::Result<Vec<Row>> {
    let mut query = index.prepare_cached("SELECT rule, standing FROM alerts ORDER BY name")?;
    let texts = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let broken = |error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
    };
    texts
        .map(|texts| {
            let (text, state) = texts?;
            let rule = serde_json::from_str(&text).map_err(broken)?;
            // An unreadable state is of another version: the rule restarts.
            Ok(Row { rule, text, state: serde_json::from_str(&state).unwrap_or_default() })
        })
        .collect()
}

/// Result of evaluating a rule.
pub(super) struct Evaluated {
    name: String,
    text: String,
    state: String,
    events: Vec<Event>,
}

/// Evaluates every rule that was not evaluated for the minute yet.
///
/// # Errors
/// SQLite's.
pub(super) fn evaluate(index: &Connection, time: EvaluationTime) -> rusqlite::Result<Vec<Evaluated>> {
    let mut evaluated = Vec::new();
    for Row { rule, text, mut state } in rows(index)? {
        // A rule evaluated long after this minute was evaluated before the clock was set back.
        let is_evaluated = state.evaluated_s >= time.end_s && state.evaluated_s <= time.end_s + CLOCK_BACK_S;
        let Ok(limits) = rule.limits() else { continue };
        if is_evaluated {
            continue;
        }
        let mut events = Vec::new();
        match values(index, &rule, &limits, time, &mut state.losses) {
            Ok(values) => {
                state.trouble = None;
                let names: BTreeSet<String> = state.subjects.keys().chain(values.keys()).cloned().collect();
                for subject in names {
                    if state.subjects.len() >= 2 * SUBJECTS_MAX && !state.subjects.contains_key(&subject) {
                        continue;
                    }
                    let was = state.subjects.get(&subject).copied().unwrap_or_default();
                    let value = values.get(&subject).copied().flatten();
                    let (now, transition) = step(&limits, was, time.end_s, value);
                    events.extend(
                        transition.map(|transition| Event::of(&rule, &limits, &subject, &was, &now, transition)),
                    );
                    let has_no_state =
                        now.state == State::NoData && now.firing_since_s.is_none() && !values.contains_key(&subject);
                    if has_no_state {
                        state.subjects.remove(&subject);
                    } else {
                        state.subjects.insert(subject, now);
                    }
                }
            }
            Err(error) => state.trouble = Some(report::figures::plain(&error.to_string())),
        }
        state.evaluated_s = time.end_s;
        let state = serde_json::to_string(&state).unwrap_or_default();
        evaluated.push(Evaluated { name: rule.name, text, state, events });
    }
    Ok(evaluated)
}

/// Stores the results, except those of a rule that was changed meanwhile. Returns whether there are events.
///
/// # Errors
/// SQLite's.
pub(super) fn store_evaluated(change: &Transaction<'_>, evaluated: &[Evaluated]) -> rusqlite::Result<bool> {
    let mut has_events = false;
    for Evaluated { name, text, state, events } in evaluated {
        let updated_rows = change
            .prepare_cached("UPDATE alerts SET standing = ?3 WHERE name = ?1 AND rule = ?2")?
            .execute(params![name, text, state])?;
        if updated_rows == 1 && !events.is_empty() {
            events::store(change, events)?;
            has_events = true;
        }
    }
    Ok(has_events)
}

/// Maximum time by which the clock may have been set back: a rule evaluated that much later is not evaluated again.
const CLOCK_BACK_S: u64 = 3600;
