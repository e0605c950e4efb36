//! UDP (RFC 768): a view of header and payload.

use crate::Error;
use crate::octets::{put_u16, u16_at};

/// Length of the header.
pub const HEADER: usize = 8;
/// Offset of the checksum in the header: a vnet header's `csum_offset`.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

mod field {
    use std::ops::Range;

    pub const SOURCE_PORT: Range<usize> = 0..2;
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    pub const LENGTH: Range<usize> = 4..6;
    pub const CHECKSUM: Range<usize> = 6..8;
}

/// A UDP datagram with a checked header. Bytes beyond its length field are not part of it.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Datagram<T> {
    /// Checks `buffer` as a UDP datagram that starts at its first byte.
    ///
    /// # Errors
    /// Fewer bytes than the header or its length field, or a length below that of the header.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let available = buffer.as_ref().len();
        if available < HEADER {
            return Err(Error::Truncated { header: "UDP", needed: HEADER, available });
        }
        let datagram = Datagram { buffer };
        let length = datagram.len();
        if length < HEADER || length > available {
            return Err(Error::Length { field: "UDP length", value: length, available });
        }
        Ok(datagram)
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes(), field::SOURCE_PORT)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes(), field::DESTINATION_PORT)
    }

    /// Length of header and payload.
    #[allow(clippy::len_without_is_empty, reason = "a datagram always has its header; only its payload can be empty")]
    pub fn len(&self) -> usize {
        usize::from(u16_at(self.bytes(), field::LENGTH))
    }

    /// Checksum field; 0 means that there is none (IPv4 only).
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.bytes().get(HEADER..self.len()).unwrap_or(&[])
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Datagram<T> {
    /// Sets the source port.
    pub fn set_source_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), field::SOURCE_PORT, port);
    }

    /// Sets the destination port.
    pub fn set_destination_port(&mut self, port: u16) {
        put_u16(self.buffer.as_mut(), field::DESTINATION_PORT, port);
    }

    /// Checks `buffer` as a datagram that fills it, whatever its length field was, which is set.
    ///
    /// # Errors
    /// Fewer bytes than the header, or more than a datagram can have.
    pub fn new_resized(mut buffer: T) -> Result<Self, Error> {
        let available = buffer.as_ref().len();
        if available < HEADER {
            return Err(Error::Truncated { header: "UDP", needed: HEADER, available });
        }
        let length =
            u16::try_from(available).map_err(|_| Error::Length { field: "UDP length", value: available, available })?;
        put_u16(buffer.as_mut(), field::LENGTH, length);
        Datagram::new_checked(buffer)
    }

    /// Sets the length of header and payload. A value beyond the buffer only makes the payload empty.
    pub fn set_len(&mut self, length: u16) {
        put_u16(self.buffer.as_mut(), field::LENGTH, length);
    }

    /// Sets the checksum field. The caller must replace a computed checksum of 0 by 0xFFFF (RFC 768).
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.buffer.as_mut(), field::CHECKSUM, checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_fields_read_back_and_lengths_are_checked_exactly() {
        let mut bytes = [0u8; 12];
        bytes[5] = 11;
        let mut datagram = Datagram::new_checked(&mut bytes).unwrap();
        datagram.set_source_port(53);
        datagram.set_destination_port(4000);
        datagram.set_checksum(7);
        assert_eq!((datagram.source_port(), datagram.destination_port(), datagram.checksum()), (53, 4000, 7));
        assert_eq!(datagram.payload().len(), 3);
        for (length, fits) in [(7, false), (8, true), (12, true), (13, false)] {
            bytes[5] = length;
            assert_eq!(Datagram::new_checked(&bytes).is_ok(), fits, "length {length}");
        }
    }
}
