//! Connections: times, states, counts, roles.

#[path = "support/packets.rs"]
mod support;

use schema::{ConnectionState, RecordEnd};
use support::*;
use watch::{CapturePoint, Limits, Watch, WatchSpec};
use wire::link::LinkType;

#[test]
fn handshake_has_three_times() {
    let mut talk = Talk::new();
    talk.open().send_data(CLIENT, b"x").wait(5).close();
    let outcome = talk.outcome();
    let record = outcome.connection();
    assert_eq!(
        (record.syn_at, record.syn_ack_at, record.ack_at),
        (Some(millis(1000)), Some(millis(1002)), Some(millis(1050)))
    );
    assert_eq!((record.handshake_rtt_ns, record.server_rtt_ns), (Some(48_000_000), Some(2_000_000)));
    assert_eq!(
        (record.client.to_string(), record.server.to_string()),
        ("198.19.0.1:40000".into(), "198.18.0.1:80".into())
    );
    assert!(record.roles_seen);
    assert_eq!((record.state, record.closed_at), (ConnectionState::SF, Some(millis(1066))));
    assert_eq!((record.duration_ns(), record.first_to_last_ns()), (66_000_000, 67_000_000));
    assert_eq!((record.up.packets, record.down.packets), (5, 3));
    assert_eq!((record.up.fins, record.down.fins, record.up.syns), (1, 1, 1));
    assert_eq!((record.up.payload_bytes, record.up.unique_bytes, record.down.payload_bytes), (1, 1, 0));
    assert_eq!((record.up.data_rtt.count, record.up.data_rtt.min_ns), (1, 10_000_000));
}

#[test]
fn handshake_rtt_depends_on_the_capture_point() {
    for (capture_point, expected) in
        [(CapturePoint::AtServer, 48), (CapturePoint::AtClient, 2), (CapturePoint::Between, 50)]
    {
        let mut talk = Talk::new();
        talk.open();
        let mut watch = Watch::new(WatchSpec { capture_point, ..WatchSpec::default() });
        talk.feed(&mut watch, 100);
        assert_eq!(watch.handshake_rtt().max, expected * 1_000_000);
    }
}

#[test]
fn retransmitted_syn_ack_gives_no_rtt() {
    let mut talk = Talk::new();
    talk.send(CLIENT, SYN, b"").wait(1);
    let syn_ack = talk.make(SERVER, SYN | ACK, b"");
    talk.send(SERVER, SYN | ACK, b"").wait(1000);
    talk.packets.push((talk.at, syn_ack));
    talk.wait(30).send(CLIENT, ACK, b"");
    let outcome = talk.outcome();
    let record = outcome.connection();
    assert_eq!((record.handshake_rtt_ns, record.down.syns), (None, 2));
    assert_eq!(record.server_rtt_ns, Some(1_000_000));
    assert_eq!(record.ack_at, Some(millis(2031)));
}

#[test]
fn every_connection_state_is_recorded() {
    let cases: [(ConnectionState, &[(bool, u8)]); 13] = [
        (ConnectionState::S0, &[(CLIENT, SYN)]),
        (ConnectionState::S1, &[(CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, ACK)]),
        (
            ConnectionState::SF,
            &[(CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, FIN | ACK), (SERVER, FIN | ACK), (CLIENT, ACK)],
        ),
        (ConnectionState::Rej, &[(CLIENT, SYN), (SERVER, RST | ACK)]),
        (ConnectionState::S2, &[(CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, FIN | ACK), (SERVER, ACK)]),
        (ConnectionState::S3, &[(CLIENT, SYN), (SERVER, SYN | ACK), (SERVER, FIN | ACK), (CLIENT, ACK)]),
        (ConnectionState::Rsto, &[(CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, RST)]),
        (ConnectionState::Rstr, &[(CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, ACK), (SERVER, RST)]),
        (ConnectionState::Rstos0, &[(CLIENT, SYN), (CLIENT, RST)]),
        (ConnectionState::Rstrh, &[(SERVER, SYN | ACK), (SERVER, RST)]),
        (ConnectionState::Sh, &[(CLIENT, SYN), (CLIENT, FIN)]),
        (ConnectionState::Shr, &[(SERVER, SYN | ACK), (SERVER, FIN | ACK)]),
        (ConnectionState::Oth, &[(CLIENT, ACK), (SERVER, ACK)]),
    ];
    for (state, packets) in cases {
        let mut talk = Talk::new();
        for &(from_client, flags) in packets {
            talk.send(from_client, flags, b"").wait(1);
        }
        assert_eq!(talk.outcome().connection().state, state);
    }
}

/// Zeek's duration continues after one side's RST, until the other side has closed, too; it excludes the tear-down's
/// last acknowledgement.
#[test]
fn duration_ends_when_both_sides_have_closed() {
    let mut talk = Talk::new();
    talk.open().send(CLIENT, RST, b"").wait(7).send(SERVER, ACK, b"late").wait(5).send(SERVER, FIN | ACK, b"");
    talk.wait(3).send(CLIENT, RST, b"");
    let outcome = talk.outcome();
    let record = outcome.connection();
    assert_eq!((record.closed_at, record.open_until), (Some(millis(1050)), millis(1062)));
    assert_eq!((record.duration_ns(), record.first_to_last_ns()), (62_000_000, 65_000_000));
    assert_eq!(record.state, ConnectionState::Rsto);
    let mut open = Talk::new();
    open.open().wait(20).send_data(CLIENT, b"x");
    assert_eq!(open.outcome().connection().duration_ns(), 80_000_000);
}

#[test]
fn simultaneous_open_is_one_connection() {
    let mut talk = Talk::new();
    talk.send(CLIENT, SYN, b"").send(SERVER, SYN, b"");
    let (mut up, mut down) = (talk.make(CLIENT, SYN | ACK, b""), talk.make(SERVER, SYN | ACK, b""));
    (up.sequence, down.sequence) = (1000, 500_000);
    talk.packets.extend([(1001, up), (1002, down)]);
    let outcome = talk.outcome();
    let record = outcome.connection();
    assert_eq!((record.state, record.client.port()), (ConnectionState::S1, 40_000));
    assert_eq!((record.up.syns, record.down.syns), (2, 2));
}

#[test]
fn retransmission_reordering_and_probes_are_distinguished() {
    let mut talk = Talk::new();
    talk.open();
    let (first, again) = (talk.make(SERVER, ACK, &[1; 100]), talk.make(SERVER, ACK, &[1; 100]));
    talk.send(SERVER, ACK, &[1; 100]);
    // A hole of 100 bytes, then its bytes, then the first bytes once more.
    let late = talk.make(SERVER, ACK, &[2; 100]);
    talk.server.next += 100;
    talk.send(SERVER, ACK, &[3; 100]);
    talk.packets.push((talk.at, late));
    talk.packets.push((talk.at + 1, again));
    talk.wait(2).send(CLIENT, ACK, b"");
    // A keep-alive: one byte below the next, all of it acknowledged.
    let mut keep_alive = talk.make(SERVER, ACK, b"");
    keep_alive.sequence -= 1;
    let mut probe = keep_alive.clone();
    probe.payload = vec![0];
    talk.packets.extend([(talk.at, keep_alive), (talk.at, probe)]);
    let mut closed_window = talk.make(CLIENT, ACK, b"");
    closed_window.window = 0;
    talk.packets.push((talk.at, closed_window));
    let outcome = talk.outcome();
    let down = &outcome.connection().down;
    assert_eq!((down.retransmitted_packets, down.retransmitted_bytes - 1), (1, first.payload.len() as u64));
    assert_eq!((down.out_of_order_packets, down.keep_alives, down.missing_bytes), (1, 2, 0));
    assert_eq!(down.unique_bytes, 300);
    assert_eq!(outcome.connection().up.zero_windows, 1);
}

#[test]
fn retransmitted_segments_give_no_rtt() {
    let mut talk = Talk::new();
    talk.open();
    let again = talk.make(SERVER, ACK, b"slow");
    talk.send(SERVER, ACK, b"slow").wait(200);
    talk.packets.push((talk.at, again));
    talk.wait(40).send(CLIENT, ACK, b"").wait(5).send_data(SERVER, b"next");
    let rtt = talk.outcome().connection().down.data_rtt;
    assert_eq!((rtt.count, rtt.min_ns, rtt.max_ns), (1, 10_000_000, 10_000_000));
}

#[test]
fn timestamps_give_an_rtt_despite_a_retransmission() {
    let stamps = |value: u32, echo: u32| {
        let mut options = vec![1, 1, 8, 10];
        options.extend(value.to_be_bytes());
        options.extend(echo.to_be_bytes());
        options
    };
    let mut talk = Talk::new();
    talk.open();
    let mut data = talk.make(SERVER, ACK, b"data");
    data.options = stamps(5000, 1);
    let mut again = data.clone();
    again.options = stamps(5200, 1);
    talk.server.next += 4;
    let mut ack = talk.make(CLIENT, ACK, b"");
    ack.options = stamps(2, 5000);
    talk.packets.extend([(2000, data), (2200, again), (2240, ack)]);
    let outcome = talk.outcome();
    let down = &outcome.connection().down;
    assert_eq!((down.timestamp_rtt.count, down.timestamp_rtt.max_ns, down.data_rtt.count), (1, 240_000_000, 0));
}

#[test]
fn sequence_numbers_wrap() {
    let mut talk = Talk::new();
    (talk.client.next, talk.server.next) = (u32::MAX - 3, u32::MAX);
    talk.open();
    for _ in 0..5 {
        talk.send_data(SERVER, &[7; 1000]).send_data(CLIENT, &[8; 3]);
    }
    talk.close();
    let outcome = talk.outcome();
    let record = outcome.connection();
    assert_eq!((record.down.unique_bytes, record.up.unique_bytes), (5000, 15));
    assert_eq!((record.down.retransmitted_packets, record.down.out_of_order_packets), (0, 0));
    assert_eq!((record.down.missing_bytes, record.up.missing_bytes, record.state), (0, 0, ConnectionState::SF));
}

#[test]
fn bytes_acknowledged_and_not_seen_are_missing_until_they_arrive() {
    let mut talk = Talk::new();
    talk.open();
    let late = talk.make(SERVER, ACK, &[1; 40]);
    talk.server.next += 100;
    talk.send(SERVER, ACK, &[2; 50]).wait(10).send(CLIENT, ACK, b"");
    assert_eq!(talk.outcome().connection().down.missing_bytes, 100);
    talk.packets.push((talk.at, late));
    assert_eq!(talk.outcome().connection().down.missing_bytes, 60);
    // Bytes acknowledged beyond the seen bytes.
    talk.server.next += 1000;
    talk.wait(1).send(CLIENT, ACK, b"");
    assert_eq!(talk.outcome().connection().down.missing_bytes, 1060);
}

#[test]
fn roles_of_a_connection_open_before_the_capture_follow_configuration_or_ports() {
    let mut talk = Talk::new();
    talk.send_data(SERVER, b"middle").send_data(CLIENT, b"of something");
    let outcome = talk.outcome();
    let record = outcome.connection();
    assert_eq!((record.server.port(), record.roles_seen, record.state), (80, false, ConnectionState::Oth));
    assert_eq!((record.down.payload_bytes, record.down.missing_bytes, record.up.missing_bytes), (6, 0, 0));
    let requests_seen = WatchSpec { server_ports: Some(vec![40_000]), ..WatchSpec::default() };
    assert_eq!(talk.outcome_with(requests_seen, 100).connection().server.port(), 40_000);
    let requests_seen = WatchSpec { servers: vec!["198.19.0.1".parse().unwrap()], ..WatchSpec::default() };
    assert_eq!(talk.outcome_with(requests_seen, 100).connection().server.port(), 40_000);
}

#[test]
fn new_syn_begins_a_connection_and_a_retransmitted_one_does_not() {
    for is_closed in [true, false] {
        let mut talk = Talk::new();
        let again = talk.make(CLIENT, SYN, b"");
        talk.open();
        talk.packets.push((talk.at, again));
        talk.send_data(CLIENT, b"first");
        if is_closed {
            talk.close();
        }
        (talk.client.next, talk.server.next) = (77_000, 99_000);
        talk.wait(100).open().send_data(CLIENT, b"second one").close();
        let outcome = talk.outcome();
        let sent: Vec<_> = outcome.connections.iter().map(|record| (record.end, record.up.payload_bytes)).collect();
        assert_eq!(sent, [(RecordEnd::Reused, 5), (RecordEnd::CaptureEnd, 10)], "closed: {is_closed}");
        let state = if is_closed { ConnectionState::SF } else { ConnectionState::S1 };
        assert_eq!(outcome.connections[0].state, state);
        assert_eq!((outcome.connections[0].connection, outcome.connections[1].connection), (0, 1));
    }
}

#[test]
fn closed_connections_linger_and_idle_ones_time_out() {
    let mut talk = Talk::new();
    talk.open().close();
    let mut idle = Talk::from_port(41_000);
    idle.open();
    let mut watch = Watch::new(WatchSpec::default());
    talk.feed(&mut watch, 100);
    idle.feed(&mut watch, 100);
    assert_eq!((watch.live().connections, watch.live().flows_held), (1, 2));
    let mut records = Vec::new();
    watch.handle_time(millis(5_000));
    watch.take_connections(&mut records);
    assert!(records.is_empty());
    watch.handle_time(millis(7_000));
    watch.take_connections(&mut records);
    assert_eq!(records.iter().map(|record| record.end).collect::<Vec<_>>(), [RecordEnd::Closed]);
    // The last packet arrived at 1050 ms; silence is checked every second.
    watch.handle_time(millis(301_000));
    watch.take_connections(&mut records);
    assert_eq!((records.len(), watch.live().connections), (1, 1));
    watch.handle_time(millis(302_100));
    watch.take_connections(&mut records);
    assert_eq!((records.len(), records[1].end, watch.live().connections), (2, RecordEnd::Idle, 0));
}

#[test]
fn full_table_evicts_closed_connections_first() {
    let spec = || WatchSpec { limits: Limits { flows: 2, ..Limits::default() }, ..WatchSpec::default() };
    let mut watch = Watch::new(spec());
    for port in [1000, 2000, 3000, 4000] {
        let mut talk = Talk::from_port(port);
        talk.open();
        if port == 2000 {
            talk.close();
        }
        talk.feed(&mut watch, 100);
    }
    let outcome = finish(watch, millis(2000));
    let ends: Vec<_> = outcome.connections.iter().map(|record| (record.client.port(), record.end)).collect();
    assert_eq!(ends[0], (2000, RecordEnd::Closed));
    assert_eq!(ends[1].1, RecordEnd::Evicted);
    assert_eq!(outcome.connections.len(), 4);
}

#[test]
fn truncated_packets_and_padding_change_no_count() {
    let mut talk = Talk::new();
    talk.open();
    for _ in 0..4 {
        talk.send_data(SERVER, &[7; 1448]).send_data(CLIENT, &[8; 60_000]);
    }
    talk.close();
    let whole = talk.outcome();
    for snap in [40, 54, 96, 128] {
        assert_eq!(talk.outcome_with(WatchSpec::default(), snap).connections, whole.connections, "snap {snap}");
    }
    let mut watch = Watch::new(WatchSpec::default());
    for (at, packet) in &talk.packets {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend(packet.bytes());
        frame.resize(frame.len().max(60), 0xEE);
        watch.handle_packet(millis(*at), LinkType::Ethernet, &frame, frame.len() as u32);
    }
    assert_eq!(finish(watch, millis(talk.at)).connections, whole.connections);
}

#[test]
fn first_fragment_is_analysed_and_later_ones_are_counted() {
    let mut talk = Talk::new();
    talk.open().send(CLIENT, ACK, b"GET / HT");
    let mut watch = Watch::new(WatchSpec::default());
    for (at, packet) in &talk.packets {
        let mut bytes = packet.bytes();
        if !packet.payload.is_empty() {
            bytes[6] = 0x20;
            let mut later = bytes.clone();
            (later[6], later[7]) = (0, 9);
            watch.handle_packet(millis(*at), LinkType::RawIp, &later, later.len() as u32);
        }
        watch.handle_packet(millis(*at), LinkType::RawIp, &bytes, bytes.len() as u32);
    }
    let counts = watch.live().counts;
    assert_eq!((counts.tcp, counts.first_fragments, counts.later_fragments), (4, 1, 1));
    assert_eq!(finish(watch, millis(talk.at)).connection().fragments, 1);
}

#[test]
fn duplicate_sack_counts_a_needless_retransmission() {
    let mut talk = Talk::new();
    talk.open().send_data(SERVER, &[1; 100]);
    let mut ack = talk.make(CLIENT, ACK, b"");
    ack.options = vec![1, 1, 5, 10];
    ack.options.extend(500_001u32.to_be_bytes());
    ack.options.extend(500_051u32.to_be_bytes());
    talk.packets.push((talk.at, ack));
    assert_eq!(talk.outcome().connection().up.duplicate_sacks, 1);
}

#[test]
fn series_has_counts_per_second() {
    let mut talk = Talk::new();
    talk.at = 10_000;
    talk.open().wait(450).send_data(CLIENT, b"GET / HTTP/1.1\r\n\r\n").wait(990);
    talk.send_data(SERVER, b"HTTP/1.1 204 No Content\r\n\r\n").wait(490).close();
    let outcome = talk.outcome();
    let rows = &outcome.seconds;
    assert_eq!(rows.iter().map(|row| row.second).collect::<Vec<_>>(), [10, 11, 12]);
    assert_eq!((rows[0].connections_opened, rows[0].requests, rows[0].responses, rows[0].handshakes), (1, 1, 0, 1));
    assert_eq!((rows[0].connections, rows[0].in_flight, rows[0].sessions), (1, 1, 1));
    assert_eq!((rows[0].in_flight_mean, rows[0].connections_mean), (0.5, 1.0));
    assert_eq!((rows[1].responses, rows[1].in_flight, rows[1].in_flight_mean), (1, 0, 0.5));
    assert_eq!((rows[2].connections_closed, rows[2].connections, rows[2].sessions), (1, 0, 0));
    assert_eq!(rows.iter().map(|row| row.packets).sum::<u64>(), talk.packets.len() as u64);
}

/// More capture losses on one connection than the limit of holes: each byte is still counted once.
#[test]
fn capture_losses_beyond_the_hole_limit_are_counted_once() {
    let mut talk = Talk::new();
    talk.open();
    for _ in 0..500 {
        talk.server.next += 10;
        talk.send(SERVER, ACK, b"x").send(CLIENT, ACK, b"");
    }
    // The last byte that was seen is retransmitted.
    let mut again = talk.make(SERVER, ACK, b"x");
    again.sequence -= 1;
    talk.packets.push((talk.at, again));
    talk.close();
    let outcome = talk.outcome();
    let down = &outcome.connection().down;
    assert_eq!((down.missing_bytes, down.unique_bytes), (5000, 500));
    assert_eq!((down.retransmitted_bytes, down.out_of_order_packets), (1, 0));
}
