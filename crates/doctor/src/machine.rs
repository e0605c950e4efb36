//! The machine as /proc and /sys describe it; parsers take text.

use std::fs;
use std::path::Path;

use sys::accounting::{CpuTimes, HostFacts, cpu_times, memory_available};
use sys::probe;
use sys::sched::Cores;

use super::facts::{Machine, RunStoreFacts, Trial};

/// Reads the machine's properties.
pub fn read() -> sys::Result<Machine> {
    let facts = HostFacts::read()?;
    let kernel = sys::accounting::kernel_version(&facts.kernel);
    let allowed = Cores::allowed().unwrap_or_default();
    let sources = words(CLOCK_SOURCES);
    let traces = MachineIds {
        release: &facts.kernel,
        cpuinfo: &text("/proc/cpuinfo"),
        vendor: &text("/sys/class/dmi/id/sys_vendor"),
        product: &text("/sys/class/dmi/id/product_name"),
        hypervisor: &text("/sys/hypervisor/type"),
        clock_sources: &sources,
    };
    let container = container(
        |path| Path::new(path).exists(),
        &text("/run/systemd/container"),
        &(text("/proc/1/cgroup") + &text("/proc/self/cgroup")),
    );
    Ok(Machine {
        kernel,
        quota: sys::cgroup::cpu_quota(),
        memory_available_bytes: memory_available(&text("/proc/meminfo")),
        hypervisor: traces.hypervisor(),
        container,
        steal_since_boot: steal_share(&cpu_times()?.into_iter().map(|(_, times)| times).collect::<Vec<_>>()),
        clock_source: (text(CLOCK_SOURCE).trim().to_owned(), sources),
        governors: governors(allowed.list()),
        congestion_controls: words("/proc/sys/net/ipv4/tcp_available_congestion_control"),
        time_wait_max: text("/proc/sys/net/ipv4/tcp_max_tw_buckets").trim().parse().ok(),
        io_uring: Trial::of(probe::io_uring(), "available"),
        allowed,
        facts,
    })
}

/// Properties of the run store, whose directory may not exist. Nothing is created.
pub fn run_store(root: &Path) -> RunStoreFacts {
    let here = if root.is_absolute() { root.to_owned() } else { Path::new(".").join(root) };
    let existing = here.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    RunStoreFacts {
        root: root.to_owned(),
        writable: probe::writable(existing),
        free_bytes: probe::free_bytes(existing).ok(),
    }
}

/// Properties by which a virtual machine is recognised.
struct MachineIds<'a> {
    release: &'a str,
    cpuinfo: &'a str,
    vendor: &'a str,
    product: &'a str,
    hypervisor: &'a str,
    clock_sources: &'a [String],
}

impl MachineIds<'_> {
    /// The hypervisor; `None` on bare metal, as far as it can be seen.
    fn hypervisor(&self) -> Option<String> {
        let board = format!("{} {}", self.vendor.trim(), self.product.trim());
        if self.release.to_ascii_lowercase().contains("microsoft") {
            return Some("WSL 2 (Hyper-V)".into());
        }
        if board.contains("Amazon EC2") && board.ends_with(".metal") {
            return None;
        }
        let named = BOARDS.iter().find(|(trace, _)| board.contains(trace)).map(|&(_, name)| name.to_owned());
        let of_source = |source: &str| match source {
            "kvm-clock" => Some("KVM"),
            "xen" => Some("Xen"),
            source if source.starts_with("hyperv") => Some("Hyper-V"),
            _ => None,
        };
        let by_source = || self.clock_sources.iter().find_map(|source| of_source(source)).map(str::to_owned);
        let by_type = || Some(self.hypervisor.trim()).filter(|kind| !kind.is_empty()).map(str::to_owned);
        let by_flag = || has_flag(self.cpuinfo, "hypervisor").then(|| "an unknown hypervisor".to_owned());
        named.or_else(by_type).or_else(by_source).or_else(by_flag)
    }
}

/// The first container that is recognised.
fn container(exists: impl Fn(&str) -> bool, systemd: &str, cgroups: &str) -> Option<String> {
    let name = systemd.trim();
    if !name.is_empty() {
        return Some(name.to_owned());
    }
    let in_groups = [("kubepods", "Kubernetes"), ("/docker", "Docker"), ("libpod", "Podman"), ("/lxc", "LXC")];
    if let Some((_, name)) = in_groups.iter().find(|(trace, _)| cgroups.contains(trace)) {
        return Some((*name).to_owned());
    }
    let files = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")];
    files.iter().find(|(file, _)| exists(file)).map(|(file, name)| format!("{name} (by {file})"))
}

/// Whether the first core has this CPU flag. Only x86 has flags.
fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    line.is_some_and(|(_, flags)| flags.split_whitespace().any(|name| name == flag))
}

/// Stolen share of the cores' time; 0 without any time.
pub fn steal_share(cores: &[CpuTimes]) -> f64 {
    let stolen: f64 = cores.iter().map(|times| times.steal.as_secs_f64()).sum();
    share(stolen, cores)
}

/// Share of the cores' time spent on work of this machine.
pub fn busy_share(cores: &[CpuTimes]) -> f64 {
    let busy: f64 = cores.iter().map(|times| times.busy().as_secs_f64()).sum();
    share(busy, cores)
}

fn share(part: f64, cores: &[CpuTimes]) -> f64 {
    let all = |times: &CpuTimes| (times.busy() + times.idle + times.iowait + times.steal).as_secs_f64();
    let whole: f64 = cores.iter().map(all).sum();
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The governors of these cores, each once, in order of appearance.
fn governors(cores: &[usize]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for core in cores {
        let governor = text(&format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor")).trim().to_owned();
        if !governor.is_empty() && !found.contains(&governor) {
            found.push(governor);
        }
    }
    found
}

/// A file's text; empty if it cannot be read.
fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn words(path: &str) -> Vec<String> {
    text(path).split_whitespace().map(str::to_owned).collect()
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Board names of virtual machines (systemd-detect-virt reads the same fields).
const BOARDS: [(&str, &str); 10] = [
    ("Amazon EC2", "Amazon EC2"),
    ("Google Compute Engine", "Google Compute Engine"),
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ("Parallels", "Parallels"),
    ("Xen", "Xen"),
    ("QEMU", "KVM (QEMU)"),
    ("KVM", "KVM"),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BARE: MachineIds<'static> = MachineIds {
        release: "6.1.0-28-amd64",
        cpuinfo: "processor\t: 0\nflags\t\t: fpu vme tsc\n",
        vendor: "Dell Inc.\n",
        product: "PowerEdge R650\n",
        hypervisor: "",
        clock_sources: &[],
    };

    fn found(traces: &MachineIds<'_>) -> Option<String> {
        traces.hypervisor()
    }

    #[test]
    fn hypervisors_are_recognised_by_board_clock_source_and_flag() {
        assert_eq!(found(&BARE), None);
        let cases = [
            ("VMware, Inc.\n", "VMware20,1\n", "VMware"),
            ("QEMU\n", "Standard PC (Q35 + ICH9, 2009)\n", "KVM (QEMU)"),
            ("Microsoft Corporation\n", "Virtual Machine\n", "Hyper-V"),
            ("Amazon EC2\n", "m7i.large\n", "Amazon EC2"),
            ("Google\n", "Google Compute Engine\n", "Google Compute Engine"),
            ("innotek GmbH\n", "VirtualBox\n", "VirtualBox"),
            ("Xen\n", "HVM domU\n", "Xen"),
        ];
        for (vendor, product, name) in cases {
            assert_eq!(found(&MachineIds { vendor, product, ..BARE }).as_deref(), Some(name));
        }
        assert_eq!(found(&MachineIds { vendor: "Amazon EC2\n", product: "m7i.metal\n", ..BARE }), None);
        assert_eq!(found(&MachineIds { vendor: "Microsoft Corporation", product: "Surface Pro", ..BARE }), None);
        let wsl = MachineIds { release: "5.15.167.4-microsoft-standard-WSL2", ..BARE };
        assert_eq!(found(&wsl).as_deref(), Some("WSL 2 (Hyper-V)"));
        // A microVM has no board.
        let bare_board = MachineIds { vendor: "", product: "", ..BARE };
        let sources = ["tsc".to_owned(), "kvm-clock".to_owned()];
        assert_eq!(found(&MachineIds { clock_sources: &sources, ..bare_board }).as_deref(), Some("KVM"));
        let bare_board = MachineIds { vendor: "", product: "", ..BARE };
        let flagged = MachineIds { cpuinfo: "flags\t\t: fpu hypervisor tsc\n", ..bare_board };
        assert_eq!(found(&flagged).as_deref(), Some("an unknown hypervisor"));
        // Neither a program named hypervisor nor a longer flag is the flag.
        let named = MachineIds { cpuinfo: "model name\t: hypervisor\nflags\t: nohypervisor\n", ..BARE };
        assert_eq!(found(&named), None);
    }

    #[test]
    fn containers_are_recognised_by_cgroup_or_file() {
        let nothing = |_: &str| false;
        assert_eq!(container(nothing, "", "0::/user.slice/user-1000.slice/session-2.scope\n"), None);
        assert_eq!(container(nothing, "", "12:cpu,cpuacct:/docker/3fb1\n").as_deref(), Some("Docker"));
        assert_eq!(container(nothing, "", "0::/kubepods.slice/x\n").as_deref(), Some("Kubernetes"));
        assert_eq!(container(nothing, "", "0::/machine.slice/libpod-77.scope\n").as_deref(), Some("Podman"));
        assert_eq!(container(nothing, "systemd-nspawn\n", "0::/\n").as_deref(), Some("systemd-nspawn"));
        // With cgroup version 2 and a cgroup namespace the path is "/".
        let file = |path: &str| path == "/run/.containerenv";
        assert_eq!(container(file, "", "0::/\n").as_deref(), Some("Podman (by /run/.containerenv)"));
    }

    #[test]
    fn available_memory_is_parsed_for_new_and_old_kernels() {
        assert_eq!(memory_available("MemTotal: 8 kB\nMemFree: 2 kB\nMemAvailable:   5 kB\n"), 5120);
        assert_eq!(memory_available("MemTotal: 8 kB\nMemFree: 2 kB\n"), 2048);
        assert_eq!(memory_available(""), 0);
    }

    #[test]
    fn steal_and_busy_shares_are_of_all_cores() {
        let ms = Duration::from_millis;
        let core = CpuTimes { user: ms(20), system: ms(10), idle: ms(60), steal: ms(10), ..CpuTimes::default() };
        assert!((steal_share(&[core, CpuTimes::default()]) - 0.1).abs() < 1e-9);
        assert!((busy_share(&[core]) - 0.3).abs() < 1e-9);
        assert!(steal_share(&[]) == 0.0 && busy_share(&[CpuTimes::default()]) == 0.0);
    }

    #[test]
    fn a_run_store_that_does_not_exist_is_judged_by_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let facts = run_store(&folder.path().join("a/b/runs"));
        assert!(facts.writable && facts.free_bytes.unwrap() > 0);
        assert!(!folder.path().join("a").exists(), "nothing was created");
    }
}
