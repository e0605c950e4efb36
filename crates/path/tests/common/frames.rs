//! Frames for tests: vnet header and IP packet.
#![allow(dead_code, reason = "each test file is a crate of its own and takes what it needs")]

use std::net::{Ipv4Addr, Ipv6Addr};

use path::AddressPlan;
use schema::Direction;
use wire::{ipv4, ipv6, protocol, tcp, vnet};

/// The server's addresses.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1);

/// A UDP-like packet of `length` IP bytes (28 or more) between `client` and the server; `mark` is its first payload.
pub fn datagram(plan: &AddressPlan, client: u32, direction: Direction, length: usize, mark: u32) -> Vec<u8> {
    let mut frame = frame(plan, client, direction, protocol::UDP, length);
    frame[vnet::LEN + 24..vnet::LEN + 28].copy_from_slice(&mark.to_be_bytes());
    frame
}

/// The mark of a packet made by `datagram`.
pub fn mark(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[vnet::LEN + 24..vnet::LEN + 28].try_into().unwrap())
}

/// A TCP super-packet with `payload` bytes to be cut into segments of `mss`, with a partial checksum.
pub fn super_packet(plan: &AddressPlan, client: u32, direction: Direction, payload: usize, mss: u16) -> Vec<u8> {
    let mut frame = frame(plan, client, direction, protocol::TCP, 40 + payload);
    announce(&mut frame, vnet::GSO_TCPV4, 20, mss);
    frame
}

/// A TCP super-packet over IPv6.
pub fn super_packet_v6(plan: &AddressPlan, client: u32, direction: Direction, payload: usize, mss: u16) -> Vec<u8> {
    let mut frame = frame_v6(plan, client, direction, protocol::TCP, 60 + payload);
    announce(&mut frame, vnet::GSO_TCPV6, 40, mss);
    frame
}

fn announce(frame: &mut [u8], gso_type: u8, transport: u16, mss: u16) {
    let header = vnet::Header {
        flags: vnet::NEEDS_CSUM,
        gso_type,
        hdr_len: transport + 20,
        gso_size: mss,
        csum_start: transport,
        csum_offset: tcp::CHECKSUM_OFFSET as u16,
    };
    frame[..vnet::LEN].copy_from_slice(&header.to_bytes());
    frame[vnet::LEN + usize::from(transport) + 12] = 5 << 4;
}

fn frame(plan: &AddressPlan, client: u32, direction: Direction, protocol: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0u8; vnet::LEN + length];
    frame[vnet::LEN] = 0x45;
    frame[vnet::LEN + 9] = protocol;
    let mut ip = ipv4::Packet::new_resized(&mut frame[vnet::LEN..]).unwrap();
    let address = plan.address(client);
    let (source, destination) = match direction {
        Direction::Up => (address, SERVER),
        Direction::Down => (SERVER, address),
    };
    ip.set_source(source);
    ip.set_destination(destination);
    ip.fill_checksum();
    frame
}

/// An IPv6 packet of `length` bytes (40 or more), zeros behind its header.
pub fn frame_v6(plan: &AddressPlan, client: u32, direction: Direction, protocol: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0u8; vnet::LEN + length];
    frame[vnet::LEN] = 0x60;
    frame[vnet::LEN + 6] = protocol;
    let address = plan.address_v6(client);
    let (source, destination) = match direction {
        Direction::Up => (address, SERVER_V6),
        Direction::Down => (SERVER_V6, address),
    };
    frame[vnet::LEN + 8..vnet::LEN + 24].copy_from_slice(&source.octets());
    frame[vnet::LEN + 24..vnet::LEN + 40].copy_from_slice(&destination.octets());
    ipv6::Packet::new_resized(&mut frame[vnet::LEN..]).unwrap();
    frame
}
