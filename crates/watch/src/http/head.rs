//! Heads of HTTP/1 messages (RFC 9112), parsed for an observer: leniently, and as far as they were captured.

use http1::list::is_text;
use http1::{Body, Reason, RequestMethod, Role, Version};
use memchr::memchr;
use schema::Direction;

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a [u8],
    /// `None` when the first line was truncated.
    pub(super) target: Option<&'a [u8]>,
    pub(super) host: Option<&'a [u8]>,
    pub(super) referer: Option<&'a [u8]>,
    pub(super) user_agent: Option<&'a [u8]>,
    /// The minor version of HTTP/1: a digit.
    pub(super) minor_version: Option<u8>,
    /// How its body ends, or why that is unknown.
    pub(super) body: Result<Body, Reason>,
    /// Offset just past its empty line, if it was captured.
    pub(super) end: Option<usize>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    /// How its body ends, or why that is unknown.
    pub(super) body: Result<Body, Reason>,
    /// Whether it switches the connection to HTTP/2 (RFC 7540, section 3.2).
    pub(super) is_http2: bool,
    /// Offset just past its empty line, if it was captured.
    pub(super) end: Option<usize>,
}

/// A head of either direction.
pub(super) enum Head<'a> {
    Request(RequestHead<'a>),
    Response(ResponseHead),
}

impl Head<'_> {
    /// Reads a head whose end may be missing; `None` when its first line is not HTTP/1. A response belongs to a request
    /// of kind `request_kind`.
    pub(super) fn read(direction: Direction, bytes: &[u8], request_kind: RequestMethod) -> Option<Head<'_>> {
        match direction {
            Direction::Up => request(bytes).map(Head::Request),
            Direction::Down => response(bytes, request_kind).map(Head::Response),
        }
    }

    pub(super) fn end(&self) -> Option<usize> {
        match self {
            Head::Request(head) => head.end,
            Head::Response(head) => head.end,
        }
    }
}

/// Whether a head of this direction may begin with `bytes`.
pub(super) fn may_be(direction: Direction, bytes: &[u8]) -> bool {
    match direction {
        Direction::Up => may_be_request(bytes),
        Direction::Down => may_be_response(bytes),
    }
}

/// The end of a head that begins at the start of `bytes`: the offset just past its empty line. Searches from `from` on.
pub(super) fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(position) = memchr(b'\n', bytes.get(at..)?) {
        at += position + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Whether `bytes` may start a request: a token of capital letters, and a space if there are enough of them.
pub(super) fn may_be_request(bytes: &[u8]) -> bool {
    let letters = bytes.iter().take(METHOD_MAX + 1).take_while(|byte| is_method_byte(**byte)).count();
    letters > 0 && letters <= METHOD_MAX && bytes.get(letters).is_none_or(|&byte| byte == b' ')
}

/// Whether `bytes` may start a response.
pub(super) fn may_be_response(bytes: &[u8]) -> bool {
    let length = bytes.len().min(VERSION.len());
    length > 0 && bytes[..length] == VERSION[..length]
}

/// Parses a request head from bytes whose end may be missing, and which other bytes may follow. `None` when the first
/// line is not a request line.
pub(super) fn request(bytes: &[u8]) -> Option<RequestHead<'_>> {
    let (line, fields) = first_line(bytes);
    // A longer token is not a method.
    let space = line.iter().take(METHOD_MAX + 1).position(|&byte| byte == b' ')?;
    let (method, rest) = (&line[..space], &line[space + 1..]);
    if method.is_empty() || method.len() > METHOD_MAX || !method.iter().all(|&byte| is_method_byte(byte)) {
        return None;
    }
    let mut head = RequestHead {
        method,
        target: None,
        host: None,
        referer: None,
        user_agent: None,
        minor_version: None,
        body: Ok(Body::None),
        end: None,
    };
    // Without a captured version, only a standard method makes it a request.
    let Some(fields) = fields else { return METHODS.contains(&method).then_some(head) };
    // The last space separates target and version: some clients send spaces in the target.
    let version = rest.iter().rposition(|&byte| byte == b' ')?;
    if version == 0 || !rest[version + 1..].starts_with(VERSION) {
        return None;
    }
    head.target = Some(&rest[..version]);
    let minor = rest.get(version + 1 + VERSION.len());
    let fields = Fields::read(bytes, fields);
    head.minor_version = minor.filter(|digit| digit.is_ascii_digit()).map(|digit| digit - b'0');
    (head.host, head.referer, head.user_agent) = (fields.host, fields.referer, fields.user_agent);
    (head.body, head.end) = (fields.of_request(minor), fields.end);
    Some(head)
}

/// Parses a response head from bytes whose end may be missing, and which other bytes may follow. `None` when the status
/// cannot be read or the first line is not a status line.
pub(super) fn response(bytes: &[u8], request_kind: RequestMethod) -> Option<ResponseHead> {
    let (line, fields) = first_line(bytes);
    let (minor, rest) = line.strip_prefix(VERSION)?.split_first()?;
    let digits = rest.strip_prefix(b" ")?.first_chunk::<3>()?;
    if !digits.iter().all(u8::is_ascii_digit) || rest.get(4).is_some_and(|&byte| byte != b' ') {
        return None;
    }
    let status = digits.iter().fold(0, |status, &digit| status * 10 + u16::from(digit - b'0'));
    let at = fields;
    let fields = fields.map(|fields| Fields::read(bytes, fields)).unwrap_or_default();
    let is_http2 = status == 101 && switches_to_http2(&bytes[at.unwrap_or(0)..fields.end.unwrap_or(bytes.len())]);
    Some(ResponseHead { status, body: fields.of_response(status, minor, request_kind), is_http2, end: fields.end })
}

/// Whether the field lines name HTTP/2 in clear as the new protocol.
#[cold]
fn switches_to_http2(lines: &[u8]) -> bool {
    let lines = lines.split(|&byte| byte == b'\n').map(trim_end);
    lines.filter_map(|line| value_of(line, b"upgrade")).any(|value| value.eq_ignore_ascii_case(b"h2c"))
}

/// The first line without its end, and the offset behind it; `None` for that when the line's end is missing.
#[inline]
fn first_line(bytes: &[u8]) -> (&[u8], Option<usize>) {
    match line_end(bytes) {
        Some(end) => (trim_end(&bytes[..end]), Some(end + 1)),
        None => (bytes, None),
    }
}

/// The offset of the first line feed. Most lines are short: the first bytes are searched here, eight at a time, and
/// only long ones need the call.
#[inline]
fn line_end(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let near = &bytes[..bytes.len().min(INLINE_SEARCH_BYTES)];
    let (eights, rest) = near.as_chunks::<8>();
    for (at, eight) in eights.iter().enumerate() {
        let differs = u64::from_le_bytes(*eight) ^ (ONES * b'\n' as u64);
        // The lowest bit set is in the first byte that is zero (S. E. Anderson, Bit Twiddling Hacks).
        let zeros = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if zeros != 0 {
            return Some(at * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let before = near.len() - rest.len();
    match rest.iter().position(|&byte| byte == b'\n') {
        Some(at) => Some(before + at),
        None => memchr(b'\n', &bytes[near.len()..]).map(|at| near.len() + at),
    }
}

/// The relevant fields of a head.
#[derive(Debug, Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    referer: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    framing: http1::Fields<'a>,
    /// A field that frames the message is invalid.
    fault: Option<Reason>,
    end: Option<usize>,
}

impl<'a> Fields<'a> {
    /// Reads complete field lines of `bytes` from `at` on, up to the empty line, if it was captured.
    fn read(bytes: &'a [u8], mut at: usize) -> Fields<'a> {
        let mut fields = Fields::default();
        if matches!(bytes.get(at), Some(b' ' | b'\t')) {
            fields.fault = Some(Reason::LeadingSpace);
        }
        while let Some(length) = line_end(&bytes[at..]) {
            let line = trim_end(&bytes[at..at + length]);
            let from = at;
            at += length + 1;
            // Five names are relevant; the first letter excludes most others.
            match line.first() {
                None => {
                    fields.end = Some(at);
                    break;
                }
                Some(b'c' | b'C') if is_name(line, LENGTH) => at = fields.note_framing(bytes, from, at, LENGTH),
                Some(b't' | b'T') if is_name(line, CODING) => at = fields.note_framing(bytes, from, at, CODING),
                Some(b'h' | b'H') if fields.host.is_none() => fields.host = value_of(line, b"host"),
                Some(b'r' | b'R') if fields.referer.is_none() => fields.referer = value_of(line, b"referer"),
                Some(b'u' | b'U') if fields.user_agent.is_none() => fields.user_agent = value_of(line, b"user-agent"),
                Some(_) => {}
            }
        }
        fields
    }

    /// Processes a field that frames the message, from `from` to `to`, with its folded lines (RFC 9112, section 5.2).
    /// Returns its end.
    #[inline(never)]
    fn note_framing(&mut self, bytes: &'a [u8], from: usize, mut to: usize, name: &[u8]) -> usize {
        while matches!(bytes.get(to), Some(b' ' | b'\t'))
            && let Some(length) = line_end(&bytes[to..])
        {
            to += length + 1;
        }
        let after = &bytes[from + name.len()..to];
        let [b':', value @ ..] = after else {
            self.fault.get_or_insert(Reason::SpaceBeforeColon);
            return to;
        };
        let lines = value.split(|&byte| byte == b'\n').map(trim_end);
        if !lines.flatten().all(|&byte| is_text(byte)) {
            self.fault.get_or_insert(Reason::FieldValue);
        } else if name == LENGTH {
            self.framing.content_length(value);
        } else {
            self.framing.transfer_encoding(value);
        }
        to
    }

    fn of_request(&self, minor: Option<&u8>) -> Result<Body, Reason> {
        let body = || self.framing.request(Role::Observer, version(minor)).map_err(|fault| fault.reason);
        self.fault.map_or_else(body, Err)
    }

    fn of_response(&self, status: u16, minor: &u8, request_kind: RequestMethod) -> Result<Body, Reason> {
        let body = || self.framing.response(Role::Observer, status, version(Some(minor)), request_kind);
        self.fault.map_or_else(|| body().map_err(|fault| fault.reason), Err)
    }
}

fn version(minor: Option<&u8>) -> Version {
    if minor == Some(&b'0') { Version::Http10 } else { Version::Http11 }
}

const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";

/// Whether the line is that of the field `name`, with or without white space before its colon.
#[inline]
fn is_name(line: &[u8], name: &[u8]) -> bool {
    let Some((before, after)) = line.split_at_checked(name.len()) else { return false };
    before.eq_ignore_ascii_case(name)
        && after.iter().find(|byte| !matches!(byte, b' ' | b'\t')).is_some_and(|&byte| byte == b':')
}

/// The value, if the line is that of the field `name`.
#[inline]
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (before, after) = line.split_at_checked(name.len())?;
    let is_it = after.first() == Some(&b':') && before.eq_ignore_ascii_case(name);
    is_it.then(|| after[1..].trim_ascii())
}

fn trim_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')
}

/// RFC 9110, section 9.3, and PATCH.
const METHODS: [&[u8]; 9] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];
const VERSION: &[u8] = b"HTTP/1.";
/// Number of bytes beyond which more do not change whether a head may begin so.
pub(super) const DECISIVE_BYTES: usize = METHOD_MAX + 2;
/// Bytes of a line searched without a call.
const INLINE_SEARCH_BYTES: usize = 64;
/// The longest registered method has 16 letters.
const METHOD_MAX: usize = 32;

#[cfg(test)]
#[path = "../../../http1/tests/framing/table.rs"]
mod table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_head_is_parsed_complete_or_truncated() {
        let whole = b"POST /a b?c HTTP/1.1\r\nhOST:  x.org \r\nContent-Length: 12\r\n\r\n";
        let head = request(whole).unwrap();
        assert_eq!((head.method, head.target, head.host), (&b"POST"[..], Some(&b"/a b?c"[..]), Some(&b"x.org"[..])));
        assert_eq!(head.body, Ok(Body::Length(12)));
        assert_eq!(request(b"GET /long").unwrap().target, None);
        assert_eq!(request(b"EHLO /long"), None);
        assert_eq!(request(b"GET / HTTP/1.1\r\nHost: x.o").unwrap().host, None, "a truncated value is ignored");
        for wrong in [&b"get / HTTP/1.1\r\n"[..], b"GET /\r\n", b"GET / FTP/1.1\r\n", b"\x16\x03\x01", b"GET", b""] {
            assert_eq!(request(wrong), None);
        }
    }

    #[test]
    fn response_head_needs_a_status() {
        let read = |bytes| response(bytes, RequestMethod::Other);
        assert_eq!(read(b"HTTP/1.0 404").unwrap().status, 404);
        assert_eq!(read(b"HTTP/1.1 20"), None);
        assert_eq!(read(b"HTTP/1.1 2000 OK\r\n"), None);
    }

    /// An outcome in the terms of the table that all readers share.
    fn outcome(body: Result<Body, Reason>) -> String {
        match body {
            Ok(Body::None) => "none".to_owned(),
            Ok(Body::Length(length)) => format!("length:{length}"),
            Ok(Body::Chunked) => "chunked".to_owned(),
            Ok(Body::UntilClose) => "close".to_owned(),
            Ok(Body::Tunnel) => "tunnel".to_owned(),
            Err(reason) => reason.name().to_owned(),
        }
    }

    #[test]
    fn body_framing_of_heads_matches_the_shared_table() {
        for case in table::responses() {
            let bytes = case.head();
            let head = response(&bytes, case.request_method()).unwrap();
            assert_eq!((outcome(head.body), head.end), (case.observer.clone(), Some(bytes.len())), "{case:?}");
        }
        for case in table::requests() {
            let bytes = case.head();
            let head = request(&bytes).unwrap();
            assert_eq!((outcome(head.body), head.end), (case.observer.clone(), Some(bytes.len())), "{case:?}");
        }
    }

    #[test]
    fn truncated_folded_value_is_ignored() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\n";
        assert_eq!(response(whole, RequestMethod::Other).unwrap().body, Ok(Body::Length(5)));
        for cut in 16..whole.len() - 2 {
            assert_eq!(response(&whole[..cut], RequestMethod::Other).unwrap().end, None);
        }
    }

    #[test]
    fn lines_end_at_the_first_line_feed() {
        for length in 0..200 {
            let mut bytes = vec![b'\x0B'; length];
            assert_eq!(line_end(&bytes), None);
            for at in 0..length {
                bytes[at] = b'\n';
                bytes[length - 1] = b'\n';
                assert_eq!(line_end(&bytes), Some(at));
                bytes.fill(if at % 2 == 0 { 0x8A } else { 0x09 });
            }
        }
    }

    #[test]
    fn head_ends_at_its_empty_line() {
        let head = b"GET / HTTP/1.1\r\nA: b\n\r\nContent-Length: 5\r\n\r\n";
        let read = request(head).unwrap();
        assert_eq!((read.end, read.body), (end_of_head(head, 0), Ok(Body::None)));
        assert_eq!(request(&head[..21]).unwrap().end, None);
        assert_eq!(response(b"HTTP/1.1 200 OK\n\nHTTP/1.1", RequestMethod::Other).unwrap().end, Some(17));
        assert_eq!(request(b"GET / HTTP/1.1\nHost : a\nhost:b\n").unwrap().host, Some(&b"b"[..]));
    }

    #[test]
    fn head_end_is_found_in_any_bytes() {
        assert_eq!(end_of_head(b"a\r\n\r\nb", 0), Some(5));
        assert_eq!(end_of_head(b"a\n\nb", 0), Some(3));
        assert_eq!(end_of_head(b"a\r\nb\r\n", 0), None);
        assert_eq!(end_of_head(b"a\r\n\r", 0), None);
    }
}
