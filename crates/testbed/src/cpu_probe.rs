//! CPU speed probe: measures the speed of the server's cores during a run with a piece of work every 10 ms, in their
//! idle time.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stats::Histogram;
use sys::clock::thread_cpu_time;
use sys::pace::Piece;
use sys::sched::{Cores, make_idle};

/// Work of about 10 us each time: a thousandth of one core.
const EVERY: Duration = Duration::from_millis(10);
/// Fewer pieces have no reliable median.
const LEAST: u64 = 20;

/// The thread of the CPU speed probe. It runs only when no other thread wants the core (SCHED_IDLE), and measures its
/// own CPU time, so preemption changes nothing; with a server that uses nearly all time there are few pieces.
#[derive(Debug)]
pub struct CpuProbe {
    over: Arc<AtomicBool>,
    taken: Arc<Mutex<Histogram>>,
    spent_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl CpuProbe {
    /// Starts the probe on `cores`; it ends when it is dropped.
    ///
    /// # Errors
    /// No thread or pipe is available.
    pub fn start(cores: &Cores) -> io::Result<Self> {
        let (over, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Histogram::new())));
        let mut piece = Piece::new()?;
        let spent_ns = Arc::new(AtomicU64::new(0));
        let (cores, ends, keeps, spends) =
            (cores.clone(), Arc::clone(&over), Arc::clone(&taken), Arc::clone(&spent_ns));
        let thread = std::thread::Builder::new().name("cpu_probe".into()).spawn(move || {
            // Unpinned, or without SCHED_IDLE, it would measure or do something else.
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
        Ok(CpuProbe { over, taken, spent_ns, thread: Some(thread) })
    }

    /// CPU time of the thread so far, on the server's cores; up to its last piece.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed))
    }

    /// Discards the pieces so far.
    pub fn clear(&self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Median CPU time of a piece since the last clear, in nanoseconds; `None` of fewer than twenty.
    pub fn median_ns(&self) -> Option<u64> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.len() >= LEAST).then(|| taken.value_at(0.5))
    }
}

impl Drop for CpuProbe {
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
    fn cpu_probe_counts_pieces_until_they_are_cleared() {
        let cpu_probe = CpuProbe::start(&Cores::allowed().unwrap()).unwrap();
        // Even on a busy machine an idle thread gets some time.
        let median = (0..3000).find_map(|_| {
            std::thread::sleep(EVERY);
            cpu_probe.median_ns()
        });
        assert!(median.is_some_and(|ns| ns > 1000), "{median:?}");
        assert!(cpu_probe.spent() >= Duration::from_nanos(LEAST / 2 * median.unwrap_or(0)), "{:?}", cpu_probe.spent());
        cpu_probe.clear();
        assert_eq!(cpu_probe.median_ns(), None);
    }
}
