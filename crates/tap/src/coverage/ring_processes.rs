//! Which processes map a ring, and which may write to it: how a tap daemon, which starts no program, detects ended
//! processes.
//!
//! A process that has reported anything keeps the ring mapped until it ends or runs another program. A process
//! without the mapping has therefore ended for the tap, and its slots have no writer.
//!
//! Cost: a known process is checked by its mapping's name, /proc/PID/map_files/FROM-TO, one look-up of some
//! microseconds. Its start time, which distinguishes reused process numbers, is read at every eighth check. The whole
//! of /proc is read only while a process of another PID namespace is missing, and /proc/PID/maps is read once per
//! process. Programs without the tap cost nothing.
//!
//! A process of another namespace is identified by both numbers, since two containers may each have a process 7.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;

use sys::accounting::ProcessStat;

use super::{Process, Unseen, process, reason_beside, runs};
use crate::event::Owner;

/// The processes that map one of the ring files.
#[derive(Debug)]
pub struct RingProcesses {
    /// Inodes of the files.
    inodes: BTreeSet<u64>,
    /// The PID namespace of this process and its /proc; 0: unknown.
    own_space: u32,
    /// Whether this /proc shows every process of the machine.
    sees_all: bool,
    found: HashMap<Owner, MappedProcess>,
    /// Namespaces with a process seen here: they are below this one, so all their processes are visible.
    below: HashSet<u32>,
    looks: u64,
    /// Results of this scan, once needed.
    strangers: Option<ForeignProcesses>,
}

/// A process that maps the ring.
#[derive(Debug)]
struct MappedProcess {
    /// Process number in this namespace.
    pid: i32,
    started_ticks: u64,
    /// Address range of the ring; absent if this process may not read it.
    range: Option<String>,
}

/// Result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Processes that no longer map the ring.
    pub gone: BTreeSet<Owner>,
    /// Processes never seen here: they have ended, live in an invisible PID namespace, or could not read their
    /// number.
    pub out_of_sight: BTreeSet<Owner>,
}

/// Processes of other namespaces, by their own numbers.
type ForeignProcesses = HashMap<Owner, Vec<i32>>;

/// The inode of the initial PID namespace (PROC_PID_INIT_INO).
const INITIAL_NAMESPACE: u32 = 0xefff_fffc;
/// Scans between two checks of a process's start time.
const START_CHECK_INTERVAL: u64 = 8;

impl RingProcesses {
    /// Knows no ring yet: see [`RingProcesses::of`].
    #[allow(clippy::new_without_default, reason = "it looks at the machine")]
    pub fn new() -> RingProcesses {
        let own_space = space_of("self").unwrap_or(0);
        // With hidepid an ordinary user sees only own processes.
        let sees_all = own_space == INITIAL_NAMESPACE && fs::read("/proc/1/stat").is_ok();
        let (found, below) = (HashMap::new(), HashSet::new());
        RingProcesses { inodes: BTreeSet::new(), own_space, sees_all, found, below, looks: 0, strangers: None }
    }

    /// Sets the inodes of the ring files.
    pub fn of(&mut self, inodes: impl IntoIterator<Item = u64>) {
        let inodes = inodes.into_iter().collect();
        if self.inodes != inodes {
            self.inodes = inodes;
            self.found.clear();
        }
    }

    /// Whether a process that writes to the ring of `user`, a file with this inode, may be the process that it claims
    /// to be. A living process must belong to that user or map the file (it or its parent has changed the user). An
    /// ended process passes, unless it claims a PID namespace that does not exist.
    pub fn vouch(&mut self, owner: Owner, user: u32, inode: u64) -> bool {
        if owner.pid == 0 {
            return true;
        }
        let here = self.here(owner).into_iter();
        let elsewhere = if owner.space == self.own_space || owner.space == 0 {
            Vec::new()
        } else {
            let strangers = self.strangers.get_or_insert_with(|| processes_in_other_namespaces(self.own_space));
            let is_known = |strangers: &ForeignProcesses| strangers.keys().any(|other| other.space == owner.space);
            if !is_known(strangers) {
                return !self.sees_all;
            }
            alike(strangers, owner)
        };
        let alive: Vec<i32> = here.chain(elsewhere).filter(|pid| is_process(*pid)).collect();
        alive.is_empty() || alive.iter().any(|pid| is_of(*pid, user) || has(*pid, inode))
    }

    /// Makes the next query about other namespaces scan again.
    pub fn forget_foreign_processes(&mut self) {
        self.strangers = None;
    }

    /// Which of `owners` no longer map the ring. Each must have reported something before this call.
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
                let strangers = strangers.get_or_insert_with(|| processes_in_other_namespaces(self.own_space));
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

    /// The process number in this namespace, if the last scan found it.
    pub fn process(&self, owner: Owner) -> Option<Process> {
        process(self.found.get(&owner)?.pid)
    }

    /// Looks for a process that its parent started and that has not reported: the process, if it exists, and why it
    /// is not recorded; no reason if it maps the ring after all.
    pub fn unseen(&mut self, owner: Owner) -> Option<(Process, Option<Unseen>)> {
        let here = self.here(owner).into_iter();
        let elsewhere = if owner.space == self.own_space {
            Vec::new()
        } else {
            alike(self.strangers.get_or_insert_with(|| processes_in_other_namespaces(self.own_space)), owner)
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

    fn still_has(&self, found: &MappedProcess) -> bool {
        let is_same = || ProcessStat::read(found.pid).is_some_and(|stat| stat.start_ticks == found.started_ticks);
        match &found.range {
            Some(range) => {
                let is_mapped = fs::symlink_metadata(format!("/proc/{}/map_files/{range}", found.pid)).is_ok();
                // Spread over several scans.
                let is_due = (self.looks + found.started_ticks).is_multiple_of(START_CHECK_INTERVAL);
                is_mapped && (!is_due || is_same())
            }
            None => ProcessStat::read(found.pid)
                .is_some_and(|stat| stat.start_ticks == found.started_ticks && (runs(&stat) || has_threads(found.pid))),
        }
    }

    /// Whether a process maps the ring. A process that may not be inspected counts as mapping it while it exists.
    fn holds(&self, pid: i32) -> Option<MappedProcess> {
        let stat = ProcessStat::read(pid).filter(|_| is_process(pid))?;
        let found = |range| Some(MappedProcess { pid, started_ticks: stat.start_ticks, range });
        let may_have = match fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) if !maps.is_empty() => {
                let text = String::from_utf8_lossy(&maps);
                let line = text.lines().find(|line| self.is_ring(line))?;
                return found(line.split(' ').next().map(str::to_owned));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => runs(&stat) || has_threads(pid),
            // The first thread has ended. If other threads live they map the ring, which the kernel does not show
            // here.
            _ => has_threads(pid),
        };
        if may_have { found(None) } else { None }
    }

    /// Whether a line of /proc/PID/maps (range, permissions, offset, device, inode, path) is of this ring. The device
    /// is ignored: some file systems report another one here than stat does.
    fn is_ring(&self, line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        let inode = words.nth(4).and_then(|word| word.parse::<u64>().ok());
        inode.is_some_and(|inode| self.inodes.contains(&inode)) && is_ring_name(line)
    }
}

/// Whether a line of maps ends with the name of a ring file: `ring`, or `ring.USER`.
fn is_ring_name(line: &str) -> bool {
    let name = line.rsplit('/').next().unwrap_or_default();
    name.strip_prefix("ring").is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('.').is_some_and(|user| user.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Whether `user` is one of the process's users: real, effective, saved or file system.
fn is_of(pid: i32, user: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    users.split_ascii_whitespace().any(|word| word.parse() == Ok(user))
}

/// Whether a process maps the file with this inode.
fn has(pid: i32, inode: u64) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&maps);
    let inode = inode.to_string();
    text.lines().any(|line| line.split_ascii_whitespace().nth(4) == Some(&inode) && is_ring_name(line))
}

/// Reads /proc for processes in other PID namespaces.
fn processes_in_other_namespaces(own_space: u32) -> ForeignProcesses {
    let mut strangers = ForeignProcesses::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // 0: this process may not read it.
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

/// Processes that may be `owner`: an unknown namespace, on either side, matches any.
fn alike(strangers: &ForeignProcesses, owner: Owner) -> Vec<i32> {
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

/// Threads have files in /proc, too.
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
    fn a_line_of_proc_maps_is_matched_to_a_ring_by_inode_and_name() {
        let ring_processes = RingProcesses {
            inodes: BTreeSet::from([77]),
            own_space: 1,
            sees_all: true,
            found: HashMap::new(),
            below: HashSet::new(),
            looks: 0,
            strangers: None,
        };
        let line = |inode: u64, path: &str| format!("7f00-7f10 rw-s 00000000 00:1a {inode}        {path}");
        assert!(ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring")));
        assert!(ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring.65534")));
        assert!(!ring_processes.is_ring(&line(78, "/run/yamabiko-tap/ring")), "another file");
        assert!(
            !ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring.new"))
                && !ring_processes.is_ring(&line(77, "/spring"))
        );
        assert!(!ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring (deleted)")), "one that was replaced");
        assert!(!ring_processes.is_ring(&line(77, "/usr/lib/libc.so.6")) && !ring_processes.is_ring(""));
    }

    #[test]
    fn a_process_counts_as_ring_user_until_it_unmaps_the_ring() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        fs::write(&path, [0; 4096]).unwrap();
        let mut ring_processes = RingProcesses::new();
        let inode = fs::metadata(&path).unwrap().ino();
        ring_processes.of([inode]);
        let own = Owner { space: space_of("self").unwrap(), pid: std::process::id() };
        let gone = Owner { pid: u32::MAX >> 1, ..own };
        let elsewhere = Owner { space: 3, pid: 7 };
        let all = BTreeSet::from([own, gone, elsewhere]);
        let sees_all = ring_processes.sees_all;
        let of_others = |departed: &Departed| {
            let set = if sees_all { &departed.gone } else { &departed.out_of_sight };
            set.contains(&elsewhere)
        };
        let departed = ring_processes.look(&all);
        assert!(departed.gone.contains(&own) && departed.gone.contains(&gone) && of_others(&departed));
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let mapped = crate::rings::map_for_test(&file);
        for _ in 0..20 {
            let departed = ring_processes.look(&all);
            assert!(!departed.gone.contains(&own) && departed.gone.contains(&gone) && of_others(&departed));
        }
        assert_eq!(ring_processes.process(own).unwrap().pid, std::process::id().cast_signed());
        assert_eq!(ring_processes.unseen(own).unwrap().1, None, "no library here, and the ring all the same");
        assert_eq!(ring_processes.unseen(gone), None);
        let user = nix::unistd::geteuid().as_raw();
        assert!(
            ring_processes.vouch(own, user, inode) && ring_processes.vouch(own, user + 1, inode),
            "it has the file"
        );
        assert!(ring_processes.vouch(gone, user + 1, inode), "whoever it was is nobody now");
        drop(mapped);
        assert!(
            ring_processes.vouch(own, user, inode) && !ring_processes.vouch(own, user + 1, inode),
            "it is another's process"
        );
        assert_eq!(ring_processes.vouch(Owner { space: 3, pid: 7 }, user, inode), !sees_all);
        assert!(ring_processes.look(&all).gone.contains(&own));
        assert!(ring_processes.process(own).is_none());
    }
}
