//! Errors of system calls.

use std::io;

use nix::errno::Errno;

/// A failed system call, with its name and, if known, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call failed; the errno tells what to do.
    #[error("{call}: {}", plain(source))]
    Call {
        /// The system call and its operand, as in `ioctl TUNSETIFF c0`.
        call: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The call was refused for a reason that the user can fix.
    #[error("{call}: {}; {remedy}", plain(source))]
    Refused {
        /// The system call and its operand.
        call: String,
        /// The kernel's error.
        source: io::Error,
        /// What to do about it.
        remedy: String,
    },
    /// The program of a sandbox could not be started.
    #[error("{program}: {}", plain(source))]
    Exec {
        /// The program as typed.
        program: String,
        /// The kernel's error, or that the program is not on the PATH.
        source: io::Error,
    },
    /// This machine lacks a feature.
    #[error("{what}")]
    Missing {
        /// What is missing, and what to do about it.
        what: String,
    },
    /// A sandbox may only be started while this process has one thread: the fork would copy the locks of other threads.
    #[error("cannot start a sandbox: this process has {threads} threads; start sandboxes before any other thread")]
    Threads {
        /// Threads counted in /proc/self/status.
        threads: usize,
    },
    /// The init process of a sandbox ended unexpectedly: killed from outside, or out of memory.
    #[error(
        "the init process of the sandbox is gone: killed from outside, or the machine is out of memory (see dmesg)"
    )]
    SandboxLost,
    /// The kernel's response could not be parsed.
    #[error("{call}: unexpected response: {answer}")]
    Unexpected {
        /// The system call and its operand.
        call: String,
        /// The response.
        answer: String,
    },
}

/// Result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno, if the kernel returned one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Call { source, .. } | Error::Refused { source, .. } | Error::Exec { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }

    /// For `map_err`: names the failed call.
    pub(crate) fn of<E: Into<io::Error>>(call: impl Into<String>) -> impl FnOnce(E) -> Error {
        let call = call.into();
        move |source| Error::Call { call, source: source.into() }
    }

    /// Adds the remedy if the errno is one of `errnos`.
    pub(crate) fn remedy(self, errnos: &[Errno], remedy: impl Into<String>) -> Error {
        match self {
            Error::Call { call, source } if errnos.iter().any(|e| source.raw_os_error() == Some(*e as i32)) => {
                Error::Refused { call, source, remedy: remedy.into() }
            }
            other => other,
        }
    }
}

/// The reason without Rust's "(os error 2)", which does not help a user.
fn plain(source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => source.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_sentences() {
        let missing = Error::Exec { program: "nginx".into(), source: io::Error::from_raw_os_error(2) };
        assert_eq!(missing.to_string(), "nginx: No such file or directory");
        let refused = Error::of(String::from("open /dev/net/tun"))(Errno::EACCES).remedy(&[Errno::EACCES], "be root");
        assert_eq!(refused.to_string(), "open /dev/net/tun: Permission denied; be root");
        assert_eq!(refused.errno(), Some(libc::EACCES));
        let other = Error::of(String::from("open /dev/net/tun"))(Errno::EIO).remedy(&[Errno::EACCES], "be root");
        assert_eq!(other.to_string(), "open /dev/net/tun: I/O error");
    }
}
