//! Response heads: the fields of every response, and the short pages of error responses.

use std::io::Write as _;

use crate::media::is_compressible;

/// The status of a response without the requested file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 400
    BadRequest,
    /// 403: the file's permissions exclude the server.
    Forbidden,
    /// 404: also for paths outside the root, which must not be probed.
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 406: the client accepts neither an available content coding nor identity.
    NotAcceptable,
    /// 408: the request did not arrive in time.
    RequestTimeout,
    /// 412: a condition of the request does not hold.
    PreconditionFailed,
    /// 413: the request body is longer than the limit.
    ContentTooLarge,
    /// 414
    TargetTooLong,
    /// 416: none of the ranges is within the file.
    RangeNotSatisfiable,
    /// 417: the request expects something other than 100 (Continue).
    ExpectationFailed,
    /// 421: the server's certificate is not valid for the host.
    MisdirectedRequest,
    /// 425: the request may have been replayed, and its method is not safe (RFC 8470).
    TooEarly,
    /// 431
    HeadTooLarge,
    /// 500: reading the file failed.
    Failed,
    /// 501
    NotImplemented,
    /// 503: no descriptor or memory to open the file.
    Unavailable,
    /// 505
    VersionNotSupported,
}

impl Status {
    /// The three digits.
    pub(crate) fn code(self) -> u16 {
        self.line().bytes().take(3).fold(0, |code, digit| code * 10 + u16::from(digit - b'0'))
    }

    /// Code and reason.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::NotAcceptable => "406 Not Acceptable",
            Status::RequestTimeout => "408 Request Timeout",
            Status::PreconditionFailed => "412 Precondition Failed",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::TargetTooLong => "414 URI Too Long",
            Status::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Status::ExpectationFailed => "417 Expectation Failed",
            Status::MisdirectedRequest => "421 Misdirected Request",
            Status::TooEarly => "425 Too Early",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::Failed => "500 Internal Server Error",
            Status::NotImplemented => "501 Not Implemented",
            Status::Unavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Whether the connection persists after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Persistent, the default of HTTP/1.1.
    KeepAlive,
    /// Persistent for an HTTP/1.0 client, which needs the field.
    KeepAliveHttp10,
    /// Closed after this response.
    Close,
}

impl Persistence {
    /// From the decision to `keep` the connection, for a client of HTTP/1.1 (or, `old`, 1.0).
    pub(crate) fn of(keep: bool, old: bool) -> Self {
        match (keep, old) {
            (true, false) => Persistence::KeepAlive,
            (true, true) => Persistence::KeepAliveHttp10,
            (false, _) => Persistence::Close,
        }
    }

    /// The Connection field.
    pub(crate) fn field(self) -> &'static [u8] {
        match self {
            Persistence::KeepAlive => b"",
            Persistence::KeepAliveHttp10 => b"Connection: keep-alive\r\n",
            Persistence::Close => b"Connection: close\r\n",
        }
    }
}

/// The heads of a page that depend only on the file: made once, sent often.
///
/// ```text
///   HTTP/1.1 200 OK | Server | ETag, Last-Modified, Vary | Content-Type, -Encoding | Accept-Ranges, Content-Length
///   \_________________________________ whole __________________________________________________________________/
///                            \______ validators _______/ \________ kind _________/
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    whole: Box<[u8]>,
    validators_at: u16,
    kind_at: u16,
    ranges_at: u16,
    kind: &'static str,
    coding: Option<&'static str>,
    may_vary: bool,
}

impl Prepared {
    /// For a file of this media type (`.1`: guessed from its content) and length; `etag` with its quotes; `varies`: the
    /// path may be sent in another coding.
    pub(crate) fn new(
        kind: (&'static str, bool),
        length: u64,
        etag: Option<&str>,
        modified: Option<&[u8; 29]>,
        coding: Option<&'static str>,
        varies: bool,
    ) -> Self {
        let mut head = Vec::with_capacity(288);
        head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        head.extend_from_slice(SERVER);
        let validators_at = head.len() as u16;
        if let Some(etag) = etag {
            line(&mut head, b"ETag: ", etag.as_bytes());
        }
        if let Some(modified) = modified {
            line(&mut head, b"Last-Modified: ", modified);
        }
        if varies {
            head.extend_from_slice(VARY);
        }
        let kind_at = head.len() as u16;
        line(&mut head, b"Content-Type: ", kind.0.as_bytes());
        if kind.1 {
            // A browser must not guess a different type.
            head.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
        }
        if let Some(coding) = coding {
            line(&mut head, b"Content-Encoding: ", coding.as_bytes());
        }
        let ranges_at = head.len() as u16;
        field(&mut head, format_args!("Accept-Ranges: bytes\r\nContent-Length: {length}\r\n"));
        let may_vary = coding.is_none() && is_compressible(kind.0);
        Prepared { whole: head.into(), validators_at, kind_at, ranges_at, kind: kind.0, coding, may_vary }
    }

    /// The head of a 200.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// ETag, Last-Modified, Vary: the fields that a 304 repeats.
    pub(crate) fn validators(&self) -> &[u8] {
        &self.whole[usize::from(self.validators_at)..usize::from(self.kind_at)]
    }

    /// Content-Type and Content-Encoding lines.
    pub(crate) fn kind(&self) -> &[u8] {
        &self.whole[usize::from(self.kind_at)..usize::from(self.ranges_at)]
    }

    /// The media type.
    pub(crate) fn media_type(&self) -> &'static str {
        self.kind
    }

    /// The content coding's name.
    pub(crate) fn coding(&self) -> Option<&'static str> {
        self.coding
    }

    /// Whether precompressed variants are looked up for this type.
    pub(crate) fn may_vary(&self) -> bool {
        self.may_vary
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.whole.len()
    }
}

/// Appends a prepared head, the date, the Connection field and the empty line.
pub(crate) fn write_head(out: &mut Vec<u8>, prepared: &[u8], date: &[u8], persistence: Persistence) {
    out.extend_from_slice(prepared);
    out.extend_from_slice(date);
    out.extend_from_slice(persistence.field());
    out.extend_from_slice(b"\r\n");
}

/// Appends a complete response with one line of text, without that line if `head_only`.
pub(crate) fn write_refusal(out: &mut Vec<u8>, status: Status, date: &[u8], persistence: Persistence, head_only: bool) {
    write_refusal_with(out, status, b"", date, persistence, head_only);
}

/// [`write_refusal`] with additional field lines. Returns the bytes of content.
pub(crate) fn write_refusal_with(
    out: &mut Vec<u8>,
    status: Status,
    more: &[u8],
    date: &[u8],
    persistence: Persistence,
    head_only: bool,
) -> u64 {
    let line = status.line();
    let length = line.len() + 1;
    field(out, format_args!("HTTP/1.1 {line}\r\n"));
    out.extend_from_slice(SERVER);
    field(out, format_args!("Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"));
    write_head(out, more, date, persistence);
    if head_only {
        return 0;
    }
    field(out, format_args!("{line}\n"));
    length as u64
}

/// Appends a redirect to `path` with a slash added: relative links of an index page need it.
pub(crate) fn write_moved(out: &mut Vec<u8>, path: &[u8], query: Option<&[u8]>, date: &[u8], persistence: Persistence) {
    out.extend_from_slice(b"HTTP/1.1 301 Moved Permanently\r\n");
    out.extend_from_slice(SERVER);
    out.extend_from_slice(b"Content-Length: 0\r\nLocation: /");
    // Exactly one leading slash: `//host` would lead to another host. The parser refuses control characters, so the
    // path cannot end this line.
    let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    encoded(out, &path[first..]);
    out.push(b'/');
    if let Some(query) = query {
        out.push(b'?');
        encoded(out, query);
    }
    out.extend_from_slice(b"\r\n");
    write_head(out, b"", date, persistence);
}

/// Appends a part of a URI, with invalid characters percent-encoded: a browser reads `\` as `/`, so that `/\host` would
/// lead to another host too.
fn encoded(out: &mut Vec<u8>, part: &[u8]) {
    for &byte in part {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=b' ' | 0x7f.. => {
                field(out, format_args!("%{byte:02X}"));
            }
            _ => out.push(byte),
        }
    }
}

/// Appends `name` (with colon and space), `value` and a line end.
pub(crate) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends formatted text.
pub(crate) fn field(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = out.write_fmt(text);
}

/// The server's name: without a version, which only helps attackers.
pub(crate) const SERVER: &[u8] = b"Server: yamabiko\r\n";
/// The methods of a file.
pub(crate) const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";
/// For every response whose file has a precompressed variant (RFC 9110, section 12.5.5).
pub(crate) const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";
