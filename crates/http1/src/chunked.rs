//! The chunked coding: RFC 9112, section 7.1. One machine for every reader, with what each accepts as [`Rules`].
//!
//! ```text
//!   1a;name=value CRLF  <26 bytes> CRLF   0 CRLF  Trailer: x CRLF  CRLF
//!   Size Extension      Data   DataCr/Lf  Size    Trailer..        LastLf
//! ```
//!
//! | the body has | client | observer | server |
//! |---|---|---|---|
//! | a size of up to 16 hexadecimal digits | read | read | read |
//! | 17 digits, a sign, `0x`, white space before the size | fault | fault | fault |
//! | white space after the size | passed over | passed over | passed over |
//! | an extension | passed over | passed over | read to the letter, passed over |
//! | trailers | passed over | passed over | fields to the letter, passed over |
//! | a line that ends with LF alone | fault | read | fault |
//! | extensions and trailers without end | fault after 64 KiB | read | fault after 8 KiB |
//!
//! What a server or a client reads, an observer reads to the same end.

use std::marker::PhantomData;
use std::ops::Range;

use crate::fault::{Fault, Reason};
use crate::list::{is_text, is_token};

/// What a reader accepts of a chunked body.
pub trait Rules: Copy {
    /// Lines may end with LF alone.
    const BARE_LF: bool;
    /// Extensions and trailers are checked to the letter.
    const TO_THE_LETTER: bool;
    /// Most bytes of extensions and trailers.
    const OVERHEAD_MAX: u32;
    /// The bound holds for each chunk by itself, and for the trailers.
    const OVERHEAD_EACH: bool;
}

/// Rules of a client. Sizes are padded by old servers; extensions mean nothing to it. Two clients that disagree about a
/// bare CR or LF disagree about where the next response begins, so that it accepts none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByClient;

impl Rules for ByClient {
    const BARE_LF: bool = false;
    const TO_THE_LETTER: bool = false;
    /// As a head.
    const OVERHEAD_MAX: u32 = 64 * 1024;
    const OVERHEAD_EACH: bool = true;
}

/// Rules of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByServer;

impl Rules for ByServer {
    const BARE_LF: bool = false;
    const TO_THE_LETTER: bool = true;
    /// More than any client sends, too little to hide a flood in.
    const OVERHEAD_MAX: u32 = 8 << 10;
    const OVERHEAD_EACH: bool = false;
}

/// Rules of who looks on: a body that one of its ends reads is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByObserver;

impl Rules for ByObserver {
    const BARE_LF: bool = true;
    const TO_THE_LETTER: bool = false;
    /// What it passes over costs nothing.
    const OVERHEAD_MAX: u32 = u32::MAX;
    const OVERHEAD_EACH: bool = true;
}

/// Where in a chunked body a reader is. Nothing of the body is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked<R> {
    state: State,
    digits: u8,
    overhead: u32,
    /// Of the chunk being read: the size so far, then the bytes left of its data.
    left: u64,
    /// Bytes of data so far.
    content: u64,
    /// Most of these.
    most: u64,
    rules: PhantomData<R>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space behind a size (RFC 9112 forbids it, old servers pad with it).
    Space,
    Extension,
    /// Within a quoted string; after its backslash.
    Quoted,
    Escaped,
    /// The LF of a size line.
    SizeLf,
    Data,
    /// CR and LF behind the data.
    DataCr,
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

/// What the next bytes of a body are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All of the input was framing; more is needed.
    More,
    /// Data, at this place of the input. What is before it was framing, what is after it has not been looked at.
    Data(Range<usize>),
    /// The body ended before this place of the input.
    End(usize),
}

/// Hexadecimal digits that 64 bits hold. Leading zeros count: a size of hundreds of zeros is from no known sender.
const DIGITS_MAX: u8 = 16;

impl<R: Rules> Chunked<R> {
    /// Before the first chunk of a body of any length.
    pub fn new() -> Self {
        Chunked::within(u64::MAX)
    }

    /// Before the first chunk of a body of which at most `most` bytes of data are accepted.
    pub fn within(most: u64) -> Self {
        Chunked { state: State::Size, digits: 0, overhead: 0, left: 0, content: 0, most, rules: PhantomData }
    }

    /// Bytes of data read so far: what the body is without its framing.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// How many of the next bytes are certain to be data.
    pub fn data_left(&self) -> u64 {
        if self.state == State::Data { self.left } else { 0 }
    }

    /// Passes over so many of the next bytes, at most [`Self::data_left`], without seeing them.
    pub fn pass_over(&mut self, bytes: u64) {
        let bytes = bytes.min(self.data_left());
        self.left -= bytes;
        self.content = self.content.saturating_add(bytes);
        if self.state == State::Data && self.left == 0 {
            self.state = State::DataCr;
        }
    }

    /// Reads on. Call again with what follows the data it returned, or with more input.
    ///
    /// # Errors
    /// This is not a chunked body, or it exceeds a bound. Where the next message begins is not known.
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
                self.pass_over(length as u64);
                return Ok(Step::Data(at..at + length));
            }
            self.state = self.framing(input[at])?;
            at += 1;
        }
    }

    /// The state after one byte that is not data.
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
            (State::Data | State::Ended, _) => unreachable!("data and the end are found in step"),
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
        if !R::TO_THE_LETTER {
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
            _ if !R::TO_THE_LETTER => Ok(State::TrailerValue),
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
        if R::OVERHEAD_EACH {
            self.overhead = 0;
        }
        if self.left == 0 {
            return Ok(State::Trailer);
        }
        if self.content.checked_add(self.left).is_none_or(|sum| sum > self.most) {
            return Err(Fault::new(Reason::BodyTooLong, self.most.to_string().as_bytes()));
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
