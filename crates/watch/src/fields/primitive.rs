//! Integers and strings of HPACK and QPACK (RFC 7541, section 5; RFC 9204, section 4.1).

use super::huffman;

/// A block that contradicts the standard, or ends in the middle of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads bytes from the start of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// A string literal as sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Literal<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, which is not consumed.
    pub(super) fn peek(&self) -> Result<u8, Malformed> {
        self.0.first().copied().ok_or(Malformed)
    }

    /// An integer in the last `prefix` bits of the next byte and in those that follow it. At most 62 bits.
    pub(super) fn integer(&mut self, prefix: u32) -> Result<u64, Malformed> {
        let (&first, mut rest) = self.0.split_first().ok_or(Malformed)?;
        let most = (1u64 << prefix) - 1;
        let mut value = u64::from(first) & most;
        if value == most {
            let mut shift = 0;
            loop {
                let (&byte, after) = rest.split_first().ok_or(Malformed)?;
                rest = after;
                if shift > 56 {
                    return Err(Malformed);
                }
                value += u64::from(byte & 0x7F) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
                shift += 7;
            }
        }
        if value >> 62 != 0 {
            return Err(Malformed);
        }
        self.0 = rest;
        Ok(value)
    }

    /// A string whose length is an integer in the last `prefix` bits; the bit before them says that it is compressed.
    pub(super) fn string(&mut self, prefix: u32) -> Result<Literal<'a>, Malformed> {
        let is_huffman = self.peek()? >> prefix & 1 == 1;
        let length = usize::try_from(self.integer(prefix)?).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Literal { bytes, is_huffman })
    }
}

impl Literal<'_> {
    /// Replaces the content of `into` by the decoded string.
    pub(super) fn decode(self, into: &mut Vec<u8>) -> Result<(), Malformed> {
        into.clear();
        if self.is_huffman {
            huffman::decode(self.bytes, |byte| into.push(byte)).ok_or(Malformed)
        } else {
            into.extend_from_slice(self.bytes);
            Ok(())
        }
    }

    /// Length of the decoded string.
    pub(super) fn length(self) -> Result<usize, Malformed> {
        let mut length = self.bytes.len();
        if self.is_huffman {
            length = 0;
            huffman::decode(self.bytes, |_| length += 1).ok_or(Malformed)?;
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_the_standard_are_decoded() {
        // RFC 7541, appendix C.1.
        assert_eq!(Reader(&[0x0A]).integer(5), Ok(10));
        assert_eq!(Reader(&[0x1F, 0x9A, 0x0A]).integer(5), Ok(1337));
        assert_eq!(Reader(&[0x2A]).integer(8), Ok(42));
    }

    #[test]
    fn integers_end_within_62_bits_and_within_the_block() {
        let largest = [0xFF, 0x80, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x3F];
        assert_eq!(Reader(&largest).integer(8), Ok((1 << 62) - 1));
        assert_eq!(Reader(&[0xFF, 0x81, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x3F]).integer(8), Err(Malformed));
        assert_eq!(Reader(&[[0xFF].as_slice(), &[0x80; 20], &[0]].concat()).integer(8), Err(Malformed));
        assert_eq!(Reader(&[0x1F, 0x80]).integer(5), Err(Malformed));
        assert_eq!(Reader(&[]).integer(5), Err(Malformed));
        assert!(Reader(&[0x05, b'a']).string(7).is_err());
    }
}
