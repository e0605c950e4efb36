//! Response heads: what every response says, and the short pages of those that are not 200.

use std::io::Write as _;

/// A response that is not the file asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 400
    BadRequest,
    /// 403: there is a file, but its permissions keep the server out.
    Forbidden,
    /// 404: also for what leads out of the root, so that nothing outside can be probed.
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 414
    TargetTooLong,
    /// 431
    HeadTooLarge,
    /// 500: reading the file failed.
    Failed,
    /// 501
    NotImplemented,
    /// 503: no descriptor or memory left to open the file.
    Unavailable,
    /// 505
    VersionNotSupported,
}

impl Status {
    /// Code and reason.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::TargetTooLong => "414 URI Too Long",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::Failed => "500 Internal Server Error",
            Status::NotImplemented => "501 Not Implemented",
            Status::Unavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// What becomes of the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Kept, as HTTP/1.1 does without a word.
    Kept,
    /// Kept, for a client of HTTP/1.0, which must be told.
    KeptOld,
    /// Closed after this response.
    Closed,
}

impl Fate {
    /// The field that says so.
    fn field(self) -> &'static [u8] {
        match self {
            Fate::Kept => b"",
            Fate::KeptOld => b"Connection: keep-alive\r\n",
            Fate::Closed => b"Connection: close\r\n",
        }
    }
}

/// The part of a 200's head that depends only on the file: prepared once, sent often.
pub(crate) fn prepare_ok(content_type: &str, length: u64, modified: &[u8; 29]) -> Box<[u8]> {
    let mut head = Vec::with_capacity(192);
    head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    head.extend_from_slice(SERVER);
    head.extend_from_slice(b"Content-Type: ");
    head.extend_from_slice(content_type.as_bytes());
    field(&mut head, format_args!("\r\nContent-Length: {length}\r\nLast-Modified: "));
    head.extend_from_slice(modified);
    head.extend_from_slice(b"\r\n");
    head.into_boxed_slice()
}

/// Appends a prepared head, the date, the connection's fate and the empty line.
pub(crate) fn write_head(out: &mut Vec<u8>, prepared: &[u8], date: &[u8], fate: Fate) {
    out.extend_from_slice(prepared);
    out.extend_from_slice(date);
    out.extend_from_slice(fate.field());
    out.extend_from_slice(b"\r\n");
}

/// Appends a whole response of one line of text, without that line if `head_only`.
pub(crate) fn write_refusal(out: &mut Vec<u8>, status: Status, date: &[u8], fate: Fate, head_only: bool) {
    let line = status.line();
    let length = line.len() + 1;
    field(out, format_args!("HTTP/1.1 {line}\r\n"));
    out.extend_from_slice(SERVER);
    field(out, format_args!("Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"));
    if status == Status::MethodNotAllowed {
        out.extend_from_slice(b"Allow: GET, HEAD\r\n");
    }
    write_head(out, b"", date, fate);
    if !head_only {
        field(out, format_args!("{line}\n"));
    }
}

/// Appends a redirect to `path` with a slash added: without it, relative links of a directory's page would miss.
pub(crate) fn write_moved(out: &mut Vec<u8>, path: &[u8], date: &[u8], fate: Fate) {
    out.extend_from_slice(b"HTTP/1.1 301 Moved Permanently\r\n");
    out.extend_from_slice(SERVER);
    out.extend_from_slice(b"Content-Length: 0\r\nLocation: /");
    // Exactly one leading slash: `//host` would send the client to another host. The parser let no control character
    // through, so the path cannot end this line.
    let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    out.extend_from_slice(&path[first..]);
    out.extend_from_slice(b"/\r\n");
    write_head(out, b"", date, fate);
}

fn field(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = out.write_fmt(text);
}

const SERVER: &[u8] = b"Server: yamabiko\r\n";
