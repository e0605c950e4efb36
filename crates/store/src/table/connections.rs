//! connections.parquet: one row a TCP connection, as the wire saw it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schema::{ConnectionRecord, ConnectionState, RecordEnd, RttSummary, Sent};
use units::Timestamp;

use super::words::{escaped, unescaped};
use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A moment that always has a value.
macro_rules! moment {
    ($name:literal, $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &ConnectionRecord| Some(signed(row.$field.as_nanos())),
            |row, value| row.$field = Timestamp::from_nanos(unsigned(value)),
        )
    };
}

/// A moment that may not have been seen.
macro_rules! moment_if_any {
    ($name:literal, $($field:ident).+, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &ConnectionRecord| row.$($field).+.map(|moment| signed(moment.as_nanos())),
            |row, value| row.$($field).+ = Some(Timestamp::from_nanos(unsigned(value))),
        )
        .nullable()
    };
}

/// A count.
macro_rules! count {
    ($name:literal, $($field:ident).+, $unit:literal, $about:literal) => {
        Field::integer(
            $name,
            $unit,
            $about,
            |row: &ConnectionRecord| Some(signed(u64::from(row.$($field).+))),
            |row, value| row.$($field).+ = unsigned(value).try_into().unwrap_or_default(),
        )
    };
}

/// A number that may not have been seen.
macro_rules! if_any {
    ($name:literal, $($field:ident).+, $unit:literal, $about:literal) => {
        Field::integer(
            $name,
            $unit,
            $about,
            |row: &ConnectionRecord| row.$($field).+.map(|value| signed(u64::from(value))),
            |row, value| row.$($field).+ = unsigned(value).try_into().ok(),
        )
        .nullable()
    };
}

/// A figure about round-trip times that exists only where there are samples.
macro_rules! rtt {
    ($name:literal, $side:ident . $of:ident . $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &ConnectionRecord| (row.$side.$of.count > 0).then_some(signed(row.$side.$of.$field)),
            |row, value| row.$side.$of.$field = unsigned(value),
        )
        .nullable()
    };
}

impl Row for ConnectionRecord {
    const TABLE: &'static str = "connections";
    const ROW: &'static str = "One TCP connection as the wire saw it (watch), in the order in which their records were \
        closed. Moments are capture times: nanoseconds since the run's zero where a load or a program ran, since 1970 (UTC) \
        in the logs of `yamabiko watch`. `up_` is what the client sent, `down_` what the \
        server sent.";
    // Some 800 bytes a row.
    const ROWS_A_PART: usize = 4_096;

    const BLANK: ConnectionRecord = ConnectionRecord {
        connection: 0,
        client: NOWHERE,
        client_index: None,
        server: NOWHERE,
        roles_seen: false,
        syn_at: None,
        syn_ack_at: None,
        ack_at: None,
        handshake_rtt_ns: None,
        server_rtt_ns: None,
        first_at: Timestamp::ZERO,
        last_at: Timestamp::ZERO,
        first_data_at: None,
        last_data_at: None,
        closed_at: None,
        open_until: Timestamp::ZERO,
        state: ConnectionState::Oth,
        end: RecordEnd::Closed,
        up: NOTHING,
        down: NOTHING,
        fragments: 0,
        requests: 0,
        server_name: None,
    };

    const FIELDS: &'static [Field<ConnectionRecord>] = &[
        count!("connection", connection, "", "Number of the connection in the capture, from 0, by first packet."),
        Field::text(
            "client",
            "Address of the end that opened it.",
            |row: &ConnectionRecord| Some(Cow::Owned(row.client.ip().to_string())),
            |row, text| put_address(&mut row.client, text),
        ),
        Field::integer(
            "client_port",
            "",
            "Its port.",
            |row: &ConnectionRecord| Some(i64::from(row.client.port())),
            |row, value| row.client.set_port(value as u16),
        ),
        if_any!(
            "client_index",
            client_index,
            "",
            "The virtual client, as in requests.parquet: its address less the first one's. Null outside a lab."
        ),
        Field::text(
            "server",
            "Address of the end that was called.",
            |row: &ConnectionRecord| Some(Cow::Owned(row.server.ip().to_string())),
            |row, text| put_address(&mut row.server, text),
        ),
        Field::integer(
            "server_port",
            "",
            "Its port.",
            |row: &ConnectionRecord| Some(i64::from(row.server.port())),
            |row, value| row.server.set_port(value as u16),
        )
        .few(),
        Field {
            column: Column {
                name: "roles_seen",
                kind: Kind::Flag,
                unit: "",
                nullable: false,
                about: "Whether the roles are known from a SYN, and not taken from ports or told.",
            },
            cell: Cell::Flag(|row| row.roles_seen, |row, value| row.roles_seen = value),
            shape: Shape::Any,
        },
        moment_if_any!("syn_at_ns", syn_at, "First SYN. Null if none was seen."),
        moment_if_any!("syn_ack_at_ns", syn_ack_at, "First SYN-ACK. Null if none was seen."),
        moment_if_any!("ack_at_ns", ack_at, "First acknowledgement of the SYN-ACK. Null if none was seen."),
        if_any!(
            "handshake_rtt_ns",
            handshake_rtt_ns,
            "ns",
            "ACK - SYN-ACK: from the capture to the client and back. Null if the SYN-ACK was sent more than once, or not seen."
        ),
        if_any!(
            "server_rtt_ns",
            server_rtt_ns,
            "ns",
            "SYN-ACK - SYN: from the capture to the server and back. Null if the SYN was sent more than once, or not seen."
        ),
        moment!("first_at_ns", first_at, "First packet of any kind."),
        moment!("last_at_ns", last_at, "Last packet of any kind."),
        moment_if_any!("first_data_at_ns", first_data_at, "First packet with payload. Null if there was none."),
        moment_if_any!("last_data_at_ns", last_data_at, "Last packet with payload. Null if there was none."),
        moment_if_any!(
            "closed_at_ns",
            closed_at,
            "When it stopped being in process: the second side's FIN, or the first RST. Null if it did not."
        ),
        moment!(
            "open_until_ns",
            open_until,
            "Last packet until both sides had sent FIN or RST, that one included; less first_at_ns, Zeek's duration."
        ),
        Field::text(
            "state",
            "How it stood at its end, by Zeek's names: S0, S1, SF, REJ, S2, S3, RSTO, RSTR, RSTOS0, RSTRH, SH, SHR, OTH.",
            |row: &ConnectionRecord| Some(Cow::Borrowed(row.state.as_str())),
            put_state,
        ),
        Field::text(
            "end",
            "Why the record was closed: closed, idle, reused, evicted, capture_end.",
            |row: &ConnectionRecord| Some(Cow::Borrowed(row.end.as_str())),
            put_end,
        ),
        count!(
            "up_packets",
            up.packets,
            "packets",
            "Packets, as captured: a super-packet that the kernel had not yet cut counts once."
        ),
        count!("up_ip_bytes", up.ip_bytes, "bytes", "Bytes of IP packets, headers included."),
        count!("up_payload_bytes", up.payload_bytes, "bytes", "Payload, retransmissions included."),
        count!(
            "up_unique_bytes",
            up.unique_bytes,
            "bytes",
            "Payload by sequence number, each byte once; missing ones are not in it."
        ),
        count!("up_data_packets", up.data_packets, "packets", "Packets with payload."),
        count!(
            "up_retransmitted_packets",
            up.retransmitted_packets,
            "packets",
            "Packets of which at least one payload byte had been seen before."
        ),
        count!("up_retransmitted_bytes", up.retransmitted_bytes, "bytes", "Payload that had been seen before."),
        count!(
            "up_out_of_order_packets",
            up.out_of_order_packets,
            "packets",
            "Packets that filled a hole: reordered, or sent again after a loss before the capture."
        ),
        count!("up_keep_alives", up.keep_alives, "packets", "Keep-alive and window probes."),
        count!("up_zero_windows", up.zero_windows, "packets", "Packets that announced a window of zero."),
        count!("up_duplicate_sacks", up.duplicate_sacks, "packets", "D-SACKs: it had those bytes already."),
        count!(
            "up_missing_bytes",
            up.missing_bytes,
            "bytes",
            "Bytes that the server acknowledged and the capture never saw."
        ),
        count!("up_syns", up.syns, "packets", "SYN packets, repetitions included."),
        count!("up_fins", up.fins, "packets", "FIN packets, repetitions included."),
        if_any!("up_mss", up.mss, "bytes", "Largest segment it takes, from its SYN. Null if it did not say."),
        if_any!("up_window_scale", up.window_scale, "", "Shift of its window, from its SYN. Null if it did not say."),
        moment_if_any!("up_fin_at_ns", up.fin_at, "First FIN. Null if none was seen."),
        moment_if_any!("up_rst_at_ns", up.rst_at, "First RST. Null if none was seen."),
        count!(
            "up_data_rtt_count",
            up.data_rtt.count,
            "",
            "Samples of the time from its data to their acknowledgement (Karn's rule)."
        ),
        rtt!("up_data_rtt_min_ns", up.data_rtt.min_ns, "Smallest of them. Null without samples."),
        rtt!("up_data_rtt_max_ns", up.data_rtt.max_ns, "Largest of them. Null without samples."),
        rtt!("up_data_rtt_sum_ns", up.data_rtt.sum_ns, "Sum of them. Null without samples."),
        count!("up_timestamp_rtt_count", up.timestamp_rtt.count, "", "Samples of the same by TCP timestamps."),
        rtt!("up_timestamp_rtt_min_ns", up.timestamp_rtt.min_ns, "Smallest of them. Null without samples."),
        rtt!("up_timestamp_rtt_max_ns", up.timestamp_rtt.max_ns, "Largest of them. Null without samples."),
        rtt!("up_timestamp_rtt_sum_ns", up.timestamp_rtt.sum_ns, "Sum of them. Null without samples."),
        count!(
            "down_packets",
            down.packets,
            "packets",
            "Packets, as captured: a super-packet that the kernel had not yet cut counts once."
        ),
        count!("down_ip_bytes", down.ip_bytes, "bytes", "Bytes of IP packets, headers included."),
        count!("down_payload_bytes", down.payload_bytes, "bytes", "Payload, retransmissions included."),
        count!(
            "down_unique_bytes",
            down.unique_bytes,
            "bytes",
            "Payload by sequence number, each byte once; missing ones are not in it."
        ),
        count!("down_data_packets", down.data_packets, "packets", "Packets with payload."),
        count!(
            "down_retransmitted_packets",
            down.retransmitted_packets,
            "packets",
            "Packets of which at least one payload byte had been seen before."
        ),
        count!("down_retransmitted_bytes", down.retransmitted_bytes, "bytes", "Payload that had been seen before."),
        count!(
            "down_out_of_order_packets",
            down.out_of_order_packets,
            "packets",
            "Packets that filled a hole: reordered, or sent again after a loss before the capture."
        ),
        count!("down_keep_alives", down.keep_alives, "packets", "Keep-alive and window probes."),
        count!("down_zero_windows", down.zero_windows, "packets", "Packets that announced a window of zero."),
        count!("down_duplicate_sacks", down.duplicate_sacks, "packets", "D-SACKs: it had those bytes already."),
        count!(
            "down_missing_bytes",
            down.missing_bytes,
            "bytes",
            "Bytes that the client acknowledged and the capture never saw."
        ),
        count!("down_syns", down.syns, "packets", "SYN packets, repetitions included."),
        count!("down_fins", down.fins, "packets", "FIN packets, repetitions included."),
        if_any!("down_mss", down.mss, "bytes", "Largest segment it takes, from its SYN. Null if it did not say."),
        if_any!(
            "down_window_scale",
            down.window_scale,
            "",
            "Shift of its window, from its SYN. Null if it did not say."
        ),
        moment_if_any!("down_fin_at_ns", down.fin_at, "First FIN. Null if none was seen."),
        moment_if_any!("down_rst_at_ns", down.rst_at, "First RST. Null if none was seen."),
        count!(
            "down_data_rtt_count",
            down.data_rtt.count,
            "",
            "Samples of the time from its data to their acknowledgement (Karn's rule)."
        ),
        rtt!("down_data_rtt_min_ns", down.data_rtt.min_ns, "Smallest of them. Null without samples."),
        rtt!("down_data_rtt_max_ns", down.data_rtt.max_ns, "Largest of them. Null without samples."),
        rtt!("down_data_rtt_sum_ns", down.data_rtt.sum_ns, "Sum of them. Null without samples."),
        count!("down_timestamp_rtt_count", down.timestamp_rtt.count, "", "Samples of the same by TCP timestamps."),
        rtt!("down_timestamp_rtt_min_ns", down.timestamp_rtt.min_ns, "Smallest of them. Null without samples."),
        rtt!("down_timestamp_rtt_max_ns", down.timestamp_rtt.max_ns, "Largest of them. Null without samples."),
        rtt!("down_timestamp_rtt_sum_ns", down.timestamp_rtt.sum_ns, "Sum of them. Null without samples."),
        count!(
            "fragments",
            fragments,
            "packets",
            "First fragments of packets; later ones cannot be told to a connection."
        ),
        count!("requests", requests, "requests", "HTTP requests seen on it."),
        Field::text(
            "server_name",
            "Server name the client asked TLS for; bytes other than text as \\xNN. Null if it did not.",
            |row: &ConnectionRecord| row.server_name.as_deref().map(escaped),
            |row, text| {
                row.server_name = unescaped(text).map(Into::into);
                row.server_name.is_some()
            },
        )
        .nullable(),
    ];
}

pub(super) fn put_address(end: &mut SocketAddr, text: &str) -> bool {
    let address: Option<IpAddr> = text.parse().ok();
    if let Some(address) = address {
        end.set_ip(address);
    }
    address.is_some()
}

fn put_state(row: &mut ConnectionRecord, name: &str) -> bool {
    let known = STATES.into_iter().find(|state| state.as_str() == name);
    row.state = known.unwrap_or_default();
    known.is_some()
}

fn put_end(row: &mut ConnectionRecord, name: &str) -> bool {
    let known = ENDS.into_iter().find(|end| end.as_str() == name);
    row.end = known.unwrap_or_default();
    known.is_some()
}

pub(super) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const NO_RTT: RttSummary = RttSummary { count: 0, min_ns: 0, max_ns: 0, sum_ns: 0 };
const NOTHING: Sent = Sent {
    packets: 0,
    ip_bytes: 0,
    payload_bytes: 0,
    unique_bytes: 0,
    data_packets: 0,
    retransmitted_packets: 0,
    retransmitted_bytes: 0,
    out_of_order_packets: 0,
    keep_alives: 0,
    zero_windows: 0,
    duplicate_sacks: 0,
    missing_bytes: 0,
    syns: 0,
    fins: 0,
    mss: None,
    window_scale: None,
    fin_at: None,
    rst_at: None,
    data_rtt: NO_RTT,
    timestamp_rtt: NO_RTT,
};
const STATES: [ConnectionState; 13] = [
    ConnectionState::S0,
    ConnectionState::S1,
    ConnectionState::SF,
    ConnectionState::Rej,
    ConnectionState::S2,
    ConnectionState::S3,
    ConnectionState::Rsto,
    ConnectionState::Rstr,
    ConnectionState::Rstos0,
    ConnectionState::Rstrh,
    ConnectionState::Sh,
    ConnectionState::Shr,
    ConnectionState::Oth,
];
const ENDS: [RecordEnd; 5] =
    [RecordEnd::Closed, RecordEnd::Idle, RecordEnd::Reused, RecordEnd::Evicted, RecordEnd::CaptureEnd];
