//! QPACK, the compression of fields in HTTP/3 (RFC 9204).

use field_compression::qpack::FIELDS;
use field_compression::{integer, string};

use super::hpack::{entry, literal_name, put};
use super::table::{CAPACITY_MAX, Entry, Table, kept_capacity};
use super::{Fields, Malformed, Name};

/// Decodes the heads of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// The largest capacity that the other side permits, divided by the size of the smallest entry; `None` before its
    /// settings were seen.
    entries_max: Option<u64>,
}

/// The result of decoding a head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Fields(Fields),
    /// It refers to entries that were not inserted yet.
    Blocked,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { table: Table::new(0), entries_max: None }
    }

    /// Memory of the table in bytes, at most twice [`CAPACITY_MAX`].
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Number of insertions so far.
    pub(crate) fn inserted(&self) -> u64 {
        self.table.inserted()
    }

    /// The other side permits a table of this capacity.
    pub(crate) fn permit(&mut self, capacity: u64) {
        self.entries_max = Some(capacity / 32);
    }

    /// Forgets the table: there is no memory for it.
    pub(crate) fn forget(&mut self) {
        self.table.clear(CAPACITY_MAX);
    }

    /// Reads complete instructions from the start of the encoder's stream; returns the number of bytes used.
    ///
    /// # Errors
    /// An instruction contradicts the standard: both ends close such a connection.
    pub(crate) fn instructions(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut used = 0;
        let mut text = Vec::new();
        while used < bytes.len() {
            crate::work::spend(1);
            let mut rest = &bytes[used..];
            match self.instruction(&mut rest, &mut text) {
                Ok(()) => used = bytes.len() - rest.len(),
                // An instruction whose end is missing, or one that no more bytes make valid.
                Err(Malformed) if bytes.len() - used <= CAPACITY_MAX => break,
                Err(Malformed) => return Err(Malformed),
            }
        }
        Ok(used)
    }

    fn instruction(&mut self, rest: &mut &[u8], text: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut ignored = Fields::default();
        match *rest.first().ok_or(Malformed)? {
            first @ 0x80.. => {
                let index = integer::read(rest, 6)?;
                let name = if first & 0x40 != 0 { static_name(index)? } else { self.relative_name(index) };
                let value = string::read(rest, 7)?;
                put(name.0, value, &mut ignored, text)?;
                self.table.insert(entry(name.0, name.1, value, text)?);
            }
            0x40.. => {
                let name = literal_name(string::read(rest, 5)?)?;
                let value = string::read(rest, 7)?;
                put(name.0, value, &mut ignored, text)?;
                self.table.insert(entry(name.0, name.1, value, text)?);
            }
            0x20.. => {
                let capacity = integer::read(rest, 5)?;
                self.table.resize(kept_capacity(capacity));
            }
            _ => {
                let index = integer::read(rest, 5)?;
                let copy = self.table.newest(index).cloned();
                // An entry that is not known here is a field whose name is not known either.
                self.table.insert(copy.unwrap_or_else(Entry::unknown));
            }
        }
        Ok(())
    }

    /// The name of an entry, counted from the newest.
    fn relative_name(&self, index: u64) -> (Name, u32) {
        self.table.newest(index).map_or((Name::Unknown, 0), |entry| (entry.name, entry.name_length))
    }

    /// Decodes a complete block.
    ///
    /// # Errors
    /// The block contradicts the standard: both ends close such a connection.
    pub(crate) fn decode(&self, block: &[u8]) -> Result<Decoded, Malformed> {
        let mut block = block;
        let required = match self.required_insertions(integer::read(&mut block, 8)?)? {
            Some(required) if required > self.table.inserted() => return Ok(Decoded::Blocked),
            required => required,
        };
        let is_negative = block.first().ok_or(Malformed)? & 0x80 != 0;
        let delta = integer::read(&mut block, 7)?;
        // `None`: the settings were not seen, so that no reference to the dynamic table is known.
        let base = match (required, is_negative) {
            (None, _) => None,
            (Some(required), false) => Some(required.checked_add(delta).ok_or(Malformed)?),
            (Some(required), true) => Some(required.checked_sub(delta.saturating_add(1)).ok_or(Malformed)?),
        };
        let (mut fields, mut text) = (Fields::default(), Vec::new());
        while !block.is_empty() {
            crate::work::spend(1);
            self.line(&mut block, base, &mut fields, &mut text)?;
        }
        Ok(Decoded::Fields(fields))
    }

    /// Number of insertions that a block needs (RFC 9204, section 4.5.1.1); `None` if the settings were not seen.
    fn required_insertions(&self, encoded: u64) -> Result<Option<u64>, Malformed> {
        if encoded == 0 {
            return Ok(Some(0));
        }
        let Some(entries_max) = self.entries_max else { return Ok(None) };
        let full_range = 2 * entries_max;
        if encoded > full_range {
            return Err(Malformed);
        }
        let value_max = self.table.inserted() + entries_max;
        let wrapped = value_max / full_range * full_range;
        let mut required = wrapped + encoded - 1;
        if required > value_max {
            required = required.checked_sub(full_range).ok_or(Malformed)?;
        }
        if required == 0 { Err(Malformed) } else { Ok(Some(required)) }
    }

    /// A field line (RFC 9204, section 4.5).
    fn line(
        &self,
        block: &mut &[u8],
        base: Option<u64>,
        fields: &mut Fields,
        text: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let before = |index: u64| base.and_then(|base| base.checked_sub(index.checked_add(1)?));
        let behind = |index: u64| base.and_then(|base| base.checked_add(index));
        match *block.first().ok_or(Malformed)? {
            first @ 0x80.. => {
                let index = integer::read(block, 6)?;
                if first & 0x40 != 0 {
                    let (name, value) = static_entry(index)?;
                    fields.put(Name::of(name.as_bytes()), value.as_bytes());
                } else {
                    self.put_entry(before(index), fields);
                }
            }
            first @ 0x40.. => {
                let index = integer::read(block, 4)?;
                let name = if first & 0x10 != 0 { static_name(index)?.0 } else { self.name(before(index)) };
                put(name, string::read(block, 7)?, fields, text)?;
            }
            0x20.. => {
                let name = literal_name(string::read(block, 3)?)?.0;
                put(name, string::read(block, 7)?, fields, text)?;
            }
            0x10.. => {
                let index = integer::read(block, 4)?;
                self.put_entry(behind(index), fields);
            }
            _ => {
                let index = integer::read(block, 3)?;
                put(self.name(behind(index)), string::read(block, 7)?, fields, text)?;
            }
        }
        Ok(())
    }

    fn put_entry(&self, number: Option<u64>, fields: &mut Fields) {
        match number.and_then(|number| self.table.numbered(number)) {
            Some(entry) => fields.put(entry.name, &entry.value),
            None => fields.put(Name::Unknown, b""),
        }
    }

    fn name(&self, number: Option<u64>) -> Name {
        number.and_then(|number| self.table.numbered(number)).map_or(Name::Unknown, |entry| entry.name)
    }
}

fn static_entry(index: u64) -> Result<(&'static str, &'static str), Malformed> {
    usize::try_from(index).ok().and_then(|index| FIELDS.get(index)).copied().ok_or(Malformed)
}

fn static_name(index: u64) -> Result<(Name, u32), Malformed> {
    let (name, _) = static_entry(index)?;
    Ok((Name::of(name.as_bytes()), name.len() as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hpack::tests::bytes;
    use super::*;

    fn fields(decoder: &Decoder, hex: &str) -> Fields {
        match decoder.decode(&bytes(hex)).unwrap() {
            Decoded::Fields(fields) => fields,
            Decoded::Blocked => panic!("blocked: {hex}"),
        }
    }

    #[test]
    fn example_of_the_standard_is_decoded() {
        // RFC 9204, appendix B.
        let mut decoder = Decoder::new();
        decoder.permit(220);
        assert_eq!(
            fields(&decoder, "0000 510b 2f69 6e64 6578 2e68 746d 6c").path.as_deref(),
            Some(&b"/index.html"[..])
        );
        let two = bytes("0381 1011");
        assert_eq!(decoder.decode(&two), Ok(Decoded::Blocked));
        let stream = bytes("3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468");
        assert_eq!(decoder.instructions(&stream[..20]), Ok(20), "capacity, authority");
        assert_eq!(decoder.instructions(&stream[20..30]), Ok(0), "incomplete");
        assert_eq!((decoder.instructions(&stream[20..]), decoder.table.size()), (Ok(14), 106));
        let seen = fields(&decoder, "0381 1011");
        assert_eq!(seen.authority.as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(seen.path.as_deref(), Some(&b"/sample/path"[..]));
        decoder.instructions(&bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565")).unwrap();
        assert_eq!((decoder.table.inserted(), decoder.table.size()), (3, 160));
        decoder.instructions(&bytes("02")).unwrap();
        assert_eq!((decoder.table.inserted(), decoder.table.size()), (4, 217));
        let seen = fields(&decoder, "0500 80c1 81");
        assert_eq!((seen.authority.as_deref(), seen.path.as_deref()), (Some(&b"www.example.com"[..]), Some(&b"/"[..])));
        decoder.instructions(&bytes("810d 6375 7374 6f6d 2d76 616c 7565 32")).unwrap();
        assert_eq!((decoder.table.inserted(), decoder.table.size()), (5, 215));
    }

    #[test]
    fn references_without_settings_or_insertions_are_unknown() {
        let decoder = Decoder::new();
        let seen = fields(&decoder, "0381 10d1");
        assert_eq!((seen.unknown, seen.method.as_deref()), (1, Some(&b"GET"[..])));
        let mut decoder = Decoder::new();
        decoder.permit(220);
        assert_eq!(fields(&decoder, "0000 80d9").unknown, 1);
        for wrong in ["", "00", "0d00", "0100 ff80", "0000 ff24", "0000 51"] {
            assert_eq!(decoder.decode(&bytes(wrong)), Err(Malformed), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_instructions_and_blocks_keep_the_table_within_its_bounds(
            pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 1..20),
            permitted in 0u64..100_000,
        ) {
            let mut decoder = Decoder::new();
            decoder.permit(permitted);
            for (is_block, piece) in pieces {
                if is_block {
                    let _ = decoder.decode(&piece);
                } else if let Ok(used) = decoder.instructions(&piece) {
                    prop_assert!(used <= piece.len());
                }
                prop_assert!(decoder.table.size() <= CAPACITY_MAX && decoder.memory() <= 2 * CAPACITY_MAX);
            }
        }
    }
}
