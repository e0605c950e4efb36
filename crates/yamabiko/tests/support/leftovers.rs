//! Finds what a killed run has left on this machine: processes, networks, devices, mounts and control groups.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::processes::{all, command_line, descendants, network};
use super::workspace::wait_until;

/// Identifies the processes of a run after it was killed: each has the run's folder as working folder, in its
/// environment or in its command line, or is in one of the run's networks.
pub struct Leftovers {
    folder: PathBuf,
    /// Networks of the run by the target of their link in /proc. The files stay open: the kernel reuses the number of a
    /// removed namespace, and networks of a concurrent test would then look like leftovers.
    networks: HashMap<PathBuf, File>,
}

impl Leftovers {
    /// `folder` must belong to this run only, and must be its working folder and the value of one of its environment
    /// variables.
    pub fn new(folder: &Path) -> Leftovers {
        Leftovers { folder: folder.to_owned(), networks: HashMap::new() }
    }

    /// Records every network that the run has now: those of its processes and of its threads.
    pub fn note_networks(&mut self, pid: i32) {
        let own = network(std::process::id() as i32).expect("/proc is mounted");
        let of_processes = descendants(pid).into_iter().map(|pid| format!("/proc/{pid}/ns/net").into());
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let of_threads = threads.map(|thread| thread.path().join("ns/net"));
        for link in of_processes.chain::<Vec<PathBuf>>(of_threads.collect()) {
            // The link of the open descriptor identifies the network, even if the process has ended or changed its
            // network.
            let Ok(file) = File::open(link) else { continue };
            let link_target = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("/proc is mounted");
            self.networks.insert(link_target, file);
        }
        self.networks.remove(&own);
    }

    /// Number of recorded networks.
    pub fn networks(&self) -> usize {
        self.networks.len()
    }

    /// Running processes of the run, and processes that have one of its networks open.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let own = std::process::id() as i32;
        all().filter(|&pid| pid != own && self.belongs_to_run(pid)).map(|pid| (pid, command_line(pid))).collect()
    }

    /// Waits until no process of the run exists.
    pub fn wait_until_gone(&self) {
        // Between fork and exec a process has no sign of the run, so two scans must find none.
        let mut clean = 0;
        wait_until("no process of the run exists", || {
            clean = if self.processes().is_empty() { clean + 1 } else { 0 };
            clean == 2
        });
    }

    fn belongs_to_run(&self, pid: i32) -> bool {
        let folder = self.folder.as_os_str().as_bytes();
        let mentions = |file: &str| {
            fs::read(format!("/proc/{pid}/{file}"))
                .is_ok_and(|bytes| bytes.windows(folder.len()).any(|window| window == folder))
        };
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.folder)
            || mentions("cmdline")
            || mentions("environ")
            || network(pid).is_some_and(|network| self.networks.contains_key(&network))
            || self.has_network_open(pid)
    }

    fn has_network_open(&self, pid: i32) -> bool {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        !self.networks.is_empty() && files.any(|file| self.networks.contains_key(&file))
    }
}

/// Devices of the testbed in this network namespace, which should have none.
pub fn devices() -> Vec<&'static str> {
    ["c0", "s0", "g0", "g1"].into_iter().filter(|name| Path::new("/sys/class/net").join(name).exists()).collect()
}

/// Mounts in this mount namespace of the kinds that a run makes in its own namespace.
pub fn mounts() -> Vec<String> {
    let kinds = ["/etc/hosts", " proc ", " sysfs ", "nsfs"];
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|line| kinds.iter().any(|kind| line.contains(kind))).map(str::to_owned).collect()
}

/// Waits until the control groups that these processes made are empty: then the next start can remove them. An exiting
/// process has no folder, command line or network any more, but stays in its group until it has exited.
pub fn wait_until_groups_are_empty(pids: &HashSet<i32>) {
    let groups = control_groups(pids);
    // A group that another process has removed counts as empty.
    let is_empty =
        |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).map_or(true, |procs| procs.is_empty());
    wait_until("the control groups are empty", || groups.iter().all(is_empty));
}

/// Directories of the control groups that these processes made.
pub fn control_groups(pids: &HashSet<i32>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    find_below(Path::new("/sys/fs/cgroup"), pids, 8, &mut found);
    found
}

fn find_below(folder: &Path, pids: &HashSet<i32>, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        // yamabiko-<PID namespace>-<pid>-<start time>-<label>
        let creator = name.strip_prefix("yamabiko-").and_then(|rest| rest.split('-').nth(1)?.parse().ok());
        if creator.is_some_and(|creator: i32| pids.contains(&creator)) {
            found.push(entry.path());
        }
        if depth > 0 {
            find_below(&entry.path(), pids, depth - 1, found);
        }
    }
}
