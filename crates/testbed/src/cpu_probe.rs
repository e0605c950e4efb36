//! CPU speed probe: measures the speed of the server's cores during a run with a piece of work every 10 ms, in their
//! idle time.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stats::Histogram;
use sys::clock::thread_cpu_time;
use sys::cpu_speed::Probe;
use sys::sched::{Cores, make_idle};

/// Interval of the pieces of work, of about 10 us each: a thousandth of one core.
const INTERVAL: Duration = Duration::from_millis(10);
/// Smallest number of pieces with a reliable median.
const PIECES_MIN: u64 = 20;

/// The thread of the CPU speed probe. It runs only when no other thread needs the core (SCHED_IDLE), and measures its
/// own CPU time, so preemption changes nothing; with a server that uses nearly all time there are few pieces.
#[derive(Debug)]
pub struct CpuProbe {
    over: Arc<AtomicBool>,
    times: Arc<Mutex<Histogram>>,
    cpu_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl CpuProbe {
    /// Starts the probe on `cores`; dropping the value ends it.
    ///
    /// # Errors
    /// No thread or pipe is available.
    pub fn start(cores: &Cores) -> io::Result<Self> {
        let (over, times) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Histogram::new())));
        let mut probe = Probe::new()?;
        let cpu_ns = Arc::new(AtomicU64::new(0));
        let (cores, thread_over, thread_times, thread_cpu_ns) =
            (cores.clone(), Arc::clone(&over), Arc::clone(&times), Arc::clone(&cpu_ns));
        let thread = std::thread::Builder::new().name("cpu_probe".into()).spawn(move || {
            // Unpinned the probe would measure another core; without SCHED_IDLE it would disturb the server.
            if cores.pin_this_thread().is_err() || !make_idle() {
                return;
            }
            while !thread_over.load(Ordering::Relaxed) {
                let Ok(time) = probe.time() else { return };
                thread_times.lock().unwrap_or_else(PoisonError::into_inner).record(units::time::saturating_nanos(time));
                thread_cpu_ns.store(units::time::saturating_nanos(thread_cpu_time()), Ordering::Relaxed);
                std::thread::park_timeout(INTERVAL);
            }
        })?;
        Ok(CpuProbe { over, times, cpu_ns, thread: Some(thread) })
    }

    /// CPU time of the thread so far, on the server's cores; up to its last piece of work.
    pub fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Discards the pieces so far.
    pub fn clear(&self) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Median CPU time of a piece of work since the last clear, in nanoseconds; `None` of fewer than twenty.
    pub fn median_ns(&self) -> Option<u64> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        (times.len() >= PIECES_MIN).then(|| times.value_at(0.5))
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
            std::thread::sleep(INTERVAL);
            cpu_probe.median_ns()
        });
        assert!(median.is_some_and(|ns| ns > 1000), "{median:?}");
        assert!(
            cpu_probe.cpu_time() >= Duration::from_nanos(PIECES_MIN / 2 * median.unwrap_or(0)),
            "{:?}",
            cpu_probe.cpu_time()
        );
        cpu_probe.clear();
        assert_eq!(cpu_probe.median_ns(), None);
    }
}
