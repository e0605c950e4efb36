//! Positions of a reader, in a form that can be stored: the basis of reading exactly once.
//!
//! ```text
//!   collect ──> Positions ──> journal ──> commit: TAIL, reported, FREE
//!    reads       of a round    (caller)    of the shared memory
//!
//!   killed anywhere: ReaderState (the journal's sum) has the position to resume at, whatever was committed
//! ```
//!
//! Counters of a slot count since the file was created and never go back, whoever claims it: a position stays valid
//! after the slot went to another thread. A slot that should have been freed and was not is found released, or
//! without its owner, by the next round.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pairs::{Pair, Pairs};

/// Changes of a round of [`Rings::collect`](super::Rings::collect). Small: unchanged slots are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Positions {
    /// Number of the file; 0: none.
    pub(super) ring: u64,
    pub(super) slots: Vec<SlotPosition>,
    /// Slots to be freed, with their previous states.
    pub(super) free: Vec<(u32, u64)>,
    /// Records dropped for want of a slot, as reported so far; absent: unchanged.
    pub(super) unclaimed_reported: Option<u64>,
    /// New clock pairs.
    pub(super) pairs: Vec<Pair>,
}

/// Position of one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SlotPosition {
    pub slot: u32,
    pub at: SlotCursor,
}

/// Position of a slot's reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SlotCursor {
    /// Records read.
    pub tail: u64,
    /// Records dropped, as reported so far.
    pub dropped_reported: u64,
    /// An incomplete path.
    pub path: Vec<u8>,
}

impl Positions {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.free.is_empty() && self.unclaimed_reported.is_none() && self.pairs.is_empty()
    }

    /// Number of the ring file, generated with it; 0: none.
    pub fn ring(&self) -> u64 {
        self.ring
    }
}

/// The sum of all [`Positions`]: where the next reader resumes. It has at most one entry per slot ever used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderState {
    ring: u64,
    slots: BTreeMap<u32, SlotCursor>,
    unclaimed_reported: u64,
    pairs: Pairs,
}

impl ReaderState {
    /// Adds the changes of a round. For another file, earlier positions are dropped.
    pub fn add(&mut self, positions: &Positions) {
        if positions.ring == 0 {
            return;
        }
        if positions.ring != self.ring {
            *self = ReaderState { ring: positions.ring, ..ReaderState::default() };
        }
        for SlotPosition { slot, at } in &positions.slots {
            self.slots.insert(*slot, at.clone());
        }
        self.unclaimed_reported = positions.unclaimed_reported.unwrap_or(self.unclaimed_reported);
        for pair in &positions.pairs {
            self.pairs.add(*pair);
        }
    }

    /// Number of the ring file; 0: none yet.
    pub fn ring(&self) -> u64 {
        self.ring
    }

    /// The position in a slot; the beginning if nothing was read.
    pub(super) fn cursor(&self, slot: u32) -> SlotCursor {
        self.slots.get(&slot).cloned().unwrap_or_default()
    }

    pub(super) fn unclaimed_reported(&self) -> u64 {
        self.unclaimed_reported
    }

    pub(super) fn pairs(&self) -> &Pairs {
        &self.pairs
    }
}
