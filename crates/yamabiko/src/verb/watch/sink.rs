//! Where finished records go: the summary, the run's folder, the logs.

use anyhow::Result;
use ledger::{ConnectionRecord, WatchSecond, WireRequest};
use store::{ConnectionsWriter, RunFolder, WatchSeriesWriter, WireRequestsWriter};
use watch::{Summary, Watch};

use super::logs::Logs;
use crate::args;

/// Takes records from the analysis as they close. A full disk ends the writing, not the watching.
pub struct Sink {
    /// Sums of all of them.
    pub summary: Summary,
    /// The last second that ended.
    pub last_second: WatchSecond,
    tables: Option<Tables>,
    logs: Logs,
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

impl Sink {
    /// Creates the files.
    ///
    /// # Errors
    /// A log file cannot be created.
    pub fn new(folder: Option<&RunFolder>, arguments: &args::Watch) -> Result<Sink> {
        Ok(Sink {
            summary: Summary::new(),
            last_second: WatchSecond::default(),
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
        self.last_second = self.seconds.last().copied().unwrap_or(self.last_second);
        if self.failure.is_none()
            && let Err(error) = self.write()
        {
            self.fail(error);
        }
        self.connections.clear();
        self.requests.clear();
        self.seconds.clear();
    }

    /// Closes the tables' parts: what a crash can cost is what came since.
    pub fn second_passed(&mut self) {
        let outcome = self.tables.as_mut().map_or(Ok(()), |tables| {
            tables.connections.close_part()?;
            tables.requests.close_part()?;
            tables.series.close_part()
        });
        if let Err(error) = outcome.map_err(anyhow::Error::from).and_then(|()| self.logs.flush()) {
            self.fail(error);
        }
    }

    /// Completes every file.
    ///
    /// # Errors
    /// The first that something could not be written with.
    pub fn finish(mut self) -> Result<()> {
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
