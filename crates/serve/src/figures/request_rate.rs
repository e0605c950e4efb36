//! Number of requests in the last minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use units::Timestamp;

use crate::date::seconds;

/// Requests per second of their report, for one minute.
#[derive(Debug, Default)]
pub(super) struct RequestRate(Mutex<VecDeque<(u64, u64)>>);

impl RequestRate {
    /// Adds requests reported at `now`. Workers report about once a second, so the lock is uncontended.
    pub(super) fn add(&self, now: Timestamp, requests: u64) {
        let now_s = seconds(now);
        let mut buckets = self.lock();
        match buckets.back_mut() {
            // Two workers may read the clock in one order and get here in the other.
            Some((second, sum)) if *second >= now_s => *sum += requests,
            _ => buckets.push_back((now_s, requests)),
        }
        while buckets.front().is_some_and(|(second, _)| *second + MINUTE_S < now_s) {
            buckets.pop_front();
        }
    }

    /// Requests reported in the minute before `now`.
    pub(super) fn last_minute(&self, now: Timestamp) -> u64 {
        let now_s = seconds(now);
        self.lock().iter().filter(|(second, _)| second + MINUTE_S > now_s).map(|(_, sum)| sum).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const MINUTE_S: u64 = 60;
