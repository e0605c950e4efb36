//! A shard's connection to the recorder.
//!
//! A shard never waits for the recorder: records go into a queue of limited length, and if they do not fit the shard
//! counts them itself, which costs about 0.3 us each, and passes on those that the table stores. Counts therefore
//! include all requests in any case. A shard cannot verify exchanges of a cache workload; they have the same space
//! again, and those that do not fit are left out, which the run reports. Only a shard in another process, whose counts
//! would have to be sent, waits; this shows in its send lag.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use load::{Load, ShardSampler};
use units::Timestamp;

use super::batch::{Batch, Takes};
use super::counting::Counting;
use super::share::Share;
use crate::connect_call::Called;
use crate::drive::stalls::Stalls;

/// Interval at which a waiting shard checks the queue.
const WAIT: Duration = Duration::from_millis(1);

/// The space shared by all shards of a recorder.
#[derive(Debug)]
pub struct Room {
    waiting: AtomicUsize,
    /// Of these, exchanges.
    exchanges: AtomicUsize,
    max: usize,
    /// The share of requests in the table.
    pub share: Arc<Share>,
}

impl Room {
    /// Space for `max` records.
    pub fn new(max: usize) -> Self {
        Room { waiting: AtomicUsize::new(0), exchanges: AtomicUsize::new(0), max, share: Arc::default() }
    }

    /// A batch of this size was removed.
    pub fn took(&self, Takes { records, exchanges }: Takes) {
        self.waiting.fetch_sub(records, Ordering::AcqRel);
        self.exchanges.fetch_sub(exchanges, Ordering::AcqRel);
    }

    /// A batch of this size is added.
    fn put(&self, Takes { records, exchanges }: Takes) {
        self.waiting.fetch_add(records, Ordering::AcqRel);
        self.exchanges.fetch_add(exchanges, Ordering::AcqRel);
    }

    /// Exchanges that still fit; several shards may exceed the limit by a batch each.
    fn for_exchanges(&self) -> usize {
        self.max.saturating_sub(self.exchanges.load(Ordering::Acquire))
    }

    fn lacks(&self, records: usize) -> bool {
        let waiting = self.waiting.load(Ordering::Acquire);
        // A batch larger than the whole space is added when nothing else is queued.
        waiting > 0 && waiting + records > self.max
    }
}

/// What a shard does if its batch does not fit.
pub enum WhenFull {
    /// Counts the batch itself.
    Count(Box<dyn Fn() -> Counting + Send>),
    /// Waits until it fits.
    Wait,
}

/// Destination of a shard's batches.
pub struct Outlet {
    shard: usize,
    sender: Sender<(usize, Batch)>,
    spare: Receiver<Batch>,
    room: Arc<Room>,
    when_full: WhenFull,
    counts: Option<Box<Counting>>,
}

impl Outlet {
    /// For shard `shard`; emptied batches return by `spare`.
    pub fn new(
        shard: usize,
        sender: Sender<(usize, Batch)>,
        spare: Receiver<Batch>,
        room: Arc<Room>,
        when_full: WhenFull,
    ) -> Self {
        Outlet { shard, sender, spare, room, when_full, counts: None }
    }

    /// Passes a batch on, and replaces it by an empty one.
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
        // If the recorder is gone it has panicked, which its join reports.
        let _ = self.sender.send((self.shard, std::mem::replace(batch, next)));
    }

    /// Counts the records of a batch, and removes the counted ones. Exchanges of a cache workload remain as far as they
    /// fit: verifying needs those of all shards.
    fn count(&mut self, batch: &mut Batch) {
        let WhenFull::Count(new) = &self.when_full else { return };
        let counts = self.counts.get_or_insert_with(|| Box::new(new()));
        if let Some(end) = batch.measured_end {
            counts.set_measured_end(end);
        }
        batch.requests.iter().for_each(|request| counts.add_request(request));
        batch.connections.iter().for_each(|end| counts.add_connection(end));
        // The path may be in another shard, whose figures are unknown here.
        counts.delays.add(self.shard, &batch.stalls, batch.told_until, &batch.requests);
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

/// The loop's connection to the recorder.
pub struct Handover {
    outlet: Outlet,
    kept: Batch,
}

impl Handover {
    /// Sends by `outlet`.
    pub fn new(outlet: Outlet) -> Self {
        Handover { outlet, kept: Batch::default() }
    }

    /// Records that connect was called on a connection.
    pub fn note_called(&mut self, called: Called) {
        self.kept.called.push(called);
    }

    /// Takes the load's records up to `now` and sends them.
    pub fn pass(&mut self, load: &mut Load, sampler: &mut ShardSampler, stalls: &mut Stalls, now: Timestamp) {
        self.take(load, sampler, stalls, now);
        if !self.kept.is_empty() {
            self.outlet.pass(&mut self.kept);
        }
    }

    /// Sends the rest, gauges up to `now` included; only after the run.
    pub fn finish(mut self, load: &mut Load, sampler: &mut ShardSampler, stalls: &mut Stalls, now: Timestamp) {
        sampler.sample(now, load.live());
        self.take(load, sampler, stalls, now);
        self.kept.last = true;
        self.outlet.pass(&mut self.kept);
    }

    fn take(&mut self, load: &mut Load, sampler: &mut ShardSampler, stalls: &mut Stalls, now: Timestamp) {
        load.take_records(&mut self.kept.requests);
        self.kept.exchanges.extend(load.take_exchanges());
        load.take_connections(&mut self.kept.connections);
        sampler.take_samples(&mut self.kept.samples);
        stalls.take(&mut self.kept.stalls);
        self.kept.told_until = now;
        self.kept.measured_end = load.measured().1;
    }
}
