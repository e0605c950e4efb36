//! The Huffman code of HPACK and QPACK (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their bytes, and shorter codes come
//! first. So the lengths determine it, and the codes are computed when the program is compiled.

/// Decodes `bytes` and passes each byte to `put`; `None` if the padding is not that of the code.
pub(super) fn decode(bytes: &[u8], mut put: impl FnMut(u8)) -> Option<()> {
    let (mut bits, mut count) = (0u64, 0u32);
    let mut rest = bytes.iter();
    loop {
        while count <= 32 {
            let Some(&byte) = rest.next() else { break };
            bits = bits << 8 | u64::from(byte);
            count += 8;
        }
        // The bits at the top of 32, with ones behind the end: ones alone are the prefix of no byte's code.
        let window = if count >= 32 {
            (bits >> (count - 32)) as u32
        } else {
            ((bits << (32 - count)) as u32) | (u32::MAX >> count.min(31) >> u32::from(count > 31))
        };
        let Some((byte, length)) = symbol(window) else {
            // Less than a byte of ones: padding. More is the code of the end of string, which must not occur.
            let is_padding = count < 8 && bits & ((1 << count) - 1) == (1 << count) - 1;
            return is_padding.then_some(());
        };
        if length > count {
            let is_padding = count < 8 && bits & ((1 << count) - 1) == (1 << count) - 1;
            return is_padding.then_some(());
        }
        put(byte);
        count -= length;
        bits &= (1 << count) - 1;
    }
}

/// The byte whose code the window begins with, and the length of the code.
fn symbol(window: u32) -> Option<(u8, u32)> {
    let mut length = LENGTH_MIN;
    while length <= LENGTH_MAX {
        if window < CODE.limit[length] {
            let code = window >> (32 - length);
            let place = CODE.place[length] as usize + (code - CODE.first[length]) as usize;
            return Some((CODE.bytes[place], length as u32));
        }
        length += 1;
    }
    None
}

/// The code, by the length of codes.
struct Code {
    /// The first code of a length.
    first: [u32; LENGTHS_END],
    /// One past the last code of a length, at the top of 32 bits.
    limit: [u32; LENGTHS_END],
    /// The place of the first byte of a length in `bytes`.
    place: [u16; LENGTHS_END],
    /// All bytes in the order of their codes.
    bytes: [u8; 256],
}

const fn code() -> Code {
    let mut code = Code { first: [0; LENGTHS_END], limit: [0; LENGTHS_END], place: [0; LENGTHS_END], bytes: [0; 256] };
    let (mut next, mut place, mut length) = (0u32, 0usize, 1);
    while length < LENGTHS_END {
        next <<= 1;
        code.first[length] = next;
        code.place[length] = place as u16;
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                code.bytes[place] = byte as u8;
                place += 1;
                next += 1;
            }
            byte += 1;
        }
        code.limit[length] = next << (32 - length);
        length += 1;
    }
    code
}

static CODE: Code = code();

const LENGTH_MIN: usize = 5;
const LENGTH_MAX: usize = 30;
const LENGTHS_END: usize = LENGTH_MAX + 1;

/// Length in bits of each byte's code (RFC 7541, appendix B). The end of string has 30 ones.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19,
    22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27,
    27, 27, 27, 26,
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The Huffman code of `bytes`, for tests.
    pub(in crate::fields) fn encode(bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut bits, mut count) = (Vec::new(), 0u64, 0);
        for &byte in bytes {
            let length = usize::from(LENGTHS[usize::from(byte)]);
            let place = CODE.bytes.iter().position(|&known| known == byte).unwrap();
            let code = CODE.first[length] + (place - usize::from(CODE.place[length])) as u32;
            (bits, count) = (bits << length | u64::from(code), count + length);
            while count >= 8 {
                out.push((bits >> (count - 8)) as u8);
                count -= 8;
            }
            bits &= (1 << count) - 1;
        }
        if count > 0 {
            out.push((bits << (8 - count)) as u8 | 0xFF >> count);
        }
        out
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, |byte| out.push(byte)).map(|()| out)
    }

    #[test]
    fn strings_of_the_standard_are_decoded() {
        let host = [0xF1, 0xE3, 0xC2, 0xE5, 0xF2, 0x3A, 0x6B, 0xA0, 0xAB, 0x90, 0xF4, 0xFF];
        assert_eq!(decoded(&host).as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(decoded(&[0xA8, 0xEB, 0x10, 0x64, 0x9C, 0xBF]).as_deref(), Some(&b"no-cache"[..]));
        assert_eq!(decoded(&[0x64, 0x02]).as_deref(), Some(&b"302"[..]));
    }

    #[test]
    fn wrong_padding_and_the_end_of_string_are_refused() {
        assert_eq!(decoded(&[]), Some(Vec::new()));
        assert_eq!(decoded(&[0xFF]), None, "eight bits of padding");
        assert_eq!(decoded(&[0xFF, 0xFF, 0xFF, 0xFF]), None, "the end of string");
        assert_eq!(decoded(&[0x07]), Some(b"0".to_vec()));
        assert_eq!(decoded(&[0x06]), None, "padding with a zero");
    }

    proptest! {
        #[test]
        fn any_bytes_are_encoded_and_decoded(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decoded(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn decoding_any_bytes_yields_at_most_eight_fifths(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut count = 0;
            decode(&bytes, |_| count += 1);
            prop_assert!(count * 5 <= bytes.len() * 8);
        }
    }
}
