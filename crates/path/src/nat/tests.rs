//! Every translated packet against one that was built with the other port.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;
use wire::checksum::Sum;

use super::*;

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1);
const START: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

fn rebind(at_s: u64, clients: Range<u32>) -> Change {
    Change {
        at: Duration::from_secs(at_s),
        duration: None,
        place: ChangedLinks::Clients(clients),
        kind: ChangeKind::Rebind,
    }
}

fn nat(changes: &[Change]) -> Nat {
    Nat::new(AddressPlan::new(10).unwrap(), changes).unwrap()
}

/// A packet between these ports of client `client` and the server.
#[derive(Clone, Copy, Debug)]
struct Sent {
    client: u32,
    is_v6: bool,
    protocol: u8,
    direction: Direction,
    port: u16,
    is_partial: bool,
}

impl Sent {
    fn frame(self, payload: &[u8]) -> Vec<u8> {
        let addresses = AddressPlan::new(10).unwrap();
        let (source_port, destination_port) =
            if self.direction == Direction::Up { (self.port, 443) } else { (443, self.port) };
        let (fixed, field) = if self.protocol == TCP { (20, 16) } else { (8, 6) };
        let mut segment = vec![0; fixed];
        segment[..2].copy_from_slice(&source_port.to_be_bytes());
        segment[2..4].copy_from_slice(&destination_port.to_be_bytes());
        if self.protocol == TCP {
            segment[12] = 0x50;
        }
        segment.extend(payload);
        let length = segment.len();
        if self.protocol == UDP {
            segment[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        let (mut header, pseudo) = if self.is_v6 {
            let ends = [addresses.address_v6(self.client), SERVER_V6];
            let [from, to] = if self.direction == Direction::Up { ends } else { [ends[1], ends[0]] };
            let mut header = vec![0x60, 0, 0, 0, (length >> 8) as u8, length as u8, self.protocol, 64];
            header.extend(from.octets().into_iter().chain(to.octets()));
            (header, Sum::ZERO.pseudo_v6(from, to, self.protocol, length as u32))
        } else {
            let ends = [addresses.address(self.client), SERVER];
            let [from, to] = if self.direction == Direction::Up { ends } else { [ends[1], ends[0]] };
            let total = (20 + length) as u16;
            let mut header = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0x40, 0, 64, self.protocol, 0, 0];
            header.extend(from.octets().into_iter().chain(to.octets()));
            (header, Sum::ZERO.pseudo_v4(from, to, self.protocol, length as u16))
        };
        let checksum = match (self.is_partial, pseudo.bytes(&segment).checksum()) {
            (true, _) => pseudo.fold(),
            (false, 0) if self.protocol == UDP => 0xFFFF,
            (false, checksum) => checksum,
        };
        segment[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        let vnet = vnet::Header {
            flags: if self.is_partial { vnet::NEEDS_CSUM } else { 0 },
            csum_start: header.len() as u16,
            csum_offset: field as u16,
            ..vnet::Header::default()
        };
        header.extend(segment);
        [&vnet.to_bytes()[..], &header].concat()
    }

    /// The port after translation at `at_s` seconds; `None` if it was dropped. Checks that nothing else has changed.
    fn through(self, nat: &mut Nat, at_s: u64) -> Option<u16> {
        let mut frame = self.frame(b"some payload");
        let start = Start(Some(Timestamp::from_nanos(START)));
        let at = Timestamp::from_nanos(START + at_s * SECOND);
        if !nat.translate(at, start, self.direction, &mut frame) {
            return None;
        }
        let port_at = frame.len() - self.frame(b"some payload").len() + self.port_at();
        let port = u16::from_be_bytes([frame[port_at], frame[port_at + 1]]);
        assert_eq!(frame, Sent { port, ..self }.frame(b"some payload"), "{self:?} as {port}");
        Some(port)
    }

    fn port_at(self) -> usize {
        vnet::LEN + if self.is_v6 { 40 } else { 20 } + if self.direction == Direction::Up { 0 } else { 2 }
    }
}

const UP: Sent =
    Sent { client: 0, is_v6: false, protocol: UDP, direction: Direction::Up, port: 40_000, is_partial: false };

fn down(sent: Sent, port: u16) -> Sent {
    Sent { direction: Direction::Down, port, ..sent }
}

#[test]
fn connection_has_another_port_after_each_change_and_answers_find_it() {
    let mut nat = nat(&[rebind(3, 0..10), rebind(1, 0..1)]);
    assert_eq!(UP.through(&mut nat, 0), Some(40_000));
    let first = UP.through(&mut nat, 1).unwrap();
    assert_ne!(first, 40_000);
    assert_eq!(UP.through(&mut nat, 2), Some(first), "a mapping stays");
    assert_eq!(down(UP, first).through(&mut nat, 2), Some(40_000));
    assert_eq!(down(UP, 40_000).through(&mut nat, 2), None, "the NAT has forgotten the port from before");
    let second = UP.through(&mut nat, 3).unwrap();
    assert!(second != first && second != 40_000);
    assert_eq!((down(UP, first).through(&mut nat, 3), down(UP, second).through(&mut nat, 3)), (None, Some(40_000)));
    // Client 5 changes at 3 s only; protocols have ports of their own.
    let other = Sent { client: 5, ..UP };
    assert_eq!(other.through(&mut nat, 2), Some(40_000));
    assert_ne!(other.through(&mut nat, 3), Some(40_000));
    assert_eq!(down(Sent { protocol: TCP, ..UP }, second).through(&mut nat, 3), None);
}

#[test]
fn every_port_of_a_client_gets_one_of_its_own() {
    let mut nat = nat(&[rebind(1, 0..10)]);
    let mut seen = std::collections::BTreeSet::new();
    for port in 30_000..42_000 {
        let outer = Sent { port, ..UP }.through(&mut nat, 1).unwrap();
        assert!(outer != port && outer >= FIRST_PORT && seen.insert(outer), "{port} as {outer}");
    }
    assert_eq!(nat.mappings, 12_000);
}

#[test]
fn icmp_error_quotes_the_port_of_the_client() {
    let mut nat = nat(&[rebind(1, 0..10)]);
    let outer = UP.through(&mut nat, 1).unwrap();
    let error = |port: u16| {
        let quoted = Sent { port, ..UP }.frame(b"some payload")[vnet::LEN..][..28].to_vec();
        let mut icmp = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        let checksum = Sum::ZERO.bytes(&icmp).checksum();
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
        let total = 20 + icmp.len() as u8;
        let mut packet = vec![0x45, 0, 0, total, 0, 1, 0x40, 0, 64, ICMP, 0, 0];
        packet.extend(SERVER.octets().into_iter().chain(AddressPlan::new(10).unwrap().address(0).octets()));
        [&[0; vnet::LEN][..], &packet, &icmp].concat()
    };
    let mut frame = error(outer);
    let start = Start(Some(Timestamp::from_nanos(START)));
    assert!(nat.translate(Timestamp::from_nanos(START + SECOND), start, Direction::Down, &mut frame));
    // The quoted transport checksum is of the packet as sent: receivers do not check it.
    let (mut expected, checksum_at) = (error(40_000), vnet::LEN + 20 + 8 + 20 + 6);
    expected[checksum_at..checksum_at + 2].copy_from_slice(&frame[checksum_at..checksum_at + 2]);
    let icmp_at = vnet::LEN + 20;
    expected[icmp_at + 2..icmp_at + 4].copy_from_slice(&[0, 0]);
    let checksum = Sum::ZERO.bytes(&expected[icmp_at..]).checksum();
    expected[icmp_at + 2..icmp_at + 4].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(frame, expected);
}

#[test]
fn path_without_such_a_change_translates_nothing() {
    let outage = Change { kind: ChangeKind::Outage, ..rebind(1, 0..1) };
    assert!(Nat::new(AddressPlan::new(1).unwrap(), &[outage]).is_none());
}

proptest! {
    #[test]
    fn translated_packet_equals_one_built_with_the_other_port(
        client in 0u32..10,
        is_v6: bool,
        is_tcp: bool,
        is_partial: bool,
        port in 1u16..,
    ) {
        let protocol = if is_tcp { TCP } else { UDP };
        let sent = Sent { client, is_v6, protocol, direction: Direction::Up, port, is_partial };
        let mut nat = nat(&[rebind(1, 0..10)]);
        let outer = sent.through(&mut nat, 1).unwrap();
        prop_assert_ne!(outer, port);
        prop_assert_eq!(down(sent, outer).through(&mut nat, 1), Some(port));
    }

    #[test]
    fn any_bytes_pass_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), up: bool) {
        let direction = if up { Direction::Up } else { Direction::Down };
        let start = Start(Some(Timestamp::ZERO));
        let _ = nat(&[rebind(0, 0..10)]).translate(Timestamp::from_nanos(1), start, direction, &mut bytes);
    }
}
