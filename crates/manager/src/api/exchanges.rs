//! Exchanges recorded by agents: one page of them, or all of a time range as a file.
//!
//! [`crate::export`] reads day files and waiting batches in one order; [`filter`] selects rows.

mod export;
mod filter;

use std::ops::ControlFlow;

use axum::extract::State as With;
use axum::response::Response;
use http::Uri;
use schema::{FleetRow, Record as _};
use serde::Serialize;
use serde_json::{Map, Value};

pub(super) use export::{export, remove_exports};

use super::parameters::Parameters;
use super::responses::{ApiResponse, json};
use super::{State, now_ns};
use crate::export::{self as rows, Cursor};
use filter::ExchangeQuery;

#[derive(Serialize)]
struct Page {
    /// The columns of a day file: see docs/concepts/columns.md.
    exchanges: Vec<Map<String, Value>>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// Rows read.
    looked_at: u64,
}

/// `GET /api/1/exchanges`
pub(super) async fn list(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, &[filter::CONDITIONS, &["cursor", "limit"]].concat())?;
    let query = ExchangeQuery::of(&mut parameters, now_ns())?;
    let limit = parameters.number("limit", 1, 1_000, 100)? as usize;
    let with = state.clone();
    let page = state.work.long(move || read_page(&with, &query, limit, ROWS_PER_STEP)).await?;
    Ok(json(&page))
}

/// Up to `limit` matching rows, of `rows_max` rows read.
fn read_page(state: &State, query: &ExchangeQuery, limit: usize, rows_max: u64) -> ApiResponse<Page> {
    let mut page = Page { exchanges: Vec::new(), cursor: None, looked_at: 0 };
    let (mut last, columns) = (None::<FleetRow>, FleetRow::columns());
    let read = rows::rows(&state.data, &query.range, &mut |placed| {
        // There is one more row than requested, or than may be read: so there is a next page.
        if page.exchanges.len() == limit || page.looked_at == rows_max {
            page.cursor = last.as_ref().map(|row| filter::text_of(&Cursor::of(row)));
            return ControlFlow::Break(());
        }
        page.looked_at += 1;
        if query.matches(&placed) {
            page.exchanges.push(report::export::object(&columns, &placed));
        }
        last = Some(placed);
        ControlFlow::Continue(())
    });
    let read = read.map_err(|error| state.refusal_for(&error))?;
    state.report_missing_files(&read.missing);
    Ok(page)
}

impl State {
    /// Missing files: their rows are not in the result.
    fn report_missing_files(&self, files: &[String]) {
        for file in files {
            self.trouble(&format_args!("days/{file} is missing: its rows are not in the result"));
        }
    }
}

/// Maximum rows read for a page: some seconds. A page may have a cursor and no rows, if few rows match.
const ROWS_PER_STEP: u64 = 2_000_000;
