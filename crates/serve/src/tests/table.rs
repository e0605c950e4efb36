//! The table of `rfc.txt`: its cases and files. Shared by the server's tests and by tests that run other programs
//! against it.

use std::fs::{self, FileTimes};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// One case.
#[derive(Default)]
pub struct Case {
    pub title: String,
    /// The request line and fields as written; empty if the bytes are given.
    pub lines: Vec<String>,
    /// The request's bytes.
    pub request: Vec<u8>,
    /// The expected results, line by line; the status comes first.
    pub expected: Vec<String>,
}

/// Creates the files of the table.
pub fn create_files(root: &Path) {
    let digits: Vec<u8> = (0..400_000).map(|at| b'0' + (at % 10) as u8).collect();
    for (name, content) in [
        ("digits.txt", &b"0123456789abcdef"[..]),
        ("empty.txt", b""),
        ("large.bin", &digits),
        ("a.js", b"plain"),
        ("a.js.br", b"br"),
        ("a.js.gz", b"gz"),
        ("d/index.html", b"index"),
        ("note", b"a note\n"),
        (".hidden", b"hidden"),
        (".well-known/known", b"known"),
        ("a b&\u{fc}.txt", b"odd"),
    ] {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let changed = UNIX_EPOCH + Duration::from_secs(784_111_777);
        fs::File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(changed)).unwrap();
    }
    std::os::unix::fs::symlink("..", root.join("up")).unwrap();
}

/// All cases; `etag` is that of `/digits.txt`.
pub fn cases(etag: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in include_str!("rfc.txt").lines() {
        let line = line.replace("{etag}", etag);
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { title: title.to_owned(), ..Case::default() });
        } else if let Some(raw) = line.strip_prefix(">> ") {
            cases.last_mut().unwrap().request.extend(unescaped(raw));
        } else if let Some(part) = line.strip_prefix("> ") {
            cases.last_mut().unwrap().lines.push(part.to_owned());
        } else if let Some(expected) = line.strip_prefix("<") {
            cases.last_mut().unwrap().expected.push(expected.trim_start().to_owned());
        }
    }
    for case in &mut cases {
        if let Some((first, fields)) = case.lines.split_first() {
            let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            case.request = format!("{first} HTTP/1.1\r\nHost: server\r\n{fields}\r\n").into_bytes();
        }
        assert!(!case.request.is_empty() && !case.expected.is_empty(), "{}", case.title);
    }
    cases
}

/// The bytes of a text with escapes.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'\\' => match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(b'x') => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => panic!("\\{other:?} in {text}"),
            },
            plain => plain,
        };
        bytes.push(byte);
    }
    bytes
}

impl Case {
    /// The status.
    pub fn status(&self) -> u16 {
        self.expected[0].parse().unwrap()
    }

    /// Compares one expected line with a response: its fields by name, and its content.
    pub fn check<'a>(&self, expected: &str, field: impl Fn(&str) -> Option<&'a str>, content: &[u8]) {
        if let Some(expected) = expected.strip_prefix("=") {
            let expected = unescaped(expected.strip_prefix(' ').unwrap_or(expected));
            assert_eq!(String::from_utf8_lossy(content), String::from_utf8_lossy(&expected), "{self}");
        } else if let Some(expected) = expected.strip_prefix("parts ") {
            let found = parts(field("Content-Type").unwrap(), content);
            assert_eq!(found, expected.split(' ').collect::<Vec<_>>(), "{self}");
        } else if let Some(name) = expected.strip_prefix('!') {
            assert_eq!(field(name), None, "{self}: {name}");
        } else if let Some((name, value)) = expected.split_once(": ") {
            assert_eq!(field(name), Some(value), "{self}: {name}");
        } else if expected != "kept" && expected != "closed" {
            assert!(field(expected).is_some(), "{self}: {expected}");
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.title, String::from_utf8_lossy(&self.request))
    }
}

/// The parts of a multipart response, parsed strictly (RFC 2046, section 5.1.1).
fn parts(content_type: &str, content: &[u8]) -> Vec<String> {
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let text = String::from_utf8(content.to_vec()).unwrap();
    let text = text.strip_suffix(&format!("\r\n--{boundary}--\r\n")).expect("the last boundary");
    let between = format!("\r\n--{boundary}\r\n");
    let mut parts = text.split(&between);
    assert_eq!(parts.next(), Some(""), "no preamble");
    parts
        .map(|part| {
            let (head, content) = part.split_once("\r\n\r\n").expect("a part has a head");
            let range = head.lines().find_map(|line| line.strip_prefix("Content-Range: bytes ")).unwrap();
            let (first, rest) = range.split_once('-').unwrap();
            let (last, length) = rest.split_once('/').unwrap();
            let numbers: Vec<usize> = [first, last, length].iter().map(|text| text.parse().unwrap()).collect();
            assert!(numbers[0] <= numbers[1] && numbers[1] < numbers[2]);
            assert_eq!(numbers[1] - numbers[0] + 1, content.len(), "{head}");
            assert!(head.contains("Content-Type: "));
            content.to_owned()
        })
        .collect()
}
