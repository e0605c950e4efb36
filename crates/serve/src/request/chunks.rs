//! Strict parser of chunked request bodies (RFC 9112, section 7.1).
//!
//! ```text
//!   5;name=value CRLF hello CRLF 0 CRLF trailer: field CRLF CRLF
//!   ─── size ───      data       last   ──── trailers ────
//! ```

use http1::Chunked;
use http1::chunked::ByServer;
pub(crate) use http1::chunked::Step;

use super::fields::refusal;
use crate::response::Status;

/// Parses a chunked body in any fragmentation. The state is only a position in the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunks(Chunked<ByServer>);

impl Chunks {
    /// At the beginning of a body with at most `most` data bytes.
    pub(crate) fn new(most: u64) -> Self {
        Chunks(Chunked::with_max(most))
    }

    /// Continues parsing. Call it again with the input after the returned data, or with more input.
    ///
    /// # Errors
    /// 400 for a malformed chunked body, 413 beyond the limit, 431 for too many bytes of extensions and trailers. The
    /// connection closes: the beginning of the next request is unknown.
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<Step, Status> {
        self.0.step(input).map_err(|fault| refusal(fault.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::chunked::Rules as _;
    use proptest::prelude::*;

    const EXTRA_MAX: usize = ByServer::OVERHEAD_MAX as usize;

    /// The data of a body that arrives in pieces of `piece` bytes, and its length.
    fn body(input: &[u8], piece: usize, most: u64) -> Result<Option<(Vec<u8>, usize)>, Status> {
        let mut chunks = Chunks::new(most);
        let (mut data, mut read) = (Vec::new(), 0);
        for part in input.chunks(piece.max(1)) {
            let mut part_at = 0;
            loop {
                match chunks.step(&part[part_at..])? {
                    Step::More => break,
                    Step::Data(range) => {
                        data.extend_from_slice(&part[part_at..][range.clone()]);
                        part_at += range.end;
                    }
                    Step::End(at) => {
                        return Ok(Some((data, read + part_at + at)));
                    }
                }
            }
            read += part.len();
        }
        Ok(None)
    }

    #[test]
    fn valid_chunked_bodies_are_decoded() {
        for (input, data) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello"),
            ("A\r\n0123456789\r\n00b\r\nhello world\r\n0000\r\n\r\n", "0123456789hello world"),
            ("1;a\r\nx\r\n0;b=\"c\\\"\"\r\n\r\n", "x"),
            ("1 ; a=b;c\r\nx\r\n0\r\n\r\n", "x"),
            ("1\r\nx\r\n0\r\nA: b\r\nEmpty:\r\n\r\n", "x"),
        ] {
            let whole = format!("{input}GET / HTTP/1.1\r\n");
            for piece in [1, 2, 7, 1000] {
                let read = body(whole.as_bytes(), piece, 100);
                assert_eq!(read, Ok(Some((data.as_bytes().to_vec(), input.len()))), "{input:?} by {piece}");
            }
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for input in [
            "\r\n",
            "x\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "-1\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "5\nhello\n0\n\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhelloo\r\n0\r\n\r\n",
            "5\rhello\r\n0\r\n\r\n",
            "5;a\nhello\r\n",
            "5;a\rb\r\nhello\r\n",
            "5 5\r\nhello\r\n",
            "5;\0\r\nhello\r\n",
            "5;a=\"\r\n\"\r\nhello\r\n",
            "00000000000000005\r\n",
            "ffffffffffffffff0\r\n",
            "0\r\n folded: x\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\nspace : x\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "0\r\na: b\n\r\n",
            "0\r\n\n",
        ] {
            assert_eq!(body(input.as_bytes(), 1000, 1 << 60), Err(Status::BadRequest), "{input:?}");
            assert_eq!(body(input.as_bytes(), 1, 1 << 60), Err(Status::BadRequest), "{input:?}");
        }
    }

    #[test]
    fn chunk_extensions_and_trailers_are_limited() {
        assert_eq!(body(b"5\r\nhello\r\n0\r\n\r\n", 3, 5).map(|read| read.is_some()), Ok(true));
        assert_eq!(body(b"5\r\nhello\r\n1\r\n", 3, 5), Err(Status::ContentTooLarge));
        assert_eq!(body(b"ffffffffffffffff\r\n", 3, u64::MAX), Ok(None));
        assert_eq!(body(b"1\r\nx\r\nffffffffffffffff\r\n", 3, u64::MAX), Err(Status::ContentTooLarge));
        let extended = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(bytes - 1));
        assert!(body(extended(EXTRA_MAX).as_bytes(), 1000, 5).is_ok());
        assert_eq!(body(extended(EXTRA_MAX + 1).as_bytes(), 1000, 5), Err(Status::HeadTooLarge));
        // Also with a little in every chunk.
        assert_eq!(body("1;a\r\nx\r\n".repeat(EXTRA_MAX).as_bytes(), 1000, 1 << 20), Err(Status::HeadTooLarge));
        assert_eq!(body(format!("0\r\n{}", "a: b\r\n".repeat(EXTRA_MAX)).as_bytes(), 9, 5), Err(Status::HeadTooLarge));
    }

    proptest! {
        /// Any data in any chunks is decoded, in any fragmentation.
        #[test]
        fn chunked_encoding_round_trips(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 0..8),
            piece in 1usize..80,
        ) {
            let mut input = Vec::new();
            for part in &parts {
                input.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                input.extend_from_slice(part);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\n");
            let length = input.len();
            input.extend_from_slice(b"rest");
            prop_assert_eq!(body(&input, piece, 1 << 20), Ok(Some((parts.concat(), length))));
        }
    }
}
