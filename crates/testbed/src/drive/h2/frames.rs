//! Parses frame headers in a byte stream: the stream of each byte, and events of the whole connection.
//!
//! The `h2` crate reads and writes the frames. This parser only counts, because h2 does not report the length of a
//! header block, the time at which the last byte of a request was written, or which streams a GOAWAY leaves alone.

/// A frame's header (RFC 9113, section 4.1).
const HEADER: usize = 9;
/// A client's connection preface (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// Stored bytes of a payload: the last stream and the error code of GOAWAY.
const STORED_BYTES: usize = 8;

/// DATA.
pub(super) const DATA: u8 = 0;
/// HEADERS.
pub(super) const HEADERS: u8 = 1;
/// RST_STREAM.
pub(super) const RST_STREAM: u8 = 3;
/// SETTINGS.
pub(super) const SETTINGS: u8 = 4;
/// GOAWAY.
pub(super) const GOAWAY: u8 = 7;
/// WINDOW_UPDATE.
pub(super) const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION.
pub(super) const CONTINUATION: u8 = 9;

/// END_STREAM of HEADERS and DATA, ACK of SETTINGS.
const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
/// END_HEADERS of HEADERS and CONTINUATION.
const END_HEADERS: u8 = 0x4;

/// A piece of a frame: the part that is in the available bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Type of the frame.
    pub kind: u8,
    /// The frame's stream; 0 is the connection.
    pub stream: u32,
    /// Length of this piece, the frame's header included.
    pub bytes: u32,
    /// Bytes of the frame's payload in this piece: of DATA, those that count against the windows.
    pub payload: u32,
    /// Number of available bytes up to the end of this piece.
    pub end: usize,
    /// Whether this is the frame's last piece.
    pub whole: bool,
    /// The sender sends nothing more on this stream after this frame; set on the last frame of the header block.
    pub ends_stream: bool,
    /// SETTINGS with ACK.
    pub ack: bool,
    /// GOAWAY, when complete: the last processed stream, and the error code.
    pub goaway: Option<(u32, u32)>,
    /// WINDOW_UPDATE, when complete: the granted bytes.
    pub granted: Option<u32>,
}

/// Parses one direction of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Remaining bytes of the preface.
    preface: usize,
    header: [u8; HEADER],
    header_length: usize,
    payload_left: usize,
    stored: [u8; STORED_BYTES],
    stored_length: usize,
    /// Whether the current HEADERS ends the stream, although its block continues.
    block_ends_stream: bool,
}

impl Frames {
    /// The direction from a server.
    pub(super) fn of_server() -> Self {
        Frames {
            preface: 0,
            header: [0; HEADER],
            header_length: 0,
            payload_left: 0,
            stored: [0; STORED_BYTES],
            stored_length: 0,
            block_ends_stream: false,
        }
    }

    /// The direction from a client, from its preface on.
    pub(super) fn of_client() -> Self {
        Frames { preface: PREFACE, ..Frames::of_server() }
    }

    /// Parses `bytes`, the next of the direction, and reports each piece of a frame in them.
    pub(super) fn parse(&mut self, bytes: &[u8], mut report: impl FnMut(Piece)) {
        let mut at = self.preface.min(bytes.len());
        self.preface -= at;
        while at < bytes.len() {
            let mut counted = 0;
            if self.header_length < HEADER {
                let taken = (HEADER - self.header_length).min(bytes.len() - at);
                self.header[self.header_length..self.header_length + taken].copy_from_slice(&bytes[at..at + taken]);
                self.header_length += taken;
                at += taken;
                if self.header_length < HEADER {
                    // The stream is not known before the rest of the header arrives.
                    return;
                }
                counted = HEADER;
                self.payload_left = self.header[..3].iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
                self.stored_length = 0;
            }
            let taken = self.payload_left.min(bytes.len() - at);
            let stored = (STORED_BYTES - self.stored_length).min(taken);
            self.stored[self.stored_length..self.stored_length + stored].copy_from_slice(&bytes[at..at + stored]);
            self.stored_length += stored;
            self.payload_left -= taken;
            at += taken;
            let whole = self.payload_left == 0;
            report(self.piece(counted, taken, at, whole));
            if whole {
                self.header_length = 0;
            }
        }
    }

    fn piece(&mut self, header: usize, payload: usize, end: usize, whole: bool) -> Piece {
        let (kind, flags) = (self.header[3], self.header[4]);
        let number = |from: &[u8]| from.iter().fold(0u32, |number, &byte| number << 8 | u32::from(byte));
        let ends_stream = whole
            && match kind {
                DATA => flags & END_STREAM != 0,
                HEADERS if flags & END_HEADERS != 0 => flags & END_STREAM != 0,
                HEADERS => {
                    self.block_ends_stream = flags & END_STREAM != 0;
                    false
                }
                CONTINUATION => flags & END_HEADERS != 0 && std::mem::take(&mut self.block_ends_stream),
                _ => false,
            };
        let goaway = (whole && kind == GOAWAY && self.stored_length == STORED_BYTES)
            .then(|| (number(&self.stored[..4]) & STREAM_MAX, number(&self.stored[4..])));
        let granted = (whole && kind == WINDOW_UPDATE && self.stored_length == WINDOW_UPDATE_BYTES)
            .then(|| number(&self.stored[..WINDOW_UPDATE_BYTES]) & STREAM_MAX);
        let bytes_of = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Piece {
            kind,
            stream: number(&self.header[5..]) & STREAM_MAX,
            bytes: bytes_of(header + payload),
            payload: bytes_of(payload),
            end,
            whole,
            ends_stream,
            ack: kind == SETTINGS && flags & ACK != 0,
            goaway,
            granted,
        }
    }
}

/// Payload of WINDOW_UPDATE (RFC 9113, section 6.9).
const WINDOW_UPDATE_BYTES: usize = 4;
/// The highest bit of a stream's number is reserved.
const STREAM_MAX: u32 = u32::MAX >> 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Type, stream and length of each frame; content of each GOAWAY; ended streams.
    type Parsed = (Vec<(u8, u32, u64)>, Vec<(u32, u32)>, Vec<u32>);

    fn parsed(cuts: &[usize], bytes: &[u8]) -> Parsed {
        let mut frames = Frames::of_server();
        let (mut all, mut goaway, mut ended, mut open) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
        let mut rest = bytes;
        let mut cut = cuts.iter().cycle();
        while !rest.is_empty() {
            let (now, later) = rest.split_at((*cut.next().unwrap()).clamp(1, rest.len()));
            frames.parse(now, |piece| {
                open += u64::from(piece.bytes);
                if piece.whole {
                    all.push((piece.kind, piece.stream, std::mem::take(&mut open)));
                }
                goaway.extend(piece.goaway);
                ended.extend(piece.ends_stream.then_some(piece.stream));
            });
            rest = later;
        }
        (all, goaway, ended)
    }

    proptest! {
        /// Frames do not depend on how the bytes are split: each has its own length, header included.
        #[test]
        fn frames_do_not_depend_on_how_bytes_are_split(cuts in prop::collection::vec(1usize..40, 1..20), length in 0usize..100) {
            let mut bytes = frame(SETTINGS, 0, 0, &[]);
            bytes.extend(frame(HEADERS, END_STREAM, 3, &vec![7; length]));
            bytes.extend(frame(CONTINUATION, END_HEADERS, 3, b"abc"));
            bytes.extend(frame(DATA, END_STREAM, 5, &vec![1; length * 3]));
            bytes.extend(frame(GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 11, b'w', b'h', b'y']));
            let (all, goaway, ended) = parsed(&cuts, &bytes);
            let length = length as u64;
            prop_assert_eq!(
                all,
                [(SETTINGS, 0, 9), (HEADERS, 3, 9 + length), (CONTINUATION, 3, 12), (DATA, 5, 9 + length * 3), (GOAWAY, 0, 20)]
            );
            prop_assert_eq!(goaway, [(5, 11)]);
            prop_assert_eq!(ended, [3, 5]);
        }
    }

    #[test]
    fn window_updates_and_payload_do_not_depend_on_how_bytes_are_split() {
        let mut bytes = frame(WINDOW_UPDATE, 0, 0, &0x8000_1234_u32.to_be_bytes());
        bytes.extend(frame(WINDOW_UPDATE, 0, 3, &[0, 0, 1]));
        bytes.extend(frame(DATA, 0, 3, &[7; 50]));
        for size in [1, 7, 1_000] {
            let (mut frames, mut granted, mut payload) = (Frames::of_server(), Vec::new(), 0);
            for piece in bytes.chunks(size) {
                frames.parse(piece, |piece| {
                    granted.extend(piece.granted.map(|bytes| (piece.stream, bytes)));
                    payload += if piece.kind == DATA { piece.payload } else { 0 };
                });
            }
            // An update of another length grants nothing.
            assert_eq!((granted, payload), (vec![(0, 0x1234)], 50), "{size}");
        }
    }

    #[test]
    fn frames_of_a_client_begin_after_its_preface() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, b"x"));
        let (mut frames, mut ended) = (Frames::of_client(), Vec::new());
        for byte in bytes.chunks(1) {
            frames.parse(byte, |piece| ended.extend(piece.ends_stream.then_some(piece.stream)));
        }
        assert_eq!(ended, [1]);
    }
}
