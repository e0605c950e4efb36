//! IPv4 (RFC 791): a view of header and payload.

use std::net::Ipv4Addr;

use crate::Error;
use crate::checksum::Sum;
use crate::octets::{put_u16, u16_at};

/// Minimum length of a header: without options.
pub const HEADER_MIN: usize = 20;

mod field {
    use std::ops::Range;

    pub const VERSION_AND_LENGTH: usize = 0;
    pub const TOTAL_LENGTH: Range<usize> = 2..4;
    pub const IDENTIFICATION: Range<usize> = 4..6;
    pub const FLAGS_AND_OFFSET: Range<usize> = 6..8;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: Range<usize> = 10..12;
    pub const SOURCE: Range<usize> = 12..16;
    pub const DESTINATION: Range<usize> = 16..20;
}

/// An IPv4 packet with a checked header. Bytes beyond the total length (padding) are not part of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks `buffer` as an IPv4 packet that starts at its first byte.
    ///
    /// # Errors
    /// Fewer bytes than the header or the total length, another version, or inconsistent lengths. The header checksum
    /// is not verified: see [`Self::is_header_intact`].
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let bytes = buffer.as_ref();
        let available = bytes.len();
        if available < HEADER_MIN {
            return Err(Error::Truncated { header: "IPv4", needed: HEADER_MIN, available });
        }
        let version = bytes[field::VERSION_AND_LENGTH] >> 4;
        if version != 4 {
            return Err(Error::Version { found: version, expected: 4 });
        }
        let packet = Packet { buffer };
        let header = packet.header_len();
        if header < HEADER_MIN {
            return Err(Error::Length { field: "IPv4 header length", value: header, available });
        }
        let total = packet.total_len();
        if total < header || total > available {
            return Err(Error::Length { field: "IPv4 total length", value: total, available });
        }
        Ok(packet)
    }

    /// Length of the header, options included: 20 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[field::VERSION_AND_LENGTH] & 0x0F) * 4
    }

    /// Length of header and payload.
    pub fn total_len(&self) -> usize {
        usize::from(u16_at(self.bytes(), field::TOTAL_LENGTH))
    }

    /// Identification: the same in all fragments of one packet.
    pub fn identification(&self) -> u16 {
        u16_at(self.bytes(), field::IDENTIFICATION)
    }

    /// True for a fragment (more to come, or not the first).
    pub fn is_fragment(&self) -> bool {
        u16_at(self.bytes(), field::FLAGS_AND_OFFSET) & 0x3FFF != 0
    }

    /// Time to live, in hops.
    pub fn ttl(&self) -> u8 {
        self.bytes()[field::TTL]
    }

    /// Protocol of the payload, such as those of [`crate::protocol`].
    pub fn protocol(&self) -> u8 {
        self.bytes()[field::PROTOCOL]
    }

    /// Header checksum in the packet.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        address_at(self.bytes(), field::SOURCE.start)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        address_at(self.bytes(), field::DESTINATION.start)
    }

    /// True when the header checksum is correct.
    pub fn is_header_intact(&self) -> bool {
        let header = self.bytes().get(..self.header_len()).unwrap_or(&[]);
        Sum::ZERO.bytes(header).checksum() == 0
    }

    /// The payload, without padding.
    pub fn payload(&self) -> &[u8] {
        self.bytes().get(self.header_len()..self.total_len()).unwrap_or(&[])
    }

    /// The sum over the pseudo-header of a transport segment of `length` bytes between these addresses.
    pub fn pseudo_sum(&self, protocol: u8, length: u16) -> Sum {
        Sum::ZERO.pseudo_v4(self.source(), self.destination(), protocol, length)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Uses `buffer`, whose header was copied from a longer or shorter packet, as a packet that ends at the end of the
    /// buffer: sets its total length. The header checksum stays unchanged.
    ///
    /// # Errors
    /// As [`Self::new_checked`], and a buffer of more than 65,535 bytes.
    pub fn new_resized(mut buffer: T) -> Result<Self, Error> {
        let available = buffer.as_ref().len();
        let length = u16::try_from(available).map_err(|_| Error::Length {
            field: "IPv4 total length",
            value: available,
            available,
        })?;
        if available < HEADER_MIN {
            return Err(Error::Truncated { header: "IPv4", needed: HEADER_MIN, available });
        }
        put_u16(buffer.as_mut(), field::TOTAL_LENGTH, length);
        Packet::new_checked(buffer)
    }

    /// Sets the length of header and payload. A value beyond the buffer only makes the payload empty.
    pub fn set_total_len(&mut self, length: u16) {
        put_u16(self.buffer.as_mut(), field::TOTAL_LENGTH, length);
    }

    /// Sets the identification.
    pub fn set_identification(&mut self, identification: u16) {
        put_u16(self.buffer.as_mut(), field::IDENTIFICATION, identification);
    }

    /// Sets the source address. The header checksum, and that of TCP or UDP, must be adjusted by the caller.
    pub fn set_source(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::SOURCE].copy_from_slice(&address.octets());
    }

    /// Sets the destination address. Checksums as with [`Self::set_source`].
    pub fn set_destination(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::DESTINATION].copy_from_slice(&address.octets());
    }

    /// Sets the header checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }

    /// Computes the header checksum and stores it.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let header = self.bytes().get(..self.header_len()).unwrap_or(&[]);
        let checksum = Sum::ZERO.bytes(header).checksum();
        self.set_checksum(checksum);
    }

    /// The payload, mutable.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = self.header_len()..self.total_len();
        self.buffer.as_mut().get_mut(range).unwrap_or(&mut [])
    }
}

fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of a packet of 28 bytes, from 198.19.0.1 to 198.18.0.1, with a checksum computed by hand.
    fn packet() -> Vec<u8> {
        let mut bytes = vec![
            0x45, 0, 0, 28, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 198, 19, 0, 1, 198, 18, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        // 4500 + 001c + 1234 + 4000 + 4011 + c613 + 0001 + c612 + 0001 = 26388 -> 638a, inverted 9c75.
        bytes[10..12].copy_from_slice(&[0x9c, 0x75]);
        bytes
    }

    #[test]
    fn ipv4_fields_have_the_offsets_of_the_rfc() {
        let packet = Packet::new_checked(packet()).unwrap();
        assert_eq!((packet.header_len(), packet.total_len(), packet.identification()), (20, 28, 0x1234));
        assert_eq!((packet.ttl(), packet.protocol(), packet.is_fragment()), (64, 17, false));
        assert_eq!(packet.source(), Ipv4Addr::new(198, 19, 0, 1));
        assert_eq!(packet.destination(), Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(packet.payload(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(packet.is_header_intact());
    }

    #[test]
    fn computed_ipv4_checksum_equals_the_one_in_the_header() {
        let mut bytes = packet();
        bytes[10] = 0;
        assert!(!Packet::new_checked(&bytes).unwrap().is_header_intact());
        let mut view = Packet::new_checked(&mut bytes).unwrap();
        view.fill_checksum();
        assert_eq!(view.checksum(), 0x9c75);
    }

    #[test]
    fn ipv4_header_gets_the_length_of_the_buffer() {
        let mut bytes = packet();
        bytes.truncate(24);
        assert!(Packet::new_checked(&bytes).is_err());
        assert_eq!(Packet::new_resized(&mut bytes).unwrap().payload(), [1, 2, 3, 4]);
        assert!(Packet::new_resized(vec![0x45; 65_535]).is_ok());
        assert!(matches!(Packet::new_resized(vec![0x45; 65_536]), Err(Error::Length { .. })));
        assert!(matches!(Packet::new_resized(vec![0x45; 19]), Err(Error::Truncated { .. })));
    }

    #[test]
    fn ipv4_lengths_are_checked_exactly() {
        let with = |at: usize, value: u8| {
            let mut bytes = packet();
            bytes[at] = value;
            Packet::new_checked(bytes).map(|_| ())
        };
        assert_eq!(with(3, 28), Ok(()));
        assert!(matches!(with(3, 29), Err(Error::Length { .. })));
        assert_eq!(with(3, 20), Ok(()));
        assert!(matches!(with(3, 19), Err(Error::Length { .. })));
        assert!(matches!(with(0, 0x44), Err(Error::Length { .. })));
        assert_eq!(with(0, 0x47), Ok(()));
        assert!(matches!(with(0, 0x48), Err(Error::Length { .. })));
        assert!(matches!(with(0, 0x65), Err(Error::Version { found: 6, expected: 4 })));
        assert!(matches!(Packet::new_checked(&packet()[..19]), Err(Error::Truncated { .. })));
    }
}
