//! Limits of this process, and the size of its terminal.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one and returns what it is then.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Columns of the terminal behind stdout; `None` if it is none.
pub fn terminal_width() -> Option<usize> {
    // SAFETY: an all-zero winsize is valid, and the call writes nothing else.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: `size` outlives the call and is what TIOCGWINSZ fills.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(size.ws_col as usize)
}

/// A file that has no name and is gone with its last descriptor.
///
/// # Errors
/// Those of memfd_create(2).
pub fn unnamed_file(label: &std::ffi::CStr) -> io::Result<File> {
    // SAFETY: the label is a C string; the returned descriptor is owned by nobody else.
    let fd = unsafe { libc::memfd_create(label.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned to us and is open.
    Ok(unsafe { File::from_raw_fd(fd) })
}
