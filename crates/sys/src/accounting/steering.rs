//! Receive packet steering: which cores do the receive processing of a device.

use std::fs;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::error::{Error, Result};
use crate::namespace::{NetNamespace, on_own_thread};

/// Steers the receive processing of `device` in namespace `net` to `cpus` (receive packet steering). Without it, the
/// receive processing of a server's packets runs inside the write to its TUN: on the path's core, charged to the path.
/// An empty list turns steering off.
///
/// The setting is in sysfs, which shows the devices of the namespace in which it was mounted; so a short-lived thread
/// mounts a private sysfs, which is unmounted when this function returns.
///
/// # Errors
/// Always when rootless (the kernel requires CAP_NET_ADMIN of the host, not of the namespace); an unknown device; a
/// kernel without CONFIG_RPS. The kernel ignores cores that this machine does not have.
pub fn set_rps(net: &NetNamespace, device: &str, cpus: &[usize]) -> Result<()> {
    on_own_thread(|| {
        net.enter()?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(Error::of("unshare CLONE_NEWNS"))?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .map_err(Error::of("mount --make-private /"))?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).map_err(Error::of("mount sysfs"))?;
        let (path, mask) = (format!("/sys/class/net/{device}/queues/rx-0/rps_cpus"), cpu_mask(cpus));
        fs::write(&path, &mask).map_err(|source| {
            Error::of(format!("write {mask} to {path}"))(source)
                .remedy(&[Errno::ENOENT], "no such device, or a kernel built without CONFIG_RPS")
                .remedy(
                    &[Errno::EPERM, Errno::EACCES],
                    "only root outside any user namespace may steer receive processing",
                )
        })
    })
}

/// The kernel's format of a set of cores: hexadecimal, groups of 32 bits, most significant first, separated by commas.
fn cpu_mask(cpus: &[usize]) -> String {
    let mut words = vec![0u32; cpus.iter().max().map_or(0, |last| last / 32) + 1];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_mask_has_the_format_of_the_kernel() {
        assert_eq!(cpu_mask(&[]), "00000000");
        assert_eq!(cpu_mask(&[0, 1, 31]), "80000003");
        assert_eq!(cpu_mask(&[32, 0]), "00000001,00000001");
    }
}
