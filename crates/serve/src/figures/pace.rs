//! How many requests were answered in the last minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use units::Timestamp;

use crate::date::seconds;

/// Requests by the second in which a worker told of them, for a minute.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<VecDeque<(u64, u64)>>);

impl Pace {
    /// So many more, told at `now`. Workers do so about once a second, so the lock is never fought for.
    pub(super) fn add(&self, now: Timestamp, requests: u64) {
        let now_s = seconds(now);
        let mut buckets = self.lock();
        match buckets.back_mut() {
            // Two workers may read the clock in one order and come here in the other.
            Some((second, sum)) if *second >= now_s => *sum += requests,
            _ => buckets.push_back((now_s, requests)),
        }
        while buckets.front().is_some_and(|(second, _)| *second + MINUTE_S < now_s) {
            buckets.pop_front();
        }
    }

    /// Those told in the minute before `now`.
    pub(super) fn last_minute(&self, now: Timestamp) -> u64 {
        let now_s = seconds(now);
        self.lock().iter().filter(|(second, _)| second + MINUTE_S > now_s).map(|(_, sum)| sum).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const MINUTE_S: u64 = 60;
