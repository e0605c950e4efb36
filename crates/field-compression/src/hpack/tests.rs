//! Examples of RFC 7541, round trips, hostile input.

use proptest::prelude::*;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The fields as lines `name: value`.
fn decoded(decoder: &mut Decoder, input: &[u8]) -> Result<String, Malformed> {
    let mut lines = String::new();
    decoder.decode(input, 4096, |name, value| {
        lines += &format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    })?;
    Ok(lines)
}

/// RFC 7541, appendices C.3 and C.4: three requests of one connection, with and without Huffman code.
#[test]
fn requests_of_the_specification_are_decoded() {
    let plain = [
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ];
    let compressed = [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ];
    let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
    let second = format!("{first}cache-control: no-cache\n");
    let third =
        ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n";
    for sections in [plain, compressed] {
        let mut decoder = Decoder::default();
        for ((section, fields), size) in sections.into_iter().zip([first, &second, third]).zip([57, 110, 164]) {
            assert_eq!(decoded(&mut decoder, &bytes(section)).unwrap(), fields);
            assert_eq!(decoder.table.size(), size);
        }
    }
}

/// RFC 7541, appendix C.6: entries are evicted from a table of 256 bytes.
#[test]
fn responses_of_the_specification_are_decoded_with_evictions() {
    let mut decoder = Decoder::default();
    // The capacity of 256 is set first.
    let first = bytes(
        "3fe101 488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
         6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    );
    let date = "Mon, 21 Oct 2013 20:13:21 GMT";
    let rest = format!("cache-control: private\ndate: {date}\nlocation: https://www.example.com\n");
    assert_eq!(decoded(&mut decoder, &first).unwrap(), format!(":status: 302\n{rest}"));
    assert_eq!(decoded(&mut decoder, &bytes("4883640effc1c0bf")).unwrap(), format!(":status: 307\n{rest}"));
    assert_eq!(decoder.table.size(), 222);
}

/// RFC 7541, appendices C.2.2 to C.2.4.
#[test]
fn literals_without_indexing_leave_the_table_alone() {
    let mut decoder = Decoder::default();
    for (hex, line) in [
        ("040c 2f73616d706c652f70617468", ":path: /sample/path\n"),
        ("1008 70617373776f7264 06 736563726574", "password: secret\n"),
        ("82", ":method: GET\n"),
    ] {
        assert_eq!(decoded(&mut decoder, &bytes(hex)).as_deref(), Ok(line));
    }
    assert_eq!((decoder.table.size(), decoder.table.inserted()), (0, 0));
}

#[test]
fn malformed_sections_are_refused() {
    for (hex, why) in [
        ("80", "index 0"),
        ("be", "an index beyond both tables"),
        ("ffffffffff7f", "a large index"),
        ("ff80808080808080808000", "an integer with endless zeros"),
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
        assert_eq!(decoded(&mut Decoder::default(), &bytes(hex)), Err(Malformed), "{why}");
    }
}

#[test]
fn the_dynamic_table_keeps_at_most_its_size() {
    let mut decoder = Decoder::default();
    let entry = |name: &str, value: &str| {
        let mut section = vec![0x40];
        string::write(0, 7, name.as_bytes(), &mut section);
        string::write(0, 7, value.as_bytes(), &mut section);
        section
    };
    // Entries of 128 bytes each: 32 fit into 4096.
    for number in 0..40 {
        decoded(&mut decoder, &entry(&format!("n{number:05}"), &"v".repeat(90))).unwrap();
    }
    let last = |decoder: &mut Decoder, index: u64| {
        let mut section = Vec::new();
        integer::write(0x80, 7, index, &mut section);
        decoded(decoder, &section)
    };
    assert!(last(&mut decoder, 62).unwrap().starts_with("n00039: "));
    assert!(last(&mut decoder, 93).unwrap().starts_with("n00008: "));
    assert_eq!(last(&mut decoder, 94), Err(Malformed));
    // An entry larger than the table empties it.
    decoded(&mut decoder, &entry("n", &"v".repeat(4090))).unwrap();
    assert_eq!(last(&mut decoder, 62), Err(Malformed));
    decoded(&mut decoder, &entry("kept", "x")).unwrap();
    decoded(&mut decoder, &bytes("20")).unwrap();
    assert_eq!(last(&mut decoder, 62), Err(Malformed), "a size of 0 evicts everything");
}

/// A limit of strings below the table's size must not shorten what later sections refer to.
#[test]
fn a_string_above_the_limit_is_whole_in_the_dynamic_table() {
    let (mut decoder, mut fields) = (Decoder::default(), Vec::new());
    let (mut section, value) = (vec![0x40, 1, b'a', 0x7f, 0xd1, 0x0e], vec![b'v'; 2_000]);
    section.extend_from_slice(&value);
    for section in [&section[..], &[0x80 | 62]] {
        decoder.decode(section, 100, |name, value| fields.push((name.to_vec(), value.to_vec()))).unwrap();
    }
    assert!(fields.iter().all(|field| *field == (b"a".to_vec(), value.clone())) && fields.len() == 2);
}

#[test]
fn a_longer_string_than_table_and_limit_is_passed_with_one_byte_more() {
    let mut section = vec![0];
    string::write(0, 7, b"a", &mut section);
    string::write(0, 7, &[b'v'; 9000], &mut section);
    let mut length = 0;
    Decoder::default().decode(&section, 5000, |_, value| length = value.len()).unwrap();
    assert_eq!(length, 5001);
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

    #[test]
    fn any_section_is_decoded_or_refused_with_a_bounded_table(
        sections in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8),
    ) {
        let mut decoder = Decoder::default();
        for section in &sections {
            let _ = decoded(&mut decoder, section);
            prop_assert!(decoder.table.size() <= TABLE_BYTES);
        }
    }
}
