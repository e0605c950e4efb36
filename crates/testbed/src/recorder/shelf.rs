//! Rows between the recorder, which counts, and the writer, which waits for the disk.
//!
//! Bounded: where the disk takes fewer rows than the run makes, the share that is kept is halved, and what waits is
//! thinned to it. Nothing that is counted depends on it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schema::{CacheExchange, DistributionRecord, RequestRecord, RunProgress, SecondRecord, ServerSecond};
use store::{
    CacheExchangesWriter, DistributionsWriter, ProgressFile, RequestsWriter, RunFolder, SeriesWriter,
    ServerSeriesWriter,
};

use super::share::Share;

/// Rows that may wait for the writer: some 100 MB.
pub const ROWS_MAX: usize = 512 << 10;
/// Rows the writer takes at a time: those of a part.
const ROWS_AT_ONCE: usize = 128 << 10;
/// A part is closed at least this often, and whenever the run says how it stands, so that a killed run keeps all but its last moments.
const PART_EVERY: Duration = Duration::from_millis(1500);

/// What is written at a time.
#[derive(Debug, Default)]
pub struct Part {
    /// Rows of requests.
    pub requests: Vec<RequestRecord>,
    /// Rows of the series, as they stand.
    pub seconds: Vec<SecondRecord>,
    /// How the times of these seconds are distributed.
    pub distributions: Vec<DistributionRecord>,
    /// What the server used, as read so far.
    pub server_seconds: Vec<ServerSecond>,
    /// Exchanges of a mix.
    pub exchanges: Vec<CacheExchange>,
    /// How the run stands, if that was told anew.
    pub standing: Option<RunProgress>,
}

/// Where rows end up.
pub trait Sink: Send {
    /// Writes rows as a part that can be read if nothing follows.
    ///
    /// # Errors
    /// In words; nothing is written any more then.
    fn write(&mut self, part: &Part) -> Result<(), String>;

    /// Completes the tables, that of requests with only those rows that `keeps` keeps if it is given; the number of its
    /// rows.
    ///
    /// # Errors
    /// In words.
    fn finish(self: Box<Self>, keeps: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String>;
}

/// The tables of a run's folder.
pub struct Tables {
    requests: RequestsWriter,
    series: SeriesWriter,
    distributions: DistributionsWriter,
    server_series: ServerSeriesWriter,
    exchanges: CacheExchangesWriter,
    standing: ProgressFile,
    /// Only a mix has any, and only then there is a table of them.
    has_exchanges: bool,
}

impl Tables {
    /// Those of `folder`.
    pub fn of(folder: &RunFolder) -> Self {
        Tables {
            requests: folder.requests(),
            series: folder.series(),
            distributions: folder.distributions(),
            server_series: folder.server_series(),
            standing: folder.standing(),
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
            .push(&part.requests)
            .and_then(|()| self.requests.close_part())
            .and_then(|()| self.series.push(&part.seconds))
            .and_then(|()| self.series.close_part())
            .and_then(|()| self.distributions.push(&part.distributions))
            .and_then(|()| self.distributions.close_part())
            .and_then(|()| self.server_series.push(&part.server_seconds))
            .and_then(|()| self.server_series.close_part())
            .and_then(|()| self.exchanges.push(&part.exchanges))
            .and_then(|()| self.exchanges.close_part());
        // Last: whoever reads it finds the seconds that it is of. Without it no row is missing.
        if let Some(standing) = &part.standing {
            let _ = self.standing.write(standing);
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

/// Rows that wait.
#[derive(Debug)]
pub struct Shelf {
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
    /// How the run stands, if that was not written yet.
    standing: Option<RunProgress>,
    /// Exchanges that are on the disk or on their way to it.
    passed_on: u64,
    /// Exchanges that will not be in the table.
    left_out: u64,
    /// Nothing more comes.
    closed: bool,
    /// The writer has failed: nothing more is wanted.
    failed: bool,
}

/// Rows taken off.
struct Taken {
    part: Part,
    /// No more will come.
    last: bool,
}

impl Shelf {
    /// Room for `max` rows of requests, and as many of exchanges.
    pub fn new(max: usize, share: Arc<Share>) -> Self {
        Shelf { rows: Mutex::default(), changed: Condvar::new(), share, max: max.max(1) }
    }

    /// Puts down those of `requests` that the table keeps, without waiting for the writer.
    pub fn put(&self, requests: &[RequestRecord]) {
        let mut rows = self.lock();
        if rows.failed {
            return;
        }
        for request in requests {
            if !self.share.keeps(request.sequence) {
                continue;
            }
            while rows.requests.len() >= self.max {
                let before = self.share.one_in();
                self.share.halve();
                rows.requests.retain(|row| self.share.keeps(row.sequence));
                if self.share.one_in() == before {
                    // No share is small enough, so the oldest goes: one in a billion is no sample any more.
                    rows.requests.pop_front();
                }
            }
            if self.share.keeps(request.sequence) {
                rows.requests.push_back(*request);
            }
        }
        if rows.requests.len() >= ROWS_AT_ONCE.min(self.max) {
            self.changed.notify_all();
        }
    }

    /// Puts down a row of the series, and how its times are distributed.
    pub fn put_second(&self, second: SecondRecord, distribution: impl Iterator<Item = DistributionRecord>) {
        let mut rows = self.lock();
        if !rows.failed {
            rows.seconds.push(second);
            rows.distributions.extend(distribution);
        }
    }

    /// Puts down a row of the server's series.
    pub fn put_server_second(&self, second: ServerSecond) {
        let mut rows = self.lock();
        if !rows.failed {
            rows.server_seconds.push(second);
        }
    }

    /// Puts down how the run stands. Of several only the newest is written.
    pub fn put_standing(&self, standing: RunProgress) {
        self.lock().standing = Some(standing);
        self.changed.notify_all();
    }

    /// Puts down exchanges of a mix. A sample of them says nothing of a cache, so that those for which there is no room are
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
        if rows.exchanges.len() >= ROWS_AT_ONCE.min(self.max) {
            self.changed.notify_all();
        }
    }

    /// Exchanges that are not in the table: for which there was no room, or that a disk which failed did not take. Where the
    /// table could not be completed that is all of them.
    pub fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The writer's life: until the shelf is closed and empty. Rows in the table, and the first error.
    pub fn write_all(&self, mut sink: Box<dyn Sink>) -> (u64, Option<String>) {
        loop {
            let Taken { part, last } = self.take();
            if let Err(error) = sink.write(&part) {
                self.fail();
                return (0, Some(error));
            }
            if last {
                break;
            }
        }
        let keeps = |row: &RequestRecord| self.share.keeps(row.sequence);
        match sink.finish((self.share.one_in() > 1).then_some(&keeps as &dyn Fn(&RequestRecord) -> bool)) {
            Ok(rows) => (rows, None),
            Err(error) => {
                self.fail();
                (0, Some(error))
            }
        }
    }

    /// Nothing more is written, and what was is not complete.
    fn fail(&self) {
        let mut rows = self.lock();
        rows.failed = true;
        rows.left_out += rows.exchanges.len() as u64 + std::mem::take(&mut rows.passed_on);
        (rows.requests, rows.exchanges) = (VecDeque::new(), Vec::new());
        (rows.seconds, rows.distributions, rows.server_seconds) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Waits for a part's worth of rows, for a part's time, or for the end.
    fn take(&self) -> Taken {
        let deadline = Instant::now() + PART_EVERY;
        let mut rows = self.lock();
        let part = ROWS_AT_ONCE.min(self.max);
        while !rows.closed && rows.standing.is_none() && rows.requests.len() < part && rows.exchanges.len() < part {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            rows = self.changed.wait_timeout(rows, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let most = rows.requests.len().min(ROWS_AT_ONCE);
        let requests = rows.requests.drain(..most).collect();
        let last = rows.closed && rows.requests.is_empty();
        rows.passed_on += rows.exchanges.len() as u64;
        let part = Part {
            requests,
            seconds: std::mem::take(&mut rows.seconds),
            distributions: std::mem::take(&mut rows.distributions),
            server_seconds: std::mem::take(&mut rows.server_seconds),
            exchanges: std::mem::take(&mut rows.exchanges),
            standing: rows.standing.take(),
        };
        Taken { part, last }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // Rows are whole at every moment, whoever panicked.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
