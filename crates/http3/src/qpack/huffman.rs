//! The Huffman code of strings (RFC 7541, appendix B).
//!
//! The code is canonical: codes of equal length are consecutive numbers in the order of their symbols, and the first
//! code of a length follows from the last of the length before. So the lengths define it completely.

use std::sync::LazyLock;

/// Length in bits of each symbol's code; the last is that of the end of a string, which is never sent.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19,
    22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27,
    27, 27, 27, 26, 30,
];

/// Longest code, bits.
const LONGEST: usize = 30;
/// The symbol that marks the end of a string.
const END: u16 = 256;

/// The code in both directions.
struct Code {
    /// Code of each symbol, in the low bits.
    codes: [u32; 257],
    /// Symbols by length, then by value.
    symbols: [u16; 257],
    /// For each length: its first code, and the position of that code's symbol in `symbols`.
    first: [(u32, usize); LONGEST + 2],
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut code = Code { codes: [0; 257], symbols: [0; 257], first: [(0, 0); LONGEST + 2] };
    let (mut next, mut position) = (0u32, 0);
    for length in 1..=LONGEST {
        next <<= 1;
        code.first[length] = (next, position);
        for symbol in 0..=END {
            if usize::from(LENGTHS[usize::from(symbol)]) == length {
                code.codes[usize::from(symbol)] = next;
                code.symbols[position] = symbol;
                next += 1;
                position += 1;
            }
        }
    }
    code.first[LONGEST + 1] = (next << 1, position);
    code
});

/// Length of `text` in this code, bytes.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Appends `text` in this code, padded with ones.
pub(super) fn encode(text: &[u8], into: &mut Vec<u8>) {
    let code = &*CODE;
    let (mut bits, mut held) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(code.codes[usize::from(byte)]);
        held += length;
        while held >= 8 {
            held -= 8;
            into.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        into.push((bits << (8 - held)) as u8 | 0xff >> held);
    }
}

/// Appends the text that `coded` stands for; false if it is not valid: an unknown code, the end of a string, or a
/// padding that is longer than seven bits or has a zero.
pub(super) fn decode(coded: &[u8], into: &mut Vec<u8>) -> bool {
    let code = &*CODE;
    let (mut value, mut length) = (0u32, 0usize);
    for &byte in coded {
        for shift in (0..8).rev() {
            value = value << 1 | u32::from(byte >> shift & 1);
            length += 1;
            if length > LONGEST {
                return false;
            }
            let (first, position) = code.first[length];
            let count = code.first[length + 1].1 - position;
            if let Some(offset) = value.checked_sub(first)
                && (offset as usize) < count
            {
                match code.symbols[position + offset as usize] {
                    END => return false,
                    symbol => into.push(symbol as u8),
                }
                (value, length) = (0, 0);
            }
        }
    }
    length < 8 && value == (1 << length) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        encode(text, &mut coded);
        assert_eq!(coded.len(), encoded_len(text));
        coded
    }

    /// The strings of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn strings_are_encoded_as_in_the_specification() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (text, coded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
        ] {
            assert_eq!(hex(&encoded(text.as_bytes())), coded, "{text}");
        }
    }

    #[test]
    fn every_byte_survives_encoding_and_decoding() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let mut back = Vec::new();
        assert!(decode(&encoded(&all), &mut back));
        assert_eq!(back, all);
    }

    #[test]
    fn invalid_strings_are_refused() {
        let valid = |coded: &[u8]| decode(coded, &mut Vec::new());
        assert!(valid(&[]));
        // `a` is 00011: padded with ones, then with a zero.
        assert!(valid(&[0b0001_1111]));
        assert!(!valid(&[0b0001_1110]));
        // Eight bits of padding; the end of a string.
        assert!(!valid(&[0b0001_1111, 0xff]));
        assert!(!valid(&[0xff, 0xff, 0xff, 0xff]));
    }
}
