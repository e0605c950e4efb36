//! requests.parquet: one row a request, as the load generator saw it.

use std::borrow::Cow;

use schema::{FailureCause, RequestRecord};
use units::Timestamp;

use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A moment that always has a value.
macro_rules! moment {
    ($name:literal, $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &RequestRecord| Some(signed(row.$field.as_nanos())),
            |row, value| row.$field = Timestamp::from_nanos(unsigned(value)),
        )
    };
}

/// A moment that may not have come.
macro_rules! moment_if_any {
    ($name:literal, $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &RequestRecord| row.$field.map(|moment| signed(moment.as_nanos())),
            |row, value| row.$field = Some(Timestamp::from_nanos(unsigned(value))),
        )
        .nullable()
    };
}

impl Row for RequestRecord {
    const TABLE: &'static str = "requests";
    const ROW: &'static str = "One request, in order of completion. Moments count from the run's zero on the monotonic \
        clock of the machine that measured. Requests of the warm-up are included; a failed request ends at its failure.";

    const BLANK: RequestRecord = RequestRecord {
        sequence: 0,
        client: 0,
        connection: None,
        session: None,
        url: 0,
        stream: None,
        intended_at: Timestamp::ZERO,
        started_at: None,
        connected_at: None,
        secured_at: None,
        sent_at: None,
        first_byte_at: None,
        done_at: Timestamp::ZERO,
        status: 0,
        bytes_received: 0,
        head_bytes: 0,
        keeps_connection: false,
        bytes_sent: 0,
        attempts: 0,
        early_response: false,
        queued: false,
        failure: None,
    };

    const FIELDS: &'static [Field<RequestRecord>] = &[
        Field::integer(
            "sequence",
            "",
            "Number of the request in the run, in order of intention, from 0.",
            |row: &RequestRecord| Some(signed(row.sequence)),
            |row, value| row.sequence = unsigned(value),
        ),
        Field::integer(
            "client",
            "",
            "Index of the virtual client; its address is the client base plus this.",
            |row: &RequestRecord| Some(i64::from(row.client)),
            |row, value| row.client = value as u32,
        ),
        Field::integer(
            "connection",
            "",
            "Number of the connection in the run, from 0. Null if none was ever opened for the request.",
            |row: &RequestRecord| row.connection.map(signed),
            |row, value| row.connection = Some(unsigned(value)),
        )
        .nullable(),
        Field::integer(
            "session",
            "",
            "Number of the session in the run, from 0. Null where the plan has no sessions.",
            |row: &RequestRecord| row.session.map(signed),
            |row, value| row.session = Some(unsigned(value)),
        )
        .nullable(),
        Field::integer(
            "stream",
            "",
            "HTTP/2: the stream's identifier on its connection. Null with HTTP/1, or if none was opened.",
            |row: &RequestRecord| row.stream.map(i64::from),
            |row, value| row.stream = Some(value as u32),
        )
        .nullable(),
        Field::integer(
            "url",
            "",
            "Index into the run's list of requests, from 0: the order of plan.toml, or of first appearance in a log.",
            |row: &RequestRecord| Some(i64::from(row.url)),
            |row, value| row.url = value as u32,
        )
        .few(),
        moment!("intended_at_ns", intended_at, "When the schedule meant it to start."),
        moment_if_any!(
            "started_at_ns",
            started_at,
            "connect called, or the first write on an open connection. Null if it never started."
        ),
        moment_if_any!(
            "connected_at_ns",
            connected_at,
            "Connection established. Null on a connection that was open already, or one never established."
        ),
        moment_if_any!(
            "secured_at_ns",
            secured_at,
            "TLS handshake finished. Null without TLS, on a connection that was open already, or if it failed."
        ),
        moment_if_any!("sent_at_ns", sent_at, "Last byte of the request handed to the kernel. Null if it never was."),
        moment_if_any!("first_byte_at_ns", first_byte_at, "First byte of the response read. Null if none came."),
        moment!("done_at_ns", done_at, "Last byte of the response read, or the moment of failure."),
        Field::integer(
            "status",
            "",
            "HTTP status code. Null if no status line was read.",
            |row: &RequestRecord| (row.status != 0).then_some(i64::from(row.status)),
            |row, value| row.status = value as u16,
        )
        .nullable()
        .few(),
        Field::integer(
            "bytes_received",
            "bytes",
            "Bytes of the response read: head and body, interim responses included.",
            |row: &RequestRecord| Some(signed(row.bytes_received)),
            |row, value| row.bytes_received = unsigned(value),
        ),
        Field::integer(
            "head_bytes",
            "bytes",
            "Of bytes_received, those of heads, interim responses included; the rest is the body as it came. Null if no \
             head was whole.",
            |row: &RequestRecord| (row.head_bytes != 0).then_some(i64::from(row.head_bytes)),
            |row, value| row.head_bytes = value as u32,
        )
        .nullable()
        .few(),
        Field::integer(
            "keeps_connection",
            "",
            "1 if the response left its connection open to a further request, else 0. Null if the response was not whole.",
            |row: &RequestRecord| row.failure.is_none().then_some(i64::from(row.keeps_connection)),
            |row, value| row.keeps_connection = value != 0,
        )
        .nullable()
        .few(),
        Field::integer(
            "bytes_sent",
            "bytes",
            "Bytes of the request that the kernel took and the server's host acknowledged.",
            |row: &RequestRecord| Some(signed(row.bytes_sent)),
            |row, value| row.bytes_sent = unsigned(value),
        ),
        Field::integer(
            "attempts",
            "",
            "Times the request was sent: 0 if never, 2 if it was retried on a fresh connection.",
            |row: &RequestRecord| Some(i64::from(row.attempts)),
            |row, value| row.attempts = value as u8,
        )
        .few(),
        Field::integer(
            "early_response",
            "",
            "1 if the response was whole before the server had received the whole request, else 0.",
            |row: &RequestRecord| Some(i64::from(row.early_response)),
            |row, value| row.early_response = value != 0,
        )
        .few(),
        Field {
            column: Column {
                name: "cause",
                kind: Kind::Text,
                unit: "",
                nullable: true,
                about: "Why it failed, such as response_timeout. Null if a whole response arrived, whatever its status, that is as the plan expects.",
            },
            cell: Cell::Text(|row| row.failure.map(|cause| Cow::Borrowed(cause.name())), put_cause),
            shape: Shape::Few,
        },
    ];
}

fn put_cause(row: &mut RequestRecord, name: &str) -> bool {
    row.failure = FailureCause::ALL.into_iter().find(|cause| cause.name() == name);
    row.failure.is_some()
}
