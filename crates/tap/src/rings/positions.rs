//! Where a reader has come to, as something that can be written down: what makes reading exactly once.
//!
//! ```text
//!   collect ──> Positions ──> journal ──> commit: TAIL, told, FREE      killed anywhere: ReaderState (the journal's sum)
//!    reads       of a round    (caller)    of the shared memory          says where to go on, whatever was committed
//! ```
//!
//! Counters of a slot count since the file was made and never go back, whoever claims it: a position means the same
//! after the slot went to another thread. A slot that was to be freed and was not is found released, or its owner
//! gone, by the next round.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pairs::{Pair, Pairs};

/// What a round of [`Rings::collect`](super::Rings::collect) moved. Little: slots where nothing was told are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Positions {
    /// Of which file; 0: of none.
    pub(super) ring: u64,
    pub(super) slots: Vec<SlotPosition>,
    /// Slots to be freed: their states, as they were.
    pub(super) free: Vec<(u32, u64)>,
    /// Records dropped for want of a slot, told by now; absent: as before.
    pub(super) unclaimed_told: Option<u64>,
    /// Pairs of both clocks that were taken.
    pub(super) pairs: Vec<Pair>,
}

/// One slot's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SlotPosition {
    pub slot: u32,
    pub at: Place,
}

/// Where the reader of a slot is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Records read.
    pub tail: u64,
    /// Records dropped, told by now.
    pub dropped_told: u64,
    /// Of a path in several records.
    pub path: Vec<u8>,
}

impl Positions {
    /// Whether nothing was read, freed or learnt.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.free.is_empty() && self.unclaimed_told.is_none() && self.pairs.is_empty()
    }

    /// Which ring's file: a number drawn when it was made; 0: none's.
    pub fn ring(&self) -> u64 {
        self.ring
    }
}

/// The sum of all [`Positions`]: where a reader that comes after this one goes on. It grows to one entry a slot that was ever used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderState {
    ring: u64,
    slots: BTreeMap<u32, Place>,
    unclaimed_told: u64,
    pairs: Pairs,
}

impl ReaderState {
    /// Takes what a round moved. Of another file than those before: these are forgotten.
    pub fn take(&mut self, positions: &Positions) {
        if positions.ring == 0 {
            return;
        }
        if positions.ring != self.ring {
            *self = ReaderState { ring: positions.ring, ..ReaderState::default() };
        }
        for SlotPosition { slot, at } in &positions.slots {
            self.slots.insert(*slot, at.clone());
        }
        self.unclaimed_told = positions.unclaimed_told.unwrap_or(self.unclaimed_told);
        for pair in &positions.pairs {
            self.pairs.note(*pair);
        }
    }

    /// Which ring's file; 0: none yet.
    pub fn ring(&self) -> u64 {
        self.ring
    }

    /// Where it is in a slot; the beginning where nothing was read.
    pub(super) fn place(&self, slot: u32) -> Place {
        self.slots.get(&slot).cloned().unwrap_or_default()
    }

    pub(super) fn unclaimed_told(&self) -> u64 {
        self.unclaimed_told
    }

    pub(super) fn pairs(&self) -> &Pairs {
        &self.pairs
    }
}
