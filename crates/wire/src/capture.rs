//! Capture files, pcap and pcapng: decoded from bytes as they arrive, and written as bytes.
//!
//! This module does no input or output: the owner of the file or pipe passes [`Decoder::decode`] a slice that starts
//! where the last one ended, and gets one packet, bytes to skip, or a request for more bytes.
//!
//! ```text
//!   file, pipe --> bytes --> Decoder::decode --> Step::Packet(captured packet) --> watch
//!                    ^                \--------> Step::More (append bytes, come again)
//!                    '---- drop the first `used` bytes after every step
//! ```
//!
//! Either byte order, any time resolution, several interfaces; unknown blocks are skipped without being stored. All
//! packets before a defect are returned before its error; every error has the byte offset from the start of the file.
//! Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
//!
//! Files need not be in order of time: [`Sorted`] reorders packets within a window.
//!
//! Read [`Decoder`] first; [`packets`] is the short form for bytes that are completely available.

mod order;
mod pcap;
mod pcapng;
mod sorted;
pub mod write;

use units::Timestamp;

pub use sorted::{Placed, Sorted};

/// One packet of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Capture time, in nanoseconds since 1970; limited to zero and the end of the range. A packet without a time has
    /// that of the packet before it.
    pub at: Timestamp,
    /// Whether the file has a time for it: simple packet blocks have none.
    pub has_time: bool,
    /// The link layer by its number in the file: see [`crate::link::LinkType::from_number`].
    pub link: u16,
    /// Index of the interface in its section; 0 in a pcap file.
    pub interface: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Original length on the wire; never below the captured length.
    pub original_length: u32,
}

/// Result of [`Decoder::decode`] at the start of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A packet; the next step starts `used` bytes further on.
    Packet {
        /// The packet.
        packet: Captured<'a>,
        /// Bytes to drop.
        used: usize,
    },
    /// Nothing to report; the next step starts `used` bytes further on.
    Skip {
        /// Bytes to drop, at least 1.
        used: usize,
    },
    /// At least `needed` bytes are required, at most [`BLOCK_MAX`]. At the end of the input, call [`Decoder::finish`]
    /// instead.
    More {
        /// Required bytes, counted from the start of the slice.
        needed: usize,
    },
}

/// Why a capture cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The first bytes belong to neither format.
    #[error("byte 0: {found:02x?} is not the start of a pcap or pcapng file; decompress or convert the file")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A field is inconsistent or out of range.
    #[error("byte {offset}: {what} is {value}; the file is corrupt from here on; the packets before it were read")]
    Corrupt {
        /// Bytes from the start of the file to the record or block.
        offset: u64,
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The input ended inside a record or block.
    #[error("byte {offset}: the file ends {left} bytes into a record; the packets before it were read")]
    Truncated {
        /// Bytes from the start of the file to the record or block.
        offset: u64,
        /// Number of its available bytes.
        left: u64,
    },
}

/// The longest record or block that is held in memory as one; the longest allowed packet, and options.
pub const BLOCK_MAX: usize = PACKET_MAX + 65_536;
/// Maximum captured length of a packet. libpcap's own limit is 256 KiB for IP link layers.
pub const PACKET_MAX: usize = 1 << 20;

/// Decodes a pcap or pcapng file from bytes passed in order; detects the format.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    format: Format,
    offset: u64,
    /// Remaining bytes of a block to skip.
    skipping: u64,
}

#[derive(Clone, Debug, Default)]
enum Format {
    #[default]
    Unknown,
    Pcap(pcap::File),
    Pcapng(pcapng::File),
}

impl Decoder {
    /// At the start of a file.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Bytes consumed so far: the file offset of the next step.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Packets that the capturing program lost, by the statistics blocks read so far (pcapng only).
    pub fn drops(&self) -> u64 {
        match &self.format {
            Format::Pcapng(file) => file.drops(),
            Format::Unknown | Format::Pcap(_) => 0,
        }
    }

    /// The name of an interface of the current section (pcapng only); empty if the file has none.
    pub fn interface_name(&self, index: u32) -> &str {
        match &self.format {
            Format::Pcapng(file) => file.interface_name(index),
            Format::Unknown | Format::Pcap(_) => "",
        }
    }

    /// Decodes the start of `bytes`, which must continue exactly where the last step's `used` bytes ended.
    ///
    /// # Errors
    /// Another format, or a corrupt record: the next record cannot be found, so every later call fails in the same way.
    #[inline]
    pub fn decode<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureError> {
        let step = if self.skipping > 0 {
            let used = usize::try_from(self.skipping).unwrap_or(usize::MAX).min(bytes.len());
            self.skipping -= used as u64;
            if used == 0 { Step::More { needed: 1 } } else { Step::Skip { used } }
        } else {
            match &mut self.format {
                Format::Pcap(file) => file.step(bytes, self.offset)?,
                Format::Pcapng(file) => match file.step(bytes, self.offset)? {
                    pcapng::Block::Step(step) => step,
                    pcapng::Block::SkipAll(length) => {
                        let used = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
                        self.skipping = length - used as u64;
                        Step::Skip { used }
                    }
                },
                Format::Unknown => self.recognise(bytes)?,
            }
        };
        if let Step::Packet { used, .. } | Step::Skip { used } = step {
            self.offset += used as u64;
        }
        Ok(step)
    }

    /// Checks whether the input may end here, with `left` bytes not consumed.
    ///
    /// # Errors
    /// The input ends inside a record or block. An empty input is not an error.
    pub fn finish(&self, left: usize) -> Result<(), CaptureError> {
        if left > 0 || self.skipping > 0 {
            return Err(CaptureError::Truncated { offset: self.offset, left: left as u64 });
        }
        Ok(())
    }

    fn recognise<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureError> {
        let Some(magic) = bytes.first_chunk::<4>() else { return Ok(Step::More { needed: 4 }) };
        if *magic == pcapng::SECTION_MAGIC {
            self.format = Format::Pcapng(pcapng::File::new());
            return self.recognised(bytes);
        }
        if !pcap::is_magic(*magic) {
            return Err(CaptureError::Magic { found: *magic });
        }
        let Some(header) = bytes.first_chunk::<{ pcap::HEADER }>() else {
            return Ok(Step::More { needed: pcap::HEADER });
        };
        self.format = Format::Pcap(pcap::File::new(header));
        Ok(Step::Skip { used: pcap::HEADER })
    }

    fn recognised<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureError> {
        let Format::Pcapng(file) = &mut self.format else { unreachable!("the caller has set the format") };
        match file.step(bytes, 0)? {
            pcapng::Block::Step(step) => Ok(step),
            pcapng::Block::SkipAll(_) => unreachable!("a section header is never skipped"),
        }
    }
}

/// The packets of a capture whose bytes are completely available. Iteration ends after the first error.
pub fn packets(bytes: &[u8]) -> impl Iterator<Item = Result<Captured<'_>, CaptureError>> {
    let (mut decoder, mut rest, mut ended) = (Decoder::new(), bytes, false);
    std::iter::from_fn(move || {
        while !ended {
            match decoder.decode(rest) {
                Ok(Step::Packet { packet, used }) => {
                    rest = &rest[used..];
                    return Some(Ok(packet));
                }
                Ok(Step::Skip { used }) => rest = &rest[used..],
                Ok(Step::More { .. }) => {
                    ended = true;
                    return decoder.finish(rest.len()).err().map(Err);
                }
                Err(error) => {
                    ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    })
}
