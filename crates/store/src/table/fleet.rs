//! The files of a manager's days: one row an exchange, as the program of an agent's machine saw it.
//!
//! Unlike a run's tables these hold what came from other machines: text is text, whatever it says. It is checked where it comes
//! in, so that no control character is in it.

use std::borrow::Cow;

use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A row of a day's file. Moments that end in `_at_ns` count from [`zero_unix_ns`](Self::zero_unix_ns).
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is said at its column")]
pub struct FleetRow {
    pub agent: String,
    pub group: String,
    pub stream: String,
    pub sequence: u64,
    pub number: u32,
    pub at_unix_ns: u64,
    pub opened_at_unix_ns: u64,
    pub zero_unix_ns: u64,
    pub clock_off_ns: i64,
    pub share: f64,
    pub connection: Option<u64>,
    pub exchange: Option<u32>,
    pub last: bool,
    pub pid: u32,
    pub program: Option<String>,
    pub side: String,
    pub peer: Option<String>,
    pub peer_port: Option<u16>,
    pub own: Option<String>,
    pub own_port: Option<u16>,
    pub opened_at_ns: u64,
    pub lookup_ns: Option<u64>,
    pub setup_ns: Option<u64>,
    pub sent_first_at_ns: Option<u64>,
    pub sent_last_at_ns: Option<u64>,
    pub received_first_at_ns: Option<u64>,
    pub received_last_at_ns: Option<u64>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub calls: u64,
    pub blocked_ns: u64,
    pub outcome: String,
    pub error: Option<String>,
    pub closed_at_ns: Option<u64>,
    pub connection_bytes: Option<u64>,
    pub retransmits: Option<u64>,
    pub unseen_bytes: Option<u64>,
}

/// A number that always has a value.
macro_rules! number {
    ($name:ident, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($name),
            $unit,
            $about,
            |row: &FleetRow| Some(signed(row.$name)),
            |row, value| row.$name = unsigned(value),
        )
    };
}

/// The same, of rows that have one.
macro_rules! number_if_any {
    ($name:ident, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($name),
            $unit,
            $about,
            |row: &FleetRow| row.$name.map(signed),
            |row, value| row.$name = Some(unsigned(value)),
        )
        .nullable()
    };
}

/// A number that is smaller than 64 bits in memory.
macro_rules! small {
    ($name:ident, $about:literal) => {
        Field::integer(
            stringify!($name),
            "",
            $about,
            |row: &FleetRow| Some(i64::from(row.$name)),
            |row, value| row.$name = u32::try_from(value).unwrap_or(0),
        )
    };
}

/// A port.
macro_rules! port {
    ($name:ident) => {
        Field::integer(
            stringify!($name),
            "",
            "Its port. Null where the address is.",
            |row: &FleetRow| row.$name.map(i64::from),
            |row, value| row.$name = u16::try_from(value).ok(),
        )
        .nullable()
    };
}

/// Text that is always there.
macro_rules! text {
    ($name:ident, $about:literal) => {
        Field::text(
            stringify!($name),
            $about,
            |row: &FleetRow| Some(Cow::Borrowed(&*row.$name)),
            |row, text| {
                row.$name = text.to_owned();
                true
            },
        )
    };
}

/// Text of rows that have it.
macro_rules! text_if_any {
    ($name:ident, $about:literal) => {
        Field::text(
            stringify!($name),
            $about,
            |row: &FleetRow| row.$name.as_deref().map(Cow::Borrowed),
            |row, text| {
                row.$name = Some(text.to_owned());
                true
            },
        )
        .nullable()
    };
}

impl Row for FleetRow {
    const TABLE: &'static str = "fleet";
    const ROW: &'static str = "A row of the files of a manager's days (DATA/days/DATE/part-*.parquet): one request-response \
        exchange as the program of an agent's machine saw it, a connection without one, or a lookup that failed, as in taps. \
        A file is sorted by at_unix_ns, stream, sequence and number; the last three name a row for ever. Moments that end in \
        _unix_ns are of the manager's clock and comparable from agent to agent; the others are ns of the machine's monotonic \
        clock since zero_unix_ns, exact within a machine.";
    // Small enough that eight files can be merged in some 100 MB.
    const ROWS_A_PART: usize = 16_384;
    const BLANK: FleetRow = FleetRow {
        agent: String::new(),
        group: String::new(),
        stream: String::new(),
        sequence: 0,
        number: 0,
        at_unix_ns: 0,
        opened_at_unix_ns: 0,
        zero_unix_ns: 0,
        clock_off_ns: 0,
        share: 1.0,
        connection: None,
        exchange: None,
        last: false,
        pid: 0,
        program: None,
        side: String::new(),
        peer: None,
        peer_port: None,
        own: None,
        own_port: None,
        opened_at_ns: 0,
        lookup_ns: None,
        setup_ns: None,
        sent_first_at_ns: None,
        sent_last_at_ns: None,
        received_first_at_ns: None,
        received_last_at_ns: None,
        sent_bytes: 0,
        received_bytes: 0,
        calls: 0,
        blocked_ns: 0,
        outcome: String::new(),
        error: None,
        closed_at_ns: None,
        connection_bytes: None,
        retransmits: None,
        unseen_bytes: None,
    };

    const FIELDS: &'static [Field<FleetRow>] = &[
        text!(agent, "The agent that sent it."),
        text!(group, "The agent's group when the row came; empty for none."),
        text!(stream, "The agent's spool that it came from: 32 hexadecimal digits."),
        number!(sequence, "", "Number of its batch in the stream, from 1."),
        small!(number, "Its place in the batch, from 0."),
        number!(at_unix_ns, "ns", "When it ended, since 1970 (UTC), by the manager's clock."),
        number!(opened_at_unix_ns, "ns", "opened_at_ns since 1970 (UTC), by the manager's clock."),
        number!(
            zero_unix_ns,
            "ns",
            "What the manager's clock showed at the zero of the machine's moments, as the agent measured it."
        ),
        Field::integer(
            "clock_off_ns",
            "ns",
            "The agent's own wall clock less the manager's.",
            |row: &FleetRow| Some(row.clock_off_ns),
            |row, value| row.clock_off_ns = value,
        )
        .few(),
        Field::float(
            "share",
            "",
            "Share of the connections that the agent sent then: the row stands for 1 / share rows.",
            |row: &FleetRow| row.share,
            |row, value| row.share = value,
        ),
        number_if_any!(
            connection,
            "",
            "Number of the connection at the agent, in the order of opening. Null for a lookup that failed."
        ),
        Field::integer(
            "exchange",
            "",
            "Place on its connection, from 0, a greeting included. Null where the connection had none.",
            |row: &FleetRow| row.exchange.map(i64::from),
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
        small!(pid, "Process that opened or accepted the connection."),
        text_if_any!(program, "Name of its program. Null if it was gone before it could be read."),
        text!(side, "Which end the program is: client (it called connect) or server (it called accept)."),
        text_if_any!(
            peer,
            "Address of the other end, or h: and 16 hexadecimal digits that stand for it where the agent hashes addresses. Null \
             where it is not known."
        ),
        port!(peer_port),
        text_if_any!(own, "Address of the program's own end, or what stands for it. Null where it is not known."),
        port!(own_port),
        number!(opened_at_ns, "ns", "connect called, accept returned, or the lookup called."),
        number_if_any!(
            lookup_ns,
            "ns",
            "Time in getaddrinfo before it. Null on all rows but the first, and where there was none."
        ),
        number_if_any!(
            setup_ns,
            "ns",
            "connect called to connection known to be made. Null on all rows but the first, at a server, and where it was not \
             made."
        ),
        number_if_any!(sent_first_at_ns, "ns", "First call that sent was entered. Null if nothing was sent."),
        number_if_any!(sent_last_at_ns, "ns", "Last call that sent had returned. Null if nothing was sent."),
        number_if_any!(
            received_first_at_ns,
            "ns",
            "First call that received had returned: first byte in hand. Null if nothing was received."
        ),
        number_if_any!(
            received_last_at_ns,
            "ns",
            "Last call that received had returned: last byte in hand. Null if nothing was received."
        ),
        number!(sent_bytes, "bytes", "Bytes handed to the kernel."),
        number!(received_bytes, "bytes", "Bytes taken from the kernel."),
        number!(calls, "", "Calls that sent or received, the empty-handed ones included."),
        number!(
            blocked_ns,
            "ns",
            "Time that the socket took the program: inside its calls, and from a call that found nothing (EAGAIN) to the next \
             that succeeded."
        ),
        text!(outcome, "succeeded, failed, cut, greeting, farewell or unused: as in taps."),
        text_if_any!(
            error,
            "Why it failed: the system's name of the error, no_response, or given_up. Null if it did not fail."
        ),
        number_if_any!(
            closed_at_ns,
            "ns",
            "close called, or the program found gone. Null on all rows but the last, and where the agent's machine went down \
             first."
        ),
        number_if_any!(
            connection_bytes,
            "bytes",
            "Bytes sent and received on the whole connection, by the program's calls. Null on all rows but the last."
        ),
        number_if_any!(
            retransmits,
            "segments",
            "Segments that TCP at this end sent again. Null on all rows but the last, and where TCP was not asked."
        ),
        number_if_any!(
            unseen_bytes,
            "bytes",
            "Bytes that TCP counted and no hook saw. Null on all rows but the last, and where TCP was not asked."
        ),
    ];
}
