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

use load::{ConnectionEnd, GaugeMerger, Levels};
use schema::{CacheExchange, CacheFigures, RequestRecord, RunProgress, ServerSecond};
use store::RunFolder;
use sys::sched::{Cores, Urgency};
use units::Timestamp;

use crate::capture_tables::CaptureTables;
use crate::drive::progress::Progress;
use crate::watching::queue::Inlet;
use validity::evidence::{Kept, WireFigures};

use self::boundaries::Boundaries;
pub use batch::Batch;
pub use counting::Counting;
pub use handover::{Handover, Outlet, Room, WhenFull};
pub use judging::Judging;
#[cfg(test)]
use write_queue::Part;
pub use write_queue::{Sink, Tables, WriteQueue};

/// Most records queued between the shards and the recorder.
const WAITING_MAX: usize = 512 << 10;
/// Most emptied batches that wait for reuse by a shard.
const SPARE_MAX: usize = 64;
/// Approximate interval at which parts of the capture's tables are closed.
const PART_EVERY: Duration = Duration::from_millis(1500);
/// Approximate interval of progress snapshots.
const STANDING_EVERY: Duration = Duration::from_secs(1);

/// The capture's records and their figures.
pub struct WireSide {
    /// Destination of the records.
    pub book: CaptureTables,
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
    pub standing: Option<ProgressNow>,
}

/// Makes progress snapshots.
pub type ProgressNow = Box<dyn Fn(&Counting, Option<&CaptureTables>, Kept) -> RunProgress + Send>;

/// Results of the recorder when the shards have ended.
pub struct Recorded {
    /// The counts, of all requests.
    pub counting: Counting,
    /// The gauges of all shards together.
    pub levels: Levels,
    /// The run's directory with the finished tables.
    pub folder: Option<RunFolder>,
    /// The capture's figures, if packets were captured.
    pub wire: Option<WireFigures>,
    /// The first write error; the counts are exact all the same.
    pub store_error: Option<String>,
    /// The table of requests, if one was written.
    pub table: Option<Kept>,
    /// Figures of a cache workload.
    pub cache: Option<CacheFigures>,
    /// Exchanges of the workload missing in their table, because memory was full or the disk failed.
    pub exchanges_left_out: u64,
}

/// The recorder's threads.
pub struct Recorder {
    thread: JoinHandle<Recorded>,
    writer: Option<JoinHandle<(u64, Option<String>)>>,
    room: Arc<Room>,
    write_queue: Option<Arc<WriteQueue>>,
}

impl Recorder {
    /// Starts the threads with low priority; returns an outlet for each shard. The recorder ends when all outlets are
    /// dropped.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(recording: Recording) -> std::io::Result<(Vec<Outlet>, Self)> {
        let sink = recording.folder.as_ref().map(|folder| Box::new(Tables::of(folder)) as Box<dyn Sink>);
        Recorder::start_with(recording, sink, WAITING_MAX, write_queue::ROWS_MAX)
    }

    fn start_with(
        recording: Recording,
        sink: Option<Box<dyn Sink>>,
        waiting_max: usize,
        rows_max: usize,
    ) -> std::io::Result<(Vec<Outlet>, Self)> {
        let room = Arc::new(Room::new(waiting_max));
        let (sender, receiver) = channel();
        let (mut outlets, mut spares) = (Vec::new(), Vec::new());
        for shard in 0..recording.shards {
            let (spare, outlet) = outlet(shard, sender.clone(), &room, &recording.counting);
            spares.push(spare);
            outlets.push(outlet);
        }
        drop(sender);
        let write_queue = sink.as_ref().map(|_| Arc::new(WriteQueue::new(rows_max, Arc::clone(&room.share))));
        let cores = recording.cores.clone();
        let thread = {
            let (room, write_queue) = (Arc::clone(&room), write_queue.clone());
            std::thread::Builder::new().name("recorder".into()).spawn(move || {
                settle(recording.cores.as_ref());
                record(recording, &room, write_queue.as_deref(), &receiver, &spares)
            })?
        };
        let writer = match sink.zip(write_queue.clone()) {
            None => None,
            Some((sink, write_queue)) => Some(std::thread::Builder::new().name("writer".into()).spawn(move || {
                settle(cores.as_ref());
                write_queue.write_all(sink)
            })?),
        };
        Ok((outlets, Recorder { thread, writer, room, write_queue }))
    }

    /// Stores a second of the server's resource usage provisionally: the exact series replaces it at the end.
    pub fn keep_server_second(&self, second: ServerSecond) {
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
            recorded.table = Some(Kept { rows, one_in: self.room.share.one_in() });
        }
        recorded.exchanges_left_out += self.write_queue.map_or(0, |write_queue| write_queue.left_out());
        recorded
    }
}

/// A shard's outlet, and the queue of its emptied batches.
fn outlet(
    shard: usize,
    sender: Sender<(usize, Batch)>,
    room: &Arc<Room>,
    counting: &Arc<dyn Fn() -> Counting + Send + Sync>,
) -> (SyncSender<Batch>, Outlet) {
    let (give_back, spare) = sync_channel(SPARE_MAX);
    let counting = Arc::clone(counting);
    let when_full = WhenFull::Count(Box::new(move || counting()));
    (give_back, Outlet::new(shard, sender, spare, Arc::clone(room), when_full))
}

fn settle(cores: Option<&Cores>) {
    if let Some(cores) = cores {
        // Without pinning precision suffers, not correctness.
        let _ = cores.pin_this_thread();
    }
    Urgency::Low.apply_to_this_thread();
}

impl WireSide {
    /// Receives available records.
    fn take_waiting(&mut self) {
        while let Some(batch) = self.records.try_take() {
            self.book.take(batch);
        }
    }

    /// Receives everything, until the capture thread ends. The figures, and the first write error.
    pub fn into_figures(self) -> (WireFigures, Option<String>) {
        self.into_figures_told(|_| {})
    }

    /// The same, with calls of a progress function.
    pub fn into_figures_told(mut self, mut tell: impl FnMut(&CaptureTables)) -> (WireFigures, Option<String>) {
        let mut part_closed = sys::clock::monotonic_ns();
        while let Some(batch) = self.records.take() {
            self.book.take(batch);
            let now = sys::clock::monotonic_ns();
            if now - part_closed > PART_EVERY.as_nanos() as u64 {
                part_closed = now;
                self.book.close_parts();
                tell(&self.book);
            }
        }
        self.book.finish()
    }
}

/// End of the run's measured phase, from those of its shards. A requested stop ends it for all of them at its time,
/// before any shard has reported it. Otherwise it ends with the last shard's: these differ only if each shard has its
/// own number of requests.
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

    /// All shards have ended, and `counting` has the end of the run's phase.
    fn finish(self, counting: &mut Counting) {
        self.requests.iter().for_each(|request| counting.add_request(request));
        self.connections.iter().for_each(|end| counting.add_connection(end));
    }
}

/// The recorder's thread: receives batches until all loops have ended.
fn record(
    recording: Recording,
    room: &Room,
    write_queue: Option<&WriteQueue>,
    receiver: &Receiver<(usize, Batch)>,
    spares: &[SyncSender<Batch>],
) -> Recorded {
    let mut counts = Counts::new(recording, write_queue);
    let mut snapshot_at = sys::clock::monotonic_ns();
    loop {
        // A load that waits for its first responses sends no records, but needs progress snapshots.
        match receiver.recv_timeout(STANDING_EVERY) {
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
            Ok((shard, mut batch)) => {
                room.took(batch.takes());
                counts.take(shard, &mut batch);
                batch.clear();
                // If the return queue is full, the batch is freed instead of reused.
                let _ = spares[shard].try_send(batch);
            }
        }
        let now = sys::clock::monotonic_ns();
        if now - snapshot_at >= STANDING_EVERY.as_nanos() as u64 {
            snapshot_at = now;
            counts.write_snapshot(room);
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
    standing: Option<ProgressNow>,
    /// The measured phase's end as each loop knows it.
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
        let Recording { counting, levels, judging, progress, folder, wire, standing, shards, measured_end, .. } =
            recording;
        Counts {
            write_queue,
            counting: counting(),
            levels,
            judging,
            progress,
            folder,
            wire,
            standing,
            ends: vec![measured_end; shards],
            late: Late::default(),
            part_closed: sys::clock::monotonic_ns(),
            second: 0,
            boundaries: Boundaries::default(),
        }
    }

    /// Counts and stores one batch of loop `shard`.
    fn take(&mut self, shard: usize, batch: &mut Batch) {
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
        self.counting.delays.add(shard, &batch.stalls, batch.told_until, &batch.requests);
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
            judging.take(&mut batch.exchanges);
            judging.judge_before(self.levels.merged_until(), keep_in(self.write_queue));
        }
        self.put_rows(batch);
    }

    /// Compares the load's records with the capture.
    fn compare_with_wire(&mut self, batch: &Batch) {
        let Some(wire) = &mut self.wire else { return };
        wire.take_waiting();
        if let Some(agreement) = wire.book.agreement() {
            if batch.unpaired {
                agreement.overflow();
            }
            batch.called.iter().for_each(|call| agreement.load_called(call));
            batch.requests.iter().for_each(|request| agreement.load_request(request));
            batch.connections.iter().for_each(|end| agreement.load_connection(end));
        }
        let now = sys::clock::monotonic_ns();
        if now - self.part_closed > PART_EVERY.as_nanos() as u64 {
            self.part_closed = now;
            wire.book.close_parts();
        }
    }

    /// Stores the batch's rows, and provisional rows of the series: the exact series replaces them at the end.
    fn put_rows(&mut self, batch: &Batch) {
        let Some(write_queue) = self.write_queue else { return };
        write_queue.put(&batch.requests);
        write_queue.put(&batch.counted);
        self.boundaries.look(&self.progress);
        loop {
            let end = Timestamp::from_nanos((self.second + 1) * 1_000_000_000);
            if end > self.levels.next_unmerged() || !(batch.last || self.boundaries.reach(end)) {
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
    fn write_snapshot(&self, room: &Room) {
        if let (Some(standing), Some(write_queue)) = (&self.standing, self.write_queue) {
            let table = Kept { rows: 0, one_in: room.share.one_in() };
            write_queue.put_standing(standing(&self.counting, self.wire.as_ref().map(|wire| &wire.book), table));
        }
    }

    /// All loops have ended.
    fn finish(self) -> Recorded {
        let Counts { write_queue, mut counting, levels, judging, folder, wire, late, .. } = self;
        late.finish(&mut counting);
        let cache = judging.map(|judging| judging.finish(keep_in(write_queue)));
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
        let levels = levels.finish();
        Recorded { counting, levels, folder, wire, store_error, table: None, cache, exchanges_left_out: unverified }
    }
}

/// Stores verified exchanges.
fn keep_in(write_queue: Option<&WriteQueue>) -> impl Fn(&[CacheExchange]) + Copy + '_ {
    move |judged| {
        if let Some(write_queue) = write_queue {
            write_queue.put_exchanges(judged);
        }
    }
}

#[cfg(test)]
mod tests;
