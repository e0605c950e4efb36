//! Days: how rows come from where they wait into files that anyone can read.
//!
//! ```text
//!   pending ──oldest first, some 20,000 rows──▶ sorted by their end ──▶ days/2026-11-23/part-000017.parquet, one file a day
//!      └── one transaction: the files become known, quality is folded, the batches go ──▶ parts
//!   parts ──eight small ones of a day──▶ one
//! ```
//!
//! **Each row is in one place at any moment**, in `pending` or in a file that `parts` knows, and what is not known is none: a
//! file is whole and durable before the transaction that makes it known, and files that are unknown at the start are removed
//! ([`recover`]): their rows are still where they were. A reader who goes by the index sees each row once. One who reads all of
//! `days/*/*.parquet` may for an instant see rows of a merge twice: the merged file is there, those it was made of are
//! not gone yet.
//!
//! Read [`place`], then [`merge`]; `ordered` is how several sorted files become one sequence.

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

pub use self::merge::{LeftAlone, Merged, merge};
pub(crate) use self::place::Waiting;
pub use self::place::{Round, place};
pub use self::recover::{Recovered, recover};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::retention::{self, Keep};

/// The thread that places rows, merges files, and lets days go.
pub struct Placing {
    wakes: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

enum Wake {
    /// So many rows have come.
    Rows(u64),
    /// Place all that waits, and end.
    End,
}

impl Placing {
    /// Begins.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(data: Arc<Data>, notes: Notes, keep: Keep) -> Result<Placing> {
        let (wakes, woken) = mpsc::channel();
        let work = move || {
            let mut waiting = 0;
            let mut last_ns = realtime_ns();
            let mut kept_ns = 0;
            let mut merging = Merging { left_alone: LeftAlone::new(), not_before_ns: 0 };
            loop {
                let is_over = match woken.recv_timeout(EACH) {
                    Ok(Wake::Rows(rows)) => {
                        waiting += rows;
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => true,
                };
                let now_ns = realtime_ns();
                // A clock that was set back makes it begin anew.
                let is_time = now_ns.abs_diff(last_ns) >= EACH.as_nanos() as u64;
                if !is_over && !is_time && waiting < ROWS_EARLY {
                    continue;
                }
                (waiting, last_ns) = (0, now_ns);
                if let Err(error) = work_off(&data, &notes, &keep, &mut merging, now_ns) {
                    notes.trouble(&format!("rows wait, since they cannot be placed: {error}"));
                }
                if is_over {
                    return;
                }
                if now_ns.abs_diff(kept_ns) >= KEEP_EACH_NS {
                    kept_ns = now_ns;
                    if let Err(error) = retention::apply(&data, &notes, &keep, now_ns) {
                        notes.trouble(&format!("days that are over cannot be removed: {error}"));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("placing".into()).spawn(work).map_err(|_| Error::Thread("placing"))?;
        Ok(Placing { wakes, thread: Some(thread) })
    }

    /// What tells it that rows have come.
    pub(crate) fn bell(&self) -> impl Fn(u64) + Send + 'static {
        let wakes = self.wakes.clone();
        // It has ended: then they are placed at the next start.
        move |rows| drop(wakes.send(Wake::Rows(rows)))
    }

    /// Whether the thread is there.
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

impl Drop for Placing {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What merging remembers.
struct Merging {
    left_alone: LeftAlone,
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
                notes.trouble(&format!("small files stay as they are for now: {error}"));
                merging.not_before_ns = now_ns.saturating_add(MERGE_AGAIN_NS);
            }
        }
    }
    Ok(())
}

/// How long rows wait at most before they are placed: quality and alerts are as late as this.
const EACH: Duration = Duration::from_secs(5);
/// Rows that are not kept waiting.
const ROWS_EARLY: u64 = 50_000;
const MERGE_AGAIN_NS: u64 = 600_000_000_000;
const KEEP_EACH_NS: u64 = 60_000_000_000;
