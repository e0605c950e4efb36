//! Where finished records go: the summary, the run's folder, the logs.

use anyhow::Result;
use ledger::{ConnectionRecord, WatchSecond, WireRequest};
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
    tables: Option<Tables>,
    logs: Logs,
    /// Seconds for whoever shows or sends them; kept for a live watch only.
    fresh: Option<Vec<WatchSecond>>,
    failure: Option<anyhow::Error>,
    connections: Vec<ConnectionRecord>,
    requests: Vec<WireRequest>,
    seconds: Vec<WatchSecond>,
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
        Ok(Sink {
            summary: Summary::new(),
            recorder,
            fresh: is_live.then(Vec::new),
            tables: folder.map(|folder| Tables {
                connections: folder.connections(),
                requests: folder.wire_requests(),
                series: folder.watch_series(),
            }),
            logs: Logs::create(arguments)?,
            failure: None,
            connections: Vec::new(),
            requests: Vec::new(),
            seconds: Vec::new(),
        })
    }

    /// Takes everything that was finished.
    pub fn take(&mut self, watch: &mut Watch) {
        watch.take_connections(&mut self.connections);
        watch.take_requests(&mut self.requests);
        watch.take_seconds(&mut self.seconds);
        self.summary.add_connections(&self.connections);
        self.summary.add_requests(&self.requests);
        self.summary.add_seconds(&self.seconds);
        if let Some(fresh) = &mut self.fresh {
            fresh.extend(&self.seconds);
        }
        if self.failure.is_none()
            && let Err(error) = self.write()
        {
            self.fail(error);
        }
        self.connections.clear();
        self.requests.clear();
        self.seconds.clear();
    }

    /// The seconds that ended since the last call.
    pub fn fresh(&mut self) -> Vec<WatchSecond> {
        self.fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes the tables' parts: what a crash can cost is what came since. Gives what has just failed, if something
    /// has.
    pub fn second_passed(&mut self) -> Option<String> {
        let outcome = self.tables.as_mut().map_or(Ok(()), |tables| {
            tables.connections.close_part()?;
            tables.requests.close_part()?;
            tables.series.close_part()
        });
        if self.failure.is_none()
            && let Err(error) = outcome.map_err(anyhow::Error::from).and_then(|()| self.logs.flush())
        {
            self.fail(error);
        }
        self.recorder.as_mut().and_then(Recorder::second_passed)
    }

    /// Completes every file; `drops` packets were lost by the capture, which ended at `at`.
    ///
    /// # Errors
    /// The first that something could not be written with.
    pub fn finish(mut self, drops: u64, at: Timestamp) -> Result<()> {
        let recorded = self.recorder.take().map_or(Ok(()), |recorder| recorder.finish(drops, at));
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.logs.flush()?;
        if let Some(tables) = self.tables {
            tables.connections.finish()?;
            tables.requests.finish()?;
            tables.series.finish()?;
        }
        recorded
    }

    fn write(&mut self) -> Result<()> {
        self.logs.write(&self.requests)?;
        if let Some(tables) = &mut self.tables {
            tables.connections.push(&self.connections)?;
            tables.requests.push(&self.requests)?;
            tables.series.push(&self.seconds)?;
        }
        Ok(())
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.failure.get_or_insert(error);
    }
}
