//! Any bytes as a capture file, passed to the decoder as a whole and in pieces.

use wire::capture::{BLOCK_MAX, CaptureError, Decoder, Step, packets};

/// Time, link layer, bytes and length of each packet, and the error that ended the file.
type Read = (Vec<(u64, u16, Vec<u8>, u32)>, Option<CaptureError>);

/// The packets do not depend on the pieces, every step except the last consumes bytes, and offsets of errors are inside
/// the file.
pub fn run(bytes: &[u8]) {
    let whole = as_a_whole(bytes);
    let kept: usize = whole.0.iter().map(|(_, _, packet, _)| packet.len()).sum();
    assert!(kept <= bytes.len(), "a byte of the file is in one packet at most");
    assert!(whole.0.iter().all(|(_, _, packet, length)| packet.len() <= *length as usize));
    if let Some(CaptureError::Corrupt { offset, .. } | CaptureError::Truncated { offset, .. }) = whole.1 {
        assert!(offset <= bytes.len() as u64);
    }
    for piece in [1, 7, 4096] {
        assert_eq!(in_pieces(bytes, piece), whole, "in pieces of {piece}");
    }
}

fn as_a_whole(bytes: &[u8]) -> Read {
    let mut read: Read = (Vec::new(), None);
    for packet in packets(bytes) {
        assert!(read.1.is_none(), "an error is the last item");
        match packet {
            Ok(packet) => {
                read.0.push((packet.at.as_nanos(), packet.link, packet.bytes.to_vec(), packet.original_length))
            }
            Err(error) => read.1 = Some(error),
        }
    }
    read
}

fn in_pieces(bytes: &[u8], piece: usize) -> Read {
    let mut decoder = Decoder::new();
    let (mut from, mut to, mut steps) = (0, 0, 0);
    let mut read: Read = (Vec::new(), None);
    loop {
        steps += 1;
        assert!(steps <= 2 * bytes.len() + 2, "a step consumes no bytes");
        match decoder.decode(&bytes[from..to]) {
            Ok(Step::Packet { packet, used }) => {
                read.0.push((packet.at.as_nanos(), packet.link, packet.bytes.to_vec(), packet.original_length));
                assert!(used >= 1 && used <= to - from);
                from += used;
            }
            Ok(Step::Skip { used }) => {
                assert!(used >= 1 && used <= to - from);
                from += used;
            }
            Ok(Step::More { needed }) => {
                assert!(needed > to - from && needed <= BLOCK_MAX);
                if to == bytes.len() {
                    read.1 = decoder.finish(to - from).err();
                    return read;
                }
                to = bytes.len().min(to + piece);
            }
            Err(error) => {
                read.1 = Some(error);
                return read;
            }
        }
        assert_eq!(decoder.offset(), from as u64);
    }
}
