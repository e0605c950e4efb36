//! A response's head: status, framing, and whether the connection stays.

use std::mem::MaybeUninit;

use ledger::Method;

use super::response::Fault;

/// Largest head accepted, in bytes, its empty line included. Servers' own limits lie between 8 and 64 KiB.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most header lines accepted in one head.
pub const HEADERS_MAX: usize = 128;

/// What every response begins with; told apart from garbage before a line is whole.
pub(super) const PREFIX: &[u8] = b"HTTP/1.";

/// What the client needs to know from a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// 100 to 999.
    pub status: u16,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the connection may serve another request.
    pub keep_alive: bool,
    /// Bytes of the head, its empty line included.
    pub length: usize,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// With the last chunk and its trailers.
    Chunked,
    /// With the connection.
    UntilClose,
}

impl Head {
    /// Whether a further response follows this one.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// Reads the head at the front of `bytes`; `None` if it is not whole yet.
///
/// # Errors
/// It is no head, it has too many headers, or its framing contradicts itself.
pub fn parse(bytes: &[u8], method: Method) -> Result<Option<Head>, Fault> {
    if bytes.iter().zip(PREFIX).any(|(byte, expected)| byte != expected) {
        return Err(Fault::Malformed);
    }
    // Uninitialised on purpose: clearing 128 headers would cost as much as reading ten.
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::HeadTooLarge),
        Err(_) => return Err(Fault::Malformed),
    };
    let (Some(status), Some(minor_version)) = (response.code, response.version) else { return Err(Fault::Malformed) };
    // 101 was not asked for, and what follows it would not be HTTP/1.
    if status < 100 || status == 101 {
        return Err(Fault::Malformed);
    }
    let fields = Fields::read(response.headers)?;
    let framing = fields.framing(status, minor_version, method)?;
    let keep_alive = fields.keep_alive(minor_version) && framing != Framing::UntilClose;
    Ok(Some(Head { status, framing, keep_alive, length }))
}

/// The header fields that bear on framing.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    transfer_encoding: Option<Coding>,
    close: bool,
    keep_alive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// chunked is the last coding, and only there.
    ChunkedLast,
    /// Any other: such a body ends with the connection.
    Other,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>]) -> Result<Self, Fault> {
        let mut fields = Fields::default();
        for header in headers {
            // The length tells nearly every other header apart.
            match header.name.len() {
                10 if header.name.eq_ignore_ascii_case("connection") => fields.read_connection(header.value),
                14 if header.name.eq_ignore_ascii_case("content-length") => fields.read_length(header.value)?,
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => fields.read_coding(header.value),
                _ => {}
            }
        }
        Ok(fields)
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9110, section 8.6: a list of equal values may be read as one; anything else is an error.
    fn read_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        for text in value.split(|&byte| byte == b',') {
            let length = decimal(text.trim_ascii()).ok_or(Fault::Malformed)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Fault::Malformed);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn read_coding(&mut self, value: &[u8]) {
        for coding in list(value) {
            let chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.transfer_encoding = Some(match self.transfer_encoding {
                // Anything after chunked, chunked again included, means that chunked does not end the body.
                Some(Coding::ChunkedLast) => Coding::Other,
                None | Some(Coding::Other) if chunked => Coding::ChunkedLast,
                None | Some(Coding::Other) => Coding::Other,
            });
        }
    }

    /// RFC 9112, section 6.3, in its order.
    fn framing(&self, status: u16, minor_version: u8, method: Method) -> Result<Framing, Fault> {
        if status < 200 || status == 204 || status == 304 || method == Method::Head {
            return Ok(Framing::None);
        }
        match (self.transfer_encoding, self.length) {
            // RFC 9112, section 6.1: to be treated as faulty framing, even if there is a length.
            (Some(_), _) if minor_version == 0 => Err(Fault::Malformed),
            (Some(Coding::ChunkedLast), _) => Ok(Framing::Chunked),
            (Some(Coding::Other), _) => Ok(Framing::UntilClose),
            (None, Some(length)) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::UntilClose),
        }
    }

    fn keep_alive(&self, minor_version: u8) -> bool {
        // A message with both a coding and a length may be an attack on someone: its connection is not trusted.
        let ambiguous = self.transfer_encoding.is_some() && self.length.is_some();
        !self.close && !ambiguous && (minor_version == 1 || self.keep_alive)
    }
}

/// The members of a comma-separated list, empty ones left out.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(|member| member.trim_ascii()).filter(|member| !member.is_empty())
}

/// Digits only: no sign, no space, no overflow.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
