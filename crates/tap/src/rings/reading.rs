//! Reading: what was written becomes [`Event`]s, at once or in two steps.
//!
//! ```text
//!   drain:    read, TAIL := HEAD, free the released slots                      one step, for a reader that ends with its run
//!   collect:  read                                       ──> Positions        two, for one that writes down what it has read
//!   commit:         TAIL := .., told := .., free   <── written down
//! ```
//!
//! Between collect and commit the writers have less room, and no slot changes hands: what was read stays where it is until somebody
//! has it.

use std::sync::atomic::Ordering;

use super::decode::{Decoded, Record};
use super::layout::{RECORD_BYTES, RECORD_WORDS, header, slot, state};
use super::positions::{Positions, SlotPosition};
use super::{Rings, slot_at};
use crate::event::{Event, Origin, What};

/// What reading a slot came to.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    /// Events handed out.
    told: usize,
    /// Records were taken from it.
    taken: bool,
    /// The reader of it is where it was.
    still: bool,
}

impl Rings {
    /// Hands out everything that was written until now, ring by ring, and says how many events that were. Every few
    /// milliseconds: a ring that is full drops.
    pub fn drain(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        self.ticks.refresh();
        if self.look_for_a_cut() {
            return 0;
        }
        let mut told = 0;
        for slot in 0..self.used() {
            // First the state, then the head: a released slot's head is its last.
            let state = self.state(slot).load(Ordering::Acquire) as u32;
            told += self.drain_slot(slot, on);
            match state {
                state::RELEASED => self.free(slot),
                state::OWNED => self.keep_ahead(slot),
                _ => {}
            }
        }
        let unclaimed = self.tell_unclaimed(on);
        if unclaimed {
            self.memory.word(header::UNCLAIMED_TOLD).store(self.unclaimed_told, Ordering::Relaxed);
        }
        told + usize::from(unclaimed)
    }

    /// Frees the rings of threads that are gone without having said so: killed, or ended by a call that no hook saw.
    /// `alive` is asked once for each ring in use; a ring is read to its end before it is freed. Once a second will do.
    pub fn reclaim(&mut self, alive: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> usize {
        let mut told = 0;
        for slot in 0..if self.cut { 0 } else { self.used() } {
            if self.state(slot).load(Ordering::Acquire) as u32 == state::OWNED && !alive(self.origin(slot)) {
                told += self.drain_slot(slot, on);
                self.free(slot);
            }
        }
        told
    }

    /// Hands out everything that was written until now, and leaves it where it is: who writes it down, with the positions, says so by
    /// [`Rings::commit`]. Until then writers have no room for more than the rest of their rings.
    pub fn collect(&mut self, on: &mut dyn FnMut(Event)) -> Positions {
        self.collect_gone(&mut |_| false, on)
    }

    /// The same; and the rings of threads of which `gone` is true are freed when this is committed. It is asked of each ring in use. Who is
    /// gone must have been so before this was called: then its last words are in it.
    pub fn collect_gone(&mut self, gone: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> Positions {
        self.new_pairs.extend(self.ticks.refresh());
        let mut positions =
            Positions { ring: self.ring, pairs: std::mem::take(&mut self.new_pairs), ..Positions::default() };
        if self.look_for_a_cut() {
            return positions;
        }
        for number in 0..self.used() {
            // First the state, as in `drain`.
            let state = self.state(number).load(Ordering::Acquire);
            let mut read = self.read_slot(number, on);
            let over = match state as u32 {
                state::RELEASED => true,
                state::OWNED => gone(self.origin(number)),
                _ => false,
            };
            if over {
                positions.free.push((number, state));
                let reader = &mut self.readers[number as usize];
                read.still &= reader.at.path.is_empty();
                reader.at.path.clear();
            }
            if !read.still {
                let at = self.readers[number as usize].at.clone();
                positions.slots.push(SlotPosition { slot: number, at });
            }
        }
        if self.tell_unclaimed(on) {
            positions.unclaimed_told = Some(self.unclaimed_told);
        }
        positions
    }

    /// What was collected is written down: its room is the writers' again, and slots of who is gone are free. Positions of
    /// another file change nothing.
    pub fn commit(&mut self, positions: &Positions) {
        if positions.ring != self.ring || self.look_for_a_cut() {
            return;
        }
        for SlotPosition { slot: number, at } in &positions.slots {
            if *number >= self.shape.slots {
                continue;
            }
            let base = slot_at(*number);
            self.memory.word(base + slot::TAIL).store(at.tail, Ordering::Release);
            self.memory.word(base + slot::DROPPED_TOLD).store(at.dropped_told, Ordering::Relaxed);
            if self.state(*number).load(Ordering::Acquire) as u32 == state::OWNED {
                self.keep_ahead(*number);
            }
        }
        for (number, state) in &positions.free {
            // Only as it was when it was read. Nobody but this reader changes the state of a slot whose owner is over.
            let is_same = |number| self.state(number).load(Ordering::Acquire) == *state;
            if *number < self.shape.slots && is_same(*number) && self.is_read(*number) {
                self.forget_owner(*number);
                self.state(*number).store(u64::from(state::FREE), Ordering::Release);
            }
        }
        if let Some(told) = positions.unclaimed_told {
            self.memory.word(header::UNCLAIMED_TOLD).store(told, Ordering::Relaxed);
        }
    }

    /// Whether there is nothing in a slot that this reader has not read.
    fn is_read(&self, number: u32) -> bool {
        let head = self.memory.word(slot_at(number) + slot::HEAD).load(Ordering::Acquire);
        self.readers[number as usize].at.tail == head
    }

    fn drain_slot(&mut self, number: u32, on: &mut dyn FnMut(Event)) -> usize {
        let read = self.read_slot(number, on);
        if !read.still {
            let (base, at) = (slot_at(number), &self.readers[number as usize].at);
            if read.taken {
                self.memory.word(base + slot::TAIL).store(at.tail, Ordering::Release);
            }
            self.memory.word(base + slot::DROPPED_TOLD).store(at.dropped_told, Ordering::Relaxed);
        }
        read.told
    }

    /// Reads a slot to its head, and moves nothing that others see.
    fn read_slot(&mut self, number: u32, on: &mut dyn FnMut(Event)) -> Read {
        let base = slot_at(number);
        let head = self.memory.word(base + slot::HEAD).load(Ordering::Acquire);
        let origin = self.origin(number);
        let mut told = 0;
        let tail = self.readers[number as usize].at.tail;
        let waiting = head.wrapping_sub(tail);
        let mut lost = 0;
        if waiting > u64::from(self.shape.records(number)) {
            // No writer of ours gets there.
            lost = u64::from(self.shape.records(number));
            self.readers[number as usize].at.path.clear();
        } else if waiting > 0 {
            let nonsense = self.nonsense;
            // What is there was written before the head was read.
            let latest = self.ticks.latest();
            for at in 0..waiting {
                let record = self.record(number, tail.wrapping_add(at));
                if let Some(what) = self.understand(number, &record, latest) {
                    on(Event { origin, what });
                    told += 1;
                }
            }
            lost += self.nonsense - nonsense;
        }
        let dropped = self.memory.word(base + slot::DROPPED).load(Ordering::Relaxed);
        let reader = &mut self.readers[number as usize].at;
        reader.tail = head;
        let still = waiting == 0 && dropped == reader.dropped_told;
        lost += dropped.saturating_sub(reader.dropped_told);
        reader.dropped_told = dropped;
        if lost > 0 {
            on(Event { origin, what: What::Lost { records: lost } });
            told += 1;
        }
        Read { told, taken: waiting > 0, still }
    }

    /// Records that found no ring at all: whether there were any.
    fn tell_unclaimed(&mut self, on: &mut dyn FnMut(Event)) -> bool {
        let unclaimed = self.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
        let records = unclaimed.saturating_sub(self.unclaimed_told);
        self.unclaimed_told = unclaimed;
        if records > 0 {
            on(Event { origin: Origin::default(), what: What::Lost { records } });
        }
        records > 0
    }

    /// None for a part of a path that is not the last, and for nonsense.
    fn understand(&mut self, slot: u32, record: &Record, latest: u64) -> Option<What> {
        let decoded = if record.ends() <= latest { record.decode(&self.ticks) } else { Decoded::Nonsense };
        let part = match decoded {
            Decoded::Whole(what) => return Some(what),
            Decoded::Path(part) => part,
            Decoded::Nonsense => {
                self.nonsense += 1;
                return None;
            }
        };
        let path = &mut self.readers[slot as usize].at.path;
        if part.number == 0 {
            path.clear();
        }
        // Six parts are the most that is written; a ring that says otherwise does not make this grow.
        if path.len() < PATH_BYTES_MAX {
            path.extend_from_slice(&part.text);
        }
        part.last.then(|| What::Executing {
            at: self.ticks.at(part.at),
            pid: part.pid,
            path: String::from_utf8_lossy(&std::mem::take(path)).into_owned(),
            preloaded: part.preloaded,
        })
    }

    pub(super) fn record(&self, slot: u32, count: u64) -> Record {
        let at = count & u64::from(self.shape.records(slot) - 1);
        let offset = (self.shape.at(slot) + at * RECORD_BYTES as u64) as usize;
        let mut words = [0; RECORD_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.memory.word(offset + index * 8).load(Ordering::Relaxed);
        }
        Record(words)
    }
}

const PATH_BYTES_MAX: usize = 240;
