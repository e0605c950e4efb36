//! How fast the server's processors are while it is measured: a piece of work every 10 ms, in what the server leaves of them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stats::Histogram;
use sys::clock::thread_cpu_time;
use sys::pace::Piece;
use sys::sched::{Cores, make_idle};

/// A piece of some 10 us each time: a thousandth of one processor.
const EVERY: Duration = Duration::from_millis(10);
/// A median of fewer says nothing.
const LEAST: u64 = 20;

/// The thread that does the pieces. It runs only where nobody else wants the processor (SCHED_IDLE), and counts its own processor time, so that being
/// taken away from it changes nothing; beside a server that leaves next to nothing there are few pieces.
#[derive(Debug)]
pub struct Pace {
    over: Arc<AtomicBool>,
    taken: Arc<Mutex<Histogram>>,
    spent_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Pace {
    /// On `cores`, from now on until it is dropped.
    ///
    /// # Errors
    /// No thread, no pipe.
    pub fn start(cores: &Cores) -> io::Result<Self> {
        let (over, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Histogram::new())));
        let mut piece = Piece::new()?;
        let spent_ns = Arc::new(AtomicU64::new(0));
        let (cores, ends, keeps, spends) =
            (cores.clone(), Arc::clone(&over), Arc::clone(&taken), Arc::clone(&spent_ns));
        let thread = std::thread::Builder::new().name("pace".into()).spawn(move || {
            // Elsewhere, or before the server, it would say or do something else.
            if cores.pin_this_thread().is_err() || !make_idle() {
                return;
            }
            while !ends.load(Ordering::Relaxed) {
                let Ok(time) = piece.time() else { return };
                keeps.lock().unwrap_or_else(PoisonError::into_inner).record(units::time::saturating_nanos(time));
                spends.store(units::time::saturating_nanos(thread_cpu_time()), Ordering::Relaxed);
                std::thread::park_timeout(EVERY);
            }
        })?;
        Ok(Pace { over, taken, spent_ns, thread: Some(thread) })
    }

    /// Processor time of the thread so far, on the server's cores; of its last piece at the latest.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed))
    }

    /// What was done so far does not count.
    pub fn clear(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Processor time of a piece since it was cleared, the median in nanoseconds; `None` of fewer than twenty.
    pub fn median_ns(&self) -> Option<u64> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.len() >= LEAST).then(|| taken.value_at(0.5))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_until_they_are_cleared() {
        let pace = Pace::start(&Cores::allowed().unwrap()).unwrap();
        // However busy this machine is, an idle thread gets some of it.
        let median = (0..3000).find_map(|_| {
            std::thread::sleep(EVERY);
            pace.median_ns()
        });
        assert!(median.is_some_and(|ns| ns > 1000), "{median:?}");
        assert!(pace.spent() >= Duration::from_nanos(LEAST / 2 * median.unwrap_or(0)), "{:?}", pace.spent());
        pace.clear();
        assert_eq!(pace.median_ns(), None);
    }
}
