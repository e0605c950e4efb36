//! ab's lines about how far it is, and when it gives up.

use std::time::Duration;

use testbed::Observer;
use testbed::drive::progress::Snapshot;

use crate::args::ab::Options;
use crate::terminal::say;

/// ab says nothing about runs up to this length.
const SILENT_UP_TO: u64 = 150;
/// And never more often than once in so many requests.
const EVERY_MIN: u64 = 100;
/// ab bears so many failures.
pub const FAILURES_BORNE: u64 = 10;

/// `Completed N requests`, every tenth of the run.
#[derive(Debug)]
pub struct Heartbeat {
    /// 0: never.
    every: u64,
    said: u64,
    stopped: bool,
}

impl Heartbeat {
    pub fn new(options: &Options) -> Self {
        let speaks = options.progress && options.requests > SILENT_UP_TO;
        Heartbeat { every: if speaks { (options.requests / 10).max(EVERY_MIN) } else { 0 }, said: 0, stopped: false }
    }

    /// Whether it says anything at all.
    pub fn beats(&self) -> bool {
        self.every > 0
    }

    /// Whether the run was ended here.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// The last lines.
    pub fn finish(&mut self, done: u64) {
        self.reached(done);
        if self.stopped {
            say("\nTest aborted after 10 failures\n");
        }
        if self.beats() {
            say(format_args!("Finished {done} requests"));
        }
    }

    fn reached(&mut self, done: u64) {
        while self.every > 0 && self.said + self.every <= done {
            self.said += self.every;
            say(format_args!("Completed {} requests", self.said));
        }
    }
}

impl Observer for Heartbeat {
    fn tick(&mut self, _elapsed: Duration, snapshot: &Snapshot) {
        self.reached(snapshot.completed + snapshot.failed);
    }

    /// Nothing was answered, and more failed than ab bears.
    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        self.stopped |= snapshot.failed > FAILURES_BORNE && snapshot.completed == 0;
        self.stopped
    }
}
