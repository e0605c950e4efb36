//! Stateless address translation for a server that listens on a loopback address.
//!
//! ```text
//!   clients' end                                      server's end
//!   198.19.0.7 -> 198.18.0.1   -- destination -->     198.19.0.7 -> 127.0.0.1
//!   198.18.0.1 -> 198.19.0.7   <-- source --          127.0.0.1 -> 198.19.0.7
//! ```
//!
//! Ports stay and there is no connection state, so nothing expires and nothing must be cleaned up. Checksums are
//! adjusted, not recomputed (RFC 1624): a packet that arrived with a wrong checksum leaves with a wrong one. A partial
//! checksum, which the kernel left to the next hop, is a sum that is not inverted yet; it is adjusted as such.

use std::net::Ipv4Addr;

use schema::Direction;
use wire::checksum::{adjust, adjust_partial};
use wire::{ipv4, vnet};

/// Address pairs, at most a handful: they are searched linearly for every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    pairs: Vec<Pair>,
}

/// One server address: the address that clients use, and the address on which the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The address to which clients connect.
    pub seen: Ipv4Addr,
    /// The address on which the server listens.
    pub own: Ipv4Addr,
}

impl Rewrite {
    /// Replaces each pair's `seen` by `own` on the way up, and back on the way down.
    pub fn new(pairs: Vec<Pair>) -> Self {
        Rewrite { pairs }
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Changes one frame (vnet header and IP packet, complete or super-packet) in place. Anything but an IPv4 packet to
    /// or from an address of a pair stays unchanged.
    #[inline]
    pub fn apply(&self, direction: Direction, frame: &mut [u8]) {
        if !self.pairs.is_empty() {
            self.change(direction, frame);
        }
    }

    fn change(&self, direction: Direction, frame: &mut [u8]) -> Option<()> {
        let (vnet, _) = vnet::Header::split(frame)?;
        let packet = &mut frame[vnet::LEN..];
        let ip = ipv4::Packet::new_checked(&*packet).ok()?;
        let (header, length, protocol) = (ip.header_len(), ip.total_len(), ip.protocol());
        // Only the first fragment has the transport header.
        let first = u16::from_be_bytes([packet[6], packet[7]]) & FRAGMENT_OFFSET == 0;
        let at = match direction {
            Direction::Up => DESTINATION,
            Direction::Down => SOURCE,
        };
        let (old, new) = self.other(direction, address(packet, at)?)?;
        set_address(packet, at, old, new);
        if !first {
            return Some(());
        }
        if protocol == ICMP {
            self.change_quoted(direction, packet.get_mut(header..length)?);
            return Some(());
        }
        let field = header
            + match protocol {
                TCP => 16,
                UDP => 6,
                _ => return Some(()),
            };
        let checksum = word(packet, field)?;
        let partial = vnet.needs_checksum() && usize::from(vnet.csum_start) + usize::from(vnet.csum_offset) == field;
        let changed = match (partial, protocol, checksum) {
            (true, ..) => over_words(old, new, checksum, adjust_partial),
            // The packet has no checksum.
            (false, UDP, 0) => 0,
            (false, UDP, _) => match over_words(old, new, checksum, adjust) {
                0 => 0xFFFF,
                other => other,
            },
            (false, ..) => over_words(old, new, checksum, adjust),
        };
        packet[field..field + 2].copy_from_slice(&changed.to_be_bytes());
        Some(())
    }

    /// An ICMP error quotes the packet that caused it, which travelled in the other direction. In the ICMP checksum,
    /// the change of the quoted header's checksum cancels the change of the address. The quoted transport checksum
    /// stays unchanged: receivers do not check it, since quotes are truncated.
    fn change_quoted(&self, direction: Direction, icmp: &mut [u8]) -> Option<()> {
        if !matches!(icmp.first()?, 3 | 4 | 5 | 11 | 12) {
            return None;
        }
        let quoted = icmp.get_mut(8..)?;
        if quoted.len() < ipv4::HEADER_MIN || quoted[0] >> 4 != 4 {
            return None;
        }
        let at = match direction {
            Direction::Up => SOURCE,
            Direction::Down => DESTINATION,
        };
        let (old, new) = self.other(direction, address(quoted, at)?)?;
        set_address(quoted, at, old, new);
        Some(())
    }

    #[inline]
    fn other(&self, direction: Direction, address: Ipv4Addr) -> Option<(Ipv4Addr, Ipv4Addr)> {
        self.pairs.iter().find_map(|pair| match direction {
            Direction::Up => (pair.seen == address).then_some((pair.seen, pair.own)),
            Direction::Down => (pair.own == address).then_some((pair.own, pair.seen)),
        })
    }
}

/// Replaces an address of an IP header and adjusts the header's checksum.
fn set_address(packet: &mut [u8], at: usize, old: Ipv4Addr, new: Ipv4Addr) {
    packet[at..at + 4].copy_from_slice(&new.octets());
    let checksum = u16::from_be_bytes([packet[CHECKSUM], packet[CHECKSUM + 1]]);
    let changed = over_words(old, new, checksum, adjust);
    packet[CHECKSUM..CHECKSUM + 2].copy_from_slice(&changed.to_be_bytes());
}

/// Adjusts a checksum for both words of an address.
fn over_words(old: Ipv4Addr, new: Ipv4Addr, checksum: u16, adjust: fn(u16, u16, u16) -> u16) -> u16 {
    let ([a, b, c, d], [e, f, g, h]) = (old.octets(), new.octets());
    let halfway = adjust(checksum, u16::from_be_bytes([a, b]), u16::from_be_bytes([e, f]));
    adjust(halfway, u16::from_be_bytes([c, d]), u16::from_be_bytes([g, h]))
}

fn address(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

const CHECKSUM: usize = 10;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const FRAGMENT_OFFSET: u16 = 0x1FFF;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

#[cfg(test)]
mod tests;
