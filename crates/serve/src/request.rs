//! One request head: complete, incomplete or refused. Pure: bytes in, meaning out.

use std::mem::MaybeUninit;

use httparse::{Error, Header};

use crate::response::Status;

/// What the first bytes of a connection's input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The beginning of a head, so far without fault.
    Incomplete,
    /// A head, and where it ends.
    Complete(Request<'a>),
    /// Not a request this server answers. What follows in the input cannot be told apart from it, so the connection
    /// ends with this status.
    Refused(Status),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// What is asked for.
    pub(crate) method: Method,
    /// As sent: still percent-encoded, without query, beginning with `/`.
    pub(crate) path: &'a [u8],
    /// The client wants to use the connection again.
    pub(crate) keep_alive: bool,
    /// HTTP/1.0: keeping the connection must be said.
    pub(crate) old: bool,
    /// A body that follows, to be passed over.
    pub(crate) body: Body,
    /// Bytes of the head.
    pub(crate) length: usize,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    /// The response ends with its head.
    Head,
    /// Exists (RFC 9110, section 9; RFC 5789), but not for files.
    NotForFiles,
    Unknown,
}

/// The body of a request that should have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes, usually 0.
    Bytes(u64),
    /// Chunked, or held back until the server says 100: not worth following, so the connection ends.
    Unfollowed,
}

/// Reads a head of GET or HEAD from the beginning of `input`, which is not empty. At most `head_bytes` of it may be head.
pub(crate) fn parse(input: &[u8], head_bytes: usize) -> Parsed<'_> {
    match parse_any(input, head_bytes) {
        Parsed::Complete(Request { method: Method::NotForFiles, .. }) => Parsed::Refused(Status::MethodNotAllowed),
        Parsed::Complete(Request { method: Method::Unknown, .. }) => Parsed::Refused(Status::NotImplemented),
        parsed => parsed,
    }
}

/// Reads a head of any method, as [`parse`].
pub(crate) fn parse_any(input: &[u8], head_bytes: usize) -> Parsed<'_> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut []);
    match head.parse_with_uninit_headers(input, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length <= head_bytes => {
            read(&head, length).map_or_else(Parsed::Refused, Parsed::Complete)
        }
        Ok(httparse::Status::Partial) if input.len() < head_bytes => Parsed::Incomplete,
        Ok(_) => Parsed::Refused(too_long(input, head_bytes)),
        Err(Error::TooManyHeaders) => Parsed::Refused(Status::HeadTooLarge),
        Err(Error::Version) => Parsed::Refused(Status::VersionNotSupported),
        Err(_) => Parsed::Refused(Status::BadRequest),
    }
}

fn read<'a>(head: &httparse::Request<'_, 'a>, length: usize) -> Result<Request<'a>, Status> {
    let method = match head.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        known if KNOWN_METHODS.contains(&known) => Method::NotForFiles,
        _ => Method::Unknown,
    };
    let old = head.version == Some(0);
    let mut fields = Fields::default();
    for header in head.headers.iter() {
        fields.take(header)?;
    }
    // RFC 9112, section 3.2: a request of HTTP/1.1 without a Host field, or any with two, is answered with 400.
    if fields.hosts > 1 || (fields.hosts == 0 && !old) {
        return Err(Status::BadRequest);
    }
    // RFC 9112, section 6.1: both framings at once may be an attempt at smuggling.
    if fields.chunked && fields.content_length.is_some() {
        return Err(Status::BadRequest);
    }
    let path = match path(head.path.unwrap_or_default().as_bytes()) {
        Some(path) => path,
        // `*` and authorities are targets of other methods.
        None if matches!(method, Method::NotForFiles | Method::Unknown) => b"/",
        None => return Err(Status::BadRequest),
    };
    let body = match fields.content_length.unwrap_or(0) {
        _ if fields.chunked => Body::Unfollowed,
        1.. if fields.expects_continue => Body::Unfollowed,
        bytes => Body::Bytes(bytes),
    };
    let wished = if old { fields.keep_alive && !fields.close } else { !fields.close };
    Ok(Request { method, path, keep_alive: wished && body != Body::Unfollowed, old, body, length })
}

/// The header fields that matter to a static file.
#[derive(Default)]
struct Fields {
    hosts: usize,
    close: bool,
    keep_alive: bool,
    chunked: bool,
    expects_continue: bool,
    content_length: Option<u64>,
}

impl Fields {
    fn take(&mut self, header: &Header<'_>) -> Result<(), Status> {
        let Header { name, value } = *header;
        // By length first: most fields of a browser's request are settled by one comparison of integers.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => self.hosts += 1,
            6 if name.eq_ignore_ascii_case("expect") => {
                self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = decimal(value).ok_or(Status::BadRequest)?;
                if self.content_length.is_some_and(|earlier| earlier != length) {
                    return Err(Status::BadRequest);
                }
                self.content_length = Some(length);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                // RFC 9112, section 6.1: a coding the server does not understand is answered with 501.
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Status::NotImplemented);
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// RFC 9110, section 8.6: digits and nothing else; more than 64 bits hold is refused.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// The path of a request target in origin form, or in the absolute form that clients of a proxy send and every server
/// must accept (RFC 9112, section 3.2.2). An empty path means `/`.
fn path(target: &[u8]) -> Option<&[u8]> {
    let origin = match target.first()? {
        b'/' => target,
        _ => {
            let colon = target.iter().position(|&byte| byte == b':')?;
            let (scheme, rest) = target.split_at(colon);
            if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
                return None;
            }
            let authority_and_path = rest.strip_prefix(b"://")?;
            let end = authority_and_path.iter().position(|&byte| matches!(byte, b'/' | b'?' | b'#'));
            match end.unwrap_or(authority_and_path.len()) {
                0 => return None,
                at => &authority_and_path[at..],
            }
        }
    };
    let end = origin.iter().position(|&byte| matches!(byte, b'?' | b'#')).unwrap_or(origin.len());
    if end == 0 { Some(b"/") } else { Some(&origin[..end]) }
}

/// Whose fault it is that a head is too long.
fn too_long(input: &[u8], head_bytes: usize) -> Status {
    let line = &input[..input.len().min(head_bytes)];
    if line.contains(&b'\n') { Status::HeadTooLarge } else { Status::TargetTooLong }
}

/// [`Method::NotForFiles`].
const KNOWN_METHODS: &[&str] = &["POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// More than any browser or load generator sends; the bound keeps the parser's table on the stack.
const HEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests;
