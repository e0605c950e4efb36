//! Privileges of this process, determined without changing it.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::USERNS_REFUSED;

/// How this process can create namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// This process has CAP_SYS_ADMIN and CAP_NET_ADMIN: it creates namespaces directly.
    Root,
    /// An ordinary user who may create a user namespace: call [`super::enter_user_namespace`] first.
    UserNamespace,
    /// This process cannot create namespaces.
    None {
        /// The refused step, and the remedy.
        why: String,
    },
}

/// The privileges of this process. Tries a user namespace in a forked child, so the caller stays unchanged.
pub fn privilege() -> Privilege {
    if has_capability(CAP_SYS_ADMIN) && has_capability(CAP_NET_ADMIN) {
        return Privilege::Root;
    }
    match try_user_namespace() {
        Ok(()) => Privilege::UserNamespace,
        Err((step, errno)) => {
            let remedy = match errno {
                Errno::ENOSPC | Errno::EUSERS => {
                    "no more user namespaces are allowed here: run as root, or raise sysctl \
                                                  user.max_user_namespaces (and user.max_net_namespaces)"
                }
                _ => USERNS_REFUSED,
            };
            Privilege::None { why: format!("{step}: {}; {remedy}", errno.desc()) }
        }
    }
}

/// Whether this process runs in a user namespace other than the host's: "root" here may then be an ordinary user
/// outside, and a server that changes its user needs [`crate::sandbox::SandboxSpec::rootless`].
pub fn in_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"])
}

/// Whether the effective capabilities of this thread include `capability`.
pub(crate) fn has_capability(capability: u32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else { return false };
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|effective| effective >> capability & 1 == 1)
}

/// Forks; the child tries both steps and returns the failing errno as its exit code.
fn try_user_namespace() -> Result<(), (&'static str, Errno)> {
    // SAFETY: the child makes system calls only (unshare, _exit), no allocation, so it may follow a fork even when
    // this process has other threads.
    match unsafe { fork() } {
        Err(errno) => Err(("fork", errno)),
        Ok(ForkResult::Child) => {
            let code = match unshare(CloneFlags::CLONE_NEWUSER) {
                Err(errno) => (errno as i32).min(NET_STEP - 1),
                Ok(()) => match unshare(CloneFlags::CLONE_NEWNET) {
                    Err(errno) => NET_STEP + (errno as i32).min(NET_STEP - 1),
                    Ok(()) => 0,
                },
            };
            // SAFETY: ends the child immediately, without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        Ok(ForkResult::Parent { child }) => loop {
            match waitpid(child, None) {
                Err(Errno::EINTR) => continue,
                Err(errno) => break Err(("waitpid", errno)),
                Ok(WaitStatus::Exited(_, 0)) => break Ok(()),
                Ok(WaitStatus::Exited(_, code)) if code >= NET_STEP => {
                    break Err(("unshare CLONE_NEWNET in a user namespace", Errno::from_raw(code - NET_STEP)));
                }
                Ok(WaitStatus::Exited(_, code)) => break Err(("unshare CLONE_NEWUSER", Errno::from_raw(code))),
                Ok(_) => break Err(("unshare CLONE_NEWUSER", Errno::UnknownErrno)),
            }
        },
    }
}

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// Exit codes below this are errnos of the first step, those above of the second.
const NET_STEP: i32 = 128;
