//! Agents: their list, their state, and the programs of their machines.

use std::fmt;

use axum::extract::State as With;
use axum::response::Response;
use http::Uri;
use rusqlite::{Connection, Row, params};
use serde::Serialize;

use super::parameters::{Named, Parameters};
use super::responses::{ApiResponse, json, malformed, refused};
use super::{State, now_ns};
use tap_protocol::{Gauges, Losses, RefusalReason, Settings, SpoolUsage};

/// An agent in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Agent {
    /// Name of the agent: that of its token.
    pub(super) name: String,
    /// Group, set by the operator; empty: none.
    pub(super) group: String,
    /// Connection state.
    pub(super) state: ConnectionState,
    /// Last hello or batch, ns since 1970, on the manager's clock.
    pub(super) last_seen_unix_ns: Option<i64>,
    first_seen_unix_ns: Option<i64>,
    last_address: String,
    /// Whether the agent has a valid token.
    pub(super) has_token: bool,
    host: String,
    version: String,
    kernel: String,
    boot: String,
    /// The agent's wall clock less the manager's, ns; absent: not measured.
    pub(super) clock_offset_ns: Option<i64>,
    clock_error_ns: Option<i64>,
    spool: Option<SpoolUsage>,
    gauges: Option<Gauges>,
    losses: Losses,
    /// Batches that a stream of NATS discarded before this manager read them.
    batches_missed: u64,
    /// Rows of those, as far as their number is known.
    rows_missed: u64,
    /// Rows stored so far.
    pub(super) rows: i64,
    /// The agent's configured settings; absent: none were set, and the agent never connected.
    pub(super) settings: Option<Settings>,
    /// Version of the settings that the agent applies; 0: none.
    settings_seen: i64,
}

/// Connection state of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ConnectionState {
    /// The agent sent a message within [`CONNECTED_NS`].
    Connected,
    /// The agent sent no message within [`CONNECTED_NS`].
    Away,
    /// The agent has a token and never connected.
    Never,
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionState::Connected => "connected",
            ConnectionState::Away => "away",
            ConnectionState::Never => "never",
        })
    }
}

/// A program of an agent's machine.
#[derive(Debug, Serialize)]
struct Program {
    name: String,
    seen: i64,
    unseen: i64,
    connections: i64,
    unseen_bytes: i64,
    why: String,
    last_unix_ns: i64,
}

#[derive(Serialize)]
struct Listed {
    now_unix_ns: u64,
    agents: Vec<Agent>,
    /// Number of agents that match, including those of other pages.
    all: usize,
    /// Start of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct AgentDetails {
    now_unix_ns: u64,
    #[serde(flatten)]
    agent: Agent,
    programs: Vec<Program>,
    /// Number of programs that are not listed.
    programs_left_out: i64,
}

/// `GET /api/1/agents`
pub(super) async fn list(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, &["group", "state", "search", "after", "limit"])?;
    let group = parameters.text("group");
    let state_filter = parameters.text("state");
    if state_filter.as_deref().is_some_and(|text| !["connected", "away", "never"].contains(&text)) {
        return Err(malformed("`state`: expected connected, away or never."));
    }
    let search = parameters.text("search").unwrap_or_default().to_lowercase();
    let after = parameters.text("after");
    let limit = parameters.number("limit", 1, 10_000, 1_000)? as usize;
    let now = now_ns();
    let mut found = state.read(move |index| agents(index, now)).await?;
    found.retain(|agent| {
        group.as_deref().is_none_or(|group| agent.group == group)
            && state_filter.as_deref().is_none_or(|text| agent.state.to_string() == text)
            && agent.has(&search)
    });
    let all = found.len();
    let mut page: Vec<Agent> =
        found.into_iter().filter(|agent| after.as_deref().is_none_or(|after| agent.name.as_str() > after)).collect();
    let next = (page.len() > limit).then(|| page[limit - 1].name.clone());
    page.truncate(limit);
    Ok(json(&Listed { now_unix_ns: now, agents: page, all, next }))
}

/// `GET /api/1/agents/{agent}`
pub(super) async fn one(With(state): With<State>, Named(name): Named<String>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let now = now_ns();
    let found = state
        .read(move |index| {
            let Some(agent) = agents(index, now)?.into_iter().find(|agent| agent.name == name) else { return Ok(None) };
            let (programs, programs_left_out) = programs(index, &agent.name)?;
            Ok(Some(AgentDetails { now_unix_ns: now, agent, programs, programs_left_out }))
        })
        .await?;
    found.map(|whole| json(&whole)).ok_or_else(no_such_agent)
}

/// No such agent exists.
pub(super) fn no_such_agent() -> super::Refused {
    refused(RefusalReason::NotFound, "No agent has this name: /api/1/agents lists all agents.")
}

impl Agent {
    /// Whether its name, group, host, address or version contains `text`, which is in lower case.
    fn has(&self, text: &str) -> bool {
        let fields = [&self.name, &self.group, &self.host, &self.last_address, &self.version];
        text.is_empty() || fields.iter().any(|field| field.to_lowercase().contains(text))
    }

    fn of(row: &Row<'_>, now_ns: u64) -> rusqlite::Result<Agent> {
        // An agent with settings that never connected has a row.
        let last_seen: Option<i64> = row.get::<_, Option<i64>>(4)?.filter(|last| *last > 0);
        // Unreadable values are shown as unknown, as are the defaults of columns.
        fn parsed<T: serde::de::DeserializeOwned>(text: Option<String>) -> Option<T> {
            serde_json::from_str(&text?).ok()
        }
        let count = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, Option<i64>>(at)?.map_or(0, as_count)) };
        Ok(Agent {
            name: row.get(0)?,
            has_token: row.get(1)?,
            group: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            settings: parsed(row.get(3)?),
            state: connection_state(last_seen, now_ns),
            last_seen_unix_ns: last_seen,
            first_seen_unix_ns: row.get::<_, Option<i64>>(5)?.filter(|_| last_seen.is_some()),
            last_address: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            host: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
            version: row.get::<_, Option<String>>(8)?.unwrap_or_default(),
            kernel: row.get::<_, Option<String>>(9)?.unwrap_or_default(),
            boot: row.get::<_, Option<String>>(10)?.unwrap_or_default(),
            clock_offset_ns: row.get(11)?,
            clock_error_ns: row.get(12)?,
            spool: parsed(row.get(13)?),
            gauges: parsed(row.get(14)?),
            settings_seen: row.get::<_, Option<i64>>(15)?.unwrap_or_default(),
            rows: row.get::<_, Option<i64>>(16)?.unwrap_or_default(),
            losses: Losses {
                records: count(17)?,
                rows_dropped: count(18)?,
                connections_left_out: count(19)?,
                rows_filtered: count(20)?,
                rows_not_drawn: count(21)?,
            },
            batches_missed: count(22)?,
            rows_missed: count(23)?,
        })
    }
}

/// All agents that have connected or have a token, by name.
pub(super) fn agents(index: &Connection, now_ns: u64) -> rusqlite::Result<Vec<Agent>> {
    let mut statement = index.prepare_cached(AGENTS)?;
    let found = statement.query_map([], |row| Agent::of(row, now_ns))?;
    found.collect()
}

fn programs(index: &Connection, agent: &str) -> rusqlite::Result<(Vec<Program>, i64)> {
    let mut statement = index.prepare_cached(
        "SELECT name, seen, unseen, connections, unseen_bytes, why, last_at FROM programs WHERE agent = ?1 \
         ORDER BY unseen > 0 OR why <> '' DESC, connections DESC, name LIMIT ?2",
    )?;
    let found = statement.query_map(params![agent, PROGRAMS_MAX], |row| {
        Ok(Program {
            name: row.get(0)?,
            seen: row.get(1)?,
            unseen: row.get(2)?,
            connections: row.get(3)?,
            unseen_bytes: row.get(4)?,
            why: row.get(5)?,
            last_unix_ns: row.get(6)?,
        })
    })?;
    let programs = found.collect::<rusqlite::Result<Vec<_>>>()?;
    let all: i64 = index.query_row("SELECT count(*) FROM programs WHERE agent = ?1", [agent], |row| row.get(0))?;
    let left_out = all - programs.len() as i64;
    Ok((programs, left_out))
}

fn connection_state(last_seen: Option<i64>, now_ns: u64) -> ConnectionState {
    match last_seen {
        None => ConnectionState::Never,
        Some(last) if as_count(last).saturating_add(CONNECTED_NS) >= now_ns => ConnectionState::Connected,
        Some(_) => ConnectionState::Away,
    }
}

/// A count as stored in SQLite.
fn as_count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

const AGENTS: &str = "\
    SELECT n.name, EXISTS (SELECT 1 FROM tokens t WHERE t.name = n.name AND t.role = 'agent' AND t.revoked_at IS NULL), \
        a.\"group\", a.settings, a.last_seen_at, a.first_seen_at, a.last_address, a.host, a.version, a.kernel, a.boot, \
        a.clock_offset_ns, a.clock_error_ns, a.spool, a.gauges, a.settings_seen, a.rows, a.records_lost, a.rows_dropped, \
        a.connections_left_out, a.rows_filtered, a.rows_not_drawn, a.batches_missed, a.rows_missed \
    FROM (SELECT name FROM agents UNION SELECT name FROM tokens WHERE role = 'agent' AND revoked_at IS NULL) n \
        LEFT JOIN agents a ON a.name = n.name ORDER BY n.name";
/// An agent sends a batch at least every 10 s: after three missed ones it is away.
const CONNECTED_NS: u64 = 30_000_000_000;
const PROGRAMS_MAX: i64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_away_after_three_missed_heartbeats() {
        let now = 1_000_000_000_000_u64;
        let seen = |ago: u64| connection_state(Some((now - ago) as i64), now);
        assert_eq!(
            (seen(0), seen(CONNECTED_NS), seen(CONNECTED_NS + 1)),
            (ConnectionState::Connected, ConnectionState::Connected, ConnectionState::Away)
        );
        assert_eq!(connection_state(None, now), ConnectionState::Never);
        assert_eq!(connection_state(Some(i64::MAX), now), ConnectionState::Connected, "a clock that was set back");
    }
}
