//! Capture files: written files read back; any byte order, resolution and truncation; no panics; the corpus replays.

use proptest::prelude::*;
use units::Timestamp;
use wire::capture::{CaptureError, Captured, Decoder, Step, packets, write};
use wire::link::LinkType;

fn nanos(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn all(bytes: &[u8]) -> (Vec<Captured<'_>>, Option<CaptureError>) {
    let (mut found, mut error) = (Vec::new(), None);
    for packet in packets(bytes) {
        match packet {
            Ok(packet) => found.push(packet),
            Err(failure) => error = Some(failure),
        }
    }
    (found, error)
}

/// The same through a decoder that receives `piece` bytes at a time.
fn by_pieces(bytes: &[u8], piece: usize) -> (Vec<(u64, Vec<u8>, u32)>, bool) {
    let (mut decoder, mut buffer, mut found) = (Decoder::new(), Vec::new(), Vec::new());
    for part in bytes.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&buffer) {
                Ok(Step::Packet { packet, used }) => {
                    found.push((packet.at.as_nanos(), packet.bytes.to_vec(), packet.original_length));
                    buffer.drain(..used);
                }
                Ok(Step::Skip { used }) => drop(buffer.drain(..used)),
                Ok(Step::More { needed }) => {
                    assert!(needed > buffer.len() && needed <= wire::capture::BLOCK_MAX);
                    break;
                }
                Err(_) => return (found, false),
            }
        }
    }
    let ends_well = decoder.finish(buffer.len()).is_ok();
    (found, ends_well)
}

/// A pcap file with all features in the chosen order and resolution.
fn pcap(big: bool, magic: u32, records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let number = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut bytes = number(magic).to_vec();
    bytes.extend([0; 12]);
    bytes.extend(number(65_535));
    bytes.extend(number(101));
    for (seconds, fraction, packet, original) in records {
        for field in [*seconds, *fraction, packet.len() as u32, *original] {
            bytes.extend(number(field));
        }
        bytes.extend(*packet);
    }
    bytes
}

#[test]
fn pcap_of_either_byte_order_and_resolution_is_read() {
    for big in [false, true] {
        for (magic, unit) in [(0xA1B2_C3D4, 1000), (0xA1B2_3C4D, 1)] {
            let bytes = pcap(big, magic, &[(5, 7, b"one", 99), (u32::MAX, 999_999, b"", 0)]);
            let (found, error) = all(&bytes);
            assert_eq!(error, None);
            assert_eq!(
                (found[0].at, found[0].bytes, found[0].original_length),
                (nanos(5_000_000_000 + 7 * unit), &b"one"[..], 99)
            );
            assert_eq!((found[0].link, found.len()), (101, 2));
        }
    }
}

/// A block of pcapng in the chosen order.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let number = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let length = number(body.len() as u32 + 12);
    [&number(kind)[..], &length, body, &length].concat()
}

fn section(big: bool) -> Vec<u8> {
    let magic = if big { 0x1A2B_3C4Du32.to_be_bytes() } else { 0x1A2B_3C4Du32.to_le_bytes() };
    block(big, 0x0A0D_0D0A, &[&magic[..], &[0; 4], &[0xFF; 8]].concat())
}

/// An interface with the resolution option (code 9) set to `resolution`, and an offset of 10 s.
fn interface(big: bool, resolution: u8) -> Vec<u8> {
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let offset = if big { 10i64.to_be_bytes() } else { 10i64.to_le_bytes() };
    let options = [&half(9)[..], &half(1), &[resolution, 0, 0, 0], &half(14), &half(8), &offset, &[0; 4]].concat();
    block(big, 1, &[&half(101)[..], &[0; 6], &options].concat())
}

fn enhanced(big: bool, index: u32, units: u64, packet: &[u8]) -> Vec<u8> {
    let number = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut body = Vec::new();
    for field in [index, (units >> 32) as u32, units as u32, packet.len() as u32, packet.len() as u32 + 5] {
        body.extend(number(field));
    }
    body.extend(packet);
    body.resize(body.len().next_multiple_of(4), 0);
    block(big, 6, &body)
}

#[test]
fn pcapng_of_either_byte_order_with_several_interfaces_and_sections_is_read() {
    let mut bytes = Vec::new();
    for big in [false, true] {
        bytes.extend(section(big));
        for resolution in [6, 9, 3, 12, 0x80 | 10] {
            bytes.extend(interface(big, resolution));
        }
        bytes.extend(block(big, 0x0BAD, &[7; 400]));
        for (index, units) in [(0, 1_500_000u64), (1, 1_500_000_000), (2, 1500), (3, 1_500_000_000_000), (4, 1536)] {
            bytes.extend(enhanced(big, index, units, b"packet"));
        }
        // A simple packet has no time.
        let length = if big { 4u32.to_be_bytes() } else { 4u32.to_le_bytes() };
        bytes.extend(block(big, 3, &[&length[..], b"easy"].concat()));
    }
    let (found, error) = all(&bytes);
    assert_eq!((found.len(), error), (12, None));
    for packet in &found {
        assert_eq!(packet.at, nanos(11_500_000_000));
        assert!(packet.bytes == b"packet" && packet.original_length == 11 || packet.bytes == b"easy");
    }
    for piece in [1, 3, 64, 1000] {
        assert_eq!(by_pieces(&bytes, piece).0.len(), 12, "pieces of {piece}");
    }
}

#[test]
fn packets_before_a_defect_are_returned_and_the_error_has_its_offset() {
    let mut bytes = Vec::new();
    write::pcap_header(&mut bytes, LinkType::RawIp, 96);
    write::pcap_packet(&mut bytes, nanos(1), b"whole", 5);
    let second = bytes.len();
    write::pcap_packet(&mut bytes, nanos(2), b"cut off", 7);
    for length in second..bytes.len() {
        let (found, error) = all(&bytes[..length]);
        assert_eq!(found.len(), 1);
        let left = (length - second) as u64;
        let expected = (left > 0).then_some(CaptureError::Truncated { offset: second as u64, left });
        assert_eq!(error, expected);
    }
    bytes[second + 11] = 0x7F;
    let (found, error) = all(&bytes);
    assert_eq!(found.len(), 1);
    assert!(matches!(error, Some(CaptureError::Corrupt { offset, .. }) if offset == second as u64));
    assert!(matches!(all(b"GIF89a").1, Some(CaptureError::Magic { .. })));
    assert_eq!(all(b"").1, None);
    assert!(matches!(all(b"\xd4\xc3").1, Some(CaptureError::Truncated { offset: 0, left: 2 })));

    let mut bytes = section(false);
    bytes.extend(interface(false, 9));
    bytes.extend(enhanced(false, 0, 1, b"whole"));
    let third = bytes.len();
    bytes.extend(enhanced(false, 1, 1, b"of an unknown interface"));
    let (found, error) = all(&bytes);
    assert_eq!(found.len(), 1);
    assert!(matches!(error, Some(CaptureError::Corrupt { offset, .. }) if offset == third as u64));
    let unknown = block(false, 0x0BAD, &[7; 400]);
    let cut = [&bytes[..third], &unknown[..200]].concat();
    let (found, error) = all(&cut);
    assert!(found.len() == 1 && matches!(error, Some(CaptureError::Truncated { .. })), "{error:?}");
}

#[test]
fn drops_in_statistics_blocks_are_summed() {
    let mut bytes = Vec::new();
    write::section(&mut bytes, "test");
    write::interface(&mut bytes, LinkType::Ethernet, 128, "eth0");
    write::statistics(&mut bytes, 0, nanos(1), 3);
    write::statistics(&mut bytes, 0, nanos(2), 5);
    write::section(&mut bytes, "test");
    write::interface(&mut bytes, LinkType::Ethernet, 128, "eth0");
    write::statistics(&mut bytes, 0, nanos(3), 2);
    let (mut decoder, mut rest) = (Decoder::new(), &bytes[..]);
    while let Ok(Step::Skip { used }) = decoder.decode(rest) {
        rest = &rest[used..];
    }
    assert_eq!((decoder.drops(), rest.len(), decoder.offset()), (7, 0, bytes.len() as u64));
}

/// Files of a corpus, which once caused defects: each is read to its end or to a clear error, as a whole and in pieces.
#[test]
fn corpus_of_capture_files_replays() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is next to this test") {
        let path = entry.expect("a readable folder").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        let (found, error) = all(&bytes);
        let (pieces, ends_well) = by_pieces(&bytes, 7);
        assert_eq!((found.len(), error.is_none()), (pieces.len(), ends_well), "{}", path.display());
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        assert_eq!(error.is_none(), name.starts_with("good-"), "{name}: {error:?}");
        count += 1;
    }
    assert!(count >= 8, "only {count} files in {}", folder.display());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn written_capture_files_read_back(ng: bool, piece in 1usize..200, seed in prop::collection::vec((0u64..4_000_000_000_000_000_000, prop::collection::vec(any::<u8>(), 0..90), 0u32..9), 0..12)) {
        let mut bytes = Vec::new();
        if ng {
            write::section(&mut bytes, "test");
            write::interface(&mut bytes, LinkType::RawIp, 0, "tun0");
        } else {
            write::pcap_header(&mut bytes, LinkType::RawIp, 65_535);
        }
        for (at, packet, more) in &seed {
            let length = packet.len() as u32 + more;
            if ng { write::packet(&mut bytes, 0, nanos(*at), packet, length) } else { write::pcap_packet(&mut bytes, nanos(*at), packet, length) }
        }
        let expected: Vec<_> = seed.iter().map(|(at, packet, more)| (*at, packet.clone(), packet.len() as u32 + more)).collect();
        prop_assert_eq!(by_pieces(&bytes, piece), (expected.clone(), true));
        let (found, error) = all(&bytes);
        prop_assert_eq!(error, None);
        let found: Vec<_> = found.iter().map(|packet| (packet.at.as_nanos(), packet.bytes.to_vec(), packet.original_length)).collect();
        prop_assert_eq!(found, expected);
    }

    /// A valid file with overwritten bytes, or any bytes.
    #[test]
    fn decoder_does_not_panic_on_any_bytes(ng: bool, start in 0usize..2, changes in prop::collection::vec((0usize..400, any::<u8>()), 0..6), noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = if ng { [section(true), interface(true, 9), enhanced(true, 0, 5, &[9; 100]), block(true, 5, &[0; 30 + 2])].concat() }
                        else { pcap(true, 0xA1B2_C3D4, &[(1, 2, &[3; 100], 100), (1, 3, &[3; 60], 70)]) };
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
        }
        bytes.extend(&noise);
        if start == 1 { bytes = noise; }
        let (found, error) = all(&bytes);
        let (pieces, ends_well) = by_pieces(&bytes, 11);
        prop_assert_eq!((found.len(), error.is_none()), (pieces.len(), ends_well));
    }
}

#[test]
fn interface_names_belong_to_their_section() {
    let mut bytes = Vec::new();
    write::section(&mut bytes, "a test");
    write::interface(&mut bytes, LinkType::Ethernet, 128, "eth0");
    write::interface(&mut bytes, LinkType::RawIp, 0, &"x".repeat(300));
    write::section(&mut bytes, "another");
    write::interface(&mut bytes, LinkType::RawIp, 0, "tun0");
    let (mut decoder, mut rest, mut named) = (Decoder::new(), &bytes[..], Vec::new());
    assert_eq!(decoder.interface_name(0), "");
    while let Ok(Step::Skip { used }) = decoder.decode(rest) {
        rest = &rest[used..];
        named.push([0, 1].map(|index| decoder.interface_name(index).to_owned()));
    }
    assert!(rest.is_empty());
    let named: Vec<[&str; 2]> = named.iter().map(|names| [names[0].as_str(), names[1].as_str()]).collect();
    // A name that is not a valid device name is ignored.
    assert_eq!(named, [["", ""], ["eth0", ""], ["eth0", ""], ["", ""], ["tun0", ""]]);
}
