//! The head of a request of HTTP/2 or HTTP/3, from its decoded fields (RFC 9113, section 8.2 and 8.3).
//!
//! ```text
//!   :method :scheme :authority :path, fields ──▶ text, as HTTP/1.1 would send it ──▶ Request
//!                                                "GET /path HTTP/2.0", Host, fields
//! ```
//!
//! The text is what the access log, the result cache and the relay read. Every rule for HTTP/1.1 fields holds for it.

use std::ops::Range;

use crate::request::{Request, framed};
use crate::response::Status;
use crate::spec::Limits;

/// A head in progress; reused for all requests of a worker.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    text: Vec<u8>,
    /// Name and value of each field in `text`.
    fields: Vec<(Range<u32>, Range<u32>)>,
    method: Vec<u8>,
    scheme: Vec<u8>,
    authority: Vec<u8>,
    path: Vec<u8>,
    /// All cookies: several fields are one in HTTP/1.1 (RFC 9113, section 8.2.3).
    cookie: Vec<u8>,
    /// The pseudo-header fields that were present.
    present: u8,
    /// The length of the request line in `text`, and the end of the method.
    line_bytes: u32,
    version: &'static str,
    content_length: Option<u64>,
    /// Bytes of all names and values so far, with those that were dropped.
    bytes: usize,
    bytes_max: usize,
    fields_max: usize,
    malformed: bool,
    refused: Option<Status>,
}

/// What a complete head requests.
#[allow(clippy::large_enum_variant, reason = "made and taken apart at once, on the stack: boxing would allocate")]
#[derive(Debug)]
pub(crate) enum Completed<'a> {
    /// A request.
    Request(Request<'a>),
    /// The request gets this status; `.1` is its text.
    Refused(Status, &'a [u8]),
    /// It breaks rules of HTTP/2 or HTTP/3 (RFC 9113, section 8.1.1): the stream is reset.
    Malformed,
}

/// How the content of a request is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// No content: the stream ended with the head.
    Nothing,
    /// By Content-Length.
    Length(u64),
    /// It ends with the stream.
    UntilEnd,
}

impl RequestHead {
    /// Begins a head; `version` as the access log shows it.
    pub(crate) fn begin(&mut self, version: &'static str, limits: &Limits) {
        for buffer in
            [&mut self.text, &mut self.method, &mut self.scheme, &mut self.authority, &mut self.path, &mut self.cookie]
        {
            buffer.clear();
        }
        self.fields.clear();
        (self.present, self.line_bytes, self.bytes) = (0, 0, 0);
        (self.content_length, self.malformed, self.refused) = (None, false, None);
        (self.version, self.bytes_max, self.fields_max) = (version, limits.head_bytes, limits.head_fields);
    }

    /// Takes a field in; name and value are any bytes.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        // As the text of HTTP/1.1 counts them: `: ` and a line end.
        self.bytes = self.bytes.saturating_add(name.len() + value.len() + 4);
        if name.first() == Some(&b':') {
            return self.pseudo(name, value);
        }
        if self.bytes > self.bytes_max || self.fields.len() >= self.fields_max {
            if self.line_bytes == 0 {
                self.write_line();
            }
            self.refused.get_or_insert(Status::HeadTooLarge);
            return;
        }
        self.regular(name, value);
    }

    /// The host that the request names, with its port.
    pub(crate) fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// Whether the method is safe (RFC 9110, section 9.2.1): a replayed request does no harm.
    pub(crate) fn is_safe(&self) -> bool {
        matches!(&self.method[..], b"GET" | b"HEAD" | b"OPTIONS")
    }

    /// The request arrived in early data, which a dynamic program must know (RFC 8470, section 5.1).
    pub(crate) fn arrived_early(&mut self) {
        if self.line_bytes == 0 {
            self.write_line();
        }
        self.write(b"early-data", b"1");
    }

    /// The announcement of content; `ended`: the stream ended with the head.
    pub(crate) fn announced(&self, ended: bool) -> Announced {
        match self.content_length {
            _ if ended => Announced::Nothing,
            Some(bytes) => Announced::Length(bytes),
            None => Announced::UntilEnd,
        }
    }

    /// The head is complete; `ended`: no content follows.
    pub(crate) fn complete(&mut self, ended: bool) -> Completed<'_> {
        if self.line_bytes == 0 {
            self.write_line();
        }
        if self.malformed || (ended && self.content_length.is_some_and(|bytes| bytes > 0)) {
            return Completed::Malformed;
        }
        if !self.cookie.is_empty() {
            let cookie = std::mem::take(&mut self.cookie);
            self.write(b"cookie", &cookie);
            self.cookie = cookie;
        }
        if self.announced(ended) == Announced::UntilEnd {
            // For the relay: HTTP/1.1 needs it.
            self.write(b"transfer-encoding", b"chunked");
        }
        self.text.extend_from_slice(b"\r\n");
        if let Some(status) = self.refused {
            return Completed::Refused(status, &self.text);
        }
        let method = 0..self.method.len();
        let target = method.end + 1..self.line_bytes as usize - LINE_END_BYTES;
        match framed(&self.text, method, target, &self.fields) {
            Ok(request) => Completed::Request(request),
            Err(status) => Completed::Refused(status, &self.text),
        }
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) {
        let (bit, place, is_right): (u8, _, fn(u8) -> bool) = match name {
            b":method" => (METHOD, &mut self.method, is_token),
            b":scheme" => (SCHEME, &mut self.scheme, is_visible),
            b":authority" => (AUTHORITY, &mut self.authority, is_visible),
            b":path" => (PATH, &mut self.path, is_visible),
            _ => return self.malformed = true,
        };
        // Once each, before all other fields.
        if self.present & bit != 0 || self.line_bytes > 0 || (value.is_empty() && bit != AUTHORITY) {
            return self.malformed = true;
        }
        self.present |= bit;
        if !value.iter().all(|&byte| is_right(byte)) {
            self.refused.get_or_insert(Status::BadRequest);
        } else if value.len() > self.bytes_max {
            self.refused.get_or_insert(if bit == PATH { Status::TargetTooLong } else { Status::HeadTooLarge });
        } else {
            place.extend_from_slice(value);
        }
    }

    /// Writes the request line and the Host field: all pseudo-header fields are known.
    fn write_line(&mut self) {
        let is_connect = self.method == b"CONNECT";
        let required = if is_connect { METHOD | AUTHORITY } else { METHOD | SCHEME | PATH };
        let is_complete = if is_connect { self.present == required } else { self.present & required == required };
        let is_known_scheme = is_connect
            || self.refused.is_some()
            || self.scheme.eq_ignore_ascii_case(b"http")
            || self.scheme.eq_ignore_ascii_case(b"https");
        let is_target = is_connect
            || self.refused.is_some()
            || self.path.first() == Some(&b'/')
            || (self.path == b"*" && self.method == b"OPTIONS");
        if !is_complete || !is_target {
            self.malformed = true;
        } else if !is_known_scheme {
            self.refused.get_or_insert(Status::BadRequest);
        }
        let target = if is_connect { &self.authority } else { &self.path };
        self.text.extend_from_slice(&self.method);
        self.text.push(b' ');
        self.text.extend_from_slice(target);
        self.text.push(b' ');
        self.text.extend_from_slice(self.version.as_bytes());
        self.text.extend_from_slice(b"\r\n");
        self.line_bytes = self.text.len() as u32;
        if self.present & AUTHORITY != 0 {
            let authority = std::mem::take(&mut self.authority);
            self.write(b"host", &authority);
            self.authority = authority;
        }
    }

    fn write(&mut self, name: &[u8], value: &[u8]) {
        let at = self.text.len() as u32;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        let value_at = self.text.len() as u32;
        self.text.extend_from_slice(value);
        let end = self.text.len() as u32;
        self.text.extend_from_slice(b"\r\n");
        self.fields.push((at..at + name.len() as u32, value_at..end));
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) {
        if self.line_bytes == 0 {
            self.write_line();
        }
        let is_right = !name.is_empty()
            && name.iter().all(|&byte| is_token(byte) && !byte.is_ascii_uppercase())
            && value.iter().all(|&byte| is_value(byte))
            && !value.first().is_some_and(u8::is_ascii_whitespace)
            && !value.last().is_some_and(u8::is_ascii_whitespace);
        if !is_right {
            return self.malformed = true;
        }
        match name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                return self.malformed = true;
            }
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => return self.malformed = true,
            b"host" if self.present & AUTHORITY != 0 => {
                self.malformed |= !value.eq_ignore_ascii_case(&self.authority);
                return;
            }
            b"host" => {
                // A second one is refused as in HTTP/1.1.
                self.authority.clear();
                self.authority.extend_from_slice(value);
            }
            b"content-length" => {
                let text =
                    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                match text.and_then(|text| text.parse().ok()) {
                    Some(bytes) if self.content_length.is_none_or(|before| before == bytes) => {
                        // Once in the text.
                        if self.content_length.replace(bytes).is_some() {
                            return;
                        }
                    }
                    _ => return self.malformed = true,
                }
            }
            b"cookie" => {
                if !self.cookie.is_empty() {
                    self.cookie.extend_from_slice(b"; ");
                }
                return self.cookie.extend_from_slice(value);
            }
            _ => {}
        }
        self.write(name, value);
    }
}

/// Whether a field after the content may have this name: no pseudo-header field, and no upper case (RFC 9113, section
/// 8.1; RFC 9114, sections 4.2 and 4.3).
pub(crate) fn is_trailer(name: &[u8]) -> bool {
    name.first() != Some(&b':') && !name.iter().any(u8::is_ascii_uppercase)
}

/// A character of a method or a field name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
        || byte.is_ascii_alphanumeric()
}

/// A character of a target.
fn is_visible(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e)
}

/// A byte of a field value.
fn is_value(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x20..=0x7e | 0x80..)
}

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const AUTHORITY: u8 = 4;
const PATH: u8 = 8;
/// ` HTTP/2.0` and the line end.
const LINE_END_BYTES: usize = 11;
