//! Frames and heads of HTTP/2, made by hand.
#![allow(dead_code, reason = "every test target uses its own part")]

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 0x01;
pub const END_HEADERS: u8 = 0x04;
pub const PADDED: u8 = 0x08;
pub const PRIORITY: u8 = 0x20;

/// The client's first bytes: the preface and its settings.
pub fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])].concat()
}

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// A head in one frame.
pub fn head(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, block)
}

/// A field as a literal that is not inserted into the table.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// A field as a literal that is inserted into the table.
pub fn indexed_literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = field(name, value);
    bytes[0] = 0x40;
    bytes
}

/// The head of a request, with entries of the static table.
pub fn request(method: &str, path: &str, authority: &str) -> Vec<u8> {
    let method = if method == "GET" { vec![0x82] } else { field(":method", method) };
    [method, vec![0x86], field(":path", path), field(":authority", authority), field("user-agent", "test")].concat()
}

/// The head of a response.
pub fn status(status: u16) -> Vec<u8> {
    field(":status", &status.to_string())
}
