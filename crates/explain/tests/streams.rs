//! Several streams on one connection: whose bytes held up whose.

use explain::{Cause, Confidence, Evidence, LoadTimes, Packet, Protocol, Span, explain};
use schema::Direction;
use units::Timestamp;
use wire::tcp::flags;

const MS: u64 = 1_000_000;

fn at(milliseconds: u64) -> Timestamp {
    Timestamp::from_nanos(milliseconds * MS)
}

fn packet(milliseconds: u64, direction: Direction, sequence: u32, acknowledgement: u32, length: u32) -> Packet {
    let window = Some(1 << 20);
    Packet {
        at: at(milliseconds),
        direction,
        flags: flags::ACK,
        sequence,
        acknowledgement,
        window,
        length,
        sack: Vec::new(),
    }
}

/// A connection at 20 ms: the request leaves at 100 ms, and the server sends 1000 bytes of the response, then bytes
/// of another stream for 50 ms, then 1000 bytes more of the response.
fn interleaved() -> Evidence {
    let down = |sent: u64, sequence| (sent, packet(sent, Direction::Down, sequence, 600, 1_000));
    let sent = [down(110, 5_000), down(120, 6_000), down(140, 7_000), down(160, 8_000)];
    let mut client = vec![packet(100, Direction::Up, 500, 5_000, 100)];
    let mut server = vec![packet(110, Direction::Up, 500, 5_000, 100)];
    for (milliseconds, packet) in sent {
        client.push(Packet { at: at(milliseconds + 10), ..packet.clone() });
        server.push(packet);
    }
    Evidence {
        load: LoadTimes {
            scheduled_at: at(100),
            started_at: Some(at(100)),
            sent_at: Some(at(100)),
            first_byte_at: Some(at(120)),
            done_at: at(170),
            ..LoadTimes::default()
        },
        client_packets: Some(client),
        server_packets: Some(server),
        protocol: Some(Protocol::Http2),
        request: Some(Span { first: 500, length: 100 }),
        response: Some(vec![Span { first: 5_000, length: 1_000 }, Span { first: 8_000, length: 1_000 }]),
        ..Evidence::default()
    }
}

#[test]
fn bytes_of_other_streams_between_those_of_the_response_are_head_of_line_blocking() {
    let explanation = explain(&interleaved());
    assert_eq!(explanation.response_time_ns(), 70 * MS);
    assert_eq!(explanation.time_of(Cause::Propagation), 20 * MS);
    // Until the last byte of the other stream arrived, 10 ms after it was sent at 140 ms.
    assert_eq!(explanation.time_of(Cause::HeadOfLine), 30 * MS);
    let blocked = explanation.shares().into_iter().find(|share| share.cause == Cause::HeadOfLine);
    assert_eq!(blocked.map(|share| share.confidence), Some(Confidence::Certain));
}

#[test]
fn a_lost_packet_of_an_earlier_response_holds_back_the_next_one() {
    let mut evidence = interleaved();
    evidence.response = Some(vec![Span { first: 6_000, length: 3_000 }]);
    // The packet before the response arrives after its last.
    let client = evidence.client_packets.as_mut().expect("set above");
    client[1].at = at(200);
    evidence.load.done_at = at(200);
    let explanation = explain(&evidence);
    assert_eq!(explanation.response_time_ns(), 100 * MS);
    assert_eq!(explanation.time_of(Cause::HeadOfLine), 30 * MS);
}

#[test]
fn a_connection_of_unknown_protocol_may_have_windows_that_no_input_shows() {
    // The response continues when a packet with payload arrives from the client: perhaps a window update.
    let mut evidence = interleaved();
    evidence.response = None;
    (evidence.protocol, evidence.load.done_at) = (None, at(170));
    let update = |milliseconds| packet(milliseconds, Direction::Up, 600, 8_000, 13);
    evidence.client_packets.as_mut().expect("set above").push(update(150));
    evidence.server_packets.as_mut().expect("set above").push(update(160));
    let explanation = explain(&evidence);
    assert!(explanation.time_of(Cause::Unknown) >= 20 * MS, "{:?}", explanation.shares());
    evidence.protocol = Some(Protocol::Http1);
    assert_eq!(explain(&evidence).time_of(Cause::Unknown), 0);
}
