//! IPv6: the same clients, the same links.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/world.rs"]
mod world;

use frames::{datagram, frame_v6, super_packet_v6};
use path::{ClientPath, PathSpec};
use schema::{Direction, DropCause};
use wire::{ipv6, protocol, tcp, vnet};
use world::{World, at, bytes_a_ms, ms};

fn rated() -> ClientPath {
    let mut path = ClientPath::constant(ms(20));
    path.down.put(bytes_a_ms(1000));
    path
}

#[test]
fn ipv4_and_ipv6_packets_of_a_client_share_its_links() {
    let mut world = World::new(&PathSpec::new(vec![rated(); 300]));
    let v4 = datagram(&world.plan, 299, Direction::Down, 1000, 0);
    let v6 = frame_v6(&world.plan, 299, Direction::Down, protocol::ICMPV6, 1000);
    world.network.handle_packet(at(0), Direction::Down, &v6);
    world.network.handle_packet(at(0), Direction::Down, &v4);
    for (due, frame) in [(11_000_000, &v6), (12_000_000, &v4)] {
        let departure = world.network.poll_due(at(due)).unwrap();
        assert_eq!((departure.client, departure.due, departure.frame), (299, at(due), &frame[..]));
        world.network.handle_written(at(due));
    }
    world.assert_conserved();
}

#[test]
fn unknown_ipv6_addresses_have_no_route_and_truncated_headers_are_malformed() {
    let mut world = World::new(&PathSpec::new(vec![rated(); 2]));
    let good = frame_v6(&world.plan, 1, Direction::Up, protocol::UDP, 100);
    let stranger = frame_v6(&world.plan, 2, Direction::Up, protocol::UDP, 100);
    world.network.handle_packet(at(0), Direction::Up, &good);
    world.network.handle_packet(at(0), Direction::Up, &stranger);
    world.network.handle_packet(at(0), Direction::Up, &good[..49]);
    // Router solicitations come from link-local addresses.
    let mut local = good.clone();
    local[18..20].copy_from_slice(&[0xfe, 0x80]);
    world.network.handle_packet(at(0), Direction::Up, &local);
    let counters = world.network.counters(Direction::Up);
    assert_eq!((counters.dropped(DropCause::NoRoute), counters.dropped(DropCause::Malformed)), (2, 1));
    assert_eq!((counters.held, counters.held_bytes), (1, 100));
}

#[test]
fn ipv6_super_packet_is_cut_into_complete_segments() {
    let mut world = World::new(&PathSpec::new(vec![rated(); 2]));
    let frame = super_packet_v6(&world.plan, 1, Direction::Down, 3 * 940, 940);
    world.network.handle_packet(at(0), Direction::Down, &frame);
    for number in 1..=3u64 {
        let departure = world.network.poll_due(at(10_000_000 + number * 1_000_000)).unwrap();
        let (header, packet) = vnet::Header::split(departure.frame).unwrap();
        let ip = ipv6::Packet::new_checked(packet).unwrap();
        assert_eq!((header.gso_type, header.needs_checksum(), ip.total_len()), (vnet::GSO_NONE, true, 1000));
        let segment = tcp::Segment::new_checked(ip.payload()).unwrap();
        assert_eq!(segment.sequence(), (number as u32 - 1) * 940);
        world.network.handle_written(at(10_000_000 + number * 1_000_000));
    }
    // On the way up no effect acts on wire packets: the super-packet passes uncut.
    let frame = super_packet_v6(&world.plan, 0, Direction::Up, 60_000, 1440);
    world.network.read_buffer()[..frame.len()].copy_from_slice(&frame);
    world.network.handle_read(at(0), Direction::Up, frame.len());
    let departure = world.network.poll_due(at(10_000_000)).unwrap();
    assert_eq!((departure.wire_packets, departure.frame), (42, &frame[..]));
    world.network.handle_written(at(10_000_000));
    world.assert_conserved();
}

#[test]
fn longest_ipv6_packet_passes() {
    let mut world = World::new(&PathSpec::new(vec![ClientPath::constant(ms(0))]));
    let frame = frame_v6(&world.plan, 0, Direction::Up, protocol::UDP, 65_575);
    world.network.read_buffer()[..frame.len()].copy_from_slice(&frame);
    world.network.handle_read(at(0), Direction::Up, frame.len());
    assert_eq!(world.network.poll_due(at(0)).unwrap().frame, frame);
}
