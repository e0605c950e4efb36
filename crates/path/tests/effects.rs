//! Each effect on packets that travel through the whole path, and the order of effects.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/test_path.rs"]
mod test_path;

use frames::{datagram, super_packet};
use path::{CoDel, Discipline, EffectSpec, GilbertElliott, PathSpec, Pie, QueueLimit, Reorder};
use schema::{Direction, DropCause};
use test_path::{TestPath, at, bottleneck, bytes_a_ms, chance, ms, upward};
use wire::{checksum, ipv4, protocol, vnet};

const UP: Direction = Direction::Up;

#[test]
fn corruption_share_is_configured_and_inverts_one_bit() {
    let mut test_path = TestPath::up(vec![EffectSpec::Corrupt(chance(0.05))], ms(1));
    let packets = 40_000u32;
    let mut corrupted = 0;
    for number in 0..packets {
        let now = u64::from(number) * 10_000_000;
        let sent = datagram(&test_path.plan, 0, UP, 100, number);
        test_path.network.handle_packet(at(now), UP, &sent);
        let departure = test_path.network.poll_due(at(now + 1_000_000)).unwrap();
        let bits: u32 = departure.frame.iter().zip(&sent).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert!(bits <= 1 && departure.frame[..30] == sent[..30]);
        corrupted += bits;
        test_path.network.handle_written(at(now + 1_000_000));
    }
    // 2000 expected, standard deviation 43.6; five of them.
    assert!((1782..=2218).contains(&corrupted), "{corrupted}");
    assert_eq!(test_path.network.counters(UP).corrupted, u64::from(corrupted));
    test_path.finish();
}

#[test]
fn receiver_detects_every_corrupted_segment() {
    // Every segment of a super-packet with a partial checksum.
    let mut test_path = TestPath::up(vec![EffectSpec::Corrupt(chance(1.0))], ms(1));
    let frame = super_packet(&test_path.plan, 0, UP, 10 * 1000, 1000);
    test_path.network.handle_packet(at(0), UP, &frame);
    let mut seen = 0;
    while let Some(departure) = test_path.network.poll_due(at(1_000_000)) {
        let (header, packet) = vnet::Header::split(departure.frame).unwrap();
        assert!(!header.needs_checksum());
        let ip = ipv4::Packet::new_checked(packet).unwrap();
        assert!(ip.is_header_intact());
        let sum =
            checksum::Sum::ZERO.pseudo_v4(ip.source(), ip.destination(), protocol::TCP, ip.payload().len() as u16);
        assert_ne!(sum.bytes(ip.payload()).fold(), 0xFFFF);
        seen += 1;
        test_path.network.handle_written(at(1_000_000));
    }
    assert_eq!((seen, test_path.network.counters(UP).corrupted), (10, 10));
}

#[test]
fn duplication_share_is_configured_and_copies_follow_directly() {
    let mut test_path = TestPath::up(vec![EffectSpec::Duplicate(chance(0.1))], ms(1));
    let packets = 20_000u32;
    for number in 0..packets {
        test_path.send_up(u64::from(number) * 1_000, number);
    }
    let dues = test_path.dues();
    assert!(dues.is_sorted(), "the copy leaves at the same time as the original, before the next packet");
    let copies = dues.len() as u64 - u64::from(packets);
    // 2000 expected, standard deviation 42.4.
    assert!((1788..=2212).contains(&copies), "{copies}");
    let counters = test_path.network.counters(UP);
    assert_eq!((counters.duplicated, counters.duplicated_bytes), (copies, copies * 1000));
    assert_eq!(counters.delivered, u64::from(packets) + copies);
}

#[test]
fn copy_uses_a_bottleneck_after_the_duplication_only() {
    let twice = EffectSpec::Duplicate(chance(1.0));
    let mut before = TestPath::up(vec![twice.clone(), bytes_a_ms(1000)], ms(0));
    before.send_up(0, 7);
    assert_eq!(before.dues(), [(7, 1_000_000), (7, 2_000_000)]);
    let mut after = TestPath::up(vec![bytes_a_ms(1000), twice], ms(0));
    after.send_up(0, 7);
    assert_eq!(after.dues(), [(7, 1_000_000), (7, 1_000_000)]);
}

#[test]
fn reordered_packets_are_overtaken_only_within_their_delay() {
    let reorder = Reorder { probability: chance(0.1), by: ms(10) };
    let mut test_path = TestPath::up(vec![EffectSpec::Reorder(reorder)], ms(5));
    // One packet per millisecond; delayed packets fall half a millisecond between others.
    let packets = 20_000u32;
    for number in 0..packets {
        let now = u64::from(number) * 1_000_000;
        test_path.run_until(now);
        test_path.send_up(now, number);
    }
    let dues = test_path.dues();
    let delayed = dues.iter().filter(|&&(mark, due)| due == u64::from(mark) * 1_000_000 + 15_000_000).count();
    let at_once = dues.iter().filter(|&&(mark, due)| due == u64::from(mark) * 1_000_000 + 5_000_000).count();
    assert_eq!((delayed + at_once, test_path.network.counters(UP).reordered), (packets as usize, delayed as u64));
    // 2000 expected, standard deviation 42.4.
    assert!((1788..=2212).contains(&delayed), "{delayed}");
    // A delayed packet leaves together with the tenth after it and behind the nine in between, if those were not
    // delayed.
    let place = |mark: u32| dues.iter().position(|&(other, _)| other == mark).unwrap();
    for (place_of, &(mark, due)) in dues.iter().enumerate().take(2_000) {
        if due == u64::from(mark) * 1_000_000 + 15_000_000 && mark + 11 < packets {
            let overtook = (mark + 1..mark + 10).filter(|&later| place(later) < place_of).count();
            let also_delayed = (mark + 1..mark + 10).filter(|&later| dues[place(later)].1 > due).count();
            assert_eq!(overtook + also_delayed, 9);
            assert!(place(mark + 11) > place_of || mark + 11 >= packets);
        }
    }
}

#[test]
fn effects_after_reordering_process_packets_in_the_new_order() {
    // The first packet is delayed by 10 ms; the second, a millisecond later, is not: it reaches the bottleneck first.
    let first_only = (0u64..)
        .find(|&seed| {
            let reorder = Reorder { probability: chance(0.5), by: ms(10) };
            let path = PathSpec::new(vec![upward(vec![EffectSpec::Reorder(reorder), bytes_a_ms(1)], ms(0))]);
            let mut test_path = TestPath::seeded(&path, seed);
            test_path.send(0, 0, UP, 100, 0);
            test_path.send(1_000_000, 0, UP, 100, 1);
            let dues = test_path.dues();
            let is_it = test_path.network.counters(UP).reordered == 1 && dues[0].0 == 1;
            if is_it {
                // Each takes 100 ms to send: the second from 1 to 101 ms, then the first.
                assert_eq!(dues, [(1, 101_000_000), (0, 201_000_000)]);
            }
            is_it
        })
        .unwrap();
    assert!(first_only < 64);
}

#[test]
fn packets_lost_after_a_bottleneck_use_it_and_before_it_do_not() {
    // The chain loses every other packet.
    let every_other =
        GilbertElliott { to_bad: chance(1.0), to_good: chance(1.0), loss_good: chance(0.0), loss_bad: chance(1.0) };
    let run = |effects| {
        let mut test_path = TestPath::up(effects, ms(0));
        (0..4).for_each(|number| test_path.send_up(0, number));
        test_path.dues()
    };
    let loss = EffectSpec::GilbertElliott(every_other);
    let limit = EffectSpec::Delay(ms(1));
    assert_eq!(run(vec![loss.clone(), bytes_a_ms(1000)]), [(1, 1_000_000), (3, 2_000_000)]);
    assert_eq!(run(vec![bytes_a_ms(1000), loss.clone()]), [(1, 2_000_000), (3, 4_000_000)]);
    // The same result through the queue that stores packets, and with a delay in between.
    let stored = bottleneck(1000, QueueLimit::Packets(10), Discipline::DropTail);
    assert_eq!(run(vec![loss.clone(), limit.clone(), stored.clone()]), [(1, 2_000_000), (3, 3_000_000)]);
    assert_eq!(run(vec![stored, limit, loss]), [(1, 3_000_000), (3, 5_000_000)]);
}

#[test]
fn two_bottlenecks_in_sequence_have_the_rate_of_the_slower() {
    for effects in [vec![bytes_a_ms(1000), bytes_a_ms(500)], vec![bytes_a_ms(500), bytes_a_ms(1000)]] {
        let mut test_path = TestPath::up(effects, ms(0));
        (0..3).for_each(|number| test_path.send_up(0, number));
        assert_eq!(test_path.dues(), [(0, 3_000_000), (1, 5_000_000), (2, 7_000_000)]);
    }
}

#[test]
fn codel_and_pie_drops_have_the_cause_aqm() {
    for discipline in [Discipline::CoDel(CoDel::default()), Discipline::Pie(Pie::default())] {
        let queue = bottleneck(1000, QueueLimit::Packets(500), discipline);
        let mut test_path = TestPath::up(vec![queue], ms(5));
        for number in 0..20_000u32 {
            let now = u64::from(number) * 500_000;
            test_path.run_until(now);
            test_path.send_up(now, number);
            test_path.assert_conserved();
        }
        test_path.finish();
        let counters = test_path.network.counters(UP);
        assert!(counters.dropped(DropCause::Aqm) > 1000, "{counters:?}");
        assert!(test_path.departed.is_sorted_by_key(|packet| packet.mark));
    }
}

#[test]
fn memory_limit_includes_queues_and_copies() {
    let effects = vec![EffectSpec::Duplicate(chance(1.0)), bottleneck(1, QueueLimit::Packets(9), Discipline::DropTail)];
    let mut test_path = TestPath::up(effects, ms(0));
    test_path.network.set_memory_limit(units::Bytes(3 * 1600));
    (0..3).for_each(|number| test_path.send_up(0, number));
    let counters = test_path.network.counters(UP);
    // Two packets and one copy fill the memory; the second has no copy, the third is rejected.
    assert_eq!((counters.in_transit, counters.overflowed, counters.duplicated), (3, 2, 2));
    test_path.finish();
}

#[test]
fn shutdown_drops_packets_in_queues_and_effects() {
    let reorder = EffectSpec::Reorder(Reorder { probability: chance(1.0), by: ms(10) });
    let queue = bottleneck(1000, QueueLimit::Packets(9), Discipline::DropTail);
    let mut test_path = TestPath::up(vec![queue, reorder, bytes_a_ms(1000)], ms(5));
    (0..5).for_each(|number| test_path.send_up(0, number));
    test_path.run_until(12_500_000);
    test_path.network.shut_down();
    let counters = test_path.network.counters(UP);
    assert_eq!((counters.dropped(DropCause::Shutdown), counters.in_transit), (5, 0));
    assert_eq!(test_path.network.next_due(), None);
    test_path.assert_conserved();
}

#[test]
fn path_with_idle_effects_only_delays() {
    let only_delays = |effects: Vec<EffectSpec>| PathSpec::new(vec![upward(effects, ms(5))]).only_delays();
    let never = chance(0.0);
    let idle = vec![
        EffectSpec::Loss(never),
        EffectSpec::Corrupt(never),
        EffectSpec::Duplicate(never),
        EffectSpec::Reorder(Reorder { probability: never, by: ms(1) }),
        EffectSpec::Jitter(ms(0)),
        EffectSpec::Delay(ms(3)),
    ];
    assert!(only_delays(idle.clone()));
    assert!(!only_delays(vec![EffectSpec::Jitter(ms(1))]));
    assert!(!only_delays(vec![bytes_a_ms(1000)]));
    // A super-packet passes uncut.
    let mut test_path = TestPath::up(idle, ms(5));
    let frame = super_packet(&test_path.plan, 0, UP, 5000, 1000);
    test_path.network.handle_packet(at(0), UP, &frame);
    assert_eq!(test_path.network.poll_due(at(8_000_000)).unwrap().wire_packets, 5);
}
