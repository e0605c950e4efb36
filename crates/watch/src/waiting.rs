//! Packets that wait for a packet that they acknowledge: a capture may have an acknowledgement before the segment.
//!
//! Two directions are often captured by two queues, network cards or machines, whose clocks or buffers differ by
//! microseconds. Without a wait, an acknowledgement of unseen bytes would mean that the capture has lost them; so the
//! packet waits, with all later ones of its sender, until the bytes arrive or [`crate::WatchSpec::reorder`] has passed.

use std::collections::VecDeque;

use schema::Direction;
use wire::tcp::flags::FIN;

use crate::tcp::Segment;

/// The waiting packets of one connection.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: VecDeque<Held>,
    /// Bytes that they account for.
    bytes: usize,
    /// Whether one of them must be processed before later packets of its sender: it carries data, or ends its side.
    must_keep_order: bool,
}

/// A waiting packet.
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

/// Bytes that a waiting packet accounts for.
pub(crate) fn cost(segment: &Segment<'_>) -> usize {
    size_of::<Held>() + segment.payload.len()
}

impl Waiting {
    /// The time of the packet that waits longest.
    pub(crate) fn since(&self) -> Option<u64> {
        self.packets.front().map(|held| held.segment.at)
    }

    /// Whether packets of `direction` are awaited: those of the other side.
    pub(crate) fn awaits(&self, direction: Direction) -> bool {
        self.packets.front().is_some_and(|held| held.direction != direction)
    }

    /// Whether later packets may be processed before them: they are pure acknowledgements, of which only the latest
    /// matters.
    pub(crate) fn may_be_passed(&self) -> bool {
        !self.must_keep_order
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
        self.must_keep_order |= segment.length > 0 || segment.has(FIN);
        self.bytes += held.cost();
        self.packets.push_back(held);
    }

    pub(crate) fn pop(&mut self) -> Option<Held> {
        let held = self.packets.pop_front()?;
        self.bytes -= held.cost();
        Some(held)
    }
}

/// Whether waiting is useful: a capture of one direction alone has nothing to wait for.
#[derive(Debug)]
pub(crate) struct WaitPolicy {
    left: u32,
    tries: u32,
}

impl WaitPolicy {
    pub(crate) fn new() -> WaitPolicy {
        WaitPolicy { left: UNSUCCESSFUL_WAITS_MAX, tries: 0 }
    }

    /// Whether to wait this time.
    pub(crate) fn allows(&mut self) -> bool {
        self.tries = self.tries.wrapping_add(1);
        self.left > 0 || self.tries.is_multiple_of(UNSUCCESSFUL_WAITS_MAX)
    }

    /// Records whether the awaited packet arrived.
    pub(crate) fn note(&mut self, has_arrived: bool) {
        self.left = if has_arrived { UNSUCCESSFUL_WAITS_MAX } else { self.left.saturating_sub(1) };
    }
}

/// Number of unsuccessful waits after which only one in as many is tried.
const UNSUCCESSFUL_WAITS_MAX: u32 = 256;
