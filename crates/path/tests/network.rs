//! The path through its public interface: frames in, departures out, every packet accounted for.

#[path = "common/frames.rs"]
mod frames;

use std::time::Duration;

use frames::{datagram, super_packet};
use path::{
    AddressPlan, Bottleneck, ClientPath, EffectSpec, Network, PathSpec, Propagation, Queue, QueueLimit, RateSpec,
};
use schema::{Direction, DropCause};
use units::{BitRate, Bytes, Probability, Timestamp};

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn plan(clients: u32) -> AddressPlan {
    AddressPlan::new(clients).unwrap()
}

/// `clients` clients, all with the same path.
fn network(clients: u32, path: ClientPath) -> Network {
    Network::new(plan(clients), &PathSpec::new(vec![path; clients as usize]), 1)
}

/// 24 ms each way, and the effects: those for both directions, and those on the way down.
fn with(both: &[EffectSpec], down: &[EffectSpec]) -> ClientPath {
    let mut path = ClientPath::constant(ms(48));
    both.iter().cloned().for_each(|effect| {
        path.up.put(effect.clone());
        path.down.put(effect);
    });
    down.iter().cloned().for_each(|effect| path.down.put(effect));
    path
}

fn loss(probability: f64) -> EffectSpec {
    EffectSpec::Loss(Probability::new(probability).unwrap())
}

/// 1250 bytes per millisecond.
fn ten_megabit(limit: QueueLimit) -> EffectSpec {
    let rate = RateSpec::Constant(BitRate::from_bits_per_second(10_000_000).unwrap());
    EffectSpec::Bottleneck(Bottleneck { rate, queue: Queue { limit, ..Queue::default() } })
}

/// Accepted = delivered + dropped + in transit, packets and bytes.
fn assert_conserved(network: &Network) {
    for direction in Direction::BOTH {
        let counters = network.counters(direction);
        assert_eq!(
            counters.accepted,
            counters.delivered + counters.dropped_in_all() + counters.in_transit,
            "{counters:?}"
        );
        assert_eq!(
            counters.accepted_bytes,
            counters.delivered_bytes + counters.dropped_bytes + counters.in_transit_bytes,
            "{counters:?}"
        );
    }
}

#[test]
fn packet_leaves_unchanged_after_half_an_rtt() {
    let mut network = network(3, ClientPath::constant(ms(48)));
    let frame = datagram(&plan(3), 2, Direction::Up, 60, 7);
    network.handle_packet(at(1_000), Direction::Up, &frame);
    assert_eq!(network.next_due(), Some(at(24_001_000)));
    assert!(network.poll_due(at(24_000_999)).is_none());
    let departure = network.poll_due(at(24_001_000)).unwrap();
    assert_eq!((departure.direction, departure.client, departure.wire_packets), (Direction::Up, 2, 1));
    assert_eq!((departure.arrived, departure.due), (at(1_000), at(24_001_000)));
    assert_eq!(departure.frame, frame);
    network.handle_written(at(24_003_000));
    assert_eq!(network.counters(Direction::Up).delivered, 1);
    assert_eq!(network.timing_errors().longest, Duration::from_micros(2));
    assert_eq!(network.next_due(), None);
    assert_conserved(&network);
}

#[test]
fn handle_packet_and_handle_read_are_equivalent_for_every_size() {
    let mut path = ClientPath::constant(ms(2));
    path.down.propagation = Propagation::Constant(ms(3));
    for length in [28, 182, 183, 1500, 15_414, 15_415, 65_535] {
        let (mut copied, mut adopted) = (network(1, path.clone()), network(1, path.clone()));
        for (number, direction) in Direction::BOTH.into_iter().enumerate() {
            let frame = datagram(&plan(1), 0, direction, length, number as u32);
            copied.handle_packet(at(5), direction, &frame);
            adopted.read_buffer()[..frame.len()].copy_from_slice(&frame);
            adopted.handle_read(at(5), direction, frame.len());
            adopted.read_buffer().fill(0xEE);
        }
        for direction in Direction::BOTH {
            let (one, other) = (copied.poll_due(at(3_000_005)).unwrap(), adopted.poll_due(at(3_000_005)).unwrap());
            assert_eq!((one.direction, one.due, one.frame), (other.direction, other.due, other.frame));
            assert_eq!(one.direction, direction);
        }
        assert_eq!(copied.counters(Direction::Up), adopted.counters(Direction::Up));
    }
}

#[test]
fn frames_without_a_known_client_are_dropped_with_their_cause() {
    let mut network = network(2, ClientPath::constant(ms(48)));
    let good = datagram(&plan(3), 1, Direction::Up, 100, 0);
    let unknown_client = datagram(&plan(3), 2, Direction::Up, 100, 0);
    let mut v6 = vec![0; 50];
    v6[10] = 0x60;
    let mut damaged = good.clone();
    damaged[12] = 0xFF;
    network.handle_packet(at(0), Direction::Up, &good);
    network.handle_packet(at(0), Direction::Up, &unknown_client);
    network.handle_packet(at(0), Direction::Up, &v6);
    for frame in [&damaged[..], &good[..29], &[], &vec![0x45; 65_586]] {
        network.handle_packet(at(0), Direction::Up, frame);
    }
    // Going down, the client is the destination; this packet goes to the server.
    network.handle_packet(at(0), Direction::Down, &good);
    let counters = network.counters(Direction::Up);
    assert_eq!((counters.accepted, counters.in_transit, counters.in_transit_bytes), (7, 1, 100));
    assert_eq!(counters.dropped(DropCause::NoRoute), 2);
    assert_eq!(counters.dropped(DropCause::Malformed), 4);
    assert_eq!(network.counters(Direction::Down).dropped(DropCause::NoRoute), 1);
    assert_conserved(&network);
}

#[test]
fn super_packets_pass_uncut_on_a_delay_only_path() {
    let path = with(&[EffectSpec::Jitter(ms(1))], &[]);
    let mut network = network(1, path.clone());
    let frame = super_packet(&plan(1), 0, Direction::Down, 10_000, 1448);
    network.handle_packet(at(0), Direction::Down, &frame);
    let departure = network.poll_due(at(25_000_000)).unwrap();
    assert_eq!((departure.wire_packets, departure.frame), (7, &frame[..]));
    network.handle_written(at(25_000_000));
    let counters = network.counters(Direction::Down);
    assert_eq!((counters.delivered, counters.delivered_bytes), (7, 10_000 + 7 * 40));
    assert_conserved(&network);
}

#[test]
fn super_packets_are_cut_and_paced_on_a_path_with_rate_or_loss() {
    let path = with(&[], &[ten_megabit(QueueLimit::DEFAULT)]);
    let mut network = network(1, path.clone());
    network.handle_packet(at(0), Direction::Down, &super_packet(&plan(1), 0, Direction::Down, 3 * 1210, 1210));
    for number in 1..=3 {
        let due = at(24_000_000 + number * 1_000_000);
        assert_eq!(network.next_due(), Some(due));
        let departure = network.poll_due(due).unwrap();
        assert_eq!((departure.wire_packets, departure.frame.len()), (1, 10 + 1250));
        network.handle_written(due);
    }
    assert_eq!(network.counters(Direction::Down).delivered_bytes, 3 * 1250);
    // On the way up there is no rate: the super-packet passes uncut.
    network.handle_packet(at(0), Direction::Up, &super_packet(&plan(1), 0, Direction::Up, 3 * 1210, 1210));
    assert_eq!(network.poll_due(at(24_000_000)).unwrap().wire_packets, 3);
}

#[test]
fn loss_drops_single_wire_packets_of_a_super_packet() {
    let path = with(&[loss(0.1)], &[]);
    let mut network = network(1, path.clone());
    let frame = super_packet(&plan(1), 0, Direction::Down, 40 * 1448, 1448);
    for number in 0..500 {
        network.handle_packet(at(number * 1000), Direction::Down, &frame);
    }
    let lost = network.counters(Direction::Down).dropped(DropCause::Loss);
    // 20,000 packets: 2000 expected, standard deviation 42; five of them.
    assert!((1788..=2212).contains(&lost), "{lost}");
    assert_conserved(&network);
}

#[test]
fn jittered_delay_has_the_configured_mean() {
    let path = with(&[EffectSpec::Jitter(ms(2))], &[]);
    let mut network = network(1, path.clone());
    let frame = datagram(&plan(1), 0, Direction::Up, 60, 0);
    let (packets, mut total_ns) = (20_000, 0);
    for number in 0..packets {
        // Far apart, so that no packet waits for its predecessor.
        let now = at(number * 100_000_000);
        network.handle_packet(now, Direction::Up, &frame);
        let due = network.next_due().unwrap();
        assert!((ms(22)..=ms(26)).contains(&due.since(now)));
        total_ns += due.since(now).as_nanos() as u64;
        network.poll_due(due);
        network.handle_written(due);
    }
    // Uniform over 4 ms: standard deviation 1.155 ms, standard error 8.2 us; five of them.
    let mean_ns = total_ns as f64 / packets as f64;
    assert!((mean_ns - 24e6).abs() < 41e3, "{mean_ns}");
}

#[test]
fn every_link_draws_its_own_losses() {
    let path = with(&[loss(0.5)], &[]);
    let mut network = network(2, path);
    // Which of 64 packets are delivered, one bit each, for both clients and directions.
    let mut fates = Vec::new();
    for (client, direction) in [(0, Direction::Up), (0, Direction::Down), (1, Direction::Up), (1, Direction::Down)] {
        let frame = datagram(&plan(2), client, direction, 60, 0);
        let passed = (0..64).fold(0u64, |passed, _| {
            let before = network.counters(direction).in_transit;
            network.handle_packet(at(0), direction, &frame);
            passed << 1 | u64::from(network.counters(direction).in_transit > before)
        });
        fates.push(passed);
    }
    fates.sort_unstable();
    fates.dedup();
    assert_eq!(fates.len(), 4);
}

#[test]
fn full_queue_drops_at_its_tail() {
    let path = with(&[], &[ten_megabit(QueueLimit::Bytes(Bytes(5000)))]);
    let mut network = network(1, path.clone());
    for mark in 0..6 {
        network.handle_packet(at(0), Direction::Down, &datagram(&plan(1), 0, Direction::Down, 1250, mark));
    }
    let counters = network.counters(Direction::Down);
    assert_eq!((counters.in_transit, counters.dropped(DropCause::QueueFull), counters.overflowed), (4, 2, 0));
}

#[test]
fn memory_overflow_drops_packets_and_is_counted() {
    let mut network = network(1, ClientPath::constant(ms(48)));
    network.set_memory_limit(Bytes(192));
    let frame = datagram(&plan(1), 0, Direction::Up, 60, 0);
    network.handle_packet(at(0), Direction::Up, &frame);
    network.handle_packet(at(0), Direction::Up, &frame);
    let counters = network.counters(Direction::Up);
    assert_eq!((counters.in_transit, counters.dropped(DropCause::QueueFull), counters.overflowed), (1, 1, 1));
    network.handle_packet(at(0), Direction::Down, &super_packet(&plan(1), 0, Direction::Down, 3 * 1448, 1448));
    assert_eq!(network.counters(Direction::Down).overflowed, 3, "in wire packets");
    assert_conserved(&network);
    assert!(network.poll_due(at(24_000_000)).is_some());
    network.handle_written(at(24_000_000));
    network.handle_packet(at(24_000_000), Direction::Up, &frame);
    assert_eq!(network.counters(Direction::Up).in_transit, 1, "a delivered packet frees its memory");
}

#[test]
fn refused_device_write_counts_as_a_drop() {
    let mut network = network(1, ClientPath::constant(ms(48)));
    let frame = datagram(&plan(1), 0, Direction::Up, 60, 0);
    network.handle_packet(at(0), Direction::Up, &frame);
    assert!(network.poll_due(at(24_000_000)).is_some());
    assert_eq!(network.counters(Direction::Up).in_transit, 1);
    assert!(network.poll_due(at(24_000_000)).is_none());
    assert_eq!(network.counters(Direction::Up).dropped(DropCause::Malformed), 1);
    network.handle_written(at(24_000_000));
    assert_eq!((network.counters(Direction::Up).delivered, network.timing_errors().all.len()), (0, 0));
    assert_conserved(&network);
}

#[test]
fn shutdown_drops_packets_in_transit_and_all_later_ones() {
    let mut network = network(1, ClientPath::constant(ms(48)));
    let frame = datagram(&plan(1), 0, Direction::Up, 60, 0);
    for arrival in 0..3 {
        network.handle_packet(at(arrival), Direction::Up, &frame);
    }
    assert!(network.poll_due(at(24_000_000)).is_some());
    network.shut_down();
    network.handle_packet(at(24_000_001), Direction::Up, &frame);
    let counters = network.counters(Direction::Up);
    assert_eq!((counters.in_transit, counters.dropped(DropCause::Shutdown)), (0, 3));
    assert_eq!(network.next_due(), None);
    assert_conserved(&network);
}

#[test]
fn bursts_are_counted_separately_and_a_reset_keeps_the_counters() {
    let mut network = network(20, ClientPath::constant(ms(48)));
    for client in 0..20 {
        network.handle_packet(at(0), Direction::Up, &datagram(&plan(20), client, Direction::Up, 60, 0));
    }
    for write in 0..20 {
        let now = at(24_000_000 + write * 5_000);
        assert_eq!(network.poll_due(now).unwrap().client, write as u32, "in order of arrival");
        network.handle_written(now);
    }
    let timing_errors = network.timing_errors();
    assert_eq!((timing_errors.all.len(), timing_errors.isolated.len(), timing_errors.bursts.len()), (20, 7, 13));
    network.reset_timing_errors();
    assert_eq!((network.timing_errors().all.len(), network.timing_errors().longest), (0, Duration::ZERO));
    assert_eq!(network.counters(Direction::Up).delivered, 20);
}

#[test]
fn late_wakeups_change_only_the_own_timing_error() {
    let mut network = network(1, ClientPath::constant(ms(48)));
    network.handle_packet(at(0), Direction::Up, &datagram(&plan(1), 0, Direction::Up, 60, 0));
    let due = network.next_due().unwrap();
    let woken = due + Duration::from_micros(300);
    network.handle_late_wakeup(due, woken);
    let written = woken + Duration::from_micros(2);
    assert_eq!(network.poll_due(written).unwrap().due, due);
    network.handle_written(written);
    let errors = network.timing_errors();
    let quantum = |ns: u64| ns + ns / 100;
    assert!((302_000..=quantum(302_000)).contains(&errors.isolated.max()), "{}", errors.isolated.max());
    assert!((2_000..=quantum(2_000)).contains(&errors.own.max()), "{}", errors.own.max());
    assert_eq!(errors.late_wakeups, Duration::from_micros(300));
    assert_eq!(network.counters(Direction::Up).delivered, 1);
}
