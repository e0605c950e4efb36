//! Whatever the packets are, a response is divided without a gap, an overlap or a panic.

use explain::{QuicConnections, explain, quic_evidence};
use proptest::collection::vec;
use proptest::prelude::*;
use schema::{Direction, QuicFrame, QuicPacket, QuicPacketKind, WireRequest};
use units::Timestamp;

/// Small numbers, which meet each other, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0_u64..20, 1 => any::<u64>()]
}

fn frame() -> impl Strategy<Value = QuicFrame> {
    let bytes = || prop_oneof![9 => 0_u64..20_000, 1 => any::<u64>()];
    let stream = || prop_oneof![Just(0_u64), Just(4), Just(3)];
    prop_oneof![
        4 => (stream(), bytes(), 0_u32..3_000, any::<bool>())
            .prop_map(|(id, offset, length, ends)| QuicFrame::Stream { id, offset, length, ends }),
        2 => (vec((number(), number()), 1..4), number()).prop_map(|(ranges, delay)| QuicFrame::Ack { ranges, delay }),
        1 => (bytes(), 0_u32..2_000).prop_map(|(offset, length)| QuicFrame::Crypto { offset, length }),
        1 => bytes().prop_map(|bytes| QuicFrame::MaxData { bytes }),
        1 => (stream(), bytes()).prop_map(|(id, bytes)| QuicFrame::MaxStreamData { id, bytes }),
        1 => (bytes(), bytes(), number()).prop_map(|(connection_window, stream_window, ack_delay_exponent)| {
            QuicFrame::ClientParameters { connection_window, stream_window, ack_delay_exponent }
        }),
    ]
}

fn packet() -> impl Strategy<Value = QuicPacket> {
    let kind = prop_oneof![
        1 => Just(QuicPacketKind::Initial),
        1 => Just(QuicPacketKind::Handshake),
        1 => Just(QuicPacketKind::EarlyData),
        6 => Just(QuicPacketKind::Data),
        1 => Just(QuicPacketKind::Retry),
    ];
    let at = prop_oneof![20 => 0_u64..1_000_000_000, 1 => any::<u64>()];
    (at, any::<bool>(), kind, number(), any::<u32>(), any::<bool>(), vec(frame(), 0..4)).prop_map(
        |(at, is_up, kind, number, length, is_ack_eliciting, frames)| QuicPacket {
            connection: 0,
            at: Timestamp::from_nanos(at),
            direction: if is_up { Direction::Up } else { Direction::Down },
            kind,
            number,
            length,
            is_ack_eliciting,
            frames,
        },
    )
}

proptest! {
    #[test]
    fn any_packets_divide_a_response_exactly(
        client in vec(packet(), 0..60),
        server in vec(packet(), 0..60),
        same in vec((packet(), 0_u64..100_000_000), 0..40),
        which in 0..3,
        times in (0_u64..1_000_000_000, 0_u64..1_000_000_000),
    ) {
        let (mut client, mut server) = (client, server);
        for (packet, delay) in same {
            let later = Timestamp::from_nanos(packet.at.as_nanos().saturating_add(delay));
            let (sent, received) = match packet.direction {
                Direction::Up => (&mut client, &mut server),
                Direction::Down => (&mut server, &mut client),
            };
            received.push(QuicPacket { at: later, ..packet.clone() });
            sent.push(packet);
        }
        let captures = [&client, &server].map(|packets| super::capture(packets));
        let client = (which != 1).then_some(&captures[0]);
        let server = (which != 0).then_some(&captures[1]);
        let connections = QuicConnections::new(client, server, |_| None, None);
        let at = |nanos: u64| Some(Timestamp::from_nanos(nanos));
        let request = WireRequest {
            request_first_at: at(times.0),
            request_last_at: at(times.0),
            response_last_at: at(times.0.saturating_add(times.1)),
            complete: true,
            http_version: 3,
            stream: Some(0),
            ..WireRequest::BLANK
        };
        if let Some(evidence) = quic_evidence(&request, &connections) {
            let explanation = explain(&evidence);
            let load = evidence.load;
            let whole = load.done_at.as_nanos().saturating_sub(load.scheduled_at.as_nanos());
            prop_assert_eq!(explanation.response_time_ns(), whole);
            explain::time_sequence(&evidence);
            if let Some(transfer) = explain::transfer(&explanation) {
                transfer.simulate();
            }
        }
    }
}
