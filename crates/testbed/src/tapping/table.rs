//! The tap's table, on its own thread, so that draining the rings does not wait for the disk.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schema::TapExchange;
use store::TapsWriter;
use sys::sched::Urgency;

use crate::error::TestbedError;

/// Takes rows; they go to taps.parquet, if the run is stored.
#[derive(Debug)]
pub struct TableWriter {
    writer: Option<Writer>,
    /// Rows in the queue.
    waiting: Vec<TapExchange>,
    lost: u64,
}

#[derive(Debug)]
struct Writer {
    way: SyncSender<Vec<TapExchange>>,
    thread: JoinHandle<Option<String>>,
}

impl TableWriter {
    /// Starts the thread; without a table there is none, and rows are discarded.
    ///
    /// # Errors
    /// No thread is available.
    pub fn start(table: Option<TapsWriter>) -> Result<TableWriter, TestbedError> {
        let start = |table| {
            let (way, rows) = sync_channel(BATCHES);
            let thread = std::thread::Builder::new().name("tap table".into()).spawn(move || write(table, &rows))?;
            Ok(Writer { way, thread })
        };
        let writer = table.map(start).transpose().map_err(TestbedError::system("start the writer of the tap"))?;
        Ok(TableWriter { writer, waiting: Vec::new(), lost: 0 })
    }

    /// Takes rows; never waits. `rows` is empty afterwards. Rows that the disk cannot store for long are dropped, and
    /// counted.
    pub fn keep(&mut self, rows: &mut Vec<TapExchange>) {
        let Some(writer) = &self.writer else { return rows.clear() };
        if self.waiting.len() < WAITING_MAX {
            self.waiting.append(rows);
        } else {
            self.lost += rows.len() as u64;
            rows.clear();
        }
        if self.waiting.is_empty() {
            return;
        }
        match writer.way.try_send(std::mem::take(&mut self.waiting)) {
            Ok(()) => {}
            Err(TrySendError::Full(rows)) => self.waiting = rows,
            // It failed, and reports it at the end.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Waits until everything is written. Returns why rows are missing in the table, if they are.
    pub fn finish(mut self) -> Option<String> {
        let writer = self.writer.take()?;
        if !self.waiting.is_empty() {
            let _ = writer.way.send(self.waiting);
        }
        drop(writer.way);
        let failed = writer.thread.join().expect("the tap's writer does not panic");
        failed.or_else(|| (self.lost > 0).then(|| format!("the disk was too slow for {} rows", self.lost)))
    }
}

/// Writes the rows, a part per second, until the sender is dropped; then joins the parts. Returns the error.
fn write(mut table: TapsWriter, rows: &Receiver<Vec<TapExchange>>) -> Option<String> {
    Urgency::Low.apply_to_this_thread();
    let mut closed = Instant::now();
    loop {
        let kept = match rows.recv_timeout(PART) {
            Ok(mut rows) => table.append(&mut rows),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Err(error) = kept {
            return Some(error.to_string());
        }
        if closed.elapsed() >= PART {
            closed = Instant::now();
            if let Err(error) = table.close_part() {
                return Some(error.to_string());
            }
        }
    }
    table.finish().err().map(|error| error.to_string())
}

/// Capacity of the queue in batches.
const BATCHES: usize = 64;
/// About 400 MB of rows.
const WAITING_MAX: usize = 1_000_000;
/// Interval of closing a part of the table: the most that a crash can lose.
const PART: Duration = Duration::from_secs(1);
