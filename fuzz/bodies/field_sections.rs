//! Any bytes as field sections of one connection. The first byte: bit 0 QPACK instead of HPACK. Pieces: their length, up
//! to 255, then that many bytes.

use field_compression::{hpack, huffman, integer, qpack};

/// Most bytes of fields in a section of QPACK.
const LIMIT: usize = 4000;
/// Most bytes of a string of HPACK that are passed on, beyond which there is one more.
const STRING_MAX: usize = hpack::TABLE_BYTES;

/// Sections are decoded or refused within the limits, and what was decoded survives encoding; so do the strings and
/// integers at the beginning.
pub fn run(bytes: &[u8]) {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    primitives(rest);
    let mut decoder = hpack::Decoder::default();
    while let Some((&length, after)) = rest.split_first() {
        let (section, after) = after.split_at(after.len().min(usize::from(length)));
        if first & 1 == 1 {
            qpack_section(section);
        } else if !hpack_section(&mut decoder, section) {
            // The connection is over.
            return;
        }
        rest = after;
    }
}

fn primitives(bytes: &[u8]) {
    for bits in 1..=8 {
        let mut rest = bytes;
        if let Ok(value) = integer::read(&mut rest, bits) {
            let (mut again, mut back) = (Vec::new(), 0);
            integer::write(0, bits, value, &mut again);
            assert!(value <= integer::MAX && again.len() <= bytes.len() - rest.len());
            if let Ok(read) = integer::read(&mut &again[..], bits) {
                back = read;
            }
            assert_eq!(back, value);
        }
    }
    let mut text = Vec::new();
    if huffman::decode(bytes, |byte| text.push(byte)).is_ok() {
        let mut coded = Vec::new();
        huffman::encode(&text, &mut coded);
        assert_eq!(coded, bytes, "a text has one encoding");
    }
    assert!(text.len() * 5 <= bytes.len() * 8);
}

fn hpack_section(decoder: &mut hpack::Decoder, section: &[u8]) -> bool {
    let mut fields = Vec::new();
    let is_valid = decoder.decode(section, STRING_MAX, |name, value| {
        assert!(name.len() <= STRING_MAX + 1 && value.len() <= STRING_MAX + 1);
        fields.push((name.to_vec(), value.to_vec()));
    });
    let mut again = Vec::new();
    for (name, value) in &fields {
        hpack::encode_field(name, value, &mut again);
    }
    let mut back = Vec::new();
    let decoded = hpack::Decoder::default().decode(&again, STRING_MAX, |name, value| {
        back.push((name.to_vec(), value.to_vec()));
    });
    assert_eq!((decoded, back), (Ok(()), fields));
    is_valid.is_ok()
}

fn qpack_section(section: &[u8]) {
    let (mut fields, mut size) = (Vec::new(), 0);
    let _ = qpack::decode(section, LIMIT, |name, value| {
        size += name.len() + value.len() + 32;
        fields.push((name.to_vec(), value.to_vec()));
    });
    assert!(size <= LIMIT);
    let mut again = Vec::new();
    qpack::begin(&mut again);
    for (name, value) in &fields {
        qpack::encode(name, value, &mut again);
    }
    let mut back = Vec::new();
    let decoded = qpack::decode(&again, LIMIT, |name, value| back.push((name.to_vec(), value.to_vec())));
    assert_eq!((decoded, back), (Ok(()), fields));
}
