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

use super::{Process, Unseen, process, reason_for_ring, runs};
use crate::event::Owner;

/// The processes that map one of the ring files.
#[derive(Debug)]
pub struct RingProcesses {
    /// Inodes of the files.
    inodes: BTreeSet<u64>,
    /// The PID namespace of this process and its /proc; 0: unknown.
    local_space: u32,
    /// Whether this /proc shows every process of the machine.
    sees_all: bool,
    mapped: HashMap<Owner, MappedProcess>,
    /// Namespaces with a process seen here: they are below this one, so all their processes are visible.
    child_spaces: HashSet<u32>,
    scans: u64,
    /// Results of this scan, once needed.
    foreign_processes: Option<ForeignProcesses>,
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
pub struct ScanResult {
    /// Processes that no longer map the ring.
    pub ended: BTreeSet<Owner>,
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
    /// A state without ring files: see [`RingProcesses::set_inodes`].
    #[allow(clippy::new_without_default, reason = "it reads the machine's state")]
    pub fn new() -> RingProcesses {
        let local_space = space_of("self").unwrap_or(0);
        // With the mount option hidepid an ordinary user sees only that user's processes.
        let sees_all = local_space == INITIAL_NAMESPACE && fs::read("/proc/1/stat").is_ok();
        let (mapped, child_spaces) = (HashMap::new(), HashSet::new());
        RingProcesses {
            inodes: BTreeSet::new(),
            local_space,
            sees_all,
            mapped,
            child_spaces,
            scans: 0,
            foreign_processes: None,
        }
    }

    /// Sets the inodes of the ring files.
    pub fn set_inodes(&mut self, inodes: impl IntoIterator<Item = u64>) {
        let inodes = inodes.into_iter().collect();
        if self.inodes != inodes {
            self.inodes = inodes;
            self.mapped.clear();
        }
    }

    /// Whether a process that writes to the ring of `user`, a file with this inode, may be the process that it claims
    /// to be. A living process must belong to that user or map the file (it or its parent has changed the user). An
    /// ended process passes, unless it claims a PID namespace that does not exist.
    pub fn is_plausible_writer(&mut self, owner: Owner, user: u32, inode: u64) -> bool {
        if owner.pid == 0 {
            return true;
        }
        let local = self.local_pid(owner).into_iter();
        let foreign = if owner.space == self.local_space || owner.space == 0 {
            Vec::new()
        } else {
            let foreign_processes =
                self.foreign_processes.get_or_insert_with(|| processes_in_other_namespaces(self.local_space));
            let is_known =
                |foreign_processes: &ForeignProcesses| foreign_processes.keys().any(|other| other.space == owner.space);
            if !is_known(foreign_processes) {
                return !self.sees_all;
            }
            candidates(foreign_processes, owner)
        };
        let alive: Vec<i32> = local.chain(foreign).filter(|pid| is_process(*pid)).collect();
        alive.is_empty() || alive.iter().any(|pid| has_user(*pid, user) || maps_file(*pid, inode))
    }

    /// Makes the next query about other namespaces scan again.
    pub fn forget_foreign_processes(&mut self) {
        self.foreign_processes = None;
    }

    /// Which of `owners` no longer map the ring. Each must have reported something before this call.
    pub fn scan(&mut self, owners: &BTreeSet<Owner>) -> ScanResult {
        self.scans += 1;
        self.mapped.retain(|owner, _| owners.contains(owner));
        self.child_spaces.retain(|space| owners.iter().any(|owner| owner.space == *space));
        let mut scanned = ScanResult::default();
        let mut foreign_processes = None;
        for owner in owners {
            if self.mapped.get(owner).is_some_and(|mapped| self.still_maps(mapped)) {
                continue;
            }
            self.mapped.remove(owner);
            if owner.pid == 0 {
                scanned.out_of_sight.insert(*owner);
                continue;
            }
            let mut mapping = self.local_pid(*owner).and_then(|pid| self.mapping_of(pid));
            if mapping.is_none() && owner.space != self.local_space {
                let foreign_processes =
                    foreign_processes.get_or_insert_with(|| processes_in_other_namespaces(self.local_space));
                let seen = foreign_processes.keys().map(|other| other.space).filter(|space| *space != 0);
                self.child_spaces.extend(seen.filter(|space| *space == owner.space));
                mapping = candidates(foreign_processes, *owner).into_iter().find_map(|pid| self.mapping_of(pid));
            }
            match mapping {
                Some(mapped) => drop(self.mapped.insert(*owner, mapped)),
                None if owner.space == self.local_space
                    || self.sees_all
                    || self.child_spaces.contains(&owner.space) =>
                {
                    scanned.ended.insert(*owner);
                }
                None => drop(scanned.out_of_sight.insert(*owner)),
            }
        }
        self.foreign_processes = foreign_processes;
        scanned
    }

    /// The process number in this namespace, if the last scan found it.
    pub fn process(&self, owner: Owner) -> Option<Process> {
        process(self.mapped.get(&owner)?.pid)
    }

    /// Looks for a process that its parent started and that has not reported: the process, if it exists, and why it
    /// is not recorded; no reason if it maps the ring after all.
    pub fn unseen(&mut self, owner: Owner) -> Option<(Process, Option<Unseen>)> {
        let local = self.local_pid(owner).into_iter();
        let foreign = if owner.space == self.local_space {
            Vec::new()
        } else {
            candidates(
                self.foreign_processes.get_or_insert_with(|| processes_in_other_namespaces(self.local_space)),
                owner,
            )
        };
        let process = local.chain(foreign).find_map(process)?;
        let why = reason_for_ring(&process, &|line| self.is_ring(&String::from_utf8_lossy(line)));
        Some((process, why))
    }

    /// The number of a process that may be in this namespace.
    fn local_pid(&self, owner: Owner) -> Option<i32> {
        let may_be = owner.space == self.local_space || owner.space == 0;
        if may_be { i32::try_from(owner.pid).ok() } else { None }
    }

    fn still_maps(&self, mapped: &MappedProcess) -> bool {
        let is_same = || ProcessStat::read(mapped.pid).is_some_and(|stat| stat.start_ticks == mapped.started_ticks);
        match &mapped.range {
            Some(range) => {
                let is_mapped = fs::symlink_metadata(format!("/proc/{}/map_files/{range}", mapped.pid)).is_ok();
                // The checks of start times are spread over several scans.
                let is_due = (self.scans + mapped.started_ticks).is_multiple_of(START_CHECK_INTERVAL);
                is_mapped && (!is_due || is_same())
            }
            None => ProcessStat::read(mapped.pid).is_some_and(|stat| {
                stat.start_ticks == mapped.started_ticks && (runs(&stat) || has_threads(mapped.pid))
            }),
        }
    }

    /// Whether a process maps the ring. A process that may not be inspected counts as mapping it while it exists.
    fn mapping_of(&self, pid: i32) -> Option<MappedProcess> {
        let stat = ProcessStat::read(pid).filter(|_| is_process(pid))?;
        let mapped = |range| Some(MappedProcess { pid, started_ticks: stat.start_ticks, range });
        let may_have = match fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) if !maps.is_empty() => {
                let text = String::from_utf8_lossy(&maps);
                let line = text.lines().find(|line| self.is_ring(line))?;
                return mapped(line.split(' ').next().map(str::to_owned));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => runs(&stat) || has_threads(pid),
            // The first thread has ended. If other threads live they map the ring, which the kernel does not show
            // here.
            _ => has_threads(pid),
        };
        if may_have { mapped(None) } else { None }
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
fn has_user(pid: i32, user: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    users.split_ascii_whitespace().any(|word| word.parse() == Ok(user))
}

/// Whether a process maps the file with this inode.
fn maps_file(pid: i32, inode: u64) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&maps);
    let inode = inode.to_string();
    text.lines().any(|line| line.split_ascii_whitespace().nth(4) == Some(&inode) && is_ring_name(line))
}

/// Reads /proc for processes in other PID namespaces.
fn processes_in_other_namespaces(local_space: u32) -> ForeignProcesses {
    let mut foreign_processes = ForeignProcesses::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        // 0: this process may not read it.
        let space = space_of(&pid.to_string()).unwrap_or(0);
        if space == local_space && space != 0 {
            continue;
        }
        if let Some(inner) = inner_pid(pid) {
            foreign_processes.entry(Owner { space, pid: inner }).or_default().push(pid);
        }
    }
    foreign_processes
}

/// Processes that may be `owner`: an unknown namespace, on either side, matches any.
fn candidates(foreign_processes: &ForeignProcesses, owner: Owner) -> Vec<i32> {
    if owner.space == 0 {
        let candidates = foreign_processes.iter().filter(|(other, _)| other.pid == owner.pid);
        return candidates.flat_map(|(_, pids)| pids.iter().copied()).collect();
    }
    let of_space = |space| foreign_processes.get(&Owner { space, ..owner }).into_iter().flatten().copied();
    of_space(owner.space).chain(of_space(0)).collect()
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

/// Whether `pid` is a process: threads have files in /proc, too.
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
            local_space: 1,
            sees_all: true,
            mapped: HashMap::new(),
            child_spaces: HashSet::new(),
            scans: 0,
            foreign_processes: None,
        };
        let line = |inode: u64, path: &str| format!("7f00-7f10 rw-s 00000000 00:1a {inode}        {path}");
        assert!(ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring")));
        assert!(ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring.65534")));
        assert!(!ring_processes.is_ring(&line(78, "/run/yamabiko-tap/ring")), "another file");
        assert!(
            !ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring.new"))
                && !ring_processes.is_ring(&line(77, "/spring"))
        );
        assert!(!ring_processes.is_ring(&line(77, "/run/yamabiko-tap/ring (deleted)")), "a replaced ring file");
        assert!(!ring_processes.is_ring(&line(77, "/usr/lib/libc.so.6")) && !ring_processes.is_ring(""));
    }

    #[test]
    fn a_process_counts_as_ring_user_until_it_unmaps_the_ring() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        fs::write(&path, [0; 4096]).unwrap();
        let mut ring_processes = RingProcesses::new();
        let inode = fs::metadata(&path).unwrap().ino();
        ring_processes.set_inodes([inode]);
        let this_process = Owner { space: space_of("self").unwrap(), pid: std::process::id() };
        let ended = Owner { pid: u32::MAX >> 1, ..this_process };
        let foreign = Owner { space: 3, pid: 7 };
        let all = BTreeSet::from([this_process, ended, foreign]);
        let sees_all = ring_processes.sees_all;
        let of_others = |scanned: &ScanResult| {
            let set = if sees_all { &scanned.ended } else { &scanned.out_of_sight };
            set.contains(&foreign)
        };
        let scanned = ring_processes.scan(&all);
        assert!(scanned.ended.contains(&this_process) && scanned.ended.contains(&ended) && of_others(&scanned));
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let mapped = crate::rings::map_for_test(&file);
        for _ in 0..20 {
            let scanned = ring_processes.scan(&all);
            assert!(!scanned.ended.contains(&this_process) && scanned.ended.contains(&ended) && of_others(&scanned));
        }
        assert_eq!(ring_processes.process(this_process).unwrap().pid, std::process::id().cast_signed());
        assert_eq!(
            ring_processes.unseen(this_process).unwrap().1,
            None,
            "a process that maps the ring is recorded, even without the library"
        );
        assert_eq!(ring_processes.unseen(ended), None);
        let user = nix::unistd::geteuid().as_raw();
        assert!(
            ring_processes.is_plausible_writer(this_process, user, inode)
                && ring_processes.is_plausible_writer(this_process, user + 1, inode),
            "a process that maps the file may write for another user"
        );
        assert!(ring_processes.is_plausible_writer(ended, user + 1, inode), "an ended process passes");
        drop(mapped);
        assert!(
            ring_processes.is_plausible_writer(this_process, user, inode)
                && !ring_processes.is_plausible_writer(this_process, user + 1, inode),
            "a process of another user without the mapping is rejected"
        );
        assert_eq!(ring_processes.is_plausible_writer(Owner { space: 3, pid: 7 }, user, inode), !sees_all);
        assert!(ring_processes.scan(&all).ended.contains(&this_process));
        assert!(ring_processes.process(this_process).is_none());
    }
}
