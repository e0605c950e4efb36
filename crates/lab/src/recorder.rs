//! The recorder: a thread beside the loop that counts and keeps every record.
//!
//! The loop hands over batches and never waits: a batch that does not fit in the queue stays with the loop until the
//! next turn. Nothing is sampled; if the loop's own store overflows, the records lost are counted and the gate says so.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ledger::RequestRecord;
use load::{ConnectionEnd, LevelSampler, Load, SecondLevels, Tally};
use store::RunFolder;
use sys::sched::{Cores, Urgency};
use units::Timestamp;

use crate::handshakes::Handshakes;
use crate::watching::queue::Inlet;
use crate::wire_book::{WireBook, WireFigures};

/// Batches that may wait between loop and recorder.
const QUEUE: usize = 256;
/// The loop keeps at most so many records that the recorder could not take yet: 1 GB.
const KEPT_MAX: usize = 8 << 20;
/// A part is closed about this often, so that a killed run keeps all but its last moments.
const PART_EVERY: Duration = Duration::from_millis(1500);

#[derive(Default)]
struct Batch {
    requests: Vec<RequestRecord>,
    connections: Vec<ConnectionEnd>,
    /// Where new connections are on the wire.
    called: Vec<Called>,
    measured_end: Option<Timestamp>,
    /// Levels of the second that has just ended, if one has.
    second: Option<(u32, SecondLevels)>,
}

/// A connection on which connect was called, and where it is on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// Sequence number of the connection in the run.
    pub connection: u64,
    /// Index of its client.
    pub client: u32,
    /// The port that the kernel chose.
    pub port: u16,
    /// The address connected to.
    pub server: IpAddr,
}

/// The wire's records and what is made of them.
pub struct WireSide {
    /// Where they go.
    pub book: WireBook,
    /// Where they come from; hung up by the watching thread at its end.
    pub records: Inlet,
}

/// The loop's end of the recorder.
pub struct Handover {
    sender: SyncSender<Batch>,
    spare: Receiver<Batch>,
    kept: Batch,
    second: u32,
    lost: u64,
}

/// What the recorder has when the loop is done.
pub struct Recorded {
    /// The counts.
    pub tally: Tally,
    /// The run's folder with the finished tables.
    pub folder: Option<RunFolder>,
    /// Handshakes against the path's asked RTTs, where there is a path.
    pub handshakes: Option<Handshakes>,
    /// What the wire showed, where it was watched.
    pub wire: Option<WireFigures>,
    /// The first error of writing; the counts are exact all the same.
    pub store_error: Option<String>,
}

/// The recorder's thread.
pub struct Recorder(JoinHandle<Recorded>);

impl Handover {
    /// Notes where a connection is on the wire.
    pub fn note_called(&mut self, called: Called) {
        self.kept.called.push(called);
    }

    /// Takes what the load has finished and passes it on if there is room. Returns without waiting.
    pub fn pass(&mut self, load: &mut Load, sampler: &LevelSampler, now: Timestamp) {
        self.take(load);
        let second = (now.as_nanos() / 1_000_000_000) as u32;
        if second > self.second {
            // Where the recorder is a second behind, its provisional row is lost; the exact series comes at the end.
            self.kept.second = Some((self.second, sampler.second(self.second as usize)));
            self.second = second;
        }
        let kept = &self.kept;
        if kept.requests.is_empty() && kept.connections.is_empty() && kept.called.is_empty() && kept.second.is_none() {
            return;
        }
        let next = self.spare.try_recv().unwrap_or_default();
        match self.sender.try_send(std::mem::replace(&mut self.kept, next)) {
            Ok(()) => {}
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                self.kept = batch;
                if self.kept.requests.len() > KEPT_MAX {
                    self.lost += self.kept.requests.len() as u64;
                    self.kept.requests.clear();
                }
            }
        }
    }

    /// Waits until everything is passed on; only after the run.
    pub fn finish(mut self, load: &mut Load) -> u64 {
        self.take(load);
        if self.sender.send(std::mem::take(&mut self.kept)).is_err() {
            self.lost += 1;
        }
        self.lost
    }

    fn take(&mut self, load: &mut Load) {
        load.take_records(&mut self.kept.requests);
        load.take_connections(&mut self.kept.connections);
        self.kept.measured_end = load.measured().1;
    }
}

impl Recorder {
    /// Starts the thread on `cores`, with low urgency.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(
        tally: Tally,
        folder: Option<RunFolder>,
        handshakes: Option<Handshakes>,
        wire: Option<WireSide>,
        cores: Option<Cores>,
    ) -> std::io::Result<(Handover, Self)> {
        let (sender, receiver) = sync_channel(QUEUE);
        let (give_back, spare) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            if let Some(cores) = cores {
                // Not being pinned costs precision, not correctness.
                let _ = cores.pin_this_thread();
            }
            Urgency::Low.apply_to_this_thread();
            record(tally, folder, handshakes, wire, &receiver, &give_back)
        })?;
        Ok((Handover { sender, spare, kept: Batch::default(), second: 0, lost: 0 }, Recorder(thread)))
    }

    /// Waits until every record handed over is counted and kept.
    ///
    /// # Panics
    /// If the recorder itself panicked: a broken invariant, not a condition of the machine.
    pub fn join(self) -> Recorded {
        self.0.join().expect("the recorder does not panic")
    }
}

impl WireSide {
    /// Takes in what has come so far.
    fn take_waiting(&mut self) {
        while let Some(batch) = self.records.try_take() {
            self.book.take(batch);
        }
    }

    /// Takes in everything, up to the watching thread's end. The figures, and the first error of writing.
    pub fn into_figures(mut self) -> (WireFigures, Option<String>) {
        let mut part_closed = sys::clock::monotonic_ns();
        while let Some(batch) = self.records.take() {
            self.book.take(batch);
            let now = sys::clock::monotonic_ns();
            if now - part_closed > PART_EVERY.as_nanos() as u64 {
                part_closed = now;
                self.book.close_parts();
            }
        }
        self.book.finish()
    }
}

fn record(
    mut tally: Tally,
    folder: Option<RunFolder>,
    mut handshakes: Option<Handshakes>,
    mut wire: Option<WireSide>,
    receiver: &Receiver<Batch>,
    give_back: &SyncSender<Batch>,
) -> Recorded {
    let mut store_error = None;
    let mut writers = folder.as_ref().map(|folder| (folder.requests(), folder.series()));
    let mut part_closed = sys::clock::monotonic_ns();
    while let Ok(mut batch) = receiver.recv() {
        if let Some(end) = batch.measured_end {
            tally.set_measured_end(end);
        }
        for request in &batch.requests {
            tally.add_request(request);
            if let Some(handshakes) = &mut handshakes {
                handshakes.add(request);
            }
        }
        for connection in &batch.connections {
            tally.add_connection(connection);
        }
        if let Some(wire) = &mut wire {
            wire.take_waiting();
            if let Some(agreement) = wire.book.agreement() {
                batch.called.iter().for_each(|call| agreement.load_called(call));
                batch.requests.iter().for_each(|request| agreement.load_request(request));
                batch.connections.iter().for_each(|end| agreement.load_connection(end));
            }
        }
        let now = sys::clock::monotonic_ns();
        let part_is_due = now - part_closed > PART_EVERY.as_nanos() as u64;
        if part_is_due {
            part_closed = now;
            if let Some(wire) = &mut wire {
                wire.book.close_parts();
            }
        }
        if let Some((requests, series)) = &mut writers {
            let mut outcome = requests.push(&batch.requests);
            if let Some((second, levels)) = batch.second {
                outcome = outcome.and_then(|()| series.push(&[tally.second(second, levels)]));
            }
            if part_is_due {
                outcome = outcome.and_then(|()| requests.close_part()).and_then(|()| series.close_part());
            }
            if let Err(error) = outcome {
                store_error.get_or_insert_with(|| error.to_string());
            }
        }
        batch.requests.clear();
        batch.connections.clear();
        batch.called.clear();
        batch.second = None;
        // A full return queue only means that the batch is freed instead of used again.
        let _ = give_back.try_send(batch);
    }
    if let Some((requests, _)) = writers
        && let Err(error) = requests.finish()
    {
        store_error.get_or_insert_with(|| error.to_string());
    }
    // The load has ended; the wire goes on until its last packets are in.
    let wire = wire.map(|wire| {
        let (figures, error) = wire.into_figures();
        if let Some(error) = error {
            store_error.get_or_insert(error);
        }
        figures
    });
    Recorded { tally, folder, handshakes, wire, store_error }
}
