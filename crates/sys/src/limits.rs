//! Limits of this process, and the size of its terminal.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit and returns the new limit.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Grows this process's table of open files to `count` entries, at most 65,536.
///
/// The kernel doubles that table when it is full. In a process with several threads the call that needs a descriptor
/// (accept(2), socket(2)) then waits for an RCU grace period: 10 to 30 ms at 64, 256, 512 .. open files. Call this
/// before starting threads that must not stall. A failure only means that these stalls may occur.
pub fn widen_table_of_files(count: u64) {
    let last = i32::try_from(count.clamp(1, 1 << 16)).unwrap_or(1) - 1;
    let Ok(label) = unnamed_file(c"widest") else { return };
    // SAFETY: no pointers; the descriptor is open as long as `label` exists.
    let copy = unsafe { libc::fcntl(label.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last) };
    if copy >= 0 {
        // SAFETY: `copy` was just returned by the kernel, is open, and has no other owner.
        drop(unsafe { File::from_raw_fd(copy) });
    }
}

/// Columns of the terminal at stdout; `None` if stdout is not a terminal.
pub fn terminal_width() -> Option<usize> {
    // SAFETY: an all-zero winsize is valid, and the call writes nothing else.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: `size` outlives the call and is what TIOCGWINSZ fills.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(size.ws_col as usize)
}

/// An unnamed file that disappears with its last descriptor.
///
/// # Errors
/// The errors of memfd_create(2).
pub fn unnamed_file(label: &std::ffi::CStr) -> io::Result<File> {
    // SAFETY: the label is a C string; the returned descriptor has no other owner.
    let fd = unsafe { libc::memfd_create(label.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned by the kernel and is open.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_table_grows_and_no_descriptor_stays_open() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let length = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let before = open();

        widen_table_of_files(900);

        assert!(length() >= 900);
        // Other tests of this process open and close files at the same time, but fewer than nine hundred.
        assert!(open().abs_diff(before) < 100);
    }

    #[test]
    fn descriptor_table_does_not_grow_beyond_the_limit() {
        widen_table_of_files(0);
        widen_table_of_files(u64::MAX);
    }
}
