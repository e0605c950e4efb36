//! HPACK, the compression of fields in HTTP/2 (RFC 7541).

use field_compression::hpack::FIELDS;
use field_compression::integer;
use field_compression::string::{self, Literal};

use super::table::{CAPACITY_MAX, Entry, Table, kept_capacity};
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
        self.table.clear(CAPACITY_MAX);
    }

    /// Decodes a complete block.
    ///
    /// # Errors
    /// The block contradicts the standard: both ends close such a connection. The table is unknown afterwards.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Fields, Malformed> {
        let mut fields = Fields::default();
        let mut text = std::mem::take(&mut self.text);
        let outcome = self.read(block, &mut fields, &mut text);
        if text.capacity() <= TEXT_KEPT_MAX {
            self.text = text;
        }
        if outcome.is_err() {
            self.forget();
        }
        outcome.map(|()| fields)
    }

    fn read(&mut self, mut block: &[u8], fields: &mut Fields, text: &mut Vec<u8>) -> Result<(), Malformed> {
        while let Some(&first) = block.first() {
            crate::work::spend(1);
            match first {
                0x80.. => {
                    let index = integer::read(&mut block, 7)?;
                    self.indexed(index, fields)?;
                }
                0x40.. => {
                    let name = self.name(&mut block, 6)?;
                    self.insert(name, string::read(&mut block, 7)?, fields, text)?;
                }
                0x20.. => {
                    let capacity = integer::read(&mut block, 5)?;
                    self.table.resize(kept_capacity(capacity));
                }
                // Never indexed, or without indexing.
                _ => {
                    let name = self.name(&mut block, 4)?;
                    let value = string::read(&mut block, 7)?;
                    put(name.0, value, fields, text)?;
                }
            }
        }
        Ok(())
    }

    /// A field of either table.
    fn indexed(&self, index: u64, fields: &mut Fields) -> Result<(), Malformed> {
        let place = index.checked_sub(1).ok_or(Malformed)?;
        match place.checked_sub(FIELDS.len() as u64) {
            None => {
                let (name, value) = FIELDS[place as usize];
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
    fn name(&self, block: &mut &[u8], prefix: u32) -> Result<(Name, u32), Malformed> {
        let index = integer::read(block, prefix)?;
        let Some(place) = index.checked_sub(1) else {
            return literal_name(string::read(block, 7)?);
        };
        Ok(match place.checked_sub(FIELDS.len() as u64) {
            None => {
                let name = FIELDS[place as usize].0;
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
        text.clear();
        value.decode(text, usize::MAX)?;
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
    let mut scratch = Vec::new();
    let text = name.text(&mut scratch)?;
    Ok((Name::of(text), text.len() as u32))
}

/// Initial size of the table (RFC 9113, section 6.5.2). Another begins with an update in a block.
const CAPACITY_DEFAULT: usize = 4096;
/// Longest text whose memory is kept for the next.
const TEXT_KEPT_MAX: usize = 1024;

#[cfg(test)]
pub(super) mod tests;
