//! Frames of one direction of a stream (RFC 9114, section 7), and streams of one direction.

use wire::quic::varint;

use crate::out::Out;
use crate::quic::{Assembly, Received};

/// What the bytes of a stream complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A block of fields: a head, or trailers.
    Head(Vec<u8>),
    /// The end of the message.
    End,
}

/// One direction of a request's stream.
///
/// A body is skipped by the length in its frame header, received or not: behind a hole only frame headers and heads are
/// kept, independent of the bytes in transit.
#[derive(Debug)]
pub(super) struct Frames {
    /// What arrived.
    received: Received,
    /// What the parser reads, up to where it is.
    assembly: Assembly,
    parser: Parser,
    /// Where the stream ends, once that is known.
    end: Option<u64>,
    has_ended: bool,
    /// A piece did not fit, or the stream contradicts itself: it is not read any further.
    is_lost: bool,
}

/// Position in the frames of a stream.
#[derive(Debug, Default)]
struct Parser {
    /// Type and length of the next frame, as far as they were received.
    header: Vec<u8>,
    kind: u64,
    /// Remaining bytes of the current frame.
    left: u64,
    /// The content of a frame that is read.
    content: Vec<u8>,
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames {
            received: Received::default(),
            assembly: Assembly::default(),
            parser: Parser::default(),
            end: None,
            has_ended: false,
            is_lost: false,
        }
    }

    /// Processes a piece of the stream. Returns the number of bytes by which the stream has continued; `None` if it is
    /// not read any further.
    pub(super) fn receive(
        &mut self,
        offset: u64,
        bytes: &[u8],
        ends: bool,
        events: &mut Vec<Event>,
        out: &mut Out<'_>,
    ) -> Option<u64> {
        if self.is_lost || self.has_ended {
            return (!self.is_lost).then_some(0);
        }
        if ends {
            self.end = Some(offset.checked_add(bytes.len() as u64)?);
        }
        let before = self.received.next();
        let outcome = self.read(offset, bytes, events, out);
        if outcome.is_none() {
            self.is_lost = true;
            self.release(out);
            return None;
        }
        if self.end.is_some_and(|end| self.received.next() >= end) {
            self.has_ended = true;
            self.release(out);
            events.push(Event::End);
        }
        Some(self.received.next() - before)
    }

    fn read(&mut self, offset: u64, bytes: &[u8], events: &mut Vec<Event>, out: &mut Out<'_>) -> Option<()> {
        let most = out.limits.held_per_direction;
        let held = self.received.held() + self.assembly.held();
        let added = self.received.add(offset, bytes.len() as u64, most);
        let new = added.and_then(|()| self.assembly.receive(offset, bytes, most));
        // A piece may replace a shorter one that took more memory.
        out.release(held);
        if new.is_none() || !out.hold(self.received.held() + self.assembly.held()) {
            self.received.clear();
            self.assembly.clear();
            return None;
        }
        self.parse(new?, events, out)?;
        loop {
            let held = self.assembly.held();
            let piece = self.assembly.stored();
            out.release(held - self.assembly.held());
            let Some(bytes) = piece else { return Some(()) };
            self.parse(&bytes, events, out)?;
        }
    }

    fn parse(&mut self, bytes: &[u8], events: &mut Vec<Event>, out: &mut Out<'_>) -> Option<()> {
        self.parser.read(bytes, events, out)?;
        out.release(self.assembly.skip(self.parser.take_skipped()));
        Some(())
    }

    /// Releases all memory.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        out.release(self.received.clear() + self.assembly.clear() + self.parser.content.len());
        self.parser.content = Vec::new();
    }
}

impl Parser {
    /// Bytes of the current frame, still to come, that are not read.
    fn take_skipped(&mut self) -> u64 {
        if self.kind == HEADERS { 0 } else { std::mem::take(&mut self.left) }
    }

    /// Reads the next bytes. `None` if the memory limit is reached.
    fn read(&mut self, mut bytes: &[u8], events: &mut Vec<Event>, out: &mut Out<'_>) -> Option<()> {
        while !bytes.is_empty() {
            crate::work::spend(1);
            let used = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            if self.left > 0 && self.kind != HEADERS {
                bytes = &bytes[used..];
                self.left -= used as u64;
                continue;
            }
            if self.left > 0 {
                if self.content.len() + used > out.limits.held_per_direction || !out.hold(used) {
                    return None;
                }
                crate::work::spend(used);
                self.content.extend_from_slice(&bytes[..used]);
                bytes = &bytes[used..];
                self.left -= used as u64;
                if self.left == 0 {
                    out.release(self.content.len());
                    events.push(Event::Head(std::mem::take(&mut self.content)));
                }
                continue;
            }
            let (&byte, rest) = bytes.split_first()?;
            self.header.push(byte);
            bytes = rest;
            let mut header = &self.header[..];
            if let (Some(kind), Some(left)) = (varint(&mut header), varint(&mut header)) {
                (self.kind, self.left) = (kind, left);
                self.header.clear();
                if kind == HEADERS && left == 0 {
                    events.push(Event::Head(Vec::new()));
                }
            }
        }
        Some(())
    }
}

/// A stream of one direction: control, or instructions for the table.
#[derive(Debug, Default)]
pub(super) struct Unidirectional {
    assembly: Assembly,
    /// Type of the stream, once it was received.
    pub(super) kind: Option<u64>,
    /// Bytes that are not read yet.
    pub(super) buffer: Vec<u8>,
    is_lost: bool,
}

impl Unidirectional {
    /// Processes a piece of the stream; `None` if it is not read any further.
    pub(super) fn receive(&mut self, offset: u64, bytes: &[u8], out: &mut Out<'_>) -> Option<()> {
        if self.is_lost {
            return None;
        }
        let outcome = self.read(offset, bytes, out);
        if outcome.is_none() {
            self.is_lost = true;
            self.release(out);
        }
        outcome
    }

    fn read(&mut self, offset: u64, bytes: &[u8], out: &mut Out<'_>) -> Option<()> {
        let held = self.assembly.held();
        let new = self.assembly.receive(offset, bytes, out.limits.held_per_direction)?;
        // A piece may replace a shorter one that took more memory.
        out.release(held);
        if !out.hold(self.assembly.held()) {
            self.assembly.clear();
            return None;
        }
        self.keep(new, out)?;
        loop {
            let held = self.assembly.held();
            let piece = self.assembly.stored();
            out.release(held - self.assembly.held());
            let Some(bytes) = piece else { break };
            self.keep(&bytes, out)?;
        }
        if self.kind.is_none() {
            let mut rest = &self.buffer[..];
            self.kind = varint(&mut rest);
            let used = self.buffer.len() - rest.len();
            self.used(used, out);
        }
        if !matches!(self.kind, None | Some(CONTROL | ENCODER)) {
            // Of no interest.
            self.release(out);
        }
        Some(())
    }

    fn keep(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Option<()> {
        crate::work::spend(bytes.len());
        let fits = self.buffer.len() + bytes.len() <= out.limits.held_per_direction && out.hold(bytes.len());
        fits.then(|| self.buffer.extend_from_slice(bytes))
    }

    /// Removes bytes that were read.
    pub(super) fn used(&mut self, count: usize, out: &mut Out<'_>) {
        self.buffer.drain(..count);
        out.release(count);
    }

    /// Releases all memory.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        out.release(self.assembly.clear() + self.buffer.len());
        self.buffer = Vec::new();
    }

    /// The next complete frame of a control stream: its type and content. One of more than the memory is never complete.
    pub(super) fn frame(&mut self, out: &mut Out<'_>) -> Option<(u64, Vec<u8>)> {
        let mut rest = &self.buffer[..];
        let kind = varint(&mut rest)?;
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let content = rest.get(..length)?.to_vec();
        let used = self.buffer.len() - rest.len() + length;
        self.used(used, out);
        Some((kind, content))
    }
}

/// Types of streams of one direction.
pub(super) const CONTROL: u64 = 0;
pub(super) const ENCODER: u64 = 2;
/// Types of frames.
const HEADERS: u64 = 1;
pub(super) const SETTINGS: u64 = 4;
pub(super) const GOAWAY: u64 = 7;
