//! Writes requests as frames (RFC 9114, section 4).

use field_compression::qpack;
use http::Request;

use crate::frame::{DATA, HEADERS, put_head};

/// Appends a request: HEADERS, and DATA if there is a body. Returns the length of HEADERS. Fields that HTTP/3 forbids
/// must not be among its headers.
pub fn put(request: &Request<()>, body: &[u8], into: &mut Vec<u8>) -> usize {
    let from = into.len();
    let mut section = Vec::with_capacity(128);
    qpack::begin(&mut section);
    qpack::encode(b":method", request.method().as_str().as_bytes(), &mut section);
    let uri = request.uri();
    qpack::encode(b":scheme", uri.scheme_str().unwrap_or("https").as_bytes(), &mut section);
    if let Some(authority) = uri.authority() {
        qpack::encode(b":authority", authority.as_str().as_bytes(), &mut section);
    }
    qpack::encode(b":path", uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes(), &mut section);
    for (name, value) in request.headers() {
        qpack::encode(name.as_str().as_bytes(), value.as_bytes(), &mut section);
    }
    put_head(HEADERS, section.len() as u64, into);
    into.extend_from_slice(&section);
    let head = into.len() - from;
    if !body.is_empty() {
        put_head(DATA, body.len() as u64, into);
        into.extend_from_slice(body);
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_pseudo_headers_first() {
        let request = Request::get("https://shop.example/a?b=c").header("accept", "*/*").body(()).unwrap();
        let mut frames = Vec::new();
        let head = put(&request, b"", &mut frames);
        assert_eq!((head, frames[0], usize::from(frames[1])), (frames.len(), 1, frames.len() - 2));
        let mut fields = Vec::new();
        qpack::decode(&frames[2..], 1000, |name, value| {
            fields.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        })
        .unwrap();
        assert_eq!(fields, [":method=GET", ":scheme=https", ":authority=shop.example", ":path=/a?b=c", "accept=*/*"]);
    }

    #[test]
    fn a_body_is_one_data_frame() {
        let request = Request::post("https://h/").body(()).unwrap();
        let mut frames = Vec::new();
        let head = put(&request, &[7; 100], &mut frames);
        assert_eq!(&frames[head..head + 3], &[0, 0x40, 100]);
        assert_eq!(&frames[head + 3..], &[7; 100]);
    }
}
