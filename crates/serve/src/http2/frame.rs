//! Frames of HTTP/2 as bytes (RFC 9113, sections 4 and 6).

/// Ends the connection, by GOAWAY, or a stream, by RST_STREAM (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ErrorCode {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    FlowControlError = 3,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    CompressionError = 9,
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    /// The first frame of `input`; `None` if its head is incomplete.
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        let head: &[u8; FRAME_HEAD_BYTES] = input.first_chunk()?;
        let [a, b, c, kind, flags, stream @ ..] = *head;
        Some(FrameHead {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        })
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame's head and returns its position, for [`set_length`] and [`set_flag`].
pub(super) fn begin(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0, 0, 0, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    at
}

/// The frame begun at `at` ends at the end of `out`.
pub(super) fn set_length(out: &mut [u8], at: usize) {
    let length = (out.len() - at - FRAME_HEAD_BYTES) as u32;
    out[at..at + 3].copy_from_slice(&length.to_be_bytes()[1..]);
}

/// Adds a flag to the frame begun at `at`.
pub(super) fn set_flag(out: &mut [u8], at: usize, flag: u8) {
    out[at + 4] |= flag;
}

/// Appends a frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let at = begin(out, kind, flags, stream);
    out.extend_from_slice(payload);
    set_length(out, at);
}

/// Appends HEADERS with its continuations.
pub(super) fn write_section(out: &mut Vec<u8>, stream: u32, section: &[u8], ends: bool) {
    let mut pieces = section.chunks(FRAME_BYTES_MAX).peekable();
    let (mut kind, mut flags) = (HEADERS, if ends { END_STREAM } else { 0 });
    while let Some(piece) = pieces.next() {
        let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        write(out, kind, flags | last, stream, piece);
        (kind, flags) = (CONTINUATION, 0);
    }
}

/// Appends RST_STREAM.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write(out, RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

/// Appends GOAWAY.
pub(super) fn write_goaway(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    let at = begin(out, GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    set_length(out, at);
}

/// Appends WINDOW_UPDATE.
pub(super) fn write_window(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

/// What a client sends first (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const FRAME_HEAD_BYTES: usize = 9;
/// The longest payload in either direction: the smallest that a client must accept.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 14;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const WITH_PRIORITY: u8 = 0x20;

pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;
