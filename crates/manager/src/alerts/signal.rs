//! Wakes a thread that waits for work.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes waiting threads when something happens, or at the end.
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
    /// Signals that something happened.
    pub fn notify(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).happened += 1;
        self.changed.notify_all();
    }

    /// Signals the end.
    pub fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_all();
    }

    /// Number of signals so far.
    pub fn seen(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).happened
    }

    /// Waits for the end, for a time, or, with `seen`, for more signals. Returns whether the end was signalled.
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
    fn a_signal_wakes_waiting_threads() {
        let signal = Arc::new(Signal::default());
        let seen = signal.seen();
        signal.notify();
        // The timeout is an hour: it returns immediately because of the signal.
        assert!(!signal.wait(Duration::from_secs(3600), Some(seen)));
        let other = signal.clone();
        let thread = std::thread::spawn(move || other.wait(Duration::from_secs(3600), None));
        signal.end();
        assert!(thread.join().unwrap());
        assert!(signal.wait(Duration::ZERO, None));
    }
}
