//! IP of either version for an observer: possibly truncated, possibly a fragment, with options or extensions.
//!
//! Unlike [`crate::ipv4`] and [`crate::ipv6`], which need complete packets, [`Packet::parse`] needs only the headers:
//! lengths are those of the header fields, never the captured length. It copies the fields that an analyser needs and
//! finds the transport header.

use crate::Error;
use crate::octets::{u16_at, u32_at};

/// The two ends of a packet, in the order source, destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4([u8; 4], [u8; 4]),
    /// IPv6.
    V6([u8; 16], [u8; 16]),
}

/// Position of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of its first byte in the whole packet's payload.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
}

/// The headers of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source and destination.
    pub addresses: Addresses,
    /// The transport protocol; for a later fragment that of the first one.
    pub protocol: u8,
    /// Offset of the transport header, or of a later fragment's bytes.
    pub transport_at: usize,
    /// Length of the complete packet, headers included, from its length field; if that field is 0 (a super-packet that
    /// the sender's kernel had not yet segmented, or a jumbogram), from the frame's original length.
    pub total_len: usize,
    /// Set for a fragment of a packet.
    pub fragment: Option<Fragment>,
    /// Identification of the packet, the same in every copy of it; 0 in IPv6, which has none, and from senders that set
    /// none where fragmentation is forbidden (RFC 6864).
    pub identification: u16,
}

impl Packet {
    /// Parses the headers at the start of `bytes`, of which `original_length` were on the wire.
    ///
    /// # Errors
    /// Neither version 4 nor 6; headers that were not captured in full; length fields that are inconsistent or exceed
    /// the original length.
    #[inline]
    pub fn parse(bytes: &[u8], original_length: usize) -> Result<Packet, Error> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => parse_v4(bytes, original_length),
            Some(6) => parse_v6(bytes, original_length),
            Some(found) => Err(Error::Version { found, expected: 4 }),
            None => Err(Error::Truncated { header: "IP", needed: 1, available: 0 }),
        }
    }
}

#[inline]
fn parse_v4(bytes: &[u8], original_length: usize) -> Result<Packet, Error> {
    const MIN: usize = crate::ipv4::HEADER_MIN;
    let Some(head) = bytes.first_chunk::<MIN>() else {
        return Err(Error::Truncated { header: "IPv4", needed: MIN, available: bytes.len() });
    };
    let header = usize::from(head[0] & 0x0F) * 4;
    let length = usize::from(u16_at(head, 2..4));
    let total_len = if length == 0 { original_length } else { length };
    if header < MIN || header > total_len {
        return Err(Error::Length { field: "IPv4 header length", value: header, available: total_len });
    }
    if total_len > original_length {
        return Err(Error::Length { field: "IPv4 total length", value: total_len, available: original_length });
    }
    let flags = u16_at(head, 6..8);
    let (offset, more) = (u32::from(flags & 0x1FFF) * 8, flags & 0x2000 != 0);
    Ok(Packet {
        addresses: Addresses::V4([head[12], head[13], head[14], head[15]], [head[16], head[17], head[18], head[19]]),
        protocol: head[9],
        transport_at: header,
        total_len,
        fragment: (more || offset > 0).then_some(Fragment { offset, more }),
        identification: u16_at(head, 4..6),
    })
}

fn parse_v6(bytes: &[u8], original_length: usize) -> Result<Packet, Error> {
    const HEADER: usize = crate::ipv6::HEADER;
    let Some(head) = bytes.first_chunk::<HEADER>() else {
        return Err(Error::Truncated { header: "IPv6", needed: HEADER, available: bytes.len() });
    };
    let length = usize::from(u16_at(head, 4..6));
    let total_len = if length == 0 { original_length } else { HEADER + length };
    if total_len > original_length || total_len < HEADER {
        return Err(Error::Length { field: "IPv6 payload length", value: length, available: original_length });
    }
    let mut end_to_end = [[0u8; 16]; 2];
    end_to_end[0].copy_from_slice(&head[8..24]);
    end_to_end[1].copy_from_slice(&head[24..40]);
    let (mut next, mut at, mut fragment) = (head[6], HEADER, None);
    // Each iteration advances by at least 8 bytes, so a hostile chain ends with the captured bytes.
    while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT | AUTHENTICATION | MOBILITY) {
        let Some(extension) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return Err(Error::Truncated { header: "IPv6 extension", needed: at + 8, available: bytes.len() });
        };
        if next == FRAGMENT {
            let word = u16_at(extension, 2..4);
            let (offset, more) = (u32::from(word & 0xFFF8), word & 1 != 0);
            // An "atomic" fragment (RFC 6946) is a complete packet.
            if offset > 0 || more {
                fragment = Some(Fragment { offset, more });
            }
        }
        let size = match next {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(extension[1]) + 2) * 4,
            _ => (usize::from(extension[1]) + 1) * 8,
        };
        next = extension[0];
        at += size;
        if at > total_len {
            return Err(Error::Length { field: "IPv6 extension length", value: size, available: total_len });
        }
        if fragment.is_some_and(|fragment| fragment.offset > 0) {
            // The following bytes belong to the middle of the packet.
            break;
        }
    }
    Ok(Packet {
        addresses: Addresses::V6(end_to_end[0], end_to_end[1]),
        protocol: next,
        transport_at: at,
        total_len,
        fragment,
        identification: 0,
    })
}

/// The fields of a TCP header that an analyser needs, from a possibly truncated segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number; valid only with the ACK flag.
    pub acknowledgement: u32,
    /// Control bits, see [`crate::tcp::flags`].
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Bytes of the header, options included: 20 to 60.
    pub header_len: usize,
}

impl TcpHeader {
    /// Parses the fixed part at the start of `bytes`; the segment was `length` bytes long on the wire.
    ///
    /// # Errors
    /// Fewer than 20 captured bytes, or a data offset below 5 words or beyond the segment.
    #[inline]
    pub fn parse(bytes: &[u8], length: usize) -> Result<TcpHeader, Error> {
        const MIN: usize = crate::tcp::HEADER_MIN;
        let Some(head) = bytes.first_chunk::<MIN>() else {
            return Err(Error::Truncated { header: "TCP", needed: MIN, available: bytes.len() });
        };
        let header_len = usize::from(head[12] >> 4) * 4;
        if header_len < MIN || header_len > length {
            return Err(Error::Length { field: "TCP data offset", value: header_len, available: length });
        }
        Ok(TcpHeader {
            source_port: u16_at(head, 0..2),
            destination_port: u16_at(head, 2..4),
            sequence: u32_at(head, 4..8),
            acknowledgement: u32_at(head, 8..12),
            flags: head[13],
            window: u16_at(head, 14..16),
            header_len,
        })
    }
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(total: u16, flags: u16) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        bytes
    }

    fn v6(next: u8, length: u16, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x60;
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        bytes[6] = next;
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn truncated_ip_packet_keeps_its_length() {
        let packet = Packet::parse(&v4(1500, 0), 1500).unwrap();
        assert_eq!((packet.total_len, packet.transport_at, packet.protocol), (1500, 20, 6));
        assert_eq!(packet.addresses, Addresses::V4([10, 0, 0, 1], [10, 0, 0, 2]));
        assert!(Packet::parse(&v4(1500, 0), 1499).is_err());
        assert!(Packet::parse(&v4(1500, 0)[..19], 1500).is_err());
        assert_eq!(Packet::parse(&v4(0, 0), 70_000).unwrap().total_len, 70_000, "a super-packet has no length yet");
    }

    #[test]
    fn ip_fragments_are_recognized_in_both_versions() {
        assert_eq!(Packet::parse(&v4(40, 0x4000), 40).unwrap().fragment, None);
        assert_eq!(Packet::parse(&v4(40, 0x2000), 40).unwrap().fragment, Some(Fragment { offset: 0, more: true }));
        assert_eq!(Packet::parse(&v4(40, 0x0003), 40).unwrap().fragment, Some(Fragment { offset: 24, more: false }));
        let first = v6(FRAGMENT, 28, &[6, 0, 0, 1, 0, 0, 0, 9]);
        let packet = Packet::parse(&first, 68).unwrap();
        assert_eq!((packet.protocol, packet.transport_at), (6, 48));
        assert_eq!(packet.fragment, Some(Fragment { offset: 0, more: true }));
        let atomic = v6(FRAGMENT, 28, &[6, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(Packet::parse(&atomic, 68).unwrap().fragment, None);
        let later = v6(FRAGMENT, 28, &[0, 0, 0, 8, 0, 0, 0, 9]);
        assert_eq!(Packet::parse(&later, 68).unwrap().fragment, Some(Fragment { offset: 8, more: false }));
    }

    #[test]
    fn ipv6_extensions_are_skipped_within_the_packet_only() {
        let chain =
            |length: u8| v6(HOP_BY_HOP, 16 + 20, &[&[60, 0, 0, 0, 0, 0, 0, 0, 6, length][..], &[0; 26]].concat());
        assert_eq!(Packet::parse(&chain(0), 76).unwrap().transport_at, 56);
        assert_eq!(Packet::parse(&chain(2), 76).unwrap().transport_at, 72);
        assert!(Packet::parse(&chain(3), 76).is_err());
        assert!(Packet::parse(&chain(0)[..47], 76).is_err());
    }

    #[test]
    fn tcp_header_truncated_after_its_fixed_part_is_parsed() {
        let mut bytes = [0u8; 20];
        bytes[12] = 0x80;
        assert_eq!(TcpHeader::parse(&bytes, 32).unwrap().header_len, 32);
        assert!(TcpHeader::parse(&bytes, 31).is_err());
        assert!(TcpHeader::parse(&bytes[..19], 32).is_err());
        bytes[12] = 0x40;
        assert!(TcpHeader::parse(&bytes, 32).is_err());
    }
}
