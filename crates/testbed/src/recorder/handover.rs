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

use super::batch::{Batch, BatchSize};
use super::counting::Counting;
use super::share::Share;
use crate::connect_call::ConnectCall;
use crate::drive::stalls::Stalls;

/// Interval at which a waiting shard checks the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// CPU time that recorder and writer need for a record on a processor of 2026.
const RECORD_COST: Duration = Duration::from_nanos(500);
/// The longest time that a loop may owe.
const OWED_MAX: Duration = Duration::from_millis(10);
/// Recorder and writer are late if a queue is filled to this share.
const FILL_LATE: f64 = 0.4;

/// The space shared by all shards of a recorder.
#[derive(Debug)]
pub struct QueueSpace {
    records: AtomicUsize,
    /// Number of exchanges among the records.
    exchanges: AtomicUsize,
    max: usize,
    /// Rows that wait for the writer, as a share of the greatest possible, in 1/256.
    rows_256: AtomicUsize,
    /// The share of requests in the table.
    pub share: Arc<Share>,
}

impl QueueSpace {
    /// Space for `max` records.
    pub fn new(max: usize) -> Self {
        let none = || AtomicUsize::new(0);
        QueueSpace { records: none(), exchanges: none(), max, rows_256: none(), share: Arc::default() }
    }

    /// Notes how many rows wait for the writer, as a share of the greatest possible.
    pub fn note_waiting_rows(&self, share: f64) {
        self.rows_256.store((share * 256.0) as usize, Ordering::Release);
    }

    /// How full the queue is, or that of the writer if it is fuller: a share.
    fn fill(&self) -> f64 {
        let records = self.records.load(Ordering::Acquire) as f64 / self.max.max(1) as f64;
        records.max(self.rows_256.load(Ordering::Acquire) as f64 / 256.0).min(1.0)
    }

    /// Releases the space of a batch of this size that was removed from the queue.
    pub fn remove(&self, BatchSize { records, exchanges }: BatchSize) {
        self.records.fetch_sub(records, Ordering::AcqRel);
        self.exchanges.fetch_sub(exchanges, Ordering::AcqRel);
    }

    /// Takes the space of a batch of this size that is added to the queue.
    pub(super) fn add(&self, BatchSize { records, exchanges }: BatchSize) {
        self.records.fetch_add(records, Ordering::AcqRel);
        self.exchanges.fetch_add(exchanges, Ordering::AcqRel);
    }

    /// Number of exchanges that still fit; several shards may exceed the limit by a batch each.
    fn free_for_exchanges(&self) -> usize {
        self.max.saturating_sub(self.exchanges.load(Ordering::Acquire))
    }

    /// Whether the queue has too little space for `records` more records.
    fn lacks(&self, records: usize) -> bool {
        let queued = self.records.load(Ordering::Acquire);
        // A batch larger than the whole space is added when nothing else is queued.
        queued > 0 && queued + records > self.max
    }
}

/// What a shard does if its batch does not fit.
pub enum WhenFull {
    /// Counts the batch itself.
    Count(Box<dyn Fn() -> Counting + Send>),
    /// Waits until the batch fits.
    Wait,
}

/// Destination of a shard's batches.
pub struct Outlet {
    shard: usize,
    sender: Sender<(usize, Batch)>,
    spare: Receiver<Batch>,
    space: Arc<QueueSpace>,
    when_full: WhenFull,
    counts: Option<Box<Counting>>,
}

impl Outlet {
    /// For shard `shard`; emptied batches return by `spare`.
    pub fn new(
        shard: usize,
        sender: Sender<(usize, Batch)>,
        spare: Receiver<Batch>,
        space: Arc<QueueSpace>,
        when_full: WhenFull,
    ) -> Self {
        Outlet { shard, sender, spare, space, when_full, counts: None }
    }

    /// Passes a batch on, and replaces it by an empty one.
    pub fn send_batch(&mut self, batch: &mut Batch) {
        if batch.weight() > 0 && self.space.lacks(batch.weight()) {
            match self.when_full {
                WhenFull::Count(_) => self.count(batch),
                WhenFull::Wait => {
                    while self.space.lacks(batch.weight()) {
                        std::thread::sleep(POLL_INTERVAL);
                    }
                }
            }
        }
        if batch.last {
            batch.counts = self.counts.take();
        }
        self.space.add(batch.size());
        let next = self.spare.try_recv().unwrap_or_default();
        // Sending fails only if the recorder has panicked, which joining it reports.
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
        counts.delays.add_late_wakeups(self.shard, &batch.late_wakeups);
        batch.late_wakeups.clear();
        counts.delays.add(self.shard, &batch.stalls, batch.complete_until, &batch.requests);
        batch.stalls.clear();
        let share = &self.space.share;
        batch.counted.extend(batch.requests.drain(..).filter(|request| share.stores(request.sequence)));
        share.count_passed(batch.counted.len());
        batch.connections.clear();
        batch.connect_calls.clear();
        batch.unpaired = true;
        let space = self.space.free_for_exchanges().min(batch.exchanges.len());
        batch.unverified += (batch.exchanges.len() - space) as u64;
        batch.exchanges.truncate(space);
    }
}

/// The loop's connection to the recorder.
pub struct Handover {
    outlet: Outlet,
    batch: Batch,
    owed: Duration,
}

impl Handover {
    /// Sends by `outlet`.
    pub fn new(outlet: Outlet) -> Self {
        Handover { outlet, batch: Batch::default(), owed: Duration::ZERO }
    }

    /// CPU time that recorder and writer need for the records passed to them, as estimated, less the time noted by
    /// [`Self::pay`]; more if they are late all the same.
    pub fn owed(&self) -> Duration {
        if self.outlet.space.fill() > FILL_LATE { OWED_MAX } else { self.owed }
    }

    /// Notes that recorder and writer had the loop's core for this time.
    pub fn pay(&mut self, time: Duration) {
        self.owed = self.owed.saturating_sub(time);
    }

    /// Records that connect was called on a connection.
    pub fn note_connect_call(&mut self, call: ConnectCall) {
        self.batch.connect_calls.push(call);
    }

    /// Takes the load's records up to `now` and sends them.
    pub fn send_records(&mut self, load: &mut Load, sampler: &mut ShardSampler, stalls: &mut Stalls, now: Timestamp) {
        self.take_records(load, sampler, stalls, now);
        if !self.batch.is_empty() {
            self.owed = OWED_MAX.min(self.owed + RECORD_COST * self.batch.weight() as u32);
            self.outlet.send_batch(&mut self.batch);
        }
    }

    /// Sends the rest, gauges up to `now` included; only after the run.
    pub fn finish(mut self, load: &mut Load, sampler: &mut ShardSampler, stalls: &mut Stalls, now: Timestamp) {
        sampler.sample(now, load.live());
        self.take_records(load, sampler, stalls, now);
        self.batch.last = true;
        self.outlet.send_batch(&mut self.batch);
    }

    fn take_records(&mut self, load: &mut Load, sampler: &mut ShardSampler, stalls: &mut Stalls, now: Timestamp) {
        load.take_records(&mut self.batch.requests);
        self.batch.exchanges.extend(load.take_exchanges());
        load.take_connections(&mut self.batch.connections);
        sampler.take_samples(&mut self.batch.samples);
        stalls.drain_into(&mut self.batch.stalls);
        stalls.drain_late_wakeups_into(&mut self.batch.late_wakeups);
        self.batch.complete_until = now;
        self.batch.measured_end = load.measured().1;
    }
}
