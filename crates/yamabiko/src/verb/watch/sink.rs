//! Where finished records go: the summary, the run's folder, the logs.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use schema::{ConnectionRecord, WatchSecond, WireRequest};
use store::{ConnectionsWriter, RunFolder, WatchSeriesWriter, WireRequestsWriter};
use units::Timestamp;
use watch::{Summary, Watch};

use super::logs::Logs;
use super::pcapng::Recorder;
use crate::args;

/// Takes records from the analysis as they close. A full disk ends the writing, not the watching.
pub struct Sink<'a> {
    /// Sums of all of them.
    pub summary: Summary,
    /// Packets as they come.
    pub recorder: Option<Recorder<'a>>,
    output: Output,
    /// Seconds for whoever shows or sends them; kept for a live watch only.
    fresh: Option<Vec<WatchSecond>>,
    batch: Batch,
}

/// Where files are written: live on the thread that watches, which has time enough between packets; from a file on one
/// of its own, so that neither waits for the other.
enum Output {
    Here(Box<Files>),
    Apart(Apart),
}

/// Records on their way into the files.
#[derive(Default)]
struct Batch {
    connections: Vec<ConnectionRecord>,
    requests: Vec<WireRequest>,
    seconds: Vec<WatchSecond>,
}

/// The files, and what one of them could not be written with.
struct Files {
    tables: Option<Tables>,
    logs: Logs,
    failure: Option<anyhow::Error>,
}

struct Tables {
    connections: ConnectionsWriter,
    requests: WireRequestsWriter,
    series: WatchSeriesWriter,
}

impl<'a> Sink<'a> {
    /// Creates the files. A live watch asks for its seconds ([`Sink::fresh`]).
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
                requests: folder.wire_requests(),
                series: folder.watch_series(),
            }),
            logs: Logs::create(arguments)?,
            failure: None,
        });
        let is_apart = !is_live && (files.tables.is_some() || !files.logs.is_empty());
        Ok(Sink {
            summary: Summary::new(),
            recorder,
            fresh: is_live.then(Vec::new),
            output: if is_apart { Output::Apart(Apart::start(files)?) } else { Output::Here(files) },
            batch: Batch::default(),
        })
    }

    /// Takes everything that was finished.
    pub fn take(&mut self, watch: &mut Watch) {
        let batch = &mut self.batch;
        watch.take_connections(&mut batch.connections);
        watch.take_requests(&mut batch.requests);
        watch.take_seconds(&mut batch.seconds);
        self.summary.add_connections(&batch.connections);
        self.summary.add_requests(&batch.requests);
        self.summary.add_seconds(&batch.seconds);
        if let Some(fresh) = &mut self.fresh {
            fresh.extend(&batch.seconds);
        }
        match &mut self.output {
            Output::Here(files) => files.take(batch),
            Output::Apart(apart) => apart.take(batch),
        }
    }

    /// The seconds that ended since the last call.
    pub fn fresh(&mut self) -> Vec<WatchSecond> {
        self.fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes the tables' parts: what a crash can cost is what came since. Gives what has just failed, if something
    /// has.
    pub fn second_passed(&mut self) -> Option<String> {
        if let Output::Here(files) = &mut self.output {
            files.second_passed();
        }
        self.recorder.as_mut().and_then(Recorder::second_passed)
    }

    /// Completes every file; `drops` packets were lost by the capture, which ended at `at`.
    ///
    /// # Errors
    /// The first that something could not be written with.
    pub fn finish(mut self, drops: u64, at: Timestamp) -> Result<()> {
        let recorded = self.recorder.take().map_or(Ok(()), |recorder| recorder.finish(drops, at));
        match self.output {
            Output::Here(files) => files.finish()?,
            Output::Apart(apart) => apart.join().finish()?,
        }
        recorded
    }
}

impl Files {
    /// Writes a batch and empties it.
    fn take(&mut self, batch: &mut Batch) {
        if self.failure.is_none() {
            self.failure = self.write(batch).err();
        }
        batch.clear();
    }

    fn write(&mut self, batch: &mut Batch) -> Result<()> {
        self.logs.write(&batch.requests)?;
        if let Some(tables) = &mut self.tables {
            tables.connections.append(&mut batch.connections)?;
            tables.requests.append(&mut batch.requests)?;
            tables.series.append(&mut batch.seconds)?;
        }
        Ok(())
    }

    fn second_passed(&mut self) {
        let outcome = self.tables.as_mut().map_or(Ok(()), |tables| {
            tables.connections.close_part()?;
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
            tables.requests.finish()?;
            tables.series.finish()?;
        }
        Ok(())
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.requests.is_empty() && self.seconds.is_empty()
    }

    fn clear(&mut self) {
        self.connections.clear();
        self.requests.clear();
        self.seconds.clear();
    }
}

/// The files on a thread of their own.
struct Apart {
    full: SyncSender<Batch>,
    empty: Receiver<Batch>,
    thread: JoinHandle<Box<Files>>,
}

impl Apart {
    fn start(mut files: Box<Files>) -> Result<Apart> {
        let (full, batches) = sync_channel::<Batch>(BATCHES);
        let (done, empty) = channel();
        let write = move || {
            for mut batch in batches {
                files.take(&mut batch);
                // At the end nobody takes it.
                let _ = done.send(batch);
            }
            files
        };
        let thread = thread::Builder::new().name("files".into()).spawn(write).context("starting a thread")?;
        Ok(Apart { full, empty, thread })
    }

    /// Hands a batch over and leaves an empty one. Waits where the files are behind: memory stays bounded.
    fn take(&mut self, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_default();
        // It fails only if the thread panicked, which `join` tells.
        let _ = self.full.send(std::mem::replace(batch, next));
    }

    /// Waits until everything handed over was written.
    fn join(self) -> Files {
        drop(self.full);
        match self.thread.join() {
            Ok(files) => *files,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Batches that wait for the files.
const BATCHES: usize = 2;
