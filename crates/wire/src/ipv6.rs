//! IPv6 (RFC 8200): a view of the fixed header and its payload.

use std::net::Ipv6Addr;

use crate::Error;
use crate::checksum::Sum;
use crate::octets::{put_u16, u16_at};

/// Bytes of the fixed header.
pub const HEADER: usize = 40;

mod field {
    use std::ops::Range;

    pub const VERSION: usize = 0;
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: Range<usize> = 8..24;
    pub const DESTINATION: Range<usize> = 24..40;
}

/// Extension headers between the fixed header and the transport header, all of one format: next header, length in units
/// of 8 bytes beyond the first 8 (RFC 8200, section 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

/// An IPv6 packet with a checked fixed header. Jumbograms (payload length 0) count as empty.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks `buffer` as an IPv6 packet that starts at its first byte.
    ///
    /// # Errors
    /// Fewer bytes than the fixed header or the payload length, or another version.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let bytes = buffer.as_ref();
        let available = bytes.len();
        if available < HEADER {
            return Err(Error::Truncated { header: "IPv6", needed: HEADER, available });
        }
        let version = bytes[field::VERSION] >> 4;
        if version != 6 {
            return Err(Error::Version { found: version, expected: 6 });
        }
        let packet = Packet { buffer };
        if packet.total_len() > available {
            return Err(Error::Length { field: "IPv6 payload length", value: packet.payload_len(), available });
        }
        Ok(packet)
    }

    /// Length after the fixed header, extension headers included.
    pub fn payload_len(&self) -> usize {
        usize::from(u16_at(self.bytes(), field::PAYLOAD_LENGTH))
    }

    /// Length of fixed header and payload.
    pub fn total_len(&self) -> usize {
        HEADER + self.payload_len()
    }

    /// The next header: a protocol or an extension header.
    pub fn next_header(&self) -> u8 {
        self.bytes()[field::NEXT_HEADER]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.bytes()[field::HOP_LIMIT]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        address_at(self.bytes(), field::SOURCE.start)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        address_at(self.bytes(), field::DESTINATION.start)
    }

    /// The bytes after the fixed header.
    pub fn payload(&self) -> &[u8] {
        self.bytes().get(HEADER..self.total_len()).unwrap_or(&[])
    }

    /// Protocol and byte offset (from the start of the packet) of the transport header, behind hop-by-hop, routing and
    /// destination options. `None` for fragments and for chains that exceed the packet.
    pub fn transport(&self) -> Option<(u8, usize)> {
        let bytes = self.bytes().get(..self.total_len())?;
        let (mut next, mut at) = (self.next_header(), HEADER);
        while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
            let (following, length) = (*bytes.get(at)?, *bytes.get(at + 1)?);
            next = following;
            at += (usize::from(length) + 1) * 8;
        }
        (next != FRAGMENT && at <= bytes.len()).then_some((next, at))
    }

    /// The sum over the pseudo-header of a transport segment of `length` bytes between these addresses.
    pub fn pseudo_sum(&self, protocol: u8, length: u32) -> Sum {
        Sum::ZERO.pseudo_v6(self.source(), self.destination(), protocol, length)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Uses `buffer`, whose header was copied from a longer or shorter packet, as a packet that ends at the end of the
    /// buffer: sets its payload length.
    ///
    /// # Errors
    /// As [`Self::new_checked`], and a buffer of more than 65,535 bytes after the fixed header.
    pub fn new_resized(mut buffer: T) -> Result<Self, Error> {
        let available = buffer.as_ref().len();
        let payload =
            available.checked_sub(HEADER).ok_or(Error::Truncated { header: "IPv6", needed: HEADER, available })?;
        let length = u16::try_from(payload).map_err(|_| Error::Length {
            field: "IPv6 payload length",
            value: payload,
            available,
        })?;
        put_u16(buffer.as_mut(), field::PAYLOAD_LENGTH, length);
        Packet::new_checked(buffer)
    }

    /// Sets the length after the fixed header. A value beyond the buffer only makes the payload empty.
    pub fn set_payload_len(&mut self, length: u16) {
        put_u16(self.buffer.as_mut(), field::PAYLOAD_LENGTH, length);
    }
}

const FRAGMENT: u8 = 44;

fn address_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 63];
        bytes.extend("2001:2::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("2001:2:0:1::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn ipv6_fields_have_the_offsets_of_the_rfc() {
        let packet = Packet::new_checked(packet(6, &[9; 20])).unwrap();
        assert_eq!((packet.payload_len(), packet.total_len(), packet.hop_limit()), (20, 60, 63));
        assert_eq!(packet.source(), "2001:2::1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(packet.destination(), "2001:2:0:1::1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(packet.transport(), Some((6, 40)));
        assert_eq!(packet.payload(), [9; 20]);
    }

    #[test]
    fn ipv6_transport_is_found_behind_extensions_within_the_packet() {
        let chain = |length: u8| {
            let mut payload = vec![6, length, 0, 0, 0, 0, 0, 0];
            payload.extend([7; 8]);
            Packet::new_checked(packet(HOP_BY_HOP, &payload)).unwrap().transport()
        };
        assert_eq!(chain(0), Some((6, 48)));
        assert_eq!(chain(1), Some((6, 56)));
        assert_eq!(chain(2), None);
        assert_eq!(Packet::new_checked(packet(FRAGMENT, &[6; 8])).unwrap().transport(), None);
    }

    #[test]
    fn ipv6_header_gets_the_length_of_the_buffer() {
        let mut bytes = packet(6, &[9; 20]);
        bytes.truncate(44);
        assert!(Packet::new_checked(&bytes).is_err());
        assert_eq!(Packet::new_resized(&mut bytes).unwrap().payload(), [9; 4]);
        assert!(Packet::new_resized(vec![0x60; HEADER + 65_535]).is_ok());
        assert!(matches!(Packet::new_resized(vec![0x60; HEADER + 65_536]), Err(Error::Length { .. })));
        assert!(matches!(Packet::new_resized(vec![0x60; 39]), Err(Error::Truncated { .. })));
    }

    #[test]
    fn ipv6_lengths_are_checked_exactly() {
        let bytes = packet(17, &[1; 8]);
        assert!(Packet::new_checked(&bytes).is_ok());
        assert!(matches!(Packet::new_checked(&bytes[..47]), Err(Error::Length { .. })));
        assert!(matches!(Packet::new_checked(&bytes[..39]), Err(Error::Truncated { .. })));
    }
}
