//! Who still has a ring, and who may speak in it: how a standing tap, which started nobody, learns that a process is gone.
//!
//! A process that has told anything has the ring mapped, and goes on having it until it ends or becomes another program.
//! So one that does not have it is gone as far as the tap is concerned, and nobody writes to its slots any more.
//!
//! What it costs: a process that was found once is asked by its mapping's own name, /proc/PID/map_files/FROM-TO, one look-up
//! of some microseconds that reads nothing; its start, which tells it from another with the same number, is read at every eighth
//! look. The whole of /proc is gone through only while a process of another PID namespace is not found yet, and
//! /proc/PID/maps is read once a process. Programs that are not under the tap cost nothing.
//!
//! A process of another namespace is found by both numbers, since two containers may each have a process 7.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;

use sys::accounting::ProcessStat;

use super::{Process, Unseen, process, reason_beside, runs};
use crate::event::Owner;

/// The processes that have one of the rings' files.
#[derive(Debug)]
pub struct Holders {
    /// Of the files.
    inodes: BTreeSet<u64>,
    /// The PID namespace of this process, whose numbers /proc shows; 0: not known.
    own_space: u32,
    /// Whether every process of the machine is in this /proc.
    sees_all: bool,
    found: HashMap<Owner, Found>,
    /// Namespaces of which a process was seen here: they lie below this one, and who is not here is not.
    below: HashSet<u32>,
    looks: u64,
    /// Of this look, once somebody has asked.
    strangers: Option<Strangers>,
}

/// A process that has it.
#[derive(Debug)]
struct Found {
    /// As seen from here.
    pid: i32,
    started_ticks: u64,
    /// Where the ring is mapped; absent where this process may not look.
    range: Option<String>,
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// These do not have the ring any more.
    pub gone: BTreeSet<Owner>,
    /// These were never seen from here: they are gone, or live in a PID namespace that is not below this one, or could not say their number.
    pub out_of_sight: BTreeSet<Owner>,
}

/// Processes of other namespaces, by how they see themselves.
type Strangers = HashMap<Owner, Vec<i32>>;

/// The number of the machine's first PID namespace (PROC_PID_INIT_INO).
const FIRST_SPACE: u32 = 0xefff_fffc;
/// Between two looks at a process's start.
const LOOKS_APART: u64 = 8;

impl Holders {
    /// Of no ring yet: see [`Holders::of`].
    #[allow(clippy::new_without_default, reason = "it looks at the machine")]
    pub fn new() -> Holders {
        let own_space = space_of("self").unwrap_or(0);
        // With hidepid an ordinary user sees his own processes only.
        let sees_all = own_space == FIRST_SPACE && fs::read("/proc/1/stat").is_ok();
        let (found, below) = (HashMap::new(), HashSet::new());
        Holders { inodes: BTreeSet::new(), own_space, sees_all, found, below, looks: 0, strangers: None }
    }

    /// From now on the rings are the files with these inodes.
    pub fn of(&mut self, inodes: impl IntoIterator<Item = u64>) {
        let inodes = inodes.into_iter().collect();
        if self.inodes != inodes {
            self.inodes = inodes;
            self.found.clear();
        }
    }

    /// Whether a process that speaks in the ring of `user`, a file with this inode, may be the one that it says it is. A process
    /// that lives is that user's, or has the file (it has changed its user since, or its parent has). One that is gone is
    /// nobody any more; that it was in a PID namespace which is not to be found is not believed.
    pub fn vouch(&mut self, owner: Owner, user: u32, inode: u64) -> bool {
        if owner.pid == 0 {
            return true;
        }
        let here = self.here(owner).into_iter();
        let elsewhere = if owner.space == self.own_space || owner.space == 0 {
            Vec::new()
        } else {
            let strangers = self.strangers.get_or_insert_with(|| strangers_to(self.own_space));
            let is_known = |strangers: &Strangers| strangers.keys().any(|other| other.space == owner.space);
            if !is_known(strangers) {
                return !self.sees_all;
            }
            alike(strangers, owner)
        };
        let alive: Vec<i32> = here.chain(elsewhere).filter(|pid| is_process(*pid)).collect();
        alive.is_empty() || alive.iter().any(|pid| is_of(*pid, user) || has(*pid, inode))
    }

    /// The next question about processes of other namespaces looks for them again.
    pub fn forget_strangers(&mut self) {
        self.strangers = None;
    }

    /// Which of `owners` do not have the ring. Each must have told something before this is called.
    pub fn look(&mut self, owners: &BTreeSet<Owner>) -> Departed {
        self.looks += 1;
        self.found.retain(|owner, _| owners.contains(owner));
        self.below.retain(|space| owners.iter().any(|owner| owner.space == *space));
        let mut departed = Departed::default();
        let mut strangers = None;
        for owner in owners {
            if self.found.get(owner).is_some_and(|found| self.still_has(found)) {
                continue;
            }
            self.found.remove(owner);
            if owner.pid == 0 {
                departed.out_of_sight.insert(*owner);
                continue;
            }
            let mut holds = self.here(*owner).and_then(|pid| self.holds(pid));
            if holds.is_none() && owner.space != self.own_space {
                let strangers = strangers.get_or_insert_with(|| strangers_to(self.own_space));
                let seen = strangers.keys().map(|stranger| stranger.space).filter(|space| *space != 0);
                self.below.extend(seen.filter(|space| *space == owner.space));
                holds = alike(strangers, *owner).into_iter().find_map(|pid| self.holds(pid));
            }
            match holds {
                Some(found) => drop(self.found.insert(*owner, found)),
                None if owner.space == self.own_space || self.sees_all || self.below.contains(&owner.space) => {
                    departed.gone.insert(*owner);
                }
                None => drop(departed.out_of_sight.insert(*owner)),
            }
        }
        self.strangers = strangers;
        departed
    }

    /// The process, as seen from here, if it was found at the last look.
    pub fn process(&self, owner: Owner) -> Option<Process> {
        process(self.found.get(&owner)?.pid)
    }

    /// A process that was started and said nothing, by its parent's word: the process, if it is there, and why it is not seen; no reason where it
    /// has the ring after all.
    pub fn unseen(&mut self, owner: Owner) -> Option<(Process, Option<Unseen>)> {
        let here = self.here(owner).into_iter();
        let elsewhere = if owner.space == self.own_space {
            Vec::new()
        } else {
            alike(self.strangers.get_or_insert_with(|| strangers_to(self.own_space)), owner)
        };
        let process = here.chain(elsewhere).find_map(process)?;
        let why = reason_beside(&process, &|line| self.is_ring(&String::from_utf8_lossy(line)));
        Some((process, why))
    }

    /// The number of a process that may be in this namespace.
    fn here(&self, owner: Owner) -> Option<i32> {
        let may_be = owner.space == self.own_space || owner.space == 0;
        if may_be { i32::try_from(owner.pid).ok() } else { None }
    }

    fn still_has(&self, found: &Found) -> bool {
        let is_same = || ProcessStat::read(found.pid).is_some_and(|stat| stat.start_ticks == found.started_ticks);
        match &found.range {
            Some(range) => {
                let is_mapped = fs::symlink_metadata(format!("/proc/{}/map_files/{range}", found.pid)).is_ok();
                // Not all at once.
                let is_due = (self.looks + found.started_ticks).is_multiple_of(LOOKS_APART);
                is_mapped && (!is_due || is_same())
            }
            None => ProcessStat::read(found.pid)
                .is_some_and(|stat| stat.start_ticks == found.started_ticks && (runs(&stat) || has_threads(found.pid))),
        }
    }

    /// Whether a process has the ring. One that this may not look into has, while it is there.
    fn holds(&self, pid: i32) -> Option<Found> {
        let stat = ProcessStat::read(pid).filter(|_| is_process(pid))?;
        let found = |range| Some(Found { pid, started_ticks: stat.start_ticks, range });
        let may_have = match fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) if !maps.is_empty() => {
                let text = String::from_utf8_lossy(&maps);
                let line = text.lines().find(|line| self.is_ring(line))?;
                return found(line.split(' ').next().map(str::to_owned));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => runs(&stat) || has_threads(pid),
            // The first thread has ended. Where others go on they have it, and the kernel does not say so here.
            _ => has_threads(pid),
        };
        if may_have { found(None) } else { None }
    }

    /// Whether a line of maps is of this ring: range, rights, offset, device, inode, path. The device is not looked at: some file systems
    /// say another one here than stat does.
    fn is_ring(&self, line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        let inode = words.nth(4).and_then(|word| word.parse::<u64>().ok());
        inode.is_some_and(|inode| self.inodes.contains(&inode)) && is_ring_name(line)
    }
}

/// Whether a line of maps ends with the name of a ring's file: `ring`, or `ring.USER`.
fn is_ring_name(line: &str) -> bool {
    let name = line.rsplit('/').next().unwrap_or_default();
    name.strip_prefix("ring").is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('.').is_some_and(|user| user.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Whether `user` is one of a process's users: real, effective, saved or of files.
fn is_of(pid: i32, user: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    users.split_ascii_whitespace().any(|word| word.parse() == Ok(user))
}

/// Whether a process has the file with this inode mapped.
fn has(pid: i32, inode: u64) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&maps);
    let inode = inode.to_string();
    text.lines().any(|line| line.split_ascii_whitespace().nth(4) == Some(&inode) && is_ring_name(line))
}

/// Goes through /proc for who is in another PID namespace than this process.
fn strangers_to(own_space: u32) -> Strangers {
    let mut strangers = Strangers::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // 0: this process may not look.
        let space = space_of(&pid.to_string()).unwrap_or(0);
        if space == own_space && space != 0 {
            continue;
        }
        if let Some(inner) = inner_pid(pid) {
            strangers.entry(Owner { space, pid: inner }).or_default().push(pid);
        }
    }
    strangers
}

/// Who may be `owner`: one whose namespace is not known, on either side, may be in any.
fn alike(strangers: &Strangers, owner: Owner) -> Vec<i32> {
    if owner.space == 0 {
        let alike = strangers.iter().filter(|(other, _)| other.pid == owner.pid);
        return alike.flat_map(|(_, pids)| pids.iter().copied()).collect();
    }
    let of = |space| strangers.get(&Owner { space, ..owner }).into_iter().flatten().copied();
    of(owner.space).chain(of(0)).collect()
}

/// The number of a process's PID namespace.
fn space_of(pid: &str) -> Option<u32> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// A process's number in its own namespace, if that is below this one.
fn inner_pid(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace();
    numbers.skip(1).last()?.parse().ok()
}

/// A thread's number has files in /proc, too.
fn is_process(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Tgid:")).is_some_and(|group| group.trim().parse() == Ok(pid))
}

fn has_threads(pid: i32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_line_of_maps_is_of_the_ring_by_inode_and_name() {
        let holders = Holders {
            inodes: BTreeSet::from([77]),
            own_space: 1,
            sees_all: true,
            found: HashMap::new(),
            below: HashSet::new(),
            looks: 0,
            strangers: None,
        };
        let line = |inode: u64, path: &str| format!("7f00-7f10 rw-s 00000000 00:1a {inode}        {path}");
        assert!(holders.is_ring(&line(77, "/run/yamabiko-tap/ring")));
        assert!(holders.is_ring(&line(77, "/run/yamabiko-tap/ring.65534")));
        assert!(!holders.is_ring(&line(78, "/run/yamabiko-tap/ring")), "another file");
        assert!(!holders.is_ring(&line(77, "/run/yamabiko-tap/ring.new")) && !holders.is_ring(&line(77, "/spring")));
        assert!(!holders.is_ring(&line(77, "/run/yamabiko-tap/ring (deleted)")), "one that was replaced");
        assert!(!holders.is_ring(&line(77, "/usr/lib/libc.so.6")) && !holders.is_ring(""));
    }

    #[test]
    fn this_process_has_what_it_mapped_until_it_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        fs::write(&path, [0; 4096]).unwrap();
        let mut holders = Holders::new();
        let inode = fs::metadata(&path).unwrap().ino();
        holders.of([inode]);
        let own = Owner { space: space_of("self").unwrap(), pid: std::process::id() };
        let gone = Owner { pid: u32::MAX >> 1, ..own };
        let elsewhere = Owner { space: 3, pid: 7 };
        let all = BTreeSet::from([own, gone, elsewhere]);
        let sees_all = holders.sees_all;
        let of_others = |departed: &Departed| {
            let set = if sees_all { &departed.gone } else { &departed.out_of_sight };
            set.contains(&elsewhere)
        };
        let departed = holders.look(&all);
        assert!(departed.gone.contains(&own) && departed.gone.contains(&gone) && of_others(&departed));
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let mapped = crate::rings::map_for_test(&file);
        for _ in 0..20 {
            let departed = holders.look(&all);
            assert!(!departed.gone.contains(&own) && departed.gone.contains(&gone) && of_others(&departed));
        }
        assert_eq!(holders.process(own).unwrap().pid, std::process::id().cast_signed());
        assert_eq!(holders.unseen(own).unwrap().1, None, "no library here, and the ring all the same");
        assert_eq!(holders.unseen(gone), None);
        let user = nix::unistd::geteuid().as_raw();
        assert!(holders.vouch(own, user, inode) && holders.vouch(own, user + 1, inode), "it has the file");
        assert!(holders.vouch(gone, user + 1, inode), "whoever it was is nobody now");
        drop(mapped);
        assert!(holders.vouch(own, user, inode) && !holders.vouch(own, user + 1, inode), "it is another's process");
        assert_eq!(holders.vouch(Owner { space: 3, pid: 7 }, user, inode), !sees_all);
        assert!(holders.look(&all).gone.contains(&own));
        assert!(holders.process(own).is_none());
    }
}
