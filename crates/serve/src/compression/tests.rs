//! Tests of HPACK and its parts: examples of RFC 7541, round trips, hostile input.

use proptest::prelude::*;

use super::hpack::{Decoder, encode_field, encode_status};
use super::*;

/// Collects `name: value` lines.
#[derive(Default)]
struct Lines(Vec<(Vec<u8>, Vec<u8>)>);

impl FieldSink for Lines {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }
}

impl Lines {
    fn text(&self) -> String {
        let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
            format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        self.0.iter().map(line).collect()
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decoded(decoder: &mut Decoder, input: &[u8]) -> Result<String, MalformedSection> {
    let mut lines = Lines::default();
    decoder.decode(input, 4096, &mut lines).map(|()| lines.text())
}

/// RFC 7541, appendix C.4: three requests of one connection, with Huffman coding and the dynamic table.
#[test]
fn the_requests_of_rfc_7541_c_4_are_decoded() {
    let mut decoder = Decoder::default();
    let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
    assert_eq!(decoded(&mut decoder, &bytes("828684418cf1e3c2e5f23a6ba0ab90f4ff")).unwrap(), first);
    let second = format!("{first}cache-control: no-cache\n");
    assert_eq!(decoded(&mut decoder, &bytes("828684be5886a8eb10649cbf")).unwrap(), second);
    let third =
        ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n";
    assert_eq!(decoded(&mut decoder, &bytes("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")).unwrap(), third);
}

/// RFC 7541, appendix C.6: entries are evicted from a table of 256 bytes.
#[test]
fn the_responses_of_rfc_7541_c_6_are_decoded() {
    let mut decoder = Decoder::default();
    // The maximum of 256 is set first.
    let first = bytes(
        "3fe101 488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
         6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    );
    let date = "Mon, 21 Oct 2013 20:13:21 GMT";
    let rest = format!("cache-control: private\ndate: {date}\nlocation: https://www.example.com\n");
    assert_eq!(decoded(&mut decoder, &first).unwrap(), format!(":status: 302\n{rest}"));
    assert_eq!(decoded(&mut decoder, &bytes("4883640effc1c0bf")).unwrap(), format!(":status: 307\n{rest}"));
}

#[test]
fn malformed_field_sections_are_refused() {
    for (hex, why) in [
        ("80", "index 0"),
        ("be", "an index beyond both tables"),
        ("ffffffffff7f", "an integer above the maximum"),
        ("ff8080808080808000", "an integer with endless zeros"),
        ("ff", "an incomplete integer"),
        ("00", "no name"),
        ("0003616263", "no value"),
        ("0005616263", "an incomplete name"),
        ("8220", "a table size after a field"),
        ("3fe21f", "a table size above the announced one"),
        ("008161ff8161ff", "padding with a bit that is zero"),
        ("0081ff0161", "a padding of eight bits"),
        ("0084ffffffff0161", "the end symbol"),
        ("008100 0161", "a padding of zeros"),
    ] {
        assert_eq!(decoded(&mut Decoder::default(), &bytes(hex)), Err(MalformedSection), "{why}");
    }
}

#[test]
fn the_dynamic_table_keeps_at_most_its_size() {
    let mut decoder = Decoder::default();
    let entry = |name: &str, value: &str| {
        let mut section = vec![0x40];
        integer::write(&mut section, 0, 7, name.len());
        section.extend_from_slice(name.as_bytes());
        integer::write(&mut section, 0, 7, value.len());
        section.extend_from_slice(value.as_bytes());
        section
    };
    // Entries of 128 bytes each: 32 fit into 4096.
    for number in 0..40 {
        decoded(&mut decoder, &entry(&format!("n{number:05}"), &"v".repeat(90))).unwrap();
    }
    let last = |decoder: &mut Decoder, index: usize| {
        let mut section = Vec::new();
        integer::write(&mut section, 0x80, 7, index);
        decoded(decoder, &section)
    };
    assert!(last(&mut decoder, 62).unwrap().starts_with("n00039: "));
    assert!(last(&mut decoder, 93).unwrap().starts_with("n00008: "));
    assert_eq!(last(&mut decoder, 94), Err(MalformedSection));
    // An entry larger than the table empties it.
    decoded(&mut decoder, &entry("n", &"v".repeat(4090))).unwrap();
    assert_eq!(last(&mut decoder, 62), Err(MalformedSection));
    decoded(&mut decoder, &entry("kept", "x")).unwrap();
    decoded(&mut decoder, &bytes("20")).unwrap();
    assert_eq!(last(&mut decoder, 62), Err(MalformedSection), "a size of 0 evicts everything");
}

/// A limit of strings below the table's size must not shorten what later sections refer to.
#[test]
fn a_string_above_the_limit_is_whole_in_the_dynamic_table() {
    let mut decoder = Decoder::default();
    let (mut section, value) = (vec![0x40, 1, b'a'], vec![b'v'; 2_000]);
    integer::write(&mut section, 0, 7, value.len());
    section.extend_from_slice(&value);
    let mut lines = Lines::default();
    decoder.decode(&section, 100, &mut lines).unwrap();
    decoder.decode(&[0x80 | 62], 100, &mut lines).unwrap();
    assert!(lines.0.iter().all(|field| *field == (b"a".to_vec(), value.clone())) && lines.0.len() == 2);
}

#[test]
fn statuses_use_the_static_table_where_it_has_them() {
    for (status, hex) in [(b"200", "88"), (b"404", "8d"), (b"503", "0803353033")] {
        let mut out = Vec::new();
        encode_status(status, &mut out);
        assert_eq!(out, bytes(hex));
    }
}

proptest! {
    #[test]
    fn huffman_coding_round_trips(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (mut coded, mut back) = (Vec::new(), Vec::new());
        huffman::encode(&text, &mut coded);
        prop_assert_eq!(coded.len(), huffman::encoded_bytes(&text));
        prop_assert_eq!(huffman::decode(&coded, &mut back, usize::MAX), Ok(text.len()));
        prop_assert_eq!(&back, &text);
        back.clear();
        prop_assert_eq!(huffman::decode(&coded, &mut back, 5), Ok(text.len()));
        prop_assert_eq!(&back[..], &text[..text.len().min(5)]);
    }

    #[test]
    fn integers_round_trip(value in 0usize..1 << 29, bits in 1u32..9) {
        let mut out = Vec::new();
        integer::write(&mut out, 0, bits, value);
        out.push(7);
        let mut rest = &out[..];
        prop_assert_eq!(integer::read(&mut rest, bits), Ok(value as u64));
        prop_assert_eq!(rest, [7]);
    }

    #[test]
    fn encoded_fields_are_decoded_to_themselves(
        fields in proptest::collection::vec(("[a-z-]{1,30}", "[ -~]{0,200}"), 0..20),
    ) {
        let mut section = Vec::new();
        encode_status(b"200", &mut section);
        for (name, value) in &fields {
            encode_field(name.as_bytes(), value.as_bytes(), &mut section);
        }
        let expected: String = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        prop_assert_eq!(decoded(&mut Decoder::default(), &section), Ok(format!(":status: 200\n{expected}")));
    }

    /// Any bytes are decoded or refused, with a bounded table.
    #[test]
    fn any_section_is_decoded_or_refused(
        sections in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8),
    ) {
        let mut decoder = Decoder::default();
        for section in &sections {
            let _ = decoded(&mut decoder, section);
        }
    }
}
