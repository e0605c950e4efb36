//! QPACK (RFC 9204) with the static table only.
//!
//! Neither side of a connection of this program announces a dynamic table, so a field section is complete in itself: no
//! stream waits for another, and the memory of a section is bounded by its length.

mod static_table;

use crate::table::ENTRY_OVERHEAD;
use crate::{Malformed, integer, string};
pub use static_table::FIELDS;
use static_table::entries_of;

/// Why a field section cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// It ends in the middle of a field, has an integer above 2^62 or an invalid Huffman code, or refers to an entry
    /// that does not exist; entries of the dynamic table, which was not announced, are among them.
    #[error("the field section is not valid QPACK")]
    Malformed,
    /// The fields together are larger than allowed.
    #[error("the field section is larger than allowed")]
    TooLarge,
}

impl From<Malformed> for SectionError {
    fn from(_: Malformed) -> Self {
        SectionError::Malformed
    }
}

/// Begins a field section: no entry of a dynamic table is needed.
pub fn begin(into: &mut Vec<u8>) {
    into.extend_from_slice(&[0, 0]);
}

/// Appends a field. `name`: in lower case.
pub fn encode(name: &[u8], value: &[u8], into: &mut Vec<u8>) {
    let entries = entries_of(name);
    if let Some(&index) = entries.iter().find(|&&index| FIELDS[usize::from(index)].1.as_bytes() == value) {
        return integer::write(0b1100_0000, 6, u64::from(index), into);
    }
    match entries.first() {
        Some(&index) => integer::write(0b0101_0000, 4, u64::from(index), into),
        None => string::write(0b0010_0000, 3, name, into),
    }
    string::write(0, 7, value, into);
}

/// Reads a field section, and passes each field to `field` as name and value. `limit`: most bytes of all fields, each
/// counted with 32 bytes more than its name and value, as for SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114, section 4.2.2).
///
/// # Errors
/// The section is not valid, or too large. Fields before the fault were passed.
pub fn decode(section: &[u8], limit: usize, mut field: impl FnMut(&[u8], &[u8])) -> Result<(), SectionError> {
    let mut rest = section;
    // Section 4.5.1: the required insert count, and the base, which means nothing without insertions.
    let required = integer::read(&mut rest, 8)?;
    let _base = integer::read(&mut rest, 7)?;
    if required != 0 {
        return Err(SectionError::Malformed);
    }
    let (mut size, mut name_text, mut value_text) = (0usize, Vec::new(), Vec::new());
    while let Some(&first) = rest.first() {
        let (name, value) = if first & 0b1000_0000 != 0 {
            // Indexed field.
            static_entry(first & 0b0100_0000 != 0, integer::read(&mut rest, 6)?)?
        } else if first & 0b0100_0000 != 0 {
            // Literal value with the name of an entry.
            let (name, _) = static_entry(first & 0b0001_0000 != 0, integer::read(&mut rest, 4)?)?;
            (name, string::read(&mut rest, 7)?.text(&mut value_text)?)
        } else if first & 0b0010_0000 != 0 {
            // Literal name and value.
            let name = string::read(&mut rest, 3)?.text(&mut name_text)?;
            (name, string::read(&mut rest, 7)?.text(&mut value_text)?)
        } else {
            // Entries of the dynamic table after the base.
            return Err(SectionError::Malformed);
        };
        size = size.saturating_add(name.len() + value.len() + ENTRY_OVERHEAD);
        if size > limit {
            return Err(SectionError::TooLarge);
        }
        field(name, value);
    }
    Ok(())
}

fn static_entry(is_static: bool, index: u64) -> Result<(&'static [u8], &'static [u8]), SectionError> {
    let entry = usize::try_from(index).ok().filter(|_| is_static).and_then(|index| FIELDS.get(index));
    entry.map(|(name, value)| (name.as_bytes(), value.as_bytes())).ok_or(SectionError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Fields = Vec<(String, Vec<u8>)>;

    fn encoded(fields: &Fields) -> Vec<u8> {
        let mut section = Vec::new();
        begin(&mut section);
        for (name, value) in fields {
            encode(name.as_bytes(), value, &mut section);
        }
        section
    }

    fn decoded(section: &[u8], limit: usize) -> Result<Fields, SectionError> {
        let mut fields = Fields::new();
        decode(section, limit, |name, value| {
            fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
        })?;
        Ok(fields)
    }

    #[test]
    fn the_first_example_of_the_specification() {
        // RFC 9204, appendix B.1: `:path: /index.html`, without Huffman codes.
        let section = [0, 0, 0x51, 0x0b, 0x2f, 0x69, 0x6e, 0x64, 0x65, 0x78, 0x2e, 0x68, 0x74, 0x6d, 0x6c];
        assert_eq!(decoded(&section, 100), Ok(vec![(":path".into(), b"/index.html".to_vec())]));
    }

    #[test]
    fn common_fields_take_one_or_two_bytes() {
        let fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), ("accept", "*/*")];
        let fields: Fields = fields.map(|(name, value)| (name.into(), value.into())).to_vec();
        assert_eq!(encoded(&fields).len(), 2 + 4);
        // Entry 98 needs a second byte.
        assert_eq!(encoded(&vec![("x-frame-options".into(), b"sameorigin".to_vec())]).len(), 2 + 2);
    }

    #[test]
    fn a_section_just_within_the_limit_is_accepted() {
        let section = encoded(&vec![("a".into(), b"bc".to_vec()), (":path".into(), b"/".to_vec())]);
        assert!(decoded(&section, 3 + 32 + 6 + 32).is_ok());
        assert_eq!(decoded(&section, 3 + 32 + 6 + 31), Err(SectionError::TooLarge));
    }

    #[test]
    fn references_outside_of_the_static_table_are_refused() {
        for field in [
            // Indexed, dynamic; static, index 99; literal with a dynamic name; after the base, twice.
            &[0b1000_0001][..],
            &[0xff, 36],
            &[0b0100_0001, 0],
            &[0b0001_0001],
            &[0b0000_0001, 0],
        ] {
            let section = [&[0, 0], field].concat();
            assert_eq!(decoded(&section, 1000), Err(SectionError::Malformed), "{field:x?}");
        }
        assert!(decoded(&[0, 0, 0xff, 35], 1000).is_ok());
        // A required entry of the dynamic table.
        assert_eq!(decoded(&[2, 0, 0xd1], 1000), Err(SectionError::Malformed));
        // Endless integers.
        assert_eq!(decoded(&[[0, 0, 0xff].as_slice(), &[0xff; 40]].concat(), 1000), Err(SectionError::Malformed));
        assert_eq!(decoded(&[], 1000), Err(SectionError::Malformed));
    }

    proptest! {
        #[test]
        fn fields_survive_encoding_and_decoding(
            fields in prop::collection::vec(("[a-z:-]{1,40}", prop::collection::vec(any::<u8>(), 0..300)), 0..20),
        ) {
            prop_assert_eq!(decoded(&encoded(&fields), usize::MAX), Ok(fields));
        }

        #[test]
        fn any_bytes_are_read_without_panic_and_within_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(fields) = decoded(&bytes, 2000) {
                prop_assert!(fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() <= 2000);
            }
        }
    }
}
