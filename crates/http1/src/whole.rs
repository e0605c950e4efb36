//! Parses a complete response: all bytes that a connection delivered from the request to its close.

use std::borrow::Cow;
use std::fmt;

use crate::chunked::{ByClient, Chunked, Step};
use crate::fault::Fault;
use crate::framing::{Body, RequestMethod};
use crate::response::{Head, parse};

/// A final response. Interim responses before it are skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    /// Status line, without its line end.
    pub line: &'a [u8],
    /// Status code, 200 to 999.
    pub status: u16,
    /// Body, without the framing of chunks.
    pub body: Cow<'a, [u8]>,
}

/// Why there is no complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteResponse {
    /// The connection closed without a byte.
    Nothing,
    /// The connection closed before the end of the response.
    Cut,
    /// The response is malformed.
    Fault(Fault),
}

impl fmt::Display for IncompleteResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IncompleteResponse::Nothing => f.write_str("nothing"),
            IncompleteResponse::Cut => f.write_str("the connection closed before the response was complete"),
            IncompleteResponse::Fault(fault) => fault.fmt(f),
        }
    }
}

/// Parses the response at the beginning of `bytes`; the connection closed after them. `method` is the request's.
///
/// # Errors
/// The response is incomplete or malformed.
pub fn whole(bytes: &[u8], method: RequestMethod) -> Result<Whole<'_>, IncompleteResponse> {
    if bytes.is_empty() {
        return Err(IncompleteResponse::Nothing);
    }
    let mut rest = bytes;
    let (head, line) = loop {
        let head: Head = parse(rest, method).map_err(IncompleteResponse::Fault)?.ok_or(IncompleteResponse::Cut)?;
        let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
        rest = &rest[head.length..];
        if !head.is_interim() {
            break (head, line.strip_suffix(b"\r").unwrap_or(line));
        }
    };
    let body = match head.body {
        Body::None => Cow::Borrowed(&b""[..]),
        Body::Length(length) => {
            let body = usize::try_from(length).ok().and_then(|length| rest.get(..length));
            Cow::Borrowed(body.ok_or(IncompleteResponse::Cut)?)
        }
        Body::Chunked => Cow::Owned(data(rest)?),
        Body::UntilClose | Body::Tunnel => Cow::Borrowed(rest),
    };
    Ok(Whole { line, status: head.status, body })
}

fn data(mut bytes: &[u8]) -> Result<Vec<u8>, IncompleteResponse> {
    let (mut chunked, mut data) = (Chunked::<ByClient>::new(), Vec::new());
    loop {
        match chunked.step(bytes).map_err(IncompleteResponse::Fault)? {
            Step::More => return Err(IncompleteResponse::Cut),
            Step::Data(range) => {
                data.extend_from_slice(&bytes[range.clone()]);
                bytes = &bytes[range.end..];
            }
            Step::End(_) => return Ok(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Reason;

    #[test]
    fn the_head_determines_the_end_of_the_body() {
        let read = |text: &'static str| whole(text.as_bytes(), RequestMethod::Other).map(|read| read.body.into_owned());
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi, and more").unwrap(), b"hi");
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nto the end").unwrap(), b"to the end");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1;x\r\ni\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(read(chunked).unwrap(), b"hi");
        assert_eq!(read("HTTP/1.1 204 No\r\n\r\n").unwrap(), b"");
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        let last = whole(interim.as_bytes(), RequestMethod::Other).unwrap();
        assert_eq!((last.line, last.status), (&b"HTTP/1.1 404 Not Found"[..], 404));
        assert_eq!(read(""), Err(IncompleteResponse::Nothing));
        for cut in [
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 103 Early Hints\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi",
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nhi",
        ] {
            assert_eq!(read(cut), Err(IncompleteResponse::Cut), "{cut}");
        }
        let Err(IncompleteResponse::Fault(fault)) = read("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello") else {
            panic!()
        };
        assert_eq!(fault.reason, Reason::LengthNotNumber);
    }
}
