//! A lane's end of the recorder.
//!
//! A lane never waits for the recorder: records go into a queue that is bounded by their number, and where they find no
//! room the lane counts them itself, at the price of some 0.3 us each, and passes on those that the table keeps. So the
//! counts are of all requests whatever happens. Exchanges of a mix no lane can judge by itself: they have as much room again
//! of their own, and those that find none there are left out, which the run then says. Only a lane in another process, whose
//! counts would have to travel, waits; what is late by that is late in its send lag.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use load::{LaneSampler, Load};
use units::Timestamp;

use super::batch::{Batch, Takes};
use super::counting::Counting;
use super::share::Share;
use crate::called::Called;
use crate::drive::stalls::Stalls;

/// How long a lane that must wait sleeps at a time.
const WAIT: Duration = Duration::from_millis(1);

/// The room that all lanes of a recorder share.
#[derive(Debug)]
pub struct Room {
    waiting: AtomicUsize,
    /// Of these, exchanges.
    exchanges: AtomicUsize,
    max: usize,
    /// The table's share.
    pub share: Arc<Share>,
}

impl Room {
    /// Room for `max` records.
    pub fn new(max: usize) -> Self {
        Room { waiting: AtomicUsize::new(0), exchanges: AtomicUsize::new(0), max, share: Arc::default() }
    }

    /// A batch of such a load was taken out.
    pub fn took(&self, Takes { records, exchanges }: Takes) {
        self.waiting.fetch_sub(records, Ordering::AcqRel);
        self.exchanges.fetch_sub(exchanges, Ordering::AcqRel);
    }

    /// A batch of such a load goes in.
    fn put(&self, Takes { records, exchanges }: Takes) {
        self.waiting.fetch_add(records, Ordering::AcqRel);
        self.exchanges.fetch_add(exchanges, Ordering::AcqRel);
    }

    /// Exchanges that still go in, beyond which lanes may go by a batch each.
    fn for_exchanges(&self) -> usize {
        self.max.saturating_sub(self.exchanges.load(Ordering::Acquire))
    }

    fn lacks(&self, records: usize) -> bool {
        let waiting = self.waiting.load(Ordering::Acquire);
        // A batch larger than the whole room goes in when nothing else is there.
        waiting > 0 && waiting + records > self.max
    }
}

/// What a lane does when there is no room.
pub enum WhenFull {
    /// Counts by itself.
    Count(Box<dyn Fn() -> Counting + Send>),
    /// Waits until there is.
    Wait,
}

/// Where a lane's batches go.
pub struct Outlet {
    lane: usize,
    sender: Sender<(usize, Batch)>,
    spare: Receiver<Batch>,
    room: Arc<Room>,
    when_full: WhenFull,
    counts: Option<Box<Counting>>,
}

impl Outlet {
    /// For lane `lane`; emptied batches come back by `spare`.
    pub fn new(
        lane: usize,
        sender: Sender<(usize, Batch)>,
        spare: Receiver<Batch>,
        room: Arc<Room>,
        when_full: WhenFull,
    ) -> Self {
        Outlet { lane, sender, spare, room, when_full, counts: None }
    }

    /// Passes a batch on, and leaves an empty one in its place.
    pub fn pass(&mut self, batch: &mut Batch) {
        if batch.weight() > 0 && self.room.lacks(batch.weight()) {
            match self.when_full {
                WhenFull::Count(_) => self.count(batch),
                WhenFull::Wait => {
                    while self.room.lacks(batch.weight()) {
                        std::thread::sleep(WAIT);
                    }
                }
            }
        }
        if batch.last {
            batch.counts = self.counts.take();
        }
        self.room.put(batch.takes());
        let next = self.spare.try_recv().unwrap_or_default();
        // A recorder that is gone has panicked, which is told when it is joined.
        let _ = self.sender.send((self.lane, std::mem::replace(batch, next)));
    }

    /// Counts what is in a batch, and leaves of it what need not be counted. Of the exchanges of a mix those stay for which there is
    /// room: only who sees those of all lanes can judge them.
    fn count(&mut self, batch: &mut Batch) {
        let WhenFull::Count(new) = &self.when_full else { return };
        let counts = self.counts.get_or_insert_with(|| Box::new(new()));
        if let Some(end) = batch.measured_end {
            counts.set_measured_end(end);
        }
        batch.requests.iter().for_each(|request| counts.add_request(request));
        batch.connections.iter().for_each(|end| counts.add_connection(end));
        // Of a path in another lane it knows nothing.
        counts.delays.add(self.lane, &batch.stalls, batch.told_until, &batch.requests);
        batch.stalls.clear();
        let share = &self.room.share;
        batch.counted.extend(batch.requests.drain(..).filter(|request| share.keeps(request.sequence)));
        share.spend(batch.counted.len());
        batch.connections.clear();
        batch.called.clear();
        batch.unpaired = true;
        let room = self.room.for_exchanges().min(batch.exchanges.len());
        batch.unverified += (batch.exchanges.len() - room) as u64;
        batch.exchanges.truncate(room);
    }
}

/// The loop's end of the recorder.
pub struct Handover {
    outlet: Outlet,
    kept: Batch,
}

impl Handover {
    /// Passes on by `outlet`.
    pub fn new(outlet: Outlet) -> Self {
        Handover { outlet, kept: Batch::default() }
    }

    /// Notes where a connection is on the wire.
    pub fn note_called(&mut self, called: Called) {
        self.kept.called.push(called);
    }

    /// Takes what the load has finished by `now` and passes it on.
    pub fn pass(&mut self, load: &mut Load, sampler: &mut LaneSampler, stalls: &mut Stalls, now: Timestamp) {
        self.take(load, sampler, stalls, now);
        if !self.kept.is_empty() {
            self.outlet.pass(&mut self.kept);
        }
    }

    /// Passes on the rest, levels up to `now` included; only after the run.
    pub fn finish(mut self, load: &mut Load, sampler: &mut LaneSampler, stalls: &mut Stalls, now: Timestamp) {
        sampler.sample(now, load.live());
        self.take(load, sampler, stalls, now);
        self.kept.last = true;
        self.outlet.pass(&mut self.kept);
    }

    fn take(&mut self, load: &mut Load, sampler: &mut LaneSampler, stalls: &mut Stalls, now: Timestamp) {
        load.take_records(&mut self.kept.requests);
        self.kept.exchanges.extend(load.take_exchanges());
        load.take_connections(&mut self.kept.connections);
        sampler.take_samples(&mut self.kept.samples);
        stalls.take(&mut self.kept.stalls);
        self.kept.told_until = now;
        self.kept.measured_end = load.measured().1;
    }
}
