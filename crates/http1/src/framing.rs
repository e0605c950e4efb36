//! Determines the length of a message's body: the rules of RFC 9112, section 6.3, for each role.
//!
//! | the message has | client | observer | gateway | server (requests) |
//! |---|---|---|---|---|
//! | request was HEAD, or status 1xx, 204, 304 | none | none | none | |
//! | status 101 | fault | tunnel | fault | |
//! | request was CONNECT, status 2xx | tunnel | tunnel | tunnel | |
//! | Transfer-Encoding in HTTP/1.0 | fault | fault | fault | fault |
//! | chunked with parameters | fault | fault | fault | fault |
//! | Transfer-Encoding and Content-Length | by the coding | by the coding | by the coding | fault |
//! | chunked last | chunked | chunked | fault unless the only coding, or if the list has an empty member | fault unless the only coding |
//! | another coding last, or none | until close | until close (request: fault) | fault | fault |
//! | several Content-Length, the same valid number | that length | that length | that length | fault |
//! | Content-Length that is not a number, or several different numbers | fault | fault | fault | fault |
//! | Content-Length | length | length | length | length |
//! | none of these | until close | until close (request: none) | until close | none |
//!
//! After a message with both fields, or with chunked more than once, the connection must not be used again
//! ([`Fields::is_ambiguous`]): a proxy before this reader may have found another end of the message.
//!
//! Why the roles differ: a *server* rejects requests that another program on the way could read differently, which
//! prevents request smuggling. A *client* accepts everything that the RFC defines; the next response is on another
//! connection. A *gateway* (the client side of a relay) forwards bodies, so it must decode every coding, and it
//! supports only chunked. An *observer* accepts what both ends are likely to accept. A fault means that the end of the
//! message is unknown; the observer then finds the next message where the direction changes.

use crate::fault::{Fault, Reason};
use crate::list::{NotDecimal, decimal, members, trim};

/// The role of the program that reads a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads responses to its own requests.
    Client,
    /// Reads requests and responses between other programs.
    Observer,
    /// Reads responses and forwards their bodies.
    Gateway,
    /// Reads requests.
    Server,
}

/// How a message's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The message has no body, whatever its fields contain.
    None,
    /// After this number of bytes.
    Length(u64),
    /// After the last chunk and its trailers.
    Chunked,
    /// With the close of the connection.
    UntilClose,
    /// The bytes after the head belong to another protocol.
    Tunnel,
}

/// The request's method, as far as the framing of its response depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestMethod {
    /// HEAD.
    Head,
    /// CONNECT.
    Connect,
    /// Any other method.
    #[default]
    Other,
}

/// The minor version of HTTP/1, as far as framing depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0, which does not define transfer codings.
    Http10,
    /// HTTP/1.1, and any later minor version (RFC 9110, section 2.5).
    #[default]
    Http11,
}

/// The fields of one head that determine its body. The caller adds the header lines one by one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
    length: Option<u64>,
    /// Content-Length has more than one value.
    length_repeated: bool,
    length_fault: Option<Fault>,
    coding: Option<Coding<'a>>,
}

/// The transfer codings of a message.
#[derive(Clone, Copy, Debug)]
struct Coding<'a> {
    /// The last coding; empty if the header has none.
    last: &'a [u8],
    /// The first coding that is not chunked.
    other: Option<&'a [u8]>,
    /// Number of times that chunked occurs.
    chunked: u8,
    /// The first occurrence of chunked with parameters.
    parameters: Option<&'a [u8]>,
    /// The list has an empty member.
    has_gap: bool,
}

impl<'a> Fields<'a> {
    /// Adds a Content-Length field. By RFC 9110, section 8.6, a list of equal numbers is that number.
    pub fn content_length(&mut self, value: &[u8]) {
        for text in value.split(|&byte| byte == b',') {
            self.one_length(trim(text), value);
        }
    }

    fn one_length(&mut self, text: &[u8], value: &[u8]) {
        self.length_repeated |= self.length.is_some() || self.length_fault.is_some();
        match (decimal(text), self.length) {
            (Ok(length), None) => self.length = Some(length),
            (Ok(length), Some(before)) if length == before => {}
            (Ok(length), Some(before)) => {
                let both = format!("{before}, {length}");
                self.length_fault.get_or_insert_with(|| Fault::new(Reason::LengthsDiffer, both.as_bytes()));
            }
            (Err(why), _) => {
                let reason = match why {
                    NotDecimal::Empty if trim(value).is_empty() => Reason::LengthEmpty,
                    NotDecimal::Empty | NotDecimal::Digits => Reason::LengthNotNumber,
                    NotDecimal::Overflow => Reason::LengthOverflow,
                };
                self.length_fault.get_or_insert_with(|| Fault::new(reason, trim(value)));
            }
        }
    }

    /// Adds a Transfer-Encoding field.
    pub fn transfer_encoding(&mut self, value: &'a [u8]) {
        let coding =
            self.coding.get_or_insert(Coding { last: b"", other: None, chunked: 0, parameters: None, has_gap: false });
        coding.has_gap |= value.split(|&byte| byte == b',').any(|member| trim(member).is_empty());
        for member in members(value) {
            coding.last = member;
            let name = member.split(|&byte| byte == b';').next().unwrap_or(member);
            if !trim(name).eq_ignore_ascii_case(b"chunked") {
                coding.other.get_or_insert(member);
            } else if name.len() < member.len() {
                coding.parameters.get_or_insert(member);
            } else {
                coding.chunked = coding.chunked.saturating_add(1);
            }
        }
    }

    /// Whether another reader could find another end of the message. The connection must not be used after it.
    pub fn is_ambiguous(&self) -> bool {
        self.coding.is_some_and(|coding| coding.chunked > 1 || self.has_length())
    }

    /// The value of Content-Length, if it is one valid number.
    pub fn length(&self) -> Option<u64> {
        self.length.filter(|_| self.length_fault.is_none())
    }

    fn has_length(&self) -> bool {
        self.length.is_some() || self.length_fault.is_some()
    }

    /// Determines how the body of a response ends.
    ///
    /// # Errors
    /// The end of the body is unknown, or `role` does not accept such a body.
    pub fn response(&self, role: Role, status: u16, version: Version, method: RequestMethod) -> Result<Body, Fault> {
        if status == 101 {
            // RFC 9110, section 15.2.2: 101 answers a request with Upgrade, which this program's clients never send.
            let is_observer = role == Role::Observer;
            return if is_observer { Ok(Body::Tunnel) } else { Err(Fault::new(Reason::UnrequestedUpgrade, b"101")) };
        }
        // RFC 9110, section 9.3.6: every 2xx status opens a tunnel, 204 included.
        if method == RequestMethod::Connect && status / 100 == 2 {
            return Ok(Body::Tunnel);
        }
        if method == RequestMethod::Head || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Body::None);
        }
        if let Some(coding) = self.coding {
            coding.check(version)?;
            if role == Role::Gateway {
                coding.check_chunked_alone()?;
                coding.check_gaps()?;
            }
            return Ok(if coding.ends_chunked() { Body::Chunked } else { Body::UntilClose });
        }
        Ok(self.check_length()?.map_or(Body::UntilClose, Body::Length))
    }

    /// Determines how the body of a request ends: never with the close of the connection.
    ///
    /// # Errors
    /// The end of the body is unknown, or `role` does not accept such a body.
    pub fn request(&self, role: Role, version: Version) -> Result<Body, Fault> {
        let is_strict = role != Role::Observer;
        if let Some(coding) = self.coding {
            if is_strict && self.has_length() {
                return Err(Fault::new(Reason::CodingAndLength, coding.last));
            }
            coding.check(version)?;
            if !coding.ends_chunked() {
                return Err(coding.not_final());
            }
            if is_strict {
                coding.check_chunked_alone()?;
            }
            return Ok(Body::Chunked);
        }
        let length = self.check_length()?;
        if is_strict && self.length_repeated {
            return Err(Fault::new(Reason::LengthRepeated, b""));
        }
        Ok(length.map_or(Body::None, Body::Length))
    }

    fn check_length(&self) -> Result<Option<u64>, Fault> {
        self.length_fault.map_or(Ok(self.length), Err)
    }
}

impl Coding<'_> {
    fn ends_chunked(&self) -> bool {
        self.last.eq_ignore_ascii_case(b"chunked")
    }

    /// Checks for faults that no role accepts.
    fn check(&self, version: Version) -> Result<(), Fault> {
        if version == Version::Http10 {
            // RFC 9112, section 6.1: the framing is faulty even if the message has a Content-Length.
            return Err(Fault::new(Reason::CodingInHttp10, self.last));
        }
        // RFC 9112, section 7.1.
        self.parameters.map_or(Ok(()), |member| Err(Fault::new(Reason::CodingParameters, member)))
    }

    /// Checks that the only coding is one chunked.
    fn check_chunked_alone(&self) -> Result<(), Fault> {
        match (self.chunked, self.other) {
            (0, None) => Err(Fault::new(Reason::CodingEmpty, b"")),
            (1, None) => Ok(()),
            (2.., _) => Err(Fault::new(Reason::CodingRepeated, self.last)),
            (_, Some(other)) => Err(Fault::new(Reason::CodingUnsupported, other)),
        }
    }

    /// Checks that the list of codings has no empty member. By RFC 9110, section 5.6.1, a recipient ignores empty
    /// members, but some libraries do not: they would forward a chunked body undecoded.
    fn check_gaps(&self) -> Result<(), Fault> {
        if self.has_gap { Err(Fault::new(Reason::CodingUnsupported, b"(empty)")) } else { Ok(()) }
    }

    fn not_final(&self) -> Fault {
        if self.last.is_empty() {
            Fault::new(Reason::CodingEmpty, b"")
        } else {
            Fault::new(Reason::CodingNotFinal, self.last)
        }
    }
}
