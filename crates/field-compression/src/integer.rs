//! Integers with a prefix of some bits (RFC 7541, section 5.1; RFC 9204, section 4.1.1).

use crate::Malformed;

/// Reads an integer whose first byte has it in the lower `bits` bits (1 to 8), and removes it from `input`.
///
/// # Errors
/// The integer is incomplete or above [`MAX`], or has more continuation bytes than any integer needs: bytes of zeros
/// could continue it endlessly. `input` is unchanged then.
pub fn read(input: &mut &[u8], bits: u32) -> Result<u64, Malformed> {
    let mask = (1u64 << bits) - 1;
    let (&first, mut rest) = input.split_first().ok_or(Malformed)?;
    let mut value = u64::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(Malformed)?;
            rest = after;
            if shift > SHIFT_MAX {
                return Err(Malformed);
            }
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        if value > MAX {
            return Err(Malformed);
        }
    }
    *input = rest;
    Ok(value)
}

/// Appends an integer of at most [`MAX`]; `first` has the bits above the prefix of `bits` bits (1 to 8).
pub fn write(first: u8, bits: u32, value: u64, out: &mut Vec<u8>) {
    let mask = (1u64 << bits) - 1;
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

/// The largest integer: RFC 9204, section 4.1.1, requires 62 bits; HPACK leaves the limit to the implementation.
pub const MAX: u64 = (1 << 62) - 1;
/// The shift of the last continuation byte: nine of seven bits.
const SHIFT_MAX: u32 = 56;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 7541, appendix C.1.
    #[test]
    fn examples_of_the_specification_are_read_and_written() {
        for (first, bits, value, bytes) in
            [(0, 5, 10, &[0x0a][..]), (0, 5, 1337, &[0x1f, 0x9a, 0x0a]), (0, 8, 42, &[0x2a]), (0xe0, 5, 10, &[0xea])]
        {
            let mut out = Vec::new();
            write(first, bits, value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read(&mut &bytes[..], bits), Ok(value));
        }
    }

    #[test]
    fn integers_end_within_62_bits_and_within_the_input() {
        let largest = [0xff, 0x80, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
        assert_eq!(read(&mut &largest[..], 8), Ok(MAX));
        let one_more = [0xff, 0x81, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
        assert_eq!(read(&mut &one_more[..], 8), Err(Malformed));
        let endless_zeros = [[0xff].as_slice(), &[0x80; 20], &[0]].concat();
        assert_eq!(read(&mut &endless_zeros[..], 8), Err(Malformed));
        for incomplete in [&[][..], &[0x1f], &[0x1f, 0x80]] {
            let mut input = incomplete;
            assert_eq!((read(&mut input, 5), input), (Err(Malformed), incomplete));
        }
    }

    proptest! {
        #[test]
        fn integers_survive_writing_and_reading(value in prop_oneof![0..300u64, 0..=MAX], bits in 1u32..9) {
            let mut out = Vec::new();
            write(0, bits, value, &mut out);
            out.push(7);
            let mut rest = &out[..];
            prop_assert_eq!(read(&mut rest, bits), Ok(value));
            prop_assert_eq!(rest, [7]);
        }
    }
}
