//! Exchanges as agents told of them: a page of them, or all of a range as a file.
//!
//! [`crate::export`] reads files of days and batches that wait in one order; [`filter`] says which rows are meant.

mod export;
mod filter;

use std::ops::ControlFlow;

use axum::extract::State as With;
use axum::response::Response;
use http::Uri;
use schema::{FleetRow, Record as _};
use serde::Serialize;
use serde_json::{Map, Value};

pub(super) use export::{export, tidy};

use super::answers::{Answer, json};
use super::parameters::Parameters;
use super::{State, now_ns};
use crate::export::{self as rows, Cursor};
use filter::Ask;

#[derive(Serialize)]
struct Page {
    /// The columns of a day's file: see docs/concepts/columns.md.
    exchanges: Vec<Map<String, Value>>,
    /// What to ask with for those that follow; absent: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// Rows that were looked at.
    looked_at: u64,
}

/// `GET /api/1/exchanges`
pub(super) async fn list(With(state): With<State>, uri: Uri) -> Answer<Response> {
    let mut parameters = Parameters::of(&uri, &[filter::CONDITIONS, &["cursor", "limit"]].concat())?;
    let ask = Ask::of(&mut parameters, now_ns())?;
    let limit = parameters.number("limit", 1, 1_000, 100)? as usize;
    let with = state.clone();
    let page = state.work.long(move || look(&with, &ask, limit, ROWS_A_LOOK)).await?;
    Ok(json(&page))
}

/// As many as `limit`, of `most` rows that are looked at.
fn look(state: &State, ask: &Ask, limit: usize, most: u64) -> Answer<Page> {
    let mut page = Page { exchanges: Vec::new(), cursor: None, looked_at: 0 };
    let (mut last, columns) = (None::<FleetRow>, FleetRow::columns());
    let read = rows::rows(&state.data, &ask.range, &mut |placed| {
        // There is one more than was asked for, or was to be looked at: so there is a next page.
        if page.exchanges.len() == limit || page.looked_at == most {
            page.cursor = last.as_ref().map(|row| filter::text_of(&Cursor::of(row)));
            return ControlFlow::Break(());
        }
        page.looked_at += 1;
        if ask.takes(&placed) {
            page.exchanges.push(report::export::object(&columns, &placed));
        }
        last = Some(placed);
        ControlFlow::Continue(())
    });
    let read = read.map_err(|error| state.not_done(&error))?;
    state.miss(&read.missing);
    Ok(page)
}

impl State {
    /// Files that should be there and are not: their rows are missing from what was handed out.
    fn miss(&self, files: &[String]) {
        for file in files {
            self.trouble(&format_args!("days/{file} is gone: its rows are missing from what was read"));
        }
    }
}

/// Rows that are looked at for a page: some seconds. A page may have no rows and a cursor, where much was looked at and nothing
/// found.
const ROWS_A_LOOK: u64 = 2_000_000;
