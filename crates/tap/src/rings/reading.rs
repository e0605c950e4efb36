//! Reading: records become [`Event`]s, in one or two steps.
//!
//! ```text
//!   drain:    read, TAIL := HEAD, free the released slots                    one step: a reader that ends with its run
//!   collect:  read                                       ──> Positions      two steps: a reader that stores its records
//!   commit:         TAIL := .., reported := .., free   <── stored
//! ```
//!
//! Between collect and commit the writers have less space, and no slot changes its owner: read records stay in place
//! until they are stored elsewhere.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use units::Timestamp;

use super::Rings;
use super::decode::{Decoded, Record};
use super::layout::{RECORD_BYTES, RECORD_WORDS, header, slot, state};
use super::positions::{Positions, SlotPosition};
use super::ring_file::INDEX_SHIFT;
use crate::event::{Event, EventKind, Origin};
use crate::order::event_time;

/// Result of reading a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotRead {
    /// Number of events.
    events: usize,
    /// Whether records were read.
    has_records: bool,
    /// Whether the reader is unchanged.
    is_unchanged: bool,
    /// Set if more records wait: the latest time read so far. The waiting records were written later.
    latest_unread: Option<Timestamp>,
}

/// A reader that returns to full rings reads them over several rounds.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// When it started.
    started: Timestamp,
    /// Head of each slot at that time.
    heads: HashMap<u32, u64>,
}

impl Rings {
    /// Passes every record written so far to `on`, ring by ring, and returns the number of events. Call it every few
    /// milliseconds: a full ring drops records.
    pub fn drain(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        self.ticks.refresh();
        self.maintain();
        let mut events = 0;
        for slot in self.used() {
            // The state first, then the head: the head of a released slot is final.
            let state = self.state(slot).load(Ordering::Acquire) as u32;
            events += self.drain_slot(slot, on);
            match state {
                state::RELEASED => self.free(slot),
                state::OWNED => self.reserve_ahead(slot),
                _ => {}
            }
        }
        let unclaimed = self.report_unclaimed(on);
        if unclaimed > 0 {
            self.note_unclaimed();
        }
        events + unclaimed
    }

    /// Frees the rings of threads that ended without a report: killed, or ended by a call without a hook. `alive` is
    /// called once for each ring in use; a ring is read to its end before it is freed. Once a second is sufficient.
    pub fn reclaim(&mut self, alive: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> usize {
        let mut events = 0;
        for slot in self.used() {
            if self.state(slot).load(Ordering::Acquire) as u32 == state::OWNED && !alive(self.origin(slot)) {
                events += self.drain_slot(slot, on);
                self.free(slot);
            }
        }
        events
    }

    /// Passes every record written so far to `on`, without removing it. After storing the records and the positions,
    /// the caller calls [`Rings::commit`]. Until then writers have only the rest of their rings.
    pub fn collect(&mut self, on: &mut dyn FnMut(Event)) -> Positions {
        self.collect_and_free(&mut |_| false, on)
    }

    /// Like [`Rings::collect`]; additionally the commit frees the rings of threads for which `ended` is true. `ended`
    /// is called for each ring in use. A thread must have ended before this call, so that its last records are
    /// included.
    pub fn collect_and_free(&mut self, ended: &mut dyn FnMut(Origin) -> bool, on: &mut dyn FnMut(Event)) -> Positions {
        let started = self.ticks.now();
        self.new_pairs.extend(self.ticks.refresh());
        let mut positions =
            Positions { ring: self.ring, pairs: std::mem::take(&mut self.new_pairs), ..Positions::default() };
        self.maintain();
        self.begin_to_catch_up(started);
        let mut until = None;
        for number in self.used() {
            let limit = self.limit(number);
            // The state first, as in `drain`.
            let state = self.state(number).load(Ordering::Acquire);
            let mut read = self.read_slot(number, limit, on);
            if let Some(latest_unread) = read.latest_unread.filter(|_| self.is_behind_in(number)) {
                until = Some(until.map_or(latest_unread, |until: Timestamp| until.min(latest_unread)));
            }
            let is_finished = match state as u32 {
                _ if read.latest_unread.is_some() => false,
                state::RELEASED => true,
                state::OWNED => ended(self.origin(number)),
                _ => false,
            };
            if is_finished {
                positions.free.push((number, state));
                let reader = self.reader_mut(number);
                read.is_unchanged &= reader.at.path.is_empty();
                reader.at.path.clear();
            }
            if !read.is_unchanged {
                let at = self.reader(number).at.clone();
                positions.slots.push(SlotPosition { slot: number, at });
            }
        }
        if self.report_unclaimed(on) > 0 {
            positions.unclaimed_reported = Some(self.unclaimed_reported());
        }
        let round_start = self.catch_up.as_ref().map_or(started, |catch_up| catch_up.started);
        self.read_until = until.map_or(round_start, |until| until.min(round_start));
        if until.is_none() {
            self.catch_up = None;
        }
        positions
    }

    /// The time before which the last [`Rings::collect`] has read everything: mostly its start; earlier while a
    /// returning reader reads the backlog over several rounds.
    pub fn read_until(&self) -> Timestamp {
        self.read_until
    }

    /// Whether the last [`Rings::collect`] left records, so that the next one must follow immediately.
    pub fn is_behind(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Maximum records of a slot in a round of collecting: each user has the same share, whatever others write.
    fn limit(&self, number: u32) -> u64 {
        let used = self.ring_file(number).map_or(1, |(ring_file, _)| u64::from(ring_file.used));
        (self.budget / used.max(1)).max(self.budget.min(SLOT_RECORDS_MIN))
    }

    /// Notes the heads of all rings, if one of them has more than a round reads.
    fn begin_to_catch_up(&mut self, started: Timestamp) {
        if self.catch_up.is_some() {
            return;
        }
        let head = |number: u32| self.word(number, slot::HEAD).load(Ordering::Acquire);
        let heads: HashMap<u32, u64> = self.used().into_iter().map(|number| (number, head(number))).collect();
        let exceeds_limit = |(number, head): (&u32, &u64)| {
            let waiting = head.wrapping_sub(self.reader(*number).at.tail);
            // A ring with invalid counters is emptied, and does not count.
            waiting > self.limit(*number) && waiting <= u64::from(self.records(*number))
        };
        if heads.iter().any(exceeds_limit) {
            self.catch_up = Some(CatchUp { started, heads });
        }
    }

    /// Whether a part of the backlog is unread.
    fn is_behind_in(&self, number: u32) -> bool {
        let head = self.catch_up.as_ref().and_then(|catch_up| catch_up.heads.get(&number));
        let unread = |head: &u64| head.wrapping_sub(self.reader(number).at.tail);
        // A ring with invalid counters was emptied.
        head.is_some_and(|head| (1..=u64::from(self.records(number))).contains(&unread(head)))
    }

    /// The collected records are stored: frees their space, and the slots of ended threads. Positions of another file
    /// change nothing.
    pub fn commit(&mut self, positions: &Positions) {
        if positions.ring != self.ring {
            return;
        }
        for SlotPosition { slot: number, at } in &positions.slots {
            // The file was truncated meanwhile.
            if self.ring_file(*number).is_none() {
                continue;
            }
            self.word(*number, slot::TAIL).store(at.tail, Ordering::Release);
            self.word(*number, slot::DROPPED_REPORTED).store(at.dropped_reported, Ordering::Relaxed);
            if self.state(*number).load(Ordering::Acquire) as u32 == state::OWNED {
                self.reserve_ahead(*number);
            }
        }
        for (number, state) in &positions.free {
            // The state is checked to be unchanged. Only this reader changes the state of a slot whose owner has ended.
            let is_same = |number| self.state(number).load(Ordering::Acquire) == *state;
            if self.ring_file(*number).is_some() && is_same(*number) && self.is_read(*number) {
                self.forget_owner(*number);
                self.state(*number).store(u64::from(state::FREE), Ordering::Release);
            }
        }
        if positions.unclaimed_reported.is_some() {
            self.note_unclaimed();
        }
    }

    /// Records dropped by threads without a ring, as reported so far, of all users.
    pub(super) fn unclaimed_reported(&self) -> u64 {
        self.ring_files.values().fold(0, |sum: u64, ring_file| sum.saturating_add(ring_file.unclaimed_reported))
    }

    fn note_unclaimed(&self) {
        for ring_file in self.ring_files.values() {
            ring_file.memory.word(header::UNCLAIMED_REPORTED).store(ring_file.unclaimed_reported, Ordering::Relaxed);
        }
    }

    /// Whether a slot has no unread records.
    fn is_read(&self, number: u32) -> bool {
        self.reader(number).at.tail == self.word(number, slot::HEAD).load(Ordering::Acquire)
    }

    fn drain_slot(&mut self, number: u32, on: &mut dyn FnMut(Event)) -> usize {
        let read = self.read_slot(number, u64::MAX, on);
        if !read.is_unchanged {
            let at = &self.reader(number).at;
            if read.has_records {
                self.word(number, slot::TAIL).store(at.tail, Ordering::Release);
            }
            self.word(number, slot::DROPPED_REPORTED).store(at.dropped_reported, Ordering::Relaxed);
        }
        read.events
    }

    /// Reads a slot to its head, or `limit` records of it, without visible changes.
    fn read_slot(&mut self, number: u32, limit: u64, on: &mut dyn FnMut(Event)) -> SlotRead {
        let head = self.word(number, slot::HEAD).load(Ordering::Acquire);
        let origin = self.origin(number);
        let mut events = 0;
        let tail = self.reader(number).at.tail;
        let waiting = head.wrapping_sub(tail);
        let (mut lost, mut end, mut latest_unread) = (0, head, None);
        if waiting > u64::from(self.records(number)) {
            // Unreachable by valid writers.
            lost = u64::from(self.records(number));
            self.reader_mut(number).at.path.clear();
        } else if waiting > 0 && origin.image == 0 {
            // The record claims another user's image, or none.
            lost = waiting;
            self.invalid_records += waiting;
        } else if waiting > 0 {
            let invalid_records = self.invalid_records;
            // These records were written before the head was read.
            let latest = self.ticks.latest();
            if waiting > limit {
                end = tail.wrapping_add(limit);
                latest_unread = Some(Timestamp::ZERO);
            }
            for at in 0..waiting.min(limit) {
                let record = self.record(number, tail.wrapping_add(at));
                if let Some(mut what) = self.interpret(number, &record, latest) {
                    self.restrict_to_user(number, &mut what);
                    latest_unread = latest_unread.map(|latest| latest.max(event_time(&what)));
                    on(Event { origin, what });
                    events += 1;
                }
            }
            lost += self.invalid_records - invalid_records;
        }
        let dropped = self.word(number, slot::DROPPED).load(Ordering::Relaxed);
        let reader = &mut self.reader_mut(number).at;
        reader.tail = end;
        let is_unchanged = waiting == 0 && dropped == reader.dropped_reported;
        lost += dropped.saturating_sub(reader.dropped_reported).min(DROPPED_MAX);
        reader.dropped_reported = dropped;
        if lost > 0 {
            on(Event { origin, what: EventKind::Lost { records: lost } });
            events += 1;
        }
        SlotRead { events, has_records: waiting > 0, is_unchanged, latest_unread }
    }

    /// Removes references to other users from a record: parents in other rings are dropped, and where users are
    /// separate, connection numbers are made unique per user.
    fn restrict_to_user(&self, number: u32, what: &mut EventKind) {
        let index = number / self.shape.slots;
        if let EventKind::Forked { parent_image, .. } = what
            && *parent_image >> INDEX_SHIFT != index
        {
            *parent_image = 0;
        }
        if self.separate_users
            && let Some(connection) = what.connection_mut()
        {
            // The kernel counts sockets from 1 and does not reach this number.
            *connection = *connection & !USER_BITS | u64::from(index) << USER_SHIFT;
        }
    }

    /// Records of threads without a ring, by user.
    fn report_unclaimed(&mut self, on: &mut dyn FnMut(Event)) -> usize {
        let mut events = 0;
        for ring_file in self.ring_files.values_mut() {
            let unclaimed = ring_file.memory.word(header::UNCLAIMED).load(Ordering::Relaxed);
            let records = unclaimed.saturating_sub(ring_file.unclaimed_reported).min(DROPPED_MAX);
            ring_file.unclaimed_reported = unclaimed;
            if records > 0 {
                events += 1;
                let origin = Origin { image: ring_file.index << INDEX_SHIFT, ..Origin::default() };
                on(Event { origin, what: EventKind::Lost { records } });
            }
        }
        events
    }

    /// Interprets a record. `None` for a part of a path that is not the last, and for invalid records.
    fn interpret(&mut self, slot: u32, record: &Record, latest: u64) -> Option<EventKind> {
        let decoded = if record.latest_ticks() <= latest { record.decode(&self.ticks) } else { Decoded::Invalid };
        let part = match decoded {
            Decoded::Complete(what) => return Some(what),
            Decoded::Path(part) => part,
            Decoded::Invalid => {
                self.invalid_records += 1;
                return None;
            }
        };
        let path = &mut self.reader_mut(slot).at.path;
        if part.number == 0 {
            path.clear();
        }
        // At most six parts are written; the limit bounds the memory for invalid rings.
        if path.len() < PATH_BYTES_MAX {
            path.extend_from_slice(&part.text);
        }
        if !part.last {
            return None;
        }
        let path = String::from_utf8_lossy(&std::mem::take(path)).into_owned();
        Some(EventKind::Executing { at: self.ticks.at(part.at), pid: part.pid, path, preloaded: part.preloaded })
    }

    pub(super) fn record(&self, number: u32, count: u64) -> Record {
        let (ring_file, slot) = self.ring_file(number).expect("the slot belongs to a mapped file");
        let at = count & u64::from(self.shape.records(slot) - 1);
        let offset = (self.shape.at(slot) + at * RECORD_BYTES as u64) as usize;
        let mut words = [0; RECORD_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = ring_file.memory.word(offset + index * 8).load(Ordering::Relaxed);
        }
        Record(words)
    }
}

/// Position of the user's index in a connection number: below the attempt number, above all socket numbers of the
/// kernel.
const USER_SHIFT: u32 = 48;
const USER_BITS: u64 = 0xff << USER_SHIFT;
/// Maximum plausible drops between two rounds: a larger counter was overwritten.
const DROPPED_MAX: u64 = 1 << 32;
/// Maximum bytes of a program path.
const PATH_BYTES_MAX: usize = 240;
/// Minimum records of one ring that a round of collecting reads, however many rings there are.
const SLOT_RECORDS_MIN: u64 = 16;
