//! Limits what senders may send: concurrent series, new series per minute, and seconds per series.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use units::Timestamp;

/// The sessions being received, up to a limit. A message beyond a limit is refused.
#[derive(Clone, Debug)]
pub struct Sessions {
    state: Arc<Mutex<State>>,
    concurrent_max: usize,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<String, Session>,
    /// When the sessions of the last minute began.
    begun: VecDeque<Timestamp>,
}

/// What was received of one session.
#[derive(Debug)]
struct Session {
    /// When its first message arrived.
    since: Timestamp,
    /// Number of different seconds received.
    seconds: u64,
    next_index: u64,
}

/// The limit that a refused message exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// As many series are open as are allowed.
    Series(usize),
    /// As many series began within a minute as are allowed.
    NewSeries(usize),
    /// The series has more seconds than have passed since it began plus those its sender can have queued.
    Seconds,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitReached::Series(max) => {
                write!(f, "{max} series are being received already, and no more are accepted")
            }
            LimitReached::NewSeries(max) => {
                write!(f, "{max} series began within a minute, and no more are accepted; retry later")
            }
            LimitReached::Seconds => f.write_str("the series has more seconds than have passed"),
        }
    }
}

impl Sessions {
    /// Allows `concurrent_max` sessions at a time, and [`NEW_PER_MINUTE_FACTOR`] times as many new ones a minute.
    pub fn new(concurrent_max: usize) -> Sessions {
        Sessions { state: Arc::default(), concurrent_max }
    }

    /// Removes a session that has ended; it no longer counts.
    pub fn end(&self, session: &str) {
        self.lock().open.remove(session);
    }

    /// Counts a message with the seconds `indices`. True if its session is new.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn enter(
        &self,
        session: &str,
        indices: impl Iterator<Item = u64>,
        now: Timestamp,
    ) -> Result<bool, LimitReached> {
        let mut state = self.lock();
        let State { open, begun } = &mut *state;
        let is_new = !open.contains_key(session);
        if is_new {
            begun.retain(|at| now.since(*at) < MINUTE);
            if open.len() >= self.concurrent_max {
                return Err(LimitReached::Series(self.concurrent_max));
            }
            if begun.len() >= NEW_PER_MINUTE_FACTOR * self.concurrent_max {
                return Err(LimitReached::NewSeries(NEW_PER_MINUTE_FACTOR * self.concurrent_max));
            }
            begun.push_back(now);
        }
        let received = open.entry(session.to_owned()).or_insert(Session { since: now, seconds: 0, next_index: 0 });
        // A repeated second is not counted again.
        for index in indices.filter(|index| *index >= received.next_index).collect::<Vec<_>>() {
            received.seconds += 1;
            received.next_index = index + 1;
        }
        if received.seconds > QUEUED_SECONDS_MAX + now.since(received.since).as_secs() {
            return Err(LimitReached::Seconds);
        }
        Ok(is_new)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds that a sender may have queued before its first message was accepted and while the receiver was unreachable:
/// twice the length of a sender's queue.
const QUEUED_SECONDS_MAX: u64 = 1200;
/// New series per minute, as a multiple of the concurrent series.
const NEW_PER_MINUTE_FACTOR: usize = 4;
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn session_keeps_its_slot_until_it_ends() {
        let sessions = Sessions::new(2);
        let enter = |session: &str, second| sessions.enter(session, 0..1, at(second));
        assert_eq!((enter("a", 0), enter("b", 0), enter("a", 0)), (Ok(true), Ok(true), Ok(false)));
        assert_eq!(enter("c", 0), Err(LimitReached::Series(2)));
        sessions.end("a");
        // Eight sessions may begin within a minute.
        for session in ["c", "d", "e", "f", "g", "h"] {
            assert_eq!(enter(session, 30), Ok(true));
            sessions.end(session);
        }
        assert_eq!(enter("i", 59), Err(LimitReached::NewSeries(8)));
        assert_eq!((enter("i", 60), enter("a", 60)), (Ok(true), Err(LimitReached::Series(2))));
    }

    #[test]
    fn session_with_more_seconds_than_passed_is_refused() {
        let sessions = Sessions::new(2);
        assert_eq!(sessions.enter("a", 5_000..5_000 + QUEUED_SECONDS_MAX, at(100)), Ok(true));
        assert_eq!(
            sessions.enter("a", 5_000..5_000 + QUEUED_SECONDS_MAX, at(100)),
            Ok(false),
            "repeated seconds are not counted"
        );
        assert_eq!(sessions.enter("a", 7_000..7_010, at(110)), Ok(false));
        assert_eq!(sessions.enter("a", 7_010..7_011, at(110)), Err(LimitReached::Seconds));
        assert_eq!(sessions.enter("a", 7_011..7_012, at(200)), Ok(false));
    }
}
