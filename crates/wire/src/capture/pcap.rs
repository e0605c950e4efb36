//! The pcap format: one header for the file, one per packet.

use units::Timestamp;

use super::order::Order;
use super::{CaptureError, Captured, PACKET_MAX, Step};

/// Length of the file header.
pub(super) const HEADER: usize = 24;
/// Length of a packet header.
pub(super) const RECORD: usize = 16;
/// Magic number with times in microseconds.
pub(super) const MAGIC_MICROS: u32 = 0xA1B2_C3D4;
/// Magic number with times in nanoseconds.
pub(super) const MAGIC_NANOS: u32 = 0xA1B2_3C4D;

/// Properties of the file header.
#[derive(Clone, Debug)]
pub(super) struct File {
    order: Order,
    /// Nanoseconds in one unit of the record's fraction.
    fraction_ns: u64,
    link: u16,
}

/// Whether these four bytes start a file of this format.
pub(super) fn is_magic(bytes: [u8; 4]) -> bool {
    let known = |number| matches!(number, MAGIC_MICROS | MAGIC_NANOS);
    known(u32::from_le_bytes(bytes)) || known(u32::from_be_bytes(bytes))
}

impl File {
    /// Reads the header. [`is_magic`] held for its first bytes.
    pub(super) fn new(header: &[u8; HEADER]) -> File {
        let little = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let order = if matches!(little, MAGIC_MICROS | MAGIC_NANOS) { Order::Little } else { Order::Big };
        let fraction_ns = if order.u32(header, 0) == MAGIC_NANOS { 1 } else { 1000 };
        // The upper half of the field has the length of a frame check sequence, which is ignored.
        File { order, fraction_ns, link: order.u32(header, 20) as u16 }
    }

    #[inline]
    pub(super) fn step<'a>(&mut self, bytes: &'a [u8], offset: u64) -> Result<Step<'a>, CaptureError> {
        let Some(record) = bytes.first_chunk::<RECORD>() else { return Ok(Step::More { needed: RECORD }) };
        let captured_length = self.order.u32(record, 8) as usize;
        if captured_length > PACKET_MAX {
            return Err(CaptureError::Corrupt {
                offset,
                what: "captured length of a packet",
                value: captured_length as u64,
            });
        }
        let used = RECORD + captured_length;
        let Some(packet) = bytes.get(RECORD..used) else { return Ok(Step::More { needed: used }) };
        let (seconds, fraction) = (self.order.u32(record, 0), self.order.u32(record, 4));
        let at = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns;
        let packet = Captured {
            at: Timestamp::from_nanos(at),
            has_time: true,
            link: self.link,
            interface: 0,
            bytes: packet,
            original_length: self.order.u32(record, 12).max(captured_length as u32),
        };
        Ok(Step::Packet { packet, used })
    }
}
