//! Network namespaces held by descriptor, and the user namespace in which an ordinary user may create them.
//!
//! ```text
//! root:      NetNamespace::create()                     the caller stays where it is
//! rootless:  enter_user_namespace(), then the same      the process becomes "root" of its own user namespace
//! ```
//!
//! No namespace has a name on disk: it disappears with its last descriptor and process, with its devices and routes. A
//! temporary entry happens on a short-lived thread ([`NetNamespace::run`]) and not by entering and returning, because a
//! rootless process may not return to the host's namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};

use crate::clock::Deadline;
use crate::error::{Error, Result};

pub use privilege::{Privilege, in_user_namespace, privilege};

mod privilege;

/// A network namespace, alive for as long as this descriptor (or a process in it) is.
#[derive(Debug)]
pub struct NetNamespace(OwnedFd);

impl NetNamespace {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn current() -> Result<Self> {
        let file = File::open(OWN_NET).map_err(Error::of(format!("open {OWN_NET}")))?;
        Ok(NetNamespace(file.into()))
    }

    /// The namespace of another process.
    ///
    /// # Errors
    /// No such process, or it is another user's.
    pub fn of(pid: i32) -> Result<Self> {
        let path = format!("/proc/{pid}/ns/net");
        let file = File::open(&path).map_err(Error::of(format!("open {path}")))?;
        Ok(NetNamespace(file.into()))
    }

    /// A new namespace that contains only a loopback device, which is down. The caller stays in its own namespace.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN ([`privilege`] returns the remedy), or the limit of namespaces is reached.
    pub fn create() -> Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| {
                Error::of("unshare CLONE_NEWNET")(errno)
                    .remedy(&[Errno::EPERM], "run as root, or allow user namespaces for ordinary users")
                    .remedy(&[Errno::ENOSPC], "raise sysctl user.max_net_namespaces")
            })?;
            NetNamespace::current()
        })
    }

    /// Moves the calling thread into this namespace, permanently.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN over the namespace.
    pub fn enter(&self) -> Result<()> {
        setns(self, CloneFlags::CLONE_NEWNET).map_err(Error::of("setns CLONE_NEWNET"))
    }

    /// Runs `work` in this namespace, on a separate thread that ends with it; the caller stays in its own namespace.
    /// Sockets and TUN devices opened by `work` belong to this namespace permanently.
    ///
    /// # Errors
    /// The namespace could not be entered. What `work` returns is passed on as it is; so is its panic.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_own_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// A second descriptor of the same namespace.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(NetNamespace(self.0.try_clone().map_err(Error::of("fcntl F_DUPFD_CLOEXEC"))?))
    }

    /// The namespace's inode: two descriptors with the same number are the same namespace.
    ///
    /// # Errors
    /// fstat failed.
    pub fn inode(&self) -> Result<u64> {
        let file = File::from(self.0.try_clone().map_err(Error::of("fcntl F_DUPFD_CLOEXEC"))?);
        Ok(file.metadata().map_err(Error::of("fstat network namespace"))?.ino())
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Moves this process into a new user namespace, in which it is root (uid 0) and has every capability over the
/// namespaces it creates from now on. Files and other processes still see its real identity. Permanent; children
/// inherit it.
///
/// # Errors
/// The process has more than one thread, or this machine does not let ordinary users make user namespaces (the
/// message names the setting).
pub fn enter_user_namespace() -> Result<()> {
    require_single_thread()?;
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|errno| {
        Error::of("unshare CLONE_NEWUSER")(errno)
            .remedy(&[Errno::EPERM, Errno::EACCES], USERNS_REFUSED)
            .remedy(&[Errno::ENOSPC, Errno::EUSERS], "raise sysctl user.max_user_namespaces")
    })?;
    map_identity(0, uid.as_raw(), 0, gid.as_raw())
}

/// Writes the maps of a user namespace just entered: one user and one group, the maximum for an ordinary user.
pub(crate) fn map_identity(inside_uid: u32, outside_uid: u32, inside_gid: u32, outside_gid: u32) -> Result<()> {
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{inside_uid} {outside_uid} 1"))?;
    write("/proc/self/gid_map", &format!("{inside_gid} {outside_gid} 1"))
}

/// Waits briefly until joined threads have left the kernel's count, then requires a single thread.
pub(crate) fn require_single_thread() -> Result<()> {
    let deadline = Deadline::after(JOINED_THREAD_TIMEOUT);
    loop {
        let threads = fs::read_dir("/proc/self/task").map_err(Error::of("read /proc/self/task"))?.count();
        if threads == 1 {
            return Ok(());
        }
        if deadline.has_passed() {
            return Err(Error::Threads { threads });
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `work` on a separate thread: changes of the thread's namespaces end with it.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, work)
            .map_err(Error::of("create a thread"))?;
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn write(path: &str, value: &str) -> Result<()> {
    fs::write(path, value).map_err(|source: io::Error| Error::of(format!("write {value:?} to {path}"))(source))
}

const OWN_NET: &str = "/proc/thread-self/ns/net";

/// A joined thread leaves /proc/self/task within microseconds of CPU time, for which it may wait on a loaded machine.
const JOINED_THREAD_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) const USERNS_REFUSED: &str = "user namespaces are not allowed for ordinary users here: run as root, or set sysctl \
                                         kernel.unprivileged_userns_clone=1 and \
                                         kernel.apparmor_restrict_unprivileged_userns=0 where they exist";
