//! HPACK (RFC 7541): decoding with the dynamic table, encoding without it.
//!
//! Sections are encoded with the static table only, so that equal sections have equal encodings, which can be reused.

mod static_table;
#[cfg(test)]
mod tests;

use crate::table::{ENTRY_OVERHEAD, Entry, Table};
use crate::{Malformed, integer, string};
pub use static_table::FIELDS;

/// The decoder of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table<Field>,
    /// A decoded name, behind it a decoded value.
    text: Vec<u8>,
}

impl Default for Decoder {
    /// A decoder with an empty table of [`TABLE_BYTES`], the initial size (RFC 9113, section 6.5.2), which is also the
    /// largest that this decoder accepts.
    fn default() -> Self {
        Decoder { table: Table::new(TABLE_BYTES), text: Vec::new() }
    }
}

impl Decoder {
    /// Decodes a complete field section, and passes each field to `field` as name and value, any bytes. Of a string of
    /// more than `string_max` bytes, and more than the table holds, one byte more than that is passed on: `field` finds
    /// it too long.
    ///
    /// # Errors
    /// The section is malformed, or refers to a field that is not in a table. Fields before the fault were passed. The
    /// connection is over then, since its table is unknown from here on.
    pub fn decode(
        &mut self,
        mut input: &[u8],
        string_max: usize,
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        // A string that the table can keep must be whole.
        let most = string_max.max(TABLE_BYTES) + 1;
        let mut text = std::mem::take(&mut self.text);
        let mut begins = true;
        while let Some(&first) = input.first() {
            text.clear();
            if first & 0x80 != 0 {
                let index = integer::read(&mut input, 7)?;
                let (name, value) = self.entry(index)?;
                field(name, value);
            } else if first & 0xe0 == 0x20 {
                // Section 4.2: only before the first field.
                let capacity = integer::read(&mut input, 5)?;
                if !begins || capacity > TABLE_BYTES as u64 {
                    return Err(Malformed);
                }
                self.table.resize(capacity as usize);
                continue;
            } else {
                let is_kept = first & 0x40 != 0;
                let index = integer::read(&mut input, if is_kept { 6 } else { 4 })?;
                if index == 0 {
                    string::read(&mut input, 7)?.decode(&mut text, most)?;
                } else {
                    text.extend_from_slice(self.entry(index)?.0);
                }
                let name_bytes = text.len();
                string::read(&mut input, 7)?.decode(&mut text, most)?;
                let (name, value) = text.split_at(name_bytes);
                field(name, value);
                if is_kept {
                    self.table.insert(Field { name_bytes, text: text[..].into() });
                }
            }
            begins = false;
        }
        // The memory of a rare long string is released.
        text.shrink_to(TEXT_KEPT_BYTES);
        self.text = text;
        Ok(())
    }

    /// A field of either table (section 2.3.3).
    fn entry(&self, index: u64) -> Result<(&[u8], &[u8]), Malformed> {
        let place = index.checked_sub(1).ok_or(Malformed)?;
        match place.checked_sub(FIELDS.len() as u64) {
            None => {
                let (name, value) = FIELDS[place as usize];
                Ok((name.as_bytes(), value.as_bytes()))
            }
            Some(place) => {
                let Field { name_bytes, text } = self.table.newest(place).ok_or(Malformed)?;
                Ok(text.split_at(*name_bytes))
            }
        }
    }
}

/// A field of the dynamic table.
#[derive(Debug)]
struct Field {
    name_bytes: usize,
    /// The name, behind it the value.
    text: Box<[u8]>,
}

impl Entry for Field {
    fn size(&self) -> usize {
        self.text.len() + ENTRY_OVERHEAD
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

/// Appends the status of a response.
pub fn encode_status(status: &[u8; 3], out: &mut Vec<u8>) {
    match FIELDS[STATUSES].iter().position(|(_, value)| value.as_bytes() == status) {
        Some(at) => out.push(0x80 | (STATUSES.start + 1 + at) as u8),
        None => {
            out.push(STATUSES.start as u8 + 1);
            string::write(0, 7, status, out);
        }
    }
}

/// Appends a field, which no table keeps. `name`: in lower case.
pub fn encode_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match FIELDS[NAMES_FROM..].iter().position(|(known, _)| known.as_bytes() == name) {
        Some(at) => integer::write(0, 4, (NAMES_FROM + 1 + at) as u64, out),
        None => {
            out.push(0);
            string::write(0, 7, name, out);
        }
    }
    string::write(0, 7, value, out);
}

/// The default of SETTINGS_HEADER_TABLE_SIZE, bytes.
pub const TABLE_BYTES: usize = 4096;
/// Memory of decoded strings that is kept for the next section.
const TEXT_KEPT_BYTES: usize = 512;
/// The statuses in [`FIELDS`].
const STATUSES: std::ops::Range<usize> = 7..14;
/// The first ordinary field in [`FIELDS`].
const NAMES_FROM: usize = 14;
