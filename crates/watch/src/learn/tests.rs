//! Learning as a whole in virtual time: clients with known RTTs, and the learned profile.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use schema::{ConnectionState, RttSummary, Sent};
use stats::Rng;

use super::*;

/// A connection without particular properties.
pub(super) fn record() -> ConnectionRecord {
    LONE.clone()
}

/// The record of the analysis for a single packet.
static LONE: LazyLock<ConnectionRecord> = LazyLock::new(|| {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 19, 0, 1, 198, 18, 0, 1];
    packet.extend([0x9C, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 16, 0, 1, 0, 0, 0, 0]);
    let mut watch = crate::Watch::new(crate::WatchSpec::default());
    watch.handle_packet(Timestamp::ZERO, wire::link::LinkType::RawIp, &packet, 40);
    watch.finish(Timestamp::ZERO);
    let mut records = Vec::new();
    watch.take_connections(&mut records);
    let record = records.remove(0);
    assert_eq!((record.server.port(), record.syn_at, record.ack_at), (80, None, None));
    ConnectionRecord { up: Sent::default(), down: Sent::default(), requests: 1, ..record }
});

const SERVER_NS: u64 = 40_000;

/// A connection of `client` at `at_ns`, captured at the server.
fn connection(client: u32, at_ns: u64, rtt_ns: u64) -> ConnectionRecord {
    let at = |offset: u64| Some(Timestamp::from_nanos(at_ns + offset));
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 19, 0, 1)) + client);
    ConnectionRecord {
        client: SocketAddr::from((address, 40_000)),
        syn_at: at(0),
        syn_ack_at: at(SERVER_NS),
        ack_at: at(SERVER_NS + rtt_ns),
        handshake_rtt_ns: Some(rtt_ns),
        server_rtt_ns: Some(SERVER_NS),
        up: Sent { syns: 1, data_packets: 1, payload_bytes: 100, ..Sent::default() },
        down: Sent { syns: 1, data_packets: 8, payload_bytes: 10_000, ..Sent::default() },
        ..record()
    }
}

fn learn(records: &[ConnectionRecord]) -> Learn {
    let mut learn = Learn::new(LearnSpec::default());
    learn.add_connections(records);
    learn
}

fn finish(learn: &Learn, by: By) -> Result<Learned, LearnError> {
    learn.finish(by, false, Timestamp::ZERO, Timestamp::from_nanos(60_000_000_000))
}

/// RTT at a quantile, along the learned curve.
fn at(learned: &Learned, quantile: f64) -> f64 {
    let points = &learned.points;
    let above = points.partition_point(|point| point.0 < quantile).clamp(1, points.len() - 1);
    let ((q0, v0), (q1, v1)) = (points[above - 1], points[above]);
    v0 as f64 + ((quantile - q0) / (q1 - q0)).clamp(0.0, 1.0) * (v1 as f64 - v0 as f64)
}

fn close(measured: f64, expected: f64, share: f64) {
    assert!((measured / expected - 1.0).abs() <= share, "{measured} for {expected}");
}

/// Log-normal RTTs with some noise of the measurement, 20,000 clients of three connections: recovered to within 3 %,
/// for any seed.
#[test]
fn known_rtt_distribution_is_recovered() {
    for seed in 0..5 {
        let mut rng = Rng::new(seed, 0);
        let rtt = |q: f64| 48e6 * (1.3 * stats::normal::quantile(q)).exp();
        let records: Vec<ConnectionRecord> = (0..60_000)
            .map(|number| {
                let client = number % 20_000;
                let q = (f64::from(client) + 0.5) / 20_000.0;
                let noise_ns = (rng.exponential() * 50_000.0) as u64;
                connection(client, u64::from(number) * 1_000_000, rtt(q) as u64 + noise_ns)
            })
            .collect();
        let learn = learn(&records);
        for by in [By::Connection, By::Request, By::Client] {
            let learned = finish(&learn, by).unwrap();
            for percent in 1..=99 {
                let q = f64::from(percent) / 100.0;
                close(at(&learned, q), rtt(q) + 50_000.0, 0.03);
            }
            assert_eq!((learned.clients, learned.place), (20_000, CaptureLocation::AsConfigured));
            close(learned.effective, 20_000.0, 1e-9);
        }
        let learned = finish(&learn, By::Connection).unwrap();
        close(learned.arrivals.connections.rate_per_s, 1000.0, 1e-9);
        assert_eq!(learned.tallies.by_handshake, 60_000);
    }
}

/// Nine near clients with one connection each, and a far one with 91.
#[test]
fn quantiles_by_connection_and_by_client_differ() {
    let mut records: Vec<_> = (1..10).map(|client| connection(client, 0, 5_000_000)).collect();
    records.extend((0..91).map(|number| connection(0, number * 1_000_000, 200_000_000)));
    records[0].requests = 300;
    let learn = learn(&records);
    let median = |by| finish(&learn, by).unwrap().rtt_ns.p50;
    close(median(By::Connection) as f64, 200e6, 0.001);
    close(median(By::Client) as f64, 5e6, 0.001);
    close(median(By::Request) as f64, 5e6, 0.001);
    let learned = finish(&learn, By::Connection).unwrap();
    assert!(learned.effective < 1.3, "{}", learned.effective);
    assert_eq!(learned.shares.heavy[0].share, 0.91);
}

/// A client beyond the server's timeout causes a retransmitted SYN-ACK: its data shows that the first was acknowledged.
/// The RTT of a client whose SYN-ACK was lost comes from its data alone.
#[test]
fn clients_with_retransmitted_syn_acks_are_measured() {
    let data = |rtt_ns: u64| RttSummary { count: 2, min_ns: rtt_ns, max_ns: rtt_ns * 2, sum_ns: rtt_ns * 3 };
    let mut far = connection(1, 0, 1_400_000_000);
    (far.handshake_rtt_ns, far.down.syns, far.down.timestamp_rtt) = (None, 2, data(1_500_000_000));
    let mut lost = connection(2, 0, 1_030_000_000);
    (lost.handshake_rtt_ns, lost.down.syns, lost.down.timestamp_rtt) = (None, 2, data(31_000_000));
    let mut silent = connection(3, 0, 1_000_000);
    (silent.handshake_rtt_ns, silent.down.syns) = (None, 2);
    use distance::{ConnectionRtt, measure};
    assert_eq!(measure(&far, CapturePoint::AtServer), ConnectionRtt::Handshake(1_400_000_000));
    assert_eq!(measure(&lost, CapturePoint::AtServer), ConnectionRtt::Data(31_000_000));
    assert_eq!(measure(&silent, CapturePoint::AtServer), ConnectionRtt::Nothing);
    let mut records = vec![far, lost, silent];
    records.extend((0..30).map(|client| connection(client, 0, 50_000_000)));
    let learned = finish(&learn(&records), By::Connection).unwrap();
    let Tallies { by_handshake, by_data, untold, handshakes_repeated, .. } = learned.tallies;
    assert_eq!((by_handshake, by_data, untold, handshakes_repeated), (31, 1, 1, 3));
    assert_eq!(learned.rtt_ns.max, 1_400_000_000);
}

/// Open before the capture: by data, if there is enough of it.
#[test]
fn connection_open_before_the_capture_is_measured_by_its_data() {
    let mut middle = ConnectionRecord { requests: 9, ..record() };
    middle.down.data_packets = 5;
    middle.down.data_rtt = RttSummary { count: 2, min_ns: 70, max_ns: 90, sum_ns: 160 };
    use distance::{ConnectionRtt, measure};
    assert_eq!(measure(&middle, CapturePoint::AtServer), ConnectionRtt::Nothing);
    middle.down.data_rtt.count = 3;
    assert_eq!(measure(&middle, CapturePoint::AtServer), ConnectionRtt::Data(70));
    middle.down.timestamp_rtt = RttSummary { count: 9, min_ns: 60, max_ns: 90, sum_ns: 700 };
    assert_eq!(measure(&middle, CapturePoint::AtServer), ConnectionRtt::Data(60));
    assert_eq!(measure(&middle, CapturePoint::AtClient), ConnectionRtt::Nothing, "the RTT to the server is unknown");
    let learned = learn(&[middle]);
    assert_eq!(
        (learned.tallies().connections, learned.arrivals.arrivals(Timestamp::ZERO, Timestamp::ZERO).bins.len()),
        (1, 0)
    );
}

#[test]
fn capture_without_a_distribution_is_rejected() {
    let error = |records: &[ConnectionRecord], by| finish(&learn(records), by).unwrap_err();
    assert_eq!(error(&[], By::Connection), LearnError::Nothing);
    let scan = ConnectionRecord { state: ConnectionState::S0, syn_at: Some(Timestamp::ZERO), ..record() };
    assert_eq!(error(&[scan.clone(), scan], By::Client), LearnError::HalfOpen { half_open: 2 });
    let some = |count: u32| (0..count).map(|client| connection(client, 0, 1_000_000)).collect::<Vec<_>>();
    assert_eq!(error(&some(19), By::Client), LearnError::TooFew { measured: 19, connections: 19 });
    assert!(finish(&learn(&some(20)), By::Client).is_ok());
    let one_way: Vec<_> =
        some(20).into_iter().map(|record| ConnectionRecord { handshake_rtt_ns: None, ..record }).collect();
    assert_eq!(error(&one_way, By::Connection), LearnError::Untold { connections: 20 });
    let opaque: Vec<_> = some(20).into_iter().map(|record| ConnectionRecord { requests: 0, ..record }).collect();
    assert_eq!(error(&opaque, By::Request), LearnError::NoRequests { connections: 20 });
}

#[test]
fn wrong_capture_point_is_detected() {
    let records = |client_side: u64, server_side: u64| -> Vec<_> {
        let record = |client| ConnectionRecord {
            server_rtt_ns: Some(server_side),
            handshake_rtt_ns: Some(client_side),
            ..connection(client, 0, client_side)
        };
        (0..30).map(record).collect()
    };
    let place = |client_side, server_side, capture_point| {
        let mut learn = Learn::new(LearnSpec { capture_point, ..LearnSpec::default() });
        learn.add_connections(&records(client_side, server_side));
        finish(&learn, By::Connection).unwrap().place
    };
    use CapturePoint::{AtClient, AtServer, Between};
    assert_eq!(place(48_000_000, 60_000, AtServer), CaptureLocation::AsConfigured);
    let other = CaptureLocation::OtherEnd { near_ns: 48_000_000, far_ns: 60_000 };
    let is_other = |place| matches!(place, CaptureLocation::OtherEnd { .. });
    assert!(is_other(place(60_000, 48_000_000, AtServer)) && is_other(other));
    assert!(is_other(place(48_000_000, 60_000, AtClient)));
    assert_eq!(place(60_000, 48_000_000, AtClient), CaptureLocation::AsConfigured);
    assert!(matches!(place(40_000_000, 8_000_000, AtServer), CaptureLocation::Between { .. }));
    assert_eq!(place(40_000_000, 8_000_000, Between), CaptureLocation::AsConfigured);
    // A server on the same network, whose kernel takes half as long as the network.
    assert_eq!(place(200_000, 100_000, AtServer), CaptureLocation::AsConfigured);
    let mut learn = Learn::new(LearnSpec { capture_point: Between, ..LearnSpec::default() });
    learn.add_connections(&records(40_000_000, 8_000_000));
    close(finish(&learn, By::Connection).unwrap().rtt_ns.p50 as f64, 48e6, 0.001);
}

#[test]
fn servers_ports_and_exceptions_select_connections() {
    let mut records: Vec<_> = (0..50).map(|client| connection(client, 0, 1_000_000)).collect();
    records[0].server.set_port(443);
    records[1].server.set_ip(Ipv4Addr::new(10, 0, 0, 1).into());
    let count = |spec: LearnSpec| {
        let mut learn = Learn::new(spec);
        learn.add_connections(&records);
        learn.tallies().connections
    };
    assert_eq!(count(LearnSpec { ports: vec![443], ..LearnSpec::default() }), 1);
    assert_eq!(count(LearnSpec { servers: vec![Ipv4Addr::new(198, 18, 0, 1).into()], ..LearnSpec::default() }), 49);
    assert_eq!(count(LearnSpec { except: vec![Ipv4Addr::new(198, 19, 0, 5).into()], ..LearnSpec::default() }), 49);
    records[2].client.set_ip("2001:db8::77".parse().unwrap());
    let count = |except: &str| {
        let mut learn = Learn::new(LearnSpec { except: vec![except.parse().unwrap()], ..LearnSpec::default() });
        learn.add_connections(&records);
        learn.tallies().connections
    };
    assert_eq!((count("2001:db8::"), count("2001:db8:0:1::")), (49, 50), "the /64 network of the excluded address");
}
