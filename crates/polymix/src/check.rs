//! Checks one response while it arrives.
//!
//! The body must equal the one of the response's identity ([`ResponseIdentity`]), byte for byte. Whether that identity
//! is correct for the request is decided by the [`Verifier`](crate::Verifier).

use std::sync::Arc;

use schema::Method;
use serde::{Deserialize, Serialize};

use crate::{Body, DrawnRequest, IDENTITY_FIELD, RequestId, ResponseIdentity, Variant, Version, World};

/// Checks one response: its head, the pieces of its body, its end. Copies no bytes.
#[derive(Clone, Debug)]
pub struct Checker {
    world: Arc<World>,
    method: Method,
    abort_after: Option<u32>,
    status: u16,
    identity: HeadIdentity,
    encoding: Encoding,
    age_s: Option<u32>,
    expected: Expected,
    body_bytes: u64,
}

/// Identity in the head.
#[derive(Clone, Copy, Debug)]
enum HeadIdentity {
    Not,
    With(ResponseIdentity),
    /// Malformed, or several that differ.
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Other,
}

/// Expected body.
#[derive(Clone, Debug)]
enum Expected {
    /// The head is incomplete.
    Unknown,
    Nothing,
    Recoded,
    Bytes(Body),
    /// The body differs from this offset on.
    DifferedAt(u64),
}

/// What the client does after a piece of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDirective {
    /// The client reads on.
    Continue,
    /// The client aborts here, as planned.
    Abort,
}

/// Result of checking one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedResponse {
    /// Identity in the head; `None` if absent or malformed.
    pub identity: Option<ResponseIdentity>,
    /// Comparison of the body with its identity.
    pub content: Content,
    /// Body bytes without chunk framing.
    pub body_bytes: u64,
    /// Value of Age.
    pub age_s: Option<u32>,
    /// Whether the response had `Content-Encoding: gzip`.
    pub content_encoding_gzip: bool,
}

/// Comparison of a body with its identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Equal, up to a planned abort.
    Right,
    /// Not compared: HEAD, a status other than 200, no identity, a kind that the workload does not have.
    #[default]
    NotCompared,
    /// A byte differs.
    Differs {
        /// Offset of the first byte that differs.
        at: u64,
    },
    /// Equal, but too short.
    Short,
    /// Equal, but too long.
    Long,
    /// Coding applied by the proxy: bytes are not compared.
    Recoded,
}

impl Checker {
    /// A checker for the response to `request`. Request id and time are not used yet.
    pub fn new(world: Arc<World>, request: DrawnRequest, _id: RequestId, _requested_unix_ms: u64) -> Checker {
        Checker {
            world,
            method: request.method,
            abort_after: request.abort_after,
            status: 0,
            identity: HeadIdentity::Not,
            encoding: Encoding::Identity,
            age_s: None,
            expected: Expected::Unknown,
            body_bytes: 0,
        }
    }

    /// Parses a head, from status line to blank line. Interim responses are replaced by later heads.
    pub fn head(&mut self, head: &[u8]) {
        let mut lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let status = lines.next().and_then(|line| line.split(|&byte| byte == b' ').nth(1)).and_then(number);
        self.status(status.unwrap_or(0) as u16);
        for line in lines {
            if let Some(colon) = line.iter().position(|&byte| byte == b':') {
                self.field(&line[..colon], line[colon + 1..].trim_ascii());
            }
        }
    }

    /// Sets the status before the fields, if the head is not text (HTTP/2).
    pub fn status(&mut self, status: u16) {
        // Discard fields of an interim response.
        self.status = status;
        self.identity = HeadIdentity::Not;
        self.encoding = Encoding::Identity;
        self.age_s = None;
    }

    /// Adds one header field, if the head is not text (HTTP/2).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(IDENTITY_FIELD.as_bytes()) {
            self.identity = match (self.identity, ResponseIdentity::read(value)) {
                (HeadIdentity::Not, Some(identity)) => HeadIdentity::With(identity),
                (HeadIdentity::With(one), Some(other)) if one == other => HeadIdentity::With(one),
                _ => HeadIdentity::Unreadable,
            };
        } else if name.eq_ignore_ascii_case(b"content-encoding") {
            let gzip = value.eq_ignore_ascii_case(b"gzip") || value.eq_ignore_ascii_case(b"x-gzip");
            self.encoding = match self.encoding {
                encoding if value.is_empty() || value.eq_ignore_ascii_case(b"identity") => encoding,
                Encoding::Identity if gzip => Encoding::Gzip,
                _ => Encoding::Other,
            };
        } else if name.eq_ignore_ascii_case(b"age") {
            self.age_s = number(value);
        }
    }

    /// Checks the next piece of the body, without chunk framing.
    pub fn body(&mut self, piece: &[u8]) -> ReadDirective {
        self.expect();
        if let Expected::Bytes(body) = &self.expected {
            let (mut at, mut left) = (self.body_bytes, piece);
            while !left.is_empty() {
                let expected = body.piece(at);
                if expected.is_empty() {
                    break;
                }
                let length = expected.len().min(left.len());
                if expected[..length] != left[..length] {
                    let same = expected.iter().zip(left).take_while(|(one, other)| one == other).count();
                    self.expected = Expected::DifferedAt(at + same as u64);
                    break;
                }
                at += length as u64;
                left = &left[length..];
            }
        }
        self.body_bytes += piece.len() as u64;
        match self.abort_after {
            Some(after) if self.body_bytes >= u64::from(after) => ReadDirective::Abort,
            _ => ReadDirective::Continue,
        }
    }

    /// The result at the end of the response.
    pub fn end(mut self) -> CheckedResponse {
        self.expect();
        let is_left = self.abort_after.is_some_and(|after| self.body_bytes >= u64::from(after));
        let content = match &self.expected {
            Expected::Unknown | Expected::Nothing => Content::NotCompared,
            Expected::Recoded => Content::Recoded,
            Expected::DifferedAt(at) => Content::Differs { at: *at },
            Expected::Bytes(body) if self.body_bytes > body.length() => Content::Long,
            Expected::Bytes(body) if self.body_bytes < body.length() && !is_left => Content::Short,
            Expected::Bytes(_) => Content::Right,
        };
        CheckedResponse {
            identity: self.identity(),
            content,
            body_bytes: self.body_bytes,
            age_s: self.age_s,
            content_encoding_gzip: self.encoding == Encoding::Gzip,
        }
    }

    fn identity(&self) -> Option<ResponseIdentity> {
        match self.identity {
            HeadIdentity::With(identity) => Some(identity),
            HeadIdentity::Not | HeadIdentity::Unreadable => None,
        }
    }

    /// Determines the expected body after the head.
    fn expect(&mut self) {
        if !matches!(self.expected, Expected::Unknown) {
            return;
        }
        let is_compared = self.status == 200 && self.method != Method::Head;
        let identity = self.identity().filter(|identity| is_compared && self.world.has(identity.object));
        self.expected = match (identity, self.encoding) {
            (None, _) => Expected::Nothing,
            (Some(_), Encoding::Other) => Expected::Recoded,
            (Some(identity), Encoding::Gzip) if identity.variant == Variant::Plain => Expected::Recoded,
            (Some(identity), encoding) => {
                // A gzip variant without the coding was inflated by a proxy: expect the plain body.
                let variant = if encoding == Encoding::Gzip { Variant::Gzip } else { Variant::Plain };
                let version = Version { number: identity.version, ..Version::default() };
                // Compare with the world of the identity; the verifier reports another world.
                let body = if identity.world == self.world.id {
                    self.world.body(identity.object, version, variant)
                } else {
                    self.world.with_id(identity.world).body(identity.object, version, variant)
                };
                Expected::Bytes(body)
            }
        };
    }
}

/// A decimal number.
fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
