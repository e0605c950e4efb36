//! watch_series.parquet: one row a second, as the wire saw it.

use schema::WatchSecond;

use super::{Field, Row, signed, unsigned};

/// A count.
macro_rules! count {
    ($field:ident, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($field),
            $unit,
            $about,
            |row: &WatchSecond| Some(signed(row.$field)),
            |row, value| row.$field = unsigned(value),
        )
    };
}

/// A round-trip time that exists only where a handshake was completed.
macro_rules! rtt {
    ($field:ident, $about:literal) => {
        Field::integer(
            stringify!($field),
            "ns",
            $about,
            |row: &WatchSecond| (row.handshakes > 0).then_some(signed(row.$field)),
            |row, value| row.$field = unsigned(value),
        )
        .nullable()
    };
}

/// A mean over time.
macro_rules! mean {
    ($field:ident, $unit:literal, $about:literal) => {
        Field::float(
            stringify!($field),
            $unit,
            $about,
            |row: &WatchSecond| row.$field,
            |row, value| {
                row.$field = value;
            },
        )
    };
}

impl Row for WatchSecond {
    const TABLE: &'static str = "watch_series";
    const ROW: &'static str = "One second as the wire saw it (watch). Levels are weighted by time. A silence of more than \
        a minute has no rows after its first minute.";

    const BLANK: WatchSecond = WatchSecond {
        second: 0,
        watched_ns: 0,
        packets: 0,
        bytes: 0,
        data_packets: 0,
        retransmitted_packets: 0,
        connections_opened: 0,
        connections_closed: 0,
        connections_mean: 0.0,
        connections_min: 0,
        connections_max: 0,
        connections: 0,
        sessions_mean: 0.0,
        sessions_max: 0,
        sessions: 0,
        requests: 0,
        responses: 0,
        in_flight_mean: 0.0,
        in_flight_max: 0,
        in_flight: 0,
        handshakes: 0,
        handshake_rtt_p50_ns: 0,
        handshake_rtt_p90_ns: 0,
        handshake_rtt_p99_ns: 0,
        handshake_rtt_max_ns: 0,
        capture_drops: 0,
        missing_bytes: 0,
    };

    const FIELDS: &'static [Field<WatchSecond>] = &[
        count!(
            second,
            "s",
            "The second, by capture time: since the run's zero where a load or a program ran, since 1970 (UTC) in the \
             logs of `yamabiko watch`."
        ),
        count!(watched_ns, "ns", "How much of this second was watched: less than 10^9 in the first and the last."),
        count!(packets, "packets", "Packets of any kind, as captured."),
        count!(bytes, "bytes", "Their bytes on the wire, link headers included."),
        count!(data_packets, "packets", "TCP packets with payload."),
        count!(retransmitted_packets, "packets", "Those that repeated bytes seen before."),
        count!(connections_opened, "connections", "Connections whose first SYN came (connection arrivals)."),
        count!(connections_closed, "connections", "Connections that stopped being in process."),
        mean!(connections_mean, "connections", "Mean of the connections in process."),
        count!(connections_min, "connections", "Fewest connections in process."),
        count!(connections_max, "connections", "Most connections in process."),
        count!(connections, "connections", "Connections in process at the end of the second."),
        mean!(sessions_mean, "connections", "Mean of the HTTP sessions: connections with a request, not closed."),
        count!(sessions_max, "connections", "Most HTTP sessions."),
        count!(sessions, "connections", "HTTP sessions at the end of the second."),
        count!(requests, "requests", "HTTP requests whose first byte came (request arrivals)."),
        count!(responses, "requests", "HTTP responses whose last byte came."),
        mean!(
            in_flight_mean,
            "requests",
            "Mean of the transactions in progress: first byte of the request to last byte of the response."
        ),
        count!(in_flight_max, "requests", "Most transactions in progress."),
        count!(in_flight, "requests", "Transactions in progress at the end of the second."),
        count!(handshakes, "connections", "Handshakes completed with a round-trip time."),
        rtt!(
            handshake_rtt_p50_ns,
            "Median of their round-trip times at this capture point. Null where there was none."
        ),
        rtt!(handshake_rtt_p90_ns, "90th percentile of the same. Null where there was none."),
        rtt!(handshake_rtt_p99_ns, "99th percentile of the same. Null where there was none."),
        rtt!(handshake_rtt_max_ns, "Largest of the same. Null where there was none."),
        count!(capture_drops, "packets", "Packets that the capturing system said it lost."),
        count!(missing_bytes, "bytes", "Bytes acknowledged in this second that the capture never saw."),
    ];
}
