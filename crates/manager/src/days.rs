//! Days: how rows get from pending batches into day files.
//!
//! ```text
//!   pending ──oldest first, some 20,000 rows──▶ sorted by their end ──▶ days/2026-11-23/part-000017.parquet, one file a day
//!      └── one transaction: the files become known, quality is folded, the batches are removed ──▶ parts
//!   parts ──eight small ones of a day──▶ one
//! ```
//!
//! **Each row is in exactly one place at any time**: in `pending`, or in a file that `parts` lists. A file is
//! complete and durable before the transaction that lists it, and unlisted files are removed at the start
//! ([`recover`]), since their rows are still in `pending` or in the original files. A reader that uses the index sees
//! each row once. A reader of all `days/*/*.parquet` may for an instant see rows of a merge twice, until the original
//! files are removed.
//!
//! Read [`place`], then [`merge`]; `ordered` merges several sorted files into one sequence.

mod merge;
pub(crate) mod ordered;
mod place;
mod recover;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::realtime_ns;

pub use self::merge::{Merged, SkippedFiles, merge};
pub(crate) use self::place::PendingBatch;
pub use self::place::{Round, place};
pub(crate) use self::recover::short_id;
pub use self::recover::{Recovered, recover};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::retention::{self, Retention};

/// The thread that writes day files, merges them, and removes expired days.
pub struct DayWriter {
    wake_sender: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

enum Wake {
    /// This number of rows has arrived.
    Rows(u64),
    /// Write all waiting rows, and end.
    End,
}

impl DayWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(data: Arc<Data>, notes: Notes, retention: Retention) -> Result<DayWriter> {
        let (wake_sender, wake_receiver) = mpsc::channel();
        let work = move || {
            let mut waiting_rows = 0;
            let mut last_ns = realtime_ns();
            let mut last_retention_ns = 0;
            let mut merge_state = MergeState { skipped_files: SkippedFiles::new(), not_before_ns: 0 };
            loop {
                let is_ending = match wake_receiver.recv_timeout(WRITE_INTERVAL) {
                    Ok(Wake::Rows(rows)) => {
                        waiting_rows += rows;
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => true,
                };
                let now_ns = realtime_ns();
                // After the clock was set back, the intervals restart.
                let is_time = now_ns.abs_diff(last_ns) >= WRITE_INTERVAL.as_nanos() as u64;
                if !is_ending && !is_time && waiting_rows < EARLY_WRITE_ROWS {
                    continue;
                }
                (waiting_rows, last_ns) = (0, now_ns);
                if let Err(error) = write_and_merge(&data, &notes, &retention, &mut merge_state, now_ns) {
                    notes.trouble(&format!(
                        "rows wait, since they cannot be written to the files of their days: \
                     {error}"
                    ));
                }
                if is_ending {
                    return;
                }
                if now_ns.abs_diff(last_retention_ns) >= RETENTION_INTERVAL_NS {
                    last_retention_ns = now_ns;
                    if let Err(error) = retention::apply(&data, &notes, &retention, now_ns) {
                        notes.trouble(&format!("expired days cannot be removed: {error}"));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("placing".into()).spawn(work).map_err(|_| Error::Thread("placing"))?;
        Ok(DayWriter { wake_sender, thread: Some(thread) })
    }

    /// A function that reports arrived rows to the thread.
    pub(crate) fn notifier(&self) -> impl Fn(u64) + Send + 'static {
        let wake_sender = self.wake_sender.clone();
        // If the thread has ended, rows are written at the next start.
        move |rows| drop(wake_sender.send(Wake::Rows(rows)))
    }

    /// Whether the thread runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Writes all waiting rows to day files, and ends the thread.
    pub fn stop(&mut self) {
        let _ = self.wake_sender.send(Wake::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for DayWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// State of the merging between rounds.
struct MergeState {
    skipped_files: SkippedFiles,
    /// Time before which merging is not retried after a failure: a failed merge has written much data.
    not_before_ns: u64,
}

/// Writes all waiting rows to day files, then merges small files if worthwhile.
fn write_and_merge(
    data: &Data,
    notes: &Notes,
    retention: &Retention,
    merge_state: &mut MergeState,
    now_ns: u64,
) -> Result<()> {
    loop {
        let round = place(data, retention.oldest_day(now_ns), now_ns)?;
        round.log_to(notes);
        if !round.more {
            break;
        }
    }
    while merge_state.not_before_ns <= now_ns {
        match merge(data, &mut merge_state.skipped_files, now_ns) {
            Ok(Some(merged)) => merged.log_to(notes),
            Ok(None) => break,
            Err(error) => {
                notes.trouble(&format!("small files are not merged: {error}"));
                merge_state.not_before_ns = now_ns.saturating_add(MERGE_INTERVAL_NS);
            }
        }
    }
    Ok(())
}

/// Maximum time for which rows wait before they are written to day files: quality and alerts are late by this time.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of waiting rows that are written immediately.
const EARLY_WRITE_ROWS: u64 = 50_000;
const MERGE_INTERVAL_NS: u64 = 600_000_000_000;
const RETENTION_INTERVAL_NS: u64 = 60_000_000_000;
