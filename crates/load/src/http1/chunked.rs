//! A chunked body: RFC 9112, section 7.1.
//!
//! ```text
//!   1a;name=value CRLF  <26 bytes> CRLF   0 CRLF  Trailer: x CRLF  CRLF
//!   Size Extension      Data   DataCr/Lf  Size    Trailer.. Line    EndLf
//! ```
//!
//! Lines end with CRLF and nothing else: two readers that disagree about a bare CR or LF here disagree about where
//! the next response begins.

use super::response::Fault;

/// Where in a chunked body the reader is.
#[derive(Clone, Debug)]
pub struct Chunked {
    stage: Stage,
    /// Of the chunk being read: its size so far, then the bytes left of it.
    size: u64,
    digits: u8,
    /// Bytes of extensions since the last data, and of trailers.
    overhead: u32,
    /// Bytes of data so far.
    content: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Size,
    /// White space after a size (RFC 9112 forbids it, old servers pad with it).
    Padding,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine,
    TrailerLf,
    EndLf,
    Whole,
}

/// Sizes of up to 16 hex digits fit 64 bits.
const DIGITS_MAX: u8 = 16;

/// Most bytes of one chunk's extensions, and of all trailers together: as a head.
const OVERHEAD_MAX: u32 = 64 * 1024;

impl Chunked {
    /// Before the first chunk.
    pub fn new() -> Self {
        Chunked { stage: Stage::Size, size: 0, digits: 0, overhead: 0, content: 0 }
    }

    /// Bytes of data read so far: what the body is without its framing.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// Reads on: the number of bytes taken when the body is whole, `None` when all were taken and it is not. `data` is
    /// shown each run of data as it is passed.
    ///
    /// # Errors
    /// The framing is broken, or extensions or trailers do not end.
    pub fn feed(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<Option<usize>, Fault> {
        if self.stage == Stage::Whole {
            return Ok(Some(0));
        }
        let mut at = 0;
        while at < bytes.len() {
            if self.stage == Stage::Data {
                let taken = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - at);
                self.size -= taken as u64;
                self.content = self.content.saturating_add(taken as u64);
                data(&bytes[at..at + taken]);
                at += taken;
                if self.size == 0 {
                    self.stage = Stage::DataCr;
                }
                continue;
            }
            self.stage = self.step(bytes[at])?;
            at += 1;
            if self.stage == Stage::Whole {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn step(&mut self, byte: u8) -> Result<Stage, Fault> {
        match (self.stage, byte) {
            (Stage::Size, _) if byte.is_ascii_hexdigit() => self.digit(byte),
            (Stage::Size, _) if self.digits == 0 => Err(Fault::Malformed),
            (Stage::Size | Stage::Padding, b'\r') => Ok(Stage::SizeLf),
            (Stage::Size | Stage::Padding, b';') => Ok(Stage::Extension),
            (Stage::Size | Stage::Padding, b' ' | b'\t') => self.count(Stage::Padding),
            (Stage::Size | Stage::Padding, _) => Err(Fault::Malformed),
            (Stage::Extension, b'\r') => Ok(Stage::SizeLf),
            (Stage::Extension, b'\n') => Err(Fault::Malformed),
            (Stage::Extension, _) => self.count(Stage::Extension),
            (Stage::SizeLf, b'\n') => Ok(self.begin_data()),
            (Stage::DataCr, b'\r') => Ok(Stage::DataLf),
            (Stage::DataLf, b'\n') => Ok(Stage::Size),
            (Stage::TrailerStart, b'\r') => Ok(Stage::EndLf),
            (Stage::TrailerLine, b'\r') => Ok(Stage::TrailerLf),
            (Stage::TrailerStart | Stage::TrailerLine, b'\n') => Err(Fault::Malformed),
            (Stage::TrailerStart | Stage::TrailerLine, _) => self.count(Stage::TrailerLine),
            (Stage::TrailerLf, b'\n') => Ok(Stage::TrailerStart),
            (Stage::EndLf, b'\n') => Ok(Stage::Whole),
            (Stage::SizeLf | Stage::DataCr | Stage::DataLf | Stage::TrailerLf | Stage::EndLf, _) => {
                Err(Fault::Malformed)
            }
            (Stage::Data | Stage::Whole, _) => {
                unreachable!("data is skipped in feed, and feed takes nothing after the end")
            }
        }
    }

    fn digit(&mut self, byte: u8) -> Result<Stage, Fault> {
        if self.digits == DIGITS_MAX {
            return Err(Fault::Malformed);
        }
        self.digits += 1;
        self.size = self.size << 4 | u64::from(char::from(byte).to_digit(16).unwrap_or(0));
        Ok(Stage::Size)
    }

    fn begin_data(&mut self) -> Stage {
        self.digits = 0;
        self.overhead = 0;
        if self.size == 0 { Stage::TrailerStart } else { Stage::Data }
    }

    fn count(&mut self, stage: Stage) -> Result<Stage, Fault> {
        self.overhead += 1;
        if self.overhead > OVERHEAD_MAX { Err(Fault::HeadTooLarge) } else { Ok(stage) }
    }
}

impl Default for Chunked {
    fn default() -> Self {
        Chunked::new()
    }
}
