//! Which parts of streams a packet carries, read from its frames before they are encrypted (RFC 9000, section 12.4).
//!
//! quinn-proto buffers what is written to a stream and decides later which packet takes it. When the last byte of a
//! request left is known only from the packets.

use crate::varint;

/// Part of a stream in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPart {
    /// Identifier of the stream.
    pub(crate) stream: u64,
    /// Offset of the first byte after the part.
    pub(crate) end: u64,
}

/// Passes the parts of streams in a packet's frames to `part`. Stops at a frame that it does not know, which this
/// program does not send.
pub(crate) fn stream_parts(frames: &[u8], mut part: impl FnMut(StreamPart)) {
    let mut rest = frames;
    while let Some(kind) = varint::take(&mut rest) {
        let known = match kind {
            STREAM..STREAM_END => stream(kind, &mut rest).map(&mut part),
            _ => skip(kind, &mut rest),
        };
        if known.is_none() {
            return;
        }
    }
}

fn stream(kind: u64, rest: &mut &[u8]) -> Option<StreamPart> {
    let stream = varint::take(rest)?;
    let offset = if kind & HAS_OFFSET != 0 { varint::take(rest)? } else { 0 };
    let length = if kind & HAS_LENGTH != 0 { varint::take(rest)? } else { rest.len() as u64 };
    *rest = rest.get(usize::try_from(length).ok()?..)?;
    Some(StreamPart { stream, end: offset + length })
}

/// Skips a frame without stream data.
fn skip(kind: u64, rest: &mut &[u8]) -> Option<()> {
    let integers = match kind {
        PADDING | PING | IMMEDIATE_ACK | HANDSHAKE_DONE => 0,
        ACK | ACK_ECN => {
            // Largest, delay, number of ranges, first range.
            for _ in 0..2 {
                varint::take(rest)?;
            }
            let ranges = varint::take(rest)?;
            for _ in 0..=ranges.checked_mul(2)? {
                varint::take(rest)?;
            }
            if kind == ACK_ECN { 3 } else { 0 }
        }
        MAX_DATA | MAX_STREAMS_BIDI | MAX_STREAMS_UNI | DATA_BLOCKED | STREAMS_BLOCKED_BIDI | STREAMS_BLOCKED_UNI
        | RETIRE_CONNECTION_ID => 1,
        STOP_SENDING | MAX_STREAM_DATA | STREAM_DATA_BLOCKED => 2,
        RESET_STREAM => 3,
        ACK_FREQUENCY => 4,
        CRYPTO => {
            varint::take(rest)?;
            return skip_bytes(varint::take(rest)?, rest);
        }
        NEW_CONNECTION_ID => {
            varint::take(rest)?;
            varint::take(rest)?;
            let length = u64::from(*rest.first()?);
            return skip_bytes(1 + length + RESET_TOKEN_BYTES, rest);
        }
        PATH_CHALLENGE | PATH_RESPONSE => return skip_bytes(PATH_DATA_BYTES, rest),
        _ => return None,
    };
    for _ in 0..integers {
        varint::take(rest)?;
    }
    Some(())
}

fn skip_bytes(length: u64, rest: &mut &[u8]) -> Option<()> {
    *rest = rest.get(usize::try_from(length).ok()?..)?;
    Some(())
}

const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const RESET_STREAM: u64 = 0x04;
const STOP_SENDING: u64 = 0x05;
const CRYPTO: u64 = 0x06;
const STREAM: u64 = 0x08;
const STREAM_END: u64 = 0x10;
const HAS_LENGTH: u64 = 0x02;
const HAS_OFFSET: u64 = 0x04;
const MAX_DATA: u64 = 0x10;
const MAX_STREAM_DATA: u64 = 0x11;
const MAX_STREAMS_BIDI: u64 = 0x12;
const MAX_STREAMS_UNI: u64 = 0x13;
const DATA_BLOCKED: u64 = 0x14;
const STREAM_DATA_BLOCKED: u64 = 0x15;
const STREAMS_BLOCKED_BIDI: u64 = 0x16;
const STREAMS_BLOCKED_UNI: u64 = 0x17;
const NEW_CONNECTION_ID: u64 = 0x18;
const RETIRE_CONNECTION_ID: u64 = 0x19;
const PATH_CHALLENGE: u64 = 0x1a;
const PATH_RESPONSE: u64 = 0x1b;
const HANDSHAKE_DONE: u64 = 0x1e;
const IMMEDIATE_ACK: u64 = 0x1f;
const ACK_FREQUENCY: u64 = 0xaf;
/// RFC 9000, section 19.15.
const RESET_TOKEN_BYTES: u64 = 16;
/// RFC 9000, section 19.17.
const PATH_DATA_BYTES: u64 = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(frames: &[u8]) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        stream_parts(frames, |part| found.push((part.stream, part.end)));
        found
    }

    #[test]
    fn stream_data_is_found_between_other_frames() {
        let mut frames = vec![];
        // ACK with two further ranges, ACK_ECN, MAX_STREAM_DATA, CRYPTO of two bytes, NEW_CONNECTION_ID.
        frames.extend([0x02, 9, 0, 2, 1, 1, 1, 1, 1, 0x03, 5, 0, 0, 5, 1, 0, 0, 0x11, 4, 0x40, 0x80]);
        frames.extend([0x06, 0, 2, 0xaa, 0xbb, 0x18, 1, 0, 3, 1, 2, 3]);
        frames.extend([0; 16]);
        // With length; with offset, length and FIN; with offset, to the end of the packet.
        frames.extend([0x0a, 4, 3, 1, 2, 3, 0x0f, 8, 10, 2, 1, 2, 0x1a, 1, 2, 3, 4, 5, 6, 7, 8]);
        frames.extend([0x0c, 12, 0x41, 0x00, 1, 2, 3, 4]);
        assert_eq!(parts(&frames), [(4, 3), (8, 12), (12, 260)]);
    }

    #[test]
    fn an_unknown_or_incomplete_frame_ends_the_search() {
        assert_eq!(parts(&[0x0a, 4, 1, 9, 0x3f, 0x0a, 4, 1, 9]), [(4, 1)]);
        assert_eq!(parts(&[0x0a, 4, 9, 1]), []);
    }

    proptest! {
        #[test]
        fn any_frames_are_read_without_panic(frames in prop::collection::vec(any::<u8>(), 0..200)) {
            parts(&frames);
        }
    }
}
