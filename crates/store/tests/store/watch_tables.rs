//! Tables of captured packets are read back as they were written.

use std::sync::Arc;

use crate::support::fresh_run;
use schema::{
    ConnectionRecord, ConnectionState, Framing, QuicConnectionRecord, QuicSent, RecordEnd, RttSummary, Sent,
    WatchSecond, WireRequest,
};
use store::{read_connections, read_quic_connections, read_watch_series, read_wire_requests};
use units::Timestamp;

/// A connection whose fields differ by its number; every second one has all optional fields.
pub fn connection(number: u64) -> ConnectionRecord {
    let full = number % 2 == 1;
    let at = |offset: u64| Timestamp::from_nanos(1_795_167_005_000_000_000 + number * 1_000 + offset);
    let sent = |salt: u64| Sent {
        packets: number + salt,
        payload_bytes: 10_000 + salt,
        missing_bytes: u64::from(full),
        syns: 1,
        mss: full.then_some(1460),
        window_scale: full.then_some(7),
        rst_at: full.then_some(at(salt)),
        data_rtt: if full { RttSummary { count: 3, min_ns: 1, max_ns: 5, sum_ns: 9 } } else { RttSummary::default() },
        ..Sent::default()
    };
    let client = if full { "[2001:2:0:2::7]:40000" } else { "198.19.0.7:50000" };
    ConnectionRecord {
        connection: number,
        client: client.parse().unwrap(),
        client_index: full.then_some(6),
        server: "198.18.0.1:80".parse().unwrap(),
        roles_seen: full,
        syn_at: full.then_some(at(0)),
        syn_ack_at: full.then_some(at(1)),
        ack_at: full.then_some(at(2)),
        handshake_rtt_ns: full.then_some(48_000_000),
        server_rtt_ns: full.then_some(4_000),
        first_at: at(0),
        last_at: at(9),
        first_data_at: full.then_some(at(3)),
        last_data_at: full.then_some(at(4)),
        closed_at: full.then_some(at(8)),
        open_until: at(if full { 8 } else { 9 }),
        state: if full { ConnectionState::Rstos0 } else { ConnectionState::Oth },
        end: if full { RecordEnd::Reused } else { RecordEnd::CaptureEnd },
        up: sent(1),
        down: sent(2),
        fragments: 1,
        requests: 5,
        server_name: full.then(|| Arc::from(&b"a\\b\xFF\x00.example"[..])),
    }
}

/// A QUIC connection; every second one has all optional fields.
pub fn quic_connection(number: u64) -> QuicConnectionRecord {
    let full = number % 2 == 1;
    let at = |offset: u64| Timestamp::from_nanos(1_795_167_005_000_000_000 + number * 1_000 + offset);
    let id = |text: &str| full.then(|| Arc::from(text));
    let sent = |salt: u64| QuicSent {
        datagrams: number + salt,
        ip_bytes: 1_500 + salt,
        spin_rtt: if full { RttSummary { count: 3, min_ns: 1, max_ns: 5, sum_ns: 9 } } else { RttSummary::default() },
        ..QuicSent::default()
    };
    QuicConnectionRecord {
        connection: number,
        client: "198.19.0.7:50000".parse().unwrap(),
        server: "[2001:2::1]:443".parse().unwrap(),
        migrated_client: full.then(|| "198.19.0.8:50001".parse().unwrap()),
        migrations: u32::from(full),
        version: 0x6B33_43CF,
        original_destination_id: id("8394c8f03e515708"),
        client_id: id("c1"),
        server_id: id("f067a5502a4262b5"),
        server_name: full.then(|| Arc::from(&b"a\\b\xFF\x00.example"[..])),
        offered_protocols: full.then(|| Arc::from(&b"h3,hq-interop"[..])),
        first_at: at(0),
        last_at: at(9),
        answered_at: full.then_some(at(1)),
        secured_at: full.then_some(at(2)),
        handshake_rtt_ns: full.then_some(48_000_000),
        server_rtt_ns: full.then_some(4_000),
        version_negotiations: 0,
        retries: u32::from(full),
        undecrypted_packets: 2,
        closed_at: full.then_some(at(8)),
        close_error: full.then_some(0x0100),
        idle_timeout_ns: full.then_some(30_000_000_000),
        end: if full { RecordEnd::Closed } else { RecordEnd::Idle },
        up: sent(1),
        down: sent(2),
        requests: 5,
    }
}

pub fn request(number: u64) -> WireRequest {
    let full = number % 2 == 1;
    let at = |offset: u64| full.then(|| Timestamp::from_nanos(number * 1_000 + offset));
    WireRequest {
        connection: number / 3,
        client: "198.19.0.7:50000".parse().unwrap(),
        server: "[2001:2::1]:8080".parse().unwrap(),
        index: (number % 3) as u32,
        request_first_at: at(0),
        request_last_at: at(1),
        response_first_at: at(2),
        response_last_at: at(3),
        method: full.then(|| Arc::from(&b"GET"[..])),
        host: full.then(|| Arc::from(&b"\x1B[31m"[..])),
        path: full.then(|| Arc::from(format!("/{number}/\u{5c71}").as_bytes())),
        minor_version: None,
        http_version: 1,
        stream: None,
        referer: None,
        user_agent: None,
        status: full.then_some(200),
        request_bytes: 80,
        response_bytes: number,
        framing: if full { Framing::Exact } else { Framing::ByDirection },
        complete: full,
    }
}

#[test]
fn connections_round_trip_over_several_parts_and_row_groups() {
    let (_dir, _book, run) = fresh_run();
    let rows: Vec<_> = (0..40_000).map(connection).collect();
    let mut writer = run.connections();
    writer.push(&rows).unwrap();
    let table = writer.finish().unwrap();
    assert_eq!(table.rows, 40_000);
    assert!(read_connections(run.path()).unwrap().map(Result::unwrap).eq(rows));
}

#[test]
fn quic_connections_round_trip() {
    let (_dir, _book, run) = fresh_run();
    let rows: Vec<_> = (0..1000).map(quic_connection).collect();
    let mut writer = run.quic_connections();
    writer.push(&rows).unwrap();
    writer.finish().unwrap();
    assert!(read_quic_connections(run.path()).unwrap().map(Result::unwrap).eq(rows));
}

#[test]
fn wire_requests_round_trip() {
    let (_dir, _book, run) = fresh_run();
    let rows: Vec<_> = (0..1000).map(request).collect();
    let mut writer = run.wire_requests();
    rows.chunks(300).for_each(|some| {
        writer.push(some).unwrap();
        writer.close_part().unwrap();
    });
    writer.finish().unwrap();
    assert!(read_wire_requests(run.path()).unwrap().map(Result::unwrap).eq(rows));
}

/// A second whose fields differ by its number.
pub fn second(second: u64) -> WatchSecond {
    WatchSecond {
        second,
        watched_ns: 1_000_000_000,
        connections_mean: second as f64 / 3.0,
        handshakes: second % 2,
        handshake_rtt_p99_ns: second % 2 * 48_000_000,
        ..WatchSecond::default()
    }
}

#[test]
fn seconds_round_trip() {
    let (_dir, _book, run) = fresh_run();
    let rows: Vec<_> = (0..50).map(second).collect();
    let mut writer = run.watch_series();
    writer.push(&rows).unwrap();
    writer.finish().unwrap();
    assert!(read_watch_series(run.path()).unwrap().map(Result::unwrap).eq(rows));
}
