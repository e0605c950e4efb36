//! The mounts of a sandbox: its own /proc, and its own /etc/hosts. Created by init, in its private mount namespace.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::error::{Error, Result};

/// Hides later mounts from outside this mount namespace.
pub(super) fn make_private() -> Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).map_err(Error::of("mount --make-rprivate /"))
}

/// Prepends `hosts` to the host's /etc/hosts, for this sandbox only. No file on disk is changed: the text is in a tmpfs
/// that is mounted, bound from, and unmounted again, and exists as long as the bind mount.
pub(super) fn own_hosts(hosts: &[(IpAddr, String)]) -> Result<()> {
    if hosts.is_empty() {
        return Ok(());
    }
    let text = hosts_text(hosts, &fs::read_to_string(HOSTS).unwrap_or_default());
    mount(Some("tmpfs"), SCRATCH, Some("tmpfs"), MsFlags::empty(), Some("size=4m,mode=755"))
        .map_err(Error::of(format!("mount tmpfs on {SCRATCH}")))?;
    let bound = bind_hosts(&text);
    umount2(SCRATCH, MntFlags::MNT_DETACH).map_err(Error::of(format!("umount {SCRATCH}")))?;
    bound
}

fn bind_hosts(text: &str) -> Result<()> {
    let file = format!("{SCRATCH}/hosts");
    fs::write(&file, text).map_err(Error::of(format!("write {file}")))?;
    // For any umask: the command's user must be able to read it.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).map_err(Error::of(format!("chmod {file}")))?;
    mount(Some(file.as_str()), HOSTS, NONE, MsFlags::MS_BIND, NONE).map_err(|errno| {
        Error::of(format!("mount --bind {file} {HOSTS}"))(errno)
            .remedy(&[Errno::ENOENT], "this host has no /etc/hosts: create an empty one")
    })
}

/// Mounts a /proc that shows the processes of this sandbox. Refused in some containers; the sandbox then sees the
/// host's.
pub(super) fn own_proc() {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let _ = mount(Some("proc"), "/proc", Some("proc"), flags, NONE);
}

fn hosts_text(hosts: &[(IpAddr, String)], host: &str) -> String {
    let mut text = String::new();
    for (ip, name) in hosts {
        let _ = writeln!(text, "{ip}\t{name}");
    }
    text + host
}

const NONE: Option<&str> = None;
const HOSTS: &str = "/etc/hosts";

/// Any directory that always exists; /proc, which is about to be covered anyway.
const SCRATCH: &str = "/proc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_hosts_precede_those_of_the_host() {
        let ip = "198.18.0.1".parse().unwrap();
        assert_eq!(
            hosts_text(&[(ip, "server".to_owned())], "127.0.0.1 localhost\n"),
            "198.18.0.1\tserver\n127.0.0.1 localhost\n"
        );
    }
}
