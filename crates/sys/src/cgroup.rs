//! A control group for the server: a limit of its CPU time, and a count of its resource usage.
//!
//! ```text
//! Cgroup::create("server", limits) -> Sandbox::start(SandboxSpec { cgroup: Some(&group), .. }) -> usage() -> drop
//! ```
//!
//! Version 2 is used if it offers the controller, version 1 (`cpu`, `cpuacct`, `memory`) otherwise, and a subtree
//! delegated to this user if there is one. The directory is removed when the [`Cgroup`] is dropped, after its
//! processes; groups left behind by a SIGKILL are removed by [`sweep`] at the next start. On version 1 kernels with
//! CONFIG_RT_GROUP_SCHED a real-time process may not join; a sandbox is started before the loop becomes real-time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use units::CpuShare;

use crate::accounting;
use crate::clock::Deadline;
use crate::error::{Error, Result};
use crate::owner::own_name;

pub use clocks::{ThreadList, ThrottleClock};
pub use sweep::sweep;
pub use trial::{BoundTrial, cpu_quota, describe, try_bound};

use hierarchy::Hierarchies;

mod clocks;
mod hierarchy;
pub(crate) mod sweep;
mod trial;

/// Limits of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// CPU time, as a share of one core; `None` for no limit.
    pub cpu: Option<CpuShare>,
    /// Enforcement period of the CPU limit, 1 ms to 1 s. Shorter is smoother: with the kernel's default of 100 ms a
    /// server at 50 % stalls for 50 ms at a time. Lengthened for small shares, since the kernel's minimum quota is 1
    /// ms: see [`Cgroup::period`].
    pub period: Duration,
    /// Priority of the group on a core that other processes need, too.
    pub weight: Weight,
    /// Memory in bytes, including page cache, and on version 2 socket buffers; nothing is swapped out. `None` for no
    /// limit. The kernel kills processes beyond it.
    pub memory: Option<u64>,
}

impl Default for Limits {
    /// No limit; 5 ms; default weight.
    fn default() -> Self {
        Limits { cpu: None, period: Duration::from_millis(5), weight: Weight::Usual, memory: None }
    }
}

/// CPU weight of a group against other processes on the same core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// The kernel's default.
    #[default]
    Usual,
    /// Runs only when no other process needs the core: any process outside that wakes up preempts it immediately
    /// (`cpu.idle`, Linux 5.15; before that the minimum weight, with which others still wait briefly). It still gets a
    /// small share.
    Least,
    /// Preempts any process outside; its CPU limit is the only restriction.
    Most,
}

/// A control group, removed on drop.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    /// All directories created, without duplicates.
    directories: Vec<PathBuf>,
    /// The configured period, and the period adapted to the share.
    configured_period: Duration,
    period: Duration,
}

/// Resource usage of a group since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// CPU time in user mode. The sum with `system` is exact; the split is by the kernel's tick.
    pub user: Duration,
    /// CPU time in the kernel on behalf of the group's tasks, without receive processing in interrupts.
    pub system: Duration,
    /// Time for which its tasks, summed over cores, were throttled by the limit. `None` if no limit can be set.
    pub throttled: Option<Duration>,
    /// Enforcement periods in which the group was runnable, and those in which it was throttled. `None` if no limit can
    /// be set.
    pub periods: Option<Periods>,
    /// Peak memory, including page cache, in bytes. `None` without the memory controller.
    pub memory_max: Option<u64>,
}

/// Enforcement periods of a CPU limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Periods in which the group was runnable. 0 without a limit.
    pub all: u64,
    /// Periods in which it used up its quota and was throttled.
    pub throttled: u64,
}

#[derive(Debug)]
enum Version {
    One { cpu: PathBuf, cpuacct: PathBuf, memory: Option<PathBuf> },
    Two { directory: PathBuf },
}

impl Cgroup {
    /// Creates an empty group with the name of its owner and the label, or the same with `_2` and so on: the group
    /// of an earlier run of this process may still exist, since a program with a low CPU limit ends slowly.
    ///
    /// # Errors
    /// No control groups, a missing controller, or missing permission: each error names the remedy.
    pub fn create(label: &str, limits: Limits) -> Result<Cgroup> {
        Cgroup::create_in(&Hierarchies::read()?, label, limits)
    }

    fn create_in(hierarchies: &Hierarchies, label: &str, limits: Limits) -> Result<Cgroup> {
        let mut nth = 1;
        loop {
            let name = if nth == 1 { own_name(label)? } else { own_name(&format!("{label}_{nth}"))? };
            match Cgroup::create_named(hierarchies, &name, limits) {
                Err(error) if error.errno() == Some(libc::EEXIST) && nth < SAME_NAME_MAX => nth += 1,
                made => return made,
            }
        }
    }

    fn create_named(hierarchies: &Hierarchies, name: &str, limits: Limits) -> Result<Cgroup> {
        let with_limit = limits.cpu.is_some() || limits.weight != Weight::Usual;
        let mut group = hierarchies.choose(name, with_limit, limits.period)?;
        for directory in group.directories_to_make() {
            match fs::create_dir(&directory) {
                Ok(()) => group.directories.push(directory),
                Err(source) => return Err(not_allowed(Error::of(format!("mkdir {}", directory.display()))(source))),
            }
        }
        if let Some(share) = limits.cpu {
            group.set_cpu_limit(share)?;
        }
        if limits.weight != Weight::Usual {
            group.set_weight(limits.weight)?;
        }
        if let Some(bytes) = limits.memory {
            group.limit_memory(bytes)?;
        }
        Ok(group)
    }

    /// The files to which a process writes "0", in this order, to join.
    pub fn procs_paths(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// Moves the calling process into the group, with all its threads.
    ///
    /// # Errors
    /// Missing permission of an ordinary user; or a real-time process, which version 1 rejects.
    pub fn join(&self) -> Result<()> {
        use std::io::Write as _;
        for (mut file, path) in self.open_procs()?.into_iter().zip(self.procs_paths()) {
            file.write_all(b"0").map_err(Error::of(format!("write 0 to {}", path.display())))?;
        }
        Ok(())
    }

    /// The enforcement period: as configured, or longer for a small share.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Resource usage since the creation of the group, of running and ended processes.
    ///
    /// # Errors
    /// A file of the group could not be read or parsed.
    pub fn usage(&self) -> Result<CgroupUsage> {
        match &self.version {
            Version::Two { directory } => {
                let stat = read(&directory.join("cpu.stat"))?;
                let micros = |key| keyed(&stat, key).map(Duration::from_micros);
                Ok(CgroupUsage {
                    user: micros("user_usec").unwrap_or_default(),
                    system: micros("system_usec").unwrap_or_default(),
                    throttled: micros("throttled_usec"),
                    periods: periods(&stat),
                    memory_max: number(&directory.join("memory.peak")),
                })
            }
            Version::One { cpu, cpuacct, memory } => {
                let total = number(&cpuacct.join("cpuacct.usage")).ok_or_else(|| Error::Unexpected {
                    call: format!("read {}", cpuacct.join("cpuacct.usage").display()),
                    answer: "not a number".to_owned(),
                })?;
                let ticks = read(&cpuacct.join("cpuacct.stat"))?;
                let (user, system) =
                    split_by_ticks(total, keyed(&ticks, "user").unwrap_or(0), keyed(&ticks, "system").unwrap_or(0));
                let stat = read(&cpu.join("cpu.stat"))?;
                let throttled = keyed(&stat, "throttled_time").map(Duration::from_nanos);
                let memory_max = memory.as_ref().and_then(|m| number(&m.join("memory.max_usage_in_bytes")));
                Ok(CgroupUsage { user, system, throttled, periods: periods(&stat), memory_max })
            }
        }
    }

    /// A reader of the group's CPU time, for repeated reads.
    pub fn usage_clock(&self) -> Option<UsageClock> {
        let path = match &self.version {
            Version::Two { directory } => directory.join("cpu.stat"),
            Version::One { cpuacct, .. } => cpuacct.join("cpuacct.usage_percpu"),
        };
        let is_per_core = matches!(self.version, Version::One { .. });
        Some(UsageClock { file: File::open(path).ok()?, is_per_core, buffer: Vec::new() })
    }

    /// The numbers of its threads.
    pub fn threads(&self) -> Vec<i32> {
        self.thread_list().read()
    }

    /// Time for which at least one of its threads waited for a core. Only on version 2 with pressure stall information
    /// (PSI).
    pub fn pressure(&self) -> Option<Duration> {
        let Version::Two { directory } = &self.version else { return None };
        pressure_total(&fs::read_to_string(directory.join("cpu.pressure")).ok()?)
    }

    /// Changes the CPU weight.
    ///
    /// # Errors
    /// The kernel refuses; [`Weight::Usual`] is never refused.
    pub fn set_weight(&self, weight: Weight) -> Result<()> {
        match weight {
            Weight::Usual => self.set_default_weight(),
            Weight::Least => self.set_minimum_weight()?,
            Weight::Most => self.set_maximum_weight()?,
        }
        Ok(())
    }

    /// Changes the CPU limit. The group must have been created with one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_cpu_limit(&mut self, share: CpuShare) -> Result<()> {
        self.period = enforcement_period(share, self.configured_period);
        let period = self.period.as_micros();
        let quota = (self.period.as_micros() as f64 * share.cores()).round() as u64;
        match &self.version {
            Version::Two { directory } => write(&directory.join("cpu.max"), &format!("{quota} {period}")),
            Version::One { cpu, .. } => {
                write(&cpu.join("cpu.cfs_period_us"), &period.to_string())?;
                write(&cpu.join("cpu.cfs_quota_us"), &quota.to_string())
            }
        }
    }

    /// Removes limit and weight, as far as possible: processes that receive SIGTERM need CPU time to end.
    pub fn remove_cpu_limit(&self) {
        self.write_existing(match &self.version {
            Version::Two { .. } => &[("cpu.max", "max")],
            Version::One { .. } => &[("cpu.cfs_quota_us", "-1")],
        });
        self.set_default_weight();
    }

    /// The files of [`Cgroup::procs_paths`], opened for writing; the permission to join is checked here.
    pub(crate) fn open_procs(&self) -> Result<Vec<File>> {
        self.procs_paths()
            .iter()
            .map(|path| {
                let opened = OpenOptions::new().write(true).open(path);
                opened.map_err(|source| not_allowed(Error::of(format!("open {}", path.display()))(source)))
            })
            .collect()
    }

    fn directories_to_make(&self) -> Vec<PathBuf> {
        let mut directories = match &self.version {
            Version::Two { directory } => vec![directory.clone()],
            Version::One { cpu, cpuacct, memory } => {
                [Some(cpu), Some(cpuacct), memory.as_ref()].into_iter().flatten().cloned().collect()
            }
        };
        // cpu and cpuacct are often one hierarchy.
        directories.dedup();
        directories
    }

    /// Restores the kernel's default weight.
    fn set_default_weight(&self) {
        self.write_existing(match &self.version {
            Version::Two { .. } => &[("cpu.idle", "0"), ("cpu.weight", "100")],
            Version::One { .. } => &[("cpu.idle", "0"), ("cpu.shares", "1024")],
        });
    }

    /// Writes values to those cpu controller files that this kernel has.
    fn write_existing(&self, values: &[(&str, &str)]) {
        let (Version::Two { directory } | Version::One { cpu: directory, .. }) = &self.version;
        for (file, value) in values {
            let path = directory.join(file);
            if path.exists() {
                let _ = fs::write(path, value);
            }
        }
    }

    /// Sets the maximum weight.
    fn set_maximum_weight(&self) -> Result<()> {
        let (file, most) = match &self.version {
            Version::Two { directory } => (directory.join("cpu.weight"), "10000"),
            Version::One { cpu, .. } => (cpu.join("cpu.shares"), "262144"),
        };
        // A weight cannot be set together with idle.
        self.set_default_weight();
        write(&file, most)
    }

    /// Sets the idle class, or the minimum weight.
    fn set_minimum_weight(&self) -> Result<()> {
        let (directory, weight, least) = match &self.version {
            Version::Two { directory } => (directory, "cpu.weight", "1"),
            Version::One { cpu, .. } => (cpu, "cpu.shares", "2"),
        };
        // Idle implies the minimum weight; a weight cannot be set together with it.
        match write(&directory.join("cpu.idle"), "1") {
            Ok(()) => Ok(()),
            Err(_) => write(&directory.join(weight), least),
        }
    }

    fn limit_memory(&self, bytes: u64) -> Result<()> {
        let (directory, bound, swap) = match &self.version {
            Version::Two { directory } => (directory, "memory.max", [("memory.swap.max", "0".to_owned())]),
            Version::One { memory: Some(directory), .. } => {
                // Memory and swap together, which may not be below the memory limit: set after it.
                (directory, "memory.limit_in_bytes", [("memory.memsw.limit_in_bytes", bytes.to_string())])
            }
            Version::One { memory: None, .. } => {
                return Err(Error::Missing {
                    what:
                        "no memory controller is mounted here, so memory cannot be limited: mount -t cgroup -o memory \
                           none /sys/fs/cgroup/memory"
                            .to_owned(),
                });
            }
        };
        if !directory.join(bound).exists()
            && let Some(parent) = directory.parent()
        {
            // The cpu controller may have been enabled without the memory controller: enable it as well.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        if !directory.join(bound).exists() {
            return Err(Error::Missing {
                what: format!(
                    "the memory controller is not enabled in {}, so memory cannot be limited: echo +memory > \
                     cgroup.subtree_control in the groups above it, as root",
                    directory.display()
                ),
            });
        }
        write(&directory.join(bound), &bytes.to_string())?;
        for (file, value) in swap {
            // Missing if the kernel does not account for swap.
            if directory.join(file).exists() {
                write(&directory.join(file), &value)?;
            }
        }
        Ok(())
    }
}

/// Reads the CPU time of a group's threads repeatedly.
#[derive(Debug)]
pub struct UsageClock {
    file: File,
    is_per_core: bool,
    buffer: Vec<u8>,
}

impl UsageClock {
    /// The CPU time per core on version 1; otherwise one figure for all cores.
    pub fn read(&mut self) -> GroupTime {
        let text = accounting::read_again(&self.file, &mut self.buffer);
        if self.is_per_core {
            return GroupTime::PerCore(accounting::per_core(text));
        }
        GroupTime::Total(Duration::from_micros(keyed(text, "usage_usec").unwrap_or(0)))
    }
}

/// CPU time of a group since its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupTime {
    /// Per core, by its number.
    PerCore(Vec<(usize, Duration)>),
    /// Of all cores.
    Total(Duration),
}

/// The file with the CPU time of all threads of this machine per core, if version 1 counts it and its root is mounted
/// here: only the root has a release agent.
pub(crate) fn root_usage_per_core() -> Option<PathBuf> {
    let mount = Hierarchies::read().ok()?.mount_of("cpuacct")?;
    mount.join("release_agent").exists().then(|| mount.join("cpuacct.usage_percpu"))
}

/// `total` of the line `some`, in microseconds: see Documentation/accounting/psi.rst.
fn pressure_total(pressure: &str) -> Option<Duration> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for directory in &self.directories {
            // The group is busy while the last process is torn down. If it stays busy, the next sweep removes it.
            let deadline = Deadline::after(REMOVAL_TIMEOUT);
            loop {
                match fs::remove_dir(directory) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) && !deadline.has_passed() => {
                        sweep::sweep_inside(directory);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// The period in which `share` is at least the kernel's minimum quota, not shorter than `configured`.
fn enforcement_period(share: CpuShare, configured: Duration) -> Duration {
    let least = QUOTA_MIN.as_secs_f64() / share.cores();
    // Rounded up to a whole microsecond, the kernel's unit.
    let least = Duration::from_micros((least * 1e6).ceil() as u64);
    configured.max(least).clamp(PERIOD_MIN, PERIOD_MAX)
}

/// Splits an exact total like the kernel does for version 2: by the share of ticks, all user if there are none.
fn split_by_ticks(total_ns: u64, user_ticks: u64, system_ticks: u64) -> (Duration, Duration) {
    let ticks = u128::from(user_ticks) + u128::from(system_ticks);
    let system = (u128::from(total_ns) * u128::from(system_ticks)).checked_div(ticks).unwrap_or(0) as u64;
    (Duration::from_nanos(total_ns - system), Duration::from_nanos(system))
}

fn not_allowed(error: Error) -> Error {
    error.remedy(
        &[Errno::EACCES, Errno::EPERM, Errno::EROFS],
        "a CPU limit needs root, or a delegated control group (systemd-run --user --scope -p Delegate=yes)",
    )
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::of(format!("read {}", path.display())))
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value)
        .map_err(|source: io::Error| not_allowed(Error::of(format!("write {value:?} to {}", path.display()))(source)))
}

/// The figures have the same names in both versions.
fn periods(stat: &str) -> Option<Periods> {
    Some(Periods { all: keyed(stat, "nr_periods")?, throttled: keyed(stat, "nr_throttled")? })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The figure after `key` in a file of `key figure` lines.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(k, _)| *k == key)?.1.trim().parse().ok())
}

/// Minimum quota of the kernel (min_cfs_quota_period).
const QUOTA_MIN: Duration = Duration::from_millis(1);
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// Maximum period of the kernel (max_cfs_quota_period).
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// How long a group may take to become empty: each killed process needs some CPU time to end.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Groups of the same name in one process: more than the runs that can be ending concurrently.
const SAME_NAME_MAX: usize = 100;

#[cfg(test)]
mod tests;
