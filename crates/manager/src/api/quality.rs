//! Quality over time and comparisons: queries of [`crate::quality`] as URL parameters.

use axum::extract::State as With;
use axum::response::Response;
use http::Uri;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::parameters::Parameters;
use super::responses::{ApiResponse, json, malformed, refused};
use super::{State, now_ns};
use crate::quality::{self, ComparedSet, Comparison, QualityError, Query};
use tap_protocol::RefusalReason;

/// `GET /api/1/quality`
pub(super) async fn quality(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let known = ["since", "until", "resolution", "by", "agent", "group", "program", "peer", "side", "whole_only"];
    let mut parameters = Parameters::of(&uri, &known)?;
    let now = now_ns();
    let query = Query {
        from_s: second(&mut parameters, "since", now)?,
        until_s: second(&mut parameters, "until", now)?,
        resolution: parse_name(&mut parameters, "resolution", "auto, minute, hour, day or month")?,
        by: parse_name(&mut parameters, "by", "none, agent, group, program, peer or side")?,
        agent: parameters.text("agent"),
        group: parameters.text("group"),
        program: parameters.text("program"),
        peer: parameters.text("peer"),
        side: parse_name(&mut parameters, "side", "client, server or both")?,
        whole_only: parameters.parsed("whole_only", "true or false")?.unwrap_or(false),
    };
    let with = state.clone();
    let result = state.work.long(move || {
        let result = with.data.read(|index| quality::query(index, &query, now / SECOND_NS));
        result.map_err(|error| with.unavailable_or_malformed(error))
    });
    Ok(json(&result.await?))
}

/// `GET /api/1/compare`
pub(super) async fn compare(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, COMPARE_PARAMETERS)?;
    let now = now_ns();
    let a = ComparedSet {
        from_s: second(&mut parameters, "since", now)?,
        until_s: second(&mut parameters, "until", now)?,
        agent: parameters.text("a_agent"),
        group: parameters.text("a_group"),
        program: parameters.text("a_program"),
        peer: parameters.text("a_peer"),
        side: parse_name(&mut parameters, "side", "client, server or both")?,
    };
    let b = ComparedSet {
        from_s: second(&mut parameters, "b_since", now)?,
        until_s: second(&mut parameters, "b_until", now)?,
        agent: parameters.text("b_agent"),
        group: parameters.text("b_group"),
        program: parameters.text("b_program"),
        peer: parameters.text("b_peer"),
        side: a.side,
    };
    let confidence = parameters.parsed("confidence", "above 0 and below 1, such as 0.95")?.unwrap_or(0.95);
    let comparison = Comparison { a, b, confidence };
    let with = state.clone();
    let result = state.work.long(move || {
        let result = with.data.read(|index| quality::compare(index, &comparison, now / SECOND_NS));
        result.map_err(|error| with.unavailable_or_malformed(error))
    });
    Ok(json(&result.await?))
}

impl State {
    fn unavailable_or_malformed(&self, error: QualityError) -> super::Refused {
        match error {
            QualityError::InvalidQuery(why) => refused(RefusalReason::InvalidValue, why),
            other => self.unavailable(&other),
        }
    }
}

fn second(parameters: &mut Parameters, name: &str, now_ns: u64) -> ApiResponse<Option<u64>> {
    Ok(parameters.time(name, now_ns)?.map(|ns| ns / SECOND_NS))
}

/// Parses a parameter with one of these names as value; the first if the parameter is absent.
fn parse_name<T: DeserializeOwned + Default>(parameters: &mut Parameters, name: &str, names: &str) -> ApiResponse<T> {
    let Some(text) = parameters.text(name) else { return Ok(T::default()) };
    serde_json::from_value(Value::String(text)).map_err(|_| malformed(format!("`{name}`: expected {names}.")))
}

const COMPARE_PARAMETERS: &[&str] = &[
    "since",
    "until",
    "a_agent",
    "a_group",
    "a_program",
    "a_peer",
    "b_since",
    "b_until",
    "b_agent",
    "b_group",
    "b_program",
    "b_peer",
    "side",
    "confidence",
];
const SECOND_NS: u64 = 1_000_000_000;
