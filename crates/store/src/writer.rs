//! Writer of a table during the run: a folder of closed parts.

use std::fs;
use std::path::{Path, PathBuf};

use schema::{
    CacheExchange, ConnectionRecord, DistributionRecord, Http2FrameRow, QuicConnectionRecord, RequestRecord,
    SecondRecord, ServerSecond, ServerWaitRow, ShareRow, TapExchange, TcpSampleRow, WatchSecond, WireRequest,
};

use crate::encode::Encoder;
use crate::merge::{self, FinishedTable};
use crate::{Result, StoreError, files};
use schema::Record;

/// Writes requests.parquet.
pub type RequestsWriter = TableWriter<RequestRecord>;
/// Writes series.parquet.
pub type SeriesWriter = TableWriter<SecondRecord>;
/// Writes distributions.parquet.
pub type DistributionsWriter = TableWriter<DistributionRecord>;
/// Writes server_series.parquet.
pub type ServerSeriesWriter = TableWriter<ServerSecond>;
/// Writes quic_connections.parquet.
pub type QuicConnectionsWriter = TableWriter<QuicConnectionRecord>;

/// Writes connections.parquet.
pub type ConnectionsWriter = TableWriter<ConnectionRecord>;
/// Writes wire_requests.parquet.
pub type WireRequestsWriter = TableWriter<WireRequest>;
/// Writes watch_series.parquet.
pub type WatchSeriesWriter = TableWriter<WatchSecond>;
/// Writes taps.parquet.
pub type TapsWriter = TableWriter<TapExchange>;
/// Writes tcp_samples.parquet.
pub type TcpSamplesWriter = TableWriter<TcpSampleRow>;
/// Writes server_waits.parquet.
pub type ServerWaitsWriter = TableWriter<ServerWaitRow>;
/// Writes http2_frames.parquet.
pub type Http2FramesWriter = TableWriter<Http2FrameRow>;
/// Writes shares.parquet.
pub type SharesWriter = TableWriter<ShareRow>;
/// Writes cache_exchanges.parquet.
pub type CacheExchangesWriter = TableWriter<CacheExchange>;

/// Collects rows of one table and writes them as parts.
///
/// [`push`](Self::push) copies rows into memory and returns; [`close_part`](Self::close_part) encodes the collected
/// rows (about 10 ms for 50,000 rows) and writes them as one readable file. Call both from a thread that is not
/// time-critical, `close_part` every second or two: a crash loses the rows that are not in a closed part.
///
/// After the first error nothing more is written, and every call returns that error again. Parts closed before the
/// error stay unchanged.
pub struct TableWriter<R: Record> {
    /// The run's folder.
    dir: PathBuf,
    encoder: Encoder<R>,
    pending: Vec<R>,
    parts: u32,
    rows: u64,
    failed: Option<StoreError>,
}

impl<R: Record> TableWriter<R> {
    pub(crate) fn new(dir: &Path) -> Self {
        TableWriter {
            dir: dir.to_owned(),
            encoder: Encoder::new(),
            pending: Vec::new(),
            parts: 0,
            rows: 0,
            failed: None,
        }
    }

    /// Adds rows to the part that is being collected. A part that has grown to [`Record::ROWS_A_PART`] is closed
    /// immediately, so that memory stays bounded.
    ///
    /// # Errors
    /// The first error of this writer; the rows are then dropped.
    pub fn push(&mut self, rows: &[R]) -> Result<()> {
        self.check_not_failed()?;
        let mut rest = rows;
        while self.pending.len() + rest.len() >= R::ROWS_A_PART {
            let (now, later) = rest.split_at(R::ROWS_A_PART - self.pending.len());
            self.pending.extend_from_slice(now);
            self.close_part()?;
            rest = later;
        }
        self.pending.extend_from_slice(rest);
        Ok(())
    }

    /// Adds rows and closes the part: as [`push`](Self::push) and [`close_part`](Self::close_part), but rows that are a
    /// part of their own are not copied.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_part(&mut self, rows: &[R]) -> Result<()> {
        if !self.pending.is_empty() || rows.len() > R::ROWS_A_PART {
            self.push(rows)?;
            return self.close_part();
        }
        self.check_not_failed()?;
        self.close_part_of(rows)
    }

    /// Adds rows by moving them: `rows` is empty afterwards and keeps its memory.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn append(&mut self, rows: &mut Vec<R>) -> Result<()> {
        if let Err(error) = self.check_not_failed() {
            rows.clear();
            return Err(error);
        }
        while !rows.is_empty() {
            let free = R::ROWS_A_PART - self.pending.len();
            self.pending.extend(rows.drain(..free.min(rows.len())));
            if self.pending.len() == R::ROWS_A_PART {
                self.close_part().inspect_err(|_| rows.clear())?;
            }
        }
        Ok(())
    }

    /// Writes the collected rows as one part; nothing where there are none.
    ///
    /// # Errors
    /// The first error of this writer: [`StoreError::DiskFull`] or another failure of the file system.
    pub fn close_part(&mut self) -> Result<()> {
        self.check_not_failed()?;
        let mut rows = std::mem::take(&mut self.pending);
        let outcome = self.close_part_of(&rows);
        if outcome.is_ok() {
            rows.clear();
            self.pending = rows;
        }
        outcome
    }

    fn close_part_of(&mut self, rows: &[R]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let outcome = self.write_part(rows);
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
        }
        outcome
    }

    /// Closes the last part, joins all parts into one file and removes them. See [`FinishedTable`].
    ///
    /// # Errors
    /// The first error of this writer. The parts then still exist.
    pub fn finish(mut self) -> Result<FinishedTable> {
        self.close_part()?;
        merge::join_parts::<R>(&self.dir, &mut self.encoder, None)
    }

    /// Finishes the table with only the rows for which `keeps` is true: a table whose sampling rate decreased while it
    /// grew becomes one even sample.
    ///
    /// # Errors
    /// As for [`finish`](Self::finish).
    pub fn finish_with(mut self, keeps: &dyn Fn(&R) -> bool) -> Result<FinishedTable> {
        self.close_part()?;
        merge::join_parts(&self.dir, &mut self.encoder, Some(keeps))
    }

    /// Finishes the table with exactly `rows`, and removes all provisional parts, of this writer or another. A
    /// concurrent reader finds the parts or the table. Allowed after an error of this writer: fewer rows may fit on the
    /// disk.
    ///
    /// # Errors
    /// A full disk or another failure of the file system; the parts then still exist.
    pub fn finish_with_rows(mut self, rows: &[R]) -> Result<FinishedTable> {
        merge::write_table(&self.dir, &mut self.encoder, rows)
    }

    /// Rows in closed parts.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn check_not_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn write_part(&mut self, rows: &[R]) -> Result<()> {
        let folder = self.dir.join(R::TABLE);
        if self.parts == 0 {
            fs::create_dir_all(&folder).map_err(|source| StoreError::io("mkdir", &folder, source))?;
        }
        let path = part_path(&folder, self.parts + 1);
        let unfinished = files::unfinished(&path);
        let written = self.encode_part(&unfinished, rows).and_then(|()| {
            // The part is not synced: a kill loses no written data, and a sync every second would cost the run more
            // than a power cut does.
            fs::rename(&unfinished, &path).map_err(|source| StoreError::io("rename", &unfinished, source))
        });
        if written.is_err() {
            files::discard(&unfinished);
            return written;
        }
        self.parts += 1;
        self.rows += rows.len() as u64;
        Ok(())
    }

    fn encode_part(&mut self, unfinished: &Path, rows: &[R]) -> Result<()> {
        let mut output = self.encoder.begin(unfinished)?;
        self.encoder.append(&mut output, unfinished, rows)?;
        Encoder::<R>::end(output, unfinished).map(drop)
    }
}

/// The path of a table's part by its number, from 1.
pub(crate) fn part_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06}.parquet"))
}
