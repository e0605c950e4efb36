//! TCP (RFC 9293): a view of header and payload.

mod options;

use crate::Error;
use crate::octets::{put_u16, put_u32, u16_at, u32_at};

pub use options::Options;

/// Minimum length of a header: without options.
pub const HEADER_MIN: usize = 20;
/// Offset of the checksum in the header: a vnet header's `csum_offset`.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

mod field {
    use std::ops::Range;

    pub const SOURCE_PORT: Range<usize> = 0..2;
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    pub const SEQUENCE: Range<usize> = 4..8;
    pub const ACKNOWLEDGEMENT: Range<usize> = 8..12;
    pub const DATA_OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const WINDOW: Range<usize> = 14..16;
    pub const CHECKSUM: Range<usize> = 16..18;
}

/// Control bits of the header's byte 13.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push: deliver the received data to the application now.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Echo of a congestion mark (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// A TCP segment with a checked header. The buffer must end where the segment ends.
#[derive(Clone, Copy, Debug)]
pub struct Segment<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Segment<T> {
    /// Checks `buffer` as a TCP segment that starts at its first byte and ends at its last.
    ///
    /// # Errors
    /// Fewer bytes than the header, or a data offset below 5 words.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let available = buffer.as_ref().len();
        if available < HEADER_MIN {
            return Err(Error::Truncated { header: "TCP", needed: HEADER_MIN, available });
        }
        let segment = Segment { buffer };
        let header = segment.header_len();
        if header < HEADER_MIN || header > available {
            return Err(Error::Length { field: "TCP data offset", value: header, available });
        }
        Ok(segment)
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes(), field::SOURCE_PORT)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes(), field::DESTINATION_PORT)
    }

    /// Sequence number of the first byte (of SYN, when that is set).
    pub fn sequence(&self) -> u32 {
        u32_at(self.bytes(), field::SEQUENCE)
    }

    /// The next sequence number that the sender of this segment expects.
    pub fn acknowledgement(&self) -> u32 {
        u32_at(self.bytes(), field::ACKNOWLEDGEMENT)
    }

    /// Length of the header, options included: 20 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.bytes()[field::DATA_OFFSET] >> 4) * 4
    }

    /// Control bits, see [`flags`].
    pub fn flags(&self) -> u8 {
        self.bytes()[field::FLAGS]
    }

    /// Receive window, unscaled.
    pub fn window(&self) -> u16 {
        u16_at(self.bytes(), field::WINDOW)
    }

    /// Checksum field: complete or partial, as stated by the vnet header.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// The bytes of the options.
    pub fn options(&self) -> &[u8] {
        self.bytes().get(HEADER_MIN..self.header_len()).unwrap_or(&[])
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.bytes().get(self.header_len()..).unwrap_or(&[])
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Segment<T> {
    /// Sets the source port.
    pub fn set_source_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), field::SOURCE_PORT, port);
    }

    /// Sets the destination port.
    pub fn set_destination_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), field::DESTINATION_PORT, port);
    }

    /// Sets the sequence number.
    pub fn set_sequence(&mut self, sequence: u32) {
        put_u32(self.buffer.as_mut(), field::SEQUENCE, sequence);
    }

    /// Sets the control bits.
    pub fn set_flags(&mut self, flags: u8) {
        self.buffer.as_mut()[field::FLAGS] = flags;
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_fields_read_back_and_lengths_are_checked_exactly() {
        let mut bytes = [0u8; 26];
        bytes[12] = 0x60;
        bytes[24..].copy_from_slice(b"hi");
        let mut segment = Segment::new_checked(&mut bytes).unwrap();
        segment.set_source_port(1025);
        segment.set_destination_port(80);
        segment.set_sequence(0x0102_0304);
        segment.set_flags(flags::ACK | flags::PSH);
        segment.set_checksum(0xBEEF);
        assert_eq!((segment.source_port(), segment.destination_port()), (1025, 80));
        assert_eq!((segment.sequence(), segment.flags(), segment.checksum()), (0x0102_0304, 0x18, 0xBEEF));
        assert_eq!((segment.options(), segment.payload()), (&[0u8; 4][..], &b"hi"[..]));
        assert!(Segment::new_checked(&bytes[..24]).is_ok());
        assert!(matches!(Segment::new_checked(&bytes[..23]), Err(Error::Length { .. })));
        assert!(matches!(Segment::new_checked(&bytes[..19]), Err(Error::Truncated { .. })));
        bytes[12] = 0x40;
        assert!(matches!(Segment::new_checked(&bytes), Err(Error::Length { .. })));
    }
}
