//! How much senders may tell: so many series at once and a minute, and of each no more seconds than have passed.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use units::Timestamp;

/// The sessions that are being received, up to a limit. A message beyond a limit is refused.
#[derive(Clone, Debug)]
pub struct Sessions {
    all: Arc<Mutex<All>>,
    most: usize,
}

#[derive(Debug, Default)]
struct All {
    open: HashMap<String, Told>,
    /// When the last ones began.
    begun: VecDeque<Timestamp>,
}

/// What one has told.
#[derive(Debug)]
struct Told {
    since: Timestamp,
    seconds: u64,
    next_index: u64,
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// So many series are open.
    Series(usize),
    /// So many series began within a minute.
    Begun(usize),
    /// The series has more seconds than have passed since it began, and than its sender can have kept.
    Seconds,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Series(most) => write!(f, "{most} series are being received already, and no more are taken"),
            Full::Begun(most) => write!(f, "{most} series began within a minute, and no more are taken; come again"),
            Full::Seconds => f.write_str("the series has more seconds than have passed"),
        }
    }
}

impl Sessions {
    /// None yet, at most `most` at a time, and [`NEW_ONES`] times as many new ones a minute.
    pub fn new(most: usize) -> Sessions {
        Sessions { all: Arc::default(), most }
    }

    /// It has ended and no longer counts.
    pub fn end(&self, session: &str) {
        self.lock().open.remove(session);
    }

    /// Counts in a message of these seconds: whether its session is new.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn enter(&self, session: &str, indices: impl Iterator<Item = u64>, now: Timestamp) -> Result<bool, Full> {
        let mut all = self.lock();
        let All { open, begun } = &mut *all;
        let is_new = !open.contains_key(session);
        if is_new {
            begun.retain(|at| now.since(*at) < MINUTE);
            if open.len() >= self.most {
                return Err(Full::Series(self.most));
            }
            if begun.len() >= NEW_ONES * self.most {
                return Err(Full::Begun(NEW_ONES * self.most));
            }
            begun.push_back(now);
        }
        let told = open.entry(session.to_owned()).or_insert(Told { since: now, seconds: 0, next_index: 0 });
        // One that comes again tells nothing new.
        for index in indices.filter(|index| *index >= told.next_index).collect::<Vec<_>>() {
            told.seconds += 1;
            told.next_index = index + 1;
        }
        if told.seconds > KEPT + now.since(told.since).as_secs() {
            return Err(Full::Seconds);
        }
        Ok(is_new)
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds that a sender may have kept before its first message was taken, and while it could not send: twice what one keeps.
const KEPT: u64 = 1200;
/// So many times as many series as there may be at once may begin within a minute.
const NEW_ONES: usize = 4;
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
        assert_eq!(enter("c", 0), Err(Full::Series(2)));
        sessions.end("a");
        // Eight may begin within a minute.
        for session in ["c", "d", "e", "f", "g", "h"] {
            assert_eq!(enter(session, 30), Ok(true));
            sessions.end(session);
        }
        assert_eq!(enter("i", 59), Err(Full::Begun(8)));
        assert_eq!((enter("i", 60), enter("a", 60)), (Ok(true), Err(Full::Series(2))));
    }

    #[test]
    fn session_with_more_seconds_than_passed_is_refused() {
        let sessions = Sessions::new(2);
        assert_eq!(sessions.enter("a", 5_000..5_000 + KEPT, at(100)), Ok(true));
        assert_eq!(sessions.enter("a", 5_000..5_000 + KEPT, at(100)), Ok(false), "they came again");
        assert_eq!(sessions.enter("a", 7_000..7_010, at(110)), Ok(false));
        assert_eq!(sessions.enter("a", 7_010..7_011, at(110)), Err(Full::Seconds));
        assert_eq!(sessions.enter("a", 7_011..7_012, at(200)), Ok(false));
    }
}
