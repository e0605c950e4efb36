//! Packets that wait for one that they answer: a capture may have an acknowledgement before the segment.
//!
//! Two directions are often captured by two queues, cards or machines, whose clocks or buffers differ by microseconds. Taken as it
//! comes, an acknowledgement of bytes not yet seen means that the capture has lost them; so it waits, and with it all that its
//! sender sends, until the bytes come or [`crate::WatchSpec::reorder`] has passed.

use std::collections::VecDeque;

use schema::Direction;
use wire::tcp::flags::FIN;

use crate::tcp::Segment;

/// The packets of one connection that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: VecDeque<Held>,
    /// Bytes they count for.
    bytes: usize,
    /// Whether one of them has to be taken before what its sender sent after it: it carries data, or ends its side.
    keeps_order: bool,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) direction: Direction,
    pub(crate) is_fragment: bool,
    payload: Box<[u8]>,
    segment: Segment<'static>,
}

impl Held {
    pub(crate) fn segment(&self) -> Segment<'_> {
        Segment { payload: &self.payload, ..self.segment }
    }

    fn cost(&self) -> usize {
        cost(&self.segment())
    }
}

/// What a packet counts for while it waits.
pub(crate) fn cost(segment: &Segment<'_>) -> usize {
    size_of::<Held>() + segment.payload.len()
}

impl Waiting {
    /// The time of the packet that waits longest.
    pub(crate) fn since(&self) -> Option<u64> {
        self.packets.front().map(|held| held.segment.at)
    }

    /// Whose packets are waited for: the other side's.
    pub(crate) fn awaits(&self, direction: Direction) -> bool {
        self.packets.front().is_some_and(|held| held.direction != direction)
    }

    /// Whether what comes may be taken before them: they are acknowledgements alone, of which the latest counts.
    pub(crate) fn may_be_passed(&self) -> bool {
        !self.keeps_order
    }

    pub(crate) fn front(&self) -> Option<&Held> {
        self.packets.front()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, direction: Direction, is_fragment: bool, segment: &Segment<'_>) {
        let held = Held {
            direction,
            is_fragment,
            payload: segment.payload.into(),
            segment: Segment { payload: &[], ..*segment },
        };
        self.keeps_order |= segment.length > 0 || segment.has(FIN);
        self.bytes += held.cost();
        self.packets.push_back(held);
    }

    pub(crate) fn pop(&mut self) -> Option<Held> {
        let held = self.packets.pop_front()?;
        self.bytes -= held.cost();
        Some(held)
    }
}

/// Whether waiting is worth it: a capture of one direction alone has nothing to wait for.
#[derive(Debug)]
pub(crate) struct Patience {
    left: u32,
    tries: u32,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { left: PATIENCE, tries: 0 }
    }

    /// Whether to wait this time.
    pub(crate) fn allows(&mut self) -> bool {
        self.tries = self.tries.wrapping_add(1);
        self.left > 0 || self.tries.is_multiple_of(PATIENCE)
    }

    /// What was waited for came, or did not.
    pub(crate) fn note(&mut self, has_come: bool) {
        self.left = if has_come { PATIENCE } else { self.left.saturating_sub(1) };
    }
}

/// Waits in vain after which only one in as many is tried.
const PATIENCE: u32 = 256;
