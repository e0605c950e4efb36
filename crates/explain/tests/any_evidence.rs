//! Properties that hold for any evidence: contradictory, out of order or truncated, too.

use explain::{
    Cause, Confidence, CpuInterval, CpuWait, DataFrame, Evidence, Http2Windows, LoadTimes, Packet, PathRecord,
    Protocol, Rule, Span, TcpSample, WindowUpdate, explain,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use schema::Direction;
use units::Timestamp;

/// Times mostly within a few milliseconds of each other, and sometimes anything.
fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![20 => 0..50_000_000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)].prop_map(Timestamp::from_nanos)
}

/// Durations and sizes mostly small.
fn small() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..5_000_000u64, 1 => any::<u64>()]
}

/// Sequence numbers mostly of a short stream, over the wrap.
fn sequence() -> impl Strategy<Value = u32> {
    prop_oneof![20 => (0..100_000u32).prop_map(|offset| offset.wrapping_sub(5_000)), 1 => any::<u32>()]
}

fn direction() -> impl Strategy<Value = Direction> {
    any::<bool>().prop_map(|up| if up { Direction::Up } else { Direction::Down })
}

fn load() -> impl Strategy<Value = LoadTimes> {
    let optional = || option::of(time());
    (
        time(),
        any::<bool>(),
        option::weighted(0.9, time()),
        (optional(), optional(), optional()),
        (optional(), optional()),
        time(),
    )
        .prop_map(|(scheduled_at, waited_for_connection, started_at, handshake, response, done_at)| LoadTimes {
            scheduled_at,
            waited_for_connection,
            started_at,
            resolved_at: handshake.0,
            connected_at: handshake.1,
            secured_at: handshake.2,
            sent_at: response.0,
            first_byte_at: response.1,
            done_at,
        })
}

fn packet() -> impl Strategy<Value = Packet> {
    let numbers = (sequence(), sequence(), option::weighted(0.8, small()));
    (time(), direction(), any::<u8>(), numbers, 0..3_000u32, vec((sequence(), sequence()), 0..3)).prop_map(
        |(at, direction, flags, (sequence, acknowledgement, window), length, sack)| Packet {
            at,
            direction,
            flags,
            sequence,
            acknowledgement,
            window,
            length,
            sack,
        },
    )
}

fn record() -> impl Strategy<Value = PathRecord> {
    let delays = (small(), small(), small(), small(), small());
    (time(), direction(), sequence(), sequence(), 0..3_000u32, delays, any::<bool>()).prop_map(
        |(entered_at, direction, sequence, acknowledgement, length, delays, dropped)| PathRecord {
            entered_at,
            direction,
            sequence,
            acknowledgement,
            length,
            queue_ns: delays.0,
            shared_queue_ns: delays.1,
            serialisation_ns: delays.2,
            propagation_ns: delays.3,
            reordering_ns: delays.4,
            dropped,
        },
    )
}

fn sample() -> impl Strategy<Value = TcpSample> {
    (time(), 0..100u32, 0..2_000u32, option::of(small()), small()).prop_map(
        |(at, window, segment, min_rtt_ns, limited)| TcpSample {
            at,
            congestion_window: window,
            segment_bytes: segment,
            min_rtt_ns,
            pacing_rate: min_rtt_ns,
            unsent_bytes: min_rtt_ns.map(|unsent| unsent % 3),
            send_buffer_limited_ns: limited,
        },
    )
}

fn windows() -> impl Strategy<Value = Http2Windows> {
    let update = (time(), 0..3u32, small()).prop_map(|(at, stream, increment)| WindowUpdate { at, stream, increment });
    let frame = (time(), 0..3u32, small()).prop_map(|(at, stream, bytes)| DataFrame { at, stream, bytes });
    (0..3u32, small(), small(), vec(update, 0..8), vec(frame, 0..20)).prop_map(
        |(stream, stream_window, connection_window, updates, frames)| Http2Windows {
            stream,
            stream_window,
            connection_window,
            connection_size: (stream == 0).then_some(connection_window),
            updates,
            frames,
        },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let span = || (sequence(), 0..100_000u32).prop_map(|(first, length)| Span { first, length });
    let cpu = (time(), time(), any::<bool>()).prop_map(|(from, to, throttled)| CpuInterval {
        from,
        to,
        why: if throttled { CpuWait::Throttled } else { CpuWait::RunQueue },
    });
    let protocol = prop_oneof![Just(None), Just(Some(Protocol::Http1)), Just(Some(Protocol::Http2))];
    let packets = || option::of(vec(packet(), 0..60));
    let tcp = || option::of(vec(sample(), 0..10));
    (
        load(),
        (packets(), packets(), option::of(vec(record(), 0..60))),
        (tcp(), tcp(), option::of(windows()), option::of(vec(cpu, 0..5))),
        (protocol, option::of(span()), option::of(vec(span(), 0..4)), option::of(small())),
    )
        .prop_map(
            |(load, (client_packets, server_packets, path), (client_tcp, server_tcp, http2, server_cpu), rest)| {
                Evidence {
                    load,
                    client_packets,
                    server_packets,
                    capture_lost_packets: rest.1.is_some(),
                    path,
                    client_tcp,
                    server_tcp,
                    quic: None,
                    http2,
                    server_cpu,
                    protocol: rest.0,
                    request: rest.1,
                    response: rest.2,
                    configured_rtt_ns: rest.3,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_capture_with_losses_divides_the_same_with_less_confidence(evidence in evidence()) {
        let explained = |capture_lost_packets| explain(&Evidence { capture_lost_packets, ..evidence.clone() });
        let (whole, lossy) = (explained(false), explained(true));
        prop_assert_eq!(whole.intervals.len(), lossy.intervals.len());
        for (one, other) in whole.intervals.iter().zip(&lossy.intervals) {
            let same = (one.from_ns, one.to_ns, one.cause, one.rule);
            prop_assert_eq!(same, (other.from_ns, other.to_ns, other.cause, other.rule));
            let by_record = matches!(one.rule, Rule::LoadRecord | Rule::ServerCpu | Rule::NoInput);
            prop_assert!(other.confidence <= one.confidence && (by_record || other.confidence < Confidence::Certain));
        }
    }

    #[test]
    fn shares_sum_to_the_response_time_for_any_evidence(evidence in evidence()) {
        let explanation = explain(&evidence);
        let (start, end) = (evidence.load.scheduled_at.as_nanos(), evidence.load.done_at.as_nanos());
        prop_assert_eq!(explanation.response_time_ns(), end.saturating_sub(start));
        let shares: u64 = explanation.shares().iter().map(|share| share.time_ns).sum();
        prop_assert_eq!(shares, end.saturating_sub(start));
        let mut cursor = start;
        for part in &explanation.intervals {
            prop_assert_eq!(part.from_ns, cursor);
            prop_assert!(part.to_ns > part.from_ns);
            cursor = part.to_ns;
        }
    }

    #[test]
    fn a_request_that_never_started_is_unknown(mut evidence in evidence()) {
        evidence.load.started_at = None;
        let explanation = explain(&evidence);
        let causes: Vec<Cause> = explanation.intervals.iter().map(|part| part.cause).collect();
        prop_assert!(causes.iter().all(|cause| *cause == Cause::Unknown), "{:?}", causes);
    }
}
