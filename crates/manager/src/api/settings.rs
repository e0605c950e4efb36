//! Settings of agents: of one, or of all agents of a group.

use axum::extract::{Request, State as With};
use axum::response::Response;
use http::Uri;
use rusqlite::{Connection, OptionalExtension as _, Transaction};
use serde::{Deserialize, Serialize};

use super::parameters::{Named, Parameters};
use super::responses::{ApiResponse, body, json, refused};
use super::{State, now_ns};
use crate::error::Error;
use crate::settings::{self, UnversionedSettings};
use tap_protocol::{RefusalReason, Settings};

/// A change of settings. Absent fields are unchanged.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// Another group; empty: none.
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    only: Option<Vec<String>>,
    #[serde(default)]
    programs: Option<Vec<String>>,
    #[serde(default)]
    share: Option<f64>,
}

/// An agent's settings after a change.
#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    group: String,
    settings: Settings,
}

#[derive(Serialize)]
struct ChangedGroup {
    agents: Vec<Changed>,
}

#[derive(Serialize)]
struct Group {
    name: String,
    agents: i64,
    rows: i64,
    last_seen_unix_ns: i64,
}

#[derive(Serialize)]
struct Groups {
    groups: Vec<Group>,
}

/// `PUT /api/1/agents/{agent}/settings`
pub(super) async fn of_agent(
    With(state): With<State>,
    Named(name): Named<String>,
    uri: Uri,
    request: Request,
) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let change: Change = body(request).await?;
    let changed = state.change(move |data| data.change(|index| change.apply_to(index, &name))).await?;
    Ok(json(&changed))
}

/// `PUT /api/1/groups/{group}/settings`
pub(super) async fn of_group(
    With(state): With<State>,
    Named(group): Named<String>,
    uri: Uri,
    request: Request,
) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let change: Change = body(request).await?;
    let act = move |index: &Transaction<'_>| {
        let mut statement = index.prepare("SELECT name FROM agents WHERE \"group\" = ?1 ORDER BY name")?;
        let names = statement.query_map([&group], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        names.iter().map(|name| change.apply_to(index, name)).collect::<Result<Vec<Changed>, Error>>()
    };
    let agents = state.change(move |data| data.change(act)).await?;
    if agents.is_empty() {
        return Err(refused(
            RefusalReason::NotFound,
            "No agent is in this group: /api/1/groups lists the groups with agents.",
        ));
    }
    Ok(json(&ChangedGroup { agents }))
}

/// `GET /api/1/groups`
pub(super) async fn groups(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let groups = state.read(all_groups).await?;
    Ok(json(&Groups { groups }))
}

fn all_groups(index: &Connection) -> rusqlite::Result<Vec<Group>> {
    let mut statement = index.prepare_cached(
        "SELECT \"group\", count(*), sum(rows), max(last_seen_at) FROM agents WHERE \"group\" <> '' GROUP BY 1 ORDER BY 1 LIMIT 10000",
    )?;
    let found = statement.query_map([], |row| {
        Ok(Group { name: row.get(0)?, agents: row.get(1)?, rows: row.get(2)?, last_seen_unix_ns: row.get(3)? })
    })?;
    found.collect()
}

impl Change {
    /// Changes an agent's settings and group.
    fn apply_to(&self, index: &Transaction<'_>, name: &str) -> Result<Changed, Error> {
        let before = settings::of(index, name)?.unwrap_or_default();
        let settings = UnversionedSettings {
            only: self.only.clone().unwrap_or(before.only),
            programs: self.programs.clone().unwrap_or(before.programs),
            share: self.share.unwrap_or(before.share),
        };
        let now = now_ns();
        let settings = settings::change(index, name, &settings, now)?;
        if let Some(group) = &self.group {
            settings::set_group(index, name, group, now)?;
        }
        let group = index
            .query_row("SELECT \"group\" FROM agents WHERE name = ?1", [name], |row| row.get(0))
            .optional()?
            .unwrap_or_default();
        Ok(Changed { name: name.to_owned(), group, settings })
    }
}
