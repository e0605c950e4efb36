//! Parses the head of a response for a client: status, framing, and whether the connection is persistent.
//!
//! ```text
//!   bytes --> httparse, 128 header lines --> Head                      nearly every head
//!                 '--> 512 lines, folded lines, HTTP/1.2 to 1.9 --> Head, or a Fault with its reason
//! ```
//!
//! Folded lines (RFC 9112, section 5.2) are parsed as one line; [`unfold`] joins them in place.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use crate::fault::{Fault, Reason};
use crate::framing::{Body, Fields, RequestMethod, Role, Version};
use crate::list::{is_text, is_token, members};

/// Maximum bytes of a head, with its empty line. The limits of servers for their own heads are 8 to 64 KiB.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum header lines of one head.
pub const FIELDS_MAX: usize = 512;

/// Maximum header lines of the first attempt: 4 KiB of uninitialised stack.
const FIELDS_FIRST_ATTEMPT: usize = 128;

/// The first bytes of every response. Other input is rejected before its first line is complete.
pub const PREFIX: &[u8] = b"HTTP/1.";

/// The parts of a head that a client needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code, 100 to 999.
    pub status: u16,
    /// How the response's body ends.
    pub body: Body,
    /// Whether the connection may serve another request.
    pub keep_alive: bool,
    /// Bytes of the head, with its empty line.
    pub length: usize,
    /// Whether the head may have folded lines.
    pub is_folded: bool,
}

impl Head {
    /// Whether the response is interim (1xx), so that another response follows it.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// Parses the head at the beginning of `bytes`; `None` if the head is incomplete. `method` is the request's.
///
/// # Errors
/// The bytes are not a head, the head has too many header lines, or the end of its body is unknown.
pub fn parse(bytes: &[u8], method: RequestMethod) -> Result<Option<Head>, Fault> {
    if bytes.iter().zip(PREFIX).any(|(byte, expected)| byte != expected) {
        return Err(Fault::new(Reason::NotHttp1, bytes));
    }
    // The headers stay uninitialised: clearing 128 of them takes as long as parsing ten.
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_FIRST_ATTEMPT];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
    match parsed {
        Ok(httparse::Status::Complete(length)) => read(&response, length, method).map(Some),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => parse_rare(bytes, method),
    }
}

/// Parses a head that the first attempt rejected.
#[cold]
#[inline(never)]
fn parse_rare(bytes: &[u8], method: RequestMethod) -> Result<Option<Head>, Fault> {
    // RFC 9110, section 2.5: an unknown higher minor version is treated as the highest known one.
    let minor = bytes.get(PREFIX.len()).copied();
    let text = if matches!(minor, Some(b'2'..=b'9')) {
        let mut copy = bytes.to_vec();
        copy[PREFIX.len()] = b'1';
        Cow::Owned(copy)
    } else {
        Cow::Borrowed(bytes)
    };
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    match config.parse_response_with_uninit_headers(&mut response, &text, &mut headers) {
        Ok(httparse::Status::Complete(length)) => {
            let head = read(&response, length, method)?;
            Ok(Some(Head { is_folded: true, ..head }))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            Err(Fault::new(Reason::TooManyFields, FIELDS_MAX.to_string().as_bytes()))
        }
        Err(_) => Err(diagnose(&text)),
    }
}

fn read(response: &httparse::Response<'_, '_>, length: usize, method: RequestMethod) -> Result<Head, Fault> {
    let status = response.code.unwrap_or(0);
    if status < 100 {
        return Err(Fault::new(Reason::StatusLine, status.to_string().as_bytes()));
    }
    let version = if response.version == Some(0) { Version::Http10 } else { Version::Http11 };
    let mut fields = Fields::default();
    let (mut close, mut keep) = (false, false);
    for header in response.headers.iter() {
        // The length of the name excludes nearly every other header.
        match header.name.len() {
            10 if header.name.eq_ignore_ascii_case("connection") => {
                for option in members(header.value) {
                    close |= option.eq_ignore_ascii_case(b"close");
                    keep |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if header.name.eq_ignore_ascii_case("content-length") => fields.content_length(header.value),
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => fields.transfer_encoding(header.value),
            _ => {}
        }
    }
    let body = fields.response(Role::Client, status, version, method)?;
    let is_reusable = !matches!(body, Body::UntilClose | Body::Tunnel) && !fields.is_ambiguous();
    let keep_alive = is_reusable && !close && (version == Version::Http11 || keep);
    Ok(Head { status, body, keep_alive, length, is_folded: false })
}

/// Joins folded lines in place: each line break before white space becomes spaces (RFC 9112, section 5.2).
pub fn unfold(head: &mut [u8]) {
    let mut at = 0;
    while let Some(end) = memchr::memchr(b'\n', &head[at..]).map(|found| at + found) {
        at = end + 1;
        if matches!(head.get(at), Some(b' ' | b'\t')) {
            head[end] = b' ';
            if end > 0 && head[end - 1] == b'\r' {
                head[end - 1] = b' ';
            }
        }
    }
}

/// Finds the first invalid line of a head that the parser rejected; the parser's own error has no position.
fn diagnose(bytes: &[u8]) -> Fault {
    let mut lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().unwrap_or_default();
    if !is_status_line(first) {
        return Fault::new(Reason::StatusLine, first);
    }
    for (at, line) in lines.enumerate() {
        let reason = match line {
            [] => break,
            [b' ' | b'\t', ..] if at == 0 => Some(Reason::LeadingSpace),
            [b' ' | b'\t', value @ ..] => wrong_value(value),
            _ => match line.iter().position(|&byte| byte == b':') {
                Some(colon) => wrong_name(&line[..colon]).or_else(|| wrong_value(&line[colon + 1..])),
                None if line.iter().all(|&byte| is_text(byte)) => Some(Reason::NoColon),
                None => Some(Reason::FieldName),
            },
        };
        if let Some(reason) = reason {
            return Fault::new(reason, line);
        }
    }
    Fault::new(Reason::StatusLine, first)
}

fn is_status_line(line: &[u8]) -> bool {
    let Some([b'0'..=b'9', b' ', a, b, c, rest @ ..]) = line.strip_prefix(PREFIX) else { return false };
    let has_status = [a, b, c].iter().all(|digit| digit.is_ascii_digit());
    has_status && (rest.is_empty() || (rest[0] == b' ' && rest.iter().all(|&byte| is_text(byte))))
}

fn wrong_name(name: &[u8]) -> Option<Reason> {
    let trimmed = name.trim_ascii_end();
    let is_name = !trimmed.is_empty() && trimmed.iter().all(|&byte| is_token(byte));
    match (is_name, trimmed.len() < name.len()) {
        (true, false) => None,
        (true, true) => Some(Reason::SpaceBeforeColon),
        (false, _) => Some(Reason::FieldName),
    }
}

fn wrong_value(value: &[u8]) -> Option<Reason> {
    if value.iter().all(|&byte| is_text(byte)) { None } else { Some(Reason::FieldValue) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        parse(text.as_bytes(), RequestMethod::Other).unwrap().unwrap()
    }

    fn fault(text: &str) -> String {
        parse(text.as_bytes(), RequestMethod::Other).unwrap_err().to_string()
    }

    #[test]
    fn folded_header_lines_are_joined() {
        let folded = "HTTP/1.1 200 OK\r\nX-A: one\r\n two\r\nContent-Length:\r\n\t5\r\nX-B: y\r\n\r\n";
        let read = head(folded);
        assert_eq!(
            (read.body, read.length, read.is_folded, read.keep_alive),
            (Body::Length(5), folded.len(), true, true)
        );
        let mut text = folded.as_bytes().to_vec();
        unfold(&mut text);
        assert_eq!(text, b"HTTP/1.1 200 OK\r\nX-A: one   two\r\nContent-Length:  \t5\r\nX-B: y\r\n\r\n");
        // A head is incomplete until the first byte after the line end shows whether the line is folded.
        for cut in 0..folded.len() {
            assert_eq!(parse(&folded.as_bytes()[..cut], RequestMethod::Other), Ok(None), "{cut}");
        }
        let coded = head("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip,\r\n chunked\r\n\r\n");
        assert_eq!(coded.body, Body::Chunked);
        let bare = "HTTP/1.1 200 OK\nX: a\n b\n\n";
        assert_eq!(head(bare).length, bare.len());
    }

    #[test]
    fn the_number_of_header_lines_is_limited() {
        let lines =
            |count: usize| format!("HTTP/1.1 200 OK\r\n{}Content-Length: 5\r\n\r\n", "X: y\r\n".repeat(count - 1));
        for count in [1, FIELDS_FIRST_ATTEMPT, FIELDS_FIRST_ATTEMPT + 1, FIELDS_MAX] {
            assert_eq!(head(&lines(count)).body, Body::Length(5), "{count}");
        }
        assert_eq!(fault(&lines(FIELDS_MAX + 1)), "more than `512` header lines");
        assert!(parse(lines(FIELDS_MAX + 1).as_bytes(), RequestMethod::Other).unwrap_err().is_head_too_large());
    }

    #[test]
    fn a_later_minor_version_is_treated_as_http_1_1() {
        let read = head("HTTP/1.2 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!((read.body, read.keep_alive), (Body::Chunked, true));
        assert_eq!(
            fault("HTTP/1.x 200 OK\r\n\r\n"),
            "status line `HTTP/1.x 200 OK` is not `HTTP/1.x` and a status of three digits"
        );
    }

    #[test]
    fn malformed_heads_are_reported_with_their_fault() {
        for (lines, message) in [
            ("SSH-2.0-OpenSSH_9.2\r\n", "`SSH-2.0-OpenSSH_9.2\\r\\n` is not the beginning of an HTTP/1 response"),
            ("HTTP/1.1 20 OK\r\n\r\n", "status line `HTTP/1.1 20 OK` is not `HTTP/1.x` and a status of three digits"),
            ("HTTP/1.1 099 No\r\n\r\n", "status line `99` is not `HTTP/1.x` and a status of three digits"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
                "header line `Content-Length : 5` has white space before its colon",
            ),
            ("HTTP/1.1 200 OK\r\nthis is no field\r\n\r\n", "header line `this is no field` has no colon"),
            ("HTTP/1.1 200 OK\r\nX-N: a\0b\r\n\r\n", "header line `X-N: a\\x00b` has a control character"),
            ("HTTP/1.1 200 OK\r\nX-N: a\rb\r\n\r\n", "header line `X-N: a\\rb` has a control character"),
            ("HTTP/1.1 200 OK\r\n X: y\r\n\r\n", "the first header line ` X: y` begins with white space"),
            ("HTTP/1.1 200 OK\r\nX: y\r\n a\0b\r\n\r\n", "header line ` a\\x00b` has a control character"),
            (
                "HTTP/1.1 200 OK\r\nNa(me: x\r\n\r\n",
                "header line `Na(me: x` begins with something other than a header name",
            ),
            ("HTTP/1.1 200 OK\r\n: x\r\n\r\n", "header line `: x` begins with something other than a header name"),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", "Content-Length `+5` is not a number"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                "Content-Length has the different values `5, 6`",
            ),
        ] {
            assert_eq!(fault(lines), message, "{lines:?}");
        }
    }

    #[test]
    fn keep_alive_follows_version_and_connection_header() {
        let keep_alive =
            |version: &str, fields: &str| head(&format!("HTTP/{version} 200 OK\r\n{fields}\r\n")).keep_alive;
        assert!(keep_alive("1.1", "Content-Length: 5\r\n"));
        assert!(keep_alive("1.1", "Content-Length: 5, 5\r\n"));
        assert!(keep_alive("1.0", "Content-Length: 5\r\nConnection: Keep-Alive\r\n"));
        assert!(!keep_alive("1.0", "Content-Length: 5\r\n"));
        assert!(!keep_alive("1.1", "Content-Length: 5\r\nConnection: foo, Close\r\n"));
        assert!(!keep_alive("1.1", ""));
        // A proxy before this client may have found another end of the message.
        assert!(!keep_alive("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"));
        assert!(!keep_alive("1.1", "Transfer-Encoding: chunked, chunked\r\n"));
        assert!(keep_alive("1.1", "Transfer-Encoding: gzip, chunked\r\n"));
    }
}
