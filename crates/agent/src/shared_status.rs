//! Shared status of the agent: used by its threads, printed lines, and the file that `tap agent status` reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::{ClockReading, ClockZero, Time};
use crate::recorder::{Counts, Recorder};
use crate::status::Link;
pub(crate) use crate::status::{Connection, Trouble};
use tap_protocol::{Gauges, Settings};

/// Shared by recorder, sender and the status writer.
pub(crate) struct SharedStatus {
    parts: Mutex<Parts>,
    print: Box<dyn Fn(&str) + Send + Sync>,
    now_unix_ns: fn() -> u64,
    receiver: Receives,
}

/// The shared state.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub link: Link,
    /// Rows confirmed by the manager since the start.
    pub sent: u64,
    pub settings: Settings,
    pending_settings: Option<Settings>,
    pub counts: Counts,
    pub gauges: Gauges,
    pub entries: u64,
    pub clock: Option<Clock>,
    pub troubles: Vec<Trouble>,
}

/// What receives the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// A manager.
    Manager,
    /// A stream of NATS.
    Stream,
}

/// The manager's clock compared with the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The machine's wall clock less the manager's, ns.
    pub offset_ns: i64,
    /// Maximum error of that difference.
    pub error_ns: i64,
}

impl SharedStatus {
    /// Initial status. `print` prints a line; `now_unix_ns` is the wall clock for displayed times.
    pub fn new(print: Box<dyn Fn(&str) + Send + Sync>, now_unix_ns: fn() -> u64, receiver: Receives) -> SharedStatus {
        let link =
            Link { state: Connection::NotTried, since_unix_ns: now_unix_ns(), why: String::new(), stored_unix_ns: 0 };
        let parts = Parts {
            link,
            sent: 0,
            settings: Settings { version: 0, ..Settings::default() },
            pending_settings: None,
            counts: Counts::default(),
            gauges: Gauges::default(),
            entries: 0,
            clock: None,
            troubles: Vec::new(),
        };
        SharedStatus { parts: Mutex::new(parts), print, now_unix_ns, receiver }
    }

    /// Prints a line for the user.
    pub fn print(&self, line: &str) {
        (self.print)(line);
    }

    /// The manager has responded.
    pub fn connected(&self) {
        let mut parts = self.parts();
        if parts.link.state != Connection::Connected {
            parts.link = Link {
                state: Connection::Connected,
                since_unix_ns: (self.now_unix_ns)(),
                why: String::new(),
                ..parts.link
            };
            drop(parts);
            self.print(match self.receiver {
                Receives::Manager => "connected to the manager",
                Receives::Stream => "connected to NATS",
            });
        }
    }

    /// The manager is unreachable or refuses requests. Printed when it changes.
    pub fn lost(&self, state: Connection, why: &str) {
        let mut parts = self.parts();
        let has_changed = parts.link.state != state || (parts.link.why != why && state != Connection::Away);
        let since_unix_ns = if parts.link.state == state { parts.link.since_unix_ns } else { (self.now_unix_ns)() };
        parts.link = Link { state, since_unix_ns, why: why.to_owned(), ..parts.link };
        drop(parts);
        if has_changed {
            self.print(&match state {
                Connection::Away if self.receiver == Receives::Stream => {
                    format!("{why}; new rows wait in the spool")
                }
                _ if self.receiver == Receives::Stream => {
                    format!("{why}; retried each minute, new rows wait in the spool")
                }
                Connection::Away => format!("the manager is unreachable: {why}; new rows wait in the spool"),
                _ => format!("the manager rejects all requests: {why}; retried each minute"),
            });
        }
    }

    /// An operation fails and is retried. Printed when it changes.
    pub fn trouble(&self, what: &'static str, why: &str) {
        let mut parts = self.parts();
        let has_changed = match parts.troubles.iter_mut().find(|trouble| trouble.what == what) {
            Some(trouble) if trouble.why == why => false,
            Some(trouble) => {
                why.clone_into(&mut trouble.why);
                true
            }
            None => {
                parts.troubles.push(Trouble { what: what.to_owned(), why: why.to_owned() });
                true
            }
        };
        drop(parts);
        if has_changed {
            self.print(&format!("{what}: {why}; it is retried"));
        }
    }

    /// The operation works again.
    pub fn trouble_is_over(&self, what: &'static str) {
        let mut parts = self.parts();
        let before = parts.troubles.len();
        parts.troubles.retain(|trouble| trouble.what != what);
        let has_changed = parts.troubles.len() < before;
        drop(parts);
        if has_changed {
            self.print(&format!("{what}: works again"));
        }
    }

    /// The manager has stored this number of rows.
    pub fn stored(&self, rows: u64) {
        let mut parts = self.parts();
        parts.sent += rows;
        parts.link.stored_unix_ns = (self.now_unix_ns)();
    }

    /// The manager's clock at this machine's zero.
    pub fn clock(&self, zero: Option<ClockZero>, now: &ClockReading) {
        let local_zero_ns = i64::try_from(now.zero_own_unix_ns).unwrap_or(i64::MAX);
        self.parts().clock =
            zero.map(|zero| Clock { offset_ns: local_zero_ns - zero.unix_ns, error_ns: zero.error_ns });
    }

    /// The manager sent these settings.
    pub fn set_pending_settings(&self, settings: Settings) {
        let mut parts = self.parts();
        if parts.settings.version != settings.version {
            parts.pending_settings = Some(settings);
        }
    }

    /// Takes the pending settings.
    pub fn pending_settings(&self) -> Option<Settings> {
        self.parts().pending_settings.take()
    }

    /// Version of the applied settings.
    pub fn settings_version(&self) -> u64 {
        self.parts().settings.version
    }

    /// Copies the figures of the recorder.
    pub fn recorder<T: Time>(&self, recorder: &Recorder<T>) {
        let mut parts = self.parts();
        parts.counts = recorder.counts();
        parts.gauges = recorder.gauges();
        parts.entries = recorder.entries();
        if parts.settings.version != recorder.settings().version {
            parts.settings.clone_from(recorder.settings());
        }
    }

    /// The current state.
    pub fn now(&self) -> Parts {
        self.parts().clone()
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Each change is one or two independent assignments, so a panic leaves a consistent state.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn shared() -> (SharedStatus, Arc<Mutex<Vec<String>>>) {
        let printed = Arc::new(Mutex::new(Vec::new()));
        let lines = printed.clone();
        (
            SharedStatus::new(
                Box::new(move |line| lines.lock().unwrap().push(line.to_owned())),
                || 7,
                Receives::Manager,
            ),
            printed,
        )
    }

    #[test]
    fn unchanged_conditions_are_not_printed_again() {
        let (shared, printed) = shared();
        shared.lost(Connection::Away, "refused");
        shared.lost(Connection::Away, "timed out");
        shared.connected();
        shared.connected();
        shared.lost(Connection::Refused, "no such token");
        shared.lost(Connection::Refused, "revoked");
        shared.trouble("the journal", "no space");
        shared.trouble("the journal", "no space");
        shared.trouble_is_over("the journal");
        shared.trouble_is_over("the journal");
        assert_eq!(printed.lock().unwrap().len(), 6, "{printed:?}");
        assert!(shared.now().troubles.is_empty() && shared.now().link.why == "revoked");
    }

    #[test]
    fn new_settings_are_pending_until_they_are_applied() {
        let (shared, _) = shared();
        shared.set_pending_settings(Settings::default());
        assert_eq!(shared.pending_settings(), Some(Settings::default()));
        assert_eq!((shared.pending_settings(), shared.settings_version()), (None, 0));
        shared.parts().settings = Settings::default();
        shared.set_pending_settings(Settings::default());
        assert_eq!(shared.pending_settings(), None);
    }
}
