//! Days: how rows get from pending batches into day files.
//!
//! ```text
//!   pending ──oldest first, some 20,000 rows──▶ sorted by their end ──▶ days/2026-11-23/part-000017.parquet, one file a day
//!      └── one transaction: the files become known, quality is folded, the batches go ──▶ parts
//!   parts ──eight small ones of a day──▶ one
//! ```
//!
//! **Each row is in exactly one place at any time**: in `pending`, or in a file that `parts` lists. A file is
//! complete and durable before the transaction that lists it, and unlisted files are removed at the start
//! ([`recover`]), since their rows are still where they were. A reader that uses the index sees each row once. A
//! reader of all `days/*/*.parquet` may for an instant see rows of a merge twice, until the original files are
//! removed.
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
pub(crate) use self::place::Waiting;
pub use self::place::{Round, place};
pub use self::recover::{Recovered, recover};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::retention::{self, Keep};

/// The thread that writes day files, merges them, and removes expired days.
pub struct DayWriter {
    wakes: Sender<Wake>,
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
    pub fn start(data: Arc<Data>, notes: Notes, keep: Keep) -> Result<DayWriter> {
        let (wakes, woken) = mpsc::channel();
        let work = move || {
            let mut waiting = 0;
            let mut last_ns = realtime_ns();
            let mut kept_ns = 0;
            let mut merging = Merging { left_alone: SkippedFiles::new(), not_before_ns: 0 };
            loop {
                let is_over = match woken.recv_timeout(WRITE_INTERVAL) {
                    Ok(Wake::Rows(rows)) => {
                        waiting += rows;
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => true,
                };
                let now_ns = realtime_ns();
                // After the clock was set back, the intervals restart.
                let is_time = now_ns.abs_diff(last_ns) >= WRITE_INTERVAL.as_nanos() as u64;
                if !is_over && !is_time && waiting < EARLY_WRITE_ROWS {
                    continue;
                }
                (waiting, last_ns) = (0, now_ns);
                if let Err(error) = work_off(&data, &notes, &keep, &mut merging, now_ns) {
                    notes.trouble(&format!(
                        "rows wait, since they cannot be written to the files of their days: \
                     {error}"
                    ));
                }
                if is_over {
                    return;
                }
                if now_ns.abs_diff(kept_ns) >= RETENTION_INTERVAL_NS {
                    kept_ns = now_ns;
                    if let Err(error) = retention::apply(&data, &notes, &keep, now_ns) {
                        notes.trouble(&format!("expired days cannot be removed: {error}"));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("placing".into()).spawn(work).map_err(|_| Error::Thread("placing"))?;
        Ok(DayWriter { wakes, thread: Some(thread) })
    }

    /// A function that reports arrived rows to the thread.
    pub(crate) fn bell(&self) -> impl Fn(u64) + Send + 'static {
        let wakes = self.wakes.clone();
        // If the thread has ended, rows are written at the next start.
        move |rows| drop(wakes.send(Wake::Rows(rows)))
    }

    /// Whether the thread runs.
    pub(crate) fn works(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Places all that waits, and ends.
    pub fn stop(&mut self) {
        let _ = self.wakes.send(Wake::End);
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

/// What merging remembers.
struct Merging {
    left_alone: SkippedFiles,
    /// Not tried again before, after it failed: it writes much to find that out.
    not_before_ns: u64,
}

/// Places all that waits, then merges what is worth it.
fn work_off(data: &Data, notes: &Notes, keep: &Keep, merging: &mut Merging, now_ns: u64) -> Result<()> {
    loop {
        let round = place(data, keep.oldest_day(now_ns), now_ns)?;
        round.tell(notes);
        if !round.more {
            break;
        }
    }
    while merging.not_before_ns <= now_ns {
        match merge(data, &mut merging.left_alone, now_ns) {
            Ok(Some(merged)) => merged.tell(notes),
            Ok(None) => break,
            Err(error) => {
                notes.trouble(&format!("small files are not merged: {error}"));
                merging.not_before_ns = now_ns.saturating_add(MERGE_INTERVAL_NS);
            }
        }
    }
    Ok(())
}

/// How long rows wait at most before they are placed: quality and alerts are as late as this.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of waiting rows that are written immediately.
const EARLY_WRITE_ROWS: u64 = 50_000;
const MERGE_INTERVAL_NS: u64 = 600_000_000_000;
const RETENTION_INTERVAL_NS: u64 = 60_000_000_000;
