//! ab's progress lines, and its abort after ten failures.

use std::time::Duration;

use testbed::Observer;
use testbed::drive::progress::Snapshot;

use crate::args::ab::Options;
use crate::terminal::print_message;

/// ab prints no progress for runs of at most this many requests.
const NO_PROGRESS_UP_TO: u64 = 150;
/// Least number of requests between two progress lines.
const INTERVAL_MIN: u64 = 100;
/// ab aborts a run after more failures than this, if no request was completed.
pub const FAILURES_MAX: u64 = 10;

/// Prints `Completed N requests` after every tenth of the run.
#[derive(Debug)]
pub struct ProgressLines {
    /// Requests between two lines; 0: no lines.
    interval: u64,
    /// Number of requests in the last line.
    printed: u64,
    /// Whether the run was aborted after too many failures.
    aborted: bool,
}

impl ProgressLines {
    pub fn new(options: &Options) -> Self {
        let is_enabled = options.progress && options.requests > NO_PROGRESS_UP_TO;
        let interval = if is_enabled { (options.requests / 10).max(INTERVAL_MIN) } else { 0 };
        ProgressLines { interval, printed: 0, aborted: false }
    }

    /// Whether progress lines are printed.
    pub fn is_enabled(&self) -> bool {
        self.interval > 0
    }

    /// Whether the run was aborted after too many failures.
    pub fn aborted(&self) -> bool {
        self.aborted
    }

    /// Prints the last lines, after `done` requests.
    pub fn finish(&mut self, done: u64) {
        self.print_completed(done);
        if self.aborted {
            print_message("\nTest aborted after 10 failures\n");
        }
        if self.is_enabled() {
            print_message(format_args!("Finished {done} requests"));
        }
    }

    fn print_completed(&mut self, done: u64) {
        while self.interval > 0 && self.printed + self.interval <= done {
            self.printed += self.interval;
            print_message(format_args!("Completed {} requests", self.printed));
        }
    }
}

impl Observer for ProgressLines {
    fn tick(&mut self, _elapsed: Duration, snapshot: &Snapshot) {
        self.print_completed(snapshot.completed + snapshot.failed);
    }

    /// Ends the run if no request was completed and more than [`FAILURES_MAX`] failed.
    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.aborted |= snapshot.failed > FAILURES_MAX && snapshot.completed == 0;
        self.aborted
    }
}
