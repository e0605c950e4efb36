//! A process as a descriptor.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that is readable from the process's end on (pidfd). It holds the process's number as long as the process
/// was not waited for.
///
/// # Errors
/// There is no such process; the system is older than Linux 5.3.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::signal::wait_readable;

    #[test]
    fn it_is_readable_when_the_process_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = open(child.id()).unwrap();
        assert!(!wait_readable(pidfd.as_fd(), Duration::ZERO));
        child.kill().unwrap();
        assert!(wait_readable(pidfd.as_fd(), Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(open(child.id()).is_err());
    }
}
