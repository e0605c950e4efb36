//! TCP options (RFC 9293, 7323, 2018) that an observer needs.

use crate::octets::{u16_at, u32_at};

/// The options of one segment. Truncated, malformed or unknown options are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size of the sender, in bytes (SYN only).
    pub mss: Option<u16>,
    /// Shift of the sender's window, 0 to 14 (SYN only); larger values count as 14, as RFC 7323 requires.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgement may be used (SYN only).
    pub sack_permitted: bool,
    /// The sender's timestamp and the echo of the peer's: TSval, TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// Selectively acknowledged ranges, left edge to right edge (exclusive), in sequence numbers.
    sack: [(u32, u32); SACK_MAX],
    sack_len: u8,
}

impl Options {
    /// Parses the bytes between the fixed header and the payload, or their captured part.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Options {
        // Nearly every segment of a Linux connection has exactly NOP, NOP, timestamps.
        if let [1, 1, 8, 10, rest @ ..] = bytes
            && let Some(stamps) = rest.first_chunk::<8>()
            && rest.len() == 8
        {
            return Options { timestamps: Some((u32_at(stamps, 0..4), u32_at(stamps, 4..8))), ..Options::default() };
        }
        Options::walk(bytes)
    }

    /// The SACK ranges, in their order.
    pub fn sack(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sack_len)]
    }

    fn walk(mut bytes: &[u8]) -> Options {
        let mut options = Options::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => bytes = rest,
                _ => {
                    let Some(length) = rest.first().map(|&length| usize::from(length)) else { break };
                    if length < 2 || length > bytes.len() {
                        break;
                    }
                    options.take(kind, &bytes[2..length]);
                    bytes = &bytes[length..];
                }
            }
        }
        options
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (MSS, 2) => self.mss = Some(u16_at(value, 0..2)),
            (WINDOW_SCALE, 1) => self.window_scale = Some(value[0].min(14)),
            (SACK_PERMITTED, 0) => self.sack_permitted = true,
            (TIMESTAMPS, 8) => self.timestamps = Some((u32_at(value, 0..4), u32_at(value, 4..8))),
            (SACK, length) if length.is_multiple_of(8) => {
                for block in value.chunks_exact(8).take(SACK_MAX) {
                    if usize::from(self.sack_len) < SACK_MAX {
                        self.sack[usize::from(self.sack_len)] = (u32_at(block, 0..4), u32_at(block, 4..8));
                        self.sack_len += 1;
                    }
                }
            }
            _ => {}
        }
    }
}

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
/// 40 bytes of options hold four ranges.
const SACK_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_of_a_linux_syn_are_parsed() {
        let syn = [2, 4, 5, 0xB4, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7];
        let options = Options::parse(&syn);
        assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(1460), Some(7), true));
        assert_eq!(options.timestamps, Some((7, 0)));
        assert_eq!(Options::parse(&syn[..15]).timestamps, None, "truncated by the snaplen");
        assert_eq!(Options::parse(&[3, 3, 15]).window_scale, Some(14));
    }

    #[test]
    fn sack_ranges_and_timestamps_of_an_ack_are_parsed() {
        let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(Options::parse(&stamps).timestamps, Some((1, 2)));
        let sack = [&stamps[..], &[1, 1, 5, 18, 0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0, 40]].concat();
        let options = Options::parse(&sack);
        assert_eq!((options.timestamps, options.sack()), (Some((1, 2)), &[(10, 20), (30, 40)][..]));
    }

    proptest! {
        #[test]
        fn options_of_any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(Options::parse(&bytes).sack().len() <= SACK_MAX);
        }
    }
}
