//! The frames of one message, request or response, as the bytes of its stream arrive (RFC 9114, sections 4.1 and 7.2).
//!
//! ```text
//!   HEADERS  DATA ..  [HEADERS: trailers]  end of the stream       frames of unknown kinds are skipped
//! ```
//!
//! Nothing is stored but the head of a frame: payloads are passed on as they arrive.

use quinn_proto::Side;

use crate::code::Code;
use crate::frame::{self, DATA, FrameHead, HEADERS};

/// Reads the frames of a message.
#[derive(Debug)]
pub struct MessageReader {
    head: FrameHead,
    frame: Frame,
    phase: Phase,
    /// Who sends the message.
    sender: Side,
    /// Largest accepted field section, encoded.
    section_max: u64,
}

/// The frame whose payload comes next, with the bytes that are left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    None,
    Headers(u64),
    Data(u64),
    Unknown(u64),
}

/// What may come next. The owner of the reader moves it, since only the fields tell what a section is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The head is pending.
    #[default]
    Head,
    /// Content, or trailers.
    Body,
    /// After the trailers.
    End,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A frame begins whose own head has this many bytes.
    Frame {
        /// Their number.
        bytes: usize,
        /// HEADERS; otherwise DATA.
        headers: bool,
    },
    /// Bytes of a field section, possibly none.
    Section {
        /// The bytes.
        bytes: &'a [u8],
        /// Whether they are the last of the section.
        complete: bool,
    },
    /// Bytes of content, at least one.
    Content(&'a [u8]),
}

/// What is wrong with the frames of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    /// A field section is longer than accepted: only this stream is affected.
    SectionTooLarge,
    /// The connection is in error, with this code.
    Connection(Code),
}

impl MessageReader {
    /// A message that `sender` sends. `section_max`: bytes of the largest accepted field section.
    pub fn new(sender: Side, section_max: usize) -> Self {
        MessageReader {
            head: FrameHead::default(),
            frame: Frame::None,
            phase: Phase::Head,
            sender,
            section_max: section_max as u64,
        }
    }

    /// What may come next.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// A complete section was read, which has moved the message on.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Takes the next piece from the front of `input`; `None` if more input is needed.
    ///
    /// # Errors
    /// A frame that is not allowed here, or a section that is too large. Nothing may be read afterwards.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, FrameFault> {
        loop {
            match self.frame {
                Frame::None => {
                    let Some(head) = self.head.take(input) else { return Ok(None) };
                    self.frame = self.begin(head)?;
                    if let Frame::Headers(_) | Frame::Data(_) = self.frame {
                        return Ok(Some(Piece::Frame { bytes: head.bytes, headers: head.kind == HEADERS }));
                    }
                }
                Frame::Headers(left) => {
                    if left > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    let bytes = take(input, left);
                    let left = left - bytes.len() as u64;
                    self.frame = if left == 0 { Frame::None } else { Frame::Headers(left) };
                    return Ok(Some(Piece::Section { bytes, complete: left == 0 }));
                }
                Frame::Data(0) | Frame::Unknown(0) => self.frame = Frame::None,
                Frame::Data(_) | Frame::Unknown(_) if input.is_empty() => return Ok(None),
                Frame::Data(left) => {
                    let bytes = take(input, left);
                    self.frame = Frame::Data(left - bytes.len() as u64);
                    return Ok(Some(Piece::Content(bytes)));
                }
                Frame::Unknown(left) => self.frame = Frame::Unknown(left - take(input, left).len() as u64),
            }
        }
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// It ended within a frame, which is an error of the connection (section 7.1).
    pub fn end(&self) -> Result<(), Code> {
        let is_between_frames = matches!(self.frame, Frame::None | Frame::Data(0) | Frame::Unknown(0));
        if is_between_frames && !self.head.is_partial() { Ok(()) } else { Err(Code::FRAME_ERROR) }
    }

    fn begin(&self, head: frame::Head) -> Result<Frame, FrameFault> {
        let unexpected = Err(FrameFault::Connection(Code::FRAME_UNEXPECTED));
        match head.kind {
            HEADERS if self.phase == Phase::End => unexpected,
            HEADERS if head.length > self.section_max => Err(FrameFault::SectionTooLarge),
            HEADERS => Ok(Frame::Headers(head.length)),
            DATA if self.phase != Phase::Body => unexpected,
            DATA => Ok(Frame::Data(head.length)),
            frame::CANCEL_PUSH | frame::SETTINGS | frame::GOAWAY | frame::MAX_PUSH_ID => unexpected,
            // Only a server sends it (section 7.2.5), and no push was allowed.
            frame::PUSH_PROMISE if self.sender == Side::Server => Err(FrameFault::Connection(Code::ID_ERROR)),
            frame::PUSH_PROMISE => unexpected,
            kind if frame::is_reserved(kind) => unexpected,
            _ => Ok(Frame::Unknown(head.length)),
        }
    }
}

/// Takes at most `most` bytes from the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], most: u64) -> &'a [u8] {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(rest.len());
    let (piece, after) = rest.split_at(length);
    *rest = after;
    piece
}
