//! The Huffman code of field strings (RFC 7541, section 5.2 and appendix B), which HPACK and QPACK share.
//!
//! The code is canonical: codes of one length are consecutive in the order of their symbols, and shorter codes come
//! first. So the lengths define it. Decoding goes through a tree of 256 inner nodes by half bytes.

use crate::Malformed;

/// Decodes `input` and passes each byte to `put`. Of `input`'s bytes at most 8/5 as many result.
///
/// # Errors
/// The padding is longer than 7 bits or not of ones, or the input contains the end symbol. Bytes before the fault were
/// passed.
pub fn decode(input: &[u8], mut put: impl FnMut(u8)) -> Result<(), Malformed> {
    let mut node = 0u8;
    for &byte in input {
        for half in [byte >> 4, byte & 15] {
            let step = STEPS[usize::from(node)][usize::from(half)];
            match step.kind {
                Kind::Inside => {}
                Kind::Symbol => put(step.symbol),
                Kind::Invalid => return Err(Malformed),
            }
            node = step.node;
        }
    }
    if ENDS[usize::from(node)] { Ok(()) } else { Err(Malformed) }
}

/// Bytes of the encoding of `text`.
pub fn encoded_bytes(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the encoding of `text`, padded with ones.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
}

/// Four bits from an inner node.
#[derive(Clone, Copy)]
struct Step {
    node: u8,
    symbol: u8,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// No symbol ends: the shortest code has five bits, so at most one ends within four.
    Inside,
    Symbol,
    /// The end symbol, which is only used as padding.
    Invalid,
}

const fn codes() -> [u32; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let (mut code, mut length) = (0u32, 5u8);
    while length <= 30 {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
}

/// The tree: the two children of each inner node. Below 256 an inner node, from [`LEAF`] on a symbol.
const fn tree() -> [[u16; 2]; 256] {
    let mut tree = [[0u16; 2]; 256];
    let mut used = 1u16;
    let mut symbol = 0;
    while symbol < SYMBOLS {
        let (mut node, mut bit) = (0usize, LENGTHS[symbol]);
        while bit > 1 {
            bit -= 1;
            let side = (CODES[symbol] >> bit & 1) as usize;
            if tree[node][side] == 0 {
                tree[node][side] = used;
                used += 1;
            }
            node = tree[node][side] as usize;
        }
        tree[node][(CODES[symbol] & 1) as usize] = LEAF + symbol as u16;
        symbol += 1;
    }
    tree
}

const fn steps() -> [[Step; 16]; 256] {
    let mut steps = [[Step { node: 0, symbol: 0, kind: Kind::Inside }; 16]; 256];
    let mut from = 0;
    while from < 256 {
        let mut half = 0;
        while half < 16 {
            let mut node = from as u16;
            let (mut symbol, mut kind, mut bit) = (0, Kind::Inside, 4);
            while bit > 0 {
                bit -= 1;
                node = TREE[node as usize][half >> bit & 1];
                if node == LEAF + 256 {
                    kind = Kind::Invalid;
                    node = 0;
                } else if node >= LEAF {
                    symbol = (node - LEAF) as u8;
                    kind = Kind::Symbol;
                    node = 0;
                }
            }
            steps[from][half] = Step { node: node as u8, symbol, kind };
            half += 1;
        }
        from += 1;
    }
    steps
}

/// The nodes at which the input may end: after at most seven ones from the root.
const fn ends() -> [bool; 256] {
    let mut ends = [false; 256];
    let (mut node, mut ones) = (0usize, 0);
    while ones < 8 {
        ends[node] = true;
        node = TREE[node][1] as usize;
        ones += 1;
    }
    ends
}

/// All bytes, and the end symbol.
const SYMBOLS: usize = 257;
/// The first leaf in [`TREE`].
const LEAF: u16 = 1 << 12;
const CODES: [u32; SYMBOLS] = codes();
const TREE: [[u16; 2]; 256] = tree();
static STEPS: [[Step; 16]; 256] = steps();
static ENDS: [bool; 256] = ends();
/// Bits of the code of each symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        encode(text, &mut coded);
        assert_eq!(coded.len(), encoded_bytes(text));
        coded
    }

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut text = Vec::new();
        decode(coded, |byte| text.push(byte)).map(|()| text)
    }

    /// The strings of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn strings_of_the_specification_are_encoded_and_decoded() {
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
            assert_eq!(decoded(&encoded(text.as_bytes())).as_deref(), Ok(text.as_bytes()));
        }
    }

    #[test]
    fn every_byte_survives_encoding_and_decoding() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert_eq!(decoded(&encoded(&all)), Ok(all));
    }

    /// RFC 7541, section 5.2: each of these is a decoding error.
    #[test]
    fn wrong_padding_and_the_end_symbol_are_refused() {
        assert_eq!(decoded(&[]), Ok(Vec::new()));
        // `0` is 00000, and is padded with ones, or with a zero among them.
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0110]), Err(Malformed));
        // `&` has eight bits. Behind it a padding of eight bits is one too many.
        assert_eq!(decoded(&[0b1111_1000]), Ok(b"&".to_vec()));
        assert_eq!(decoded(&[0b1111_1000, 0xff]), Err(Malformed));
        assert_eq!(decoded(&[0xff]), Err(Malformed));
        // 30 ones are the end symbol, at the end and in the middle.
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(Malformed));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc, 0x07]), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_text_survives_encoding_and_decoding(text in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decoded(&encoded(&text)), Ok(text));
        }

        /// What is decoded has one encoding only, and is at most 8/5 as long.
        #[test]
        fn any_bytes_are_the_encoding_of_their_text_or_refused(coded in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(text) = decoded(&coded) {
                prop_assert!(text.len() * 5 <= coded.len() * 8);
                prop_assert_eq!(encoded(&text), coded);
            }
        }
    }
}
