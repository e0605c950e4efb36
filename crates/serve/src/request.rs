//! One request head: complete, incomplete or refused. Pure: bytes in, meaning out.
//!
//! ```text
//!   input ──httparse──▶ lines ──stricter rules──▶ Fields ──framing, target──▶ Request   (all of it borrowed from the input)
//! ```
//!
//! A request that two parsers could read differently is refused: request smuggling uses requests that mean one thing
//! here and another at a program in front or behind. The crate `http1` decides the framing of the body, in its column
//! for servers; `request/chunks.rs` reads chunked bodies, `request/target.rs` the target and the Host field.

mod chunks;
mod fields;
mod target;

pub(crate) use chunks::{Chunks, Step};
pub(crate) use fields::{Fields, Lines};
pub(crate) use http1::list::members;

use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Error, Header};

use crate::response::Status;
use crate::spec::Limits;
use fields::FieldCollector;

/// Result of parsing the beginning of a connection's input.
#[allow(clippy::large_enum_variant, reason = "made and taken apart at once, on the stack: boxing would allocate")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The beginning of a head, valid so far.
    Incomplete,
    /// A complete head.
    Complete(Request<'a>),
    /// An invalid request. The following input cannot be separated from it, so the connection closes after this status.
    Refused(Status),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// The request method.
    pub(crate) method: Method,
    /// The request target as sent.
    pub(crate) target: &'a [u8],
    /// The path of the target: percent-encoded, without query, beginning with `/`. `*` for `OPTIONS *`, the authority
    /// for CONNECT.
    pub(crate) path: &'a [u8],
    /// The text after the first `?`.
    pub(crate) query: Option<&'a [u8]>,
    /// HTTP/1.0: keep-alive must be explicit.
    pub(crate) old: bool,
    /// Whether the client requests a persistent connection.
    pub(crate) keep_alive: bool,
    /// The announced body.
    pub(crate) body: Body,
    /// The client waits for 100 (Continue) or a final status before it sends the body.
    pub(crate) expects_continue: bool,
    /// Request line and fields, to the end of the empty line.
    pub(crate) head: &'a [u8],
    /// Bytes of the input up to the end of the head: longer than `head` after leading empty lines.
    pub(crate) length: usize,
    /// The fields that a file's response depends on, and all lines.
    pub(crate) fields: Fields<'a>,
}

/// Request methods (RFC 9110, section 9; RFC 5789).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    /// The response ends with its head.
    Head,
    Options,
    Post,
    Put,
    Delete,
    Patch,
    Trace,
    Connect,
    /// Any other token; names are case-sensitive.
    Unknown,
}

/// The body that a request announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Nothing follows, or `Content-Length: 0`.
    None,
    /// Length in bytes, at least 1.
    Bytes(u64),
    /// Chunked, to be read by [`Chunks`].
    Chunked,
}

impl<'a> Request<'a> {
    /// The name of the method as sent.
    pub(crate) fn method_name(&self) -> &'a [u8] {
        let end = self.head.iter().position(|&byte| byte == b' ').unwrap_or(self.head.len());
        &self.head[..end]
    }
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            "TRACE" => Method::Trace,
            "CONNECT" => Method::Connect,
            _ => Method::Unknown,
        }
    }
}

/// Parses a head at the beginning of `input`, which is not empty. Refuses heads longer than `limits.head_bytes` or with
/// more than `limits.head_fields` fields.
pub(crate) fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    parse_within(input, limits.head_bytes, limits.head_fields)
}

/// [`parse`] with the two relevant limits.
pub(crate) fn parse_within(input: &[u8], head_bytes: usize, head_fields: usize) -> Parsed<'_> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut []);
    match head.parse_with_uninit_headers(input, &mut headers[..head_fields.min(FIELDS_MAX)]) {
        Ok(httparse::Status::Complete(length)) if length <= head_bytes => {
            read(&head, &input[..length]).map_or_else(Parsed::Refused, Parsed::Complete)
        }
        Ok(httparse::Status::Partial) if input.len() < head_bytes => Parsed::Incomplete,
        Ok(_) => Parsed::Refused(too_long(input, head_bytes)),
        Err(Error::TooManyHeaders) => Parsed::Refused(Status::HeadTooLarge),
        Err(Error::Version) => read_later_minor(input, head_bytes, head_fields),
        Err(_) => Parsed::Refused(Status::BadRequest),
    }
}

/// RFC 9110, section 2.5: a higher minor version is read as the highest known one. The parser knows 1.0 and 1.1 only,
/// so the request line of 1.2 to 1.9 is parsed in a copy with 1.1.
fn read_later_minor(input: &[u8], head_bytes: usize, head_fields: usize) -> Parsed<'_> {
    let start = input.iter().position(|&byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let found = memchr::memmem::find(&input[start..], b"\r\n").map(|end| start + end);
    let line = match found {
        Some(end) => &input[start..end],
        None => input[start..].strip_suffix(b"\r").unwrap_or(&input[start..]),
    };
    let (before_minor, minor) = line.split_at(line.len().saturating_sub(1));
    if !before_minor.ends_with(b" HTTP/1.") || !matches!(minor, [b'2'..=b'9']) {
        return Parsed::Refused(odd_version(input));
    }
    let Some(end) = found else {
        return if input.len() < head_bytes {
            Parsed::Incomplete
        } else {
            Parsed::Refused(too_long(input, head_bytes))
        };
    };
    let copy = [before_minor, &b"1\r\n\r\n"[..]].concat();
    let mut judged = httparse::Request::new(&mut []);
    if !matches!(judged.parse(&copy), Ok(httparse::Status::Complete(_))) {
        return Parsed::Refused(Status::BadRequest);
    }
    // The same words at their position in the input.
    let mut words = line.split(|&byte| byte == b' ').map(|word| std::str::from_utf8(word).ok());
    let (method, path) = (words.next().flatten(), words.next().flatten());
    if method != judged.method || path != judged.path {
        return Parsed::Refused(Status::BadRequest);
    }
    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let rest = &input[end + 2..];
    match httparse::parse_headers(rest, &mut headers[..head_fields.min(FIELDS_MAX)]) {
        Ok(httparse::Status::Complete((length, fields))) if end + 2 + length <= head_bytes => {
            let count = fields.len();
            let head = httparse::Request { method, path, version: Some(1), headers: &mut headers[..count] };
            read(&head, &input[..end + 2 + length]).map_or_else(Parsed::Refused, Parsed::Complete)
        }
        Ok(httparse::Status::Partial) if input.len() < head_bytes => Parsed::Incomplete,
        Ok(_) => Parsed::Refused(too_long(input, head_bytes)),
        Err(Error::TooManyHeaders) => Parsed::Refused(Status::HeadTooLarge),
        Err(_) => Parsed::Refused(Status::BadRequest),
    }
}

/// Replaces the version of a head that was parsed as 1.1, or decoded from HTTP/2 or HTTP/3, for later parsers.
pub(crate) fn as_known_version(head: &mut [u8]) {
    if let Some(end) = memchr::memchr(b'\r', head)
        && let Some(version) = head[..end].last_chunk_mut::<3>()
    {
        match version {
            [b'1', b'.', b'2'..=b'9'] | [b'2' | b'3', b'.', b'0'] => *version = *b"1.1",
            _ => {}
        }
    }
}

fn read<'a>(parsed: &httparse::Request<'_, 'a>, input: &'a [u8]) -> Result<Request<'a>, Status> {
    if has_bare_line_feed(input) {
        return Err(Status::BadRequest);
    }
    // RFC 9112, section 2.2: empty lines before the request line are skipped.
    let head = &input[input.iter().position(|&byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0)..];
    let old = parsed.version == Some(0);
    let mut gathered = FieldCollector::default();
    for header in parsed.headers.iter() {
        gathered.take(header);
    }
    let method = Method::of(parsed.method.unwrap_or_default());
    let target = parsed.path.unwrap_or_default().as_bytes();
    Ok(Request { length: input.len(), ..judge(method, target, gathered, old, head)? })
}

/// The request whose head `head` was decoded from HTTP/2 or HTTP/3: method and target, and name and value of each
/// field, as ranges of it. The names are valid and in lower case, and no value has a control character.
///
/// # Errors
/// As for a head of HTTP/1.1.
pub(crate) fn framed<'a>(
    head: &'a [u8],
    method: Range<usize>,
    target: Range<usize>,
    fields: &[(Range<u32>, Range<u32>)],
) -> Result<Request<'a>, Status> {
    let mut gathered = FieldCollector::default();
    for (name, value) in fields {
        let name = std::str::from_utf8(&head[name.start as usize..name.end as usize]).unwrap_or_default();
        gathered.take(&Header { name, value: &head[value.start as usize..value.end as usize] });
    }
    let method = Method::of(std::str::from_utf8(&head[method]).unwrap_or_default());
    judge(method, &head[target], gathered, false, head)
}

/// The request of a well-formed head.
fn judge<'a>(
    method: Method,
    target: &'a [u8],
    gathered: FieldCollector<'a>,
    old: bool,
    head: &'a [u8],
) -> Result<Request<'a>, Status> {
    let FieldCollector { mut fields, hosts, close, keep_alive, framing, expectation } = gathered;
    // RFC 9112, section 3.2: an HTTP/1.1 request without Host, and any request with two Host fields or an invalid one,
    // gets 400.
    if hosts > 1 || (hosts == 0 && !old) || !fields.host.is_none_or(target::is_host) {
        return Err(Status::BadRequest);
    }
    let place = target::read(method, target)?;
    // RFC 9112, section 3.2.2: the host of an absolute target replaces the Host field.
    fields.host = place.authority.or(fields.host);
    fields.head = head;
    let body = fields::body(&framing, old)?;
    // RFC 9110, section 10.1.1: HTTP/1.0 has no 100 (Continue).
    let expects_continue = expectation.expects_continue()? && !old && body != Body::None;
    let keep_alive = if old { keep_alive && !close } else { !close };
    Ok(Request {
        method,
        target,
        path: place.path,
        query: place.query,
        old,
        keep_alive,
        body,
        expects_continue,
        head,
        length: head.len(),
        fields,
    })
}

/// RFC 9112, section 2.2, permits line ends without CR; not every program accepts them, so such a head is ambiguous.
/// (httparse refuses a bare CR, NUL, folded lines and a space before a colon.)
fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// The status of a head that is too long.
fn too_long(input: &[u8], head_bytes: usize) -> Status {
    let line = &input[..input.len().min(head_bytes)];
    if line.contains(&b'\n') { Status::HeadTooLarge } else { Status::TargetTooLong }
}

/// The major version is not 1, or is missing.
fn odd_version(input: &[u8]) -> Status {
    let start = input.iter().position(|&byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let line = input[start..].split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    match line.split(|&byte| byte == b' ').nth(2).and_then(|word| word.strip_prefix(b"HTTP/")) {
        // Major version 1, but malformed.
        Some([b'1', b'.', b'0'..=b'9']) => Status::BadRequest,
        Some([b'0'..=b'9', b'.', b'0'..=b'9'] | [b'0'..=b'9', b'.'] | [b'0'..=b'9']) => Status::VersionNotSupported,
        _ => Status::BadRequest,
    }
}

/// Upper bound of [`Limits::head_fields`], which keeps the parser's table on the stack.
pub(crate) const FIELDS_MAX: usize = 128;

#[cfg(test)]
mod tests;
