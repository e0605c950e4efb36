//! The measured phase: its beginning, and the conditions that end it.

use std::time::Duration;

use units::Timestamp;

/// The measured phase `[start, end)`, and the number of requests that may still be scheduled.
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

    /// Whether a request may be scheduled at `at`.
    pub(crate) fn admits(&self, at: Timestamp) -> bool {
        !self.stopped && !self.is_full() && self.end.is_none_or(|end| at < end)
    }

    /// Whether `requests_max` requests have been scheduled.
    pub(crate) fn is_full(&self) -> bool {
        self.requests_left == Some(0)
    }

    /// Counts a request scheduled at `at`; true if it is in the measured phase.
    pub(crate) fn count(&mut self, at: Timestamp) -> bool {
        let measured = at >= self.start;
        if measured && let Some(left) = &mut self.requests_left {
            *left -= 1;
        }
        measured
    }

    /// Ends the phase at `at`, unless it ends earlier. A phase that is ended during the warm-up is empty.
    pub(crate) fn end_at(&mut self, at: Timestamp) {
        let at = at.max(self.start);
        self.end = Some(self.end.map_or(at, |end| end.min(at)));
    }

    /// Ends the phase and stops scheduling.
    pub(crate) fn stop(&mut self, now: Timestamp) {
        self.stopped = true;
        self.end_at(now);
        self.over = true;
    }

    /// Marks the phase as over: its end has passed, and everything before the end has been scheduled.
    pub(crate) fn finish(&mut self) {
        self.over = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}
