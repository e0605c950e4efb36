//! Sessions of HTTP/3 that clients may resume once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::server::StoresServerSessions;

/// The newest sessions, by keys that rustls draws at random. rustls' own memory searches all keys when a session is taken,
/// for which every resumption would pay.
pub(crate) struct SessionStore {
    sessions: Mutex<Sessions>,
    max: usize,
}

#[derive(Default)]
struct Sessions {
    by_key: HashMap<Vec<u8>, Vec<u8>>,
    /// Keys of the newest sessions, oldest first; also of those that were taken since.
    keys: VecDeque<Vec<u8>>,
}

impl SessionStore {
    /// For the sessions among the newest `max` that were not taken.
    pub(crate) fn new(max: usize) -> Self {
        SessionStore { sessions: Mutex::default(), max }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoresServerSessions for SessionStore {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut sessions = self.sessions();
        if sessions.by_key.insert(key.clone(), value).is_some() {
            return true;
        }
        sessions.keys.push_back(key);
        if sessions.keys.len() > self.max
            && let Some(oldest) = sessions.keys.pop_front()
        {
            sessions.by_key.remove(&oldest);
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions().by_key.get(key).cloned()
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions().by_key.remove(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionStore").field("max", &self.max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_taken_once_and_the_oldest_are_forgotten() {
        let store = SessionStore::new(3);
        let key = |number: u32| number.to_be_bytes().to_vec();
        for number in 0..5 {
            assert!(store.put(key(number), key(number * 10)));
        }
        assert_eq!([0, 1].map(|number| store.get(&key(number))), [None, None], "only the newest are kept");
        assert_eq!(store.get(&key(2)), Some(key(20)));
        assert_eq!((store.take(&key(3)), store.take(&key(3))), (Some(key(30)), None));
        assert!(store.put(key(4), key(41)), "a renewed session keeps its age");
        assert_eq!(store.get(&key(4)), Some(key(41)));
        for number in 5..1_000 {
            store.put(key(number), key(0));
            store.take(&key(number));
        }
        let sessions = store.sessions();
        assert_eq!((sessions.by_key.len(), sessions.keys.len()), (0, 3), "memory is bounded however many are taken");
    }
}
