//! The PROXY protocol (HAProxy's proxy-protocol.txt, versions 1 and 2): a header that a load balancer sends before the
//! stream.

/// Classification of the first bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preamble {
    /// No header of the PROXY protocol.
    None,
    /// A possible header, incomplete.
    Incomplete,
    /// A header of this length in bytes.
    Length(usize),
}

/// Classifies the first bytes of a stream.
pub(crate) fn read(bytes: &[u8]) -> Preamble {
    if starts(bytes, VERSION_1) {
        return match memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_MAX)]) {
            _ if bytes.len() < VERSION_1.len() => Preamble::Incomplete,
            Some(end) if bytes[end - 1] == b'\r' => Preamble::Length(end + 1),
            None if bytes.len() < LINE_MAX => Preamble::Incomplete,
            Some(_) | None => Preamble::None,
        };
    }
    if starts(bytes, VERSION_2) {
        let Some(head) = bytes.first_chunk::<16>() else { return Preamble::Incomplete };
        if head[12] >> 4 != 2 {
            return Preamble::None;
        }
        return Preamble::Length(16 + usize::from(u16::from_be_bytes([head[14], head[15]])));
    }
    Preamble::None
}

fn starts(bytes: &[u8], with: &[u8]) -> bool {
    let length = bytes.len().min(with.len());
    length > 0 && bytes[..length] == with[..length]
}

const VERSION_1: &[u8] = b"PROXY ";
const VERSION_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, including its end.
const LINE_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_headers_of_both_versions_are_recognized_by_any_prefix() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 80\r\n";
        let binary = [VERSION_2, &[0x21, 0x11, 0, 12], &[7; 12]].concat();
        for (header, telling) in [(&line[..], line.len()), (&binary, 16)] {
            let all = [header, b"GET / HTTP/1.1\r\n"].concat();
            for length in 1..all.len() {
                let expected = if length < telling { Preamble::Incomplete } else { Preamble::Length(header.len()) };
                assert_eq!(read(&all[..length]), expected, "{length} bytes");
            }
        }
        for other in [&b"PROPFIND / HTTP/1.1\r\n"[..], b"GET /", b"\r\nGET /", b"PROXY \n", b"", &[b'P'; 200]] {
            assert_eq!(read(other), Preamble::None, "{other:?}");
        }
        assert_eq!(read(&[&b"PROXY "[..], &[b'x'; 200]].concat()), Preamble::None);
        assert_eq!(read(&[VERSION_2, &[0x11, 0x11, 0, 12]].concat()), Preamble::None);
    }
}
