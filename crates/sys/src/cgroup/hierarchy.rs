//! The mounted control group hierarchies, and the directory in which this process may create a group.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::{Cgroup, Version};
use crate::error::{Error, Result};

/// The control group mounts of this machine and this process's own directory in each.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Hierarchies {
    /// Version 2: mount point and this process's directory under it.
    two: Option<Mounted>,
    /// Version 1, one entry per controller.
    one: Vec<(String, Mounted)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Mounted {
    mount: PathBuf,
    own: PathBuf,
}

impl Hierarchies {
    pub(super) fn read() -> Result<Hierarchies> {
        let file = |path: &str| fs::read_to_string(path).map_err(Error::of(format!("read {path}")));
        Ok(Hierarchies::parse(&file("/proc/self/mountinfo")?, &file("/proc/self/cgroup")?))
    }

    /// From the text of /proc/self/mountinfo and /proc/self/cgroup: see cgroups(7).
    fn parse(mountinfo: &str, own: &str) -> Hierarchies {
        let own_path = |is_match: &dyn Fn(&str, &str) -> bool| {
            own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                is_match(id, controllers).then(|| path.to_owned())
            })
        };
        let mut found = Hierarchies::default();
        for line in mountinfo.lines() {
            // 36 35 98:0 /root /mount/point options optional.. - type source super,options
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let before: Vec<&str> = before.split(' ').collect();
            let after: Vec<&str> = after.split(' ').collect();
            let (Some(root), Some(mount), Some(kind)) = (before.get(3), before.get(4), after.first()) else { continue };
            let mounted =
                |path: String| Mounted { mount: PathBuf::from(mount), own: Path::new(mount).join(below(&path, root)) };
            match *kind {
                "cgroup2" => {
                    if let Some(path) = own_path(&|id, _| id == "0") {
                        found.two.get_or_insert_with(|| mounted(path));
                    }
                }
                "cgroup" => {
                    for controller in after.get(2).unwrap_or(&"").split(',') {
                        let here = |_: &str, names: &str| names.split(',').any(|name| name == controller);
                        let known = found.one.iter().any(|(name, _)| name == controller);
                        if let (true, false, Some(path)) = (CONTROLLERS.contains(&controller), known, own_path(&here)) {
                            found.one.push((controller.to_owned(), mounted(path)));
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Where a controller of version 1 is mounted.
    pub(super) fn mount_of(&self, controller: &str) -> Option<PathBuf> {
        self.one.iter().find(|(name, _)| name == controller).map(|(_, mounted)| mounted.mount.clone())
    }

    /// Chooses the directory of a group called `name`, without creating it.
    pub(super) fn choose(&self, name: &str, with_limit: bool, period: Duration) -> Result<Cgroup> {
        let group = |version| Cgroup { version, directories: Vec::new(), configured_period: period, period };
        if let Some(two) = &self.two
            && let Some(parent) = two.parent_with_cpu()
        {
            return Ok(group(Version::Two { directory: parent.join(name) }));
        }
        let one = |controller: &str| self.one.iter().find(|(c, _)| c == controller).map(|(_, m)| m.own.join(name));
        if let (Some(cpu), Some(cpuacct)) = (one("cpu"), one("cpuacct")) {
            return Ok(group(Version::One { cpu, cpuacct, memory: one("memory") }));
        }
        match &self.two {
            // Counting needs no controller in version 2: cpu.stat always exists.
            Some(two) if !with_limit => Ok(group(Version::Two { directory: two.own.join(name) })),
            Some(two) => Err(Error::Missing {
                what: format!(
                    "no control group at or above {} may hand out the cpu controller: run as root outside a container, \
                     or in a delegated group (systemd-run --user --scope -p Delegate=yes)",
                    two.own.display()
                ),
            }),
            None => Err(Error::Missing {
                what: "no control groups are mounted here: mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
            }),
        }
    }

    /// The mounted versions, in words, with the relevant controllers.
    pub(super) fn describe(&self) -> String {
        let one: Vec<&str> = self.one.iter().map(|(controller, _)| controller.as_str()).collect();
        let two = self.two.as_ref().map(|two| {
            let names = fs::read_to_string(two.mount.join("cgroup.controllers")).unwrap_or_default();
            names.split_whitespace().filter(|name| CONTROLLERS.contains(name)).collect::<Vec<_>>().join(", ")
        });
        let two = two.map(|names| match names.as_str() {
            "" => "version 2 without the cpu controller".to_owned(),
            names => format!("version 2 ({names})"),
        });
        let one = (!one.is_empty()).then(|| format!("version 1 ({})", one.join(", ")));
        let parts: Vec<String> = one.into_iter().chain(two).collect();
        if parts.is_empty() { "none mounted".to_owned() } else { parts.join(" and ") }
    }

    /// Whether a limit first requires a permanent setting of version 2: a directory must enable the controller for its
    /// children.
    pub(super) fn needs_controller_enabled(&self) -> bool {
        self.two.as_ref().is_some_and(|two| two.ready().is_none() && two.directories_to_enable().next().is_some())
    }

    /// The lowest CPU limit of this process's group and its ancestors, in cores.
    pub(super) fn cpu_quota(&self) -> Option<f64> {
        let two =
            self.two.iter().flat_map(Mounted::ancestors).filter_map(|d| quota_two(&read_or_empty(&d.join("cpu.max"))));
        let cpu = self.one.iter().filter(|(controller, _)| controller == "cpu").flat_map(|(_, m)| m.ancestors());
        let one = cpu.filter_map(|d| {
            quota_one(&read_or_empty(&d.join("cpu.cfs_quota_us")), &read_or_empty(&d.join("cpu.cfs_period_us")))
        });
        two.chain(one).min_by(f64::total_cmp)
    }

    /// Only version 2, mounted at `mount`, with this process in `own`.
    #[cfg(test)]
    pub(super) fn two_for_tests(mount: &Path, own: &Path) -> Hierarchies {
        Hierarchies { two: Some(Mounted { mount: mount.into(), own: own.into() }), one: Vec::new() }
    }

    /// The top of every hierarchy in which this program may have created a group.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &Path> {
        self.two.iter().chain(self.one.iter().map(|(_, mounted)| mounted)).map(|mounted| mounted.mount.as_path())
    }
}

impl Mounted {
    /// Own directory first, then upward to the mount point.
    fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.own.ancestors().take_while(|directory| directory.starts_with(&self.mount))
    }

    /// The nearest directory at or above this process's own whose children have the cpu controller. If there is none,
    /// it is enabled in one that contains no process itself (the kernel's rule) and that this user may write to.
    fn parent_with_cpu(&self) -> Option<PathBuf> {
        let enabled = || {
            self.directories_to_enable().find(|d| fs::write(d.join("cgroup.subtree_control"), "+cpu +memory").is_ok())
        };
        self.ready().or_else(enabled).map(Path::to_path_buf)
    }

    /// The nearest directory at or above this process's own whose children already have the cpu controller.
    fn ready(&self) -> Option<&Path> {
        self.ancestors().find(|d| mentions_cpu(d, "cgroup.subtree_control") && writable(d))
    }

    /// Directories in which the controller may be enabled; the kernel may still refuse.
    fn directories_to_enable(&self) -> impl Iterator<Item = &Path> {
        self.ancestors().filter(|d| mentions_cpu(d, "cgroup.controllers") && writable(d))
    }
}

fn mentions_cpu(directory: &Path, file: &str) -> bool {
    fs::read_to_string(directory.join(file)).is_ok_and(|names| names.split_whitespace().any(|name| name == "cpu"))
}

fn writable(directory: &Path) -> bool {
    let access = |path: &Path| nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok();
    access(directory) && access(&directory.join("cgroup.procs"))
}

/// The part of a process's path that a mount of the subtree `root` shows; the mount point itself if it does not show it
/// (a container's view of a process outside).
fn below<'a>(path: &'a str, root: &str) -> &'a Path {
    let relative = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    if relative.components().any(|part| part == Component::ParentDir) { Path::new("") } else { relative }
}

/// `quota period` in microseconds, or `max period`, as cores.
fn quota_two(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    quota_one(quota, period)
}

/// Microseconds as cores; no limit for -1 and `max`.
fn quota_one(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn read_or_empty(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The relevant version 1 controllers.
const CONTROLLERS: [&str; 3] = ["cpu", "cpuacct", "memory"];

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(mount: &str, own: &str) -> Mounted {
        Mounted { mount: mount.into(), own: own.into() }
    }

    #[test]
    fn cgroup_v2_mount_of_a_user_session_is_found() {
        let found = Hierarchies::parse(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
            "0::/user.slice/user-1000.slice/session-1.scope\n",
        );
        let own = "/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope";
        assert_eq!(found.two, Some(mounted("/sys/fs/cgroup", own)));
        assert_eq!(found.two.as_ref().unwrap().ancestors().count(), 4);
        assert_eq!(found.mounts().collect::<Vec<_>>(), [Path::new("/sys/fs/cgroup")]);
    }

    #[test]
    fn cgroup_v1_mounts_are_found_separate_joined_and_in_a_container() {
        let found = Hierarchies::parse(
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
             36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "4:memory:/docker/ab\n2:cpu,cpuacct:/\n0::/\n",
        );
        let joined = mounted("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct");
        let memory = mounted("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory");
        assert_eq!(
            found.one,
            [("cpu".to_owned(), joined.clone()), ("cpuacct".to_owned(), joined), ("memory".to_owned(), memory)]
        );
        assert_eq!(found.two, Some(mounted("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified")));
    }

    #[test]
    fn cpu_limits_of_both_versions_are_parsed_as_cores() {
        assert_eq!(quota_two("150000 100000\n"), Some(1.5));
        assert_eq!(quota_two("max 100000\n"), None);
        assert_eq!(quota_one("-1\n", "100000\n"), None);
        assert_eq!(quota_one("50000\n", "100000\n"), Some(0.5));
        assert_eq!((quota_two(""), quota_one("", "")), (None, None));
    }

    #[test]
    fn lowest_cpu_limit_is_read_without_enabling_a_controller() {
        let mount = tempfile::tempdir().unwrap();
        let own = mount.path().join("kubepods.slice/pod.scope");
        fs::create_dir_all(&own).unwrap();
        for (directory, bound) in [(mount.path().join("kubepods.slice"), "200000 100000"), (own.clone(), "max 100000")]
        {
            fs::write(directory.join("cpu.max"), bound).unwrap();
            fs::write(directory.join("cgroup.procs"), "").unwrap();
        }
        let found = Hierarchies::two_for_tests(mount.path(), &own);
        assert_eq!(found.cpu_quota(), Some(2.0));
        assert_eq!(found.describe(), "version 2 without the cpu controller");
        assert!(!found.needs_controller_enabled(), "no directory can enable the controller");
        fs::write(mount.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        fs::write(own.join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert_eq!(found.describe(), "version 2 (cpu, memory)");
        assert!(found.needs_controller_enabled());
        assert!(!own.join("cgroup.subtree_control").exists(), "a query must not enable the controller");
        fs::write(own.join("cgroup.subtree_control"), "cpu").unwrap();
        assert!(!found.needs_controller_enabled());
        assert_eq!(Hierarchies::default().describe(), "none mounted");
    }

    #[test]
    fn cgroup_v1_and_v2_mounts_are_described_together() {
        let found = Hierarchies::parse(
            "32 31 0:29 / /no/such/cpu rw - cgroup cgroup rw,cpu,cpuacct\n41 31 0:38 / /no/such/unified rw - cgroup2 cgroup2 rw\n",
            "2:cpu,cpuacct:/\n0::/\n",
        );
        assert_eq!(found.describe(), "version 1 (cpu, cpuacct) and version 2 without the cpu controller");
        assert_eq!(found.cpu_quota(), None);
    }

    #[test]
    fn error_without_cgroup_mounts_names_the_remedy() {
        let error = Hierarchies::parse("", "").choose("x", true, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("mount -t cgroup2"), "{error}");
    }
}
