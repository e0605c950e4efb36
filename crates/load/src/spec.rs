//! What load to offer, as meant.

use std::time::Duration;

use crate::{Arrivals, LoadError, Workload};

/// A load, complete: with the same spec and the same answers from outside, [`Load`](crate::Load) does the same.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// What is asked for.
    pub workload: Workload,
    /// The request line carries the whole URL, as proxies want it (RFC 9112, section 3.2.2).
    pub absolute_form: bool,
    /// Version of HTTP.
    pub version: HttpVersion,
    /// HTTP/2: most streams open at once on a connection, if the server allows as many. 0 is taken as 1.
    pub streams_max: u32,
    /// Whether connections serve more than one request.
    pub reuse: Reuse,
    /// When requests are intended.
    pub arrivals: Arrivals,
    /// Open loop: most connections open at once. Closed loop: their number. 0 is taken as 1.
    pub connections_max: u32,
    /// Ends the measured phase after this many requests intended in it.
    pub requests_max: Option<u64>,
    /// Number of virtual clients, each with its own address. 0 is taken as 1.
    pub clients: u32,
    /// From connect called to established.
    pub connect_timeout: Duration,
    /// From the request being handed to an open connection (for a new one: once it is established) to the whole
    /// response.
    pub response_timeout: Duration,
    /// Which part of the load this engine makes; the others are made by engines beside it.
    pub lane: Lane,
    /// Seed of every random choice.
    pub seed: u64,
    /// Load before the measured phase, not in the results.
    pub warmup: Duration,
    /// Length of the measured phase; `None` for until `requests_max`, or until stopped.
    pub duration: Option<Duration>,
}

/// One of several engines that make one load together, each with its own clients, connections and records.
///
/// Every lane draws the whole schedule and takes its own arrivals from it, so that requests, moments and clients are the
/// same however many lanes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// From 0.
    pub index: u32,
    /// Number of lanes, at least 1.
    pub of: u32,
}

impl Lane {
    /// The only one.
    pub const WHOLE: Lane = Lane { index: 0, of: 1 };
}

/// HTTP version of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0; connections are kept only where the server agrees (`Connection: keep-alive`).
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2: several requests at once on a connection.
    Http2,
}

impl HttpVersion {
    /// As on the request line (HTTP/2 has none).
    pub const fn as_str(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http2 => "HTTP/2",
        }
    }
}

/// Whether connections serve more than one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Kept open as long as the server keeps them.
    #[default]
    KeepAlive,
    /// One connection a request: sends `Connection: close`.
    Close,
}

/// Takes `Name: value` apart, as given with `-H`.
///
/// # Errors
/// No colon, an empty name, or characters that a header name or value cannot hold (so no line break gets in).
pub fn parse_header(typed: &str) -> Result<(String, String), LoadError> {
    let bad = |why| LoadError::BadHeader { header: typed.escape_debug().to_string(), why };
    let (name, value) = typed.split_once(':').ok_or_else(|| bad("it has no colon"))?;
    let value = value.trim_matches([' ', '\t']);
    http::HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| bad("its name is empty or holds a character no name has"))?;
    http::HeaderValue::from_str(value).map_err(|_| bad("its value holds a control character"))?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_apart_and_checked() {
        assert_eq!(parse_header("Accept: text/html"), Ok(("Accept".into(), "text/html".into())));
        assert_eq!(parse_header("X-Empty:"), Ok(("X-Empty".into(), String::new())));
        assert_eq!(parse_header("X:a:b"), Ok(("X".into(), "a:b".into())));
        for bad in ["Accept", ": x", "A b: c", "A: b\r\nC: d", "\u{5c71}: A"] {
            assert!(parse_header(bad).is_err(), "{bad:?}");
        }
    }
}
