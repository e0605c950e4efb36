//! The examples of RFC 7541, appendix C, and what is not in it.

use proptest::prelude::*;

use super::*;

/// The bytes of hexadecimal digits; spaces are ignored.
pub(in crate::fields) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, hex: &str) -> Fields {
    decoder.decode(&bytes(hex)).unwrap()
}

fn text(field: &Option<Box<[u8]>>) -> &str {
    field.as_deref().map_or("-", |bytes| std::str::from_utf8(bytes).unwrap())
}

fn request(fields: &Fields) -> [&str; 3] {
    [text(&fields.method), text(&fields.path), text(&fields.authority)]
}

#[test]
fn requests_of_the_standard_are_decoded_plain_and_compressed() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let compressed = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, compressed] {
        let mut decoder = Decoder::new(true);
        let sizes = [57, 110, 164];
        let paths = ["/", "/", "/index.html"];
        for ((block, size), path) in blocks.into_iter().zip(sizes).zip(paths) {
            let fields = decode(&mut decoder, block);
            assert_eq!(request(&fields), ["GET", path, "www.example.com"]);
            assert_eq!((decoder.table.size(), fields.unknown), (size, 0));
        }
    }
}

#[test]
fn responses_of_the_standard_are_decoded_with_evictions() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 \
         474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 \
         666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 \
         3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let compressed = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
         63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
         b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, compressed] {
        let mut decoder = Decoder::new(true);
        decoder.table.resize(256);
        for ((block, size), status) in blocks.into_iter().zip([222, 222, 215]).zip([302, 307, 200]) {
            let fields = decode(&mut decoder, block);
            assert_eq!((fields.status, decoder.table.size()), (Some(status), size));
        }
    }
}

#[test]
fn literals_without_indexing_leave_the_table_alone() {
    // RFC 7541, appendices C.2.2 to C.2.4.
    let mut decoder = Decoder::new(true);
    assert_eq!(text(&decode(&mut decoder, "040c 2f73 616d 706c 652f 7061 7468").path), "/sample/path");
    decode(&mut decoder, "1008 7061 7373 776f 7264 0673 6563 7265 74");
    assert_eq!(text(&decode(&mut decoder, "82").method), "GET");
    assert_eq!((decoder.table.size(), decoder.memory()), (0, 0));
}

#[test]
fn references_before_the_capture_are_unknown_and_later_ones_are_known() {
    let mut decoder = Decoder::new(false);
    // GET, an unseen path, and an authority that is inserted.
    let fields = decode(&mut decoder, "82be 410f 7777 772e 6578 616d 706c 652e 636f 6d");
    assert_eq!((request(&fields), fields.unknown), (["GET", "-", "www.example.com"], 1));
    let fields = decode(&mut decoder, "82be bf");
    assert_eq!((request(&fields), fields.unknown), (["GET", "-", "www.example.com"], 1));
    // A value under a name that was not seen is inserted: its place counts, its content stays unknown.
    assert_eq!(decode(&mut decoder, "7f00 0161").unknown, 1);
    let fields = decode(&mut decoder, "be bf");
    assert_eq!((text(&fields.authority), fields.unknown), ("www.example.com", 1));
    decoder.forget();
    assert_eq!(decode(&mut decoder, "be").unknown, 1);
}

#[test]
fn table_is_bounded_whatever_size_the_encoder_sets() {
    let mut decoder = Decoder::new(true);
    decode(&mut decoder, "3fff ffff 7f");
    let value = [&[0x44, 0x7F, 0x81, 0x06][..], &[b'/'; 896]].concat();
    for _ in 0..1000 {
        decoder.decode(&value).unwrap();
        assert!(decoder.table.size() <= CAPACITY_MAX && decoder.memory() <= 2 * CAPACITY_MAX);
    }
    decode(&mut decoder, "20");
    assert_eq!((decoder.table.size(), decoder.memory()), (0, 0));
    // Entries of 32 bytes, which need most memory for their size.
    decode(&mut decoder, "3fe1 ff03");
    for _ in 0..5000 {
        decode(&mut decoder, "4000 00");
        assert!(decoder.memory() <= 2 * CAPACITY_MAX, "{}", decoder.memory());
    }
}

#[test]
fn contradictory_blocks_are_refused() {
    for block in ["80", "7f", "440a 2f", "0085 ffff ffff ff00", "ff80 8080 8080 8080 8080 8080 00", "4081 ff00"] {
        assert_eq!(Decoder::new(true).decode(&bytes(block)), Err(Malformed), "{block}");
    }
}

proptest! {
    #[test]
    fn any_blocks_keep_the_table_within_its_bounds(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..20),
        is_fresh: bool,
    ) {
        let mut decoder = Decoder::new(is_fresh);
        for block in blocks {
            let _ = decoder.decode(&block);
            prop_assert!(decoder.table.size() <= CAPACITY_MAX && decoder.memory() <= 2 * CAPACITY_MAX);
        }
    }
}
