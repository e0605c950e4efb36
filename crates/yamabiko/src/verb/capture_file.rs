//! Packets of a capture file or pipe, in the order of their times.
//!
//! ```text
//!   blocks --> decoder --> [window: places in blocks that are kept] --> each packet, numbered as in the file
//! ```
//!
//! Nothing is copied: a packet waits where it was read, and its block is used again when all its packets have gone.

use std::collections::VecDeque;
use std::fs::File;

use anyhow::{Context, Error, Result, bail};
use sys::signal::Interrupts;
use units::Timestamp;
use wire::capture::{Decoder, Placed, Sorted, Step};

use super::watch::blocks::{self, Appended, Block, Blocks, Bytes, Joined};

/// A packet in its turn.
pub struct Packet<'a> {
    /// Its number in the file, from 1.
    pub number: u64,
    /// When it was captured.
    pub at: Timestamp,
    /// The link layer as the file numbers it.
    pub link: u16,
    /// The interface's name; empty if the file has none.
    pub device: &'a str,
    /// The bytes that were kept.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub original_length: u32,
}

/// How a file was read.
#[derive(Debug, Default)]
pub struct FileRead {
    /// Whether it was left early, on Ctrl-C.
    pub interrupted: bool,
    /// Why it could not be read to its end.
    pub failure: Option<Error>,
    /// Packets that the capturing system lost, as the file says.
    pub drops: u64,
    /// Packets that had a time before that of one before them.
    pub reordered: u64,
}

/// Hands every packet to `each`: sorted by time within [`WINDOW_NS`], the others as they come. A packet without a time ends it, as
/// a defect does: nothing that is measured can be said of it.
pub fn read(input: &mut File, interrupts: &Interrupts, mut each: impl FnMut(&Packet<'_>)) -> FileRead {
    let mut decoder = Decoder::new();
    let mut window = Window::new();
    let outcome = blocks::read(input, interrupts, |blocks| {
        let outcome = read_blocks(blocks, &mut decoder, &mut window, &mut each);
        window.empty(blocks, &mut each);
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
                        "packet {} (byte {}) has no time, as those of simple packet blocks have none: nothing can be \
                         measured; capture in another form of pcapng, or pcap",
                        window.packets + 1,
                        decoder.offset() - used as u64
                    );
                }
                let at = packet.at;
                let place = Place {
                    block: window.block,
                    at: window.current.place_of(packet.bytes),
                    length: packet.bytes.len() as u32,
                    original_length: packet.original_length,
                    link: packet.link,
                    name: window.named.1,
                };
                let interface = packet.interface;
                let name = window.name_of(interface, decoder.interface_name(interface));
                window.take(at, Place { name, ..place }, blocks, each);
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

/// The packets that wait, and the blocks that they are in.
struct Window {
    sorted: Sorted<Place>,
    /// The block that is being read.
    current: Joined,
    /// Its number, and how many packets in it wait.
    block: u64,
    waiting: usize,
    /// The blocks before it that have packets, each with their number.
    kept: VecDeque<(Bytes, usize)>,
    /// Blocks made besides those that circulate from the start.
    made: usize,
    packets: u64,
    names: Vec<String>,
    /// The latest packet's interface and the place of its name.
    named: (u32, u16),
}

/// Where a packet is, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Place {
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
            kept: VecDeque::new(),
            made: 0,
            packets: 0,
            names: vec![String::new()],
            named: (0, 0),
        }
    }

    /// The place of an interface's name.
    #[inline]
    fn name_of(&mut self, interface: u32, name: &str) -> u16 {
        if self.named.0 != interface || self.names[usize::from(self.named.1)] != name {
            self.named = (interface, self.name(name));
        }
        self.named.1
    }

    #[cold]
    fn name(&mut self, name: &str) -> u16 {
        let known = self.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            // A file may name any number of devices; beyond this many their names are left out.
            if self.names.len() == NAMES_MAX {
                return 0;
            }
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        at as u16
    }

    #[inline]
    fn take(&mut self, at: Timestamp, place: Place, blocks: &Blocks, each: &mut impl FnMut(&Packet<'_>)) {
        if self.sorted.is_beyond(at) {
            self.hand_out_all(each);
        }
        self.packets += 1;
        self.waiting += 1;
        self.sorted.push(at, self.packets, place);
        while let Some(placed) = self.sorted.pop() {
            self.hand_out(placed, each);
        }
        if self.sorted.len() > PACKETS_MAX
            && let Some(placed) = self.sorted.pop_any()
        {
            self.hand_out(placed, each);
        }
        self.give_back(blocks);
    }

    #[inline]
    fn hand_out(&mut self, placed: Placed<Place>, each: &mut impl FnMut(&Packet<'_>)) {
        let Placed { at, number, place } = placed;
        // Blocks before the current one are kept in the order of their numbers, which have no gaps.
        let back = (self.block - place.block) as usize;
        let bytes = if back == 0 {
            self.waiting -= 1;
            self.current.at(place.at, place.length as usize)
        } else {
            let index = self.kept.len() - back;
            self.kept[index].1 -= 1;
            self.kept[index].0.at(place.at, place.length as usize)
        };
        let device = &self.names[usize::from(place.name)];
        each(&Packet { number, at, link: place.link, device, bytes, original_length: place.original_length });
    }

    #[cold]
    fn hand_out_all(&mut self, each: &mut impl FnMut(&Packet<'_>)) {
        while let Some(placed) = self.sorted.pop_any() {
            self.hand_out(placed, each);
        }
    }

    /// Adds a block to the bytes at hand.
    fn append(&mut self, block: Bytes, blocks: &Blocks, each: &mut impl FnMut(&Packet<'_>)) {
        match self.current.append(block) {
            Appended::First => {}
            Appended::Copied(free) => blocks.give_back(Some(free)),
            Appended::Replaced(full) => {
                self.block += 1;
                self.kept.push_back((full, std::mem::take(&mut self.waiting)));
                // The reader goes on with another while this one is kept.
                if self.made < KEPT_MAX.min(self.kept.len()) {
                    self.made += 1;
                    blocks.give_back(Some(Bytes::new()));
                }
                while self.kept.len() > KEPT_MAX
                    && let Some(placed) = self.sorted.pop_any()
                {
                    self.hand_out(placed, each);
                    self.give_back(blocks);
                }
                self.give_back(blocks);
            }
        }
    }

    /// Gives back the blocks whose packets have all gone.
    #[inline]
    fn give_back(&mut self, blocks: &Blocks) {
        while self.kept.front().is_some_and(|(_, waiting)| *waiting == 0)
            && let Some((block, _)) = self.kept.pop_front()
        {
            blocks.give_back(Some(block));
        }
    }

    fn empty(&mut self, blocks: &Blocks, each: &mut impl FnMut(&Packet<'_>)) {
        self.hand_out_all(each);
        self.give_back(blocks);
    }
}

/// By how much a packet may be out of its place to be put right: more than queues of a card or two capturing machines with clocks
/// kept by NTP differ, less than TCP's shortest timeout.
pub const WINDOW_NS: u64 = 100_000_000;
/// Packets that wait at most, which bounds the window where there are more than 160,000 a second.
const PACKETS_MAX: usize = 16_384;
/// Blocks kept besides the one that is read: with 256 KB each this bounds the window in bytes, to 2 MB.
const KEPT_MAX: usize = 8;
/// Names of interfaces told apart.
const NAMES_MAX: usize = 256;
