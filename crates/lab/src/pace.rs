//! How fast the server's processors are while it is measured: a piece of work every 10 ms, in what the server leaves of them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stats::Histogram;
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
        let (cores, ends, keeps) = (cores.clone(), Arc::clone(&over), Arc::clone(&taken));
        let thread = std::thread::Builder::new().name("pace".into()).spawn(move || {
            // Elsewhere, or before the server, it would say or do something else.
            if cores.pin_this_thread().is_err() || !make_idle() {
                return;
            }
            while !ends.load(Ordering::Relaxed) {
                let Ok(time) = piece.time() else { return };
                keeps.lock().unwrap_or_else(PoisonError::into_inner).record(units::time::saturating_nanos(time));
                std::thread::park_timeout(EVERY);
            }
        })?;
        Ok(Pace { over, taken, thread: Some(thread) })
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
        pace.clear();
        assert_eq!(pace.median_ns(), None);
    }
}
