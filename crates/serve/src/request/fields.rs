//! The fields of a request: relevant ones by name, and all of them as lines.

use http1::list::members;
use http1::{Reason, Role, Version};
use httparse::Header;

use super::Body;
use crate::response::Status;

/// The fields that a file's response depends on: the trimmed first value of each. Borrowed from the input.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fields<'a> {
    /// The authority of the target if it has one, else the Host field.
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) if_match: Option<&'a [u8]>,
    pub(crate) if_none_match: Option<&'a [u8]>,
    pub(crate) if_modified_since: Option<&'a [u8]>,
    pub(crate) if_unmodified_since: Option<&'a [u8]>,
    pub(crate) if_range: Option<&'a [u8]>,
    pub(crate) range: Option<&'a [u8]>,
    pub(crate) accept_encoding: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
    /// A condition, Range or Accept-Encoding is repeated: see [`Fields::values`].
    pub(crate) repeated: bool,
    /// A condition or Range is present.
    pub(crate) conditional: bool,
    pub(super) head: &'a [u8],
}

impl<'a> Fields<'a> {
    /// All fields in their order: name and trimmed value.
    pub(crate) fn lines(&self) -> Lines<'a> {
        let first = memchr::memchr(b'\n', self.head).map_or(self.head.len(), |at| at + 1);
        Lines(&self.head[first..])
    }

    /// All values of the fields called `name` (any case), in their order. Together they are one list
    /// (RFC 9110, section 5.3).
    pub(crate) fn values(&self, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.lines().filter(move |(this, _)| this.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl std::fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text =
            |(name, value)| (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned());
        f.debug_map().entries(self.lines().map(text)).finish()
    }
}

/// See [`Fields::lines`].
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = memchr::memchr(b'\n', self.0)?;
        let (line, rest) = self.0.split_at(end + 1);
        self.0 = rest;
        // The empty line has no colon; the parser refuses any other line without one.
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    }
}

/// Collects the fields of a head.
#[derive(Default)]
pub(super) struct FieldCollector<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) hosts: usize,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) framing: http1::Fields<'a>,
    pub(super) expectation: Expectation,
}

/// The Expect field.
#[derive(Clone, Copy, Default)]
pub(super) struct Expectation {
    to_continue: bool,
    other: bool,
}

impl<'a> FieldCollector<'a> {
    /// Adds one field.
    pub(super) fn take(&mut self, header: &Header<'a>) {
        let Header { name, value } = *header;
        let fields = &mut self.fields;
        // By length first: one integer comparison decides for most fields of a browser's request.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                self.hosts += 1;
                fields.host = Some(value);
            }
            5 if name.eq_ignore_ascii_case("range") => self.condition(|fields| &mut fields.range, value),
            6 if name.eq_ignore_ascii_case("expect") => {
                for member in members(value) {
                    let to_continue = member.eq_ignore_ascii_case(b"100-continue");
                    self.expectation.to_continue |= to_continue;
                    self.expectation.other |= !to_continue;
                }
            }
            7 if name.eq_ignore_ascii_case("referer") => {
                fields.referer.get_or_insert(value);
            }
            8 if name.eq_ignore_ascii_case("if-match") => self.condition(|fields| &mut fields.if_match, value),
            8 if name.eq_ignore_ascii_case("if-range") => self.condition(|fields| &mut fields.if_range, value),
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in members(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            10 if name.eq_ignore_ascii_case("user-agent") => {
                fields.user_agent.get_or_insert(value);
            }
            13 if name.eq_ignore_ascii_case("if-none-match") => {
                self.condition(|fields| &mut fields.if_none_match, value);
            }
            14 if name.eq_ignore_ascii_case("content-length") => self.framing.content_length(value),
            15 if name.eq_ignore_ascii_case("accept-encoding") => {
                fields.repeated |= fields.accept_encoding.is_some();
                fields.accept_encoding.get_or_insert(value);
            }
            17 if name.eq_ignore_ascii_case("if-modified-since") => {
                self.condition(|fields| &mut fields.if_modified_since, value);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.framing.transfer_encoding(value),
            19 if name.eq_ignore_ascii_case("if-unmodified-since") => {
                self.condition(|fields| &mut fields.if_unmodified_since, value);
            }
            _ => {}
        }
    }

    fn condition(
        &mut self,
        slot: impl for<'b> FnOnce(&'b mut Fields<'a>) -> &'b mut Option<&'a [u8]>,
        value: &'a [u8],
    ) {
        let slot = slot(&mut self.fields);
        let repeated = slot.is_some();
        slot.get_or_insert(value);
        self.fields.repeated |= repeated;
        self.fields.conditional = true;
    }
}

/// The announced body, by the shared framing rules.
///
/// # Errors
/// 400 for ambiguous framing; 501 for a transfer coding other than chunked.
pub(super) fn body(framing: &http1::Fields<'_>, old: bool) -> Result<Body, Status> {
    let version = if old { Version::Http10 } else { Version::Http11 };
    match framing.request(Role::Server, version) {
        Ok(http1::Body::Length(bytes @ 1..)) => Ok(Body::Bytes(bytes)),
        Ok(http1::Body::Chunked) => Ok(Body::Chunked),
        Ok(http1::Body::None | http1::Body::Length(0)) => Ok(Body::None),
        // Neither is possible for a request.
        Ok(http1::Body::UntilClose | http1::Body::Tunnel) => Err(Status::BadRequest),
        Err(fault) => Err(refusal(fault.reason)),
    }
}

/// The status for invalid framing.
pub(super) fn refusal(reason: Reason) -> Status {
    match reason {
        // RFC 9112, section 6.1: an unknown coding.
        Reason::CodingUnsupported => Status::NotImplemented,
        Reason::BodyTooLong => Status::ContentTooLarge,
        Reason::ChunkOverhead | Reason::HeadTooLong | Reason::TooManyFields => Status::HeadTooLarge,
        _ => Status::BadRequest,
    }
}

impl Expectation {
    /// Whether the client waits for 100 (Continue).
    ///
    /// # Errors
    /// 417 for any other expectation (RFC 9110, section 10.1.1).
    pub(super) fn expects_continue(self) -> Result<bool, Status> {
        if self.other { Err(Status::ExpectationFailed) } else { Ok(self.to_continue) }
    }
}
