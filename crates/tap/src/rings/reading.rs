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

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use units::Timestamp;

use super::Rings;
use super::decode::{Decoded, Record};
use super::layout::{RECORD_BYTES, RECORD_WORDS, header, slot, state};
use super::positions::{Positions, SlotPosition};
use super::ring_file::INDEX_SHIFT;
use crate::event::{Event, Origin, What};
use crate::order::moment;

/// What reading a slot came to.
#[derive(Clone, Copy, Debug, Default)]
struct SlotRead {
    /// Events handed out.
    told: usize,
    /// Records were taken from it.
    taken: bool,
    /// The reader of it is where it was.
    still: bool,
    /// There was more than was to be read. Then the latest moment of what was read: what is left was written after it.
    left: Option<Timestamp>,
}

/// A reader that comes back to rings that are full does not read them all at once.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// When it began.
    began: Timestamp,
    /// By slot, how far it was written then.
    heads: HashMap<u32, u64>,
}

impl Rings {
    /// Hands out everything that was written until now, ring by ring, and says how many events that were. Every few
    /// milliseconds: a ring that is full drops.
    pub fn drain(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        self.ticks.refresh();
        self.maintain();
        let mut told = 0;
        for slot in self.used() {
            // First the state, then the head: a released slot's head is its last.
            let state = self.state(slot).load(Ordering::Acquire) as u32;
            told += self.drain_slot(slot, on);
            match state {
                state::RELEASED => self.free(slot),
                state::OWNED => self.reserve_ahead(slot),
                _ => {}
            }
        }
        let unclaimed = self.tell_unclaimed(on);
        if unclaimed > 0 {
            self.note_unclaimed();
        }
        told + unclaimed
    }

    /// Frees the rings of threads that are gone without having said so: killed, or ended by a call that no hook saw.
    /// `alive` is asked once for each ring in use; a ring is read to its end before it is freed. Once a second will do.
    pub fn reclaim(&mut self, alive: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> usize {
        let mut told = 0;
        for slot in self.used() {
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
        let began = self.ticks.now();
        self.new_pairs.extend(self.ticks.refresh());
        let mut positions =
            Positions { ring: self.ring, pairs: std::mem::take(&mut self.new_pairs), ..Positions::default() };
        self.maintain();
        self.begin_to_catch_up(began);
        let mut until = None;
        for number in self.used() {
            let limit = self.limit(number);
            // First the state, as in `drain`.
            let state = self.state(number).load(Ordering::Acquire);
            let mut read = self.read_slot(number, limit, on);
            if let Some(left) = read.left.filter(|_| self.is_behind_in(number)) {
                until = Some(until.map_or(left, |until: Timestamp| until.min(left)));
            }
            let over = match state as u32 {
                _ if read.left.is_some() => false,
                state::RELEASED => true,
                state::OWNED => gone(self.origin(number)),
                _ => false,
            };
            if over {
                positions.free.push((number, state));
                let reader = self.reader_mut(number);
                read.still &= reader.at.path.is_empty();
                reader.at.path.clear();
            }
            if !read.still {
                let at = self.reader(number).at.clone();
                positions.slots.push(SlotPosition { slot: number, at });
            }
        }
        if self.tell_unclaimed(on) > 0 {
            positions.unclaimed_told = Some(self.unclaimed_told());
        }
        let all = self.catch_up.as_ref().map_or(began, |catch_up| catch_up.began);
        self.read_until = until.map_or(all, |until| until.min(all));
        if until.is_none() {
            self.catch_up = None;
        }
        positions
    }

    /// What the last [`Rings::collect`] has read to the end: all that was written before this moment. When that collect began, mostly; earlier
    /// while a reader that comes back reads what waited, since that is done in several rounds.
    pub fn read_until(&self) -> Timestamp {
        self.read_until
    }

    /// Whether the last [`Rings::collect`] has left something, for the next one to be made at once.
    pub fn is_behind(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Records of a slot that a round of collecting reads at most: each user has the same number, whatever the others write.
    fn limit(&self, number: u32) -> u64 {
        let used = self.area(number).map_or(1, |(area, _)| u64::from(area.used));
        (self.budget / used.max(1)).max(self.budget.min(SLOT_RECORDS_MIN))
    }

    /// Notes how far all rings are written, if one of them is beyond what a round reads.
    fn begin_to_catch_up(&mut self, began: Timestamp) {
        if self.catch_up.is_some() {
            return;
        }
        let head = |number: u32| self.word(number, slot::HEAD).load(Ordering::Acquire);
        let heads: HashMap<u32, u64> = self.used().into_iter().map(|number| (number, head(number))).collect();
        let waits = |(number, head): (&u32, &u64)| {
            let waiting = head.wrapping_sub(self.reader(*number).at.tail);
            // A ring whose counters make no sense is emptied, and nobody waits for it.
            waiting > self.limit(*number) && waiting <= u64::from(self.records(*number))
        };
        if heads.iter().any(waits) {
            self.catch_up = Some(CatchUp { began, heads });
        }
    }

    /// Whether something of what was there when the catching up began is not read yet.
    fn is_behind_in(&self, number: u32) -> bool {
        let head = self.catch_up.as_ref().and_then(|catch_up| catch_up.heads.get(&number));
        let left = |head: &u64| head.wrapping_sub(self.reader(number).at.tail);
        // A ring whose counters make no sense was emptied.
        head.is_some_and(|head| (1..=u64::from(self.records(number))).contains(&left(head)))
    }

    /// What was collected is written down: its room is the writers' again, and slots of who is gone are free. Positions of
    /// another file change nothing.
    pub fn commit(&mut self, positions: &Positions) {
        if positions.ring != self.ring {
            return;
        }
        for SlotPosition { slot: number, at } in &positions.slots {
            // Of a file that was cut since, nothing is there.
            if self.area(*number).is_none() {
                continue;
            }
            self.word(*number, slot::TAIL).store(at.tail, Ordering::Release);
            self.word(*number, slot::DROPPED_TOLD).store(at.dropped_told, Ordering::Relaxed);
            if self.state(*number).load(Ordering::Acquire) as u32 == state::OWNED {
                self.reserve_ahead(*number);
            }
        }
        for (number, state) in &positions.free {
            // Only as it was when it was read. Nobody but this reader changes the state of a slot whose owner is over.
            let is_same = |number| self.state(number).load(Ordering::Acquire) == *state;
            if self.area(*number).is_some() && is_same(*number) && self.is_read(*number) {
                self.forget_owner(*number);
                self.state(*number).store(u64::from(state::FREE), Ordering::Release);
            }
        }
        if positions.unclaimed_told.is_some() {
            self.note_unclaimed();
        }
    }

    /// Of all users.
    pub(super) fn unclaimed_told(&self) -> u64 {
        self.areas.values().fold(0, |all, area| all.saturating_add(area.unclaimed_told))
    }

    fn note_unclaimed(&self) {
        for area in self.areas.values() {
            area.memory.word(header::UNCLAIMED_TOLD).store(area.unclaimed_told, Ordering::Relaxed);
        }
    }

    /// Whether there is nothing in a slot that this reader has not read.
    fn is_read(&self, number: u32) -> bool {
        self.reader(number).at.tail == self.word(number, slot::HEAD).load(Ordering::Acquire)
    }

    fn drain_slot(&mut self, number: u32, on: &mut dyn FnMut(Event)) -> usize {
        let read = self.read_slot(number, u64::MAX, on);
        if !read.still {
            let at = &self.reader(number).at;
            if read.taken {
                self.word(number, slot::TAIL).store(at.tail, Ordering::Release);
            }
            self.word(number, slot::DROPPED_TOLD).store(at.dropped_told, Ordering::Relaxed);
        }
        read.told
    }

    /// Reads a slot to its head, or `limit` records of it, and moves nothing that others see.
    fn read_slot(&mut self, number: u32, limit: u64, on: &mut dyn FnMut(Event)) -> SlotRead {
        let head = self.word(number, slot::HEAD).load(Ordering::Acquire);
        let origin = self.origin(number);
        let mut told = 0;
        let tail = self.reader(number).at.tail;
        let waiting = head.wrapping_sub(tail);
        let (mut lost, mut end, mut left) = (0, head, None);
        if waiting > u64::from(self.records(number)) {
            // No writer of ours gets there.
            lost = u64::from(self.records(number));
            self.reader_mut(number).at.path.clear();
        } else if waiting > 0 && origin.image == 0 {
            // Somebody writes in the name of another user's image, or of none.
            lost = waiting;
            self.invalid_records += waiting;
        } else if waiting > 0 {
            let invalid_records = self.invalid_records;
            // What is there was written before the head was read.
            let latest = self.ticks.latest();
            if waiting > limit {
                end = tail.wrapping_add(limit);
                left = Some(Timestamp::ZERO);
            }
            for at in 0..waiting.min(limit) {
                let record = self.record(number, tail.wrapping_add(at));
                if let Some(mut what) = self.understand(number, &record, latest) {
                    self.keep_to_its_user(number, &mut what);
                    left = left.map(|left| left.max(moment(&what)));
                    on(Event { origin, what });
                    told += 1;
                }
            }
            lost += self.invalid_records - invalid_records;
        }
        let dropped = self.word(number, slot::DROPPED).load(Ordering::Relaxed);
        let reader = &mut self.reader_mut(number).at;
        reader.tail = end;
        let still = waiting == 0 && dropped == reader.dropped_told;
        lost += dropped.saturating_sub(reader.dropped_told).min(DROPPED_MAX);
        reader.dropped_told = dropped;
        if lost > 0 {
            on(Event { origin, what: What::Lost { records: lost } });
            told += 1;
        }
        SlotRead { told, taken: waiting > 0, still, left }
    }

    /// A ring's word is about its own user: parents in another's are none, and where users are to be kept apart a connection is
    /// that user's own, whatever number it is said to have.
    fn keep_to_its_user(&self, number: u32, what: &mut What) {
        let index = number / self.shape.slots;
        if let What::Forked { parent_image, .. } = what
            && *parent_image >> INDEX_SHIFT != index
        {
            *parent_image = 0;
        }
        if self.apart
            && let Some(connection) = what.connection_mut()
        {
            // The kernel counts sockets from 1: it does not get so far.
            *connection = *connection & !USER_BITS | u64::from(index) << USER_SHIFT;
        }
    }

    /// Records that found no ring at all: how many users had some.
    fn tell_unclaimed(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        let mut told = 0;
        for area in self.areas.values_mut() {
            let unclaimed = area.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
            let records = unclaimed.saturating_sub(area.unclaimed_told).min(DROPPED_MAX);
            area.unclaimed_told = unclaimed;
            if records > 0 {
                told += 1;
                let origin = Origin { image: area.index << INDEX_SHIFT, ..Origin::default() };
                on(Event { origin, what: What::Lost { records } });
            }
        }
        told
    }

    /// None for a part of a path that is not the last, and for nonsense.
    fn understand(&mut self, slot: u32, record: &Record, latest: u64) -> Option<What> {
        let decoded = if record.ends() <= latest { record.decode(&self.ticks) } else { Decoded::Nonsense };
        let part = match decoded {
            Decoded::Whole(what) => return Some(what),
            Decoded::Path(part) => part,
            Decoded::Nonsense => {
                self.invalid_records += 1;
                return None;
            }
        };
        let path = &mut self.reader_mut(slot).at.path;
        if part.number == 0 {
            path.clear();
        }
        // Six parts are the most that is written; a ring that says otherwise does not make this grow.
        if path.len() < PATH_BYTES_MAX {
            path.extend_from_slice(&part.text);
        }
        if !part.last {
            return None;
        }
        let path = String::from_utf8_lossy(&std::mem::take(path)).into_owned();
        Some(What::Executing { at: self.ticks.at(part.at), pid: part.pid, path, preloaded: part.preloaded })
    }

    pub(super) fn record(&self, number: u32, count: u64) -> Record {
        let (area, slot) = self.area(number).expect("a slot of a file that is read");
        let at = count & u64::from(self.shape.records(slot) - 1);
        let offset = (self.shape.at(slot) + at * RECORD_BYTES as u64) as usize;
        let mut words = [0; RECORD_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = area.memory.word(offset + index * 8).load(Ordering::Relaxed);
        }
        Record(words)
    }
}

/// Below the number of the attempt, above all that the kernel's count of sockets comes to.
const USER_SHIFT: u32 = 48;
const USER_BITS: u64 = 0xff << USER_SHIFT;
/// More than threads can drop between two rounds: a counter that says otherwise was written over.
const DROPPED_MAX: u64 = 1 << 32;
const PATH_BYTES_MAX: usize = 240;
/// Records of one ring that a round of collecting reads, however many rings there are.
const SLOT_RECORDS_MIN: u64 = 16;
