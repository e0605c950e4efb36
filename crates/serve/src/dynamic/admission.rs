//! Concurrency limit and queue of an upstream.
//!
//! ```text
//!   request ──permit free──▶ exchange ──▶ permit released ──▶ the longest waiting request
//!      └──none free──▶ queue (limited in number and time) ──▶ 503, Retry-After
//! ```

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::spec::DynamicLimits;
use super::upstream::Failure;
use super::usage::{Counts, GaugeGuard, count};

/// The concurrency limit of one upstream.
#[derive(Debug)]
pub(super) struct Admission {
    places: Arc<Semaphore>,
    concurrency: usize,
    queue: usize,
    queue_time: Duration,
    waiting: Cell<usize>,
    /// Recent mean time of an exchange in seconds; the newest counts an eighth. `None` before the first exchange ended.
    held_s: Cell<Option<f64>>,
    load_state: Arc<LoadState>,
}

/// State that workers read: they refuse requests themselves when the relay would, so that a flood does not wake it.
#[derive(Debug, Default)]
pub(super) struct LoadState {
    full: AtomicBool,
    retry_after_s: AtomicU32,
}

/// Permission for one exchange at the upstream; released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    admission: std::rc::Rc<Admission>,
    since: Instant,
    permit: Option<OwnedSemaphorePermit>,
}

impl LoadState {
    /// Whether a new request would find neither a free slot nor a free place in the queue. May be slightly out of date.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The Retry-After value for such a request.
    pub(super) fn retry_after_s(&self) -> u32 {
        self.retry_after_s.load(Ordering::Relaxed).max(1)
    }
}

impl Admission {
    pub(super) fn new(limits: &DynamicLimits, load_state: Arc<LoadState>) -> Self {
        let concurrency = limits.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Admission {
            places: Arc::new(Semaphore::new(concurrency)),
            concurrency,
            queue: limits.queue,
            queue_time: limits.queue_time,
            waiting: Cell::new(0),
            held_s: Cell::new(None),
            load_state,
        }
    }

    /// Waits for a permit in the order of arrival. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// The queue is full, or the queue time is over: 503.
    pub(super) async fn enter(self: &std::rc::Rc<Self>, counts: &Arc<Counts>) -> Result<Permit, Failure> {
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(self.place(permit));
        }
        if self.waiting.get() >= self.queue {
            count(&counts.refused_full);
            return Err(Failure::busy(self.retry_after_s()));
        }
        let _waiting = Waiting::count_one(self);
        let _level = GaugeGuard::raise(counts, |counts| &counts.waiting);
        match timeout(self.queue_time, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(self.place(permit)),
            _ => {
                count(&counts.refused_late);
                Err(Failure::busy(self.retry_after_s()))
            }
        }
    }

    fn place(self: &std::rc::Rc<Self>, permit: OwnedSemaphorePermit) -> Permit {
        self.show();
        Permit { admission: std::rc::Rc::clone(self), since: Instant::now(), permit: Some(permit) }
    }

    /// Publishes the state to the workers after every possible change.
    fn show(&self) {
        let full = self.waiting.get() >= self.queue && self.places.available_permits() == 0;
        if full {
            self.load_state.retry_after_s.store(self.retry_after_s(), Ordering::Relaxed);
        }
        self.load_state.full.store(full, Ordering::Relaxed);
    }

    /// Expected time until the current queue is served, at the recent rate; from 1 s to 60 s.
    fn retry_after_s(&self) -> u32 {
        let ahead = (self.waiting.get() + 1) as f64;
        let seconds = self.held_s.get().unwrap_or(0.0) * ahead / self.concurrency as f64;
        seconds.ceil().clamp(1.0, RETRY_AFTER_MAX_S) as u32
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held = self.since.elapsed().as_secs_f64();
        let mean = self.admission.held_s.get().map_or(held, |mean| mean + (held - mean) / 8.0);
        self.admission.held_s.set(Some(mean));
        drop(self.permit.take());
        self.admission.show();
    }
}

struct Waiting<'a>(&'a Admission);

impl<'a> Waiting<'a> {
    fn count_one(admission: &'a Admission) -> Self {
        admission.waiting.set(admission.waiting.get() + 1);
        admission.show();
        Waiting(admission)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.show();
    }
}

/// Clients do not return after a longer time, and the estimate is not precise enough.
const RETRY_AFTER_MAX_S: f64 = 60.0;

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn admission(concurrency: usize, queue: usize, queue_time: Duration) -> Rc<Admission> {
        let limits = DynamicLimits { concurrency, queue, queue_time, ..DynamicLimits::default() };
        Rc::new(Admission::new(&limits, Arc::default()))
    }

    fn run(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future);
    }

    #[test]
    fn the_queue_is_first_in_first_out_and_leaving_it_frees_its_slot() {
        run(async {
            let admission = admission(1, 2, Duration::from_secs(3600));
            let counts = Arc::new(Counts::default());
            let first = admission.enter(&counts).await.unwrap();
            let order = Rc::new(std::cell::RefCell::new(Vec::new()));
            let waiter = |name: u32| {
                let (admission, counts, order) = (Rc::clone(&admission), Arc::clone(&counts), Rc::clone(&order));
                tokio::task::spawn_local(async move {
                    let _place = admission.enter(&counts).await.unwrap();
                    order.borrow_mut().push(name);
                })
            };
            let (left, second) = (waiter(1), waiter(2));
            tokio::task::yield_now().await;
            assert_eq!(admission.waiting.get(), 2);
            // A refused request leaves no trace in the queue.
            assert_eq!(admission.enter(&counts).await.unwrap_err().status, 503);
            left.abort();
            assert!(left.await.unwrap_err().is_cancelled());
            assert_eq!(admission.waiting.get(), 1);
            let third = waiter(3);
            tokio::task::yield_now().await;
            drop(first);
            second.await.unwrap();
            third.await.unwrap();
            assert_eq!(*order.borrow(), [2, 3]);
            let counted = counts.read(String::new());
            assert_eq!((counted.waiting, counted.refused_full), (0, 1));
        });
    }

    #[test]
    fn the_load_state_reports_a_full_queue() {
        run(async {
            let counts = Arc::new(Counts::default());
            for queue in [0, 1] {
                let admission = admission(1, queue, Duration::from_secs(3600));
                let load_state = Arc::clone(&admission.load_state);
                assert!(!load_state.is_full());
                let permit = admission.enter(&counts).await.unwrap();
                assert_eq!(load_state.is_full(), queue == 0);
                if queue == 1 {
                    let (waits, counts) = (Rc::clone(&admission), Arc::clone(&counts));
                    let waiter = tokio::task::spawn_local(async move { waits.enter(&counts).await.map(drop) });
                    tokio::task::yield_now().await;
                    assert!(load_state.is_full() && load_state.retry_after_s() >= 1);
                    drop(permit);
                    waiter.await.unwrap().unwrap();
                } else {
                    drop(permit);
                }
                assert!(!load_state.is_full());
            }
        });
    }

    #[test]
    fn waiting_in_the_queue_ends_after_the_queue_time() {
        run(async {
            let admission = admission(1, 1, Duration::from_millis(1));
            let counts = Arc::new(Counts::default());
            let _first = admission.enter(&counts).await.unwrap();
            assert_eq!(admission.enter(&counts).await.unwrap_err().status, 503);
            assert_eq!(counts.read(String::new()).refused_late, 1);
            assert_eq!(admission.waiting.get(), 0);
        });
    }

    #[test]
    fn retry_after_is_the_expected_time_of_the_queue() {
        let admission = admission(4, 100, Duration::from_secs(1));
        assert_eq!(admission.retry_after_s(), 1);
        admission.held_s.set(Some(2.0));
        admission.waiting.set(19);
        assert_eq!(admission.retry_after_s(), 10);
        admission.waiting.set(1_000_000);
        assert_eq!(admission.retry_after_s(), 60);
    }
}
