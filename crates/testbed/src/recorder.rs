//! The recorder: a thread beside the loops that counts every record, and one beside it that keeps them.
//!
//! ```text
//!   lane 0 --Batch-->                        --rows, if the table keeps them--> Shelf --> writer --> Parquet
//!   lane 1 --Batch-->  recorder: counts, levels, agreement with the wire, judgement of a mix
//!   ..                                       --> figures, when all lanes have ended
//! ```
//!
//! No lane waits for the recorder, and the recorder waits for no disk. What is counted is exact whatever happens: a lane
//! that finds no room counts by itself ([`handover`]); only exchanges of a mix, which no lane can judge, are then left out,
//! and counted. What is kept is a stated, even share of the requests where the disk
//! cannot take all ([`share`]). Memory: some 100 MB waiting for the recorder and as much for the writer, at most.

pub mod batch;
mod boundaries;
pub mod counting;
pub mod handover;
pub mod judging;
pub mod share;
pub mod shelf;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use load::{ConnectionEnd, LevelMerger, Levels};
use schema::{CacheExchange, CacheFigures, RequestRecord, RunProgress, ServerSecond};
use store::RunFolder;
use sys::sched::{Cores, Urgency};
use units::Timestamp;

use crate::drive::progress::Progress;
use crate::watching::queue::Inlet;
use crate::wire_book::WireBook;
use validity::evidence::{Kept, WireFigures};

use self::boundaries::Boundaries;
pub use batch::Batch;
pub use counting::Counting;
pub use handover::{Handover, Outlet, Room, WhenFull};
pub use judging::Judging;
#[cfg(test)]
use shelf::Part;
pub use shelf::{Shelf, Sink, Tables};

/// Records that may wait between the lanes and the recorder.
const WAITING_MAX: usize = 512 << 10;
/// Emptied batches that may wait for a lane to use them again.
const SPARE_MAX: usize = 64;
/// Parts of the wire's tables are closed about this often.
const PART_EVERY: Duration = Duration::from_millis(1500);
/// What is written for those who look on is of about this often.
const STANDING_EVERY: Duration = Duration::from_secs(1);

/// The wire's records and what is made of them.
pub struct WireSide {
    /// Where they go.
    pub book: WireBook,
    /// Where they come from; hung up by the watching thread at its end.
    pub records: Inlet,
}

/// What the recorder starts from.
pub struct Recording {
    /// Number of lanes.
    pub lanes: usize,
    /// Nothing counted yet; made anew for each lane that has to count by itself.
    pub counting: Arc<dyn Fn() -> Counting + Send + Sync>,
    /// No level sampled yet, for as many lanes.
    pub levels: LevelMerger,
    /// Judges the exchanges, where the load is a mix.
    pub judging: Option<Judging>,
    /// The measured phase as far as it is known.
    pub measured_end: Option<Timestamp>,
    /// The run's progress: says when a stop was asked for.
    pub progress: Arc<Progress>,
    /// The run's folder, if the run is kept.
    pub folder: Option<RunFolder>,
    /// The wire's side, where it is watched.
    pub wire: Option<WireSide>,
    /// Where the recorder runs.
    pub cores: Option<Cores>,
    /// Says how the run stands, if it is kept: from the counts, the wire's figures, and the table so far.
    pub standing: Option<StandingNow>,
}

/// Puts together how a run stands.
pub type StandingNow = Box<dyn Fn(&Counting, Option<&WireBook>, Kept) -> RunProgress + Send>;

/// What the recorder has when the lanes are done.
pub struct Recorded {
    /// The counts, of all requests.
    pub counting: Counting,
    /// The levels of all lanes together.
    pub levels: Levels,
    /// The run's folder with the finished tables.
    pub folder: Option<RunFolder>,
    /// What the wire showed, where it was watched.
    pub wire: Option<WireFigures>,
    /// The first error of writing; the counts are exact all the same.
    pub store_error: Option<String>,
    /// The table of requests, if one was kept.
    pub table: Option<Kept>,
    /// What the mix found out about caches, where the load is one.
    pub cache: Option<CacheFigures>,
    /// Exchanges of the mix that are not in their table, for want of room or of a disk that takes them.
    pub exchanges_left_out: u64,
}

/// The recorder's threads.
pub struct Recorder {
    thread: JoinHandle<Recorded>,
    writer: Option<JoinHandle<(u64, Option<String>)>>,
    room: Arc<Room>,
    shelf: Option<Arc<Shelf>>,
}

impl Recorder {
    /// Starts the threads, with low urgency; an outlet for each lane. The recorder ends when all outlets are dropped.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(recording: Recording) -> std::io::Result<(Vec<Outlet>, Self)> {
        let sink = recording.folder.as_ref().map(|folder| Box::new(Tables::of(folder)) as Box<dyn Sink>);
        Recorder::start_with(recording, sink, WAITING_MAX, shelf::ROWS_MAX)
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
        for lane in 0..recording.lanes {
            let (spare, outlet) = outlet(lane, sender.clone(), &room, &recording.counting);
            spares.push(spare);
            outlets.push(outlet);
        }
        drop(sender);
        let shelf = sink.as_ref().map(|_| Arc::new(Shelf::new(rows_max, Arc::clone(&room.share))));
        let cores = recording.cores.clone();
        let thread = {
            let (room, shelf) = (Arc::clone(&room), shelf.clone());
            std::thread::Builder::new().name("recorder".into()).spawn(move || {
                settle(recording.cores.as_ref());
                record(recording, &room, shelf.as_deref(), &receiver, &spares)
            })?
        };
        let writer = match sink.zip(shelf.clone()) {
            None => None,
            Some((sink, shelf)) => Some(std::thread::Builder::new().name("writer".into()).spawn(move || {
                settle(cores.as_ref());
                shelf.write_all(sink)
            })?),
        };
        Ok((outlets, Recorder { thread, writer, room, shelf }))
    }

    /// Keeps a second of the server's account, provisionally: the whole series comes at the end.
    pub fn keep_server_second(&self, second: ServerSecond) {
        if let Some(shelf) = &self.shelf {
            shelf.put_server_second(second);
        }
    }

    /// Waits until every record handed over is counted and kept.
    ///
    /// # Panics
    /// If the recorder itself panicked: a broken invariant, not a condition of the machine.
    pub fn join(self) -> Recorded {
        let mut recorded = self.thread.join().expect("the recorder does not panic");
        if let Some(writer) = self.writer {
            let (rows, error) = writer.join().expect("the writer does not panic");
            recorded.store_error = recorded.store_error.or(error);
            recorded.table = Some(Kept { rows, one_in: self.room.share.one_in() });
        }
        recorded.exchanges_left_out += self.shelf.map_or(0, |shelf| shelf.left_out());
        recorded
    }
}

/// One lane's outlet, and the way back for its batches.
fn outlet(
    lane: usize,
    sender: Sender<(usize, Batch)>,
    room: &Arc<Room>,
    counting: &Arc<dyn Fn() -> Counting + Send + Sync>,
) -> (SyncSender<Batch>, Outlet) {
    let (give_back, spare) = sync_channel(SPARE_MAX);
    let counting = Arc::clone(counting);
    let when_full = WhenFull::Count(Box::new(move || counting()));
    (give_back, Outlet::new(lane, sender, spare, Arc::clone(room), when_full))
}

fn settle(cores: Option<&Cores>) {
    if let Some(cores) = cores {
        // Not being pinned costs precision, not correctness.
        let _ = cores.pin_this_thread();
    }
    Urgency::Low.apply_to_this_thread();
}

impl WireSide {
    /// Takes in what has come so far.
    fn take_waiting(&mut self) {
        while let Some(batch) = self.records.try_take() {
            self.book.take(batch);
        }
    }

    /// Takes in everything, up to the watching thread's end. The figures, and the first error of writing.
    pub fn into_figures(self) -> (WireFigures, Option<String>) {
        self.into_figures_told(|_| {})
    }

    /// The same, and tells now and then how far it is.
    pub fn into_figures_told(mut self, mut tell: impl FnMut(&WireBook)) -> (WireFigures, Option<String>) {
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

/// The end of the run's measured phase, from its lanes'. A stop that was asked for ends it for all of them at the moment
/// that it names, before any of them has said so. Otherwise it ends with the last lane's: they differ only where each has
/// its own number of requests to make.
fn measured_end(lanes: &[Option<Timestamp>], stop_at: Option<Timestamp>) -> Option<Timestamp> {
    let last = lanes.iter().copied().collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
    [last, stop_at].into_iter().flatten().min()
}

/// What ended after its own lane's phase while others had not told the end of theirs: whether that was within the run's phase is
/// known when all have. As much as was in flight in these lanes, at most.
#[derive(Default)]
struct Late {
    requests: Vec<RequestRecord>,
    connections: Vec<ConnectionEnd>,
}

impl Late {
    /// Counts what can be counted of a batch. `run_end`: the end of the run's phase, as far as it is known; it may come
    /// earlier, but not before that of any lane.
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

    /// All lanes have ended, and `counting` has the end of the run's phase.
    fn finish(self, counting: &mut Counting) {
        self.requests.iter().for_each(|request| counting.add_request(request));
        self.connections.iter().for_each(|end| counting.add_connection(end));
    }
}

/// The recorder's thread: takes batches until no loop is left.
fn record(
    recording: Recording,
    room: &Room,
    shelf: Option<&Shelf>,
    receiver: &Receiver<(usize, Batch)>,
    spares: &[SyncSender<Batch>],
) -> Recorded {
    let mut counts = Counts::new(recording, shelf);
    let mut snapshot_at = sys::clock::monotonic_ns();
    loop {
        // A load that waits for its first answers reports nothing, and its snapshot is written all the same.
        match receiver.recv_timeout(STANDING_EVERY) {
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
            Ok((lane, mut batch)) => {
                room.took(batch.takes());
                counts.take(lane, &mut batch);
                batch.clear();
                // A full return queue only means that the batch is freed instead of used again.
                let _ = spares[lane].try_send(batch);
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

/// Everything that is counted and kept of the batches so far.
struct Counts<'a> {
    shelf: Option<&'a Shelf>,
    counting: Counting,
    levels: LevelMerger,
    judging: Option<Judging>,
    progress: Arc<Progress>,
    folder: Option<RunFolder>,
    wire: Option<WireSide>,
    standing: Option<StandingNow>,
    /// The measured phase's end as each loop knows it.
    ends: Vec<Option<Timestamp>>,
    late: Late,
    /// When parts of the wire's tables were closed last.
    part_closed: u64,
    /// Seconds of the series that were put.
    second: u64,
    boundaries: Boundaries,
}

impl<'a> Counts<'a> {
    fn new(recording: Recording, shelf: Option<&'a Shelf>) -> Self {
        let Recording { counting, levels, judging, progress, folder, wire, standing, lanes, measured_end, .. } =
            recording;
        Counts {
            shelf,
            counting: counting(),
            levels,
            judging,
            progress,
            folder,
            wire,
            standing,
            ends: vec![measured_end; lanes],
            late: Late::default(),
            part_closed: sys::clock::monotonic_ns(),
            second: 0,
            boundaries: Boundaries::default(),
        }
    }

    /// Counts and keeps one batch of loop `lane`.
    fn take(&mut self, lane: usize, batch: &mut Batch) {
        self.ends[lane] = batch.measured_end;
        let end = measured_end(&self.ends, self.progress.stop_at());
        if let Some(end) = end {
            self.counting.set_measured_end(end);
            self.levels.set_measured_end(end);
            if let Some(judging) = &mut self.judging {
                judging.set_measured_end(end);
            }
        }
        self.late.count(batch, end, &mut self.counting);
        self.counting.delays.add(lane, &batch.stalls, batch.told_until, &batch.requests);
        self.levels.add(lane, &batch.samples);
        if batch.last {
            self.levels.end(lane);
            self.counting.delays.end(lane);
        }
        if let Some(counts) = batch.counts.take() {
            self.counting.merge(*counts);
        }
        self.compare_with_wire(batch);
        if let Some(judging) = &mut self.judging {
            judging.leave_out(std::mem::take(&mut batch.unverified));
            judging.take(&mut batch.exchanges);
            judging.judge_before(self.levels.told_until(), keep_in(self.shelf));
        }
        self.put_rows(batch);
    }

    /// Holds the load's records against what packets showed.
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

    /// Keeps the batch's rows, and rows of the series as they stand: the exact series comes at the end.
    fn put_rows(&mut self, batch: &Batch) {
        let Some(shelf) = self.shelf else { return };
        shelf.put(&batch.requests);
        shelf.put(&batch.counted);
        self.boundaries.look(&self.progress);
        loop {
            let end = Timestamp::from_nanos((self.second + 1) * 1_000_000_000);
            if end > self.levels.next_moment() || !(batch.last || self.boundaries.reach(end)) {
                break;
            }
            let level = self.levels.second(self.second as usize);
            let mut row = self.counting.second(self.second as u32, level);
            self.boundaries.complete(&mut row, end);
            shelf.put_second(row, self.counting.tally.distribution(self.second as u32));
            self.second += 1;
        }
    }

    /// Writes a progress snapshot, where the run is kept.
    fn write_snapshot(&self, room: &Room) {
        if let (Some(standing), Some(shelf)) = (&self.standing, self.shelf) {
            let table = Kept { rows: 0, one_in: room.share.one_in() };
            shelf.put_standing(standing(&self.counting, self.wire.as_ref().map(|wire| &wire.book), table));
        }
    }

    /// No loop is left.
    fn finish(self) -> Recorded {
        let Counts { shelf, mut counting, levels, judging, folder, wire, late, .. } = self;
        late.finish(&mut counting);
        let cache = judging.map(|judging| judging.finish(keep_in(shelf)));
        let unverified = cache.as_ref().map_or(0, |cache| cache.unverified);
        if let Some(shelf) = shelf {
            shelf.close();
        }
        let mut store_error = None;
        // The load has ended; the wire goes on until its last packets are in.
        let wire = wire.map(|wire| {
            let (figures, error) = wire.into_figures();
            store_error = error;
            figures
        });
        let levels = levels.finish();
        Recorded { counting, levels, folder, wire, store_error, table: None, cache, exchanges_left_out: unverified }
    }
}

/// Keeps exchanges that were judged.
fn keep_in(shelf: Option<&Shelf>) -> impl Fn(&[CacheExchange]) + Copy + '_ {
    move |judged| {
        if let Some(shelf) = shelf {
            shelf.put_exchanges(judged);
        }
    }
}

#[cfg(test)]
mod tests;
