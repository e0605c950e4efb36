//! wire_requests.parquet: one row a request, as the wire saw it.

use std::borrow::Cow;

use schema::{Framing, WireRequest};
use units::Timestamp;

use super::connections::{NOWHERE, put_address};
use super::words::{escaped, unescaped};
use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A moment that may not have been seen.
macro_rules! moment_if_any {
    ($name:literal, $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &WireRequest| row.$field.map(|moment| signed(moment.as_nanos())),
            |row, value| row.$field = Some(Timestamp::from_nanos(unsigned(value))),
        )
        .nullable()
    };
}

/// Bytes from the request's head.
macro_rules! word {
    ($field:ident, $about:literal) => {
        Field::text(
            stringify!($field),
            $about,
            |row: &WireRequest| row.$field.as_deref().map(escaped),
            |row, text| {
                row.$field = unescaped(text).map(Into::into);
                row.$field.is_some()
            },
        )
        .nullable()
    };
}

impl Row for WireRequest {
    const TABLE: &'static str = "wire_requests";
    const ROW: &'static str = "One HTTP request as the wire saw it (watch), in the order of ending. Moments are capture \
        times: nanoseconds since the run's zero where a load or a program ran, since 1970 (UTC) in the logs of `yamabiko \
        watch`.";
    // Some 250 bytes a row and its words: kept few, so that a capture of any length is logged in a few MB.
    const ROWS_A_PART: usize = 8_192;

    const BLANK: WireRequest = WireRequest {
        connection: 0,
        client: NOWHERE,
        server: NOWHERE,
        index: 0,
        request_first_at: None,
        request_last_at: None,
        response_first_at: None,
        response_last_at: None,
        method: None,
        host: None,
        path: None,
        minor_version: None,
        referer: None,
        user_agent: None,
        status: None,
        request_bytes: 0,
        response_bytes: 0,
        framing: Framing::Exact,
        complete: false,
    };

    const FIELDS: &'static [Field<WireRequest>] = &[
        Field::integer(
            "connection",
            "",
            "Number of its connection: see connections.parquet.",
            |row: &WireRequest| Some(signed(row.connection)),
            |row, value| row.connection = unsigned(value),
        ),
        Field::integer(
            "index",
            "",
            "Place of the request on its connection, from 0.",
            |row: &WireRequest| Some(i64::from(row.index)),
            |row, value| row.index = value as u32,
        ),
        Field::text(
            "client",
            "Address of the end that sent the request.",
            |row: &WireRequest| Some(Cow::Owned(row.client.ip().to_string())),
            |row, text| put_address(&mut row.client, text),
        ),
        Field::integer(
            "client_port",
            "",
            "Its port.",
            |row: &WireRequest| Some(i64::from(row.client.port())),
            |row, value| row.client.set_port(value as u16),
        ),
        Field::text(
            "server",
            "Address of the end that answered it.",
            |row: &WireRequest| Some(Cow::Owned(row.server.ip().to_string())),
            |row, text| put_address(&mut row.server, text),
        ),
        Field::integer(
            "server_port",
            "",
            "Its port.",
            |row: &WireRequest| Some(i64::from(row.server.port())),
            |row, value| row.server.set_port(value as u16),
        )
        .few(),
        moment_if_any!("request_first_at_ns", request_first_at, "First byte of the request. Null if it was not seen."),
        moment_if_any!("request_last_at_ns", request_last_at, "Last byte of the request. Null if it was not seen."),
        moment_if_any!(
            "response_first_at_ns",
            response_first_at,
            "First byte of the final response. Null if none was seen."
        ),
        moment_if_any!(
            "response_last_at_ns",
            response_last_at,
            "Last byte of the response, or the last that was seen. Null if none was."
        ),
        word!(method, "Method as sent. Null if it could not be read."),
        word!(host, "Value of the Host field, cut at 255 bytes. Null if it could not be read."),
        word!(
            path,
            "Request target as sent, cut at 1024 bytes; bytes other than text as \\xNN. Null if it could not be read."
        ),
        Field::integer(
            "status",
            "",
            "Status of the final response. Null if it could not be read.",
            |row: &WireRequest| row.status.map(i64::from),
            |row, value| row.status = u16::try_from(value).ok(),
        )
        .nullable()
        .few(),
        Field::integer(
            "request_bytes",
            "bytes",
            "Bytes of the request: head and body.",
            |row: &WireRequest| Some(signed(row.request_bytes)),
            |row, value| row.request_bytes = unsigned(value),
        ),
        Field::integer(
            "response_bytes",
            "bytes",
            "Bytes of the responses: heads and bodies, interim ones included.",
            |row: &WireRequest| Some(signed(row.response_bytes)),
            |row, value| row.response_bytes = unsigned(value),
        ),
        Field::text(
            "framing",
            "How its ends were found: exact, by its heads; by_direction, from one change of direction to the next.",
            |row: &WireRequest| Some(Cow::Borrowed(row.framing.as_str())),
            put_framing,
        ),
        Field {
            column: Column {
                name: "complete",
                kind: Kind::Flag,
                unit: "",
                nullable: false,
                about: "Whether the response was seen to its end.",
            },
            cell: Cell::Flag(|row| row.complete, |row, value| row.complete = value),
            shape: Shape::Any,
        },
    ];
}

fn put_framing(row: &mut WireRequest, name: &str) -> bool {
    let known = [Framing::Exact, Framing::ByDirection].into_iter().find(|framing| framing.as_str() == name);
    row.framing = known.unwrap_or_default();
    known.is_some()
}
