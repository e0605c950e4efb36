//! Parses the chunked transfer coding (RFC 9112, section 7.1): one state machine, with the strictness of each reader as
//! [`Rules`].
//!
//! ```text
//!   1a;name=value CRLF  <26 bytes> CRLF   0 CRLF  Trailer: x CRLF  CRLF
//!   Size Extension      Data   DataCr/Lf  Size    Trailer..        LastLf
//! ```
//!
//! | the body has | client | observer | server |
//! |---|---|---|---|
//! | a size of up to 16 hexadecimal digits | accepted | accepted | accepted |
//! | 17 digits, a sign, `0x`, white space before the size | fault | fault | fault |
//! | white space after the size | skipped | skipped | skipped |
//! | an extension | skipped | skipped | syntax checked, skipped |
//! | trailers | skipped | skipped | syntax checked, skipped |
//! | a line that ends with LF alone | fault | accepted | fault |
//! | extensions and trailers without end | fault after 64 KiB | accepted | fault after 8 KiB |
//!
//! An observer accepts every body that a server or a client accepts, and finds the same end.

use std::marker::PhantomData;
use std::ops::Range;

use crate::fault::{Fault, Reason};
use crate::list::{is_text, is_token};

/// How strictly a reader parses a chunked body.
pub trait Rules: Copy {
    /// Whether lines may end with LF alone.
    const BARE_LF: bool;
    /// Whether the syntax of extensions and trailers is checked.
    const CHECK_SYNTAX: bool;
    /// Maximum bytes of extensions and trailers.
    const OVERHEAD_MAX: u32;
    /// Whether `OVERHEAD_MAX` limits each chunk and the trailers separately, or the whole body.
    const OVERHEAD_PER_CHUNK: bool;
}

/// Rules of a client. It accepts sizes that old servers pad with spaces, and ignores extensions. It rejects a bare CR
/// or LF: clients that treat them differently disagree about where the next response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByClient;

impl Rules for ByClient {
    const BARE_LF: bool = false;
    const CHECK_SYNTAX: bool = false;
    /// The limit of a response head.
    const OVERHEAD_MAX: u32 = 64 * 1024;
    const OVERHEAD_PER_CHUNK: bool = true;
}

/// Rules of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByServer;

impl Rules for ByServer {
    const BARE_LF: bool = false;
    const CHECK_SYNTAX: bool = true;
    /// More than clients send, and little enough to limit an attack.
    const OVERHEAD_MAX: u32 = 8 << 10;
    const OVERHEAD_PER_CHUNK: bool = false;
}

/// Rules of an observer, such as the packet analysis: it accepts every body that client or server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByObserver;

impl Rules for ByObserver {
    const BARE_LF: bool = true;
    const CHECK_SYNTAX: bool = false;
    /// Skipped bytes cost the observer nothing.
    const OVERHEAD_MAX: u32 = u32::MAX;
    const OVERHEAD_PER_CHUNK: bool = true;
}

/// The position of a reader in a chunked body. Stores nothing of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked<R> {
    state: State,
    digits: u8,
    overhead: u32,
    /// While a chunk's size is read: its value so far. While its data is read: the bytes left.
    left: u64,
    /// Bytes of data read so far.
    content: u64,
    /// Maximum bytes of data.
    content_max: u64,
    rules: PhantomData<R>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space after a size. RFC 9112 forbids it; old servers pad with it.
    Space,
    Extension,
    /// In a quoted string.
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    /// The LF of a size line.
    SizeLf,
    Data,
    /// The CR after the data.
    DataCr,
    /// The LF after the data.
    DataLf,
    /// The beginning of a trailer line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// The LF of the empty line.
    LastLf,
    Ended,
}

/// What the next bytes of the input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All of the input was framing; the body continues.
    More,
    /// Data, at this range of the input. Bytes before the range are framing; bytes after it have not been read.
    Data(Range<usize>),
    /// The body ended at this offset of the input.
    End(usize),
}

/// Maximum hexadecimal digits of a chunk size: those of 64 bits. Leading zeros count, as no known sender pads with
/// zeros.
const DIGITS_MAX: u8 = 16;

impl<R: Rules> Chunked<R> {
    /// The beginning of a body of any length.
    pub fn new() -> Self {
        Chunked::with_max(u64::MAX)
    }

    /// The beginning of a body of at most `content_max` bytes of data; a longer body is a fault.
    pub fn with_max(content_max: u64) -> Self {
        Chunked { state: State::Size, digits: 0, overhead: 0, left: 0, content: 0, content_max, rules: PhantomData }
    }

    /// Bytes of data read so far, without the framing.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// How many of the next bytes are data, whatever their values.
    pub fn data_left(&self) -> u64 {
        if self.state == State::Data { self.left } else { 0 }
    }

    /// Skips the next `bytes` bytes of data, at most [`Self::data_left`], without reading them.
    pub fn skip(&mut self, bytes: u64) {
        let bytes = bytes.min(self.data_left());
        self.left -= bytes;
        self.content = self.content.saturating_add(bytes);
        if self.state == State::Data && self.left == 0 {
            self.state = State::DataCr;
        }
    }

    /// Reads the next part of the body. Call again with the input after the returned data, or with new input.
    ///
    /// # Errors
    /// The input is not a chunked body, or exceeds a limit. The beginning of the next message is then unknown.
    #[inline]
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Fault> {
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
                self.skip(length as u64);
                return Ok(Step::Data(at..at + length));
            }
            self.state = self.framing(input[at])?;
            at += 1;
        }
    }

    /// Reads one byte of framing and returns the next state.
    fn framing(&mut self, byte: u8) -> Result<State, Fault> {
        let state = match (self.state, byte) {
            (State::Size, digit) if digit.is_ascii_hexdigit() => return self.digit(digit),
            (State::Size, _) if self.digits == 0 => return Err(Fault::new(Reason::ChunkSize, &[byte])),
            (State::Size | State::Space | State::Extension, b'\r') => return Ok(State::SizeLf),
            (State::Size | State::Space | State::Extension, b'\n') if R::BARE_LF => return self.begin_chunk(),
            (State::Size | State::Space, b' ' | b'\t') => State::Space,
            (State::Size | State::Space, b';') => State::Extension,
            (State::Size | State::Space, b'\n') => return Err(Fault::new(Reason::ChunkLineEnd, b"\n")),
            (State::Size | State::Space, _) => return Err(Fault::new(Reason::ChunkSize, &[byte])),
            (State::SizeLf, b'\n') => return self.begin_chunk(),
            (State::Extension | State::Quoted | State::Escaped, _) => self.extension(byte)?,
            (State::DataCr, b'\r') => return Ok(State::DataLf),
            (State::DataCr, b'\n') if R::BARE_LF => return Ok(self.begin_size()),
            (State::DataLf, b'\n') => return Ok(self.begin_size()),
            (State::DataCr, _) => return Err(Fault::new(Reason::ChunkDataEnd, &[byte])),
            (State::Trailer, b'\r') => return Ok(State::LastLf),
            (State::Trailer, b'\n') if R::BARE_LF => return Ok(State::Ended),
            (State::LastLf, b'\n') => return Ok(State::Ended),
            (State::Trailer | State::TrailerName | State::TrailerValue, _) => self.trailer(byte)?,
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::SizeLf | State::DataLf | State::TrailerLf | State::LastLf, _) => {
                return Err(Fault::new(Reason::ChunkLineEnd, &[b'\r', byte]));
            }
            (State::Data | State::Ended, _) => unreachable!("step handles the states Data and Ended"),
        };
        self.overhead += 1;
        if self.overhead > R::OVERHEAD_MAX {
            return Err(Fault::new(Reason::ChunkOverhead, R::OVERHEAD_MAX.to_string().as_bytes()));
        }
        Ok(state)
    }

    fn digit(&mut self, digit: u8) -> Result<State, Fault> {
        if self.digits == DIGITS_MAX {
            return Err(Fault::new(Reason::ChunkSizeOverflow, &[digit]));
        }
        self.digits += 1;
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            letter => (letter | 0x20) - b'a' + 10,
        };
        self.left = self.left << 4 | u64::from(value);
        Ok(State::Size)
    }

    fn extension(&self, byte: u8) -> Result<State, Fault> {
        if !R::CHECK_SYNTAX {
            return if byte == b'\n' { Err(Fault::new(Reason::ChunkLineEnd, b"\n")) } else { Ok(State::Extension) };
        }
        match (self.state, byte) {
            (State::Extension, b'"') => Ok(State::Quoted),
            (State::Quoted, b'"') => Ok(State::Extension),
            (State::Quoted, b'\\') => Ok(State::Escaped),
            (State::Extension, text) if is_text(text) => Ok(State::Extension),
            (State::Quoted | State::Escaped, text) if is_text(text) => Ok(State::Quoted),
            (_, b'\n') => Err(Fault::new(Reason::ChunkLineEnd, b"\n")),
            _ => Err(Fault::new(Reason::ChunkExtension, &[byte])),
        }
    }

    fn trailer(&self, byte: u8) -> Result<State, Fault> {
        match (self.state, byte) {
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, b'\n') if R::BARE_LF => Ok(State::Trailer),
            (_, b'\n') => Err(Fault::new(Reason::ChunkLineEnd, b"\n")),
            _ if !R::CHECK_SYNTAX => Ok(State::TrailerValue),
            (State::Trailer | State::TrailerName, name) if is_token(name) => Ok(State::TrailerName),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, text) if is_text(text) => Ok(State::TrailerValue),
            _ => Err(Fault::new(Reason::Trailer, &[byte])),
        }
    }

    fn begin_size(&mut self) -> State {
        self.digits = 0;
        State::Size
    }

    fn begin_chunk(&mut self) -> Result<State, Fault> {
        if R::OVERHEAD_PER_CHUNK {
            self.overhead = 0;
        }
        if self.left == 0 {
            return Ok(State::Trailer);
        }
        if self.content.checked_add(self.left).is_none_or(|sum| sum > self.content_max) {
            return Err(Fault::new(Reason::BodyTooLong, self.content_max.to_string().as_bytes()));
        }
        Ok(State::Data)
    }
}

impl<R: Rules> Default for Chunked<R> {
    fn default() -> Self {
        Chunked::new()
    }
}

#[cfg(test)]
mod tests;
