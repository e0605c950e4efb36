//! Frame headers of HTTP/2 (RFC 9113, sections 4 and 6).

use schema::Direction;

use crate::fields::hpack::Decoder;
use crate::work;

/// The header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// Length of the content.
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// Length of a frame's header.
pub(super) const HEADER: usize = 9;

impl Frame {
    pub(super) fn parse(header: &[u8; HEADER]) -> Frame {
        let [a, b, c, kind, flags, stream @ ..] = *header;
        Frame {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            // The reserved bit is ignored.
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether stream and length are those of its kind. Both ends close the connection otherwise.
    pub(super) fn is_valid(&self) -> bool {
        let on_stream = self.stream != 0;
        match self.kind {
            DATA => on_stream && self.length >= u32::from(self.has(PADDED)),
            HEADERS => {
                let priority = if self.has(PRIORITY_FLAG) { 5 } else { 0 };
                on_stream && self.length >= u32::from(self.has(PADDED)) + priority
            }
            PRIORITY => on_stream && self.length == 5,
            RST_STREAM => on_stream && self.length == 4,
            SETTINGS => !on_stream && self.length.is_multiple_of(6) && (!self.has(ACK) || self.length == 0),
            PUSH_PROMISE => on_stream && self.length >= 4 + u32::from(self.has(PADDED)),
            PING => !on_stream && self.length == 8,
            GOAWAY => !on_stream && self.length >= 8,
            WINDOW_UPDATE => self.length == 4,
            CONTINUATION => on_stream,
            // An extension.
            _ => true,
        }
    }

    /// Whether the content is read, and not skipped.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.kind, HEADERS | RST_STREAM | PUSH_PROMISE | GOAWAY | CONTINUATION)
    }

    /// Whether it is part of a message, whose bytes are counted.
    pub(super) fn is_of_message(&self) -> bool {
        matches!(self.kind, DATA | HEADERS | CONTINUATION)
    }

    /// The part of the content of HEADERS or PUSH_PROMISE that is a block of fields: without padding, priority and the
    /// promised stream. `None` if the padding exceeds it.
    pub(super) fn block<'a>(&self, content: &'a [u8]) -> Option<&'a [u8]> {
        let mut block = content;
        if self.has(PADDED) {
            let (&padding, rest) = block.split_first()?;
            block = rest.get(..rest.len().checked_sub(usize::from(padding))?)?;
        }
        let before = match self.kind {
            HEADERS if self.has(PRIORITY_FLAG) => 5,
            PUSH_PROMISE => 4,
            _ => 0,
        };
        block.get(before..)
    }
}

/// Whether a segment of `length` bytes, of which `bytes` were captured, consists of frames: its start is that of a
/// frame, in a connection whose position is unknown. Every frame must be valid and of a standard kind, one of them
/// must be a head whose block can be decoded, and the last must end with the segment, unless it is the body after
/// such a head. Bytes of another protocol that happen to fulfil this are one in billions.
pub(super) fn are_frames(direction: Direction, bytes: &[u8], length: u64) -> bool {
    if bytes.len() as u64 != length {
        return false;
    }
    let (mut rest, mut with_head) = (bytes, None);
    while !rest.is_empty() {
        let Some((header, after)) = rest.split_first_chunk::<HEADER>() else { return false };
        let frame = Frame::parse(header);
        let is_known = frame.kind <= CONTINUATION || EXTENSIONS.contains(&frame.kind);
        if !is_known || !frame.is_valid() || header[5] & 0x80 != 0 {
            return false;
        }
        work::spend(1);
        let Some((content, after)) = after.split_at_checked(frame.length as usize) else {
            return frame.kind == DATA && with_head == Some(frame.stream);
        };
        if frame.kind == HEADERS {
            let is_head = frame.has(END_HEADERS) && frame.stream % 2 == 1 && is_head(direction, frame, content);
            if !is_head {
                return false;
            }
            with_head = Some(frame.stream);
        }
        rest = after;
    }
    with_head.is_some()
}

/// Whether a frame's content is a head of this direction, or trailers.
fn is_head(direction: Direction, frame: Frame, content: &[u8]) -> bool {
    work::spend(content.len());
    let fields = frame.block(content).and_then(|block| Decoder::new(false).decode(block).ok());
    fields.is_some_and(|fields| match direction {
        Direction::Up => fields.status.is_none(),
        Direction::Down => fields.method.is_none() && fields.path.is_none(),
    })
}

/// Whether `bytes`, the first of a server, are the start of a SETTINGS frame, with which every server begins.
pub(super) fn may_be_settings(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|header| {
        let frame = Frame::parse(header);
        frame.kind == SETTINGS && frame.flags == 0 && frame.is_valid() && frame.length <= SETTINGS_MAX
    })
}

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
/// ALTSVC (RFC 7838), ORIGIN (RFC 8336), PRIORITY_UPDATE (RFC 9218).
const EXTENSIONS: [u8; 3] = [0x0A, 0x0C, 0x10];

/// Of SETTINGS and PING.
pub(super) const ACK: u8 = 0x01;
/// Of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x01;
pub(super) const END_HEADERS: u8 = 0x04;
pub(super) const PADDED: u8 = 0x08;
pub(super) const PRIORITY_FLAG: u8 = 0x20;
/// More settings than any server sends, in bytes.
const SETTINGS_MAX: u32 = 1024;
