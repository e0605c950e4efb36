//! The source of metrics: seconds of a run, and its figures as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use schema::document::{Load, Path as PathPart};
use schema::progress::{LoadProgress, PathProgress, RunProgress};
use schema::{DistributionRecord, Document, Quantiles, SecondRecord, ServerSecond, Validity, WatchSecond};

use super::spread::{self, BucketHistogram};

/// A run, running or ended, for [`super::metrics()`]. Absent parts are empty.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The run's name.
    pub run: String,
    /// Wall clock at the run's zero, in ms since 1970.
    pub zero_unix_ms: u64,
    /// Seconds counted by the load generator.
    pub series: Vec<SecondRecord>,
    /// Seconds of the packet capture.
    pub watch_series: Vec<WatchSecond>,
    /// Seconds of the server's resource usage.
    pub server_series: Vec<ServerSecond>,
    /// Response times by second.
    pub times: BTreeMap<u32, BucketHistogram>,
    /// Figures of the measured phase, so far during the run.
    pub measured: Option<Measured>,
    /// Configured round-trip times, one per client.
    pub configured_rtt_ns: Option<Quantiles>,
    /// Round-trip times of handshakes.
    pub measured_rtt_ns: Option<Quantiles>,
    /// Packets that the path dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// The validity, provisional during the run.
    pub validity: Option<Validity>,
}

/// Figures of the measured phase so far.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Requests scheduled in the measured phase.
    pub offered: u64,
    /// Scheduled requests with a complete response.
    pub completed: u64,
    /// Failed requests by cause.
    pub failed: BTreeMap<String, u64>,
    /// Responses by status.
    pub status: BTreeMap<String, u64>,
    /// Response time: done - scheduled.
    pub response_time_ns: Quantiles,
    /// Send lag: started - scheduled.
    pub send_lag_ns: Quantiles,
}

impl From<&Load> for Measured {
    fn from(load: &Load) -> Self {
        Measured {
            offered: load.offered_requests,
            completed: load.completed,
            failed: load.failed.clone(),
            status: load.status.clone(),
            response_time_ns: load.response_time_ns,
            send_lag_ns: load.send_lag_ns,
        }
    }
}

impl From<&LoadProgress> for Measured {
    fn from(load: &LoadProgress) -> Self {
        Measured {
            offered: load.offered,
            completed: load.completed,
            failed: load.failed.clone(),
            status: load.status.clone(),
            response_time_ns: load.response_time_ns,
            send_lag_ns: load.send_lag_ns,
        }
    }
}

impl Figures {
    /// Figures of a run that ended, without its seconds.
    pub fn of_document(document: &Document) -> Self {
        let path: Option<&PathPart> = document.path.as_ref();
        Figures {
            run: document.run.id.clone(),
            zero_unix_ms: store::unix_ms(&document.run.started_at).unwrap_or_default(),
            measured: document.load.as_ref().map(Measured::from),
            configured_rtt_ns: path.map(|path| path.configured_rtt_ns),
            measured_rtt_ns: path.and_then(|path| path.measured_rtt_ns),
            drops: path.map(|path| path.drops.clone()).unwrap_or_default(),
            validity: Some(document.validity.clone()),
            ..Figures::default()
        }
    }

    /// Figures of a running run, without its seconds.
    pub fn of_progress(progress: &RunProgress) -> Self {
        let path: Option<&PathProgress> = progress.path.as_ref();
        Figures {
            run: progress.run.clone(),
            zero_unix_ms: store::unix_ms(&progress.started_at).unwrap_or_default(),
            measured: progress.load.as_ref().map(Measured::from),
            configured_rtt_ns: path.map(|path| path.configured_rtt_ns),
            measured_rtt_ns: path.and_then(|path| path.measured_rtt_ns),
            drops: path.map(|path| path.drops.clone()).unwrap_or_default(),
            validity: progress.validity.clone(),
            ..Figures::default()
        }
    }

    /// Adds the response times by second from the table of distributions.
    pub fn with_distributions(mut self, rows: &[DistributionRecord]) -> Self {
        self.times = spread::of_seconds(rows);
        self
    }

    /// Reads a run that ended. For a run without a table of distributions, response times are counted from its
    /// requests, if the table of requests is complete.
    ///
    /// # Errors
    /// The run has no document, or a table cannot be read.
    pub fn read(dir: &Path) -> store::Result<Figures> {
        let document = store::read_summary(dir)?;
        let mut figures = Figures::of_document(&document);
        figures.series = store::read_series(dir)?.collect::<store::Result<_>>()?;
        figures.watch_series = store::read_watch_series(dir)?.collect::<store::Result<_>>()?;
        figures.server_series = store::read_server_series(dir)?.collect::<store::Result<_>>()?;
        let distributions: Vec<DistributionRecord> = store::read_distributions(dir)?.collect::<store::Result<_>>()?;
        figures = figures.with_distributions(&distributions);
        if figures.times.is_empty() && document.run.recorded.is_some_and(|recorded| recorded.one_in == 1) {
            for row in store::read_requests(dir)? {
                let row = row?;
                if row.failure.is_none() {
                    let second = (row.done_at.as_nanos() / 1_000_000_000) as u32;
                    let time = row.response_time_ns();
                    figures.times.entry(second).or_default().add(time, time, 1);
                }
            }
        }
        Ok(figures)
    }
}
