//! Fields of HTTP/2 and HTTP/3 heads, decoded from HPACK (RFC 7541) and QPACK (RFC 9204).
//!
//! Only the fields that records use are kept. A reference to an entry of the dynamic table that was not captured
//! leaves its field unknown and is counted; nothing is guessed. Memory: a dynamic table holds at most 64 KB by the
//! standard's measure, which is at most 130 KB here.

pub(crate) mod hpack;
pub(crate) mod qpack;
mod table;

pub(crate) use field_compression::Malformed;

/// A field name, as far as records use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Method,
    Path,
    Authority,
    Status,
    Host,
    Referer,
    UserAgent,
    /// Any other.
    Other,
    /// A name that was not captured.
    Unknown,
}

impl Name {
    /// The field of this name: lower case, as HTTP/2 requires.
    fn of(name: &[u8]) -> Name {
        match name {
            b":method" => Name::Method,
            b":path" => Name::Path,
            b":authority" => Name::Authority,
            b":status" => Name::Status,
            b"host" => Name::Host,
            b"referer" => Name::Referer,
            b"user-agent" => Name::UserAgent,
            _ => Name::Other,
        }
    }

    /// Whether records use its value.
    fn is_used(self) -> bool {
        !matches!(self, Name::Other | Name::Unknown)
    }
}

/// The fields of a head that records use, as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) method: Option<Box<[u8]>>,
    pub(crate) path: Option<Box<[u8]>>,
    pub(crate) authority: Option<Box<[u8]>>,
    pub(crate) host: Option<Box<[u8]>>,
    pub(crate) referer: Option<Box<[u8]>>,
    pub(crate) user_agent: Option<Box<[u8]>>,
    pub(crate) status: Option<u16>,
    /// Number of fields that could not be decoded, because their table's entries were not captured.
    pub(crate) unknown: u32,
}

impl Fields {
    /// Takes a field in. Of repeated fields the first counts.
    fn put(&mut self, name: Name, value: &[u8]) {
        let place = match name {
            Name::Method => &mut self.method,
            Name::Path => &mut self.path,
            Name::Authority => &mut self.authority,
            Name::Host => &mut self.host,
            Name::Referer => &mut self.referer,
            Name::UserAgent => &mut self.user_agent,
            Name::Status => {
                self.status = self.status.or_else(|| status(value));
                return;
            }
            Name::Other => return,
            Name::Unknown => {
                self.unknown += 1;
                return;
            }
        };
        if place.is_none() {
            *place = Some(value.into());
        }
    }
}

/// A status of three digits.
fn status(value: &[u8]) -> Option<u16> {
    let digits = <[u8; 3]>::try_from(value).ok()?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |status, &digit| status * 10 + u16::from(digit - b'0')))
}
