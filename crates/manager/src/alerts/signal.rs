//! What a thread that works now and then waits at.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes who waits for something to happen, or for the end.
#[derive(Default)]
pub struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    happened: u64,
    is_over: bool,
}

impl Signal {
    /// Something happened.
    pub fn happened(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).happened += 1;
        self.changed.notify_all();
    }

    /// It is over.
    pub fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_all();
    }

    /// How often something happened so far.
    pub fn seen(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).happened
    }

    /// Waits until it is over or for so long, or, with `seen`, until more has happened. Returns whether it is over.
    pub fn wait(&self, longest: Duration, seen: Option<u64>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let still = |state: &mut State| !state.is_over && seen.is_none_or(|seen| state.happened == seen);
        self.changed.wait_timeout_while(state, longest, still).unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_waits_is_woken() {
        let signal = Arc::new(Signal::default());
        let seen = signal.seen();
        signal.happened();
        // An hour: it returns at once since something happened.
        assert!(!signal.wait(Duration::from_secs(3600), Some(seen)));
        let other = signal.clone();
        let thread = std::thread::spawn(move || other.wait(Duration::from_secs(3600), None));
        signal.end();
        assert!(thread.join().unwrap());
        assert!(signal.wait(Duration::ZERO, None));
    }
}
