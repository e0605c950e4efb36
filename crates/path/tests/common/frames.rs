//! Frames for tests: vnet header and IPv4 packet.

use std::net::Ipv4Addr;

use ledger::Direction;
use path::AddressPlan;
use wire::{ipv4, protocol, tcp, vnet};

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// A UDP-like packet of `length` IP bytes (28 or more) between `client` and the server; `mark` is its first payload.
pub fn datagram(plan: &AddressPlan, client: u32, direction: Direction, length: usize, mark: u32) -> Vec<u8> {
    let mut frame = frame(plan, client, direction, protocol::UDP, length);
    frame[vnet::LEN + 24..vnet::LEN + 28].copy_from_slice(&mark.to_be_bytes());
    frame
}

/// A TCP super-packet with `payload` bytes to be cut into segments of `mss`, its checksum left to be completed.
#[allow(dead_code, reason = "each test file is a crate of its own and takes what it needs")]
pub fn super_packet(plan: &AddressPlan, client: u32, direction: Direction, payload: usize, mss: u16) -> Vec<u8> {
    let mut frame = frame(plan, client, direction, protocol::TCP, 40 + payload);
    let header = vnet::Header {
        flags: vnet::NEEDS_CSUM,
        gso_type: vnet::GSO_TCPV4,
        hdr_len: 40,
        gso_size: mss,
        csum_start: 20,
        csum_offset: tcp::CHECKSUM_OFFSET as u16,
    };
    frame[..vnet::LEN].copy_from_slice(&header.to_bytes());
    frame[vnet::LEN + 32] = 5 << 4;
    frame
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
