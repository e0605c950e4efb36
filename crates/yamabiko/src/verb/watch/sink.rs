//! Writes finished records into the summary, the run's folder and the log files.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use schema::{ConnectionRecord, QuicConnectionRecord, WatchSecond, WireRequest};
use store::{ConnectionsWriter, QuicConnectionsWriter, RunFolder, WatchSeriesWriter, WireRequestsWriter};
use units::Timestamp;
use watch::{Summary, Watch};

use super::logs::Logs;
use super::pcapng::Recorder;
use crate::args;

/// Collects records from the analysis as connections close. A full disk ends the writing, not the capture.
pub struct Sink<'a> {
    /// Sums of all records.
    pub summary: Summary,
    /// Writes packets into a pcapng file (`--pcapng`).
    pub recorder: Option<Recorder<'a>>,
    output: Output,
    /// Seconds that are not yet shown or sent; `None` if the capture is not live.
    new_seconds: Option<Vec<WatchSecond>>,
    batch: Batch,
}

/// The thread that writes files. A live capture writes on the capturing thread, which has time between packets. For a
/// capture file a separate thread writes, so that reading and writing overlap.
enum Output {
    SameThread(Box<Files>),
    OwnThread(FileThread),
}

/// Records that are not yet written.
#[derive(Default)]
struct Batch {
    connections: Vec<ConnectionRecord>,
    quic_connections: Vec<QuicConnectionRecord>,
    requests: Vec<WireRequest>,
    seconds: Vec<WatchSecond>,
}

/// Tables and logs, and the first failure to write.
struct Files {
    tables: Option<Tables>,
    logs: Logs,
    failure: Option<anyhow::Error>,
}

struct Tables {
    connections: ConnectionsWriter,
    quic_connections: QuicConnectionsWriter,
    requests: WireRequestsWriter,
    series: WatchSeriesWriter,
}

impl<'a> Sink<'a> {
    /// Creates the files. With `is_live`, seconds are retained for [`Sink::new_seconds`].
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn new(
        folder: Option<&RunFolder>,
        arguments: &args::Watch,
        is_live: bool,
        recorder: Option<Recorder<'a>>,
    ) -> Result<Sink<'a>> {
        let files = Box::new(Files {
            tables: folder.map(|folder| Tables {
                connections: folder.connections(),
                quic_connections: folder.quic_connections(),
                requests: folder.wire_requests(),
                series: folder.watch_series(),
            }),
            logs: Logs::create(arguments)?,
            failure: None,
        });
        let has_own_thread = !is_live && (files.tables.is_some() || !files.logs.is_empty());
        Ok(Sink {
            summary: Summary::new(),
            recorder,
            new_seconds: is_live.then(Vec::new),
            output: if has_own_thread {
                Output::OwnThread(FileThread::start(files)?)
            } else {
                Output::SameThread(files)
            },
            batch: Batch::default(),
        })
    }

    /// Moves all finished records out of the analysis into the summary and the files.
    pub fn collect(&mut self, watch: &mut Watch) {
        let batch = &mut self.batch;
        watch.take_connections(&mut batch.connections);
        watch.take_quic_connections(&mut batch.quic_connections);
        watch.take_requests(&mut batch.requests);
        watch.take_seconds(&mut batch.seconds);
        self.summary.add_connections(&batch.connections);
        self.summary.add_quic_connections(&batch.quic_connections);
        self.summary.add_requests(&batch.requests);
        self.summary.add_seconds(&batch.seconds);
        if let Some(new_seconds) = &mut self.new_seconds {
            new_seconds.extend(&batch.seconds);
        }
        match &mut self.output {
            Output::SameThread(files) => files.write_batch(batch),
            Output::OwnThread(thread) => thread.queue(batch),
        }
    }

    /// The seconds that ended since the last call; empty if the capture is not live.
    pub fn new_seconds(&mut self) -> Vec<WatchSecond> {
        self.new_seconds.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes the tables' parts: a crash loses only records after this call. Returns a failure of the packet file once,
    /// when it happens.
    pub fn second_passed(&mut self) -> Option<String> {
        if let Output::SameThread(files) = &mut self.output {
            files.second_passed();
        }
        self.recorder.as_mut().and_then(Recorder::second_passed)
    }

    /// Completes every file. The capture lost `drops` packets and ended at `at`.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(mut self, drops: u64, at: Timestamp) -> Result<()> {
        let recorded = self.recorder.take().map_or(Ok(()), |recorder| recorder.finish(drops, at));
        match self.output {
            Output::SameThread(files) => files.finish()?,
            Output::OwnThread(thread) => thread.join().finish()?,
        }
        recorded
    }
}

impl Files {
    /// Writes a batch and empties it.
    fn write_batch(&mut self, batch: &mut Batch) {
        if self.failure.is_none() {
            self.failure = self.write(batch).err();
        }
        batch.clear();
    }

    fn write(&mut self, batch: &mut Batch) -> Result<()> {
        self.logs.write(&batch.requests)?;
        if let Some(tables) = &mut self.tables {
            tables.connections.append(&mut batch.connections)?;
            tables.quic_connections.append(&mut batch.quic_connections)?;
            tables.requests.append(&mut batch.requests)?;
            tables.series.append(&mut batch.seconds)?;
        }
        Ok(())
    }

    fn second_passed(&mut self) {
        let outcome = self.tables.as_mut().map_or(Ok(()), |tables| {
            tables.connections.close_part()?;
            tables.quic_connections.close_part()?;
            tables.requests.close_part()?;
            tables.series.close_part()
        });
        if self.failure.is_none() {
            self.failure = outcome.map_err(anyhow::Error::from).and_then(|()| self.logs.flush()).err();
        }
    }

    fn finish(mut self) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.logs.flush()?;
        if let Some(tables) = self.tables {
            tables.connections.finish()?;
            tables.quic_connections.finish()?;
            tables.requests.finish()?;
            tables.series.finish()?;
        }
        Ok(())
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.connections.is_empty()
            && self.quic_connections.is_empty()
            && self.requests.is_empty()
            && self.seconds.is_empty()
    }

    fn clear(&mut self) {
        self.connections.clear();
        self.quic_connections.clear();
        self.requests.clear();
        self.seconds.clear();
    }
}

/// A thread that writes the files.
struct FileThread {
    /// Batches to write.
    full: SyncSender<Batch>,
    /// Written batches, for reuse.
    empty: Receiver<Batch>,
    thread: JoinHandle<Box<Files>>,
}

impl FileThread {
    fn start(mut files: Box<Files>) -> Result<FileThread> {
        let (full, batches) = sync_channel::<Batch>(QUEUED_BATCHES_MAX);
        let (done, empty) = channel();
        let write = move || {
            for mut batch in batches {
                files.write_batch(&mut batch);
                // At the end the receiver no longer exists.
                let _ = done.send(batch);
            }
            files
        };
        let thread = thread::Builder::new().name("files".into()).spawn(write).context("starting a thread")?;
        Ok(FileThread { full, empty, thread })
    }

    /// Queues a batch for writing and leaves an empty one. Waits while the queue is full, so that memory is bounded.
    fn queue(&mut self, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_default();
        // It fails only if the thread panicked; `join` passes the panic on.
        let _ = self.full.send(std::mem::replace(batch, next));
    }

    /// Waits until every queued batch is written.
    fn join(self) -> Files {
        drop(self.full);
        match self.thread.join() {
            Ok(files) => *files,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Most batches that wait for the file thread.
const QUEUED_BATCHES_MAX: usize = 2;
