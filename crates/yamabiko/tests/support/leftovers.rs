//! What a killed run may have left on this machine, looked for from outside.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::processes::{all, command_line, descendants, network};
use super::workspace::wait_until;

/// A run that is to be killed: every process of it works in one folder, has the folder in its environment or in its
/// command line, or is in one of its networks.
pub struct Marked {
    folder: PathBuf,
    /// Kept open: the kernel reuses the number of a removed namespace, and networks of a concurrent test would then
    /// look like leftovers.
    networks: HashMap<PathBuf, File>,
}

impl Marked {
    /// The folder must be the run's alone, and be its working folder and the value of a variable in its environment.
    pub fn new(folder: &Path) -> Marked {
        Marked { folder: folder.to_owned(), networks: HashMap::new() }
    }

    /// Takes note of every network that the run has by now: those of its processes, and those of its threads.
    pub fn note_networks(&mut self, pid: i32) {
        let own = network(std::process::id() as i32).expect("/proc is there");
        let of_processes = descendants(pid).into_iter().map(|pid| format!("/proc/{pid}/ns/net").into());
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let of_threads = threads.map(|thread| thread.path().join("ns/net"));
        for link in of_processes.chain::<Vec<PathBuf>>(of_threads.collect()) {
            // Identified by the path it was opened as, should the process have ended or moved.
            let Ok(held) = File::open(link) else { continue };
            let said = fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).expect("/proc is there");
            self.networks.insert(said, held);
        }
        self.networks.remove(&own);
    }

    /// How many networks were seen.
    pub fn networks(&self) -> usize {
        self.networks.len()
    }

    /// Living processes of the run, or that hold one of its networks by a descriptor.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let own = std::process::id() as i32;
        all().filter(|&pid| pid != own && self.is_mine(pid)).map(|pid| (pid, command_line(pid))).collect()
    }

    /// Waits until no process of the run is left.
    pub fn wait_until_gone(&self) {
        // Between fork and exec a process shows nothing of itself: look twice.
        let mut clean = 0;
        wait_until("nothing of the run is left", || {
            clean = if self.processes().is_empty() { clean + 1 } else { 0 };
            clean == 2
        });
    }

    fn is_mine(&self, pid: i32) -> bool {
        let folder = self.folder.as_os_str().as_bytes();
        let mentions = |file: &str| {
            fs::read(format!("/proc/{pid}/{file}"))
                .is_ok_and(|bytes| bytes.windows(folder.len()).any(|window| window == folder))
        };
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.folder)
            || mentions("cmdline")
            || mentions("environ")
            || network(pid).is_some_and(|network| self.networks.contains_key(&network))
            || self.holds_a_network(pid)
    }

    fn holds_a_network(&self, pid: i32) -> bool {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        !self.networks.is_empty() && files.any(|file| self.networks.contains_key(&file))
    }
}

/// Devices of the testbed in this network, where none belongs.
pub fn devices() -> Vec<&'static str> {
    ["c0", "s0", "g0", "g1"].into_iter().filter(|name| Path::new("/sys/class/net").join(name).exists()).collect()
}

/// This namespace's mounts of the kinds that a run makes in its own.
pub fn mounts() -> Vec<String> {
    let kinds = ["/etc/hosts", " proc ", " sysfs ", "nsfs"];
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|line| kinds.iter().any(|kind| line.contains(kind))).map(str::to_owned).collect()
}

/// Waits until no process is in a control group of these processes: then the next start can remove it. An ending
/// process has no folder, command line or network any more, but stays in its group to the end.
pub fn wait_until_groups_are_empty(pids: &HashSet<i32>) {
    let groups = control_groups(pids);
    // One that somebody has removed is as good.
    let is_empty =
        |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).map_or(true, |procs| procs.is_empty());
    wait_until("nobody is left in the control groups", || groups.iter().all(is_empty));
}

/// Directories of control groups that one of these processes made.
pub fn control_groups(pids: &HashSet<i32>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    look_below(Path::new("/sys/fs/cgroup"), pids, 8, &mut found);
    found
}

fn look_below(folder: &Path, pids: &HashSet<i32>, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix("yamabiko-").and_then(|rest| rest.split('-').next()?.parse().ok());
        if maker.is_some_and(|maker: i32| pids.contains(&maker)) {
            found.push(entry.path());
        }
        if depth > 0 {
            look_below(&entry.path(), pids, depth - 1, found);
        }
    }
}
