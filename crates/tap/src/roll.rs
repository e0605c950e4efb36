//! The roll of programs: which ran, and which were seen. Coverage is proved, not assumed.
//!
//! A program is *seen* if it said that it loaded the library. One that was started and never said so is *unseen*; one
//! that said so and did what the hooks do not see is *partial*. Both are told by name, with the reason.

use std::collections::{BTreeMap, HashMap};

use ledger::TapExchange;
use ledger::tap_part::TapProgram;
use units::Timestamp;

use crate::coverage::Unseen;
use crate::event::{Event, Origin, What};

/// Programs by name, and what is known against them.
#[derive(Debug, Default)]
pub struct Roll {
    programs: BTreeMap<String, Entry>,
    left_out: u64,
    /// What was started and did not yet say that it is seen: by process number, the path, and whether the library was
    /// asked for.
    starting: HashMap<u32, Start>,
    /// By image, its program's name and its process number.
    names: HashMap<u32, (String, u32)>,
    /// The latest image of each process number, and when it said that it is seen.
    latest: HashMap<u32, (u32, Timestamp)>,
}

#[derive(Clone, Debug)]
struct Start {
    path: String,
    preloaded: bool,
}

#[derive(Debug, Default)]
struct Entry {
    seen: u64,
    unseen: u64,
    connections: u64,
    unseen_bytes: u64,
    uring_setups: u64,
    unfollowed: u64,
    /// Of the first that was started with a path that is known.
    path: String,
    /// Why a process that loaded the library is not seen whole.
    partial: String,
    why: String,
}

impl Roll {
    /// Programs told apart by name. More are counted together.
    pub const PROGRAMS_MAX: usize = 500;

    /// Notes that `path` is being started as process `pid`; it will say so itself if it is seen. 0 for the first process of a
    /// PID namespace below its init, whose number nobody told.
    pub fn starting(&mut self, pid: u32, path: &str, preloaded: bool) {
        self.starting.insert(pid, Start { path: path.to_owned(), preloaded });
    }

    /// Takes note of an event. What it concerns: loading, forking, starting, and what hooks do not follow.
    pub fn take(&mut self, event: &Event) {
        match &event.what {
            What::Loaded { at, program, parent_pid } => {
                self.latest.insert(event.origin.pid, (event.origin.image, *at));
                let mut start = self.starting.remove(&event.origin.pid);
                if *parent_pid == INIT {
                    start = self.starting.remove(&0).or(start);
                }
                self.seen(event.origin, program);
                if let (Some(start), Some(entry)) = (start, self.entry(program))
                    && entry.path.is_empty()
                {
                    entry.path = start.path;
                }
            }
            What::Forked { program, .. } => self.seen(event.origin, program),
            What::Filtered { program, parent_pid, .. } => {
                if *parent_pid == INIT {
                    self.starting.remove(&0);
                }
                self.unseen(event.origin.pid, program, &Unseen::Filtered.to_string());
            }
            // A number that is not known yet is told again. And a parent that was kept waiting tells of its child when that has
            // told of itself.
            What::Executing { at, pid, path, preloaded }
                if *pid != 0 && self.latest.get(pid).is_none_or(|(_, loaded)| loaded < at) =>
            {
                self.starting(*pid, path, *preloaded);
            }
            What::Aside { uring_setups, unfollowed, .. } => {
                let (uring, unfollowed) = (u64::from(*uring_setups), u64::from(*unfollowed));
                let name = self.names.get(&event.origin.image).map(|(name, _)| name.clone()).unwrap_or_default();
                if let Some(entry) = self.entry(&name) {
                    // Each image counts from its own beginning; the largest of a program's images stands for it.
                    entry.uring_setups = entry.uring_setups.max(uring);
                    entry.unfollowed = entry.unfollowed.max(unfollowed);
                }
            }
            _ => {}
        }
    }

    /// Takes note of a row.
    pub fn add(&mut self, row: &TapExchange) {
        let name = row.program.as_deref().unwrap_or_default().to_owned();
        if row.last
            && let Some(entry) = self.entry(&name)
        {
            entry.connections += 1;
            entry.unseen_bytes = entry.unseen_bytes.saturating_add(row.unseen_bytes.unwrap_or(0));
        }
    }

    /// A process that was found running without ever having said that it is seen.
    pub fn unseen(&mut self, pid: u32, name: &str, why: &str) {
        self.starting.remove(&pid);
        if let Some(entry) = self.entry(name) {
            entry.unseen += 1;
            why.clone_into(&mut entry.why);
        }
    }

    /// A process of this name was found to be what hooks do not see whole.
    pub fn partial(&mut self, name: &str, why: &str) {
        if let Some(entry) = self.entry(name) {
            why.clone_into(&mut entry.partial);
        }
    }

    /// Programs that are seen, by name, and the path that one of each was started by, where it is known.
    pub fn paths(&self) -> Vec<(String, String)> {
        let known = self.programs.iter().filter(|(_, entry)| !entry.path.is_empty());
        known.map(|(name, entry)| (name.clone(), entry.path.clone())).collect()
    }

    /// An image is gone: its name is not needed any more.
    pub fn gone(&mut self, image: u32) {
        if let Some((_, pid)) = self.names.remove(&image)
            && self.latest.get(&pid).is_some_and(|(latest, _)| *latest == image)
        {
            self.latest.remove(&pid);
        }
    }

    /// The run ends: whatever was started and never said that it is seen was not. `why` gives the reason by path, `None`
    /// where nothing was started after all, as when exec failed.
    pub fn end(&mut self, mut why: impl FnMut(&str) -> Option<String>) {
        let mut starting: Vec<_> = self.starting.drain().collect();
        starting.sort_by_key(|(pid, _)| *pid);
        for (pid, Start { path, preloaded }) in starting {
            // Also where the environment is the reason: an exec that failed started nothing.
            let why = why(&path).map(|why| if preloaded { why } else { Unseen::NotHandedOn.to_string() });
            if let Some(why) = why {
                let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
                self.unseen(pid, &name, &why);
            }
        }
    }

    /// Every program, by name, and how many are left out for want of room.
    pub fn programs(&self) -> (Vec<TapProgram>, u64) {
        let programs = self.programs.iter().map(|(name, entry)| {
            let (coverage, why) = entry.coverage();
            TapProgram {
                name: if name.is_empty() { "(not known)".to_owned() } else { name.clone() },
                processes: entry.seen + entry.unseen,
                coverage: coverage.to_owned(),
                why,
                connections: entry.connections,
            }
        });
        (programs.collect(), self.left_out)
    }

    fn seen(&mut self, origin: Origin, program: &str) {
        self.names.insert(origin.image, (program.to_owned(), origin.pid));
        if let Some(entry) = self.entry(program) {
            entry.seen += 1;
        }
    }

    fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        if !self.programs.contains_key(name) {
            if self.programs.len() >= Self::PROGRAMS_MAX {
                self.left_out += 1;
                return None;
            }
            self.programs.insert(name.to_owned(), Entry::default());
        }
        self.programs.get_mut(name)
    }
}

impl Entry {
    fn coverage(&self) -> (&'static str, String) {
        if self.seen == 0 && self.unseen > 0 {
            return ("unseen", self.why.clone());
        }
        let mut reasons = Vec::new();
        if self.unseen > 0 {
            reasons.push(format!("{} of {} processes unseen: {}", self.unseen, self.seen + self.unseen, self.why));
        }
        if self.unseen_bytes > 0 {
            reasons.push(format!("{} bytes passed that no hook saw", self.unseen_bytes));
        }
        if !self.partial.is_empty() {
            reasons.push(self.partial.clone());
        } else if self.uring_setups > 0 {
            reasons.push("it uses io_uring, which no hook sees".to_owned());
        }
        if self.unfollowed > 0 {
            reasons.push(format!("{} connections found no room in the hooks' tables", self.unfollowed));
        }
        if reasons.is_empty() { ("seen", String::new()) } else { ("partial", reasons.join("; ")) }
    }
}

/// The init of a PID namespace, as those in it count.
const INIT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(image: u32, pid: u32, what: What) -> Event {
        Event { origin: Origin { image, pid, tid: pid }, what }
    }

    fn loaded(image: u32, pid: u32, program: &str) -> Event {
        event(image, pid, What::Loaded { at: Timestamp::ZERO, parent_pid: 1, program: program.into() })
    }

    fn executing(pid: u32, path: &str, preloaded: bool) -> Event {
        event(1, pid, What::Executing { at: Timestamp::ZERO, pid, path: path.into(), preloaded })
    }

    fn told(roll: &Roll) -> Vec<(String, u64, String, String)> {
        roll.programs().0.into_iter().map(|p| (p.name, p.processes, p.coverage, p.why)).collect()
    }

    fn line(name: &str, processes: u64, coverage: &str, why: &str) -> (String, u64, String, String) {
        (name.into(), processes, coverage.into(), why.into())
    }

    #[test]
    fn what_never_said_that_it_is_seen_is_unseen() {
        let mut roll = Roll::default();
        roll.starting(7, "/bin/sh", true);
        for event in [
            loaded(1, 7, "sh"),
            executing(8, "/usr/bin/curl", true),
            loaded(2, 8, "curl"),
            executing(9, "/usr/bin/static", true),
            executing(10, "/usr/bin/env", false),
            executing(11, "/no/such", true),
        ] {
            roll.take(&event);
        }
        assert_eq!(
            roll.paths(),
            [("curl".to_owned(), "/usr/bin/curl".to_owned()), ("sh".to_owned(), "/bin/sh".to_owned())]
        );
        roll.end(|path| (path != "/no/such").then(|| "it is linked statically".to_owned()));
        assert_eq!(
            told(&roll),
            [
                line("curl", 1, "seen", ""),
                line("env", 1, "unseen", &Unseen::NotHandedOn.to_string()),
                line("sh", 1, "seen", ""),
                line("static", 1, "unseen", "it is linked statically"),
            ]
        );
    }

    #[test]
    fn a_parent_that_is_late_tells_nothing_new() {
        let mut roll = Roll::default();
        let at = Timestamp::from_nanos;
        let loaded =
            |image, pid, ns| event(image, pid, What::Loaded { at: at(ns), parent_pid: 7, program: "sh".into() });
        let executing =
            |pid, ns| event(1, 7, What::Executing { at: at(ns), pid, path: "/bin/sh".into(), preloaded: true });
        // The first is told of late; the second's number is an earlier one's, and it never says anything.
        [loaded(2, 8, 20), executing(8, 10), loaded(3, 9, 30), executing(9, 40)].iter().for_each(|e| roll.take(e));
        roll.gone(2);
        roll.end(|_| Some("linked statically".to_owned()));
        assert_eq!(told(&roll), [line("sh", 3, "partial", "1 of 3 processes unseen: linked statically")]);
    }

    #[test]
    fn what_goes_round_the_hooks_is_partial() {
        let mut roll = Roll::default();
        roll.take(&loaded(1, 7, "io"));
        let aside = What::Aside { at: Timestamp::ZERO, datagram_sockets: 3, uring_setups: 1, unfollowed: 0 };
        roll.take(&event(1, 7, aside));
        roll.take(&loaded(2, 8, "stdio"));
        roll.add(&TapExchange {
            program: Some("stdio".into()),
            last: true,
            unseen_bytes: Some(900),
            ..TapExchange::BLANK
        });
        assert_eq!(
            told(&roll),
            [
                line("io", 1, "partial", "it uses io_uring, which no hook sees"),
                line("stdio", 1, "partial", "900 bytes passed that no hook saw"),
            ]
        );
    }
}
