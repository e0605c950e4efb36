//! The recorder: a thread that counts all records of the loops, and a writer thread that stores them.
//!
//! ```text
//!   shard 0 --Batch-->                        --rows that the table stores-----> WriteQueue --> writer --> Parquet
//!   shard 1 --Batch-->  recorder: counts, gauges, agreement with the capture, verified exchanges
//!   ..                                       --> figures, when all shards have ended
//! ```
//!
//! No shard waits for the recorder, and the recorder does not wait for the disk. Counts are exact in any case: a shard
//! whose batch does not fit counts it itself ([`handover`]); only exchanges of a cache workload, which a shard cannot
//! verify, are then left out and counted. If the disk cannot store all requests, the table has a stated, even share of
//! them ([`share`]). Memory: at most about 100 MB queued for the recorder and as much for the writer.

pub mod batch;
mod boundaries;
pub mod counting;
pub mod handover;
pub mod judging;
pub mod share;
pub mod write_queue;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use load::{ConnectionEnd, GaugeMerger, Levels, SampleLog};
use schema::{CacheExchange, CacheFigures, RequestRecord, RunProgress, ServerSecond};
use store::RunFolder;
use sys::sched::{Cores, Urgency};
use units::Timestamp;

use crate::capture_tables::CaptureTables;
use crate::drive::progress::Progress;
use crate::watching::queue::Inlet;
use validity::evidence::{StoredRows, WireFigures};

use self::boundaries::Boundaries;
pub use batch::Batch;
pub use counting::Counting;
pub use handover::{Handover, Outlet, QueueSpace, WhenFull};
pub use judging::Judging;
#[cfg(test)]
use write_queue::Part;
pub use write_queue::{Sink, Tables, WriteQueue};

/// Most records queued between the shards and the recorder.
const QUEUED_RECORDS_MAX: usize = 512 << 10;
/// Most emptied batches that wait for reuse by a shard.
const SPARE_BATCHES_MAX: usize = 64;
/// Approximate interval at which parts of the capture's tables are closed.
const PART_INTERVAL: Duration = Duration::from_millis(1500);
/// Approximate interval of progress snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// The capture's records and their figures.
pub struct WireSide {
    /// Destination of the records.
    pub tables: CaptureTables,
    /// Source of the records; closed by the capture thread at its end.
    pub records: Inlet,
}

/// Settings of the recorder.
pub struct Recording {
    /// Number of shards.
    pub shards: usize,
    /// Empty counts; created for each shard that has to count itself.
    pub counting: Arc<dyn Fn() -> Counting + Send + Sync>,
    /// Empty gauges, for as many shards.
    pub levels: GaugeMerger,
    /// Verifies the exchanges of a cache workload.
    pub judging: Option<Judging>,
    /// The measured phase as far as it is known.
    pub measured_end: Option<Timestamp>,
    /// The run's progress: has the time of a requested stop.
    pub progress: Arc<Progress>,
    /// The run's directory, if the run is stored.
    pub folder: Option<RunFolder>,
    /// The capture's records, if packets are captured.
    pub wire: Option<WireSide>,
    /// Cores of the recorder.
    pub cores: Option<Cores>,
    /// Makes progress snapshots, if the run is stored: from the counts, the capture's figures, and the table so far.
    pub snapshot: Option<ProgressNow>,
}

/// Makes progress snapshots.
pub type ProgressNow = Box<dyn Fn(&Counting, Option<&CaptureTables>, StoredRows) -> RunProgress + Send>;

/// Results of the recorder when the shards have ended.
pub struct Recorded {
    /// The counts, of all requests.
    pub counting: Counting,
    /// The gauges of all shards together.
    pub levels: Levels,
    /// Their samples, if they are kept ([`GaugeMerger::keeping`]).
    pub samples: Option<SampleLog>,
    /// The run's directory with the finished tables.
    pub folder: Option<RunFolder>,
    /// The capture's figures, if packets were captured.
    pub wire: Option<WireFigures>,
    /// The first write error; the counts are exact all the same.
    pub store_error: Option<String>,
    /// The table of requests, if one was written.
    pub table: Option<StoredRows>,
    /// Figures of a cache workload.
    pub cache: Option<CacheFigures>,
    /// Exchanges of the workload missing in their table, because memory was full or the disk failed.
    pub exchanges_left_out: u64,
}

/// The recorder's threads.
pub struct Recorder {
    thread: JoinHandle<Recorded>,
    writer: Option<JoinHandle<(u64, Option<String>)>>,
    space: Arc<QueueSpace>,
    write_queue: Option<Arc<WriteQueue>>,
}

impl Recorder {
    /// Starts the threads with low priority; returns an outlet for each shard. The recorder ends when all outlets are
    /// dropped.
    ///
    /// # Errors
    /// The errors of starting a thread.
    pub fn start(recording: Recording) -> std::io::Result<(Vec<Outlet>, Self)> {
        let sink = recording.folder.as_ref().map(|folder| Box::new(Tables::of(folder)) as Box<dyn Sink>);
        Recorder::start_with(recording, sink, QUEUED_RECORDS_MAX, write_queue::ROWS_MAX)
    }

    fn start_with(
        recording: Recording,
        sink: Option<Box<dyn Sink>>,
        records_max: usize,
        rows_max: usize,
    ) -> std::io::Result<(Vec<Outlet>, Self)> {
        let space = Arc::new(QueueSpace::new(records_max));
        let (sender, receiver) = channel();
        let (mut outlets, mut free_batches) = (Vec::new(), Vec::new());
        for shard in 0..recording.shards {
            let (spare, outlet) = outlet(shard, sender.clone(), &space, &recording.counting);
            free_batches.push(spare);
            outlets.push(outlet);
        }
        drop(sender);
        let write_queue = sink.as_ref().map(|_| Arc::new(WriteQueue::new(rows_max, Arc::clone(&space.share))));
        let cores = recording.cores.clone();
        let thread = {
            let (space, write_queue) = (Arc::clone(&space), write_queue.clone());
            std::thread::Builder::new().name("recorder".into()).spawn(move || {
                set_up_thread(recording.cores.as_ref());
                record(recording, &space, write_queue.as_deref(), &receiver, &free_batches)
            })?
        };
        let writer = match sink.zip(write_queue.clone()) {
            None => None,
            Some((sink, write_queue)) => Some(std::thread::Builder::new().name("writer".into()).spawn(move || {
                set_up_thread(cores.as_ref());
                write_queue.write_all(sink)
            })?),
        };
        Ok((outlets, Recorder { thread, writer, space, write_queue }))
    }

    /// Stores a second of the server's resource usage provisionally: the exact series replaces it at the end.
    pub fn put_server_second(&self, second: ServerSecond) {
        if let Some(write_queue) = &self.write_queue {
            write_queue.put_server_second(second);
        }
    }

    /// Waits until all received records are counted and stored.
    ///
    /// # Panics
    /// The recorder itself panicked.
    pub fn join(self) -> Recorded {
        let mut recorded = self.thread.join().expect("the recorder does not panic");
        if let Some(writer) = self.writer {
            let (rows, error) = writer.join().expect("the writer does not panic");
            recorded.store_error = recorded.store_error.or(error);
            recorded.table = Some(StoredRows { rows, one_in: self.space.share.one_in() });
        }
        recorded.exchanges_left_out += self.write_queue.map_or(0, |write_queue| write_queue.left_out());
        recorded
    }
}

/// A shard's outlet, and the queue of its emptied batches.
fn outlet(
    shard: usize,
    sender: Sender<(usize, Batch)>,
    space: &Arc<QueueSpace>,
    counting: &Arc<dyn Fn() -> Counting + Send + Sync>,
) -> (SyncSender<Batch>, Outlet) {
    let (give_back, spare) = sync_channel(SPARE_BATCHES_MAX);
    let counting = Arc::clone(counting);
    let when_full = WhenFull::Count(Box::new(move || counting()));
    (give_back, Outlet::new(shard, sender, spare, Arc::clone(space), when_full))
}

fn set_up_thread(cores: Option<&Cores>) {
    if let Some(cores) = cores {
        // Without pinning the results are less precise, but correct.
        let _ = cores.pin_this_thread();
    }
    Urgency::Low.apply_to_this_thread();
}

impl WireSide {
    /// Receives available records.
    fn take_available(&mut self) {
        while let Some(batch) = self.records.try_take() {
            self.tables.add_batch(batch);
        }
    }

    /// Receives everything until the capture thread ends; returns the figures, and the first write error.
    pub fn into_figures(self) -> (WireFigures, Option<String>) {
        self.into_figures_with_progress(|_| {})
    }

    /// Like [`Self::into_figures`]; calls `report` with the tables so far about every 1.5 s.
    pub fn into_figures_with_progress(
        mut self,
        mut report: impl FnMut(&CaptureTables),
    ) -> (WireFigures, Option<String>) {
        let mut part_closed = sys::clock::monotonic_ns();
        while let Some(batch) = self.records.next_batch() {
            self.tables.add_batch(batch);
            let now = sys::clock::monotonic_ns();
            if now - part_closed > PART_INTERVAL.as_nanos() as u64 {
                part_closed = now;
                self.tables.close_parts();
                report(&self.tables);
            }
        }
        self.tables.finish()
    }
}

/// End of the run's measured phase, from the ends that its shards report. A requested stop ends the phase of all shards
/// at its time, before any shard has reported it. Otherwise the phase ends with that of the last shard: the shards'
/// ends differ only if each shard has its own number of requests.
fn measured_end(shards: &[Option<Timestamp>], stop_at: Option<Timestamp>) -> Option<Timestamp> {
    let last = shards.iter().copied().collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
    [last, stop_at].into_iter().flatten().min()
}

/// Records that ended after their own shard's phase while the end of other shards' phases is unknown: whether they
/// belong to the run's phase is known later. At most as many as were in flight in these shards.
#[derive(Default)]
struct Late {
    requests: Vec<RequestRecord>,
    connections: Vec<ConnectionEnd>,
}

impl Late {
    /// Counts the records of a batch. `run_end`: the end of the run's phase, as far as it is known; it may become
    /// earlier, but not earlier than that of any shard.
    fn count(&mut self, batch: &Batch, run_end: Option<Timestamp>, counting: &mut Counting) {
        let own_end = batch.measured_end.filter(|&end| run_end.is_none_or(|run_end| end < run_end));
        let is_late = |at: Timestamp| own_end.is_some_and(|end| at >= end);
        for request in &batch.requests {
            if is_late(request.done_at) { self.requests.push(*request) } else { counting.add_request(request) }
        }
        for end in &batch.connections {
            if is_late(end.closed_at) { self.connections.push(*end) } else { counting.add_connection(end) }
        }
    }

    /// Counts the remaining records, when all shards have ended and `counting` has the end of the run's phase.
    fn finish(self, counting: &mut Counting) {
        self.requests.iter().for_each(|request| counting.add_request(request));
        self.connections.iter().for_each(|end| counting.add_connection(end));
    }
}

/// The recorder's thread: receives batches until all loops have ended.
fn record(
    recording: Recording,
    space: &QueueSpace,
    write_queue: Option<&WriteQueue>,
    receiver: &Receiver<(usize, Batch)>,
    free_batches: &[SyncSender<Batch>],
) -> Recorded {
    let mut counts = Counts::new(recording, write_queue);
    let mut snapshot_at = sys::clock::monotonic_ns();
    loop {
        // A load that waits for its first responses sends no records, but needs progress snapshots.
        match receiver.recv_timeout(SNAPSHOT_INTERVAL) {
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
            Ok((shard, mut batch)) => {
                space.remove(batch.size());
                counts.record_batch(shard, &mut batch);
                space.note_waiting_rows(write_queue.map_or(0.0, WriteQueue::fill));
                batch.clear();
                // If the return queue is full, the batch is freed instead of reused.
                let _ = free_batches[shard].try_send(batch);
            }
        }
        let now = sys::clock::monotonic_ns();
        if now - snapshot_at >= SNAPSHOT_INTERVAL.as_nanos() as u64 {
            snapshot_at = now;
            counts.write_snapshot(space);
        }
    }
    counts.finish()
}

/// Counts and tables of the batches so far.
struct Counts<'a> {
    write_queue: Option<&'a WriteQueue>,
    counting: Counting,
    levels: GaugeMerger,
    judging: Option<Judging>,
    progress: Arc<Progress>,
    folder: Option<RunFolder>,
    wire: Option<WireSide>,
    snapshot: Option<ProgressNow>,
    /// The end of the measured phase as each loop reports it.
    ends: Vec<Option<Timestamp>>,
    late: Late,
    /// When parts of the capture's tables were last closed.
    part_closed: u64,
    /// Number of seconds of the series written.
    second: u64,
    boundaries: Boundaries,
}

impl<'a> Counts<'a> {
    fn new(recording: Recording, write_queue: Option<&'a WriteQueue>) -> Self {
        let Recording { counting, levels, judging, progress, folder, wire, snapshot, shards, measured_end, .. } =
            recording;
        Counts {
            write_queue,
            counting: counting(),
            levels,
            judging,
            progress,
            folder,
            wire,
            snapshot,
            ends: vec![measured_end; shards],
            late: Late::default(),
            part_closed: sys::clock::monotonic_ns(),
            second: 0,
            boundaries: Boundaries::default(),
        }
    }

    /// Counts and stores one batch of loop `shard`.
    fn record_batch(&mut self, shard: usize, batch: &mut Batch) {
        self.ends[shard] = batch.measured_end;
        let end = measured_end(&self.ends, self.progress.stop_at());
        if let Some(end) = end {
            self.counting.set_measured_end(end);
            self.levels.set_measured_end(end);
            if let Some(judging) = &mut self.judging {
                judging.set_measured_end(end);
            }
        }
        self.late.count(batch, end, &mut self.counting);
        self.counting.delays.add_late_wakeups(shard, &batch.late_wakeups);
        self.counting.delays.add(shard, &batch.stalls, batch.complete_until, &batch.requests);
        self.levels.add(shard, &batch.samples);
        if batch.last {
            self.levels.end(shard);
            self.counting.delays.end(shard);
        }
        if let Some(counts) = batch.counts.take() {
            self.counting.merge(*counts);
        }
        self.compare_with_wire(batch);
        if let Some(judging) = &mut self.judging {
            judging.leave_out(std::mem::take(&mut batch.unverified));
            judging.add_exchanges(&mut batch.exchanges);
            judging.judge_before(self.levels.merged_until(), store_exchanges(self.write_queue));
        }
        self.put_rows(batch);
    }

    /// Compares the load's records with the capture.
    fn compare_with_wire(&mut self, batch: &Batch) {
        let Some(wire) = &mut self.wire else { return };
        wire.take_available();
        if let Some(agreement) = wire.tables.agreement() {
            if batch.unpaired {
                agreement.overflow();
            }
            batch.connect_calls.iter().for_each(|call| agreement.load_connect_call(call));
            batch.requests.iter().for_each(|request| agreement.load_request(request));
            batch.connections.iter().for_each(|end| agreement.load_connection(end));
        }
        let now = sys::clock::monotonic_ns();
        if now - self.part_closed > PART_INTERVAL.as_nanos() as u64 {
            self.part_closed = now;
            wire.tables.close_parts();
        }
    }

    /// Stores the batch's rows, and provisional rows of the series: the exact series replaces them at the end.
    fn put_rows(&mut self, batch: &Batch) {
        let Some(write_queue) = self.write_queue else { return };
        write_queue.put(&batch.requests);
        write_queue.put(&batch.counted);
        self.boundaries.read(&self.progress);
        loop {
            let end = Timestamp::from_nanos((self.second + 1) * 1_000_000_000);
            if end > self.levels.next_unmerged() || !(batch.last || self.boundaries.is_known_at(end)) {
                break;
            }
            let level = self.levels.second(self.second as usize);
            let mut row = self.counting.second(self.second as u32, level);
            self.boundaries.complete(&mut row, end);
            write_queue.put_second(row, self.counting.tally.distribution(self.second as u32));
            self.second += 1;
        }
    }

    /// Writes a progress snapshot, if the run is stored.
    fn write_snapshot(&self, space: &QueueSpace) {
        if let (Some(snapshot), Some(write_queue)) = (&self.snapshot, self.write_queue) {
            let table = StoredRows { rows: 0, one_in: space.share.one_in() };
            write_queue.put_snapshot(snapshot(&self.counting, self.wire.as_ref().map(|wire| &wire.tables), table));
        }
    }

    /// The results, when all loops have ended.
    fn finish(self) -> Recorded {
        let Counts { write_queue, mut counting, mut levels, judging, folder, wire, late, .. } = self;
        late.finish(&mut counting);
        let cache = judging.map(|judging| judging.finish(store_exchanges(write_queue)));
        let unverified = cache.as_ref().map_or(0, |cache| cache.unverified);
        if let Some(write_queue) = write_queue {
            write_queue.close();
        }
        let mut store_error = None;
        // The load has ended; the capture continues until its last packets are processed.
        let wire = wire.map(|wire| {
            let (figures, error) = wire.into_figures();
            store_error = error;
            figures
        });
        let samples = levels.take_kept();
        let levels = levels.finish();
        Recorded {
            counting,
            levels,
            samples,
            folder,
            wire,
            store_error,
            table: None,
            cache,
            exchanges_left_out: unverified,
        }
    }
}

/// Stores verified exchanges.
fn store_exchanges(write_queue: Option<&WriteQueue>) -> impl Fn(&[CacheExchange]) + Copy + '_ {
    move |judged| {
        if let Some(write_queue) = write_queue {
            write_queue.put_exchanges(judged);
        }
    }
}

#[cfg(test)]
mod tests;
