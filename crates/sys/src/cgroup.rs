//! A control group for the server: a bound on its processor time, and a count of what it used.
//!
//! ```text
//! Cgroup::create("server", limits)  ->  Place::start(PlaceSpec { cgroup: Some(&group), .. })  ->  usage()  ->  drop
//! ```
//!
//! Version 2 is used where it offers the controller, version 1 (`cpu`, `cpuacct`, `memory`) otherwise, and a subtree
//! delegated to this user where there is one. The directory goes when the [`Cgroup`] is dropped, after its processes;
//! what a SIGKILL left behind is removed by [`sweep`] at the next start. On version 1 kernels with
//! CONFIG_RT_GROUP_SCHED a real-time process may not join; a place is started before the loop becomes real-time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use units::CpuShare;

use crate::accounting;
use crate::clock::Deadline;
use crate::error::{Error, Result};

pub use sweep::sweep;
pub use trial::{BoundTrial, cpu_quota, describe, try_bound};

use hierarchy::Hierarchies;

mod hierarchy;
pub(crate) mod sweep;
mod trial;

/// What a group may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Processor time, as a share of one core; unbounded when absent.
    pub cpu: Option<CpuShare>,
    /// How often the share is dealt out, 1 ms to 1 s. Shorter is smoother: with the kernel's default of 100 ms a
    /// server at 50 % stands still for 50 ms at a time. Lengthened for small shares, since the kernel deals out no
    /// less than 1 ms at once: see [`Cgroup::period`].
    pub period: Duration,
    /// Who goes first when the group and others want the same core.
    pub weight: Weight,
    /// Memory in bytes, page cache included and on version 2 what sockets hold, and nothing of it swapped out; unbounded
    /// when absent. Who needs more is killed by the kernel.
    pub memory: Option<u64>,
}

impl Default for Limits {
    /// No bound; 5 ms; a weight like any other's.
    fn default() -> Self {
        Limits { cpu: None, period: Duration::from_millis(5), weight: Weight::Usual, memory: None }
    }
}

/// How a group stands against others on a core that is wanted by several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// As the kernel has it.
    #[default]
    Usual,
    /// It runs when nobody else wants to: anyone outside who wakes up goes before it at once (`cpu.idle`, Linux 5.15;
    /// before that the least weight there is, which makes others wait less but not never). It still gets a little.
    Least,
    /// It goes before anyone outside, as if nobody else were there; what its bound leaves it, it has at once.
    Most,
}

/// A control group, removed on drop.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    /// Every directory made, without repeats.
    directories: Vec<PathBuf>,
    /// As asked, and as it is for the share.
    asked_period: Duration,
    period: Duration,
}

/// What a group used since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// Processor time in user mode. The sum with `system` is exact; the split is by the kernel's tick.
    pub user: Duration,
    /// Processor time in the kernel on behalf of the group's tasks. Receive work done in interrupts is not in it.
    pub system: Duration,
    /// How long its tasks, summed over cores, were held back by the bound. Absent where no bound can be set.
    pub throttled: Option<Duration>,
    /// Periods in which it wanted to run, and those of them in which the bound held it back. Absent where no bound can
    /// be set.
    pub periods: Option<Periods>,
    /// The most memory it had at once, page cache included, in bytes. Absent without the memory controller.
    pub memory_max: Option<u64>,
}

/// Enforcement of a bound on processor time, counted in its periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// In which the group was ready to run. 0 without a bound.
    pub all: u64,
    /// In which it used its share up and had to wait for the next one.
    pub throttled: u64,
}

#[derive(Debug)]
enum Version {
    One { cpu: PathBuf, cpuacct: PathBuf, memory: Option<PathBuf> },
    Two { directory: PathBuf },
}

impl Cgroup {
    /// Makes an empty group named `yamabiko-<pid>-<start time>-<label>`, or the same with `_2` and so on: the group of an earlier run
    /// of this process may not be gone yet, since a program that is held to little takes its time to die.
    ///
    /// # Errors
    /// No control groups here, the controller is missing, or no right to make one: each says what to do.
    pub fn create(label: &str, limits: Limits) -> Result<Cgroup> {
        Cgroup::create_in(&Hierarchies::read()?, label, limits)
    }

    fn create_in(hierarchies: &Hierarchies, label: &str, limits: Limits) -> Result<Cgroup> {
        let mut nth = 1;
        loop {
            let name = if nth == 1 { sweep::own_name(label)? } else { sweep::own_name(&format!("{label}_{nth}"))? };
            match Cgroup::create_named(hierarchies, &name, limits) {
                Err(error) if error.errno() == Some(libc::EEXIST) && nth < SAME_NAME_MAX => nth += 1,
                made => return made,
            }
        }
    }

    fn create_named(hierarchies: &Hierarchies, name: &str, limits: Limits) -> Result<Cgroup> {
        let with_limit = limits.cpu.is_some() || limits.weight != Weight::Usual;
        let mut group = hierarchies.place(name, with_limit, limits.period)?;
        for directory in group.directories_to_make() {
            match fs::create_dir(&directory) {
                Ok(()) => group.directories.push(directory),
                Err(source) => return Err(not_allowed(Error::of(format!("mkdir {}", directory.display()))(source))),
            }
        }
        if let Some(share) = limits.cpu {
            group.hold(share)?;
        }
        if limits.weight != Weight::Usual {
            group.set_weight(limits.weight)?;
        }
        if let Some(bytes) = limits.memory {
            group.limit_memory(bytes)?;
        }
        Ok(group)
    }

    /// The files that a process writes "0" to, one after the other, to join.
    pub fn procs_paths(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// Moves the calling process into the group, with all its threads.
    ///
    /// # Errors
    /// It may not, as an ordinary user; or it is real-time, which version 1 refuses.
    pub fn join(&self) -> Result<()> {
        use std::io::Write as _;
        for (mut file, path) in self.open_procs()?.into_iter().zip(self.procs_paths()) {
            file.write_all(b"0").map_err(Error::of(format!("write 0 to {}", path.display())))?;
        }
        Ok(())
    }

    /// How often the share is dealt out: as asked, or longer where the share is small.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What the group used since it was made, living and dead processes alike.
    ///
    /// # Errors
    /// A file of the group could not be read or understood.
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

    /// What the group used, for reading it again and again.
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
        let path = match &self.version {
            Version::Two { directory } => directory.join("cgroup.threads"),
            Version::One { cpuacct, .. } => cpuacct.join("tasks"),
        };
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// For how long some of its threads waited for a core, several at once counted once. Version 2 alone has it, where the kernel measures
    /// pressure (PSI).
    pub fn pressure(&self) -> Option<Duration> {
        let Version::Two { directory } = &self.version else { return None };
        some_total(&fs::read_to_string(directory.join("cpu.pressure")).ok()?)
    }

    /// Has the group stand otherwise against others from now on.
    ///
    /// # Errors
    /// The kernel refuses; [`Weight::Usual`] is never refused.
    pub fn set_weight(&self, weight: Weight) -> Result<()> {
        match weight {
            Weight::Usual => self.stand_up(),
            Weight::Least => self.stand_back()?,
            Weight::Most => self.stand_first()?,
        }
        Ok(())
    }

    /// Has it another bound on its processor time from now on. The group must have been made with one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hold(&mut self, share: CpuShare) -> Result<()> {
        self.period = dealing_period(share, self.asked_period);
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

    /// Takes bound and weight away, as far as possible: processes that are told to end need processor time for it.
    pub fn lift(&self) {
        self.write_those_there(match &self.version {
            Version::Two { .. } => &[("cpu.max", "max")],
            Version::One { .. } => &[("cpu.cfs_quota_us", "-1")],
        });
        self.stand_up();
    }

    /// The files of [`Cgroup::procs_paths`], opened for writing; the right to join is checked here and not later.
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

    /// Puts the group beside everyone else, as the kernel had it.
    fn stand_up(&self) {
        self.write_those_there(match &self.version {
            Version::Two { .. } => &[("cpu.idle", "0"), ("cpu.weight", "100")],
            Version::One { .. } => &[("cpu.idle", "0"), ("cpu.shares", "1024")],
        });
    }

    /// Writes values to those of the files of the processor's controller that this kernel has.
    fn write_those_there(&self, values: &[(&str, &str)]) {
        let (Version::Two { directory } | Version::One { cpu: directory, .. }) = &self.version;
        for (file, value) in values {
            let path = directory.join(file);
            if path.exists() {
                let _ = fs::write(path, value);
            }
        }
    }

    /// Puts the group before everyone else, by the largest weight there is.
    fn stand_first(&self) -> Result<()> {
        let (file, most) = match &self.version {
            Version::Two { directory } => (directory.join("cpu.weight"), "10000"),
            Version::One { cpu, .. } => (cpu.join("cpu.shares"), "262144"),
        };
        // A weight cannot be set beside idle.
        self.stand_up();
        write(&file, most)
    }

    /// Puts the group behind everyone else.
    fn stand_back(&self) -> Result<()> {
        let (directory, weight, least) = match &self.version {
            Version::Two { directory } => (directory, "cpu.weight", "1"),
            Version::One { cpu, .. } => (cpu, "cpu.shares", "2"),
        };
        // Idle comes with the least weight; a weight cannot be set beside it.
        match write(&directory.join("cpu.idle"), "1") {
            Ok(()) => Ok(()),
            Err(_) => write(&directory.join(weight), least),
        }
    }

    fn limit_memory(&self, bytes: u64) -> Result<()> {
        let (directory, bound, swap) = match &self.version {
            Version::Two { directory } => (directory, "memory.max", [("memory.swap.max", "0".to_owned())]),
            Version::One { memory: Some(directory), .. } => {
                // Memory and swap together, which may not be less than the memory alone: set after it.
                (directory, "memory.limit_in_bytes", [("memory.memsw.limit_in_bytes", bytes.to_string())])
            }
            Version::One { memory: None, .. } => {
                return Err(Error::Missing {
                    what:
                        "no memory controller is mounted here, so memory cannot be bounded: mount -t cgroup -o memory \
                           none /sys/fs/cgroup/memory"
                            .to_owned(),
                });
            }
        };
        if !directory.join(bound).exists()
            && let Some(parent) = directory.parent()
        {
            // Handed out like the processor's controller, which may have been told before without it.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        if !directory.join(bound).exists() {
            return Err(Error::Missing {
                what: format!(
                    "the memory controller is not handed out to {}, so memory cannot be bounded: echo +memory > \
                     cgroup.subtree_control in the groups above it, as root",
                    directory.display()
                ),
            });
        }
        write(&directory.join(bound), &bytes.to_string())?;
        for (file, value) in swap {
            // Absent where the kernel does not account for swap.
            if directory.join(file).exists() {
                write(&directory.join(file), &value)?;
            }
        }
        Ok(())
    }
}

/// The processor time of a group's threads, read again and again.
#[derive(Debug)]
pub struct UsageClock {
    file: File,
    is_per_core: bool,
    buffer: Vec<u8>,
}

impl UsageClock {
    /// The time on each core, by its number, where the group is of version 1; else one figure of all cores.
    pub fn read(&mut self) -> GroupTime {
        let text = accounting::read_again(&self.file, &mut self.buffer);
        if self.is_per_core {
            return GroupTime::PerCore(accounting::per_core(text));
        }
        GroupTime::Total(Duration::from_micros(keyed(text, "usage_usec").unwrap_or(0)))
    }
}

/// Processor time of a group since it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupTime {
    /// On each core, by its number.
    PerCore(Vec<(usize, Duration)>),
    /// On all of them.
    Total(Duration),
}

/// The file with the processor time of all threads of this machine on each core, where version 1 counts it and its root is mounted here: only the
/// root has a release agent.
pub(crate) fn root_usage_per_core() -> Option<PathBuf> {
    let mount = Hierarchies::read().ok()?.mount_of("cpuacct")?;
    mount.join("release_agent").exists().then(|| mount.join("cpuacct.usage_percpu"))
}

/// `total` of the line `some`, in microseconds: see Documentation/accounting/psi.rst.
fn some_total(pressure: &str) -> Option<Duration> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for directory in &self.directories {
            // Busy while the last process is being torn down. Should it stay busy, the next sweep has it.
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

/// The period in which `share` comes to at least the kernel's least quota, not shorter than `asked`.
fn dealing_period(share: CpuShare, asked: Duration) -> Duration {
    let least = QUOTA_MIN.as_secs_f64() / share.cores();
    // Rounded up to a whole microsecond, the unit the kernel is told in.
    let least = Duration::from_micros((least * 1e6).ceil() as u64);
    asked.max(least).clamp(PERIOD_MIN, PERIOD_MAX)
}

/// Splits an exact total as the kernel does for version 2: by the share of ticks, all user when there were none.
fn split_by_ticks(total_ns: u64, user_ticks: u64, system_ticks: u64) -> (Duration, Duration) {
    let ticks = u128::from(user_ticks) + u128::from(system_ticks);
    let system = (u128::from(total_ns) * u128::from(system_ticks)).checked_div(ticks).unwrap_or(0) as u64;
    (Duration::from_nanos(total_ns - system), Duration::from_nanos(system))
}

fn not_allowed(error: Error) -> Error {
    error.mend(
        &[Errno::EACCES, Errno::EPERM, Errno::EROFS],
        "a bound on processor time needs root, or a delegated control group (systemd-run --user --scope -p Delegate=yes)",
    )
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::of(format!("read {}", path.display())))
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value)
        .map_err(|source: io::Error| not_allowed(Error::of(format!("write {value:?} to {}", path.display()))(source)))
}

/// What both versions call the same.
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

/// The kernel refuses to deal out less than this at once (min_cfs_quota_period).
const QUOTA_MIN: Duration = Duration::from_millis(1);
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// And to deal out less often than this (max_cfs_quota_period).
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// How long a group may take to become empty: its processes were killed, and each needs a moment of a processor to go.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Groups of one name in one process: more than runs can be dying at once.
const SAME_NAME_MAX: usize = 100;

#[cfg(test)]
mod tests;
