//! Responses over QUIC in virtual time: each limit alone is named, by packets of both ends or of one.

mod any;
mod sim;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use explain::{
    Cause, ClientLinks, Confidence, Evidence, Explanation, Limit, LinkFacts, LoadTimes, Protocol, QuicCapture,
    QuicConnections, explain, quic_evidence,
};
use schema::{QuicConnectionRecord, QuicPacket, QuicSent, RecordEnd, WireRequest};
use sim::{MS, OWN, Recording, SEGMENT, World};
use units::Timestamp;

/// What is known of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inputs {
    /// Both ends and the path's links, as of a run.
    Run,
    BothEnds,
    Client,
    Server,
}

const ALL: [Inputs; 4] = [Inputs::Run, Inputs::BothEnds, Inputs::Client, Inputs::Server];

fn address(last: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(198, 19, 0, last).into(), 4_000)
}

/// A connection's record, as the analysis of packets makes it.
pub fn record(packets: &[QuicPacket]) -> QuicConnectionRecord {
    let first_at = packets.iter().map(|packet| packet.at).min().unwrap_or(Timestamp::ZERO);
    QuicConnectionRecord {
        connection: 0,
        client: address(1),
        server: address(2),
        migrated_client: None,
        migrations: 0,
        version: 1,
        original_destination_id: Some("0123456789abcdef".into()),
        client_id: None,
        server_id: None,
        server_name: None,
        offered_protocols: None,
        first_at,
        last_at: first_at,
        answered_at: None,
        secured_at: None,
        handshake_rtt_ns: None,
        server_rtt_ns: None,
        version_negotiations: 0,
        retries: 0,
        undecrypted_packets: 0,
        closed_at: None,
        close_error: None,
        idle_timeout_ns: None,
        end: RecordEnd::CaptureEnd,
        up: QuicSent::default(),
        down: QuicSent::default(),
        requests: 1,
    }
}

/// A capture with this one connection.
pub fn capture(packets: &[QuicPacket]) -> QuicCapture {
    let mut capture = QuicCapture::new();
    let mut packets = packets.to_vec();
    packets.sort_by_key(|packet| packet.at);
    capture.add_connections(&mut vec![record(&packets)]);
    capture.add_packets(&mut packets);
    capture
}

fn connections(world: &World, recording: &Recording, inputs: Inputs) -> QuicConnections {
    let client = (inputs != Inputs::Server).then(|| capture(&recording.client));
    let server = (inputs != Inputs::Client).then(|| capture(&recording.server));
    let link = LinkFacts { delay_ns: world.rtt_ns / 2, ..LinkFacts::default() };
    let links = ClientLinks { up: link, down: LinkFacts { bit_per_s: world.bit_per_s, ..link } };
    QuicConnections::new(client.as_ref(), server.as_ref(), |_| (inputs == Inputs::Run).then_some(links), None)
}

/// The request as the analysis of packets reports it at the end of `inputs`.
fn request(world: &World, recording: &Recording, inputs: Inputs) -> WireRequest {
    let half = if inputs == Inputs::Server { world.rtt_ns / 2 } else { 0 };
    let at = |nanos: u64| Some(Timestamp::from_nanos(nanos));
    WireRequest {
        connection: 0,
        index: 0,
        request_first_at: at(recording.secured_at + half),
        request_last_at: at(recording.secured_at + half),
        response_first_at: at(recording.done_at - half),
        response_last_at: at(recording.done_at - half),
        complete: true,
        http_version: 3,
        stream: Some(OWN),
        ..WireRequest::BLANK
    }
}

fn explained(world: &World, inputs: Inputs) -> Explanation {
    let recording = sim::run(world);
    let connections = connections(world, &recording, inputs);
    let evidence = quic_evidence(&request(world, &recording, inputs), &connections).expect("the response was seen");
    let explanation = explain(&evidence);
    let whole = evidence.load.done_at.as_nanos() - evidence.load.scheduled_at.as_nanos();
    assert_eq!(explanation.response_time_ns(), whole);
    explanation
}

fn share(explanation: &Explanation, cause: Cause) -> f64 {
    explanation.time_of(cause) as f64 / explanation.response_time_ns() as f64
}

/// Worlds in which one limit dominates.
fn worlds(rtt_ms: u64) -> Vec<(&'static str, World, Limit)> {
    let rtt = rtt_ms * MS;
    let large = World::new(rtt, 500 * SEGMENT);
    let small = World::new(rtt, SEGMENT);
    let mut all = vec![
        ("initial window", World { initial_window: 2, ..large.clone() }, Limit::Of(Cause::CongestionWindow)),
        (
            "stream window",
            World { initial_window: 600, stream_window: 20 * SEGMENT, ..large.clone() },
            Limit::Of(Cause::QuicStreamWindow),
        ),
        (
            "connection window",
            World { initial_window: 600, connection_window: 20 * SEGMENT, ..large.clone() },
            Limit::Of(Cause::QuicConnectionWindow),
        ),
        ("processing", World { processing_ns: 10 * rtt, ..small.clone() }, Limit::Of(Cause::ServerProcessing)),
        (
            "rate",
            World { initial_window: 600, bit_per_s: Some(4_000_000_000 / rtt_ms / 8), ..large.clone() },
            Limit::Of(Cause::BottleneckRate),
        ),
        (
            "pause",
            World { initial_window: 600, pause: Some((5 * SEGMENT, 10 * rtt)), ..World::new(rtt, 10 * SEGMENT) },
            Limit::Of(Cause::ServerPause),
        ),
        (
            "loss in the middle",
            World {
                initial_window: 40,
                lost: (1..40).map(|number| number * 25).collect(),
                ..World::new(rtt, 400 * SEGMENT)
            },
            Limit::Loss,
        ),
        ("tail loss", World { lost: [9].into(), ..World::new(rtt, 10 * SEGMENT) }, Limit::Loss),
        ("certificates", World { long_certificates: true, ..small }, Limit::Of(Cause::Propagation)),
    ];
    for (_, world, _) in &mut all {
        world.pacing_ns = (rtt / 3_000).min(20_000);
    }
    all
}

#[test]
fn each_limit_alone_is_named_by_both_ends_and_never_wrong_with_confidence_by_one() {
    let (mut right, mut unknown, mut weak) = ([0; 4], [0; 4], [0; 4]);
    let (mut wrong, mut doubt) = (Vec::new(), Vec::new());
    let mut count = 0;
    for rtt_ms in [10, 60, 200] {
        for (name, world, limit) in worlds(rtt_ms).into_iter().filter(|(name, ..)| *name != "certificates") {
            count += 1;
            for (place, inputs) in ALL.into_iter().enumerate() {
                let explanation = explained(&world, inputs);
                let dominant = explanation.dominant().unwrap();
                if dominant.limit == limit {
                    right[place] += 1;
                } else if dominant.limit == Limit::Of(Cause::Unknown) {
                    unknown[place] += 1;
                    doubt.push((name, rtt_ms, inputs, dominant.limit));
                } else if dominant.confidence == Confidence::Weak {
                    weak[place] += 1;
                    doubt.push((name, rtt_ms, inputs, dominant.limit));
                } else {
                    wrong
                        .push(format!("{name} at {rtt_ms} ms by {inputs:?}: {dominant:?}, {:?}", explanation.shares()));
                }
            }
        }
    }
    println!("{doubt:?}");
    println!("of {count} by {ALL:?}: right {right:?}, unknown {unknown:?}, wrong and weak {weak:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(right[0], count, "a run");
    assert!(right[1] + 1 >= count, "both ends: {right:?}");
}

/// Of four packets each arrives 30 us later than the one before, 125 times: together 11 ms, which are no distance.
#[test]
fn timing_errors_of_the_path_do_not_add_up_to_distance() {
    let late = (0..500).map(|number| (number, number % 4 * 30_000)).collect();
    let world = World { initial_window: 600, pacing_ns: 100_000, late, ..World::new(60 * MS, 500 * SEGMENT) };
    let explanation = explained(&world, Inputs::Run);
    let distance = explanation.time_of(Cause::Propagation);
    assert!((60 * MS..61 * MS).contains(&distance), "{distance}: {:?}", explanation.shares());
    // 499 gaps of 100 us.
    let pacing = explanation.time_of(Cause::Pacing);
    assert!((49 * MS..51 * MS).contains(&pacing), "{pacing}: {:?}", explanation.shares());
}

#[test]
fn shares_of_a_run_are_those_of_the_simulation() {
    let world = World { initial_window: 600, stream_window: 20 * SEGMENT, ..World::new(60 * MS, 200 * SEGMENT) };
    let explanation = explained(&world, Inputs::Run);
    // 200 packets, 20 a round trip: nine waits.
    let waits = explanation.time_of(Cause::QuicStreamWindow) as f64 / 60e6;
    assert!((8.5..=9.1).contains(&waits), "{waits} round trips: {:?}", explanation.shares());
    assert!(share(&explanation, Cause::Unknown) < 0.01);
    let handshake = explanation.time_of(Cause::QuicHandshake);
    assert!((60 * MS..63 * MS).contains(&handshake), "{handshake}");
    assert_eq!(explanation.facts.stream_window, Some(20 * SEGMENT));
}

#[test]
fn a_probe_is_told_from_a_loss_that_acknowledgements_report() {
    let tail = explained(&World { lost: [9].into(), ..World::new(60 * MS, 10 * SEGMENT) }, Inputs::Run);
    assert!(tail.time_of(Cause::TailLoss) > 100 * MS, "{:?}", tail.shares());
    assert_eq!(tail.time_of(Cause::FastRetransmit), 0);
    let middle = explained(&World { lost: [4].into(), ..World::new(60 * MS, 10 * SEGMENT) }, Inputs::Run);
    let fast = middle.time_of(Cause::FastRetransmit);
    assert!((50 * MS..70 * MS).contains(&fast), "{:?}", middle.shares());
    assert_eq!(middle.time_of(Cause::TailLoss) + middle.time_of(Cause::RetransmissionTimeout), 0);
}

#[test]
fn a_late_packet_that_was_sent_again_is_reordering() {
    let world = World { late: [(4, 40 * MS)].into(), ..World::new(60 * MS, 30 * SEGMENT) };
    for inputs in [Inputs::Run, Inputs::BothEnds] {
        let explanation = explained(&world, inputs);
        assert_eq!(explanation.time_of(Cause::FastRetransmit), 0, "{inputs:?}: {:?}", explanation.shares());
    }
}

#[test]
fn a_lost_packet_of_another_stream_holds_nothing_back() {
    let with_others = World { others: 10, initial_window: 40, ..World::new(60 * MS, 20 * SEGMENT) };
    let whole = explained(&with_others, Inputs::Run);
    // Packet 5 is of the other stream.
    let lossy = explained(&World { lost: [5].into(), ..with_others.clone() }, Inputs::Run);
    assert_eq!(whole.response_time_ns(), lossy.response_time_ns());
    for cause in [Cause::FastRetransmit, Cause::TailLoss, Cause::RetransmissionTimeout, Cause::Reordering] {
        assert_eq!(lossy.time_of(cause), 0, "{:?}", lossy.shares());
    }
    assert!(whole.time_of(Cause::HeadOfLine) > 0, "{:?}", whole.shares());
    // Of the own stream it does.
    let own = explained(&World { lost: [4].into(), ..with_others }, Inputs::Run);
    assert!(own.time_of(Cause::FastRetransmit) > 50 * MS, "{:?}", own.shares());
}

#[test]
fn certificates_that_exceed_the_amplification_limit_are_named() {
    let world = World { long_certificates: true, ..World::new(60 * MS, SEGMENT) };
    for inputs in ALL {
        let explanation = explained(&world, inputs);
        let waited = explanation.time_of(Cause::AmplificationLimit);
        assert!((55 * MS..65 * MS).contains(&waited), "{inputs:?}: {:?}", explanation.shares());
        let usual = explained(&World { long_certificates: false, ..world.clone() }, inputs);
        assert_eq!(usual.time_of(Cause::AmplificationLimit), 0, "{inputs:?}");
    }
}

#[test]
fn random_losses_are_never_windows_of_flow_control() {
    let mut state = 1_u64;
    for _ in 0..40 {
        let mut lost = std::collections::BTreeSet::new();
        for number in 0..400 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if state >> 58 == 0 {
                lost.insert(number);
            }
        }
        let world = World { lost, ..World::new(60 * MS, 200 * SEGMENT) };
        for inputs in ALL {
            let explanation = explained(&world, inputs);
            let stated = [Cause::QuicStreamWindow, Cause::QuicConnectionWindow, Cause::AmplificationLimit];
            assert!(
                stated.iter().all(|cause| explanation.time_of(*cause) == 0),
                "{inputs:?}: {:?}",
                explanation.shares()
            );
        }
    }
}

#[test]
fn load_times_alone_give_a_handshake_and_no_window() {
    let at = |ms: u64| Some(Timestamp::from_nanos(ms * MS));
    let load = LoadTimes {
        started_at: at(0),
        connected_at: at(61),
        secured_at: at(61),
        first_byte_at: at(125),
        done_at: Timestamp::from_nanos(400 * MS),
        ..LoadTimes::default()
    };
    let evidence =
        Evidence { load, protocol: Some(Protocol::Http3), configured_rtt_ns: Some(60 * MS), ..Evidence::default() };
    let explanation = explain(&evidence);
    assert_eq!(explanation.time_of(Cause::QuicHandshake), 61 * MS);
    assert_eq!(explanation.time_of(Cause::TcpHandshake) + explanation.time_of(Cause::TlsHandshake), 0);
    assert_eq!(explanation.dominant().unwrap().limit, Limit::Of(Cause::Unknown));
    let _ = Arc::new(evidence);
}
