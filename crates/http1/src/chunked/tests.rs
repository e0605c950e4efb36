//! Chunked bodies in every segmentation, with the rules of every reader. `tests/framing.txt` has the cases in which the
//! readers differ.

use super::*;
use proptest::prelude::*;

/// The data and the length of a body that arrives in pieces; `None` if the body is incomplete.
fn read<R: Rules>(input: &[u8], piece: usize, content_max: u64) -> Result<Option<(Vec<u8>, usize)>, Reason> {
    let mut chunked = Chunked::<R>::with_max(content_max);
    let (mut data, mut before) = (Vec::new(), 0);
    for part in input.chunks(piece.max(1)) {
        let mut at = 0;
        loop {
            match chunked.step(&part[at..]).map_err(|fault| fault.reason)? {
                Step::More => break,
                Step::Data(range) => {
                    data.extend_from_slice(&part[at..][range.clone()]);
                    at += range.end;
                }
                Step::End(end) => {
                    assert_eq!(chunked.content(), data.len() as u64);
                    return Ok(Some((data, before + at + end)));
                }
            }
        }
        before += part.len();
    }
    Ok(None)
}

#[test]
fn server_limits_on_chunked_bodies_are_enforced() {
    let overhead = ByServer::OVERHEAD_MAX as usize;
    assert_eq!(read::<ByServer>(b"5\r\nhello\r\n0\r\n\r\n", 3, 5).map(|read| read.is_some()), Ok(true));
    assert_eq!(read::<ByServer>(b"5\r\nhello\r\n1\r\n", 3, 5), Err(Reason::BodyTooLong));
    assert_eq!(read::<ByServer>(b"ffffffffffffffff\r\n", 3, u64::MAX), Ok(None));
    assert_eq!(read::<ByServer>(b"1\r\nx\r\nffffffffffffffff\r\n", 3, u64::MAX), Err(Reason::BodyTooLong));
    let extended = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(bytes - 1));
    assert!(read::<ByServer>(extended(overhead).as_bytes(), 1000, 5).is_ok());
    assert_eq!(read::<ByServer>(extended(overhead + 1).as_bytes(), 1000, 5), Err(Reason::ChunkOverhead));
    // The limit also counts small extensions of many chunks together.
    let many_small = "1;a\r\nx\r\n".repeat(overhead);
    assert_eq!(read::<ByServer>(many_small.as_bytes(), 1000, 1 << 20), Err(Reason::ChunkOverhead));
    assert!(read::<ByClient>(many_small.as_bytes(), 1000, 1 << 20).is_ok());
    let trailers = format!("0\r\n{}", "a: b\r\n".repeat(overhead));
    assert_eq!(read::<ByServer>(trailers.as_bytes(), 9, 5), Err(Reason::ChunkOverhead));
}

#[test]
fn client_limits_are_enforced_and_observers_have_none() {
    let overhead = ByClient::OVERHEAD_MAX as usize;
    let extended = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(bytes - 1));
    assert!(read::<ByClient>(extended(overhead).as_bytes(), 1000, 5).is_ok());
    assert_eq!(read::<ByClient>(extended(overhead + 1).as_bytes(), 1000, 5), Err(Reason::ChunkOverhead));
    assert!(read::<ByObserver>(extended(overhead + 1).as_bytes(), 1000, 5).unwrap().is_some());
}

#[test]
fn chunk_data_can_be_skipped_without_being_read() {
    let mut chunked = Chunked::<ByObserver>::new();
    assert_eq!(chunked.step(b"1a\r\n"), Ok(Step::More));
    assert_eq!(chunked.data_left(), 26);
    chunked.skip(20);
    assert_eq!((chunked.data_left(), chunked.content()), (6, 20));
    chunked.skip(100);
    assert_eq!((chunked.data_left(), chunked.content()), (0, 26));
    assert_eq!(chunked.step(b"\r\n0\r\n\r\nHTTP"), Ok(Step::End(7)));
}

/// Random sequences of the parts of chunked bodies, valid and invalid.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "0",
        "1",
        "5",
        "a",
        "F",
        "00",
        "\r\n",
        "\n",
        "\r",
        ";",
        "x=y",
        "\"",
        "\\",
        " ",
        "\t",
        "hello",
        "h",
        "\r\n0\r\n\r\n",
        "A: b",
        ":",
        "\0",
        "+",
        "-",
        "0x",
        "ffffffffffffffff",
        "5\r\nhello\r\n",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any data in any chunks is restored, for every segmentation.
    #[test]
    fn chunked_bodies_round_trip(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..8),
        piece in 1usize..80,
    ) {
        let mut input = Vec::new();
        for part in &parts {
            input.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            input.extend_from_slice(part);
            input.extend_from_slice(b"\r\n");
        }
        input.extend_from_slice(b"0\r\n\r\n");
        let whole = Ok(Some((parts.concat(), input.len())));
        input.extend_from_slice(b"rest");
        prop_assert_eq!(&read::<ByServer>(&input, piece, 1 << 20), &whole);
        prop_assert_eq!(&read::<ByClient>(&input, piece, 1 << 20), &whole);
        prop_assert_eq!(&read::<ByObserver>(&input, piece, 1 << 20), &whole);
    }

    /// A client accepts what a server accepts, and an observer what a client accepts, with the same end.
    #[test]
    fn a_lenient_parser_agrees_with_a_strict_one_on_valid_input(bytes in pieces(), piece in 1usize..9) {
        let (server, client, observer) = (
            read::<ByServer>(&bytes, bytes.len(), u64::MAX),
            read::<ByClient>(&bytes, bytes.len(), u64::MAX),
            read::<ByObserver>(&bytes, bytes.len(), u64::MAX),
        );
        if server.is_ok() {
            prop_assert_eq!(&server, &client);
        }
        if client.is_ok() {
            prop_assert_eq!(&client, &observer);
        }
        prop_assert_eq!(read::<ByServer>(&bytes, piece, u64::MAX), server);
        prop_assert_eq!(read::<ByClient>(&bytes, piece, u64::MAX), client);
        prop_assert_eq!(read::<ByObserver>(&bytes, piece, u64::MAX), observer);
    }
}
