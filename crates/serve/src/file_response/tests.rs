//! Head and content agree for any request fields.

use super::*;
use crate::request::{Parsed, parse};
use crate::spec::{FileRules, Limits};
use proptest::prelude::*;
use std::os::unix::fs::FileExt as _;

const DATE: &[u8] = b"Date: Sun, 22 Nov 2026 10:00:00 GMT\r\n";
const LARGE: usize = 300_000;

/// A folder with a small and a large file, each with a precompressed variant.
fn folder() -> (tempfile::TempDir, Files) {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(directory.path().join(name), content).unwrap();
    write("small", b"0123456789abcdef");
    write("small.gz", b"packed");
    write("large", &b"0123456789".repeat(LARGE / 10));
    write("large.br", &b"PACKED".repeat(LARGE / 6));
    let root = sys::file::Root::open(directory.path()).unwrap();
    (directory, Files::new(root, FileRules::default()))
}

fn bytes_of(page: &Page, range: &Range<u64>) -> Vec<u8> {
    match &page.content {
        Content::Held(bytes) => bytes[range.start as usize..range.end as usize].to_vec(),
        Content::Stored(file, _) => {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).unwrap();
            bytes
        }
    }
}

/// Status, head and content of the response.
fn answered(files: &mut Files, request: &str) -> (u16, String, Vec<u8>) {
    let limits = Limits::default();
    let Parsed::Complete(request) = parse(request.as_bytes(), &limits) else { panic!("{request:?}") };
    let mut out = Vec::new();
    let reply = answer(files, &request, COPY_MAX, 1, DATE, Persistence::KeepAlive, &mut out);
    let end = out.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut content = out.split_off(end);
    match reply.body {
        None => {}
        Some(Tail::Page(page, range)) => content.extend(bytes_of(&page, &range)),
        Some(Tail::Pieces(pieces)) => {
            for piece in pieces {
                match piece {
                    Piece::Text(text) => content.extend_from_slice(&text),
                    Piece::Page(page, range) => content.extend(bytes_of(&page, &range)),
                }
            }
        }
        Some(other) => panic!("{other:?}"),
    }
    assert_eq!(reply.content_bytes, content.len() as u64);
    (reply.status, String::from_utf8(out).unwrap(), content)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Valid and invalid field values.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let range = prop_oneof![
        (0u64..400_000, 0u64..400_000).prop_map(|(a, b)| format!("{a}-{b}")),
        (0u64..400_000).prop_map(|a| format!("{a}-")),
        (0u64..400_000).prop_map(|a| format!("-{a}")),
        (0u64..20, 0u64..20).prop_map(|(a, b)| format!("{a}-{b}")),
    ];
    let tag = prop_oneof![Just("\"x\""), Just("*"), Just("W/\"x\", \"y\""), Just("none")];
    let date = prop_oneof![Just("Sun, 06 Nov 1994 08:49:37 GMT"), Just("Fri, 31 Dec 9999 23:59:59 GMT"), Just("x")];
    let line = prop_oneof![
        4 => proptest::collection::vec(range, 1..5).prop_map(|ranges| format!("Range: bytes={}", ranges.join(","))),
        1 => tag.clone().prop_map(|tag| format!("If-None-Match: {tag}")),
        1 => tag.clone().prop_map(|tag| format!("If-Match: {tag}")),
        1 => tag.prop_map(|tag| format!("If-Range: {tag}")),
        1 => date.clone().prop_map(|date| format!("If-Modified-Since: {date}")),
        1 => date.prop_map(|date| format!("If-Unmodified-Since: {date}")),
        2 => prop_oneof![Just("gzip, br"), Just("identity;q=0"), Just("br;q=0.1"), Just("*;q=0")]
            .prop_map(|value| format!("Accept-Encoding: {value}")),
    ];
    proptest::collection::vec(line, 0..5)
}

proptest! {
    #[test]
    fn content_length_matches_the_content(
        method in prop_oneof![4 => Just("GET"), 1 => Just("HEAD"), 1 => Just("OPTIONS"), 1 => Just("PUT")],
        path in prop_oneof![Just("/small"), Just("/large"), Just("/absent"), Just("/")],
        lines in lines(),
    ) {
        let (_directory, mut files) = folder();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{}\r\n", lines.join("\r\n") + if lines.is_empty() { "" } else { "\r\n" });
        let (status, head, content) = answered(&mut files, &request);
        let code = format!("HTTP/1.1 {status} ");
        prop_assert!(head.starts_with(&code));
        if matches!(status, 204 | 304) || method == "HEAD" {
            prop_assert!(content.is_empty());
        } else {
            let length = content.len().to_string();
            prop_assert_eq!(field(&head, "Content-Length"), Some(length.as_str()));
        }
        if method == "GET" && matches!(status, 200 | 206) {
            let whole: Vec<u8> = match (path, field(&head, "Content-Encoding")) {
                ("/small", None) => b"0123456789abcdef".to_vec(),
                ("/small", Some("gzip")) => b"packed".to_vec(),
                ("/large", None) => b"0123456789".repeat(LARGE / 10),
                ("/large", Some("br")) => b"PACKED".repeat(LARGE / 6),
                other => panic!("{other:?}"),
            };
            if status == 200 {
                prop_assert!(content == whole);
            } else if let Some(range) = field(&head, "Content-Range") {
                let numbers: Vec<usize> = range.strip_prefix("bytes ").unwrap().split(['-', '/']).map(|n| n.parse().unwrap()).collect();
                prop_assert_eq!(numbers[2], whole.len());
                prop_assert!(content == whole[numbers[0]..=numbers[1]]);
            } else {
                prop_assert!(field(&head, "Content-Type").unwrap().starts_with("multipart/byteranges; boundary="));
            }
        }
    }
}

#[test]
fn multipart_boundaries_are_unique() {
    let (_directory, mut files) = folder();
    let request = "GET /small HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1,4-5\r\n\r\n";
    let mut boundary = || field(&answered(&mut files, request).1, "Content-Type").unwrap().to_owned();
    assert_ne!(boundary(), boundary());
}
