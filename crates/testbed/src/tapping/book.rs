//! The tap's table, on a thread of its own: what drains the rings waits for no disk.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schema::TapExchange;
use store::TapsWriter;
use sys::sched::Urgency;

use crate::error::LabError;

/// Takes rows; they go to taps.parquet, if the run is kept.
#[derive(Debug)]
pub struct TapBook {
    writer: Option<Writer>,
    /// Rows that wait for room on the way.
    waiting: Vec<TapExchange>,
    lost: u64,
}

#[derive(Debug)]
struct Writer {
    way: SyncSender<Vec<TapExchange>>,
    thread: JoinHandle<Option<String>>,
}

impl TapBook {
    /// Starts the thread; without a table there is none, and rows are let go.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(table: Option<TapsWriter>) -> Result<TapBook, LabError> {
        let start = |table| {
            let (way, rows) = sync_channel(BATCHES);
            let thread = std::thread::Builder::new().name("tap book".into()).spawn(move || write(table, &rows))?;
            Ok(Writer { way, thread })
        };
        let writer = table.map(start).transpose().map_err(LabError::system("start the tap's book"))?;
        Ok(TapBook { writer, waiting: Vec::new(), lost: 0 })
    }

    /// Takes rows; never waits. `rows` is empty afterwards. What the disk cannot take for long is let go, and counted.
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
            // It failed, and says so at the end.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Waits until everything is written. Why rows are missing from the table, if they are.
    pub fn finish(mut self) -> Option<String> {
        let writer = self.writer.take()?;
        if !self.waiting.is_empty() {
            let _ = writer.way.send(self.waiting);
        }
        drop(writer.way);
        let failed = writer.thread.join().expect("the tap's book does not panic");
        failed.or_else(|| (self.lost > 0).then(|| format!("the disk was too slow for {} rows", self.lost)))
    }
}

/// Writes what comes, a part a second, until nobody is left to send; then joins the parts. Why it could not.
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

/// Hand-overs on the way.
const BATCHES: usize = 64;
/// Some 400 MB of rows.
const WAITING_MAX: usize = 1_000_000;
/// How often a part of the table is closed: what a crash can cost.
const PART: Duration = Duration::from_secs(1);
