//! The state of a tap daemon: computed from events over months, restarts and kills.
//!
//! ```text
//!   reader ──round──> Entry ──> journal (caller) ──commit──> rings
//!                        └─apply──> InOrder ──> Exchanges ──> rows          gauges(), take_programs(), take_lost()
//! ```
//!
//! **Deterministic.** [`DaemonState`] uses no clock, no descriptor and no randomness: its state depends on the entries
//! only, in their order. The same entries give the same rows for each entry (in any order within one entry). A caller
//! that stores each entry before applying it can be killed at any time: a snapshot of the state (serde) and the later
//! entries give the same rows again. Calls of [`DaemonState::take_programs`] and [`DaemonState::take_lost`] must be
//! repeated at the same places of a replay.
//!
//! **Bounded.** The size depends on the running processes, and each table has a maximum: no histogram, name or image
//! stays longer than its process. A connection whose end was lost with a dropped record is removed after an hour of
//! silence since the loss.
//!
//! Read [`Entry`] first; [`crate::daemon_reader`] produces the entries.

mod processes;
#[cfg(test)]
mod tests;

use schema::TapExchange;
use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::event::{Event, EventKind, Owner};
use crate::exchange::Exchanges;
use crate::filter::Only;
use crate::order::{InOrder, event_time};
use crate::program_table::ProgramTable;
use crate::rings::{Positions, ReaderState};
use processes::Processes;

pub use crate::program_table::{Change, Starting};

/// One round of an agent: everything that can change a [`DaemonState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// New positions of the reader of the rings. For another ring than before, all open connections are cut first,
    /// since their ends will not be reported.
    pub positions: Positions,
    /// The events read.
    pub events: Vec<Event>,
    /// Start of the round: all earlier events are processed. Absent: the entry is not from a round.
    pub settle_until: Option<Timestamp>,
    /// Ended images, whose last events are in this entry or earlier.
    pub ended_images: Vec<u32>,
    /// Programs that were started and never reported.
    pub unreported: Vec<UnreportedProgram>,
    /// Programs that bypass the hooks: name and reason.
    pub partial: Vec<(String, String)>,
    /// Connections of this ring's programs so far that exceeded their tables.
    pub unfollowed: Option<u32>,
    /// New filter for connections; empty: all.
    pub only: Option<Vec<Only>>,
    /// Cuts all open connections: the machine was booted.
    pub end: bool,
}

/// A started program that will not report, one of [`Starting`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreportedProgram {
    /// The process, as its parent sees it.
    pub owner: Owner,
    /// Short name of its program.
    pub program: String,
    /// Why the program is not recorded; absent: no program was started (exec failed).
    pub why: Option<String>,
}

impl Entry {
    /// Cuts open connections, for the journal of an earlier boot.
    pub fn end() -> Entry {
        Entry { end: true, ..Entry::default() }
    }

    /// Whether the entry contains only the time of the round.
    pub fn is_empty(&self) -> bool {
        let Entry { positions, events, settle_until: _, ended_images, unreported, partial, unfollowed, only, end } =
            self;
        let lists = events.is_empty() && ended_images.is_empty() && unreported.is_empty() && partial.is_empty();
        lists && positions.is_empty() && unfollowed.is_none() && only.is_none() && !end
    }

    /// Changes the filter for connections.
    pub fn only(only: Vec<Only>) -> Entry {
        Entry { only: Some(only), ..Entry::default() }
    }
}

/// State computed from the events of a machine: rows, and its programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonState {
    reader: ReaderState,
    order: InOrder,
    exchanges: Exchanges,
    programs: ProgramTable,
    processes: Processes,
    /// The latest `settle_until`.
    now: Timestamp,
    /// Last check for silent connections after a loss.
    silence_checked_at: Timestamp,
    /// Connections beyond the tables of this ring's programs.
    unfollowed: u32,
    /// Connections beyond the tables of programs, since the beginning.
    unfollowed_total: u64,
    /// Events of images beyond the limit.
    untracked_events: u64,
    reported: Lost,
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
    /// Processes that reported events and have not ended.
    pub processes: u64,
    /// Open connections.
    pub open: u64,
    /// Exchanges in flight.
    pub in_flight: u64,
}

impl DaemonState {
    /// Version of the serde format. Other versions are not read.
    pub const FORMAT: u32 = 2;

    /// Follows connections that match one of `only`; empty: all.
    pub fn new(only: Vec<Only>) -> DaemonState {
        DaemonState { exchanges: Exchanges::new(only), programs: ProgramTable::for_daemon(), ..DaemonState::default() }
    }

    /// Applies the next entry; completed rows are appended to `rows`.
    pub fn apply(&mut self, entry: &Entry, rows: &mut Vec<TapExchange>) {
        self.apply_owned(entry.clone(), rows);
    }

    /// Applies an entry by value.
    pub fn apply_owned(&mut self, entry: Entry, rows: &mut Vec<TapExchange>) {
        let ring = entry.positions.ring();
        if ring != 0 && ring != self.reader.ring() {
            self.cut();
            self.now = Timestamp::ZERO;
            self.silence_checked_at = Timestamp::ZERO;
            self.unfollowed = 0;
        }
        self.reader.add(&entry.positions);
        if let Some(only) = entry.only {
            self.exchanges.follow(only);
        }
        entry.events.into_iter().for_each(|event| self.order.push(event));
        if let Some(until) = entry.settle_until {
            self.now = self.now.max(until);
            self.process_until(until);
        }
        if !entry.ended_images.is_empty() {
            self.images_ended(&entry.ended_images);
        }
        for UnreportedProgram { owner, program, why } in &entry.unreported {
            self.programs.add_unreported(*owner, program, why.as_deref());
        }
        entry.partial.iter().for_each(|(name, why)| self.programs.partial(name, why));
        if let Some(unfollowed) = entry.unfollowed {
            // A program may have set the counter back.
            self.unfollowed_total += u64::from(unfollowed.saturating_sub(self.unfollowed));
            self.unfollowed = unfollowed;
        }
        if entry.end {
            self.cut();
        }
        self.move_rows(rows);
    }

    /// Current gauges.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            processes: self.processes.len() as u64,
            open: self.exchanges.concurrent_connections(),
            in_flight: self.exchanges.in_flight(),
        }
    }

    /// Programs that changed since the last call, with their counts since then. At most
    /// [`ProgramTable::PROGRAMS_MAX`].
    pub fn take_programs(&mut self) -> Vec<Change> {
        self.programs.take_changes()
    }

    /// Losses since the last call.
    pub fn take_lost(&mut self) -> Lost {
        let now = Lost {
            records: self.exchanges.lost().saturating_add(self.untracked_events),
            connections_left_out: self.exchanges.left_out().saturating_add(self.unfollowed_total),
        };
        let since = Lost {
            records: now.records - self.reported.records,
            connections_left_out: now.connections_left_out - self.reported.connections_left_out,
        };
        self.reported = now;
        since
    }

    /// Positions of the reader of the rings, for [`DaemonReader::open`](crate::daemon_reader::DaemonReader::open).
    pub fn reader(&self) -> &ReaderState {
        &self.reader
    }

    /// The filter for connections; empty: all.
    pub fn only(&self) -> &[Only] {
        self.exchanges.only()
    }

    /// Whether the passing of time changes the state: events or connections wait for it. If not, an empty entry
    /// can be omitted.
    pub fn waits(&self) -> bool {
        !self.order.is_empty() || self.exchanges.waits()
    }

    /// Processes started before `before` without a report.
    pub fn overdue(&self, before: Timestamp) -> Vec<Starting> {
        self.programs.overdue(before)
    }

    /// Followed images, with their processes and last events. In the order of their numbers.
    pub fn images(&self) -> impl Iterator<Item = (u32, Owner, Timestamp)> {
        self.processes.images()
    }

    /// Whether an image is followed.
    pub fn follows(&self, image: u32) -> bool {
        self.processes.follows(image)
    }

    /// The latest image of a process, if known.
    pub fn latest(&self, owner: Owner) -> Option<u32> {
        self.processes.latest(owner)
    }

    /// The name of an image's program; empty if unknown.
    pub fn program(&self, image: u32) -> &str {
        self.programs.program(image)
    }

    fn process_until(&mut self, until: Timestamp) {
        let mut order = std::mem::take(&mut self.order);
        order.release(until, |event| self.apply_event(event));
        self.order = order;
        self.exchanges.tick(until);
        if until.since(self.silence_checked_at) >= SILENCE_CHECK_INTERVAL {
            self.silence_checked_at = until;
            self.exchanges.drop_silent(until);
        }
    }

    fn apply_event(&mut self, event: Event) {
        let (origin, at) = (event.origin, event_time(&event.what));
        let mut replaced = Vec::new();
        if let EventKind::Lost { .. } = event.what {
            self.exchanges.note_lost_records(origin.image, self.now);
        } else if let Some(before) = self.processes.record_event(origin, at) {
            replaced = before;
        } else {
            self.untracked_events += 1;
            return;
        }
        let is_filtered = matches!(event.what, EventKind::Filtered { .. });
        self.programs.apply(&event);
        self.exchanges.apply(event);
        if is_filtered {
            // The new image is not recorded, and the previous image of its process has ended.
            self.image_ended(origin.image, at);
        }
        // The process runs another program, or the number belongs to another process.
        for before in replaced {
            self.image_replaced(before, at);
        }
    }

    fn images_ended(&mut self, images: &[u32]) {
        // An event whose time was converted slightly late does not revive an ended image.
        let mut order = std::mem::take(&mut self.order);
        order.release_of(|origin| images.contains(&origin.image), |event| self.apply_event(event));
        self.order = order;
        for image in images {
            self.image_ended(*image, self.now);
        }
    }

    fn image_replaced(&mut self, image: u32, at: Timestamp) {
        self.processes.image_ended(image);
        self.exchanges.replaced(image, at);
        self.programs.image_ended(image);
    }

    fn image_ended(&mut self, image: u32, at: Timestamp) {
        self.processes.image_ended(image);
        self.exchanges.image_ended(image, at);
        self.programs.image_ended(image);
    }

    fn cut(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.release_all(|event| self.apply_event(event));
        self.exchanges.end();
        self.programs.forget_processes();
        self.processes = Processes::default();
    }

    fn move_rows(&mut self, rows: &mut Vec<TapExchange>) {
        let first = rows.len();
        self.exchanges.drain(rows);
        rows[first..].iter().for_each(|row| self.programs.add(row));
    }
}

/// Interval between two checks for connections whose end was lost.
const SILENCE_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);
