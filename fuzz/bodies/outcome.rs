//! The result of a packet analysis, and checks that must hold for any packets.
#![allow(dead_code, reason = "every body uses a part of this module")]

use schema::{ConnectionRecord, Direction, WatchSecond, WireRequest};
use units::Timestamp;
use watch::{Limits, Watch, WatchSpec, take_work};

/// Limits that few packets reach.
pub const SMALL: Limits =
    Limits { flows: 8, held_per_direction: 4096, held_in_all: 16_384, holes: 4, pipelined: 4, streams: 4 };

/// All records of an analysis.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub connections: Vec<ConnectionRecord>,
    pub requests: Vec<WireRequest>,
    pub seconds: Vec<WatchSecond>,
}

/// An analysis with these limits.
pub fn watch(limits: Limits) -> Watch {
    take_work();
    Watch::new(WatchSpec { limits, ..WatchSpec::default() })
}

/// Asserts that the table of flows and the buffered bytes are within their limits.
pub fn check_bounds(watch: &Watch, limits: &Limits) {
    let live = watch.live();
    assert!(live.flows_held <= 2 * limits.flows as u64, "{live:?}");
    assert!(live.bytes_held <= limits.held_in_all as u64, "{live:?}");
    assert!(live.connections <= live.flows_held, "{live:?}");
}

/// Ends the analysis and asserts that the counts are consistent.
pub fn finish(mut watch: Watch, at: Timestamp) -> Outcome {
    let counts = watch.live().counts;
    assert_eq!(counts.packets, counts.tcp + counts.quic + counts.other + counts.later_fragments + counts.malformed);
    watch.finish(at);
    let mut outcome = Outcome { connections: Vec::new(), requests: Vec::new(), seconds: Vec::new() };
    watch.take_connections(&mut outcome.connections);
    watch.take_requests(&mut outcome.requests);
    watch.take_seconds(&mut outcome.seconds);
    let live = watch.live();
    assert_eq!((live.connections, live.sessions, live.in_flight, live.bytes_held, live.flows_held), (0, 0, 0, 0, 0));
    assert_eq!(outcome.connections.len() as u64, counts.connections);
    let sum = |of: fn(&WatchSecond) -> u64| outcome.seconds.iter().map(of).sum::<u64>();
    assert_eq!((sum(|row| row.packets), sum(|row| row.bytes)), (counts.packets, counts.bytes));
    let complete = outcome.requests.iter().filter(|request| request.complete).count() as u64;
    assert_eq!(sum(|row| row.responses), complete);
    let mut packets = 0;
    for record in &outcome.connections {
        assert!(record.first_at <= record.last_at);
        for direction in Direction::BOTH {
            let sent = record.sent(direction);
            packets += sent.packets;
            assert!(sent.data_packets <= sent.packets && sent.payload_bytes <= sent.ip_bytes, "{sent:?}");
            assert!(sent.unique_bytes <= sent.payload_bytes, "{sent:?}");
            assert!(sent.retransmitted_packets <= sent.data_packets, "{sent:?}");
            assert_eq!(sent.unique_bytes + sent.retransmitted_bytes, sent.payload_bytes, "{sent:?}");
            assert!(sent.out_of_order_packets <= sent.data_packets, "{sent:?}");
        }
    }
    assert_eq!(packets, counts.tcp, "every segment is told to one connection");
    outcome
}

/// A UDP packet over IPv4.
pub fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((28 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(source.0);
    packet.extend(destination.0);
    packet.extend(source.1.to_be_bytes());
    packet.extend(destination.1.to_be_bytes());
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}
