//! Whether the machine left the test its turn.
//!
//! What real devices and kernels do in time can be judged only while threads get a core when they want one. A sentinel
//! sleeps a millisecond again and again beside the test, and notes how late it wakes: an independent clock for the
//! noise of a shared machine. Under noise a test keeps every claim that noise cannot touch (nothing early, nothing lost
//! uncounted, no rate above the link's) and drops those about lateness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Sleeps and measures until stopped.
pub struct Sentinel {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

impl Sentinel {
    /// Begins to look.
    pub fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let mut late = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    std::thread::sleep(NAP);
                    late.push(before.elapsed().saturating_sub(NAP));
                }
                late
            }
        });
        Sentinel { over, thread: Some(thread) }
    }

    /// Whether the machine was disturbed since the start; prints it if so.
    pub fn disturbed(mut self) -> bool {
        self.over.store(true, Ordering::Relaxed);
        let late = self.thread.take().expect("asked once").join().expect("a sentinel only sleeps");
        let often = late.iter().filter(|late| **late > LATE).count();
        let worst = late.iter().max().copied().unwrap_or_default();
        let disturbed = often * OFTEN > late.len() || worst > WORST;
        if disturbed {
            println!("the machine was disturbed, says the sentinel: {often} of {} late, worst {worst:?}", late.len());
        }
        disturbed
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

const NAP: Duration = Duration::from_millis(1);
/// A wake-up is late by more than this.
const LATE: Duration = Duration::from_micros(500);
/// One late wake-up in so many is much.
const OFTEN: usize = 20;
/// One this late is enough.
const WORST: Duration = Duration::from_millis(20);
