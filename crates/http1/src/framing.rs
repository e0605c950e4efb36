//! How long a message's body is: the one table of RFC 9112, section 6.3, with a column for each role.
//!
//! | the message has | client | observer | gateway | server (requests) |
//! |---|---|---|---|---|
//! | HEAD asked, or status 1xx, 204, 304 | none | none | none | |
//! | status 101 | fault | tunnel | fault | |
//! | CONNECT asked, status 2xx | tunnel | tunnel | tunnel | |
//! | Transfer-Encoding in HTTP/1.0 | fault | fault | fault | fault |
//! | chunked with parameters | fault | fault | fault | fault |
//! | Transfer-Encoding and Content-Length | as the coding says | as the coding says | as the coding says | fault |
//! | chunked last | chunked | chunked | fault unless alone, also for an empty member of the list | fault unless alone |
//! | another coding last, or none named | until close | until close; of a request a fault | fault | fault |
//! | several Content-Length, the same valid number | that length | that length | that length | fault |
//! | Content-Length that is not a number, or different ones | fault | fault | fault | fault |
//! | Content-Length | length | length | length | length |
//! | none of these | until close | until close; of a request none | until close | none |
//!
//! After a message with both fields, or with chunked more than once, the connection is not used again
//! ([`Fields::is_ambiguous`]): someone before this reader may have read another end.
//!
//! Why the roles differ: a *server* refuses what a program before or behind it could read differently, since requests
//! are smuggled that way. A *client* reads what the RFC defines; the next response is on another connection.
//! A *gateway* (the client side of a relay) passes a body on to others, so it must know every coding of it, and it
//! supports chunked alone. An *observer* reads what both ends are likely to read; a fault means that the message's end
//! is unknown, and it finds the next one by the change of direction.

use crate::fault::{Fault, Reason};
use crate::list::{NotDecimal, decimal, members, trim};

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads responses to its own requests.
    Client,
    /// Reads requests and responses of others, and takes no part.
    Observer,
    /// Reads responses and passes their bodies on.
    Gateway,
    /// Reads requests.
    Server,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none, whatever the fields say.
    None,
    /// After so many bytes.
    Length(u64),
    /// With the last chunk and its trailers.
    Chunked,
    /// With the connection.
    UntilClose,
    /// What follows is another protocol.
    Tunnel,
}

/// What of a request decides how its response is framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
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
    /// HTTP/1.0, which has no transfer codings.
    Http10,
    /// HTTP/1.1, and any later minor version (RFC 9110, section 2.5).
    #[default]
    Http11,
}

/// What the fields of one head say about its body: taken in line by line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
    length: Option<u64>,
    /// More than one value of Content-Length.
    length_repeated: bool,
    length_fault: Option<Fault>,
    coding: Option<Coding<'a>>,
}

/// The transfer codings of a message.
#[derive(Clone, Copy, Debug)]
struct Coding<'a> {
    /// The last one; empty where none is named.
    last: &'a [u8],
    /// One that is not chunked.
    other: Option<&'a [u8]>,
    /// How often chunked is named.
    chunked: u8,
    /// chunked with parameters.
    parameters: Option<&'a [u8]>,
    /// The list has an empty member.
    has_gap: bool,
}

impl<'a> Fields<'a> {
    /// Takes in a Content-Length field. RFC 9110, section 8.6: a list of equal numbers is that number.
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

    /// Takes in a Transfer-Encoding field.
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

    /// Whether another reader could find another end: the connection is of no further use after the message.
    pub fn is_ambiguous(&self) -> bool {
        self.coding.is_some_and(|coding| coding.chunked > 1 || self.has_length())
    }

    /// The value of Content-Length, where it is one number.
    pub fn length(&self) -> Option<u64> {
        self.length.filter(|_| self.length_fault.is_none())
    }

    fn has_length(&self) -> bool {
        self.length.is_some() || self.length_fault.is_some()
    }

    /// How the body of a response ends.
    ///
    /// # Errors
    /// Nobody can tell, or `role` does not read such a body.
    pub fn response(&self, role: Role, status: u16, version: Version, asked: Asked) -> Result<Body, Fault> {
        if status == 101 {
            // RFC 9110, section 15.2.2: to who asked for it with Upgrade, which the clients here never do.
            let is_seen_only = role == Role::Observer;
            return if is_seen_only { Ok(Body::Tunnel) } else { Err(Fault::new(Reason::UnrequestedUpgrade, b"101")) };
        }
        // RFC 9110, section 9.3.6: any 2xx, 204 too.
        if asked == Asked::Connect && status / 100 == 2 {
            return Ok(Body::Tunnel);
        }
        if asked == Asked::Head || matches!(status, 100..=199 | 204 | 304) {
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

    /// How the body of a request ends: never with the connection.
    ///
    /// # Errors
    /// Nobody can tell, or `role` does not read such a body.
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

    /// What is wrong with it for everyone.
    fn check(&self, version: Version) -> Result<(), Fault> {
        if version == Version::Http10 {
            // RFC 9112, section 6.1: faulty framing, even if there is a length.
            return Err(Fault::new(Reason::CodingInHttp10, self.last));
        }
        // RFC 9112, section 7.1.
        self.parameters.map_or(Ok(()), |member| Err(Fault::new(Reason::CodingParameters, member)))
    }

    /// Chunked once and nothing else.
    fn check_chunked_alone(&self) -> Result<(), Fault> {
        match (self.chunked, self.other) {
            (0, None) => Err(Fault::new(Reason::CodingEmpty, b"")),
            (1, None) => Ok(()),
            (2.., _) => Err(Fault::new(Reason::CodingRepeated, self.last)),
            (_, Some(other)) => Err(Fault::new(Reason::CodingUnsupported, other)),
        }
    }

    /// RFC 9110, section 5.6.1, has empty members of a list ignored. Not every library does, and a body that one reader
    /// takes for chunked and another one does not is passed on as it came.
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
