//! The body of a request in chunks (RFC 9112, section 7.1), read as strictly as a head.
//!
//! ```text
//!   5;name=value CRLF hello CRLF 0 CRLF trailer: field CRLF CRLF
//!   ─── size ───      data       last   ──── trailers ────
//! ```

use std::ops::Range;

use crate::response::Status;

/// Reads a chunked body as it comes, in pieces of any size. Nothing is kept but a place in the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    state: State,
    /// Of the chunk under way: the size read so far, or the data bytes still to come.
    left: u64,
    /// Digits of the size read so far.
    digits: u8,
    /// Bytes of the body that were neither data nor the shortest framing: extensions and trailers.
    extra: usize,
    /// Data bytes so far, announced ones included.
    total: u64,
    /// The bound of `total`.
    most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space before an extension.
    Space,
    Extension,
    /// Within a quoted string; after its backslash.
    Quoted,
    Escaped,
    /// The LF of a size line.
    SizeEnd,
    Data,
    /// CR and LF behind the data.
    DataCr,
    DataLf,
    /// The beginning of a trailer line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerEnd,
    /// The LF of the empty line.
    LastLf,
    Ended,
}

/// What the next bytes of a body are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All of the input was framing; more is needed.
    More,
    /// Data, at this place of the input. What is before it was framing, what is after it has not been looked at.
    Data(Range<usize>),
    /// The body ended before this place of the input.
    End(usize),
}

impl Chunks {
    /// At the beginning of a body of which at most `most` data bytes are taken.
    pub(crate) fn new(most: u64) -> Self {
        Chunks { state: State::Size, left: 0, digits: 0, extra: 0, total: 0, most }
    }

    /// Reads on. Call again with what follows the data it returned, or with more input.
    ///
    /// # Errors
    /// 400 for what is not a chunked body to the letter: a bare LF, a size that is none or has more than 16 digits,
    /// white space before a size, a trailer that is no field; 413 past the bound; 431 for more than
    /// [`EXTRA_MAX`] bytes of extensions and trailers. The connection ends with it: where the next request begins is
    /// no longer known.
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<Step, Status> {
        let mut at = 0;
        loop {
            if self.state == State::Ended {
                return Ok(Step::End(at));
            }
            if at == input.len() {
                return Ok(Step::More);
            }
            if self.state == State::Data {
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len() - at);
                self.left -= length as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Step::Data(at..at + length));
            }
            self.state = self.framing(input[at])?;
            at += 1;
        }
    }

    /// The state after one byte that is not data.
    fn framing(&mut self, byte: u8) -> Result<State, Status> {
        let state = match (self.state, byte) {
            (State::Size, digit) if digit.is_ascii_hexdigit() => {
                if self.digits == DIGITS_MAX {
                    return Err(Status::BadRequest);
                }
                self.digits += 1;
                self.left = self.left << 4 | u64::from(hex(digit));
                return Ok(State::Size);
            }
            (State::Size, _) if self.digits == 0 => return Err(Status::BadRequest),
            (State::Size | State::Space | State::Extension, b'\r') => return Ok(State::SizeEnd),
            (State::Size | State::Space, b' ' | b'\t') => State::Space,
            (State::Size | State::Space, b';') => State::Extension,
            (State::Extension, b'"') => State::Quoted,
            (State::Quoted, b'"') => State::Extension,
            (State::Quoted, b'\\') => State::Escaped,
            (State::Extension, text) if is_text(text) => State::Extension,
            (State::Quoted | State::Escaped, text) if is_text(text) => State::Quoted,
            (State::SizeEnd, b'\n') => return self.begin_chunk(),
            (State::DataCr, b'\r') => return Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.digits = 0;
                return Ok(State::Size);
            }
            (State::Trailer, b'\r') => return Ok(State::LastLf),
            (State::Trailer, name) if is_token(name) => State::TrailerName,
            (State::TrailerName, name) if is_token(name) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerEnd,
            (State::TrailerValue, text) if is_text(text) => State::TrailerValue,
            (State::TrailerEnd, b'\n') => State::Trailer,
            (State::LastLf, b'\n') => return Ok(State::Ended),
            _ => return Err(Status::BadRequest),
        };
        self.extra += 1;
        if self.extra > EXTRA_MAX { Err(Status::HeadTooLarge) } else { Ok(state) }
    }

    fn begin_chunk(&mut self) -> Result<State, Status> {
        if self.left == 0 {
            return Ok(State::Trailer);
        }
        self.total =
            self.total.checked_add(self.left).filter(|&sum| sum <= self.most).ok_or(Status::ContentTooLarge)?;
        Ok(State::Data)
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        letter => (letter | 0x20) - b'a' + 10,
    }
}

/// What a field value or an extension may hold: no control character but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// Hexadecimal digits that 64 bits hold. Leading zeros count: a size of hundreds of zeros is nobody's.
const DIGITS_MAX: u8 = 16;
/// Extensions and trailers of one body, which nothing here reads: more than any client sends, too little to hide a
/// flood in.
pub(crate) const EXTRA_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The data of a body that comes in pieces of `piece` bytes, and how many bytes it has.
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
    fn right_ones() {
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
    fn wrong_ones() {
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
    fn bounds() {
        assert_eq!(body(b"5\r\nhello\r\n0\r\n\r\n", 3, 5).map(|read| read.is_some()), Ok(true));
        assert_eq!(body(b"5\r\nhello\r\n1\r\n", 3, 5), Err(Status::ContentTooLarge));
        assert_eq!(body(b"ffffffffffffffff\r\n", 3, u64::MAX), Ok(None));
        assert_eq!(body(b"1\r\nx\r\nffffffffffffffff\r\n", 3, u64::MAX), Err(Status::ContentTooLarge));
        let extended = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(bytes - 1));
        assert!(body(extended(EXTRA_MAX).as_bytes(), 1000, 5).is_ok());
        assert_eq!(body(extended(EXTRA_MAX + 1).as_bytes(), 1000, 5), Err(Status::HeadTooLarge));
        // Also when every chunk brings a little.
        assert_eq!(body("1;a\r\nx\r\n".repeat(EXTRA_MAX).as_bytes(), 1000, 1 << 20), Err(Status::HeadTooLarge));
        assert_eq!(body(format!("0\r\n{}", "a: b\r\n".repeat(EXTRA_MAX)).as_bytes(), 9, 5), Err(Status::HeadTooLarge));
    }

    proptest! {
        /// Any data in any chunks comes back, however it is cut.
        #[test]
        fn what_is_chunked_comes_back(
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
