//! Strings: a length, then the bytes themselves or their Huffman code (RFC 7541, section 5.2; RFC 9204, section 4.1.2).

use crate::{Malformed, huffman, integer};

/// A string as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Literal<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

/// Reads a string whose length has a prefix of `bits` bits (1 to 7), above which is the flag of the Huffman code, and
/// removes it from `input`.
///
/// # Errors
/// The string is incomplete. `input` may be changed then.
pub fn read<'a>(input: &mut &'a [u8], bits: u32) -> Result<Literal<'a>, Malformed> {
    let is_huffman = input.first().ok_or(Malformed)? >> bits & 1 == 1;
    let length = usize::try_from(integer::read(input, bits)?).map_err(|_| Malformed)?;
    let (bytes, rest) = input.split_at_checked(length).ok_or(Malformed)?;
    *input = rest;
    Ok(Literal { bytes, is_huffman })
}

impl<'a> Literal<'a> {
    /// Appends the text to `out`, at most `most` bytes: later ones are only checked.
    ///
    /// # Errors
    /// The Huffman code is invalid.
    pub fn decode(self, out: &mut Vec<u8>, most: usize) -> Result<(), Malformed> {
        if !self.is_huffman {
            out.extend_from_slice(&self.bytes[..self.bytes.len().min(most)]);
            return Ok(());
        }
        let end = out.len().saturating_add(most);
        huffman::decode(self.bytes, |byte| {
            if out.len() < end {
                out.push(byte);
            }
        })
    }

    /// The text: the input itself, or what `scratch` has then, whose content is replaced.
    ///
    /// # Errors
    /// The Huffman code is invalid.
    pub fn text<'b>(self, scratch: &'b mut Vec<u8>) -> Result<&'b [u8], Malformed>
    where
        'a: 'b,
    {
        if !self.is_huffman {
            return Ok(self.bytes);
        }
        scratch.clear();
        huffman::decode(self.bytes, |byte| scratch.push(byte))?;
        Ok(scratch)
    }

    /// Length of the text in bytes.
    ///
    /// # Errors
    /// The Huffman code is invalid.
    pub fn length(self) -> Result<usize, Malformed> {
        if !self.is_huffman {
            return Ok(self.bytes.len());
        }
        let mut length = 0;
        huffman::decode(self.bytes, |_| length += 1)?;
        Ok(length)
    }
}

/// Appends a string in the shorter of the two forms. Its length has a prefix of `bits` bits (1 to 7), `first` the bits
/// above the flag of the Huffman code.
pub fn write(first: u8, bits: u32, text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_bytes(text);
    if coded < text.len() {
        integer::write(first | 1 << bits, bits, coded as u64, out);
        huffman::encode(text, out);
    } else {
        integer::write(first, bits, text.len() as u64, out);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn incomplete_and_invalid_strings_are_refused() {
        for incomplete in [&[][..], &[5, b'a'], &[0x7f], &[0x82, 0xff]] {
            assert!(read(&mut &incomplete[..], 7).is_err(), "{incomplete:x?}");
        }
        let invalid = read(&mut &[0x81, 0xff][..], 7).unwrap();
        assert_eq!(invalid.decode(&mut Vec::new(), 9), Err(Malformed));
        assert_eq!(invalid.text(&mut Vec::new()), Err(Malformed));
        assert_eq!(invalid.length(), Err(Malformed));
    }

    #[test]
    fn bytes_after_the_limit_are_checked_and_dropped() {
        // `aaa` and a padding that has a zero.
        let wrong = read(&mut &[0x82, 0b0001_1000, 0b1100_0110][..], 7).unwrap();
        assert_eq!(wrong.decode(&mut Vec::new(), 1), Err(Malformed));
        let right = read(&mut &[0x82, 0b0001_1000, 0b1100_0111][..], 7).unwrap();
        let mut out = b"x".to_vec();
        assert_eq!(right.decode(&mut out, 2), Ok(()));
        assert_eq!(out, b"xaa");
    }

    proptest! {
        #[test]
        fn strings_survive_writing_and_reading(
            text in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), "[a-z:/.-]{0,80}".prop_map(Vec::from)],
            bits in 1u32..8, most in 0usize..100,
        ) {
            let mut out = Vec::new();
            write(0, bits, &text, &mut out);
            prop_assert!(out.len() <= text.len() + 10);
            let mut rest = &out[..];
            let literal = read(&mut rest, bits).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(literal.length(), Ok(text.len()));
            let mut scratch = Vec::new();
            prop_assert_eq!(literal.text(&mut scratch), Ok(&text[..]));
            let mut begin = Vec::new();
            literal.decode(&mut begin, most).unwrap();
            prop_assert_eq!(&begin[..], &text[..text.len().min(most)]);
        }
    }
}
