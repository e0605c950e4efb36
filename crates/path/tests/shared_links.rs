//! Links that several clients share: order and rate over all of them.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/test_path.rs"]
mod test_path;

use std::ops::Range;

use frames::super_packet;
use path::{ClientPath, Discipline, EffectSpec, PathSpec, QueueLimit, SharedSpec};
use schema::{Direction, DropCause};
use test_path::{TestPath, at, bottleneck, bytes_a_ms, ms};

const UP: Direction = Direction::Up;
const DOWN: Direction = Direction::Down;

fn shared(members: Range<u32>, effects: Vec<EffectSpec>) -> SharedSpec {
    SharedSpec { members, up: effects.clone(), down: effects }
}

/// Clients with these RTTs in milliseconds behind the shared links.
fn test_path(rtts_ms: &[u64], links: Vec<SharedSpec>) -> TestPath {
    let mut path = PathSpec::new(rtts_ms.iter().map(|&rtt| ClientPath::constant(ms(rtt))).collect());
    path.shared = links;
    TestPath::new(&path)
}

#[test]
fn packets_going_up_enter_a_shared_link_in_order_of_arrival_there() {
    // Client 0 is far away: it sends first and arrives second.
    let mut test_path = test_path(&[40, 20], vec![shared(0..2, vec![bytes_a_ms(1000)])]);
    test_path.send(0, 0, UP, 1000, 0);
    test_path.send(5_000_000, 1, UP, 1000, 1);
    test_path.send(9_500_000, 1, UP, 1000, 2);
    // At 15 ms, at 19.5 ms and at 20 ms.
    assert_eq!(test_path.dues(), [(1, 16_000_000), (2, 20_500_000), (0, 21_500_000)]);
}

#[test]
fn packets_going_down_pass_the_shared_link_first() {
    let mut test_path = test_path(&[40, 20], vec![shared(0..2, vec![bytes_a_ms(1000)])]);
    (0..2).for_each(|number| test_path.send(0, number, DOWN, 1000, number));
    // Sent at 1 and 2 ms, then 20 and 10 ms of delay.
    assert_eq!(test_path.dues(), [(1, 12_000_000), (0, 21_000_000)]);
}

#[test]
fn shared_link_rate_is_exact_while_busy_and_never_exceeded() {
    let rtts: Vec<u64> = (0..50).map(|client| 10 + client * 7 % 90).collect();
    for (direction, effect) in [
        (UP, bytes_a_ms(1000)),
        (DOWN, bytes_a_ms(1000)),
        (UP, bottleneck(1000, QueueLimit::Packets(1_000_000), Discipline::DropTail)),
    ] {
        let mut test_path = test_path(&rtts, vec![shared(0..50, vec![effect])]);
        // Twice the capacity of the link for 2 s, then nothing.
        for number in 0..4_000u32 {
            let now = u64::from(number) * 500_000;
            test_path.run_until(now);
            test_path.send(now, number * 31 % 50, direction, 1000, number);
        }
        let rtts = rtts.clone();
        // Departure times from the shared link.
        let mut departures: Vec<u64> = test_path
            .finish()
            .iter()
            .map(
                |packet| if direction == UP { packet.due } else { packet.due - rtts[packet.client as usize] * 500_000 },
            )
            .collect();
        departures.sort_unstable();
        assert_eq!(departures.len(), 4_000);
        // Once packets of all clients arrive, the link is busy to the end: exactly one packet per millisecond.
        assert!(departures.windows(2).all(|pair| pair[1] - pair[0] >= 1_000_000), "faster than the rate");
        assert!(departures[200..].windows(2).all(|pair| pair[1] - pair[0] == 1_000_000), "the link was idle");
    }
}

#[test]
fn full_queue_of_a_shared_link_drops_packets_of_any_member() {
    let queue = bottleneck(1000, QueueLimit::Packets(2), Discipline::DropTail);
    let mut test_path = test_path(&[20, 20, 20], vec![shared(0..2, vec![queue])]);
    (0..3).for_each(|client| (0..3).for_each(|number| test_path.send(0, client, UP, 1000, 10 * client + number)));
    assert_eq!(
        test_path.dues(),
        // Client 2 is not a member.
        [(20, 10_000_000), (21, 10_000_000), (22, 10_000_000), (0, 11_000_000), (1, 12_000_000)]
    );
    assert_eq!(test_path.network.counters(UP).dropped(DropCause::QueueFull), 4);
}

#[test]
fn class_link_is_between_its_clients_and_the_link_of_all() {
    // Clients 0 and 1 share 500 bytes per millisecond, and all three 1000.
    let links = || vec![shared(0..2, vec![bytes_a_ms(500)]), shared(0..3, vec![bytes_a_ms(1000)])];
    let mut up = test_path(&[0, 0, 0], links());
    (0..3).for_each(|client| up.send(0, client, UP, 1000, client));
    // Client 2 reaches the link of all immediately; client 0 leaves the class link at 2 ms, client 1 at 4.
    assert_eq!(up.dues(), [(2, 1_000_000), (0, 3_000_000), (1, 5_000_000)]);
    let mut down = test_path(&[0, 0, 0], links());
    (0..3).for_each(|client| down.send(0, client, DOWN, 1000, client));
    // Through the link of all at 1, 2 and 3 ms, then client 0 from 1 to 3 and client 1 from 3 to 5 over that of the
    // class.
    let mut dues = down.dues();
    dues.sort_unstable();
    assert_eq!(dues, [(0, 3_000_000), (1, 5_000_000), (2, 3_000_000)]);
}

#[test]
fn super_packets_are_cut_if_any_link_on_the_way_acts_per_wire_packet() {
    let mut test_path = test_path(&[20, 20], vec![shared(0..1, vec![bytes_a_ms(1040)])]);
    for direction in Direction::BOTH {
        for client in 0..2 {
            let frame = super_packet(&test_path.plan, client, direction, 3000, 1000);
            test_path.network.handle_packet(at(0), direction, &frame);
        }
    }
    let mut seen = [[0; 2]; 2];
    while let Some(due) = test_path.network.next_due() {
        let Some(departure) = test_path.network.poll_due(due) else { continue };
        let per = if departure.client == 0 { 1 } else { 3 };
        assert_eq!(departure.wire_packets, per);
        seen[departure.direction.index()][departure.client as usize] += departure.wire_packets;
        test_path.network.handle_written(due);
    }
    assert_eq!(seen, [[3, 3], [3, 3]]);
    test_path.assert_conserved();
}
