//! The tap's table, on its own thread, so that draining the rings does not wait for the disk.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schema::TapExchange;
use store::TapsWriter;
use sys::sched::Urgency;

use crate::error::TestbedError;

/// Receives rows and writes them to taps.parquet, if the run is stored.
#[derive(Debug)]
pub struct TableWriter {
    writer: Option<Writer>,
    /// Rows that are not passed to the writer yet.
    queued: Vec<TapExchange>,
    lost: u64,
}

#[derive(Debug)]
struct Writer {
    sender: SyncSender<Vec<TapExchange>>,
    thread: JoinHandle<Option<String>>,
}

impl TableWriter {
    /// Starts the thread; without a table there is none, and rows are discarded.
    ///
    /// # Errors
    /// No thread is available.
    pub fn start(table: Option<TapsWriter>) -> Result<TableWriter, TestbedError> {
        let start = |table| {
            let (sender, rows) = sync_channel(QUEUED_BATCHES_MAX);
            let thread = std::thread::Builder::new().name("tap table".into()).spawn(move || write(table, &rows))?;
            Ok(Writer { sender, thread })
        };
        let writer = table.map(start).transpose().map_err(TestbedError::system("start the writer of the tap"))?;
        Ok(TableWriter { writer, queued: Vec::new(), lost: 0 })
    }

    /// Adds rows; never waits. `rows` is empty afterwards. Rows that the disk cannot store for long are dropped, and
    /// counted.
    pub fn put(&mut self, rows: &mut Vec<TapExchange>) {
        let Some(writer) = &self.writer else { return rows.clear() };
        if self.queued.len() < QUEUED_ROWS_MAX {
            self.queued.append(rows);
        } else {
            self.lost += rows.len() as u64;
            rows.clear();
        }
        if self.queued.is_empty() {
            return;
        }
        match writer.sender.try_send(std::mem::take(&mut self.queued)) {
            Ok(()) => {}
            Err(TrySendError::Full(rows)) => self.queued = rows,
            // The writer has failed, and reports its error at the end.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Waits until everything is written. Returns why rows are missing in the table, if they are.
    pub fn finish(mut self) -> Option<String> {
        let writer = self.writer.take()?;
        if !self.queued.is_empty() {
            let _ = writer.sender.send(self.queued);
        }
        drop(writer.sender);
        let failed = writer.thread.join().expect("the tap's writer does not panic");
        failed.or_else(|| (self.lost > 0).then(|| format!("the disk was too slow for {} rows", self.lost)))
    }
}

/// Writes the rows, a part per second, until the sender is dropped, and then joins the parts. Returns the error, if
/// there is one.
fn write(mut table: TapsWriter, rows: &Receiver<Vec<TapExchange>>) -> Option<String> {
    Urgency::Low.apply_to_this_thread();
    let mut closed = Instant::now();
    loop {
        let written = match rows.recv_timeout(PART_INTERVAL) {
            Ok(mut rows) => table.append(&mut rows),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Err(error) = written {
            return Some(error.to_string());
        }
        if closed.elapsed() >= PART_INTERVAL {
            closed = Instant::now();
            if let Err(error) = table.close_part() {
                return Some(error.to_string());
            }
        }
    }
    table.finish().err().map(|error| error.to_string())
}

/// Capacity of the queue in batches.
const QUEUED_BATCHES_MAX: usize = 64;
/// Most queued rows: about 400 MB.
const QUEUED_ROWS_MAX: usize = 1_000_000;
/// Interval of closing a part of the table: the most that a crash can lose.
const PART_INTERVAL: Duration = Duration::from_secs(1);
