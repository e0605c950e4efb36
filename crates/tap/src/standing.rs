//! The state of a tap daemon: computed from events over months, restarts and kills.
//!
//! ```text
//!   station ──round──> Entry ──> journal (caller) ──commit──> rings
//!                        └─apply──> InOrder ──> Exchanges ──> rows          gauges(), take_programs(), take_lost()
//! ```
//!
//! **Deterministic.** [`Standing`] uses no clock, no descriptor and no randomness: its state depends on the entries
//! only, in their order. The same entries give the same rows for each entry (in any order within one). A caller that
//! stores each entry before applying it can be killed at any time: a snapshot of the state (serde) and the later
//! entries give the same rows again. Calls of [`Standing::take_programs`] and [`Standing::take_lost`] must be
//! repeated at the same places of a replay.
//!
//! **Bounded.** The size depends on the running processes, and each table has a maximum: no histogram, name or image
//! stays longer than its process. A connection whose end was lost with a dropped record is removed after an hour of
//! silence since the loss.
//!
//! Read [`Entry`] first; [`crate::station`] makes them.

mod processes;
#[cfg(test)]
mod tests;

use schema::TapExchange;
use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::event::{Event, Owner, What};
use crate::exchange::Exchanges;
use crate::filter::Only;
use crate::order::{InOrder, moment};
use crate::program_table::ProgramTable;
use crate::rings::{Positions, ReaderState};
use processes::Processes;

pub use crate::program_table::{Change, Starting};

/// One round of an agent: everything that can change a [`Standing`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// New positions of the reader of the rings. For another ring than before, all open connections are cut first,
    /// since their ends will not be reported.
    pub positions: Positions,
    /// The events read.
    pub events: Vec<Event>,
    /// When the round began: events before are processed. Absent: there was no round.
    pub settle_until: Option<Timestamp>,
    /// Ended images, whose last events are in this entry or earlier.
    pub gone: Vec<u32>,
    /// Programs that were started and never reported.
    pub never_seen: Vec<NeverSeen>,
    /// Programs that bypass the hooks: name and reason.
    pub partial: Vec<(String, String)>,
    /// Connections of this ring's programs so far that exceeded their tables.
    pub unfollowed: Option<u32>,
    /// New filter for connections; empty: all.
    pub only: Option<Vec<Only>>,
    /// Cuts all open connections: the machine was booted.
    pub end: bool,
}

/// One of [`Starting`] that will not report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeverSeen {
    /// Which.
    pub owner: Owner,
    /// Short name of its program.
    pub program: String,
    /// Why it is not seen; absent: nothing was started after all (its exec failed).
    pub why: Option<String>,
}

impl Entry {
    /// Cuts open connections, for the journal of an earlier boot.
    pub fn end() -> Entry {
        Entry { end: true, ..Entry::default() }
    }

    /// Whether it contains only the time.
    pub fn is_empty(&self) -> bool {
        let Entry { positions, events, settle_until: _, gone, never_seen, partial, unfollowed, only, end } = self;
        let lists = events.is_empty() && gone.is_empty() && never_seen.is_empty() && partial.is_empty();
        lists && positions.is_empty() && unfollowed.is_none() && only.is_none() && !end
    }

    /// Changes the filter for connections.
    pub fn only(only: Vec<Only>) -> Entry {
        Entry { only: Some(only), ..Entry::default() }
    }
}

/// State computed from the events of a machine: rows, and its programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    reader: ReaderState,
    order: InOrder,
    exchanges: Exchanges,
    roll: ProgramTable,
    processes: Processes,
    /// The latest `settle_until`.
    now: Timestamp,
    /// Last check for silent connections after a loss.
    looked_through: Timestamp,
    /// Of this ring's programs.
    unfollowed: u32,
    /// Connections beyond the tables of programs, since the beginning.
    unfollowed_ever: u64,
    /// Events of images beyond the limit.
    strangers: u64,
    told: Lost,
}

/// Losses since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Records that programs dropped, or that were invalid.
    pub records: u64,
    /// Connections beyond the capacity, here or in a program.
    pub connections_left_out: u64,
}

/// Current gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Processes seen and not gone.
    pub processes: u64,
    /// Open connections.
    pub open: u64,
    /// Exchanges in flight.
    pub in_flight: u64,
}

impl Standing {
    /// Version of the serde format. Other versions are not read.
    pub const FORMAT: u32 = 2;

    /// Follows connections that match one of `only`; empty: all.
    pub fn new(only: Vec<Only>) -> Standing {
        Standing { exchanges: Exchanges::new(only), roll: ProgramTable::for_daemon(), ..Standing::default() }
    }

    /// Applies the next entry; completed rows are appended to `rows`.
    pub fn apply(&mut self, entry: &Entry, rows: &mut Vec<TapExchange>) {
        self.consume(entry.clone(), rows);
    }

    /// Applies an entry by value.
    pub fn consume(&mut self, entry: Entry, rows: &mut Vec<TapExchange>) {
        let ring = entry.positions.ring();
        if ring != 0 && ring != self.reader.ring() {
            self.cut();
            self.now = Timestamp::ZERO;
            self.looked_through = Timestamp::ZERO;
            self.unfollowed = 0;
        }
        self.reader.take(&entry.positions);
        if let Some(only) = entry.only {
            self.exchanges.follow(only);
        }
        entry.events.into_iter().for_each(|event| self.order.push(event));
        if let Some(until) = entry.settle_until {
            self.now = self.now.max(until);
            self.settle(until);
        }
        if !entry.gone.is_empty() {
            self.gone(&entry.gone);
        }
        for NeverSeen { owner, program, why } in &entry.never_seen {
            self.roll.never_seen(*owner, program, why.as_deref());
        }
        entry.partial.iter().for_each(|(name, why)| self.roll.partial(name, why));
        if let Some(unfollowed) = entry.unfollowed {
            // A program may have set the counter back.
            self.unfollowed_ever += u64::from(unfollowed.saturating_sub(self.unfollowed));
            self.unfollowed = unfollowed;
        }
        if entry.end {
            self.cut();
        }
        self.hand_over(rows);
    }

    /// Current gauges.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            processes: self.processes.len() as u64,
            open: self.exchanges.in_process(),
            in_flight: self.exchanges.in_flight(),
        }
    }

    /// Programs that changed since the last call, with their counts since then. At most
    /// [`ProgramTable::PROGRAMS_MAX`].
    pub fn take_programs(&mut self) -> Vec<Change> {
        self.roll.take_changes()
    }

    /// Losses since the last call.
    pub fn take_lost(&mut self) -> Lost {
        let now = Lost {
            records: self.exchanges.lost().saturating_add(self.strangers),
            connections_left_out: self.exchanges.left_out().saturating_add(self.unfollowed_ever),
        };
        let since = Lost {
            records: now.records - self.told.records,
            connections_left_out: now.connections_left_out - self.told.connections_left_out,
        };
        self.told = now;
        since
    }

    /// Positions of the reader of the rings, for [`Station::open`](crate::station::Station::open).
    pub fn reader(&self) -> &ReaderState {
        &self.reader
    }

    /// The filter.
    pub fn only(&self) -> &[Only] {
        self.exchanges.only()
    }

    /// Whether the passing of time changes something here: events or connections wait for it. If not, an empty entry
    /// can be omitted.
    pub fn waits(&self) -> bool {
        !self.order.is_empty() || self.exchanges.waits()
    }

    /// Processes started before `before` without a report.
    pub fn overdue(&self, before: Timestamp) -> Vec<Starting> {
        self.roll.overdue(before)
    }

    /// Followed images, with their processes and last events. In the order of their numbers.
    pub fn images(&self) -> impl Iterator<Item = (u32, Owner, Timestamp)> {
        self.processes.images()
    }

    /// Whether an image is followed.
    pub fn knows(&self, image: u32) -> bool {
        self.processes.knows(image)
    }

    /// The latest image of a process, if known.
    pub fn latest(&self, owner: Owner) -> Option<u32> {
        self.processes.latest(owner)
    }

    /// The name of an image's program; empty if unknown.
    pub fn program(&self, image: u32) -> &str {
        self.roll.program(image)
    }

    fn settle(&mut self, until: Timestamp) {
        let mut order = std::mem::take(&mut self.order);
        order.release(until, |event| self.take(event));
        self.order = order;
        self.exchanges.tick(until);
        if until.since(self.looked_through) >= SILENCE_CHECK_INTERVAL {
            self.looked_through = until;
            self.exchanges.give_up(until);
        }
    }

    fn take(&mut self, event: Event) {
        let (origin, at) = (event.origin, moment(&event.what));
        let mut replaced = Vec::new();
        if let What::Lost { .. } = event.what {
            self.exchanges.note_lost_records(origin.image, self.now);
        } else if let Some(before) = self.processes.hear(origin, at) {
            replaced = before;
        } else {
            self.strangers += 1;
            return;
        }
        let is_left_alone = matches!(event.what, What::Filtered { .. });
        self.roll.take(&event);
        self.exchanges.take(event);
        if is_left_alone {
            // It is not followed; the previous image of its process has ended all the same.
            self.image_gone(origin.image, at);
        }
        // The process runs another program, or the number belongs to another process.
        for before in replaced {
            self.image_replaced(before, at);
        }
    }

    fn gone(&mut self, images: &[u32]) {
        // A time converted slightly late does not revive an ended image.
        let mut order = std::mem::take(&mut self.order);
        order.release_of(|origin| images.contains(&origin.image), |event| self.take(event));
        self.order = order;
        for image in images {
            self.image_gone(*image, self.now);
        }
    }

    fn image_replaced(&mut self, image: u32, at: Timestamp) {
        self.processes.gone(image);
        self.exchanges.replaced(image, at);
        self.roll.gone(image);
    }

    fn image_gone(&mut self, image: u32, at: Timestamp) {
        self.processes.gone(image);
        self.exchanges.gone(image, at);
        self.roll.gone(image);
    }

    fn cut(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.release_all(|event| self.take(event));
        self.exchanges.end();
        self.roll.forget_processes();
        self.processes = Processes::default();
    }

    fn hand_over(&mut self, rows: &mut Vec<TapExchange>) {
        let first = rows.len();
        self.exchanges.drain(rows);
        rows[first..].iter().for_each(|row| self.roll.add(row));
    }
}

/// Interval between two checks for connections whose end was lost.
const SILENCE_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);
