//! Tests of HTTP/3 in virtual time: a host, and clients of quinn-proto whose frames are written by hand.

mod early_data;
mod errors;
mod limits;
mod responses;
mod world;

use http3::frame::put_head;

/// A HEADERS frame.
fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    field_compression::qpack::begin(&mut section);
    for (name, value) in fields {
        field_compression::qpack::encode(name.as_bytes(), value.as_bytes(), &mut section);
    }
    framed(http3::frame::HEADERS, &section)
}

/// The head of a request, with `more` fields.
fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let first = [(":method", method), (":scheme", "https"), (":authority", "server"), (":path", path)];
    headers(&[&first[..], more].concat())
}

fn get(path: &str) -> Vec<u8> {
    request("GET", path, &[])
}

/// A frame.
fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_head(kind, payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn data(content: &[u8]) -> Vec<u8> {
    framed(http3::frame::DATA, content)
}

/// A control stream with empty settings, then `frames`.
fn control(frames: &[Vec<u8>]) -> Vec<u8> {
    [vec![0], framed(http3::frame::SETTINGS, b""), frames.concat()].concat()
}

/// The content of the file of this size.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}
