//! taps.parquet: one row an exchange, as the program that took part in it saw it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use schema::{TapError, TapExchange, TapOutcome, TapSide};
use units::Timestamp;

use super::connections::{NOWHERE, put_address};
use super::words::{escaped, unescaped};
use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A moment that may not have been.
macro_rules! moment_if_any {
    ($name:literal, $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &TapExchange| row.$field.map(|moment| signed(moment.as_nanos())),
            |row, value| row.$field = Some(Timestamp::from_nanos(unsigned(value))),
        )
        .nullable()
    };
}

/// A count or a duration that always has a value.
macro_rules! count {
    ($name:literal, $field:ident, $unit:literal, $about:literal) => {
        Field::integer(
            $name,
            $unit,
            $about,
            |row: &TapExchange| Some(signed(row.$field)),
            |row, value| row.$field = unsigned(value),
        )
    };
}

/// The same, of rows that have one.
macro_rules! count_if_any {
    ($name:literal, $field:ident, $unit:literal, $about:literal) => {
        Field::integer(
            $name,
            $unit,
            $about,
            |row: &TapExchange| row.$field.map(signed),
            |row, value| row.$field = Some(unsigned(value)),
        )
        .nullable()
    };
}

/// An address.
macro_rules! address {
    ($name:literal, $field:ident, $about:literal) => {
        Field::text(
            $name,
            $about,
            |row: &TapExchange| row.$field.map(|address| Cow::Owned(address.ip().to_string())),
            |row, text| put_address(row.$field.get_or_insert(NOWHERE), text),
        )
        .nullable()
    };
}

/// Its port.
macro_rules! port {
    ($name:literal, $field:ident) => {
        Field::integer(
            $name,
            "",
            "Its port. Null where the address is.",
            |row: &TapExchange| row.$field.as_ref().map(SocketAddr::port).map(i64::from),
            |row, value| row.$field.get_or_insert(NOWHERE).set_port(value as u16),
        )
        .nullable()
    };
}

impl Row for TapExchange {
    const TABLE: &'static str = "taps";
    const ROW: &'static str = "One request-response exchange as the program that took part in it saw it (tap), in the order \
        of ending; a connection without an exchange has one row, and so has a lookup that failed. What belongs to a \
        connection and not to one exchange stands on its first row (lookup_ns, setup_ns) or on its last (closed_at_ns, \
        retransmits, unseen_bytes). Moments are those of the program's calls, in nanoseconds since the run's zero.";
    // Some 250 bytes a row.
    const ROWS_A_PART: usize = 65_536;
    const BLANK: TapExchange = TapExchange::BLANK;

    const FIELDS: &'static [Field<TapExchange>] = &[
        count_if_any!(
            "connection",
            connection,
            "",
            "Number of the connection in the run, in the order of opening. Null for a lookup that failed."
        ),
        Field::integer(
            "exchange",
            "",
            "Place on its connection, from 0, a greeting included. Null where the connection had none.",
            |row: &TapExchange| row.exchange.map(i64::from),
            |row, value| row.exchange = u32::try_from(value).ok(),
        )
        .nullable(),
        Field {
            column: Column {
                name: "last",
                kind: Kind::Flag,
                unit: "",
                nullable: false,
                about: "Whether it is the connection's last row: count these to count connections.",
            },
            cell: Cell::Flag(|row| row.last, |row, value| row.last = value),
            shape: Shape::Any,
        },
        Field::integer(
            "pid",
            "",
            "Process that opened or accepted the connection.",
            |row: &TapExchange| Some(i64::from(row.pid)),
            |row, value| row.pid = value as u32,
        ),
        Field::text(
            "program",
            "Name of its program; bytes other than text as \\xNN. Null if it was gone before it could be read.",
            |row: &TapExchange| row.program.as_deref().map(|name| escaped(name.as_bytes())),
            put_program,
        )
        .nullable(),
        Field::text(
            "side",
            "Which end the program is: client (it called connect) or server (it called accept).",
            |row: &TapExchange| Some(Cow::Borrowed(row.side.as_str())),
            put_side,
        ),
        address!("peer", peer, "Address of the other end. Null where it is not known."),
        port!("peer_port", peer),
        address!("own", own, "Address of the program's own end. Null where it is not known."),
        port!("own_port", own),
        Field::integer(
            "opened_at_ns",
            "ns",
            "connect called, accept returned, or the lookup called.",
            |row: &TapExchange| Some(signed(row.opened_at.as_nanos())),
            |row, value| row.opened_at = Timestamp::from_nanos(unsigned(value)),
        ),
        count_if_any!(
            "lookup_ns",
            lookup_ns,
            "ns",
            "Time in getaddrinfo before it. Null on all rows but the first, and where there was none."
        ),
        count_if_any!(
            "setup_ns",
            setup_ns,
            "ns",
            "connect called to connection known to be made. Null on all rows but the first, at a server, and where it was \
             not made."
        ),
        moment_if_any!(
            "sent_first_at_ns",
            sent_first_at,
            "First call that sent was entered. Null if nothing was sent."
        ),
        moment_if_any!("sent_last_at_ns", sent_last_at, "Last call that sent had returned. Null if nothing was sent."),
        moment_if_any!(
            "received_first_at_ns",
            received_first_at,
            "First call that received had returned: first byte in hand. Null if nothing was received."
        ),
        moment_if_any!(
            "received_last_at_ns",
            received_last_at,
            "Last call that received had returned: last byte in hand. Null if nothing was received."
        ),
        count!("sent_bytes", sent_bytes, "bytes", "Bytes handed to the kernel."),
        count!("received_bytes", received_bytes, "bytes", "Bytes taken from the kernel."),
        count!("calls", calls, "", "Calls that sent or received, the empty-handed ones included."),
        count!(
            "blocked_ns",
            blocked_ns,
            "ns",
            "Time that the socket took the program: inside its calls, and from a call that found nothing (EAGAIN) to the next \
             that succeeded."
        ),
        Field::text(
            "outcome",
            "succeeded; failed; cut (under way when the program or the run ended); greeting (came before anything was \
             asked); farewell (said at the end, not waited for); unused (nothing was asked).",
            |row: &TapExchange| Some(Cow::Borrowed(row.outcome.as_str())),
            put_outcome,
        ),
        Field::text(
            "error",
            "Why it failed: the system's name of the error, no_response, or given_up. Null if it did not fail.",
            |row: &TapExchange| row.error.map(|error| Cow::Owned(error.name())),
            put_error,
        )
        .nullable(),
        moment_if_any!(
            "closed_at_ns",
            closed_at,
            "close called, or the program found gone. Null on all rows but the last, and where the run ended first."
        ),
        count_if_any!(
            "connection_bytes",
            connection_bytes,
            "bytes",
            "Bytes sent and received on the whole connection, by the program's calls. Null on all rows but the last."
        ),
        count_if_any!(
            "retransmits",
            retransmits,
            "segments",
            "Segments that TCP at this end sent again. Null on all rows but the last, and where TCP was not asked."
        ),
        count_if_any!(
            "unseen_bytes",
            unseen_bytes,
            "bytes",
            "Bytes that TCP counted and no hook saw. Null on all rows but the last, and where TCP was not asked."
        ),
    ];
}

fn put_program(row: &mut TapExchange, text: &str) -> bool {
    row.program = unescaped(text).and_then(|bytes| String::from_utf8(bytes).ok()).map(Arc::from);
    row.program.is_some()
}

fn put_side(row: &mut TapExchange, name: &str) -> bool {
    let known = TapSide::ALL.into_iter().find(|side| side.as_str() == name);
    row.side = known.unwrap_or_default();
    known.is_some()
}

fn put_outcome(row: &mut TapExchange, name: &str) -> bool {
    let known = TapOutcome::ALL.into_iter().find(|outcome| outcome.as_str() == name);
    row.outcome = known.unwrap_or_default();
    known.is_some()
}

fn put_error(row: &mut TapExchange, name: &str) -> bool {
    row.error = TapError::from_name(name);
    row.error.is_some()
}
