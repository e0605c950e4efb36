//! Alerts in the API: rules, their states, and the event log.

use axum::extract::{Request, State as With};
use axum::response::Response;
use http::Uri;
use serde::Serialize;
use serde_json::{Map, Value};

use super::parameters::{Named, Parameters};
use super::responses::{ApiResponse, body, done, json, malformed, refused};
use super::{State, now_ns};
use crate::alerts::{self, Alert, AlertError, Event, Rule};
use crate::error::Error;
use tap_protocol::RefusalReason;

#[derive(Serialize)]
struct Alerts {
    alerts: Vec<Alert>,
}

#[derive(Serialize)]
struct Log {
    events: Vec<Event>,
}

/// `GET /api/1/alerts`
pub(super) async fn list(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let alerts = state.read(alerts::list).await?;
    Ok(json(&Alerts { alerts }))
}

/// `PUT /api/1/alerts/{alert}`
pub(super) async fn put(
    With(state): With<State>,
    Named(name): Named<String>,
    uri: Uri,
    request: Request,
) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let mut fields: Map<String, Value> = body(request).await?;
    // The URL names the rule; a rule that was read and is stored again has its name as well.
    if fields.insert("name".to_owned(), Value::from(name.as_str())).is_some_and(|given| given != name.as_str()) {
        return Err(refused(RefusalReason::InvalidValue, "`name` in the body differs from the name in the URL."));
    }
    let rule: Rule = serde_json::from_value(Value::Object(fields))
        .map_err(|_| malformed("The body is not a valid rule: openapi.json describes a rule (Rule)."))?;
    let stored = rule.clone();
    state.change(move |data| data.change(|index| alerts::put(index, &rule, now_s()).map_err(Error::from))).await?;
    Ok(json(&stored))
}

/// `DELETE /api/1/alerts/{alert}`
pub(super) async fn remove(With(state): With<State>, Named(name): Named<String>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let was = state.change(move |data| data.change(|index| alerts::remove(index, &name, now_s()).map_err(Error::from)));
    if !was.await? {
        return Err(refused(RefusalReason::NotFound, "No rule has this name: /api/1/alerts lists all rules."));
    }
    Ok(done())
}

/// `GET /api/1/alert-log`
pub(super) async fn log(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, &["limit", "before"])?;
    let limit = parameters.number("limit", 1, 1_000, 100)? as usize;
    let before = parameters.number("before", 1, i64::MAX as u64, i64::MAX as u64)? as i64;
    let events = state.read(move |index| alerts::log(index, Some(before), limit)).await?;
    Ok(json(&Log { events }))
}

impl From<AlertError> for Error {
    fn from(error: AlertError) -> Error {
        match error {
            AlertError::InvalidRule(why) => Error::Refused(why),
            AlertError::Index(error) => Error::Index(error),
        }
    }
}

/// The manager's clock, s since 1970.
fn now_s() -> u64 {
    now_ns() / 1_000_000_000
}
