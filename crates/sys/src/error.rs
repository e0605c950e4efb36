//! What can go wrong between this program and the kernel.

use std::io;

use nix::errno::Errno;

/// A system call that did not do what was asked, named, and with the mend where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call failed; what to do depends on the errno.
    #[error("{call}: {}", plain(source))]
    Call {
        /// The system call and its operand, as in `ioctl TUNSETIFF c0`.
        call: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The call was refused for a reason the user can mend.
    #[error("{call}: {}; {mend}", plain(source))]
    Refused {
        /// The system call and its operand.
        call: String,
        /// What the kernel answered.
        source: io::Error,
        /// What to do about it.
        mend: String,
    },
    /// The program of a place could not be started.
    #[error("{program}: {}", plain(source))]
    Exec {
        /// The program as typed.
        program: String,
        /// What the kernel answered, or that it is not on the PATH.
        source: io::Error,
    },
    /// This machine lacks something.
    #[error("{what}")]
    Missing {
        /// What is missing, and what to do about it.
        what: String,
    },
    /// A place may only be started while this process has one thread: the fork would copy the others' locks.
    #[error("cannot start a place: this process has {threads} threads; start places before any other thread")]
    Threads {
        /// Threads counted in /proc/self/status.
        threads: usize,
    },
    /// The init of a place ended by itself: killed from outside, or out of memory.
    #[error("the first process of the place is gone: killed from outside, or the machine is out of memory (see dmesg)")]
    PlaceLost,
    /// The kernel's answer could not be understood.
    #[error("{call}: unexpected answer: {answer}")]
    Unexpected {
        /// The system call and its operand.
        call: String,
        /// What came back.
        answer: String,
    },
}

/// What every call of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Call { source, .. } | Error::Refused { source, .. } | Error::Exec { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }

    /// For `map_err`: names the call that failed.
    pub(crate) fn of<E: Into<io::Error>>(call: impl Into<String>) -> impl FnOnce(E) -> Error {
        let call = call.into();
        move |source| Error::Call { call, source: source.into() }
    }

    /// Adds what to do, when the errno is one of `errnos`.
    pub(crate) fn mend(self, errnos: &[Errno], mend: impl Into<String>) -> Error {
        match self {
            Error::Call { call, source } if errnos.iter().any(|e| source.raw_os_error() == Some(*e as i32)) => {
                Error::Refused { call, source, mend: mend.into() }
            }
            other => other,
        }
    }
}

/// The reason without Rust's "(os error 2)", which tells a user nothing.
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
    fn reads_like_a_sentence() {
        let missing = Error::Exec { program: "nginx".into(), source: io::Error::from_raw_os_error(2) };
        assert_eq!(missing.to_string(), "nginx: No such file or directory");
        let refused = Error::of(String::from("open /dev/net/tun"))(Errno::EACCES).mend(&[Errno::EACCES], "be root");
        assert_eq!(refused.to_string(), "open /dev/net/tun: Permission denied; be root");
        assert_eq!(refused.errno(), Some(libc::EACCES));
        let other = Error::of(String::from("open /dev/net/tun"))(Errno::EIO).mend(&[Errno::EACCES], "be root");
        assert_eq!(other.to_string(), "open /dev/net/tun: I/O error");
    }
}
