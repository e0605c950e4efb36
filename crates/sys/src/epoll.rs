//! Readiness notification: epoll.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An epoll instance. Tokens are the caller's, 64 bits.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// The events of interest of a descriptor, and their triggering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Readable (level-triggered): bytes, end of stream, or a connection to accept.
    pub const READ: Interest = Interest((libc::EPOLLIN | libc::EPOLLRDHUP) as u32);
    /// Writable (level-triggered).
    pub const WRITE: Interest = Interest(libc::EPOLLOUT as u32);
    /// Readable and writable (level-triggered).
    pub const READ_WRITE: Interest = Interest((libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLOUT) as u32);

    /// The same events, edge-triggered (EPOLLET): reported once per change.
    #[must_use]
    pub const fn edge(self) -> Interest {
        Interest(self.0 | libc::EPOLLET as u32)
    }
}

/// One reported readiness.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Event(libc::epoll_event);

impl Event {
    /// An empty slot of a buffer for [`Epoll::wait`].
    pub const EMPTY: Event = Event(libc::epoll_event { events: 0, u64: 0 });

    /// The token under which the descriptor was added.
    pub fn token(&self) -> u64 {
        self.0.u64
    }

    /// A read will not block: bytes, end of stream, or a pending error.
    pub fn readable(&self) -> bool {
        self.has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// The peer has sent its end of stream, or the connection is broken: a read finds it after the received bytes.
    pub fn hangs_up(&self) -> bool {
        self.has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// A write will not block, or a connect ended (with success or failure), or an error is pending.
    pub fn writable(&self) -> bool {
        self.has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// The descriptor has a pending error.
    pub fn error(&self) -> bool {
        self.has(libc::EPOLLERR)
    }

    fn has(&self, bits: i32) -> bool {
        let events = self.0.events;
        events & bits as u32 != 0
    }
}

impl Epoll {
    /// A new instance.
    ///
    /// # Errors
    /// The errors of epoll_create1(2): no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the returned descriptor has no other owner.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and is open.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` under `token`.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, token)
    }

    /// Changes the events of interest of `fd`.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn modify(&self, fd: BorrowedFd<'_>, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, token)
    }

    /// Stops watching `fd`. Closing the last copy of a descriptor does the same.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, Interest(0), 0)
    }

    fn control(&self, operation: i32, fd: BorrowedFd<'_>, interest: Interest, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0, u64: token };
        // SAFETY: both descriptors are open for the call, and `event` outlives it.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits until a descriptor is ready, at most `timeout_ms` (0: do not wait; -1: no limit), and returns the filled
    /// part of `events`. A signal ends the wait without events. The timeout is coarse: precise waits use a
    /// [`crate::timer::Timer`] in the set.
    ///
    /// # Errors
    /// The errors of epoll_wait(2) other than EINTR.
    pub fn wait<'a>(&self, events: &'a mut [Event], timeout_ms: i32) -> io::Result<&'a [Event]> {
        // SAFETY: Event is a transparent epoll_event; the kernel writes at most `events.len()` of them.
        let ready = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr().cast(), events.len() as i32, timeout_ms)
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(&[]) } else { Err(error) };
        }
        Ok(&events[..ready as usize])
    }
}
