//! Reads one response from the bytes of its stream (RFC 9114, sections 4.1 and 7.2).
//!
//! ```text
//!   interim HEADERS (1xx) ..  HEADERS  DATA ..  [HEADERS: trailers]  end of the stream
//! ```
//!
//! The memory of a response is bounded: field sections by [`HEAD_MAX`], everything else is passed on as it arrives.
//! Frames of unknown kinds are skipped.

use bytes::Bytes;
use field_compression::qpack::{self, SectionError};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::code::Code;
use crate::frame::{self, DATA, FrameHead, HEADERS};

/// Largest accepted field section, encoded, and decoded with 32 bytes more for each field.
pub const HEAD_MAX: usize = 64 << 10;

/// Part of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Bytes of frames arrived, heads of frames included; `head`: of HEADERS.
    Received {
        /// Their number.
        bytes: u64,
        /// Whether they are of HEADERS.
        head: bool,
    },
    /// The head of the final response.
    Head {
        /// The status.
        status: u16,
        /// Its header fields.
        fields: HeaderMap,
    },
    /// Bytes of its body.
    Body(Bytes),
}

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFault {
    /// The message is malformed: only its stream is affected.
    Message,
    /// Its head is larger than accepted: only its stream is affected.
    HeadTooLarge,
    /// The connection is in error, with this code.
    Connection(Code),
}

/// A response while it arrives.
#[derive(Debug, Default)]
pub struct Response {
    head: FrameHead,
    frame: Frame,
    phase: Phase,
    section: Vec<u8>,
    /// Announced length of the body.
    length: Option<u64>,
    body: u64,
    /// Whether the request was HEAD, whose response has no body.
    is_bodyless: bool,
}

/// The frame whose payload comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Frame {
    #[default]
    None,
    Headers(u64),
    Data(u64),
    Unknown(u64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The final head is pending.
    #[default]
    Head,
    Body,
    /// After the trailers.
    End,
}

impl Response {
    /// A response to a request; `is_head`: whose method is HEAD.
    pub fn new(is_head: bool) -> Self {
        Response { is_bodyless: is_head, ..Response::default() }
    }

    /// Reads the next bytes of the stream, and passes what they contain to `part`.
    ///
    /// # Errors
    /// The response is not valid; parts before the fault were passed.
    pub fn feed(&mut self, bytes: &Bytes, mut part: impl FnMut(Part)) -> Result<(), ResponseFault> {
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            match self.frame {
                Frame::None => {
                    let Some(head) = self.head.take(&mut rest) else { return Ok(()) };
                    self.begin_frame(head, &mut part)?;
                }
                Frame::Headers(left) => {
                    let piece = take(&mut rest, left);
                    self.section.extend_from_slice(piece);
                    part(Part::Received { bytes: piece.len() as u64, head: true });
                    self.frame = Frame::Headers(left - piece.len() as u64);
                }
                Frame::Data(left) => {
                    let piece = take(&mut rest, left);
                    self.body += piece.len() as u64;
                    part(Part::Received { bytes: piece.len() as u64, head: false });
                    part(Part::Body(bytes.slice_ref(piece)));
                    if self.length.is_some_and(|length| self.body > length) {
                        return Err(ResponseFault::Message);
                    }
                    self.frame = Frame::Data(left - piece.len() as u64);
                }
                Frame::Unknown(left) => {
                    let piece = take(&mut rest, left);
                    self.frame = Frame::Unknown(left - piece.len() as u64);
                }
            }
            match self.frame {
                Frame::Headers(0) => {
                    self.frame = Frame::None;
                    let section = std::mem::take(&mut self.section);
                    self.end_section(&section, &mut part)?;
                }
                Frame::Data(0) | Frame::Unknown(0) => self.frame = Frame::None,
                Frame::None | Frame::Headers(_) | Frame::Data(_) | Frame::Unknown(_) => {}
            }
        }
        Ok(())
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// The response is incomplete.
    pub fn end(&self) -> Result<(), ResponseFault> {
        if self.frame != Frame::None || self.head.is_partial() {
            // A frame that is cut off is an error of the connection (section 7.1).
            return Err(ResponseFault::Connection(Code::FRAME_ERROR));
        }
        if self.phase == Phase::Head || self.length.is_some_and(|length| length != self.body) {
            return Err(ResponseFault::Message);
        }
        Ok(())
    }

    fn begin_frame(&mut self, head: frame::Head, part: &mut impl FnMut(Part)) -> Result<(), ResponseFault> {
        let unexpected = Err(ResponseFault::Connection(Code::FRAME_UNEXPECTED));
        self.frame = match head.kind {
            HEADERS if self.phase == Phase::End => return unexpected,
            HEADERS if head.length > HEAD_MAX as u64 => return Err(ResponseFault::HeadTooLarge),
            HEADERS => Frame::Headers(head.length),
            DATA if self.phase != Phase::Body => return unexpected,
            DATA => Frame::Data(head.length),
            frame::CANCEL_PUSH | frame::SETTINGS | frame::GOAWAY | frame::MAX_PUSH_ID => return unexpected,
            // No push was allowed (section 7.2.5).
            frame::PUSH_PROMISE => return Err(ResponseFault::Connection(Code::ID_ERROR)),
            kind if frame::is_reserved(kind) => return unexpected,
            _ => Frame::Unknown(head.length),
        };
        if matches!(head.kind, HEADERS | DATA) {
            part(Part::Received { bytes: head.bytes as u64, head: head.kind == HEADERS });
        }
        Ok(())
    }

    fn end_section(&mut self, section: &[u8], part: &mut impl FnMut(Part)) -> Result<(), ResponseFault> {
        let mut fields = HeaderMap::new();
        let mut message = Message::default();
        let read = qpack::decode(section, HEAD_MAX, |name, value| message.add(name, value, &mut fields));
        match read {
            Err(SectionError::Malformed) => {
                return Err(ResponseFault::Connection(Code::QPACK_DECOMPRESSION_FAILED));
            }
            Err(SectionError::TooLarge) => return Err(ResponseFault::HeadTooLarge),
            Ok(()) if message.is_malformed => return Err(ResponseFault::Message),
            Ok(()) => {}
        }
        match (self.phase, message.status) {
            (Phase::Head, Some(100 | 102..=199)) => {}
            (Phase::Head, Some(status)) if status != 101 => {
                let bodyless = self.is_bodyless || status == 204 || status == 304;
                self.length = if bodyless { Some(0) } else { content_length(&fields)? };
                self.phase = Phase::Body;
                part(Part::Head { status, fields });
            }
            (Phase::Body, None) => self.phase = Phase::End,
            _ => return Err(ResponseFault::Message),
        }
        Ok(())
    }
}

/// A field section while it is checked (section 4.2 and 4.3).
#[derive(Default)]
struct Message {
    status: Option<u16>,
    has_fields: bool,
    is_malformed: bool,
}

impl Message {
    fn add(&mut self, name: &[u8], value: &[u8], fields: &mut HeaderMap) {
        if let Some(pseudo) = name.strip_prefix(b":") {
            let status = (pseudo == b"status").then(|| status(value)).flatten();
            self.is_malformed |= status.is_none() || self.status.is_some() || self.has_fields;
            self.status = self.status.or(status);
            return;
        }
        self.has_fields = true;
        let (Ok(name), Ok(value)) = (HeaderName::from_lowercase(name), HeaderValue::from_bytes(value)) else {
            self.is_malformed = true;
            return;
        };
        self.is_malformed |= OF_CONNECTIONS.contains(&name.as_str()) || fields.try_append(name, value).is_err();
    }
}

/// Fields of HTTP/1 connections that make a message malformed (section 4.2).
const OF_CONNECTIONS: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

fn status(value: &[u8]) -> Option<u16> {
    let digits = <[u8; 3]>::try_from(value).ok().filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    (status >= 100).then_some(status)
}

/// The body's announced length; several equal ones count as one.
fn content_length(fields: &HeaderMap) -> Result<Option<u64>, ResponseFault> {
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        let text = value.to_str().map_err(|_| ResponseFault::Message)?;
        for number in text.split(',') {
            let number = number.trim();
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = number.parse().ok().filter(|_| is_number).ok_or(ResponseFault::Message)?;
            if length.is_some_and(|length| length != parsed) {
                return Err(ResponseFault::Message);
            }
            length = Some(parsed);
        }
    }
    Ok(length)
}

/// Takes at most `most` bytes from the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], most: u64) -> &'a [u8] {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(rest.len());
    let (piece, after) = rest.split_at(length);
    *rest = after;
    piece
}

#[cfg(test)]
mod tests;
