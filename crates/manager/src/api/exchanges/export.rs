//! All exchanges of a time range as a file: JSON lines, CSV or Parquet.
//!
//! JSON lines and CSV are sent while they are read. Parquet is first written completely, into a file without a name,
//! since its index is at its end. The client can detect a transfer that ended early.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use axum::extract::State as With;
use axum::response::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Uri};
use rusqlite::params;
use schema::{FleetRow, Record as _};
use web::PipeWriter;

use super::filter::{self, ExchangeQuery};
use crate::api::parameters::Parameters;
use crate::api::responses::{ApiResponse, malformed, refused};
use crate::api::{State, now_ns};
use crate::export as rows;
use crate::tokens::signed;
use tap_protocol::RefusalReason;

/// Format of the rows.
#[derive(Clone, Copy)]
enum RowFormat {
    JsonLines,
    Csv,
    Parquet,
}

/// `GET /api/1/exchanges/export`
pub(in crate::api) async fn export(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, &[filter::CONDITIONS, &["format"]].concat())?;
    let query = ExchangeQuery::of(&mut parameters, now_ns())?;
    let format = match parameters.text("format").as_deref() {
        None | Some("jsonl") => RowFormat::JsonLines,
        Some("csv") => RowFormat::Csv,
        Some("parquet") => RowFormat::Parquet,
        Some(_) => return Err(malformed("`format`: expected jsonl, csv or parquet.")),
    };
    let range = query.range.clone();
    let rows = state
        .read(move |index| {
            let sql = "SELECT coalesce(sum(rows), 0) FROM parts WHERE last_at >= ?1 AND first_at < ?2";
            let range_bounds = params![signed(range.from_ns), signed(range.until_ns)];
            index.query_row(sql, range_bounds, |row| row.get::<_, i64>(0))
        })
        .await?;
    if rows > ROWS_MAX {
        return Err(refused(
            RefusalReason::TooLarge,
            "The files of this range have more than 20 million rows: choose a shorter range, or download the files of \
             the days (/api/1/days).",
        ));
    }
    let permit = state.work.long_permit()?;
    let (kind, name) = match format {
        RowFormat::JsonLines => ("application/jsonl", "attachment; filename=\"exchanges.jsonl\""),
        RowFormat::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"exchanges.csv\""),
        RowFormat::Parquet => ("application/vnd.apache.parquet", "attachment; filename=\"exchanges.parquet\""),
    };
    let (writer, body) = web::piped();
    tokio::task::spawn_blocking(move || {
        // The client disconnected and needs no message.
        if let Err(error) = write(&state, &query, format, writer)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            state.trouble(&format_args!("export: {error}"));
        }
        drop(permit);
    });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static(name));
    Ok(response)
}

fn write(state: &State, query: &ExchangeQuery, format: RowFormat, mut writer: PipeWriter) -> io::Result<()> {
    let is_reader_closed = writer.is_reader_closed();
    match format {
        RowFormat::JsonLines => {
            let columns = FleetRow::columns();
            for_each_match(state, query, &is_reader_closed, |row| {
                report::export::write_json(&columns, &row, &mut writer)
            })?;
        }
        RowFormat::Csv => {
            let columns = FleetRow::columns();
            report::export::write_csv_head(&columns, &mut writer)?;
            for_each_match(state, query, &is_reader_closed, |row| {
                report::export::write_csv(&columns, &row, &mut writer)
            })?;
        }
        RowFormat::Parquet => io::copy(&mut parquet(state, query, &is_reader_closed)?, &mut writer).map(drop)?,
    }
    writer.flush()?;
    writer.finish()
}

/// Calls `on_row` for every matching row. During long stretches without a match it checks whether the client is still
/// connected.
fn for_each_match(
    state: &State,
    query: &ExchangeQuery,
    is_reader_closed: &dyn Fn() -> bool,
    mut on_row: impl FnMut(FleetRow) -> io::Result<()>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    let mut rows_read = 0_u64;
    let read = rows::rows(&state.data, &query.range, &mut |row| {
        rows_read += 1;
        if rows_read.is_multiple_of(ROWS_PER_STEP) && is_reader_closed() {
            outcome = Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client closed the connection"));
        } else if query.matches(&row) {
            outcome = on_row(row);
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let read = read.map_err(io::Error::other)?;
    outcome?;
    state.report_missing_files(&read.missing);
    if read.missing.is_empty() { Ok(()) } else { Err(io::Error::other("files are missing: the export ends early")) }
}

/// The rows as Parquet, in an unlinked file.
fn parquet(state: &State, query: &ExchangeQuery, is_reader_closed: &dyn Fn() -> bool) -> io::Result<File> {
    let folder = tempfile::Builder::new().prefix(EXPORT).tempdir_in(state.data.folder())?;
    let path = folder.path().join("exchanges.parquet");
    let mut writer = store::PartWriter::<FleetRow>::begin(&path).map_err(io::Error::other)?;
    let mut rows = Vec::with_capacity(FleetRow::ROWS_A_PART);
    for_each_match(state, query, is_reader_closed, |row| {
        rows.push(row);
        if rows.len() == FleetRow::ROWS_A_PART {
            writer.append(&rows).map_err(io::Error::other)?;
            rows.clear();
        }
        Ok(())
    })?;
    writer.append(&rows).map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    File::open(&path)
}

/// Removes files of exports that were killed.
pub(in crate::api) fn remove_exports(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(EXPORT) {
            // Files that cannot be removed only take space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Prefix of export folders.
const EXPORT: &str = "export-";
/// Maximum rows in the files of a range: minutes of reading.
const ROWS_MAX: i64 = 20_000_000;
/// Rows between two checks whether the client is connected.
const ROWS_PER_STEP: u64 = 4096;
