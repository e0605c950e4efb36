//! A collector for ever: what the agent of a machine makes of the events, over months, restarts and kills.
//!
//! ```text
//!   station ──round──> Entry ──> journal (caller) ──commit──> rings
//!                        └─apply──> InOrder ──> Exchanges ──> rows          gauges(), take_programs(), take_lost()
//! ```
//!
//! **Deterministic.** [`Standing`] has no clock, no descriptor and no chance in it: all it is comes from the entries, in their order. The same
//! entries give the same rows for each entry (in any order within one). So whoever writes an entry down before it applies it
//! can be killed at any moment: a snapshot of the state (serde) and the entries after it make the same rows again. What was
//! taken out by [`Standing::take_programs`] and [`Standing::take_lost`] must be taken again at the same place of a replay.
//!
//! **Bounded.** Everything here is bounded by what lives on the machine, and each table by a number of its own besides: no
//! histogram, no name and no image stays for longer than who it is of. A connection whose end nobody told (its record was dropped)
//! is given up when it was silent for an hour after the loss.
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

/// What one round of an agent was: all that can change a [`Standing`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where the reader of the rings has come to. Of another ring than before: all that was open is cut first, since nobody
    /// hears of it any more.
    pub positions: Positions,
    /// What was read.
    pub events: Vec<Event>,
    /// When the round began: what happened until then is worked off. Absent: no round was made.
    pub settle_until: Option<Timestamp>,
    /// Images that were found gone, after their last events were read, in this entry at the latest.
    pub gone: Vec<u32>,
    /// Programs that were started and never said that they are seen.
    pub never_seen: Vec<NeverSeen>,
    /// Programs that were found to do what hooks do not see: name, and what it is.
    pub partial: Vec<(String, String)>,
    /// Connections that found no room in their programs, so far, of this ring's.
    pub unfollowed: Option<u32>,
    /// From now on connections that one of these means are followed; all where there is none.
    pub only: Option<Vec<Only>>,
    /// What is open is cut, and forgotten: the machine was started anew.
    pub end: bool,
}

/// One of [`Starting`], given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeverSeen {
    /// Which.
    pub owner: Owner,
    /// Its program's short name.
    pub program: String,
    /// Why it is not seen; absent: nothing was started after all (its exec failed).
    pub why: Option<String>,
}

impl Entry {
    /// What is open is cut: for the journal of a boot that is over.
    pub fn end() -> Entry {
        Entry { end: true, ..Entry::default() }
    }

    /// Whether it says nothing but the time.
    pub fn is_empty(&self) -> bool {
        let Entry { positions, events, settle_until: _, gone, never_seen, partial, unfollowed, only, end } = self;
        let lists = events.is_empty() && gone.is_empty() && never_seen.is_empty() && partial.is_empty();
        lists && positions.is_empty() && unfollowed.is_none() && only.is_none() && !end
    }

    /// From now on these are followed.
    pub fn only(only: Vec<Only>) -> Entry {
        Entry { only: Some(only), ..Entry::default() }
    }
}

/// What is made of the events of a machine: rows, and what is known of its programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    reader: ReaderState,
    order: InOrder,
    exchanges: Exchanges,
    roll: ProgramTable,
    processes: Processes,
    /// The latest `settle_until`.
    now: Timestamp,
    /// When connections were last looked through for those that nobody will end.
    looked_through: Timestamp,
    /// Of this ring's programs.
    unfollowed: u32,
    /// Since the beginning: what found no room in a program, at any time.
    unfollowed_ever: u64,
    /// Events of images that found no room here.
    strangers: u64,
    told: Lost,
}

/// What is missing from the rows, since it was last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Records that programs could not tell, or that made no sense.
    pub records: u64,
    /// Connections that found no room, here or in a program.
    pub connections_left_out: u64,
}

/// Levels of this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Processes seen and not gone.
    pub processes: u64,
    /// Connections open.
    pub open: u64,
    /// Exchanges asked and not answered.
    pub in_flight: u64,
}

impl Standing {
    /// Version of what serde writes of it. A snapshot or an entry of another one is not read.
    pub const FORMAT: u32 = 2;

    /// Follows connections that one of `only` means, all where there is none.
    pub fn new(only: Vec<Only>) -> Standing {
        Standing { exchanges: Exchanges::new(only), roll: ProgramTable::for_daemon(), ..Standing::default() }
    }

    /// Takes the next entry; rows that became complete are added to `rows`.
    pub fn apply(&mut self, entry: &Entry, rows: &mut Vec<TapExchange>) {
        self.consume(entry.clone(), rows);
    }

    /// The same of an entry that nobody needs any more.
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
            // Of a counter that a program has set back there is nothing to be learnt.
            self.unfollowed_ever += u64::from(unfollowed.saturating_sub(self.unfollowed));
            self.unfollowed = unfollowed;
        }
        if entry.end {
            self.cut();
        }
        self.hand_over(rows);
    }

    /// Levels of this moment.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            processes: self.processes.len() as u64,
            open: self.exchanges.in_process(),
            in_flight: self.exchanges.in_flight(),
        }
    }

    /// Programs about which something changed since this was last asked, with what was counted since. At most
    /// [`ProgramTable::PROGRAMS_MAX`].
    pub fn take_programs(&mut self) -> Vec<Change> {
        self.roll.take_changes()
    }

    /// What is missing since this was last asked.
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

    /// Where the reader of the rings is, as far as the entries say: for [`Station::open`](crate::station::Station::open).
    pub fn reader(&self) -> &ReaderState {
        &self.reader
    }

    /// What is followed.
    pub fn only(&self) -> &[Only] {
        self.exchanges.only()
    }

    /// Whether time alone changes something here: events or connections wait for it. If not, an entry that says nothing can be left out.
    pub fn waits(&self) -> bool {
        !self.order.is_empty() || self.exchanges.waits()
    }

    /// What was started before `before` and has not said that it is seen.
    pub fn overdue(&self, before: Timestamp) -> Vec<Starting> {
        self.roll.overdue(before)
    }

    /// Images that are followed, with their processes and when they were last heard of. In the order of their numbers.
    pub fn images(&self) -> impl Iterator<Item = (u32, Owner, Timestamp)> {
        self.processes.images()
    }

    /// Whether an image is followed.
    pub fn knows(&self, image: u32) -> bool {
        self.processes.knows(image)
    }

    /// The image that a process has become, as far as is known.
    pub fn latest(&self, owner: Owner) -> Option<u32> {
        self.processes.latest(owner)
    }

    /// The name of an image's program; empty where it is not known.
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
            // It is not followed; what its process was before is over all the same.
            self.image_gone(origin.image, at);
        }
        // The process became another program, or its number another process's.
        for before in replaced {
            self.image_replaced(before, at);
        }
    }

    fn gone(&mut self, images: &[u32]) {
        // A moment that was converted a little late does not bring back who is gone.
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

/// How often connections are looked through for those whose end was lost.
const SILENCE_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);
