//! Encoded heads of responses, by their text: a file's head is the same for all requests of a second.

use std::rc::Rc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Field sections by the text of the head that they encode.
#[derive(Debug, Default)]
pub(crate) struct HeadCache {
    sections: HashMap<Box<[u8]>, Rc<[u8]>, RandomState>,
    scratch: Vec<u8>,
}

/// How a protocol encodes status and fields.
pub(crate) trait Encoding {
    /// Its cache.
    fn cache(caches: &mut HeadCaches) -> &mut HeadCache;
    /// Appends what precedes all fields, and the status.
    fn status(status: &[u8; 3], out: &mut Vec<u8>);
    /// Appends a field; its name is in lower case.
    fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>);
}

/// The caches of a worker.
#[derive(Debug, Default)]
pub(crate) struct HeadCaches {
    pub(crate) http2: HeadCache,
    pub(crate) http3: HeadCache,
}

impl HeadCache {
    /// The section of `head`, a complete head of HTTP/1.1 with its empty line; kept for later responses if `is_common`.
    pub(crate) fn section<E: Encoding>(&mut self, head: &[u8], is_common: bool) -> Rc<[u8]> {
        if let Some(section) = self.sections.get(head) {
            return Rc::clone(section);
        }
        self.scratch.clear();
        encode::<E>(head, &mut self.scratch);
        let section: Rc<[u8]> = self.scratch[..].into();
        if is_common && head.len() <= HEAD_BYTES_MAX {
            if self.sections.len() >= SECTIONS_MAX {
                self.sections.clear();
            }
            self.sections.insert(head.into(), Rc::clone(&section));
        }
        section
    }
}

/// Encodes status line and fields, without those that belong to a connection of HTTP/1.1.
fn encode<E: Encoding>(head: &[u8], out: &mut Vec<u8>) {
    let mut lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let status = lines.next().and_then(|line| line.get(9..12)).and_then(|status| status.try_into().ok());
    E::status(status.unwrap_or(b"500"), out);
    let mut lower = Vec::with_capacity(32);
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        lower.clear();
        lower.extend(line[..colon].iter().map(u8::to_ascii_lowercase));
        let of_connection: [&[u8]; 5] =
            [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
        if !of_connection.contains(&&lower[..]) {
            E::field(&lower, line[colon + 1..].trim_ascii(), out);
        }
    }
}

/// Heads of one second; then the Date differs.
const SECTIONS_MAX: usize = 512;
/// A longer head is encoded each time.
const HEAD_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    struct Text;

    impl Encoding for Text {
        fn cache(caches: &mut HeadCaches) -> &mut HeadCache {
            &mut caches.http2
        }

        fn status(status: &[u8; 3], out: &mut Vec<u8>) {
            out.extend_from_slice(status);
        }

        fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(&[b"|", name, b"=", value].concat());
        }
    }

    #[test]
    fn fields_of_the_connection_are_not_encoded() {
        let head = b"HTTP/1.1 404 Not Found\r\nServer: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
            Content-Length:  5\r\n\r\n";
        assert_eq!(&*HeadCache::default().section::<Text>(head, true), b"404|server=x|content-length=5");
    }

    #[test]
    fn only_common_and_short_heads_are_kept() {
        let mut cache = HeadCache::default();
        let head = |number: usize| format!("HTTP/1.1 200 OK\r\nA: {number}\r\n\r\n").into_bytes();
        cache.section::<Text>(&head(0), false);
        cache.section::<Text>(&[&head(0)[..], &[b'a'; HEAD_BYTES_MAX]].concat(), true);
        assert!(cache.sections.is_empty());
        for number in 0..=SECTIONS_MAX {
            assert_eq!(&*cache.section::<Text>(&head(number), true), format!("200|a={number}").as_bytes());
        }
        assert_eq!(cache.sections.len(), 1);
    }
}
