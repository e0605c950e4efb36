//! Heads of HTTP/1 messages (RFC 9112), read as an observer reads them: leniently, and as far as they were captured.

use memchr::memchr;

/// What follows a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Body {
    /// Neither length nor coding was given.
    #[default]
    Unstated,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// A coding that does not end itself, or fields that contradict each other.
    Unclear,
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a [u8],
    /// Absent when the first line was cut.
    pub(super) target: Option<&'a [u8]>,
    pub(super) host: Option<&'a [u8]>,
    pub(super) body: Body,
    /// Where it ends: just past its empty line, if that is there.
    pub(super) end: Option<usize>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) body: Body,
    /// Where it ends: just past its empty line, if that is there.
    pub(super) end: Option<usize>,
}

/// Where a head that begins at the start of `bytes` ends: the offset just past its empty line. Looks from `from` on.
pub(super) fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = memchr(b'\n', bytes.get(at..)?) {
        at += found + 1;
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

/// Reads a request's head from bytes of which the end may be missing, and after which others may follow. `None` when the first line is no request's.
pub(super) fn request(bytes: &[u8]) -> Option<RequestHead<'_>> {
    let (line, fields) = first_line(bytes);
    // A longer method is none.
    let space = line.iter().take(METHOD_MAX + 1).position(|&byte| byte == b' ')?;
    let (method, rest) = (&line[..space], &line[space + 1..]);
    if method.is_empty() || method.len() > METHOD_MAX || !method.iter().all(|&byte| is_method_byte(byte)) {
        return None;
    }
    let mut head = RequestHead { method, target: None, host: None, body: Body::Unstated, end: None };
    // Without the version at the line's end only a method of HTTP's own makes it a request.
    let Some(fields) = fields else { return METHODS.contains(&method).then_some(head) };
    // The last space parts target and version: some clients send spaces in the target.
    let version = rest.iter().rposition(|&byte| byte == b' ')?;
    if version == 0 || !rest[version + 1..].starts_with(VERSION) {
        return None;
    }
    head.target = Some(&rest[..version]);
    let fields = Fields::read(bytes, fields);
    (head.host, head.body, head.end) = (fields.host, fields.body(), fields.end);
    Some(head)
}

/// Reads a response's head from bytes of which the end may be missing, and after which others may follow. `None` when the status cannot be read or the
/// first line is no response's.
pub(super) fn response(bytes: &[u8]) -> Option<ResponseHead> {
    let (line, fields) = first_line(bytes);
    let rest = line.strip_prefix(VERSION)?.get(1..)?;
    let digits = rest.strip_prefix(b" ")?.first_chunk::<3>()?;
    if !digits.iter().all(u8::is_ascii_digit) || rest.get(4).is_some_and(|&byte| byte != b' ') {
        return None;
    }
    let status = digits.iter().fold(0, |status, &digit| status * 10 + u16::from(digit - b'0'));
    let fields = fields.map(|fields| Fields::read(bytes, fields)).unwrap_or_default();
    Some(ResponseHead { status, body: fields.body(), end: fields.end })
}

/// The first line without its end, and the offset of what follows it; `None` for that when the line's end is missing.
#[inline]
fn first_line(bytes: &[u8]) -> (&[u8], Option<usize>) {
    match line_end(bytes) {
        Some(end) => (trim_end(&bytes[..end]), Some(end + 1)),
        None => (bytes, None),
    }
}

/// The offset of the first line feed. Most lines are short: the first bytes are searched here, eight at a time, and
/// only long ones pay for the call.
#[inline]
fn line_end(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let near = &bytes[..bytes.len().min(NEAR)];
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

/// What is asked of the fields of a head.
#[derive(Debug, Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    coding: Coding,
    contradicted: bool,
    end: Option<usize>,
}

impl<'a> Fields<'a> {
    /// Walks whole field lines of `bytes` from `at` on, up to the empty one, if it is there.
    fn read(bytes: &'a [u8], mut at: usize) -> Fields<'a> {
        let mut fields = Fields::default();
        while let Some(length) = line_end(&bytes[at..]) {
            let begin = at;
            let mut line = trim_end(&bytes[begin..at + length]);
            at += length + 1;
            if !line.is_empty() && matches!(bytes.get(at), Some(b' ' | b'\t')) {
                line = trim_end(&bytes[begin..folded_end(bytes, &mut at)]);
            }
            // Three names matter; their first letters spare the rest the comparison.
            match line.first() {
                None => {
                    fields.end = Some(at);
                    break;
                }
                Some(b'c' | b'C') => fields.note_length(line),
                Some(b't' | b'T') => fields.note_coding(line),
                Some(b'h' | b'H') if fields.host.is_none() => fields.host = value_of(line, b"host"),
                Some(_) => {}
            }
        }
        fields
    }

    fn note_length(&mut self, line: &[u8]) {
        let Some(value) = value_of(line, b"content-length") else { return };
        let number = number(value);
        self.contradicted |= number.is_none() || self.length.is_some_and(|length| Some(length) != number);
        self.length = number;
    }

    fn note_coding(&mut self, line: &[u8]) {
        let Some(value) = value_of(line, b"transfer-encoding") else { return };
        let last = value.rsplit(|&byte| byte == b',').next().unwrap_or(value).trim_ascii();
        self.coding = if last.eq_ignore_ascii_case(b"chunked") { Coding::Chunked } else { Coding::Other };
    }

    /// RFC 9112, section 6.3: a transfer coding overrides the length.
    fn body(&self) -> Body {
        match (self.coding, self.length) {
            (Coding::Chunked, _) => Body::Chunked,
            (Coding::Other, _) => Body::Unclear,
            (Coding::None, _) if self.contradicted => Body::Unclear,
            (Coding::None, Some(length)) => Body::Length(length),
            (Coding::None, None) => Body::Unstated,
        }
    }
}

/// The value, if the line is that of the field `name`.
#[inline]
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (before, after) = line.split_at_checked(name.len())?;
    let is_it = after.first() == Some(&b':') && before.eq_ignore_ascii_case(name);
    is_it.then(|| after[1..].trim_ascii())
}

/// Where the field line ends whose first line feed is just before `at`: lines that begin with a space or tab go on with it
/// (obs-fold, RFC 9112, section 5.2). `at` is moved past them; without its last line feed a line is cut, and not of it.
#[cold]
fn folded_end(bytes: &[u8], at: &mut usize) -> usize {
    let mut end = *at - 1;
    while let Some(b' ' | b'\t') = bytes.get(*at) {
        let Some(length) = line_end(&bytes[*at..]) else { break };
        end = *at + length;
        *at = end + 1;
    }
    end
}

#[derive(Clone, Copy, Debug, Default)]
enum Coding {
    #[default]
    None,
    Chunked,
    Other,
}

fn number(digits: &[u8]) -> Option<u64> {
    let fold = |number: u64, &digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, fold) }
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
/// From so many bytes on, more of them say nothing new about whether a head may begin so.
pub(super) const TELLING: usize = METHOD_MAX + 2;
/// Bytes of a line looked at without a call.
const NEAR: usize = 64;
/// The longest registered method has 16 letters.
const METHOD_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_whole_or_cut() {
        let whole = b"POST /a b?c HTTP/1.1\r\nhOST:  x.org \r\nContent-Length: 12\r\n\r\n";
        let head = request(whole).unwrap();
        assert_eq!((head.method, head.target, head.host), (&b"POST"[..], Some(&b"/a b?c"[..]), Some(&b"x.org"[..])));
        assert_eq!(head.body, Body::Length(12));
        assert_eq!(request(b"GET /long").unwrap().target, None);
        assert_eq!(request(b"EHLO /long"), None);
        assert_eq!(request(b"GET / HTTP/1.1\r\nHost: x.o").unwrap().host, None, "a cut value is no value");
        for wrong in [&b"get / HTTP/1.1\r\n"[..], b"GET /\r\n", b"GET / FTP/1.1\r\n", b"\x16\x03\x01", b"GET", b""] {
            assert_eq!(request(wrong), None);
        }
    }

    #[test]
    fn a_response_says_what_follows() {
        let body = |fields: &str| response(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes()).unwrap().body;
        assert_eq!(body(""), Body::Unstated);
        assert_eq!(body("content-LENGTH: 0\r\n"), Body::Length(0));
        assert_eq!(body("Content-Length: 5\r\nContent-Length: 5\r\n"), Body::Length(5));
        assert_eq!(body("Content-Length: 5\r\nContent-Length: 6\r\n"), Body::Unclear);
        assert_eq!(body("Content-Length: 99999999999999999999\r\n"), Body::Unclear);
        assert_eq!(body("Content-Length: +5\r\n"), Body::Unclear);
        assert_eq!(body("Content-Length: 5\r\nTransfer-Encoding: gzip, Chunked\r\n"), Body::Chunked);
        assert_eq!(body("Transfer-Encoding: gzip\r\n"), Body::Unclear);
        assert_eq!(response(b"HTTP/1.0 404").unwrap().status, 404);
        assert_eq!(response(b"HTTP/1.1 20"), None);
        assert_eq!(response(b"HTTP/1.1 2000 OK\r\n"), None);
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
    fn a_head_ends_where_an_empty_line_is() {
        let head = b"GET / HTTP/1.1\r\nA: b\n\r\nContent-Length: 5\r\n\r\n";
        let read = request(head).unwrap();
        assert_eq!((read.end, read.body), (end_of_head(head, 0), Body::Unstated));
        assert_eq!(request(&head[..21]).unwrap().end, None);
        assert_eq!(response(b"HTTP/1.1 200 OK\n\nHTTP/1.1").unwrap().end, Some(17));
        assert_eq!(request(b"GET / HTTP/1.1\nHost : a\nhost:b\n").unwrap().host, Some(&b"b"[..]));
    }

    #[test]
    fn folded_lines_are_one() {
        let body = |fields: &str| response(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes()).unwrap().body;
        assert_eq!(body("Content-Length:\r\n 5\r\n"), Body::Length(5));
        assert_eq!(body("A: b\r\n\tContent-Length: 6\r\n  c\r\nContent-Length: 5\r\n \r\n"), Body::Length(5));
        assert_eq!(body("Transfer-Encoding: gzip,\r\n\t chunked\r\n"), Body::Chunked);
        let head = request(b"GET / HTTP/1.1\r\nHost:\r\n  x.org\r\n\r\n an indented body\r\n\r\n").unwrap();
        assert_eq!((head.host, head.end), (Some(&b"x.org"[..]), Some(34)));
    }

    #[test]
    fn the_end_of_a_head_is_an_empty_line() {
        assert_eq!(end_of_head(b"a\r\n\r\nb", 0), Some(5));
        assert_eq!(end_of_head(b"a\n\nb", 0), Some(3));
        assert_eq!(end_of_head(b"a\r\nb\r\n", 0), None);
        assert_eq!(end_of_head(b"a\r\n\r", 0), None);
    }
}
