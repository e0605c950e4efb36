//! Reads the table of cases in `framing.txt`. Also used by the tests of `load`, `watch` and `serve`.
#![allow(dead_code, reason = "the tests of each reader use a part of the table")]

use http1::{RequestMethod, Version};

/// One line of the table.
#[derive(Clone, Debug)]
pub enum Case {
    /// A response's head.
    Response(Response),
    /// A request's head.
    Request(Request),
    /// A chunked body.
    Chunked(Chunked),
}

/// A response's head, and the expected result of each reader.
#[derive(Clone, Debug)]
pub struct Response {
    /// All header lines are well formed.
    pub is_plain: bool,
    pub method: String,
    pub status: String,
    pub version: String,
    pub fields: Vec<u8>,
    pub client: String,
    pub observer: String,
    pub gateway: String,
}

/// A request's head, and the expected result of each reader.
#[derive(Clone, Debug)]
pub struct Request {
    /// All header lines are well formed.
    pub is_plain: bool,
    pub version: String,
    pub fields: Vec<u8>,
    pub server: String,
    pub observer: String,
}

/// A chunked body, and the expected result of each reader.
#[derive(Clone, Debug)]
pub struct Chunked {
    pub bytes: Vec<u8>,
    pub client: String,
    pub observer: String,
    pub server: String,
}

impl Response {
    /// The head as it is sent.
    pub fn head(&self) -> Vec<u8> {
        let line = format!("HTTP/{} {} Reason\r\n", self.version, self.status);
        [line.as_bytes(), &self.fields, b"\r\n"].concat()
    }

    /// The request's method, as far as framing depends on it.
    pub fn request_method(&self) -> RequestMethod {
        match self.method.as_str() {
            "HEAD" => RequestMethod::Head,
            "CONNECT" => RequestMethod::Connect,
            _ => RequestMethod::Other,
        }
    }
}

impl Request {
    /// The head as it is sent.
    pub fn head(&self) -> Vec<u8> {
        [format!("POST / HTTP/{}\r\nHost: x\r\n", self.version).as_bytes(), &self.fields, b"\r\n"].concat()
    }
}

pub fn version(text: &str) -> Version {
    if text == "1.0" { Version::Http10 } else { Version::Http11 }
}

/// Every case of the table.
pub fn cases() -> Vec<Case> {
    let lines = include_str!("framing.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(case).collect()
}

pub fn responses() -> impl Iterator<Item = Response> {
    cases().into_iter().filter_map(|case| if let Case::Response(response) = case { Some(response) } else { None })
}

pub fn requests() -> impl Iterator<Item = Request> {
    cases().into_iter().filter_map(|case| if let Case::Request(request) = case { Some(request) } else { None })
}

pub fn chunked() -> impl Iterator<Item = Chunked> {
    cases().into_iter().filter_map(|case| if let Case::Chunked(chunked) = case { Some(chunked) } else { None })
}

fn case(line: &str) -> Case {
    // A field line may begin with a space: only one space on each side belongs to the column separator.
    let columns: Vec<String> = line.split(" | ").map(str::to_owned).collect();
    let [kind, rest @ ..] = &columns[..] else { panic!("{line}") };
    match (kind.as_str(), rest) {
        ("response" | "response-line", [start, fields, client, observer, gateway]) => {
            let [method, status, version] = start.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            Case::Response(Response {
                is_plain: kind == "response",
                method: method.to_owned(),
                status: status.to_owned(),
                version: version.to_owned(),
                fields: field_lines(fields),
                client: client.clone(),
                observer: observer.clone(),
                gateway: gateway.clone(),
            })
        }
        ("request" | "request-line", [version, fields, server, observer]) => Case::Request(Request {
            is_plain: kind == "request",
            version: version.clone(),
            fields: field_lines(fields),
            server: server.clone(),
            observer: observer.clone(),
        }),
        ("chunked", [bytes, client, observer, server]) => Case::Chunked(Chunked {
            bytes: unescaped(bytes),
            client: client.clone(),
            observer: observer.clone(),
            server: server.clone(),
        }),
        _ => panic!("{line}"),
    }
}

/// The header lines of a column, each with its line end.
fn field_lines(text: &str) -> Vec<u8> {
    if text == "-" { Vec::new() } else { [unescaped(text), b"\r\n".to_vec()].concat() }
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let byte = match (first, after) {
            (b'\\', [b'r', tail @ ..]) => (b'\r', tail),
            (b'\\', [b'n', tail @ ..]) => (b'\n', tail),
            (b'\\', [b't', tail @ ..]) => (b'\t', tail),
            (b'\\', [b'\\', tail @ ..]) => (b'\\', tail),
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("hexadecimal digits");
                (u8::from_str_radix(digits, 16).expect("hexadecimal digits"), tail)
            }
            (b'\\', _) => panic!("unknown escape: {text}"),
            (&plain, tail) => (plain, tail),
        };
        bytes.push(byte.0);
        rest = byte.1;
    }
    bytes
}
