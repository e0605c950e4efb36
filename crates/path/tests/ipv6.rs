//! IPv6: the same clients, the same links.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/test_path.rs"]
mod test_path;

use frames::{datagram, frame_v6, super_packet_v6};
use path::{ClientPath, PathSpec};
use schema::{Direction, DropCause};
use test_path::{TestPath, at, bytes_a_ms, ms};
use wire::{ipv6, protocol, tcp, vnet};

fn rated() -> ClientPath {
    let mut path = ClientPath::constant(ms(20));
    path.down.put(bytes_a_ms(1000));
    path
}

#[test]
fn ipv4_and_ipv6_packets_of_a_client_share_its_links() {
    let mut test_path = TestPath::new(&PathSpec::new(vec![rated(); 300]));
    let v4 = datagram(&test_path.plan, 299, Direction::Down, 1000, 0);
    let v6 = frame_v6(&test_path.plan, 299, Direction::Down, protocol::ICMPV6, 1000);
    test_path.network.handle_packet(at(0), Direction::Down, &v6);
    test_path.network.handle_packet(at(0), Direction::Down, &v4);
    for (due, frame) in [(11_000_000, &v6), (12_000_000, &v4)] {
        let departure = test_path.network.poll_due(at(due)).unwrap();
        assert_eq!((departure.client, departure.due, departure.frame), (299, at(due), &frame[..]));
        test_path.network.handle_written(at(due));
    }
    test_path.assert_conserved();
}

#[test]
fn unknown_ipv6_addresses_have_no_route_and_truncated_headers_are_malformed() {
    let mut test_path = TestPath::new(&PathSpec::new(vec![rated(); 2]));
    let good = frame_v6(&test_path.plan, 1, Direction::Up, protocol::UDP, 100);
    let unknown_client = frame_v6(&test_path.plan, 2, Direction::Up, protocol::UDP, 100);
    test_path.network.handle_packet(at(0), Direction::Up, &good);
    test_path.network.handle_packet(at(0), Direction::Up, &unknown_client);
    test_path.network.handle_packet(at(0), Direction::Up, &good[..49]);
    // Router solicitations come from link-local addresses.
    let mut local = good.clone();
    local[18..20].copy_from_slice(&[0xfe, 0x80]);
    test_path.network.handle_packet(at(0), Direction::Up, &local);
    let counters = test_path.network.counters(Direction::Up);
    assert_eq!((counters.dropped(DropCause::NoRoute), counters.dropped(DropCause::Malformed)), (2, 1));
    assert_eq!((counters.in_transit, counters.in_transit_bytes), (1, 100));
}

#[test]
fn ipv6_super_packet_is_cut_into_complete_segments() {
    let mut test_path = TestPath::new(&PathSpec::new(vec![rated(); 2]));
    let frame = super_packet_v6(&test_path.plan, 1, Direction::Down, 3 * 940, 940);
    test_path.network.handle_packet(at(0), Direction::Down, &frame);
    for number in 1..=3u64 {
        let departure = test_path.network.poll_due(at(10_000_000 + number * 1_000_000)).unwrap();
        let (header, packet) = vnet::Header::split(departure.frame).unwrap();
        let ip = ipv6::Packet::new_checked(packet).unwrap();
        assert_eq!((header.gso_type, header.needs_checksum(), ip.total_len()), (vnet::GSO_NONE, true, 1000));
        let segment = tcp::Segment::new_checked(ip.payload()).unwrap();
        assert_eq!(segment.sequence(), (number as u32 - 1) * 940);
        test_path.network.handle_written(at(10_000_000 + number * 1_000_000));
    }
    // On the way up no effect acts on wire packets: the super-packet passes uncut.
    let frame = super_packet_v6(&test_path.plan, 0, Direction::Up, 60_000, 1440);
    test_path.network.read_buffer()[..frame.len()].copy_from_slice(&frame);
    test_path.network.handle_read(at(0), Direction::Up, frame.len());
    let departure = test_path.network.poll_due(at(10_000_000)).unwrap();
    assert_eq!((departure.wire_packets, departure.frame), (42, &frame[..]));
    test_path.network.handle_written(at(10_000_000));
    test_path.assert_conserved();
}

#[test]
fn longest_ipv6_packet_passes() {
    let mut test_path = TestPath::new(&PathSpec::new(vec![ClientPath::constant(ms(0))]));
    let frame = frame_v6(&test_path.plan, 0, Direction::Up, protocol::UDP, 65_575);
    test_path.network.read_buffer()[..frame.len()].copy_from_slice(&frame);
    test_path.network.handle_read(at(0), Direction::Up, frame.len());
    assert_eq!(test_path.network.poll_due(at(0)).unwrap().frame, frame);
}
