//! Address translation that forgets: a change ([`crate::ChangeKind::Rebind`]) gives every connection of a client
//! another port, as a NAT in front of the client does that restarts, or whose mappings time out.
//!
//! ```text
//!   before:        198.19.0.7:40000 <--> server
//!   after:         198.19.0.7:40000 <--> 198.19.0.7:60011 <--> server         40000 at the server's end: dropped
//! ```
//!
//! Before a client's first change its packets pass unchanged. After it each port of the client, of TCP and of UDP, gets
//! another one with its next packet to the server, and the next change forgets them all. Packets to a port without a
//! mapping are dropped, as a NAT does; packets in transit at a change are delivered. Checksums are adjusted
//! (RFC 1624); a partial checksum, which the kernel left to the next hop, does not cover ports. Fragments without a
//! transport header pass unchanged. An ICMP error to a client that quotes a packet of it gets the client's port back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use schema::Direction;
use units::Timestamp;
use units::time::saturating_nanos;
use wire::checksum::adjust;
use wire::ip::{Addresses, Packet};
use wire::vnet;

use crate::address::AddressPlan;
use crate::spec::{Change, ChangeKind, ChangedLinks};
use crate::timeline::Start;

/// The address translation of all clients.
#[derive(Debug)]
pub(crate) struct Nat {
    addresses: AddressPlan,
    /// Nanoseconds after the start, and the clients concerned, in order of time.
    changes: Vec<(u64, Range<u32>)>,
    /// Mappings of clients after their first change.
    clients: HashMap<u32, Client>,
    /// Mappings of all clients together.
    mappings: usize,
}

/// The mappings of a client since its last change.
#[derive(Debug, Default)]
struct Client {
    /// Number of changes so far.
    changes: usize,
    /// By protocol and own port.
    outer: HashMap<(u8, u16), u16>,
    /// By protocol and port at the server's end.
    inner: HashMap<(u8, u16), u16>,
}

/// Where a packet's ports are.
struct Ports {
    client: u32,
    protocol: u8,
    /// The client's port.
    port_at: usize,
    checksum_at: usize,
}

impl Nat {
    /// The translation of a path with these changes; `None` if no client's mappings are ever forgotten.
    pub(crate) fn new(addresses: AddressPlan, changes: &[Change]) -> Option<Self> {
        let rebinds = changes.iter().filter(|change| change.kind == ChangeKind::Rebind);
        let mut changes: Vec<(u64, Range<u32>)> = rebinds
            .filter_map(|change| match &change.place {
                ChangedLinks::Clients(clients) => Some((saturating_nanos(change.at), clients.clone())),
                ChangedLinks::Shared(_) => None,
            })
            .collect();
        changes.sort_by_key(|(at, _)| *at);
        (!changes.is_empty()).then(|| Nat { addresses, changes, clients: HashMap::new(), mappings: 0 })
    }

    /// Translates the frame (vnet header and IP packet) that enters the path at `at`; false if it has no mapping and is
    /// dropped. Whatever is not a packet of TCP or UDP of a client passes.
    pub(crate) fn translate(&mut self, at: Timestamp, start: Start, direction: Direction, frame: &mut [u8]) -> bool {
        let Some(position) = start.position(at.as_nanos()) else { return true };
        let Some((vnet, _)) = vnet::Header::split(frame) else { return true };
        let packet = &mut frame[vnet::LEN..];
        let length = packet.len();
        let Ok(header) = Packet::parse(packet, length) else { return true };
        if header.fragment.is_some_and(|fragment| fragment.offset > 0) {
            return true;
        }
        if matches!(header.protocol, ICMP | ICMPV6) {
            self.translate_quoted(position, direction, &header, packet);
            return true;
        }
        let Some(ports) = ports(&self.addresses, direction, &header) else { return true };
        let Some(port) = word(packet, ports.port_at) else { return true };
        let Some(new) = self.port(position, direction, &ports, port) else { return false };
        if new == port {
            return true;
        }
        put(packet, ports.port_at, new);
        // A partial checksum is that of the addresses and the length only.
        let field = ports.checksum_at;
        let is_partial = vnet.needs_checksum() && usize::from(vnet.csum_start) + usize::from(vnet.csum_offset) == field;
        if !is_partial && let Some(checksum) = word(packet, field) {
            let has_none = ports.protocol == UDP && checksum == 0;
            let adjusted = match adjust(checksum, port, new) {
                _ if has_none => 0,
                // RFC 768: zero would mean that there is none.
                0 if ports.protocol == UDP => 0xFFFF,
                adjusted => adjusted,
            };
            put(packet, field, adjusted);
        }
        true
    }

    /// The port that replaces `port`; `None` if there is no mapping.
    fn port(&mut self, position: u64, direction: Direction, ports: &Ports, port: u16) -> Option<u16> {
        let number = ports.client;
        let changes = self.changes.iter().take_while(|(at, _)| *at <= position);
        let changes = changes.filter(|(_, clients)| clients.contains(&number)).count();
        if changes == 0 {
            return Some(port);
        }
        let client = self.clients.entry(number).or_default();
        if client.changes != changes {
            self.mappings -= client.outer.len();
            *client = Client { changes, ..Client::default() };
        }
        let key = (ports.protocol, port);
        if direction == Direction::Down {
            return client.inner.get(&key).copied();
        }
        if let Some(&outer) = client.outer.get(&key) {
            return Some(outer);
        }
        if self.mappings >= MAPPINGS_MAX {
            return None;
        }
        let outer = client.free_port(ports.protocol, port)?;
        client.outer.insert(key, outer);
        client.inner.insert((ports.protocol, outer), port);
        self.mappings += 1;
        Some(outer)
    }

    /// Gives an ICMP error that quotes a packet of a client the client's own port.
    fn translate_quoted(&self, position: u64, direction: Direction, header: &Packet, packet: &mut [u8]) -> Option<()> {
        if direction == Direction::Up || position < self.changes.first()?.0 {
            return None;
        }
        let quoted_at = header.transport_at + ICMP_HEADER;
        let is_error = match header.protocol {
            ICMP => matches!(packet.get(header.transport_at)?, 3 | 11 | 12),
            _ => matches!(packet.get(header.transport_at)?, 1..=4),
        };
        let quoted = packet.get(quoted_at..).filter(|_| is_error)?;
        // A quote is cut: its length is that of its own header.
        let inside = Packet::parse(quoted, usize::from(u16::MAX)).ok()?;
        let ports = ports(&self.addresses, Direction::Up, &inside)?;
        let port_at = quoted_at + ports.port_at;
        let port = word(packet, port_at)?;
        let own = *self.clients.get(&ports.client)?.inner.get(&(ports.protocol, port))?;
        put(packet, port_at, own);
        let checksum_at = header.transport_at + 2;
        let checksum = word(packet, checksum_at)?;
        put(packet, checksum_at, adjust(checksum, port, own));
        Some(())
    }
}

impl Client {
    /// A port at the server's end that is neither used nor the client's own.
    fn free_port(&self, protocol: u8, own: u16) -> Option<u16> {
        let offset = own.wrapping_sub(FIRST_PORT) as usize + self.changes.wrapping_mul(STRIDE);
        let ports = (0..PORTS).map(|step| FIRST_PORT + ((offset + step) % PORTS) as u16);
        let is_free = |port: &u16| *port != own && !self.inner.contains_key(&(protocol, *port));
        ports.into_iter().find(is_free)
    }
}

/// The client and its port in a packet of TCP or UDP that travels in `direction`.
fn ports(addresses: &AddressPlan, direction: Direction, header: &Packet) -> Option<Ports> {
    let checksum_at = match header.protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let (source, destination): (IpAddr, IpAddr) = match header.addresses {
        Addresses::V4(source, destination) => (source.into(), destination.into()),
        Addresses::V6(source, destination) => (source.into(), destination.into()),
    };
    let (client, port_at) = match direction {
        Direction::Up => (source, 0),
        Direction::Down => (destination, 2),
    };
    Some(Ports {
        client: addresses.index(client)?,
        protocol: header.protocol,
        port_at: header.transport_at + port_at,
        checksum_at: header.transport_at + checksum_at,
    })
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

fn put(packet: &mut [u8], at: usize, word: u16) {
    if let Some(place) = packet.get_mut(at..at + 2) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ICMP_HEADER: usize = 8;
/// Ports above the well-known ones.
const FIRST_PORT: u16 = 1024;
const PORTS: usize = 65_536 - 1024;
/// Distance of a port from the one before the change: larger than the range from which systems choose ports in sequence.
const STRIDE: usize = 20_011;
/// Mappings of all clients together, some 50 MB. Packets that need more are dropped as those without a mapping.
const MAPPINGS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
