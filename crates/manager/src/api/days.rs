//! The day files as stored: readable by any Parquet reader.

use std::fs::File;
use std::io;

use axum::extract::State as With;
use axum::response::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Uri};
use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;

use super::State;
use super::parameters::{Named, Parameters};
use super::responses::{ApiResponse, json, refused};
use tap_protocol::RefusalReason;

#[derive(Serialize)]
struct Day {
    day: String,
    parts: i64,
    rows: i64,
    bytes: i64,
    first_unix_ns: i64,
    last_unix_ns: i64,
}

#[derive(Serialize)]
struct Days {
    days: Vec<Day>,
}

#[derive(Serialize)]
struct Part {
    file: String,
    rows: i64,
    bytes: i64,
    first_unix_ns: i64,
    last_unix_ns: i64,
    made_unix_ns: i64,
}

#[derive(Serialize)]
struct Parts {
    day: String,
    parts: Vec<Part>,
}

/// `GET /api/1/days`
pub(super) async fn list(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let days = state
        .read(|index| {
            let mut statement = index.prepare_cached(
                "SELECT day, count(*), sum(rows), sum(bytes), min(first_at), max(last_at) FROM parts GROUP BY day \
                 ORDER BY day DESC LIMIT 10000",
            )?;
            let found = statement.query_map([], |row| {
                Ok(Day {
                    day: row.get(0)?,
                    parts: row.get(1)?,
                    rows: row.get(2)?,
                    bytes: row.get(3)?,
                    first_unix_ns: row.get(4)?,
                    last_unix_ns: row.get(5)?,
                })
            })?;
            found.collect::<rusqlite::Result<Vec<_>>>()
        })
        .await?;
    Ok(json(&Days { days }))
}

/// `GET /api/1/days/{day}`
pub(super) async fn one(With(state): With<State>, Named(day): Named<String>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let requested = day.clone();
    let parts = state
        .read(move |index| {
            let mut statement = index.prepare_cached(
                "SELECT file, rows, bytes, first_at, last_at, made_at FROM parts WHERE day = ?1 ORDER BY file LIMIT 100000",
            )?;
            let found = statement.query_map([requested], |row| {
                Ok(Part {
                    file: row.get(0)?,
                    rows: row.get(1)?,
                    bytes: row.get(2)?,
                    first_unix_ns: row.get(3)?,
                    last_unix_ns: row.get(4)?,
                    made_unix_ns: row.get(5)?,
                })
            })?;
            found.collect::<rusqlite::Result<Vec<_>>>()
        })
        .await?;
    if parts.is_empty() {
        return Err(removed());
    }
    Ok(json(&Parts { day, parts }))
}

/// `GET /api/1/days/{day}/{file}`
pub(super) async fn file(
    With(state): With<State>,
    Named((day, file)): Named<(String, String)>,
    uri: Uri,
) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    // A name from outside becomes a path only if the index lists it.
    let found = state
        .read(move |index| {
            let sql = "SELECT day, file FROM parts WHERE day = ?1 AND file = ?2";
            let names = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            index.query_row(sql, params![day, file], names).optional()
        })
        .await?;
    let (day, file) = found.ok_or_else(removed)?;
    let permit = state.work.long_permit()?;
    let path = state.data.days().join(&day).join(&file);
    let opened = state.work.short(move || {
        let file = File::open(path).map_err(|_| removed())?;
        let length = file.metadata().map_err(|_| removed())?.len();
        Ok((file, length))
    });
    let (mut from, length) = opened.await?;
    let (mut writer, body) = web::piped();
    tokio::task::spawn_blocking(move || {
        // If it fails the client has disconnected, or sees that bytes are missing.
        let _ = io::copy(&mut from, &mut writer).and_then(|_| writer.finish());
        drop(permit);
    });
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/vnd.apache.parquet"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{day}-{file}\"")) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

fn removed() -> super::Refused {
    refused(
        RefusalReason::NotFound,
        "There is no such day or file: /api/1/days lists the days, /api/1/days/DAY their files. Files are merged and \
         removed over time.",
    )
}
