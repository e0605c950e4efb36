//! The measured phase: when it begins, what ends it.

use std::time::Duration;

use units::Timestamp;

/// `[start, end)` and what may still be intended.
#[derive(Debug)]
pub(crate) struct Phase {
    start: Timestamp,
    end: Option<Timestamp>,
    requests_left: Option<u64>,
    stopped: bool,
    over: bool,
}

impl Phase {
    pub(crate) fn new(start: Timestamp, duration: Option<Duration>, requests_max: Option<u64>) -> Self {
        let end = if requests_max == Some(0) { Some(start) } else { duration.map(|duration| start + duration) };
        Phase { start, end, requests_left: requests_max, stopped: false, over: false }
    }

    pub(crate) fn start(&self) -> Timestamp {
        self.start
    }

    pub(crate) fn end(&self) -> Option<Timestamp> {
        self.end
    }

    /// Whether a request may be intended at `at`.
    pub(crate) fn admits(&self, at: Timestamp) -> bool {
        !self.stopped && !self.is_full() && self.end.is_none_or(|end| at < end)
    }

    /// Whether as many requests as were asked for have been intended.
    pub(crate) fn is_full(&self) -> bool {
        self.requests_left == Some(0)
    }

    /// Counts a request intended at `at`; true if it lies in the measured phase.
    pub(crate) fn count(&mut self, at: Timestamp) -> bool {
        let measured = at >= self.start;
        if measured && let Some(left) = &mut self.requests_left {
            *left -= 1;
        }
        measured
    }

    /// The phase ends at `at`, unless it ends earlier. Never before its start: stopped in the warm-up, it is empty.
    pub(crate) fn end_at(&mut self, at: Timestamp) {
        let at = at.max(self.start);
        self.end = Some(self.end.map_or(at, |end| end.min(at)));
    }

    /// No more requests.
    pub(crate) fn stop(&mut self, now: Timestamp) {
        self.stopped = true;
        self.end_at(now);
        self.over = true;
    }

    /// Notes that everything intended before the end has been intended and the end has passed.
    pub(crate) fn finish(&mut self) {
        self.over = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}
