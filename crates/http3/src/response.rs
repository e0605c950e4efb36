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
use quinn_proto::Side;

use crate::code::Code;
use crate::message::{FrameFault, MessageReader, Phase, Piece};

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

impl From<FrameFault> for ResponseFault {
    fn from(fault: FrameFault) -> Self {
        match fault {
            FrameFault::SectionTooLarge => ResponseFault::HeadTooLarge,
            FrameFault::Connection(code) => ResponseFault::Connection(code),
        }
    }
}

/// A response while it arrives.
#[derive(Debug)]
pub struct Response {
    frames: MessageReader,
    section: Vec<u8>,
    /// Announced length of the body.
    length: Option<u64>,
    body: u64,
    /// Whether the request was HEAD, whose response has no body.
    is_bodyless: bool,
}

impl Response {
    /// A response to a request; `is_head`: whose method is HEAD.
    pub fn new(is_head: bool) -> Self {
        Response {
            frames: MessageReader::new(Side::Server, HEAD_MAX),
            section: Vec::new(),
            length: None,
            body: 0,
            is_bodyless: is_head,
        }
    }

    /// Reads the next bytes of the stream, and passes what they contain to `part`.
    ///
    /// # Errors
    /// The response is not valid; parts before the fault were passed.
    pub fn feed(&mut self, bytes: &Bytes, mut part: impl FnMut(Part)) -> Result<(), ResponseFault> {
        let mut rest: &[u8] = bytes;
        while let Some(piece) = self.frames.next(&mut rest)? {
            match piece {
                Piece::Frame { bytes, headers } => part(Part::Received { bytes: bytes as u64, head: headers }),
                Piece::Section { bytes, complete } => {
                    self.section.extend_from_slice(bytes);
                    part(Part::Received { bytes: bytes.len() as u64, head: true });
                    if complete {
                        let section = std::mem::take(&mut self.section);
                        self.end_section(&section, &mut part)?;
                    }
                }
                Piece::Content(content) => {
                    self.body += content.len() as u64;
                    part(Part::Received { bytes: content.len() as u64, head: false });
                    part(Part::Body(bytes.slice_ref(content)));
                    if self.length.is_some_and(|length| self.body > length) {
                        return Err(ResponseFault::Message);
                    }
                }
            }
        }
        Ok(())
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// The response is incomplete.
    pub fn end(&self) -> Result<(), ResponseFault> {
        self.frames.end().map_err(ResponseFault::Connection)?;
        if self.frames.phase() == Phase::Head || self.length.is_some_and(|length| length != self.body) {
            return Err(ResponseFault::Message);
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
        match (self.frames.phase(), message.status) {
            (Phase::Head, Some(100 | 102..=199)) => {}
            (Phase::Head, Some(status)) if status != 101 => {
                let bodyless = self.is_bodyless || status == 204 || status == 304;
                self.length = if bodyless { Some(0) } else { content_length(&fields)? };
                self.frames.set_phase(Phase::Body);
                part(Part::Head { status, fields });
            }
            (Phase::Body, None) => self.frames.set_phase(Phase::End),
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

#[cfg(test)]
mod tests;
