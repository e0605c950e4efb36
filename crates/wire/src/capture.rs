//! Capture files, pcap and pcapng, read from bytes as they come and written into bytes.
//!
//! There is no input or output here: whoever owns the file or pipe hands [`Decoder::decode`] a slice that starts
//! where the last one was used up, and gets one packet, something to skip, or the wish for more bytes.
//!
//! ```text
//!   file, pipe --> bytes --> Decoder::decode --> Step::Packet(captured packet) --> watch
//!                    ^                \--------> Step::More (append bytes, come again)
//!                    '---- drop the first `used` bytes after every step
//! ```
//!
//! Either byte order, any time resolution, several interfaces; unknown blocks are skipped without being held in
//! memory. What was readable before a defect has been handed out by the time the error comes; every error names the
//! byte offset from the start of the file. Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
//!
//! Files need not be in the order of time: [`Sorted`] puts packets right within a window.
//!
//! Read [`Decoder`] first; [`packets`] is the short way for bytes that are all there.

mod order;
mod pcap;
mod pcapng;
mod sorted;
pub mod write;

use units::Timestamp;

pub use sorted::{Placed, Sorted};

/// One packet out of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it was captured, in nanoseconds since 1970; cut at zero and at the end of the range. A packet without a time of
    /// its own takes that of the packet before it.
    pub at: Timestamp,
    /// Whether the file has a time for it: simple packet blocks have none.
    pub has_time: bool,
    /// The link layer as the file numbers it: see [`crate::link::LinkType::from_number`].
    pub link: u16,
    /// Index of the interface in its section; 0 in a pcap file.
    pub interface: u32,
    /// The bytes that were kept.
    pub bytes: &'a [u8],
    /// How many bytes the packet had on the wire; never less than were kept.
    pub original_length: u32,
}

/// What [`Decoder::decode`] found at the start of its bytes.
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
    /// Nothing can be said before at least `needed` bytes are there, at most [`BLOCK_MAX`]. At the end of the input,
    /// call [`Decoder::finish`] instead.
    More {
        /// Bytes that must be there, counted from the start of the slice.
        needed: usize,
    },
}

/// Why a capture cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The first bytes are neither format's.
    #[error("byte 0: {found:02x?} starts neither a pcap nor a pcapng file; is it compressed, or another format?")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A field contradicts another or is beyond all measure.
    #[error("byte {offset}: {what} is {value}; the file is corrupt from here on, what came before it was read")]
    Corrupt {
        /// Bytes from the start of the file to the record or block.
        offset: u64,
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The input ended inside a record or block.
    #[error("byte {offset}: the file ends {left} bytes into a record; what came before it was read")]
    Truncated {
        /// Bytes from the start of the file to the record or block.
        offset: u64,
        /// How many of its bytes are there.
        left: u64,
    },
}

/// The longest record or block that is held in memory in one piece: the longest packet allowed, and options.
pub const BLOCK_MAX: usize = PACKET_MAX + 65_536;
/// The most bytes a captured packet may have kept. libpcap's own bound is 256 KiB for IP link layers.
pub const PACKET_MAX: usize = 1 << 20;

/// Reads a pcap or pcapng file from bytes handed to it in order; finds out itself which of the two it is.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    format: Format,
    offset: u64,
    /// Bytes of a block, known to be of no interest, that are still to come.
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

    /// Bytes used up so far: the offset in the file of the next step.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Packets that the capturing program says it lost, by the statistics blocks read so far (pcapng only).
    pub fn drops(&self) -> u64 {
        match &self.format {
            Format::Pcapng(file) => file.drops(),
            Format::Unknown | Format::Pcap(_) => 0,
        }
    }

    /// The name of an interface of the current section (pcapng only); empty if the file does not say.
    pub fn interface_name(&self, index: u32) -> &str {
        match &self.format {
            Format::Pcapng(file) => file.interface_name(index),
            Format::Unknown | Format::Pcap(_) => "",
        }
    }

    /// Looks at the start of `bytes`, which must continue exactly where the last step's `used` bytes ended.
    ///
    /// # Errors
    /// Another format, or a corrupt record: there is no way to find the next one, so every later call fails alike.
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

    /// Says whether the input may end here, with `left` bytes not used up.
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
        let Format::Pcapng(file) = &mut self.format else { unreachable!("set by the only caller") };
        match file.step(bytes, 0)? {
            pcapng::Block::Step(step) => Ok(step),
            pcapng::Block::SkipAll(_) => unreachable!("a section header is never skipped"),
        }
    }
}

/// The packets of a capture whose bytes are all there. After the first error nothing more comes.
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
