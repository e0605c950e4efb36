//! How the agent stands: what its threads tell each other, the user, and the file that `tap agent status` reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::{Moment, Time, Zero};
use crate::keeper::{Counts, Keeper};
use crate::status::Link;
pub(crate) use crate::status::{Connection, Trouble};
use tap_protocol::{Levels, Settings};

/// Shared by keeper, sender and who writes the status.
pub(crate) struct Stand {
    parts: Mutex<Parts>,
    say: Box<dyn Fn(&str) + Send + Sync>,
    now_unix_ns: fn() -> u64,
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub link: Link,
    /// Rows that the manager has, since the start.
    pub sent: u64,
    pub settings: Settings,
    wanted: Option<Settings>,
    pub counts: Counts,
    pub levels: Levels,
    pub entries: u64,
    pub clock: Option<Clock>,
    pub troubles: Vec<Trouble>,
}

/// The manager's clock beside the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The machine's wall clock less the manager's, ns.
    pub off_ns: i64,
    /// That may be off by so much.
    pub error_ns: i64,
}

impl Stand {
    /// At the start. `say` tells the user a line; `now_unix_ns` is the wall clock, for what a user reads.
    pub fn new(say: Box<dyn Fn(&str) + Send + Sync>, now_unix_ns: fn() -> u64) -> Stand {
        let link =
            Link { state: Connection::Begins, since_unix_ns: now_unix_ns(), why: String::new(), stored_unix_ns: 0 };
        let parts = Parts {
            link,
            sent: 0,
            settings: Settings { version: 0, ..Settings::default() },
            wanted: None,
            counts: Counts::default(),
            levels: Levels::default(),
            entries: 0,
            clock: None,
            troubles: Vec::new(),
        };
        Stand { parts: Mutex::new(parts), say, now_unix_ns }
    }

    /// Tells the user.
    pub fn say(&self, line: &str) {
        (self.say)(line);
    }

    /// The manager answers.
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
            self.say("the manager answers");
        }
    }

    /// It does not, or says no. Told when it is news.
    pub fn lost(&self, state: Connection, why: &str) {
        let mut parts = self.parts();
        let is_news = parts.link.state != state || (parts.link.why != why && state != Connection::Away);
        let since_unix_ns = if parts.link.state == state { parts.link.since_unix_ns } else { (self.now_unix_ns)() };
        parts.link = Link { state, since_unix_ns, why: why.to_owned(), ..parts.link };
        drop(parts);
        if is_news {
            self.say(&match state {
                Connection::Away => format!("the manager is away: {why}; what is seen meanwhile waits in the spool"),
                _ => format!("the manager does not take anything: {why}; tried again each minute"),
            });
        }
    }

    /// Something does not go, and is tried again. Told when it is news.
    pub fn trouble(&self, what: &'static str, why: &str) {
        let mut parts = self.parts();
        let is_news = match parts.troubles.iter_mut().find(|trouble| trouble.what == what) {
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
        if is_news {
            self.say(&format!("{what}: {why}; it is tried again"));
        }
    }

    /// It goes again.
    pub fn trouble_is_over(&self, what: &'static str) {
        let mut parts = self.parts();
        let before = parts.troubles.len();
        parts.troubles.retain(|trouble| trouble.what != what);
        let is_news = parts.troubles.len() < before;
        drop(parts);
        if is_news {
            self.say(&format!("{what}: it goes again"));
        }
    }

    /// The manager has so many rows more.
    pub fn stored(&self, rows: u64) {
        let mut parts = self.parts();
        parts.sent += rows;
        parts.link.stored_unix_ns = (self.now_unix_ns)();
    }

    /// The manager's clock at this machine's zero.
    pub fn clock(&self, zero: Option<Zero>, now: &Moment) {
        let own = i64::try_from(now.zero_own_unix_ns).unwrap_or(i64::MAX);
        self.parts().clock = zero.map(|zero| Clock { off_ns: own - zero.unix_ns, error_ns: zero.error_ns });
    }

    /// The manager wants these settings.
    pub fn want(&self, settings: Settings) {
        let mut parts = self.parts();
        if parts.settings.version != settings.version {
            parts.wanted = Some(settings);
        }
    }

    /// What the manager wants, once.
    pub fn wanted(&self) -> Option<Settings> {
        self.parts().wanted.take()
    }

    /// Version of the settings that are gone by.
    pub fn settings_version(&self) -> u64 {
        self.parts().settings.version
    }

    /// How the keeper stands.
    pub fn keeper<T: Time>(&self, keeper: &Keeper<T>) {
        let mut parts = self.parts();
        parts.counts = keeper.counts();
        parts.levels = keeper.levels();
        parts.entries = keeper.entries();
        if parts.settings.version != keeper.settings().version {
            parts.settings.clone_from(keeper.settings());
        }
    }

    /// All of it, as it is now.
    pub fn now(&self) -> Parts {
        self.parts().clone()
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Each change is one assignment or two that may stand alone.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn stand() -> (Stand, Arc<Mutex<Vec<String>>>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = said.clone();
        (Stand::new(Box::new(move |line| lines.lock().unwrap().push(line.to_owned())), || 7), said)
    }

    #[test]
    fn what_is_no_news_is_not_told_again() {
        let (stand, said) = stand();
        stand.lost(Connection::Away, "refused");
        stand.lost(Connection::Away, "timed out");
        stand.connected();
        stand.connected();
        stand.lost(Connection::Refused, "no such token");
        stand.lost(Connection::Refused, "revoked");
        stand.trouble("the journal", "no room");
        stand.trouble("the journal", "no room");
        stand.trouble_is_over("the journal");
        stand.trouble_is_over("the journal");
        assert_eq!(said.lock().unwrap().len(), 6, "{said:?}");
        assert!(stand.now().troubles.is_empty() && stand.now().link.why == "revoked");
    }

    #[test]
    fn settings_are_wanted_until_they_are_gone_by() {
        let (stand, _) = stand();
        stand.want(Settings::default());
        assert_eq!(stand.wanted(), Some(Settings::default()));
        assert_eq!((stand.wanted(), stand.settings_version()), (None, 0));
        stand.parts().settings = Settings::default();
        stand.want(Settings::default());
        assert_eq!(stand.wanted(), None);
    }
}
