//! Changes over time: exact to the nanosecond, counted from the start.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/test_path.rs"]
mod test_path;

use std::sync::Arc;
use std::time::Duration;

use path::{
    Between, Bottleneck, Change, ChangeKind, ChangedLinks, ClientPath, DelayOverTime, DeliveryTrace, EffectSpec,
    Factor, LinkSpec, PathSpec, Propagation, Queue, RateSpec, SharedSpec,
};
use schema::{Direction, DropCause};
use test_path::{TestPath, at, bytes_a_ms, chance, ms, upward};

const UP: Direction = Direction::Up;
/// When the measured phase begins.
const START: u64 = 1_000_000_000;

fn change(at_ms: u64, duration_ms: Option<u64>, kind: ChangeKind) -> Change {
    Change { at: ms(at_ms), duration: duration_ms.map(ms), place: ChangedLinks::Clients(0..1), kind }
}

fn factor(value: f64) -> Factor {
    Factor::new(value).unwrap()
}

/// Client 0 with these effects and delay upward, and a client 1 like it without changes.
fn test_path(effects: Vec<EffectSpec>, delay: Duration, changes: Vec<Change>) -> TestPath {
    let mut path = PathSpec::new(vec![upward(effects, delay); 2]);
    path.changes = changes;
    let mut test_path = TestPath::new(&path);
    test_path.network.set_start(at(START));
    test_path
}

#[test]
fn outage_begins_and_ends_to_the_nanosecond() {
    let outage = change(500, Some(3000), ChangeKind::Outage);
    let mut test_path = test_path(vec![], ms(10), vec![outage]);
    let (begin, end) = (START + 500_000_000, START + 3_500_000_000);
    let times = [begin - 1, begin, end - 1, end];
    for (number, &now) in times.iter().enumerate() {
        test_path.run_until(now);
        test_path.send(now, 0, UP, 100, number as u32);
        test_path.send(now, 1, UP, 100, 10 + number as u32);
    }
    let ours: Vec<u32> =
        test_path.finish().iter().filter(|packet| packet.client == 0).map(|packet| packet.mark).collect();
    assert_eq!(ours, [0, 3], "packets in transit are delivered");
    assert_eq!(test_path.departed.iter().filter(|packet| packet.client == 1).count(), 4);
    assert_eq!(test_path.network.counters(UP).dropped(DropCause::Outage), 2);
    // An outage affects both directions.
    test_path.send(end + 1, 0, Direction::Down, 100, 1);
    assert_eq!(test_path.network.counters(Direction::Down).dropped(DropCause::Outage), 0);
}

#[test]
fn changes_begin_only_after_a_start_that_may_be_set_late() {
    let mut path = PathSpec::new(vec![upward(vec![], ms(10))]);
    path.changes = vec![change(0, None, ChangeKind::Outage)];
    let mut test_path = TestPath::new(&path);
    test_path.send_up(5_000_000_000, 0);
    test_path.network.set_start(at(6_000_000_000));
    test_path.send_up(5_999_999_999, 1);
    test_path.send_up(6_000_000_000, 2);
    assert_eq!(test_path.dues().iter().map(|&(mark, _)| mark).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn rising_and_falling_delay_keeps_the_order() {
    let doubled = change(100, Some(100), ChangeKind::Delay(factor(2.0)));
    let mut test_path = test_path(vec![], ms(10), vec![doubled]);
    let begin = START + 100_000_000;
    let end = START + 200_000_000;
    for (mark, now) in [begin - 1, begin, end - 1, end, end + 5_000_000, end + 12_000_000].into_iter().enumerate() {
        test_path.run_until(now);
        test_path.send_up(now, mark as u32);
    }
    let expected = [
        begin - 1 + 10_000_000,
        begin + 20_000_000,
        end - 1 + 20_000_000,
        // Not before its predecessor.
        end - 1 + 20_000_000,
        end - 1 + 20_000_000,
        end + 22_000_000,
    ];
    assert_eq!(test_path.dues(), (0..).zip(expected).collect::<Vec<_>>());
}

#[test]
fn delay_change_applies_to_constant_delay_effects() {
    let mut test_path =
        test_path(vec![EffectSpec::Delay(ms(4))], ms(10), vec![change(0, None, ChangeKind::Delay(factor(2.0)))]);
    test_path.send_up(START, 0);
    assert_eq!(test_path.dues(), [(0, START + 28_000_000)]);
}

#[test]
fn jitter_is_centered_on_a_changing_delay() {
    let effects = vec![EffectSpec::Jitter(ms(2))];
    let mut test_path = test_path(effects, ms(10), vec![change(500_000, None, ChangeKind::Delay(factor(3.0)))]);
    let (mut total, packets) = ([0f64; 2], 5_000u64);
    for half in 0..2u64 {
        for number in 0..packets {
            let now = START + half * 500_000_000_000 + number * 100_000_000;
            test_path.run_until(now);
            test_path.send_up(now, 0);
            let before = test_path.departed.len();
            test_path.run_until(now + 99_000_000);
            let delay = test_path.departed[before].due - now;
            let mean = [10_000_000, 30_000_000][half as usize];
            assert!((mean - 2_000_000..=mean + 2_000_000).contains(&delay), "{delay}");
            total[half as usize] += delay as f64;
        }
    }
    // Uniform over 4 ms: standard deviation 1.155 ms, standard error 16.3 us; five of them.
    assert!((total[0] / packets as f64 - 10e6).abs() < 82e3);
    assert!((total[1] / packets as f64 - 30e6).abs() < 82e3);
}

#[test]
fn halved_rate_applies_to_waiting_packets() {
    // 1000 bytes per millisecond; from 1.5 ms on half of that.
    let half = Change { at: Duration::from_micros(1_500), ..change(0, None, ChangeKind::Rate(factor(0.5))) };
    let mut test_path = test_path(vec![bytes_a_ms(1000)], ms(0), vec![half]);
    (0..3).for_each(|number| test_path.send_up(START, number));
    assert_eq!(test_path.dues(), [(0, START + 1_000_000), (1, START + 2_500_000), (2, START + 4_500_000)]);
}

#[test]
fn loss_change_replaces_the_loss_of_the_link() {
    let loses_all = EffectSpec::Loss(chance(1.0));
    let none_for_a_while = change(100, Some(100), ChangeKind::Loss(chance(0.0)));
    let mut test_path = self::test_path(vec![EffectSpec::Delay(ms(1)), loses_all], ms(0), vec![none_for_a_while]);
    // Packets reach the loss 1 ms after they arrive.
    for (mark, now) in [98_999_999, 99_000_000, 198_999_999, 199_000_000].into_iter().enumerate() {
        test_path.run_until(START + now);
        test_path.send_up(START + now, mark as u32);
    }
    assert_eq!(test_path.dues(), [(1, START + 100_000_000), (2, START + 199_999_999)]);
    let mut test_path = self::test_path(vec![], ms(5), vec![change(0, None, ChangeKind::Loss(chance(1.0)))]);
    test_path.send_up(START - 1, 0);
    test_path.send_up(START, 1);
    assert_eq!(test_path.dues(), [(0, START + 4_999_999)], "a link without loss of its own");
}

#[test]
fn change_of_a_shared_link_affects_its_members_only() {
    let mut path = PathSpec::new(vec![ClientPath::constant(ms(20)); 3]);
    path.shared = vec![SharedSpec { members: 0..2, up: vec![], down: vec![] }];
    path.changes = vec![Change { place: ChangedLinks::Shared(0), ..change(0, Some(1000), ChangeKind::Outage) }];
    let mut test_path = TestPath::new(&path);
    test_path.network.set_start(at(START));
    for client in 0..3 {
        // The outage begins when the packets have travelled up to the shared link.
        test_path.send(START - 10_000_001, client, UP, 100, client);
        test_path.send(START - 10_000_000, client, UP, 100, 10 + client);
        test_path.send(START, client, Direction::Down, 100, 20 + client);
    }
    let mut marks: Vec<u32> = test_path.finish().iter().map(|packet| packet.mark).collect();
    marks.sort_unstable();
    assert_eq!(marks, [0, 1, 2, 12, 22]);
}

#[test]
#[should_panic(expected = "a change names shared link 0 of 0")]
fn change_of_an_unknown_shared_link_panics() {
    let mut path = PathSpec::new(vec![ClientPath::constant(ms(20))]);
    path.changes = vec![Change { place: ChangedLinks::Shared(0), ..change(0, None, ChangeKind::Outage) }];
    TestPath::new(&path);
}

#[test]
fn delay_series_applies_when_a_packet_starts_to_travel() {
    let points = vec![(ms(0), ms(10)), (ms(100), ms(50)), (ms(200), ms(10))];
    for between in [Between::Steps, Between::Lines] {
        let series = Arc::new(DelayOverTime::new(points.clone(), between, true).unwrap());
        let up = LinkSpec { propagation: Propagation::OverTime(series.clone()), effects: vec![bytes_a_ms(1000)] };
        let client = ClientPath { up, down: LinkSpec::default() };
        let mut test_path = TestPath::new(&PathSpec::new(vec![client]));
        test_path.send_up(START - 500_000_000, 0);
        test_path.network.set_start(at(START));
        let times: Vec<u64> = (0..2_000).map(|number| START + number * 1_370_001).collect();
        for (number, &now) in times.iter().enumerate() {
            test_path.run_until(now);
            test_path.send_up(now, 1 + number as u32);
        }
        let dues = test_path.dues();
        assert_eq!(dues[0], (0, START - 500_000_000 + 1_000_000 + 10_000_000), "before the start: the first delay");
        let mut last = 0;
        for (&now, &(_, due)) in times.iter().zip(&dues[1..]) {
            let travels = now + 1_000_000;
            let delay = series.at(Duration::from_nanos(travels - START)).as_nanos() as u64;
            last = (travels + delay).max(last);
            assert_eq!(due, last);
        }
    }
}

#[test]
fn trace_times_count_from_the_start() {
    let trace = Arc::new(DeliveryTrace::new(vec![3, 7, 10]).unwrap());
    let bottleneck = Bottleneck { rate: RateSpec::Trace(trace), queue: Queue::default() };
    let mut test_path = test_path(vec![EffectSpec::Bottleneck(bottleneck)], ms(5), vec![]);
    (0..4).for_each(|number| test_path.send(START + 500_000, 0, UP, 1500, number));
    let expected = [3, 7, 10, 13].map(|time| START + (time + 5) * 1_000_000);
    assert_eq!(test_path.dues(), (0..).zip(expected).collect::<Vec<_>>());
}

/// Packets to the port that the address translation has forgotten are dropped and counted; those in transit arrive.
#[test]
fn rebinding_drops_what_is_sent_to_the_old_port() {
    let rebind = change(1000, None, ChangeKind::Rebind);
    let mut test_path = test_path(vec![], ms(10), vec![rebind]);
    let rebound = START + 1_000_000_000;
    for (number, now) in [rebound - 1, rebound].into_iter().enumerate() {
        test_path.run_until(now);
        test_path.send(now, 0, Direction::Down, 100, number as u32);
        test_path.send(now, 1, Direction::Down, 100, 10 + number as u32);
    }
    // A packet of the client makes a mapping, of one port to another.
    test_path.send(rebound + 1, 0, UP, 100, 2);
    let marks: Vec<u32> = test_path.finish().iter().map(|packet| packet.mark).collect();
    assert_eq!(marks.iter().filter(|mark| **mark == 1).count(), 0);
    assert_eq!(marks.len(), 4);
    let counters = test_path.network.counters(Direction::Down);
    assert_eq!((counters.dropped(DropCause::Unmapped), counters.accepted, counters.delivered), (1, 4, 3));
    assert_eq!(test_path.network.counters(UP).delivered, 1);
}
