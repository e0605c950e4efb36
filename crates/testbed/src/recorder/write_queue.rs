//! Write queue between the recorder, which counts, and the writer, which waits for the disk.
//!
//! Bounded: if the disk is slower than the run, the share of stored requests is halved, and the queue is thinned to it.
//! Counts do not depend on it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schema::{CacheExchange, DistributionRecord, RequestRecord, RunProgress, SecondRecord, ServerSecond};
use store::{
    CacheExchangesWriter, DistributionsWriter, ProgressFile, RequestsWriter, RunFolder, SeriesWriter,
    ServerSeriesWriter,
};

use super::share::Share;

/// Most rows that wait for the writer: about 100 MB.
pub const ROWS_MAX: usize = 512 << 10;
/// Rows that the writer takes at a time: those of a part.
const ROWS_PER_PART: usize = 128 << 10;
/// Longest time before a part is closed. Parts are also closed with every progress snapshot, so that a killed run loses
/// only its last seconds.
const PART_INTERVAL_MAX: Duration = Duration::from_millis(1500);

/// Data written at a time.
#[derive(Debug, Default)]
pub struct Part {
    /// Rows of requests.
    pub requests: Vec<RequestRecord>,
    /// Provisional rows of the series.
    pub seconds: Vec<SecondRecord>,
    /// Distributions of the times of these seconds.
    pub distributions: Vec<DistributionRecord>,
    /// Resource usage of the server so far.
    pub server_seconds: Vec<ServerSecond>,
    /// Exchanges of a cache workload.
    pub exchanges: Vec<CacheExchange>,
    /// Progress snapshot, if there is a new one.
    pub snapshot: Option<RunProgress>,
}

/// Destination of rows.
pub trait Sink: Send {
    /// Writes rows as a part that is readable even if nothing follows.
    ///
    /// # Errors
    /// As text; nothing is written afterwards.
    fn write(&mut self, part: &Part) -> Result<(), String>;

    /// Completes the tables, that of requests only with rows that `keeps` selects, if it is given; returns the number
    /// of its rows.
    ///
    /// # Errors
    /// As text.
    fn finish(self: Box<Self>, keeps: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String>;
}

/// The tables of a run's directory.
pub struct Tables {
    requests: RequestsWriter,
    series: SeriesWriter,
    distributions: DistributionsWriter,
    server_series: ServerSeriesWriter,
    exchanges: CacheExchangesWriter,
    progress: ProgressFile,
    /// Only a cache workload has exchanges, and a table of them.
    has_exchanges: bool,
}

impl Tables {
    /// The tables in `folder`.
    pub fn of(folder: &RunFolder) -> Self {
        Tables {
            requests: folder.requests(),
            series: folder.series(),
            distributions: folder.distributions(),
            server_series: folder.server_series(),
            progress: folder.progress_file(),
            exchanges: folder.cache_exchanges(),
            has_exchanges: false,
        }
    }
}

impl Sink for Tables {
    fn write(&mut self, part: &Part) -> Result<(), String> {
        self.has_exchanges |= !part.exchanges.is_empty();
        let written = self
            .requests
            .push_part(&part.requests)
            .and_then(|()| self.series.push(&part.seconds))
            .and_then(|()| self.series.close_part())
            .and_then(|()| self.distributions.push(&part.distributions))
            .and_then(|()| self.distributions.close_part())
            .and_then(|()| self.server_series.push(&part.server_seconds))
            .and_then(|()| self.server_series.close_part())
            .and_then(|()| self.exchanges.push(&part.exchanges))
            .and_then(|()| self.exchanges.close_part());
        // The snapshot is written last, so that readers find the seconds that it describes. A failure loses no row.
        if let Some(snapshot) = &part.snapshot {
            let _ = self.progress.write(snapshot);
        }
        written.map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>, keeps: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String> {
        if self.has_exchanges {
            self.exchanges.finish().map_err(|error| error.to_string())?;
        }
        let finished = match keeps {
            None => self.requests.finish(),
            Some(keeps) => self.requests.finish_with(keeps),
        };
        finished.map(|table| table.rows).map_err(|error| error.to_string())
    }
}

/// Queued rows.
#[derive(Debug)]
pub struct WriteQueue {
    rows: Mutex<Rows>,
    changed: Condvar,
    share: Arc<Share>,
    max: usize,
}

#[derive(Debug, Default)]
struct Rows {
    requests: VecDeque<RequestRecord>,
    seconds: Vec<SecondRecord>,
    distributions: Vec<DistributionRecord>,
    server_seconds: Vec<ServerSecond>,
    exchanges: Vec<CacheExchange>,
    /// Progress snapshot that is not written yet.
    snapshot: Option<RunProgress>,
    /// Exchanges that are stored or queued.
    passed_on: u64,
    /// Exchanges that will not be in the table.
    left_out: u64,
    /// Whether the queue is closed: nothing more is added.
    closed: bool,
    /// Whether the writer has failed: nothing more is accepted.
    failed: bool,
}

/// Rows taken from the queue.
struct Taken {
    part: Part,
    /// Whether no more rows follow.
    last: bool,
}

impl WriteQueue {
    /// Space for `max` rows of requests, and as many exchanges.
    pub fn new(max: usize, share: Arc<Share>) -> Self {
        WriteQueue { rows: Mutex::default(), changed: Condvar::new(), share, max: max.max(1) }
    }

    /// Adds those of `requests` that the table stores, without waiting for the writer.
    pub fn put(&self, requests: &[RequestRecord]) {
        let mut rows = self.lock();
        if rows.failed {
            return;
        }
        for request in requests {
            if !self.share.stores(request.sequence) {
                continue;
            }
            while rows.requests.len() >= self.max {
                let before = self.share.one_in();
                self.share.halve();
                rows.requests.retain(|row| self.share.stores(row.sequence));
                if self.share.one_in() == before {
                    // At the smallest share the oldest row is dropped: one in a billion is not a sample any more.
                    rows.requests.pop_front();
                }
            }
            if self.share.stores(request.sequence) {
                rows.requests.push_back(*request);
            }
        }
        if rows.requests.len() >= ROWS_PER_PART.min(self.max) {
            self.changed.notify_all();
        }
    }

    /// Rows of requests that wait for the writer, as a share of the greatest possible.
    pub fn fill(&self) -> f64 {
        self.lock().requests.len() as f64 / self.max as f64
    }

    /// Adds a row of the series, and the distributions of its times.
    pub fn put_second(&self, second: SecondRecord, distribution: impl Iterator<Item = DistributionRecord>) {
        let mut rows = self.lock();
        if !rows.failed {
            rows.seconds.push(second);
            rows.distributions.extend(distribution);
        }
    }

    /// Adds a row of the server's series.
    pub fn put_server_second(&self, second: ServerSecond) {
        let mut rows = self.lock();
        if !rows.failed {
            rows.server_seconds.push(second);
        }
    }

    /// Adds a progress snapshot. Only the newest one is written.
    pub fn put_snapshot(&self, snapshot: RunProgress) {
        self.lock().snapshot = Some(snapshot);
        self.changed.notify_all();
    }

    /// Adds exchanges of a cache workload. A sample of them does not describe a cache, so those that do not fit are
    /// left out, and counted ([`Self::left_out`]).
    pub fn put_exchanges(&self, exchanges: &[CacheExchange]) {
        let mut rows = self.lock();
        if rows.failed {
            rows.left_out += exchanges.len() as u64;
            return;
        }
        let taken = exchanges.len().min(self.max.saturating_sub(rows.exchanges.len()));
        rows.exchanges.extend_from_slice(&exchanges[..taken]);
        rows.left_out += (exchanges.len() - taken) as u64;
        if rows.exchanges.len() >= ROWS_PER_PART.min(self.max) {
            self.changed.notify_all();
        }
    }

    /// Number of exchanges missing in the table: those that did not fit, or that a failed disk did not store. All
    /// exchanges, if the table could not be completed.
    pub fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    /// Closes the queue: nothing more is added.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Runs the writer until the queue is closed and empty; returns the number of rows in the table, and the first
    /// error.
    pub fn write_all(&self, mut sink: Box<dyn Sink>) -> (u64, Option<String>) {
        let mut emptied = Vec::new();
        loop {
            let Taken { mut part, last } = self.wait_for_part(&mut emptied);
            if let Err(error) = sink.write(&part) {
                self.fail();
                return (0, Some(error));
            }
            emptied = std::mem::take(&mut part.requests);
            emptied.clear();
            if last {
                break;
            }
        }
        let keeps = |row: &RequestRecord| self.share.stores(row.sequence);
        match sink.finish((self.share.one_in() > 1).then_some(&keeps as &dyn Fn(&RequestRecord) -> bool)) {
            Ok(rows) => (rows, None),
            Err(error) => {
                self.fail();
                (0, Some(error))
            }
        }
    }

    /// Discards all rows after a write error: the written data is incomplete, and nothing more is written.
    fn fail(&self) {
        let mut rows = self.lock();
        rows.failed = true;
        rows.left_out += rows.exchanges.len() as u64 + std::mem::take(&mut rows.passed_on);
        (rows.requests, rows.exchanges) = (VecDeque::new(), Vec::new());
        (rows.seconds, rows.distributions, rows.server_seconds) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Waits for the rows of a part, for the time of a part, or for the end. `emptied` has memory for further rows.
    fn wait_for_part(&self, emptied: &mut Vec<RequestRecord>) -> Taken {
        let deadline = Instant::now() + PART_INTERVAL_MAX;
        let mut rows = self.lock();
        let part = ROWS_PER_PART.min(self.max);
        while !rows.closed && rows.snapshot.is_none() && rows.requests.len() < part && rows.exchanges.len() < part {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            rows = self.changed.wait_timeout(rows, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let requests = if rows.requests.len() <= ROWS_PER_PART {
            // Without a copy. The memory of the last part is reused: the kernel would have to clear new memory.
            let emptied = VecDeque::from(std::mem::take(emptied));
            Vec::from(std::mem::replace(&mut rows.requests, emptied))
        } else {
            rows.requests.drain(..ROWS_PER_PART).collect()
        };
        let last = rows.closed && rows.requests.is_empty();
        rows.passed_on += rows.exchanges.len() as u64;
        let part = Part {
            requests,
            seconds: std::mem::take(&mut rows.seconds),
            distributions: std::mem::take(&mut rows.distributions),
            server_seconds: std::mem::take(&mut rows.server_seconds),
            exchanges: std::mem::take(&mut rows.exchanges),
            snapshot: rows.snapshot.take(),
        };
        Taken { part, last }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // Rows are consistent even after a panic of another thread.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
