//! Where a message is, byte by byte: one direction's place in its stream of messages.

use memchr::memchr;

/// The place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before a message.
    Between,
    /// Inside a head.
    Head,
    /// Inside a body or a chunk of it: so many bytes are left.
    Body { left: u64, is_chunk: bool },
    /// Inside chunked coding, between chunks' contents.
    Chunks(Chunks),
    /// The message goes on to the end of the connection.
    UntilClose,
    /// The end of the message is not known: it ends when the other side speaks.
    Lost,
}

/// Inside chunked coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    /// In the digits of a size.
    Size { size: u64, digits: u8 },
    /// After them, up to the end of the line.
    Extension { size: u64 },
    /// At the line's end after a chunk's content.
    AfterChunk,
    /// In the trailer section; whether the line so far is empty.
    Trailer { is_empty: bool },
}

/// What a step through chunked coding came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkStep {
    /// Used so many bytes; now here.
    On(usize, Stage),
    /// Used so many bytes; the message is at its end.
    End(usize),
    /// This is no chunked coding.
    Broken,
}

impl Chunks {
    /// Where chunked coding starts.
    pub(super) const FIRST: Stage = Stage::Chunks(Chunks::Size { size: 0, digits: 0 });

    /// Goes on through `bytes`, of which there is at least one. What is used is linear in their number.
    pub(super) fn step(self, bytes: &[u8]) -> ChunkStep {
        match self {
            Chunks::Size { mut size, mut digits } => {
                for (used, &byte) in bytes.iter().enumerate() {
                    let Some(digit) = char::from(byte).to_digit(16) else {
                        // Some servers pad the size with spaces.
                        let ends = digits > 0 && matches!(byte, b'\r' | b'\n' | b';' | b' ' | b'\t');
                        let next = Stage::Chunks(Chunks::Extension { size });
                        return if ends { ChunkStep::On(used, next) } else { ChunkStep::Broken };
                    };
                    if digits == 15 {
                        return ChunkStep::Broken;
                    }
                    (size, digits) = (size << 4 | u64::from(digit), digits + 1);
                }
                ChunkStep::On(bytes.len(), Stage::Chunks(Chunks::Size { size, digits }))
            }
            Chunks::Extension { size } => match memchr(b'\n', bytes) {
                None => ChunkStep::On(bytes.len(), Stage::Chunks(self)),
                Some(end) if size == 0 => ChunkStep::On(end + 1, Stage::Chunks(Chunks::Trailer { is_empty: true })),
                Some(end) => ChunkStep::On(end + 1, Stage::Body { left: size, is_chunk: true }),
            },
            Chunks::AfterChunk => match bytes[0] {
                b'\r' => ChunkStep::On(1, Stage::Chunks(self)),
                b'\n' => ChunkStep::On(1, Chunks::FIRST),
                _ => ChunkStep::Broken,
            },
            Chunks::Trailer { is_empty } => match (memchr(b'\n', bytes), bytes[0]) {
                (Some(0), _) if is_empty => ChunkStep::End(1),
                (Some(1), b'\r') if is_empty => ChunkStep::End(2),
                (Some(end), _) => ChunkStep::On(end + 1, Stage::Chunks(Chunks::Trailer { is_empty: true })),
                (None, _) => {
                    let is_empty = is_empty && bytes == b"\r";
                    ChunkStep::On(bytes.len(), Stage::Chunks(Chunks::Trailer { is_empty }))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes used up to the end of the message, fed in pieces of `piece`.
    fn run(bytes: &[u8], piece: usize) -> Option<usize> {
        let (mut stage, mut at) = (Chunks::FIRST, 0);
        while at < bytes.len() {
            let stop = bytes.len().min(at + piece);
            match stage {
                Stage::Chunks(chunks) => match chunks.step(&bytes[at..stop]) {
                    ChunkStep::On(used, next) => (at, stage) = (at + used, next),
                    ChunkStep::End(used) => return Some(at + used),
                    ChunkStep::Broken => return None,
                },
                Stage::Body { left, is_chunk } => {
                    let used = left.min((stop - at) as u64);
                    at += used as usize;
                    let after = Stage::Chunks(Chunks::AfterChunk);
                    stage = if used == left { after } else { Stage::Body { left: left - used, is_chunk } };
                }
                _ => unreachable!("chunks lead to chunks and bodies only"),
            }
        }
        None
    }

    #[test]
    fn chunks_end_where_they_say_in_any_pieces() {
        for message in [
            &b"5\r\nhello\r\n0\r\n\r\n"[..],
            b"A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n",
            b"1\nx\n0\n\n",
            b"0005  \r\nhello\r\n000\r\n\r\n",
        ] {
            let all = [message, b"HTTP/1.1"].concat();
            for piece in 1..all.len() {
                assert_eq!(run(&all, piece), Some(message.len()), "pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for wrong in [&b"\r\n"[..], b"xyz\r\n", b"5\r\nhello0\r\n", b"1234567890123456\r\n", b"-1\r\n"] {
            assert_eq!(run(wrong, 64), None);
        }
    }
}
