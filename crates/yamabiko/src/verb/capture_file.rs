//! Reads packets of a capture file or pipe, in the order of their timestamps.
//!
//! ```text
//!   blocks --> decoder --> [window: positions in retained blocks] --> each packet, numbered as in the file
//! ```
//!
//! Packets are not copied: a packet stays in its block until it is delivered. A block is reused once all its packets
//! are delivered.

use std::collections::VecDeque;
use std::fs::File;

use anyhow::{Context, Error, Result, bail};
use sys::signal::Interrupts;
use units::Timestamp;
use wire::capture::{Decoder, Placed, Sorted, Step};

use super::watch::blocks::{self, Appended, Block, Blocks, Bytes, Joined};

/// A packet of a capture file.
pub struct Packet<'a> {
    /// Its number in the file, from 1.
    pub number: u64,
    /// Capture time.
    pub at: Timestamp,
    /// Number of the link layer (LINKTYPE).
    pub link: u16,
    /// The interface's name; empty if the file has none.
    pub device: &'a str,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub original_length: u32,
}

/// The result of reading a file.
#[derive(Debug, Default)]
pub struct FileRead {
    /// Whether Ctrl-C ended the reading early.
    pub interrupted: bool,
    /// Why the file could not be read to its end.
    pub failure: Option<Error>,
    /// Packets that the capturing system lost, according to the file.
    pub drops: u64,
    /// Packets with an earlier timestamp than a packet before them.
    pub reordered: u64,
}

/// Passes every packet to `each`, sorted by time within [`WINDOW_NS`]. A packet that is later than that is passed in
/// its position in the file. A packet without a timestamp ends the reading, as a defect does: it cannot be measured.
pub fn read(input: &mut File, interrupts: &Interrupts, mut each: impl FnMut(&Packet<'_>)) -> FileRead {
    let mut decoder = Decoder::new();
    let mut window = Window::new();
    let outcome = blocks::read(input, interrupts, |blocks| {
        let outcome = read_blocks(blocks, &mut decoder, &mut window, &mut each);
        window.finish(blocks, &mut each);
        outcome
    });
    let (interrupted, failure) = match outcome {
        Ok(interrupted) => (interrupted, None),
        Err(error) => (false, Some(error)),
    };
    FileRead { interrupted, failure, drops: decoder.drops(), reordered: window.sorted.moved() }
}

fn read_blocks(
    blocks: &Blocks,
    decoder: &mut Decoder,
    window: &mut Window,
    each: &mut impl FnMut(&Packet<'_>),
) -> Result<bool> {
    loop {
        match decoder.decode(window.current.get())? {
            Step::Packet { packet, used } => {
                if !packet.has_time {
                    bail!(
                        "packet {} (byte {}) has no timestamp, because it is in a simple packet block of pcapng: nothing can \
                         be measured; capture with enhanced packet blocks, or in pcap",
                        window.packets + 1,
                        decoder.offset() - used as u64
                    );
                }
                let at = packet.at;
                let position = Position {
                    block: window.block,
                    at: window.current.offset_of(packet.bytes),
                    length: packet.bytes.len() as u32,
                    original_length: packet.original_length,
                    link: packet.link,
                    name: window.last_name.1,
                };
                let interface = packet.interface;
                let name = window.name_of(interface, decoder.interface_name(interface));
                window.push(at, Position { name, ..position }, blocks, each);
                window.current.drop_first(used);
            }
            Step::Skip { used } => window.current.drop_first(used),
            Step::More { .. } => match blocks.next() {
                Block::Bytes(block) => window.append(block, blocks, each),
                Block::Interrupted => return Ok(true),
                Block::End if decoder.offset() == 0 && window.current.get().is_empty() => {
                    bail!("the file is empty; a capture without packets has a header")
                }
                Block::End => return Ok(decoder.finish(window.current.get().len()).map(|()| false)?),
                Block::Failed(error) => {
                    let offset = decoder.offset() + window.current.get().len() as u64;
                    return Err(error).context(format!("byte {offset}: reading"));
                }
            },
        }
    }
}

/// The packets that wait for delivery, and their blocks.
struct Window {
    sorted: Sorted<Position>,
    /// The current block, preceded by the unread rest of the previous one.
    current: Joined,
    /// Number of the current block.
    block: u64,
    /// Packets in the current block that wait.
    waiting: usize,
    /// Earlier blocks, each with its number of waiting packets.
    retained: VecDeque<(Bytes, usize)>,
    /// Blocks added to those that circulate from the start.
    added: usize,
    packets: u64,
    names: Vec<String>,
    /// Interface of the latest packet, and the index of its name.
    last_name: (u32, u16),
}

/// The position of a packet in a block, and its properties.
#[derive(Clone, Copy, Debug)]
struct Position {
    block: u64,
    at: usize,
    length: u32,
    original_length: u32,
    link: u16,
    name: u16,
}

impl Window {
    fn new() -> Window {
        Window {
            sorted: Sorted::new(WINDOW_NS),
            current: Joined::default(),
            block: 0,
            waiting: 0,
            retained: VecDeque::new(),
            added: 0,
            packets: 0,
            names: vec![String::new()],
            last_name: (0, 0),
        }
    }

    /// The index of an interface's name.
    #[inline]
    fn name_of(&mut self, interface: u32, name: &str) -> u16 {
        // Two empty names are not compared: memcmp of no bytes at a dangling address, which an empty name has, was slow
        // (glibc's version for AVX-512).
        let last = &self.names[usize::from(self.last_name.1)];
        let is_last = last.len() == name.len() && (name.is_empty() || last == name);
        if self.last_name.0 != interface || !is_last {
            self.last_name = (interface, self.name(name));
        }
        self.last_name.1
    }

    #[cold]
    fn name(&mut self, name: &str) -> u16 {
        let known = self.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            // A file may name any number of devices; beyond NAMES_MAX their names are omitted.
            if self.names.len() == NAMES_MAX {
                return 0;
            }
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        at as u16
    }

    #[inline]
    fn push(&mut self, at: Timestamp, position: Position, blocks: &Blocks, each: &mut impl FnMut(&Packet<'_>)) {
        if self.sorted.is_beyond(at) {
            self.deliver_all(each);
        }
        self.packets += 1;
        self.waiting += 1;
        self.sorted.push(at, self.packets, position);
        while let Some(placed) = self.sorted.pop() {
            self.deliver(placed, each);
        }
        if self.sorted.len() > PACKETS_MAX
            && let Some(placed) = self.sorted.pop_any()
        {
            self.deliver(placed, each);
        }
        self.release_blocks(blocks);
    }

    #[inline]
    fn deliver(&mut self, placed: Placed<Position>, each: &mut impl FnMut(&Packet<'_>)) {
        let Placed { at, number, place: position } = placed;
        // Earlier blocks are retained in the order of their numbers, which have no gaps.
        let back = (self.block - position.block) as usize;
        let bytes = if back == 0 {
            self.waiting -= 1;
            self.current.at(position.at, position.length as usize)
        } else {
            let index = self.retained.len() - back;
            self.retained[index].1 -= 1;
            self.retained[index].0.at(position.at, position.length as usize)
        };
        let device = &self.names[usize::from(position.name)];
        each(&Packet { number, at, link: position.link, device, bytes, original_length: position.original_length });
    }

    #[cold]
    fn deliver_all(&mut self, each: &mut impl FnMut(&Packet<'_>)) {
        while let Some(placed) = self.sorted.pop_any() {
            self.deliver(placed, each);
        }
    }

    /// Appends a block to the unread bytes.
    fn append(&mut self, block: Bytes, blocks: &Blocks, each: &mut impl FnMut(&Packet<'_>)) {
        match self.current.append(block) {
            Appended::First => {}
            Appended::Copied(free) => blocks.reuse(Some(free)),
            Appended::Replaced(full) => {
                self.block += 1;
                self.retained.push_back((full, std::mem::take(&mut self.waiting)));
                // The reader gets a new block for the one that is retained.
                if self.added < RETAINED_MAX.min(self.retained.len()) {
                    self.added += 1;
                    blocks.reuse(Some(Bytes::new()));
                }
                while self.retained.len() > RETAINED_MAX
                    && let Some(placed) = self.sorted.pop_any()
                {
                    self.deliver(placed, each);
                    self.release_blocks(blocks);
                }
                self.release_blocks(blocks);
            }
        }
    }

    /// Returns the blocks without waiting packets to the reader.
    #[inline]
    fn release_blocks(&mut self, blocks: &Blocks) {
        while self.retained.front().is_some_and(|(_, waiting)| *waiting == 0)
            && let Some((block, _)) = self.retained.pop_front()
        {
            blocks.reuse(Some(block));
        }
    }

    fn finish(&mut self, blocks: &Blocks, each: &mut impl FnMut(&Packet<'_>)) {
        self.deliver_all(each);
        self.release_blocks(blocks);
    }
}

/// The largest time, in ns, by which a packet may be late and still be sorted: more than the queues of a network card,
/// or two capturing machines with clocks synchronised by NTP, differ; less than TCP's shortest timeout.
pub const WINDOW_NS: u64 = 100_000_000;
/// Most packets that wait. This bounds the window above 160,000 packets a second.
const PACKETS_MAX: usize = 16_384;
/// Most blocks retained besides the current one: with 256 KB each this bounds the window to 2 MB.
const RETAINED_MAX: usize = 8;
/// Most names of interfaces that are distinguished.
const NAMES_MAX: usize = 256;
