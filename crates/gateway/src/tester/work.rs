//! A thread's part in a trial: when it must end, and what it cost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::{monotonic_ns, thread_cpu_time};
use sys::sched::Urgency;

use super::line::Pulse;

/// Whether to go on: until the trial is ended, or the other end is lost.
#[derive(Clone)]
pub(super) struct Halt {
    over: Arc<AtomicBool>,
    pulse: Pulse,
}

impl Halt {
    pub(super) fn new(pulse: Pulse) -> Self {
        Halt { over: Arc::new(AtomicBool::new(false)), pulse }
    }

    pub(super) fn set(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.pulse.is_lost()
    }

    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }
}

/// What a thread did and used.
pub(super) struct Done<T> {
    pub(super) result: T,
    pub(super) cpu: Duration,
    pub(super) lasted: Duration,
}

/// A thread of a trial, which is told to end when this is dropped, and waited for.
pub(super) struct Worker<T> {
    thread: Option<JoinHandle<Done<T>>>,
    halt: Halt,
}

impl<T: Send + 'static> Worker<T> {
    /// Begins. With `urgent` it goes before other programs, where it may: those that must be on time.
    pub(super) fn start(
        name: &str,
        halt: &Halt,
        urgent: bool,
        work: impl FnOnce(&Halt) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let own = halt.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            if urgent { Urgency::High } else { Urgency::Ordinary }.apply_to_this_thread();
            let (begun_ns, cpu) = (monotonic_ns(), thread_cpu_time());
            let result = work(&own);
            let lasted = Duration::from_nanos(monotonic_ns() - begun_ns);
            Done { result, cpu: thread_cpu_time().saturating_sub(cpu), lasted }
        })?;
        Ok(Worker { thread: Some(thread), halt: halt.clone() })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it.
    pub(super) fn end(self) -> Done<T> {
        self.halt.set();
        self.join()
    }

    /// Waits for its end.
    pub(super) fn join(mut self) -> Done<T> {
        let thread = self.thread.take().expect("joined once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.halt.set();
            // A panic has been told; nobody wants the result.
            let _ = thread.join();
        }
    }
}

/// Sleeps until this moment of the monotonic clock, a part of it at a time so that a halt is seen.
pub(super) fn sleep_until(moment_ns: u64) {
    let left = moment_ns.saturating_sub(monotonic_ns());
    thread::sleep(Duration::from_nanos(left.clamp(NAP_NS, LOOK_NS)));
}

/// Less is not slept: what is due meanwhile goes out together.
const NAP_NS: u64 = 20_000;
/// How often a halt is looked for.
const LOOK_NS: u64 = 50_000_000;
/// The same, as a socket's timeout.
pub(super) const LOOK: Duration = Duration::from_nanos(LOOK_NS);
