//! Every adjusted checksum against a recomputed one.

use proptest::prelude::*;
use wire::checksum::Sum;

use super::*;

const SEEN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

fn frame(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8], partial: bool, options: usize) -> Vec<u8> {
    let header = ipv4::HEADER_MIN + options;
    let (fixed, field) = match protocol {
        TCP => (20, 16),
        UDP => (8, 6),
        _ => (8, 2),
    };
    let mut packet = vec![0u8; header + fixed];
    packet.extend(payload);
    packet[0] = 0x40 | (header / 4) as u8;
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    if protocol == TCP {
        packet[header + 12] = 0x50;
    }
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    let mut ip = ipv4::Packet::new_checked(&mut packet[..]).unwrap();
    ip.fill_checksum();
    let pseudo = ip.pseudo_sum(protocol, length - header as u16);
    let sum = if partial { pseudo.fold() } else { full(pseudo, &packet[header..], protocol) };
    packet[header + field..header + field + 2].copy_from_slice(&sum.to_be_bytes());
    let vnet = vnet::Header {
        flags: if partial { vnet::NEEDS_CSUM } else { 0 },
        csum_start: header as u16,
        csum_offset: field as u16,
        ..vnet::Header::default()
    };
    [&vnet.to_bytes()[..], &packet].concat()
}

fn full(pseudo: Sum, segment: &[u8], protocol: u8) -> u16 {
    match pseudo.bytes(segment).checksum() {
        0 if protocol == UDP => 0xFFFF,
        sum => sum,
    }
}

fn any_address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

proptest! {
    #[test]
    fn rewritten_packet_equals_one_built_with_the_other_address(
        own in any_address(),
        client in any_address(),
        udp: bool,
        partial: bool,
        options in 0usize..=10,
        payload in prop::collection::vec(any::<u8>(), 0..200),
        up: bool,
    ) {
        prop_assume!(own != SEEN && client != own && client != SEEN);
        let rewrite = Rewrite::new(vec![Pair { seen: SEEN, own }]);
        let protocol = if udp { UDP } else { TCP };
        let make = |from, to| frame(from, to, protocol, &payload, partial, options * 4);
        let (mut given, expected) = match up {
            true => (make(client, SEEN), make(client, own)),
            false => (make(own, client), make(SEEN, client)),
        };
        let direction = if up { Direction::Up } else { Direction::Down };
        let before = given.clone();
        rewrite.apply(direction, &mut given);
        // 0 and 0xFFFF are the same number in ones' complement arithmetic; only a partial sum can be either.
        let at = vnet::LEN + ipv4::HEADER_MIN + options * 4 + if udp { 6 } else { 16 };
        let same = |word: &[u8]| if partial && word == [0xFF, 0xFF] { vec![0, 0] } else { word.to_vec() };
        prop_assert_eq!(same(&given[at..at + 2]), same(&expected[at..at + 2]));
        given[at..at + 2].copy_from_slice(&expected[at..at + 2]);
        prop_assert_eq!(&given, &expected);
        // The way back.
        let mut returned = expected;
        Rewrite::new(vec![Pair { seen: own, own: SEEN }]).apply(direction, &mut returned);
        returned[at..at + 2].copy_from_slice(&before[at..at + 2]);
        prop_assert_eq!(returned, before);
    }

    #[test]
    fn rewrite_of_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), up: bool) {
        let own = Ipv4Addr::from_bits(u32::from_be_bytes([bytes.first().copied().unwrap_or(0), 0, 0, 1]));
        let mut frame = bytes.clone();
        let direction = if up { Direction::Up } else { Direction::Down };
        Rewrite::new(vec![Pair { seen: SEEN, own }]).apply(direction, &mut frame);
        prop_assert_eq!(frame.len(), bytes.len());
    }

    #[test]
    fn rewrite_translates_the_packet_quoted_in_an_icmp_error(payload in prop::collection::vec(any::<u8>(), 8..40)) {
        let (own, client) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(198, 19, 0, 3));
        let quoted = |to| frame(client, to, UDP, &payload, false, 0)[vnet::LEN..].to_vec();
        let error = |from, quoted: Vec<u8>| {
            let mut made = frame(from, client, ICMP, &quoted, false, 0);
            let icmp = &mut made[vnet::LEN + 20..];
            icmp[..4].copy_from_slice(&[3, 3, 0, 0]);
            let sum = Sum::ZERO.bytes(icmp).checksum();
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            made
        };
        let mut given = error(own, quoted(own));
        Rewrite::new(vec![Pair { seen: SEEN, own }]).apply(Direction::Down, &mut given);
        let packet = &given[vnet::LEN..];
        prop_assert!(ipv4::Packet::new_checked(packet).unwrap().is_header_intact());
        prop_assert!(ipv4::Packet::new_checked(&packet[28..]).unwrap().is_header_intact());
        prop_assert_eq!((address(packet, SOURCE), address(&packet[28..], DESTINATION)), (Some(SEEN), Some(SEEN)));
        prop_assert!([0, 0xFFFF].contains(&Sum::ZERO.bytes(&packet[20..]).fold()), "the ICMP checksum is wrong");
    }
}

#[test]
fn rewrite_leaves_the_payload_of_later_fragments_unchanged() {
    let client = Ipv4Addr::new(198, 19, 0, 3);
    let mut fragment = frame(client, SEEN, UDP, &[1; 32], false, 0);
    fragment[vnet::LEN + 6..vnet::LEN + 8].copy_from_slice(&100u16.to_be_bytes());
    ipv4::Packet::new_checked(&mut fragment[vnet::LEN..]).unwrap().fill_checksum();
    let body = fragment[vnet::LEN + 20..].to_vec();
    Rewrite::new(vec![Pair { seen: SEEN, own: Ipv4Addr::LOCALHOST }]).apply(Direction::Up, &mut fragment);
    let ip = ipv4::Packet::new_checked(&fragment[vnet::LEN..]).unwrap();
    assert!(ip.is_header_intact());
    assert_eq!((ip.destination(), &fragment[vnet::LEN + 20..]), (Ipv4Addr::LOCALHOST, &body[..]));
}

#[test]
fn rewrite_keeps_absent_checksums_and_unrelated_packets() {
    let (own, client) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(198, 19, 0, 3));
    let rewrite = Rewrite::new(vec![Pair { seen: SEEN, own }]);
    let mut given = frame(client, SEEN, UDP, &[7; 9], false, 0);
    given[vnet::LEN + 26..vnet::LEN + 28].fill(0);
    rewrite.apply(Direction::Up, &mut given);
    assert_eq!(given[vnet::LEN + 26..vnet::LEN + 28], [0, 0]);
    let mut other = frame(client, Ipv4Addr::new(198, 18, 0, 9), TCP, &[], false, 0);
    let before = other.clone();
    rewrite.apply(Direction::Up, &mut other);
    rewrite.apply(Direction::Down, &mut other);
    assert_eq!(other, before);
    assert!(Rewrite::default().is_empty());
}
