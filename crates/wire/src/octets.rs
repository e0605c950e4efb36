//! Big-endian numbers at named offsets of a byte slice.

use std::ops::Range;

/// The two bytes at `range`. The caller has checked the length.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], range: Range<usize>) -> u16 {
    u16::from_be_bytes([bytes[range.start], bytes[range.start + 1]])
}

/// The four bytes at `range`. The caller has checked the length.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], range: Range<usize>) -> u32 {
    let at = range.start;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], range: Range<usize>, value: u16) {
    bytes[range].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], range: Range<usize>, value: u32) {
    bytes[range].copy_from_slice(&value.to_be_bytes());
}
