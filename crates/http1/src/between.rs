//! Skips stray empty lines between two responses.
//!
//! Some servers send a CRLF after a body that their Content-Length does not count. By RFC 9112, section 2.2, a server
//! ignores such an empty line before a request. A client that reads it as the beginning of the next response fails that
//! response. The CRLF may arrive with the body's packet or in a later one; both are handled alike.

/// State of the search for stray empty lines: after a response, while none is expected, and before the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Between {
    /// A CR was received whose LF has not arrived yet.
    has_cr: bool,
    lines: u32,
}

impl Between {
    /// Returns how many bytes at the beginning of `bytes` belong to stray empty lines; the caller skips them. `bytes`
    /// follows a complete response. The first byte after the empty lines is unsolicited or begins the next response.
    pub fn skip(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            match (self.has_cr, bytes.get(at)) {
                (true, Some(b'\n')) => {
                    self.has_cr = false;
                    self.lines = self.lines.saturating_add(1);
                }
                (false, Some(b'\r')) => {
                    // A CR at the end of the input may be the first half of an empty line. Before a byte other than LF
                    // it is not.
                    if bytes.get(at + 1).is_some_and(|&next| next != b'\n') {
                        return at;
                    }
                    self.has_cr = true;
                }
                _ => return at,
            }
            at += 1;
        }
    }

    /// Whether a CR was skipped whose LF has not arrived yet. If a byte other than LF follows, neither belongs to a
    /// message.
    pub fn has_open_cr(&self) -> bool {
        self.has_cr
    }

    /// Returns the number of empty lines skipped since the last call.
    pub fn take_lines(&mut self) -> u32 {
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes skipped, and empty lines among them, for input in pieces of `size` bytes.
    fn skipped(bytes: &[u8], size: usize) -> (usize, u32) {
        let mut between = Between::default();
        let mut passed = 0;
        for piece in bytes.chunks(size) {
            let taken = between.skip(piece);
            passed += taken;
            if taken < piece.len() {
                break;
            }
        }
        (passed, between.take_lines())
    }

    #[test]
    fn stray_empty_lines_are_skipped_for_every_segmentation() {
        for (bytes, expected) in [
            (&b"\r\n"[..], (2, 1)),
            (b"\r\n\r\n", (4, 2)),
            (b"\r\nHTTP/1.1", (2, 1)),
            (b"HTTP/1.1", (0, 0)),
            (b"\n", (0, 0)),
            (b"\n\r\n", (0, 0)),
            (b"\r\n\nX", (2, 1)),
            (b"JUNK", (0, 0)),
            (b"", (0, 0)),
        ] {
            assert_eq!(skipped(bytes, 100), expected, "{bytes:?}");
            assert_eq!(skipped(bytes, 1), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_lone_cr_is_not_an_empty_line() {
        assert_eq!(skipped(b"\rX", 2), (0, 0));
        let mut between = Between::default();
        assert_eq!((between.skip(b"\r"), between.has_open_cr()), (1, true));
        assert_eq!((between.skip(b"X"), between.has_open_cr(), between.take_lines()), (0, true, 0));
        let mut between = Between::default();
        assert_eq!((between.skip(b"\r"), between.skip(b"\nHTTP"), between.has_open_cr()), (1, 1, false));
        assert_eq!(between.take_lines(), 1);
        assert_eq!(between.take_lines(), 0);
    }
}
