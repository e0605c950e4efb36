//! HPACK, the compression of fields in HTTP/2 (RFC 7541).

use super::primitive::{Literal, Reader};
use super::table::{CAPACITY_MAX, Entry, Table};
use super::{Fields, Malformed, Name};

/// Decodes the heads of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// The string that is being decoded; a member only to reuse its memory.
    text: Vec<u8>,
}

impl Decoder {
    /// A decoder for a connection seen from its start, or (`is_fresh` false) for one whose table is unknown.
    pub(crate) fn new(is_fresh: bool) -> Decoder {
        Decoder { table: Table::new(if is_fresh { CAPACITY_DEFAULT } else { CAPACITY_MAX }), text: Vec::new() }
    }

    /// Memory of the table in bytes, at most twice [`CAPACITY_MAX`].
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Heads were not captured, or are not decoded: the table is unknown from here on.
    pub(crate) fn forget(&mut self) {
        self.table.forget();
    }

    /// Decodes a complete block.
    ///
    /// # Errors
    /// The block contradicts the standard: both ends close such a connection. The table is unknown afterwards.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Fields, Malformed> {
        let mut fields = Fields::default();
        let mut text = std::mem::take(&mut self.text);
        let outcome = self.read(Reader(block), &mut fields, &mut text);
        if text.capacity() <= TEXT_KEPT_MAX {
            self.text = text;
        }
        if outcome.is_err() {
            self.forget();
        }
        outcome.map(|()| fields)
    }

    fn read(&mut self, mut block: Reader<'_>, fields: &mut Fields, text: &mut Vec<u8>) -> Result<(), Malformed> {
        while !block.is_empty() {
            crate::work::spend(1);
            match block.peek()? {
                0x80.. => {
                    let index = block.integer(7)?;
                    self.indexed(index, fields)?;
                }
                0x40.. => {
                    let name = self.name(&mut block, 6)?;
                    self.insert(name, block.string(7)?, fields, text)?;
                }
                0x20.. => {
                    let capacity = block.integer(5)?;
                    self.table.resize(capacity);
                }
                // Never indexed, or without indexing.
                _ => {
                    let name = self.name(&mut block, 4)?;
                    let value = block.string(7)?;
                    put(name.0, value, fields, text)?;
                }
            }
        }
        Ok(())
    }

    /// A field of either table.
    fn indexed(&self, index: u64, fields: &mut Fields) -> Result<(), Malformed> {
        let place = index.checked_sub(1).ok_or(Malformed)?;
        match place.checked_sub(STATIC.len() as u64) {
            None => {
                let (name, value) = STATIC[place as usize];
                fields.put(Name::of(name.as_bytes()), value.as_bytes());
            }
            Some(place) => match self.table.newest(place) {
                Some(entry) => fields.put(entry.name, &entry.value),
                None => fields.put(Name::Unknown, b""),
            },
        }
        Ok(())
    }

    /// A name by its index, or as a literal, and its length, 0 if it is unknown.
    fn name(&self, block: &mut Reader<'_>, prefix: u32) -> Result<(Name, u32), Malformed> {
        let index = block.integer(prefix)?;
        let Some(place) = index.checked_sub(1) else {
            return literal_name(block.string(7)?);
        };
        Ok(match place.checked_sub(STATIC.len() as u64) {
            None => {
                let name = STATIC[place as usize].0;
                (Name::of(name.as_bytes()), name.len() as u32)
            }
            Some(place) => self.table.newest(place).map_or((Name::Unknown, 0), |entry| (entry.name, entry.name_length)),
        })
    }

    /// A field that is inserted into the table. The size of one with an unknown name is unknown, and so which others it
    /// evicts; the places of the newest are right nevertheless, and the encoder never refers to what it has evicted.
    fn insert(
        &mut self,
        (name, name_length): (Name, u32),
        value: Literal<'_>,
        fields: &mut Fields,
        text: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        put(name, value, fields, text)?;
        self.table.insert(entry(name, name_length, value, text)?);
        Ok(())
    }
}

/// Takes in the field of a literal, which is decoded into `text` only if a record uses it.
pub(super) fn put(name: Name, value: Literal<'_>, fields: &mut Fields, text: &mut Vec<u8>) -> Result<(), Malformed> {
    if name.is_used() {
        value.decode(text)?;
    }
    fields.put(name, text);
    Ok(())
}

/// The entry of a field whose value is in `text` if a record uses it.
pub(super) fn entry(name: Name, name_length: u32, value: Literal<'_>, text: &[u8]) -> Result<Entry, Malformed> {
    if name.is_used() {
        return Ok(Entry { name, name_length, value: text.into(), value_length: text.len() as u32 });
    }
    Ok(Entry { name, name_length, value: Box::default(), value_length: value.length()? as u32 })
}

/// A name as a literal, and its length.
pub(super) fn literal_name(name: Literal<'_>) -> Result<(Name, u32), Malformed> {
    let mut text = Vec::new();
    name.decode(&mut text)?;
    Ok((Name::of(&text), text.len() as u32))
}

/// Initial size of the table (RFC 9113, section 6.5.2). Another begins with an update in a block.
const CAPACITY_DEFAULT: usize = 4096;
/// Longest text whose memory is kept for the next.
const TEXT_KEPT_MAX: usize = 1024;

/// The static table (RFC 7541, appendix A); the first entry has index 1.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
pub(super) mod tests;
