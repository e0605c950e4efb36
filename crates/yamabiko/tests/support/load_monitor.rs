//! Detects other load on the machine during a test.
//!
//! The timing of real devices and kernels can be checked only while threads get a core when they need one. A monitor
//! thread sleeps for a millisecond repeatedly and records how late it wakes: an independent measurement of the noise of
//! a shared machine. On a disturbed machine a test still makes the assertions that noise cannot affect (no early
//! packet, no uncounted loss, no rate above the link's) and omits those about timing errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that sleeps and measures its wake-up delays until stopped.
pub struct LoadMonitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

impl LoadMonitor {
    /// Starts the thread.
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut delays = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    std::thread::sleep(SLEEP);
                    delays.push(before.elapsed().saturating_sub(SLEEP));
                }
                delays
            }
        });
        LoadMonitor { stop, thread: Some(thread) }
    }

    /// Whether the machine was disturbed since the start. Prints a message if so.
    pub fn disturbed(mut self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        let delays = self
            .thread
            .take()
            .expect("this method consumes the monitor")
            .join()
            .expect("the monitor thread does not panic");
        let late_count = delays.iter().filter(|delay| **delay > LATE_DELAY).count();
        let worst = delays.iter().max().copied().unwrap_or_default();
        let disturbed = late_count * LATE_SHARE > delays.len() || worst > VERY_LATE_DELAY;
        if disturbed {
            println!("the machine was disturbed: {late_count} of {} wake-ups late, worst {worst:?}", delays.len());
        }
        disturbed
    }
}

impl Drop for LoadMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Length of each sleep.
const SLEEP: Duration = Duration::from_millis(1);
/// A wake-up is late if its delay is longer than this.
const LATE_DELAY: Duration = Duration::from_micros(500);
/// The machine is disturbed if more than one of this many wake-ups is late.
const LATE_SHARE: usize = 20;
/// One wake-up with a longer delay is enough for a disturbed machine.
const VERY_LATE_DELAY: Duration = Duration::from_millis(20);
