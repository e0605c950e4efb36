//! Threads of a trial: stopping them, and their CPU time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::{monotonic_ns, thread_cpu_time};
use sys::sched::Urgency;

use super::control_connection::Liveness;

/// Tells threads to stop: set at the end of the trial, or when the peer is lost.
#[derive(Clone)]
pub(super) struct StopFlag {
    is_stopped: Arc<AtomicBool>,
    liveness: Liveness,
}

impl StopFlag {
    pub(super) fn new(liveness: Liveness) -> Self {
        StopFlag { is_stopped: Arc::new(AtomicBool::new(false)), liveness }
    }

    pub(super) fn set(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.liveness.is_lost()
    }

    pub(super) fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// Result of a thread with its CPU time and elapsed time.
pub(super) struct Finished<T> {
    pub(super) result: T,
    pub(super) cpu: Duration,
    pub(super) lasted: Duration,
}

/// A thread of a trial. Dropping it stops the thread and waits for its end.
pub(super) struct Worker<T> {
    thread: Option<JoinHandle<Finished<T>>>,
    stop: StopFlag,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts the thread. `urgent`: with a higher priority than other programs, if permitted, for senders on a
    /// schedule.
    pub(super) fn start(
        name: &str,
        stop: &StopFlag,
        urgent: bool,
        work: impl FnOnce(&StopFlag) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let stop_in_thread = stop.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            if urgent { Urgency::High } else { Urgency::Ordinary }.apply_to_this_thread();
            let (begun_ns, cpu) = (monotonic_ns(), thread_cpu_time());
            let result = work(&stop_in_thread);
            let lasted = Duration::from_nanos(monotonic_ns() - begun_ns);
            Finished { result, cpu: thread_cpu_time().saturating_sub(cpu), lasted }
        })?;
        Ok(Worker { thread: Some(thread), stop: stop.clone() })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread and waits for its end.
    pub(super) fn stop_and_join(self) -> Finished<T> {
        self.stop.set();
        self.join()
    }

    /// Waits for the end of the thread.
    pub(super) fn join(mut self) -> Finished<T> {
        let thread = self.thread.take().expect("joined once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.set();
            // A panic was printed already; the result is not used.
            let _ = thread.join();
        }
    }
}

/// Sleeps towards a time of the monotonic clock, for at most [`STOP_CHECK_INTERVAL_NS`], so that the caller can check
/// the stop flag. At least [`SLEEP_MIN_NS`].
pub(super) fn sleep_towards(until_ns: u64) {
    let left = until_ns.saturating_sub(monotonic_ns());
    thread::sleep(Duration::from_nanos(left.clamp(SLEEP_MIN_NS, STOP_CHECK_INTERVAL_NS)));
}

/// Shortest sleep: packets that become due meanwhile are sent together.
const SLEEP_MIN_NS: u64 = 20_000;
/// Interval at which threads check the stop flag.
const STOP_CHECK_INTERVAL_NS: u64 = 50_000_000;
/// The same interval as the timeout of a socket.
pub(super) const STOP_CHECK_INTERVAL: Duration = Duration::from_nanos(STOP_CHECK_INTERVAL_NS);
