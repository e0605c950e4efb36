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

use super::filter::{self, Ask};
use crate::api::parameters::Parameters;
use crate::api::responses::{ApiResponse, malformed, refused};
use crate::api::{State, now_ns};
use crate::export as rows;
use crate::tokens::signed;
use tap_protocol::Why;

/// Format of the rows.
#[derive(Clone, Copy)]
enum Form {
    JsonLines,
    Csv,
    Parquet,
}

/// `GET /api/1/exchanges/export`
pub(in crate::api) async fn export(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    let mut parameters = Parameters::of(&uri, &[filter::CONDITIONS, &["format"]].concat())?;
    let ask = Ask::of(&mut parameters, now_ns())?;
    let form = match parameters.text("format").as_deref() {
        None | Some("jsonl") => Form::JsonLines,
        Some("csv") => Form::Csv,
        Some("parquet") => Form::Parquet,
        Some(_) => return Err(malformed("`format`: expected jsonl, csv or parquet.")),
    };
    let range = ask.range.clone();
    let rows = state
        .read(move |index| {
            let sql = "SELECT coalesce(sum(rows), 0) FROM parts WHERE last_at >= ?1 AND first_at < ?2";
            let ends = params![signed(range.from_ns), signed(range.until_ns)];
            index.query_row(sql, ends, |row| row.get::<_, i64>(0))
        })
        .await?;
    if rows > ROWS_MAX {
        return Err(refused(
            Why::TooLarge,
            "The files of this range have more than 20 million rows: choose a shorter range, or download the files of \
             the days (/api/1/days).",
        ));
    }
    let place = state.work.place()?;
    let (kind, name) = match form {
        Form::JsonLines => ("application/jsonl", "attachment; filename=\"exchanges.jsonl\""),
        Form::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"exchanges.csv\""),
        Form::Parquet => ("application/vnd.apache.parquet", "attachment; filename=\"exchanges.parquet\""),
    };
    let (writer, body) = web::piped();
    tokio::task::spawn_blocking(move || {
        // The client disconnected and needs no message.
        if let Err(error) = write(&state, &ask, form, writer)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            state.trouble(&format_args!("export: {error}"));
        }
        drop(place);
    });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static(name));
    Ok(response)
}

fn write(state: &State, ask: &Ask, form: Form, mut writer: PipeWriter) -> io::Result<()> {
    let is_left = writer.is_reader_closed();
    match form {
        Form::JsonLines => {
            let columns = FleetRow::columns();
            each(state, ask, &is_left, |row| report::export::write_json(&columns, &row, &mut writer))?;
        }
        Form::Csv => {
            let columns = FleetRow::columns();
            report::export::write_csv_head(&columns, &mut writer)?;
            each(state, ask, &is_left, |row| report::export::write_csv(&columns, &row, &mut writer))?;
        }
        Form::Parquet => io::copy(&mut parquet(state, ask, &is_left)?, &mut writer).map(drop)?,
    }
    writer.flush()?;
    writer.finish()
}

/// Calls `take` for every matching row. During long stretches without a match it checks whether the client is still
/// connected.
fn each(
    state: &State,
    ask: &Ask,
    is_left: &dyn Fn() -> bool,
    mut take: impl FnMut(FleetRow) -> io::Result<()>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    let mut looked_at = 0_u64;
    let read = rows::rows(&state.data, &ask.range, &mut |placed| {
        looked_at += 1;
        if looked_at.is_multiple_of(ROWS_PER_STEP) && is_left() {
            outcome = Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client closed the connection"));
        } else if ask.takes(&placed) {
            outcome = take(placed);
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let read = read.map_err(io::Error::other)?;
    outcome?;
    state.miss(&read.missing);
    if read.missing.is_empty() { Ok(()) } else { Err(io::Error::other("files are missing: the export ends early")) }
}

/// The rows as Parquet, in an unlinked file.
fn parquet(state: &State, ask: &Ask, is_left: &dyn Fn() -> bool) -> io::Result<File> {
    let folder = tempfile::Builder::new().prefix(EXPORT).tempdir_in(state.data.folder())?;
    let path = folder.path().join("exchanges.parquet");
    let mut writer = store::PartWriter::<FleetRow>::begin(&path).map_err(io::Error::other)?;
    let mut rows = Vec::with_capacity(FleetRow::ROWS_A_PART);
    each(state, ask, is_left, |row| {
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
pub(in crate::api) fn tidy(folder: &Path) {
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
