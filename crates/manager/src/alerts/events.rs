//! Alert events: rows of `alert_log`, and their texts.

use rusqlite::{Connection, Transaction, params};
use serde::{Deserialize, Serialize};

use super::rule::{Limits, Metric, Rule};
use super::state_machine::{Instance, Transition};
use crate::quality::{By, Sides};

/// An alert event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Identifier of the event, the same for each delivery: the index's own name and the event's number.
    #[serde(default)]
    pub id: String,
    /// Number of the event in this index; rises with each event.
    #[serde(default)]
    pub number: i64,
    /// The end of the evaluated minute, s since 1970; for a changed rule, the time of the change.
    pub at_s: u64,
    /// Kind of the event.
    pub event: EventKind,
    /// The rule's name.
    pub alert: String,
    /// The subject of the rule; empty: all, or unknown.
    pub subject: String,
    /// The metric of the rule.
    pub metric: Metric,
    /// Value of the metric: ns, a share, a number or seconds, depending on the metric.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// The value in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value_text: Option<String>,
    /// The threshold as typed.
    pub threshold: String,
    /// Start of the alert, s since 1970.
    pub since_s: u64,
    /// The whole event in one sentence.
    pub text: String,
    /// The agent concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    /// The group.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<String>,
    /// The peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// The side of the connections.
    pub side: Sides,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The alert fires, or fires again after a time without data.
    Firing,
    /// The alert still fires, but its data is missing from now on.
    NoData,
    /// The alert is resolved.
    Resolved,
}

impl EventKind {
    /// Name as written.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Firing => "firing",
            EventKind::NoData => "no_data",
            EventKind::Resolved => "resolved",
        }
    }
}

impl Event {
    /// The event of a transition: `was` is the state before, `now` the state after.
    pub(super) fn of(
        rule: &Rule,
        limits: &Limits,
        subject: &str,
        was: &Instance,
        now: &Instance,
        turn: Transition,
    ) -> Event {
        let (event, why) = match turn {
            Transition::Fires => (EventKind::Firing, String::new()),
            Transition::LostData => (EventKind::NoData, "firing, and no data now".to_owned()),
            Transition::Resolves if now.value.is_some() => (EventKind::Resolved, String::new()),
            Transition::Resolves => (EventKind::Resolved, "resolved: no data for a day".to_owned()),
        };
        let mut found = Event::about(rule, subject, event, now.at_s);
        found.value = now.value;
        found.value_text = now.value.map(|value| rule.metric.text(value));
        found.since_s = now.firing_since_s.or(was.firing_since_s).unwrap_or(now.at_s);
        let scope = found.scope();
        let value = found.value_text.as_deref().unwrap_or_default();
        let way = if limits.below { "below" } else { "above" };
        let how = match event {
            EventKind::Firing => format!("{} of {scope} is {value}, {way} {}", describe_metric(rule), rule.threshold),
            _ if why.is_empty() => format!("resolved: {} of {scope} is {value}", describe_metric(rule)),
            _ => format!("{scope}: {why}"),
        };
        found.text = report::figures::plain(&format!("{}: {how}", rule.name));
        found
    }

    /// The event of a rule that was removed or changed: its alert is resolved.
    pub(super) fn resolved(rule: &Rule, subject: &str, instance: &Instance, at_s: u64, why: &str) -> Event {
        let mut found = Event::about(rule, subject, EventKind::Resolved, at_s);
        found.since_s = instance.firing_since_s.unwrap_or(at_s);
        found.text = report::figures::plain(&format!("{}: resolved for {}: {why}", rule.name, found.scope()));
        found
    }

    fn about(rule: &Rule, subject: &str, event: EventKind, at_s: u64) -> Event {
        let by = rule.grouping();
        let subject_or_typed =
            |of: By, typed: &Option<String>| if by == of { Some(subject.to_owned()) } else { typed.clone() };
        Event {
            id: String::new(),
            number: 0,
            at_s,
            event,
            alert: rule.name.clone(),
            subject: subject.to_owned(),
            metric: rule.metric,
            value: None,
            value_text: None,
            threshold: rule.threshold.clone(),
            since_s: at_s,
            text: String::new(),
            agent: subject_or_typed(By::Agent, &rule.agent),
            group: subject_or_typed(By::Group, &rule.group),
            program: subject_or_typed(By::Program, &rule.program),
            peer: subject_or_typed(By::Peer, &rule.peer),
            side: rule.side,
        }
    }

    /// The subject in words.
    fn scope(&self) -> String {
        let named = [("program", &self.program), ("peer", &self.peer), ("agent", &self.agent), ("group", &self.group)];
        let parts: Vec<String> = named
            .into_iter()
            .filter_map(|(kind, name)| name.as_ref().map(|name| (kind, name)))
            .map(|(kind, name)| if name.is_empty() { format!("unknown {kind}") } else { format!("{kind} {name}") })
            .collect();
        if parts.is_empty() { "all agents".to_owned() } else { parts.join(", ") }
    }
}

/// The metric in words.
fn describe_metric(rule: &Rule) -> String {
    let over = &rule.over;
    match rule.metric {
        Metric::ResponseP50 => format!("median response time over {over}"),
        Metric::ResponseP95 => format!("95th percentile of response time over {over}"),
        Metric::ResponseP99 => format!("99th percentile of response time over {over}"),
        Metric::ResponseP999 => format!("99.9th percentile of response time over {over}"),
        Metric::ErrorRatio => format!("error ratio over {over}"),
        Metric::Availability => format!("availability (windows of 10 s) over {over}"),
        Metric::Attempts => format!("number of attempts in {over}"),
        Metric::AgentSilent => "silence".to_owned(),
        Metric::AgentLag => "lag".to_owned(),
        Metric::RecordsLost => format!("number of lost records in {over}"),
    }
}

/// Stores events for delivery.
pub(super) fn store(change: &Transaction<'_>, events: &[Event]) -> rusqlite::Result<()> {
    for event in events {
        let body = serde_json::to_string(event).unwrap_or_default();
        change.prepare_cached("INSERT INTO alert_log (at, name, event, body) VALUES (?1, ?2, ?3, ?4)")?.execute(
            params![
                i64::try_from(event.at_s.saturating_mul(1_000_000_000)).unwrap_or(i64::MAX),
                event.alert,
                event.event.name(),
                body
            ],
        )?;
    }
    // The index's own name, which makes event identifiers unique among indexes.
    change.execute("INSERT OR IGNORE INTO facts (name, value) VALUES ('alerts_id', lower(hex(randomblob(8))))", [])?;
    Ok(())
}

/// Events, the latest first: at most `limit`, and with numbers below `before` if given.
///
/// # Errors
/// SQLite's.
pub fn log(index: &Connection, before: Option<i64>, limit: usize) -> rusqlite::Result<Vec<Event>> {
    read(index, "id < ?1 ORDER BY id DESC", before.unwrap_or(i64::MAX), limit)
}

/// Events that match a condition with one parameter.
pub(super) fn read(index: &Connection, which: &str, parameter: i64, limit: usize) -> rusqlite::Result<Vec<Event>> {
    let mut query = index.prepare_cached(&format!(
        "SELECT id, body, (SELECT value FROM facts WHERE name = 'alerts_id') FROM alert_log WHERE {which} LIMIT ?2"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = query.query_map(params![parameter, limit], |row| {
        let (number, body, index_id): (i64, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let event = serde_json::from_str::<Event>(&body)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error.into()))?;
        Ok(Event { id: format!("{}-{number}", index_id.unwrap_or_default()), number, ..event })
    })?;
    rows.collect()
}
