//! Links that several clients share: order and rate over all of them.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/world.rs"]
mod world;

use std::ops::Range;

use frames::super_packet;
use path::{ClientPath, Discipline, EffectSpec, PathSpec, QueueLimit, SharedSpec};
use schema::{Direction, DropCause};
use world::{World, at, bottleneck, bytes_a_ms, ms};

const UP: Direction = Direction::Up;
const DOWN: Direction = Direction::Down;

fn shared(members: Range<u32>, effects: Vec<EffectSpec>) -> SharedSpec {
    SharedSpec { members, up: effects.clone(), down: effects }
}

/// Clients with these RTTs in milliseconds behind the shared links.
fn world(rtts_ms: &[u64], links: Vec<SharedSpec>) -> World {
    let mut path = PathSpec::new(rtts_ms.iter().map(|&rtt| ClientPath::constant(ms(rtt))).collect());
    path.shared = links;
    World::new(&path)
}

#[test]
fn going_up_packets_meet_in_the_order_in_which_they_reach_the_link() {
    // 0 is far away: it sends first and comes second.
    let mut world = world(&[40, 20], vec![shared(0..2, vec![bytes_a_ms(1000)])]);
    world.send(0, 0, UP, 1000, 0);
    world.send(5_000_000, 1, UP, 1000, 1);
    world.send(9_500_000, 1, UP, 1000, 2);
    // At 15 ms, at 19.5 ms and at 20 ms.
    assert_eq!(world.dues(), [(1, 16_000_000), (2, 20_500_000), (0, 21_500_000)]);
}

#[test]
fn going_down_the_shared_link_comes_first() {
    let mut world = world(&[40, 20], vec![shared(0..2, vec![bytes_a_ms(1000)])]);
    (0..2).for_each(|number| world.send(0, number, DOWN, 1000, number));
    // Sent at 1 and 2 ms, then 20 and 10 ms of way.
    assert_eq!(world.dues(), [(1, 12_000_000), (0, 21_000_000)]);
}

#[test]
fn no_window_sees_more_than_the_rate_and_a_busy_link_exactly_it() {
    let rtts: Vec<u64> = (0..50).map(|client| 10 + client * 7 % 90).collect();
    for (direction, effect) in [
        (UP, bytes_a_ms(1000)),
        (DOWN, bytes_a_ms(1000)),
        (UP, bottleneck(1000, QueueLimit::Packets(1_000_000), Discipline::DropTail)),
    ] {
        let mut world = world(&rtts, vec![shared(0..50, vec![effect])]);
        // Twice what the link can carry, for 2 s, then nothing.
        for number in 0..4_000u32 {
            let now = u64::from(number) * 500_000;
            world.run_until(now);
            world.send(now, number * 31 % 50, direction, 1000, number);
        }
        let rtts = rtts.clone();
        // When each left the shared link.
        let mut left: Vec<u64> = world
            .finish()
            .iter()
            .map(|left| if direction == UP { left.due } else { left.due - rtts[left.client as usize] * 500_000 })
            .collect();
        left.sort_unstable();
        assert_eq!(left.len(), 4_000);
        // Once all clients' packets come it is busy to the end: one packet a millisecond, exactly.
        assert!(left.windows(2).all(|pair| pair[1] - pair[0] >= 1_000_000), "faster than the rate");
        assert!(left[200..].windows(2).all(|pair| pair[1] - pair[0] == 1_000_000), "it was idle");
    }
}

#[test]
fn a_queue_in_front_of_a_shared_link_drops_the_packets_of_whoever_finds_it_full() {
    let queue = bottleneck(1000, QueueLimit::Packets(2), Discipline::DropTail);
    let mut world = world(&[20, 20, 20], vec![shared(0..2, vec![queue])]);
    (0..3).for_each(|client| (0..3).for_each(|number| world.send(0, client, UP, 1000, 10 * client + number)));
    assert_eq!(
        world.dues(),
        // Client 2 is no member.
        [(20, 10_000_000), (21, 10_000_000), (22, 10_000_000), (0, 11_000_000), (1, 12_000_000)]
    );
    assert_eq!(world.network.counters(UP).dropped(DropCause::QueueFull), 4);
}

#[test]
fn a_link_of_a_class_lies_between_its_clients_and_the_link_of_all() {
    // 0 and 1 share 500 bytes a millisecond, and all three 1000.
    let links = || vec![shared(0..2, vec![bytes_a_ms(500)]), shared(0..3, vec![bytes_a_ms(1000)])];
    let mut up = world(&[0, 0, 0], links());
    (0..3).for_each(|client| up.send(0, client, UP, 1000, client));
    // 2 has the link of all at once; 0 leaves the class link at 2 ms, 1 at 4.
    assert_eq!(up.dues(), [(2, 1_000_000), (0, 3_000_000), (1, 5_000_000)]);
    let mut down = world(&[0, 0, 0], links());
    (0..3).for_each(|client| down.send(0, client, DOWN, 1000, client));
    // Through the link of all at 1, 2 and 3 ms, then 0 from 1 to 3 and 1 from 3 to 5 over that of the class.
    let mut dues = down.dues();
    dues.sort_unstable();
    assert_eq!(dues, [(0, 3_000_000), (1, 5_000_000), (2, 3_000_000)]);
}

#[test]
fn super_packets_are_cut_where_any_link_on_the_way_acts_on_wire_packets() {
    let mut world = world(&[20, 20], vec![shared(0..1, vec![bytes_a_ms(1040)])]);
    for direction in Direction::BOTH {
        for client in 0..2 {
            let frame = super_packet(&world.plan, client, direction, 3000, 1000);
            world.network.handle_packet(at(0), direction, &frame);
        }
    }
    let mut seen = [[0; 2]; 2];
    while let Some(due) = world.network.next_due() {
        let Some(departure) = world.network.poll_due(due) else { continue };
        let per = if departure.client == 0 { 1 } else { 3 };
        assert_eq!(departure.wire_packets, per);
        seen[departure.direction.index()][departure.client as usize] += departure.wire_packets;
        world.network.handle_written(due);
    }
    assert_eq!(seen, [[3, 3], [3, 3]]);
    world.assert_conserved();
}
