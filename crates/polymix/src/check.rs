//! Checks one response while it arrives.
//!
//! The body must equal the one of the response's identity ([`Stamp`]), byte for byte. Whether that identity is correct for the
//! request is decided by the judge.

use std::sync::Arc;

use schema::Method;
use serde::{Deserialize, Serialize};

use crate::{Ask, Body, RequestId, STAMP, Stamp, Variant, Version, World};

/// Checks one response: head, body pieces in place, end. Does not copy.
#[derive(Clone, Debug)]
pub struct Checker {
    world: Arc<World>,
    method: Method,
    abort_after: Option<u32>,
    status: u16,
    stamp: Stamped,
    encoding: Encoding,
    age_s: Option<u32>,
    expected: Expected,
    body_bytes: u64,
}

/// Identity in the head.
#[derive(Clone, Copy, Debug)]
enum Stamped {
    Not,
    With(Stamp),
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

/// Whether the client continues to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Yes.
    On,
    /// The client aborts here, as planned.
    AbortHere,
}

/// Result of the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Identity; `None` if absent or malformed.
    pub stamp: Option<Stamp>,
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
    NotLooked,
    /// A byte differs.
    Differs {
        /// Offset of the first.
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
    /// A checker for the response to `ask`. Request id and time are not used yet.
    pub fn new(world: Arc<World>, ask: Ask, _id: RequestId, _requested_unix_ms: u64) -> Checker {
        Checker {
            world,
            method: ask.method,
            abort_after: ask.abort_after,
            status: 0,
            stamp: Stamped::Not,
            encoding: Encoding::Identity,
            age_s: None,
            expected: Expected::Unknown,
            body_bytes: 0,
        }
    }

    /// Takes a head, from status line to blank line. Interim responses are replaced by later heads.
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

    /// Takes the status before the fields, if the head is not text (HTTP/2).
    pub fn status(&mut self, status: u16) {
        // Discard fields of an interim response.
        self.status = status;
        self.stamp = Stamped::Not;
        self.encoding = Encoding::Identity;
        self.age_s = None;
    }

    /// Takes one field, if the head is not text (HTTP/2).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(STAMP.as_bytes()) {
            self.stamp = match (self.stamp, Stamp::read(value)) {
                (Stamped::Not, Some(stamp)) => Stamped::With(stamp),
                (Stamped::With(one), Some(other)) if one == other => Stamped::With(one),
                _ => Stamped::Unreadable,
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

    /// Takes the next piece of the body, without chunk framing.
    pub fn body(&mut self, piece: &[u8]) -> Go {
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
            Some(after) if self.body_bytes >= u64::from(after) => Go::AbortHere,
            _ => Go::On,
        }
    }

    /// The result at the end of the response.
    pub fn end(mut self) -> Seen {
        self.expect();
        let is_left = self.abort_after.is_some_and(|after| self.body_bytes >= u64::from(after));
        let content = match &self.expected {
            Expected::Unknown | Expected::Nothing => Content::NotLooked,
            Expected::Recoded => Content::Recoded,
            Expected::DifferedAt(at) => Content::Differs { at: *at },
            Expected::Bytes(body) if self.body_bytes > body.length() => Content::Long,
            Expected::Bytes(body) if self.body_bytes < body.length() && !is_left => Content::Short,
            Expected::Bytes(_) => Content::Right,
        };
        Seen {
            stamp: self.stamp(),
            content,
            body_bytes: self.body_bytes,
            age_s: self.age_s,
            content_encoding_gzip: self.encoding == Encoding::Gzip,
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        match self.stamp {
            Stamped::With(stamp) => Some(stamp),
            Stamped::Not | Stamped::Unreadable => None,
        }
    }

    /// Determines the expected body after the head.
    fn expect(&mut self) {
        if !matches!(self.expected, Expected::Unknown) {
            return;
        }
        let looked = self.status == 200 && self.method != Method::Head;
        let stamp = self.stamp().filter(|stamp| looked && self.world.has(stamp.object));
        self.expected = match (stamp, self.encoding) {
            (None, _) => Expected::Nothing,
            (Some(_), Encoding::Other) => Expected::Recoded,
            (Some(stamp), Encoding::Gzip) if stamp.variant == Variant::Plain => Expected::Recoded,
            (Some(stamp), encoding) => {
                // A gzip variant without the coding was inflated by a proxy: expect the plain body.
                let variant = if encoding == Encoding::Gzip { Variant::Gzip } else { Variant::Plain };
                let version = Version { number: stamp.version, ..Version::default() };
                // Compare with the world of the identity; the judge reports another world.
                let body = if stamp.world == self.world.id {
                    self.world.body(stamp.object, version, variant)
                } else {
                    self.world.with_id(stamp.world).body(stamp.object, version, variant)
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
