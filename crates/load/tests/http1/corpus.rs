//! Parses every file of tests/corpus/http1 in one piece, byte by byte and in random pieces, and compares the outcome
//! with `expected.txt`. Responses found by fuzzers are added to the corpus.
//!
//! Outcomes: `whole` (complete with the last byte), `surplus` (complete, and more bytes follow), `close` (the close
//! ends the body), `short` (incomplete at the close), `nothing`, `malformed`, `too_large`.

use std::collections::BTreeSet;
use std::path::Path;

use load::http1::Response;
use schema::Method;
use stats::Rng;

use crate::outcome::{Outcome, read};

#[test]
fn every_corpus_file_has_its_expected_outcome() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/http1");
    let expected = std::fs::read_to_string(folder.join("expected.txt")).unwrap();
    let mut rng = Rng::named(1, "corpus");
    let mut response = Response::new(Method::Get);
    let mut named = BTreeSet::new();
    for line in expected.lines().filter(|line| !line.starts_with('#')) {
        let [name, method, outcome, status] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(named.insert(format!("{name}.http")), "{name} is listed twice");
        let bytes = std::fs::read(folder.join(format!("{name}.http"))).unwrap();
        let method = if method == "HEAD" { Method::Head } else { Method::Get };

        let whole = read(&mut response, method, [&bytes[..]]);
        assert_eq!((text(whole.outcome, bytes.len()), whole.status.to_string().as_str()), (outcome, status), "{name}");
        assert_eq!(read(&mut response, method, bytes.chunks(1)), whole, "{name}, byte by byte");
        for _ in 0..20 {
            let longest = 1 + rng.below(bytes.len() as u64 / 2 + 1) as usize;
            let pieces = cut(&bytes, || 1 + rng.below(longest as u64) as usize);
            assert_eq!(read(&mut response, method, pieces), whole, "{name}, cut");
        }
    }
    let present: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "expected.txt")
        .collect();
    assert_eq!(present, named, "every file is listed");
}

fn text(outcome: Outcome, length: usize) -> &'static str {
    match outcome {
        Outcome::Whole(consumed) if consumed < length => "surplus",
        Outcome::Whole(_) => "whole",
        Outcome::WholeAtClose => "close",
        Outcome::Short => "short",
        Outcome::Nothing => "nothing",
        Outcome::Malformed => "malformed",
        Outcome::TooLarge => "too_large",
    }
}

fn cut(mut bytes: &[u8], mut length: impl FnMut() -> usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(length().min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}
