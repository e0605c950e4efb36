//! Process descriptors (pidfd).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that becomes readable at the process's end (pidfd). Until the process is waited for, its number is not
/// reused.
///
/// # Errors
/// No such process; a kernel older than Linux 5.3.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::signal::wait_readable;

    #[test]
    fn pidfd_is_readable_after_the_end_of_the_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = open(child.id()).unwrap();
        assert!(!wait_readable(pidfd.as_fd(), Duration::ZERO));
        child.kill().unwrap();
        assert!(wait_readable(pidfd.as_fd(), Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(open(child.id()).is_err());
    }
}
