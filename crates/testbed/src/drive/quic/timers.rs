//! Timers of connections: one each.

use std::collections::BTreeSet;

use load::ConnectionKey;
use units::Timestamp;

/// The time of each connection, ordered.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(Timestamp, u64)>,
    /// By index of the connection.
    of: Vec<Option<(Timestamp, u64)>>,
}

impl Timers {
    /// Sets the time of a connection, which replaces the one before.
    pub(super) fn set(&mut self, key: ConnectionKey, at: Option<Timestamp>) {
        let index = key.index();
        if self.of.len() <= index {
            self.of.resize(index + 1, None);
        }
        let next = at.map(|at| (at, key.token()));
        let last = std::mem::replace(&mut self.of[index], next);
        if last == next {
            return;
        }
        if let Some(last) = last {
            self.by_time.remove(&last);
        }
        self.by_time.extend(next);
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes the earliest timer if it is due.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<ConnectionKey> {
        let &(at, token) = self.by_time.first().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, token));
        let key = ConnectionKey::from_token(token);
        self.of[key.index()] = None;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_one_timer_and_the_earliest_is_next() {
        let at = Timestamp::from_nanos;
        let [first, second, later] = [0u64, 1, 1 << 32].map(ConnectionKey::from_token);
        let mut timers = Timers::default();
        assert_eq!((timers.next(), timers.take_due(Timestamp::MAX)), (None, None));
        timers.set(first, Some(at(30)));
        timers.set(second, Some(at(20)));
        timers.set(first, Some(at(10)));
        timers.set(first, Some(at(25)));
        assert_eq!((timers.next(), timers.by_time.len()), (Some(at(20)), 2));
        assert_eq!(timers.take_due(at(19)), None);
        assert_eq!(timers.take_due(at(20)), Some(second));
        // The slot of a connection is used again.
        timers.set(first, None);
        timers.set(later, Some(at(5)));
        assert_eq!((timers.take_due(at(9)), timers.next()), (Some(later), None));
    }
}
