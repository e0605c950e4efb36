//! The facts of this host that a result is stored with.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::utsname::uname;

use super::read;
use crate::error::{Error, Result};

/// Facts about the machine that produced a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Machine, as `uname -m`.
    pub machine: String,
    /// Host name.
    pub name: String,
    /// Model of the first core; empty if the kernel does not report it.
    pub cpu_model: String,
    /// Cores online.
    pub cores: usize,
    /// Physical memory, in bytes.
    pub memory_bytes: u64,
    /// Maximum number of open descriptors: the soft and the hard limit of this process.
    pub nofile: (u64, u64),
    /// Ephemeral ports, first and last, in the calling thread's namespace.
    pub ephemeral_ports: (u16, u16),
    /// Default congestion control in the calling thread's namespace.
    pub congestion_control: String,
}

impl HostFacts {
    /// Reads the facts.
    ///
    /// # Errors
    /// /proc is not mounted or could not be parsed.
    pub fn read() -> Result<HostFacts> {
        let system = uname().map_err(Error::of("uname"))?;
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let ports = read("/proc/sys/net/ipv4/ip_local_port_range")?;
        let mut ports = ports.split_whitespace().filter_map(|port| port.parse().ok());
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Ok(HostFacts {
            kernel: text(system.release()),
            machine: text(system.machine()),
            name: text(system.nodename()),
            cpu_model: cpu_model(&cpus),
            cores: super::cpu_times()?.len(),
            memory_bytes: memory_bytes(&read("/proc/meminfo")?),
            nofile: getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::of("getrlimit RLIMIT_NOFILE"))?,
            ephemeral_ports: (ports.next().unwrap_or(32768), ports.next().unwrap_or(60999)),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned(),
        })
    }
}

/// Version of a release: `6.18.44-fc` is 6.18; `None` if it does not begin with a version.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split('.');
    let number = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

/// x86 has "model name"; other machines have "Model", "cpu model" or nothing.
fn cpu_model(cpuinfo: &str) -> String {
    let find = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    ["model name", "Model", "cpu model"].into_iter().find_map(find).unwrap_or_default()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let kilobytes =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0u64) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_of_several_distributions_are_parsed() {
        for (release, version) in [
            ("6.18.44-fc-v595", Some((6, 18))),
            ("5.4.0-216-generic", Some((5, 4))),
            ("4.18.0-553.16.1.el8_10.x86_64", Some((4, 18))),
            ("6.12-rc3", Some((6, 12))),
            ("linux", None),
            ("", None),
        ] {
            assert_eq!(kernel_version(release), version, "{release}");
        }
    }

    #[test]
    fn host_facts_of_this_machine_are_readable() {
        let facts = HostFacts::read().unwrap();
        assert!(facts.cores >= 1 && facts.memory_bytes > 1 << 20 && facts.nofile.0 > 0, "{facts:?}");
        assert!(facts.ephemeral_ports.0 < facts.ephemeral_ports.1, "{facts:?}");
        assert!(!facts.kernel.is_empty() && !facts.congestion_control.is_empty(), "{facts:?}");
    }

    #[test]
    fn cpu_model_and_memory_are_parsed() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n"), "A CPU @ 2 GHz");
        assert_eq!(cpu_model("processor\t: 0\n"), "");
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:   2 kB\n"), 2048);
    }
}
