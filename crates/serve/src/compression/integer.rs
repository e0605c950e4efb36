//! Integers with a prefix of some bits (RFC 7541, section 5.1).

use super::MalformedSection;

/// Reads an integer whose first byte has it in the lower `bits` bits, and removes it from `input`.
///
/// # Errors
/// The integer is incomplete or above [`INTEGER_MAX`].
pub(crate) fn read(input: &mut &[u8], bits: u32) -> Result<u64, MalformedSection> {
    let mask = (1u64 << bits) - 1;
    let (&first, mut rest) = input.split_first().ok_or(MalformedSection)?;
    let mut value = u64::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(MalformedSection)?;
            rest = after;
            value += u64::from(byte & 0x7f) << shift;
            // Also limits the number of bytes: leading zeros would make it endless.
            shift += 7;
            if value > INTEGER_MAX || (shift > 28 && byte & 0x80 != 0) {
                return Err(MalformedSection);
            }
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    Ok(value)
}

/// Appends an integer; `first` has the bits above the prefix.
pub(crate) fn write(out: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Above every length and index that this server accepts.
pub(crate) const INTEGER_MAX: u64 = 1 << 30;
