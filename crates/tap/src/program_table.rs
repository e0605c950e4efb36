//! The table of programs: which ran, and which were recorded. Coverage is measured, not assumed.
//!
//! A program is *seen* if it reported that it loaded the library. A started program without a report is *unseen*; a
//! seen program that bypasses the hooks is *partial*. Both are listed by name, with the reason.

use std::collections::{BTreeMap, HashMap};

use schema::TapExchange;
use schema::tap_part::TapProgram;
use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::coverage::Unseen;
use crate::event::{Event, EventKind, Origin, Owner};

/// Programs by name, with reasons for missing data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramTable {
    programs: BTreeMap<String, Entry>,
    left_out: u64,
    /// Started processes that have not reported: the path, and whether the library was preloaded.
    starting: BTreeMap<Owner, Start>,
    /// Program name and process of each image.
    names: HashMap<u32, (String, Owner)>,
    /// The latest image of each process, and when it reported.
    latest: HashMap<Owner, (u32, Timestamp)>,
    /// Whether a new program replaces, when the table is full, the longest unchanged program without processes.
    drops_idle_programs: bool,
    /// Number of changes so far.
    changes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Start {
    path: String,
    preloaded: bool,
    at: Timestamp,
}

/// A started process that has not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// Process number, as the parent sees it.
    pub owner: Owner,
    /// Program path as given to the call; see [`EventKind::Executing`].
    pub path: String,
    /// Whether its environment has the library.
    pub preloaded: bool,
}

/// Changes of a program since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Short name, at most 15 bytes.
    pub name: String,
    /// Processes that loaded the library, since then.
    pub seen: u64,
    /// Processes that should have loaded it and did not, since then.
    pub unseen: u64,
    /// Connections that ended, since then.
    pub connections: u64,
    /// Bytes that TCP counted and no hook recorded, since then.
    pub unseen_bytes: u64,
    /// Current reason why it is unseen or partial; empty: it is recorded.
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    seen: u64,
    unseen: u64,
    connections: u64,
    unseen_bytes: u64,
    uring_setups: u64,
    unfollowed: u64,
    /// Path of the first process with a known path.
    path: String,
    /// Why a process that loaded the library is partial.
    partial: String,
    why: String,
    /// Number of running images.
    running: u64,
    /// [`ProgramTable::changes`] at its last change.
    last_change: u64,
    /// The counts at the last report; `why` has the reported reason.
    reported: Change,
}

impl ProgramTable {
    /// Maximum separate programs. Others are counted together.
    pub const PROGRAMS_MAX: usize = 500;
    /// Maximum started processes without a report. Beyond, the earliest are dropped.
    pub const STARTING_MAX: usize = 10_000;

    /// A table for a daemon: names without processes make room for new ones.
    pub fn for_daemon() -> ProgramTable {
        ProgramTable { drops_idle_programs: true, ..ProgramTable::default() }
    }

    /// Notes that `path` starts as process `pid`, which reports itself if it is seen. 0 stands for the first process
    /// of a PID namespace below its init, whose number is not reported.
    pub fn starting(&mut self, pid: u32, path: &str, preloaded: bool) {
        let start = Start { path: path.to_owned(), preloaded, at: Timestamp::ZERO };
        self.starting.insert(Owner { space: 0, pid }, start);
    }

    /// Applies an event: loading, forking, starting, and activity that the hooks do not record.
    pub fn apply(&mut self, event: &Event) {
        match &event.what {
            EventKind::Loaded { at, program, parent_pid } => {
                let owner = event.origin.owner();
                self.latest.insert(owner, (event.origin.image, *at));
                let mut start = self.take_start(owner);
                if *parent_pid == INIT_PID {
                    start = self.starting.remove(&FIRST_CHILD).or(start);
                }
                self.seen(event.origin, program);
                if let (Some(start), Some(entry)) = (start, self.entry(program))
                    && entry.path.is_empty()
                {
                    entry.path = start.path;
                }
            }
            EventKind::Forked { program, .. } => self.seen(event.origin, program),
            EventKind::Filtered { program, parent_pid, .. } => {
                if *parent_pid == INIT_PID {
                    self.starting.remove(&FIRST_CHILD);
                }
                self.unseen(event.origin.pid, program, &Unseen::Filtered.to_string());
            }
            // A missing number is reported later. A blocked parent reports its child after the child's own report.
            EventKind::Executing { at, pid, path, preloaded } if *pid != 0 => {
                let owner = Owner { space: event.origin.space, pid: *pid };
                if self.latest.get(&owner).is_none_or(|(_, loaded)| loaded < at) {
                    self.drop_oldest_start();
                    self.starting.insert(owner, Start { path: path.clone(), preloaded: *preloaded, at: *at });
                }
            }
            EventKind::Aside { uring_setups, unfollowed, .. } => {
                let (uring, unfollowed) = (u64::from(*uring_setups), u64::from(*unfollowed));
                let name = self.names.get(&event.origin.image).map(|(name, _)| name.clone()).unwrap_or_default();
                if let Some(entry) = self.entry(&name) {
                    // Each image counts from its own start; the maximum of a program's images is used.
                    entry.uring_setups = entry.uring_setups.max(uring);
                    entry.unfollowed = entry.unfollowed.max(unfollowed);
                }
            }
            _ => {}
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: &TapExchange) {
        let name = row.program.as_deref().unwrap_or_default().to_owned();
        if row.last
            && let Some(entry) = self.entry(&name)
        {
            entry.connections += 1;
            entry.unseen_bytes = entry.unseen_bytes.saturating_add(row.unseen_bytes.unwrap_or(0));
        }
    }

    /// A running process that never reported.
    pub fn unseen(&mut self, pid: u32, name: &str, why: &str) {
        self.starting.retain(|owner, _| owner.pid != pid);
        if let Some(entry) = self.entry(name) {
            entry.unseen += 1;
            why.clone_into(&mut entry.why);
        }
    }

    /// Notes that one of [`overdue`](Self::overdue) will not report, because of `why`; `None` if no program was
    /// started.
    pub fn add_unreported(&mut self, owner: Owner, name: &str, why: Option<&str>) {
        let was_starting = self.starting.remove(&owner).is_some();
        if let (true, Some(why)) = (was_starting, why)
            && let Some(entry) = self.entry(name)
        {
            entry.unseen += 1;
            why.clone_into(&mut entry.why);
        }
    }

    /// Processes started before `before` without a report, in order.
    pub fn overdue(&self, before: Timestamp) -> Vec<Starting> {
        let overdue = self.starting.iter().filter(|(_, start)| start.at < before);
        let starting = overdue.map(|(owner, start)| Starting {
            owner: *owner,
            path: start.path.clone(),
            preloaded: start.preloaded,
        });
        starting.collect()
    }

    /// A process of this name bypasses the hooks.
    pub fn partial(&mut self, name: &str, why: &str) {
        if let Some(entry) = self.entry(name) {
            why.clone_into(&mut entry.partial);
        }
    }

    /// Names of the programs that are seen, with the path of one process each, if known.
    pub fn paths(&self) -> Vec<(String, String)> {
        let known = self.programs.iter().filter(|(_, entry)| !entry.path.is_empty());
        known.map(|(name, entry)| (name.clone(), entry.path.clone())).collect()
    }

    /// Ended connections of a program.
    pub fn connections(&self, name: &str) -> u64 {
        self.programs.get(name).map_or(0, |entry| entry.connections)
    }

    /// An image has ended: its name is dropped.
    pub fn image_ended(&mut self, image: u32) {
        let Some((name, owner)) = self.names.remove(&image) else { return };
        if self.latest.get(&owner).is_some_and(|(latest, _)| *latest == image) {
            self.latest.remove(&owner);
        }
        if let Some(entry) = self.programs.get_mut(&name) {
            entry.running = entry.running.saturating_sub(1);
        }
    }

    /// All processes have ended, including those about to start.
    pub fn forget_processes(&mut self) {
        self.starting.clear();
        self.names.clear();
        self.latest.clear();
        self.programs.values_mut().for_each(|entry| entry.running = 0);
    }

    /// The name of an image's program; empty if unknown.
    pub fn program(&self, image: u32) -> &str {
        self.names.get(&image).map_or("", |(name, _)| name)
    }

    /// Programs that changed since the last call, by name.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.programs.iter_mut().filter_map(|(name, entry)| entry.take_change(name)).collect()
    }

    /// Ends the run: started processes without a report count as unseen. `why` returns the reason by path, `None` if
    /// no program was started, as after a failed exec.
    pub fn end(&mut self, mut why: impl FnMut(&str) -> Option<String>) {
        for (owner, Start { path, preloaded, .. }) in std::mem::take(&mut self.starting) {
            // A failed exec started no program, even if the environment lacked the library.
            let why = why(&path).map(|why| if preloaded { why } else { Unseen::NotPreloaded.to_string() });
            if let Some(why) = why {
                let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
                self.unseen(owner.pid, &name, &why);
            }
        }
    }

    /// All programs by name, and the number beyond the limit.
    pub fn programs(&self) -> (Vec<TapProgram>, u64) {
        let programs = self.programs.iter().map(|(name, entry)| {
            let (coverage, why) = entry.coverage();
            TapProgram {
                name: display_name(name),
                processes: entry.seen + entry.unseen,
                coverage: coverage.to_owned(),
                why,
                connections: entry.connections,
            }
        });
        (programs.collect(), self.left_out)
    }

    fn seen(&mut self, origin: Origin, program: &str) {
        let before = self.names.insert(origin.image, (program.to_owned(), origin.owner()));
        if let Some(before) = before.and_then(|(name, _)| self.programs.get_mut(&name)) {
            before.running = before.running.saturating_sub(1);
        }
        if let Some(entry) = self.entry(program) {
            entry.seen += 1;
            entry.running += 1;
        }
    }

    /// Removes and returns the start that the parent reported. The parent may not have known the namespace.
    fn take_start(&mut self, owner: Owner) -> Option<Start> {
        self.starting.remove(&owner).or_else(|| self.starting.remove(&Owner { space: 0, ..owner }))
    }

    fn drop_oldest_start(&mut self) {
        if self.starting.len() >= Self::STARTING_MAX
            && let Some(first) = self.starting.iter().min_by_key(|(_, start)| start.at).map(|(owner, _)| *owner)
        {
            self.starting.remove(&first);
        }
    }

    /// The entry of a program, marked as changed; created if missing. `None` beyond the limit.
    fn entry(&mut self, name: &str) -> Option<&mut Entry> {
        if !self.programs.contains_key(name) {
            if self.programs.len() >= Self::PROGRAMS_MAX && !self.drop_idle_program() {
                self.left_out += 1;
                return None;
            }
            self.programs.insert(name.to_owned(), Entry::default());
        }
        self.changes += 1;
        let entry = self.programs.get_mut(name)?;
        entry.last_change = self.changes;
        Some(entry)
    }

    /// Drops the program that changed longest ago, of those without processes and unreported changes.
    fn drop_idle_program(&mut self) -> bool {
        if !self.drops_idle_programs {
            return false;
        }
        let idle = self.programs.iter().filter(|(name, entry)| entry.running == 0 && entry.change(name).is_none());
        let Some(name) = idle.min_by_key(|(_, entry)| entry.last_change).map(|(name, _)| name.clone()) else {
            return false;
        };
        self.programs.remove(&name).is_some()
    }
}

/// The name, or a placeholder for an unknown one.
fn display_name(name: &str) -> String {
    if name.is_empty() { "(not known)".to_owned() } else { name.to_owned() }
}

impl Entry {
    /// Changes since the last report, if any.
    fn change(&self, name: &str) -> Option<Change> {
        let reported = &self.reported;
        let change = Change {
            name: display_name(name),
            seen: self.seen - reported.seen,
            unseen: self.unseen - reported.unseen,
            connections: self.connections - reported.connections,
            unseen_bytes: self.unseen_bytes - reported.unseen_bytes,
            why: self.coverage().1,
        };
        let counted = change.seen | change.unseen | change.connections | change.unseen_bytes;
        (counted > 0 || change.why != reported.why).then_some(change)
    }

    /// Returns the changes since the last report, and marks them as reported.
    fn take_change(&mut self, name: &str) -> Option<Change> {
        let change = self.change(name)?;
        let Entry { seen, unseen, connections, unseen_bytes, .. } = *self;
        self.reported =
            Change { name: String::new(), seen, unseen, connections, unseen_bytes, why: change.why.clone() };
        Some(change)
    }

    fn coverage(&self) -> (&'static str, String) {
        if self.seen == 0 && self.unseen > 0 {
            return ("unseen", self.why.clone());
        }
        let mut reasons = Vec::new();
        if self.unseen > 0 {
            reasons.push(format!(
                "{} of {} processes not recorded: {}",
                self.unseen,
                self.seen + self.unseen,
                self.why
            ));
        }
        if self.unseen_bytes > 0 {
            reasons.push(format!("{} bytes counted by TCP that no hook recorded", self.unseen_bytes));
        }
        if !self.partial.is_empty() {
            reasons.push(self.partial.clone());
        } else if self.uring_setups > 0 {
            reasons.push("it uses io_uring, which the hooks do not record".to_owned());
        }
        if self.unfollowed > 0 {
            reasons.push(format!("{} connections exceeded the capacity of the hooks' tables", self.unfollowed));
        }
        if reasons.is_empty() { ("seen", String::new()) } else { ("partial", reasons.join("; ")) }
    }
}

/// Process number of the init of a PID namespace, within it.
const INIT_PID: u32 = 1;
/// The first process below it, whose number is not reported: see [`ProgramTable::starting`].
const FIRST_CHILD: Owner = Owner { space: 0, pid: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    fn event(image: u32, pid: u32, what: EventKind) -> Event {
        Event { origin: Origin { image, pid, tid: pid, space: 4 }, what }
    }

    fn loaded(image: u32, pid: u32, program: &str) -> Event {
        event(image, pid, EventKind::Loaded { at: Timestamp::ZERO, parent_pid: 1, program: program.into() })
    }

    fn executing(pid: u32, path: &str, preloaded: bool) -> Event {
        event(1, pid, EventKind::Executing { at: Timestamp::ZERO, pid, path: path.into(), preloaded })
    }

    fn reported(programs: &ProgramTable) -> Vec<(String, u64, String, String)> {
        programs.programs().0.into_iter().map(|p| (p.name, p.processes, p.coverage, p.why)).collect()
    }

    fn row(name: &str, processes: u64, coverage: &str, why: &str) -> (String, u64, String, String) {
        (name.into(), processes, coverage.into(), why.into())
    }

    #[test]
    fn a_started_program_that_never_loads_the_library_is_unseen() {
        let mut programs = ProgramTable::default();
        programs.starting(7, "/bin/sh", true);
        for event in [
            loaded(1, 7, "sh"),
            executing(8, "/usr/bin/curl", true),
            loaded(2, 8, "curl"),
            executing(9, "/usr/bin/static", true),
            executing(10, "/usr/bin/env", false),
            executing(11, "/no/such", true),
        ] {
            programs.apply(&event);
        }
        assert_eq!(
            programs.paths(),
            [("curl".to_owned(), "/usr/bin/curl".to_owned()), ("sh".to_owned(), "/bin/sh".to_owned())]
        );
        programs.end(|path| (path != "/no/such").then(|| "it is linked statically".to_owned()));
        assert_eq!(
            reported(&programs),
            [
                row("curl", 1, "seen", ""),
                row("env", 1, "unseen", &Unseen::NotPreloaded.to_string()),
                row("sh", 1, "seen", ""),
                row("static", 1, "unseen", "it is linked statically"),
            ]
        );
    }

    #[test]
    fn a_late_start_record_of_the_parent_adds_no_process() {
        let mut programs = ProgramTable::default();
        let at = Timestamp::from_nanos;
        let loaded =
            |image, pid, ns| event(image, pid, EventKind::Loaded { at: at(ns), parent_pid: 7, program: "sh".into() });
        let executing =
            |pid, ns| event(1, 7, EventKind::Executing { at: at(ns), pid, path: "/bin/sh".into(), preloaded: true });
        // The first is reported late; the second has a reused number, and never reports.
        [loaded(2, 8, 20), executing(8, 10), loaded(3, 9, 30), executing(9, 40)].iter().for_each(|e| programs.apply(e));
        programs.image_ended(2);
        programs.end(|_| Some("linked statically".to_owned()));
        assert_eq!(reported(&programs), [row("sh", 3, "partial", "1 of 3 processes not recorded: linked statically")]);
    }

    #[test]
    fn a_program_that_bypasses_the_hooks_is_partial() {
        let mut programs = ProgramTable::default();
        programs.apply(&loaded(1, 7, "io"));
        let aside = EventKind::Aside { at: Timestamp::ZERO, datagram_sockets: 3, uring_setups: 1, unfollowed: 0 };
        programs.apply(&event(1, 7, aside));
        programs.apply(&loaded(2, 8, "stdio"));
        programs.add(&TapExchange {
            program: Some("stdio".into()),
            last: true,
            unseen_bytes: Some(900),
            ..TapExchange::BLANK
        });
        assert_eq!(
            reported(&programs),
            [
                row("io", 1, "partial", "it uses io_uring, which the hooks do not record"),
                row("stdio", 1, "partial", "900 bytes counted by TCP that no hook recorded"),
            ]
        );
    }
}
