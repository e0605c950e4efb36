//! How long responses take: round trips, windows, loss.

use std::sync::Arc;
use std::time::Duration;

use http3::congestion::GrowsWhenUsed;
use http3::{CongestionControl, Event, Transport};
use quinn_proto::TransportConfig;
use quinn_proto::congestion::CubicConfig;

use super::world::{MS, Setup, World};

fn is_connected(event: &Event<u32>) -> bool {
    matches!(event, Event::Connected)
}

fn is_first_byte(event: &Event<u32>) -> bool {
    matches!(event, Event::Received { .. })
}

fn is_end(event: &Event<u32>) -> bool {
    matches!(event, Event::End { .. })
}

/// Time from the connect to the end of a response of `bytes`.
fn takes(rtt: Duration, setup: Setup, bytes: u64, change: impl FnOnce(&mut World)) -> Duration {
    let mut world = World::new(rtt, setup);
    change(&mut world);
    let begin = world.now;
    world.connect();
    world.request(1, &format!("/bytes/{bytes}"));
    world.run(Duration::from_secs(600), |world| world.has(is_end));
    assert_eq!(world.body_bytes(1) as u64, bytes);
    world.time_of(begin, is_end).expect("the response is complete")
}

/// A server whose congestion window begins with this many bytes.
fn initial_window(bytes: u64) -> TransportConfig {
    let mut cubic = CubicConfig::default();
    cubic.initial_window(bytes);
    let mut config = TransportConfig::default();
    config.congestion_controller_factory(Arc::new(GrowsWhenUsed::new(cubic))).send_window(1 << 30);
    config
}

fn assert_within(measured: Duration, expected: Duration, tolerance: f64) {
    let ratio = measured.as_secs_f64() / expected.as_secs_f64();
    assert!((1.0 - tolerance..=1.0 + tolerance).contains(&ratio), "{measured:?}, expected {expected:?}");
}

#[test]
fn the_first_response_arrives_after_two_round_trips() {
    for rtt in [1, 20, 62, 300] {
        let rtt = rtt * MS;
        let mut world = World::new(rtt, Setup::default());
        let begin = world.now;
        world.connect();
        world.request(1, "/bytes/100");
        world.run(Duration::from_secs(10), |world| world.has(is_end));
        assert_eq!(world.time_of(begin, is_connected), Some(rtt));
        assert_eq!(world.time_of(begin, is_first_byte), Some(2 * rtt));
        assert_eq!(world.time_of(begin, is_end), Some(2 * rtt));
        let sent = |event: &Event<u32>| matches!(event, Event::Sent { last: true, .. });
        assert_eq!(world.time_of(begin, sent), Some(rtt));
    }
}

#[test]
fn with_early_data_the_first_response_arrives_after_one_round_trip() {
    let rtt = 62 * MS;
    let mut world = World::new(rtt, Setup { early_data: true, ..Setup::default() });
    world.connect();
    assert!(!world.connection.as_ref().unwrap().has_early_data());
    world.request(1, "/bytes/100");
    world.run(Duration::from_secs(1), |_| false);
    assert!(world.has(is_end));
    world.events.clear();
    let begin = world.now;
    world.connect();
    assert!(world.connection.as_ref().unwrap().has_early_data());
    world.request(2, "/bytes/100");
    world.run(Duration::from_secs(1), |world| world.has(is_end));
    assert_eq!(world.time_of(begin, is_end), Some(rtt));
    assert_eq!(world.time_of(begin, is_connected), Some(rtt));
    assert_eq!(world.time_of(begin, |event| matches!(event, Event::Sent { last: true, .. })), Some(Duration::ZERO));
    let figures = world.connection.as_ref().unwrap().figures();
    assert!(figures.early_data_offered && figures.early_data_accepted);
    let negotiated = world.connection.as_ref().unwrap().negotiated().unwrap();
    assert_eq!(negotiated.kind, Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn a_retry_costs_one_round_trip() {
    let rtt = 62 * MS;
    let mut world = World::new(rtt, Setup::default());
    world.server.retries = true;
    let begin = world.now;
    world.connect();
    world.request(1, "/bytes/100");
    world.run(Duration::from_secs(10), |world| world.has(is_end));
    assert_eq!(world.time_of(begin, is_connected), Some(2 * rtt));
    assert_eq!(world.time_of(begin, is_end), Some(3 * rtt));
    assert_eq!(world.connection.as_ref().unwrap().figures().retries, 1);
}

/// The responses of <https://github.com/zoxy-io/zrk/issues/89>, which a client with small windows received in 0.7 and
/// 10.5 s.
#[test]
fn at_62_ms_a_response_takes_the_servers_slow_start_and_no_more() {
    let rtt = 62 * MS;
    for (bytes, window) in [(88_000, 12_000), (126_000, 12_000), (1_300_000, 12_000), (1_300_000, 120_000)] {
        // In slow start the window doubles with each round trip. The last round is paced over less than one.
        let rounds = (1..).find(|rounds| window * ((1u64 << rounds) - 1) >= bytes).unwrap();
        let measured =
            takes(rtt, Setup { server_transport: initial_window(window), ..Setup::default() }, bytes, |_| {});
        let most = rtt * (rounds + 2);
        assert!(measured <= most, "{bytes} bytes: {measured:?}, at most {most:?}");
        assert!(measured >= rtt * (rounds + 1) - rtt / 2, "{bytes} bytes: {measured:?}, {rounds} rounds");
    }
}

/// Over one connection the window grows until it carries a response at once; then only its pacing is left.
#[test]
fn later_responses_of_a_connection_take_little_more_than_a_round_trip() {
    let rtt = 62 * MS;
    for bytes in [88_000, 126_000, 1_300_000] {
        let mut world = World::new(rtt, Setup { server_transport: initial_window(12_000), ..Setup::default() });
        world.connect();
        let mut took = Vec::new();
        for key in 1..=10 {
            let begin = world.now;
            world.request(key, &format!("/bytes/{bytes}"));
            world.run(Duration::from_secs(60), |world| world.ended() == key as usize);
            took.push(world.now.since(begin));
        }
        let last = took[9].as_secs_f64() / rtt.as_secs_f64();
        assert!((1.0..1.5).contains(&last), "{bytes} bytes: {took:?}");
    }
}

/// A window that is not used says nothing about the path, and must not grow.
#[test]
fn small_responses_do_not_enlarge_the_window() {
    let rtt = 62 * MS;
    let rounds = |small: u32| {
        let mut world = World::new(rtt, Setup { server_transport: initial_window(12_000), ..Setup::default() });
        world.connect();
        for key in 1..=small {
            world.request(key, "/bytes/2000");
            world.run(Duration::from_secs(60), |world| world.ended() == key as usize);
        }
        let begin = world.now;
        world.request(small + 1, "/bytes/300000");
        world.run(Duration::from_secs(60), |world| world.ended() == small as usize + 1);
        (world.now.since(begin).as_secs_f64() / rtt.as_secs_f64()).round()
    };
    // 12, 24, 48, 96 and part of 192 kB, each a round trip.
    assert_eq!((rounds(1), rounds(60)), (6.0, 6.0));
}

#[test]
fn without_a_servers_window_a_response_takes_two_round_trips() {
    let rtt = 62 * MS;
    for bytes in [126_000, 1_300_000, 5_900_000] {
        let server_transport = initial_window(1 << 40);
        let measured = takes(rtt, Setup { server_transport, ..Setup::default() }, bytes, |_| {});
        assert_within(measured, 2 * rtt, 0.1);
    }
}

#[test]
fn a_small_stream_window_limits_a_response_to_a_window_each_round_trip() {
    let rtt = 62 * MS;
    let (window, bytes) = (64 << 10, 1_300_000);
    for (stream_window, connection_window) in [(window, 15 << 20), (6 << 20, window)] {
        let transport = Transport { stream_window, connection_window, ..Transport::default() };
        let server_transport = initial_window(1 << 40);
        let measured = takes(rtt, Setup { transport, server_transport, ..Setup::default() }, bytes, |_| {});
        // The client raises the limit after each eighth of a window, so a round trip is never lost as a whole.
        let expected = rtt.mul_f64(1.0 + bytes as f64 / window as f64);
        assert_within(measured, expected, 0.1);
    }
}

#[test]
fn a_rate_is_used_whole() {
    // 10 MB over 10 Mbit/s at 30 ms.
    let rtt = 30 * MS;
    let rate = |world: &mut World| world.down.rate = Some(1_250_000);
    let measured = takes(rtt, Setup::default(), 10_000_000, rate);
    let goodput = 10_000_000.0 * 8.0 / measured.as_secs_f64();
    assert!(goodput >= 9.2e6, "{goodput} bit/s");
}

#[test]
fn lost_packets_are_repaired_in_both_directions() {
    for every in [10, 25] {
        let measured = takes(20 * MS, Setup::default(), 500_000, |world| {
            world.down.drops = Some(Box::new(move |count| count % every == 0));
            world.up.drops = Some(Box::new(move |count| count % every == 3));
        });
        assert!(measured < Duration::from_secs(20), "{measured:?}");
    }
}

#[test]
fn a_lost_first_packet_is_repeated_after_the_assumed_rtt() {
    let rtt = 20 * MS;
    for initial_rtt in [100, 333] {
        let initial_rtt = initial_rtt * MS;
        let transport = Transport { initial_rtt, ..Transport::default() };
        let measured = takes(rtt, Setup { transport, ..Setup::default() }, 100, |world| {
            world.up.drops = Some(Box::new(|count| count == 1));
        });
        // RFC 9002, section 6.2.2: the first probe after three times the assumed RTT.
        assert_eq!(measured, 3 * initial_rtt + 2 * rtt);
    }
}

#[test]
fn uploads_use_the_congestion_control_of_the_client() {
    for congestion_control in [CongestionControl::Cubic, CongestionControl::Bbr, CongestionControl::NewReno] {
        let transport = Transport { congestion_control, ..Transport::default() };
        let mut world = World::new(62 * MS, Setup { transport, ..Setup::default() });
        world.up.rate = Some(1_250_000);
        let begin = world.now;
        world.connect();
        world.send(1, "/bytes/0", &vec![b'y'; 1_000_000]);
        world.run(Duration::from_secs(60), |world| world.has(is_end));
        let sent: u64 =
            world.events.iter().map(|(_, event)| if let Event::Sent { bytes, .. } = event { *bytes } else { 0 }).sum();
        assert_eq!(sent, world.server.uploaded, "{congestion_control:?}");
        let end = world.time_of(begin, is_end).unwrap();
        let last = world.time_of(begin, |event| matches!(event, Event::Sent { last: true, .. })).unwrap();
        // At 10 Mbit/s the body takes 0.8 s; it is sent when its last packet is, not when it is written.
        assert!(last > Duration::from_millis(500) && last < end, "{congestion_control:?}: sent {last:?}, end {end:?}");
        assert!(end < Duration::from_secs(4), "{congestion_control:?}: {end:?}");
    }
}
