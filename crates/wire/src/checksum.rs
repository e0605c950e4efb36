//! The Internet checksum (RFC 1071): ones' complement sums, and incremental updates (RFC 1624).
//!
//! Three values that are easily confused have different types. A [`Sum`] is still being added to. A *partial* checksum
//! is a folded sum that is **not** inverted: the kernel leaves it in the TCP checksum field of a packet whose vnet
//! header says "checksum needed". A *checksum* is the inverted sum in a packet on the wire.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A ones' complement sum in progress. Carries are kept in the upper bits and folded at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// Adds bytes as big-endian 16-bit words; an odd last byte counts as if a zero followed (RFC 1071, section 1).
    /// Therefore only the last piece may have an odd length.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let mut total = self.0;
        // 32 bits at a time: 2^16 = 1 in ones' complement arithmetic, so a word's upper half folds in later. Packets
        // have at most 2^16 bytes, so 2^14 words of 32 bits: at most 2^46, far from overflow.
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        }
        total += match *words.remainder() {
            [a, b, c] => u64::from(u32::from_be_bytes([a, b, c, 0])),
            [a, b] => u64::from(u16::from_be_bytes([a, b])),
            [a] => u64::from(u16::from_be_bytes([a, 0])),
            _ => 0,
        };
        Sum(total)
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub fn word(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word))
    }

    /// Adds the pseudo-header of TCP or UDP over IPv4 (RFC 9293, section 3.1). `length` is that of transport header
    /// and payload, in bytes.
    #[must_use]
    pub fn pseudo_v4(self, source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Sum {
        self.bytes(&source.octets()).bytes(&destination.octets()).word(u16::from(protocol)).word(length)
    }

    /// The same over IPv6 (RFC 8200, section 8.1).
    #[must_use]
    pub fn pseudo_v6(self, source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: u32) -> Sum {
        let sum = self.bytes(&source.octets()).bytes(&destination.octets()).word(u16::from(protocol));
        Sum(sum.0 + u64::from(length))
    }

    /// Folded to 16 bits, not inverted: a partial checksum.
    pub fn fold(self) -> u16 {
        let mut total = self.0;
        while total > 0xFFFF {
            total = (total & 0xFFFF) + (total >> 16);
        }
        total as u16
    }

    /// Folded and inverted: the checksum on the wire.
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The checksum after one covered 16-bit word changed from `old` to `new` (RFC 1624, equation 3).
pub fn adjust(checksum: u16, old: u16, new: u16) -> u16 {
    !adjust_partial(!checksum, old, new)
}

/// The partial (not inverted) checksum after one word changed from `old` to `new`.
pub fn adjust_partial(partial: u16, old: u16, new: u16) -> u16 {
    Sum::ZERO.word(partial).word(!old).word(new).fold()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checksum_matches_the_example_of_rfc_1071() {
        let sum = Sum::ZERO.bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
        assert_eq!(sum.checksum(), 0x220d);
    }

    #[test]
    fn incremental_update_matches_the_example_of_rfc_1624() {
        // Section 4: in a header whose checksum is 0xDD2F a word changes from 0x5555 to 0x3285; the correct result is
        // 0x0000, whereas the older equation gives 0xFFFF.
        assert_eq!(adjust(0xDD2F, 0x5555, 0x3285), 0x0000);
    }

    /// The definition, word by word, as a reference.
    fn plainly(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xFFFF) + (total >> 16);
        }
        total as u16
    }

    proptest! {
        #[test]
        fn checksum_matches_its_definition(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(Sum::ZERO.bytes(&bytes).fold(), plainly(&bytes));
        }

        /// A packet with its checksum in place sums to zero (all ones), even after one word was changed and the
        /// checksum updated incrementally.
        #[test]
        fn incremental_update_matches_a_recomputed_checksum(
            mut words in prop::collection::vec(any::<u16>(), 1..100), at in any::<prop::sample::Index>(), new: u16,
        ) {
            let sum = |words: &[u16]| words.iter().fold(Sum::ZERO, |sum, &word| sum.word(word));
            let checksum = sum(&words).checksum();
            let at = at.index(words.len());
            let adjusted = adjust(checksum, words[at], new);
            words[at] = new;
            prop_assert_eq!(sum(&words).word(adjusted).checksum(), 0);
        }
    }
}
