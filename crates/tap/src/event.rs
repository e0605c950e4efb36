//! Events that the interposer reports: one [`Event`] per change of direction, not per call.
//!
//! Times are on the run's clock. They are taken inside the program right before and after the real call, so they
//! include the kernel's work, waiting and descheduling.
//!
//! A *connection* is a TCP socket as one program sees it. Its number is the kernel's cookie of the socket
//! (SO_COOKIE), so it is equal in every process that shares the socket, after fork, dup, exec and passing over a Unix
//! socket. A second attempt to connect on the same socket has another number (the attempt is in its top eight bits).
//!
//! Order: events of one thread are in the order in which they happened. Events of several threads and processes are
//! ordered by their times, and a reader that drains rings one after the other sees them interleaved. Long runs of one
//! direction are reported in pieces of about 100 ms, to be joined by the reader.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Timestamp;

/// One event inside a program under tap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The thread that reported it.
    pub origin: Origin,
    /// The event.
    pub what: EventKind,
}

impl EventKind {
    /// The connection number of the event, if it concerns a connection.
    pub(crate) fn connection_mut(&mut self) -> Option<&mut u64> {
        match self {
            EventKind::Opened(opened) => Some(&mut opened.connection),
            EventKind::Connected(attempt) | EventKind::ConnectFailed(attempt) => Some(&mut attempt.connection),
            EventKind::Withdrawn { connection, .. } | EventKind::Shut { connection, .. } => Some(connection),
            EventKind::Sent(run) | EventKind::Received(run) => Some(&mut run.connection),
            EventKind::Closed(closed) | EventKind::Leaving(closed) => Some(&mut closed.connection),
            EventKind::Loaded { .. }
            | EventKind::Forked { .. }
            | EventKind::Executing { .. }
            | EventKind::Resolved { .. }
            | EventKind::Polled { .. }
            | EventKind::Aside { .. }
            | EventKind::Filtered { .. }
            | EventKind::Lost { .. } => None,
        }
    }
}

/// The thread that reported an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Number of the process image, unique within the run, from 1. After exec, and in the child after fork, it is
    /// another one.
    pub image: u32,
    /// Process number in the program's PID namespace. 0: a child of a program with a system call filter, which may
    /// not read it.
    pub pid: u32,
    /// Thread number in the same namespace.
    pub tid: u32,
    /// PID namespace: the number in /proc/self/ns/pid. 0 if the program could not read it (no /proc in its root, or a
    /// system call filter).
    pub space: u32,
}

impl Origin {
    /// The process of the thread.
    pub fn owner(&self) -> Owner {
        Owner { space: self.space, pid: self.pid }
    }
}

/// A process by its number in its PID namespace: two containers may each have a process 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// See [`Origin::space`].
    pub space: u32,
    /// See [`Origin::pid`].
    pub pid: u32,
}

/// Kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EventKind {
    /// The library was loaded: this process image is recorded.
    Loaded {
        /// When its constructor ran.
        at: Timestamp,
        /// The parent, as the program sees it.
        parent_pid: u32,
        /// The program's short name, at most 15 bytes, as in /proc/PID/comm.
        program: String,
    },
    /// This image is a child made by fork. It has every connection that its parent had open, with the same numbers.
    Forked {
        /// When the child first ran.
        at: Timestamp,
        /// The parent's image; 0 if unknown (a fork by raw system call).
        parent_image: u32,
        /// The parent, as the program sees it.
        parent_pid: u32,
        /// Which fork of the parent it was, counted from 1 as in [`Closed::forks`]. 0 if unknown.
        fork: u32,
        /// The program's short name.
        program: String,
    },
    /// The library was loaded into a program with a system call filter (seccomp) that the collector is not under. The
    /// program is not recorded, since a system call of the library could kill it.
    Filtered {
        /// When its constructor ran.
        at: Timestamp,
        /// The parent, as the program sees it.
        parent_pid: u32,
        /// The program's short name.
        program: String,
    },
    /// A process is about to run another program: exec in the process itself, in a vfork child, or by posix_spawn. If
    /// that program loads the library, [`EventKind::Loaded`] follows under the same pid.
    Executing {
        /// Time of the event.
        at: Timestamp,
        /// Process number of the origin or of its child. 0 if not known yet: posix_spawn reports again with the
        /// number.
        pid: u32,
        /// The path given to the call, cut to its last 240 bytes; without a slash the program is looked up on PATH.
        path: String,
        /// Whether the new environment has LD_PRELOAD with this library.
        preloaded: bool,
    },
    /// A name lookup (getaddrinfo, gethostbyname) has ended.
    Resolved {
        /// Time of the call.
        begin: Timestamp,
        /// Time of the return.
        end: Timestamp,
        /// The requested name, at most its last 31 bytes; empty if there was none.
        name: String,
        /// The EAI_* or h_errno value, 0 for success.
        error: i32,
    },
    /// A connection became known. All its other events in the process that opened it come later.
    Opened(Opened),
    /// Connect has succeeded as far as the program knows: a blocking call returned, or after EINPROGRESS the program
    /// read SO_ERROR, called connect again, or used the socket with success.
    Connected(Attempt),
    /// Connect has failed, with [`Attempt::error`]. The connection may still be closed later.
    ConnectFailed(Attempt),
    /// The preceding [`EventKind::Opened`] was not an attempt: the kernel rejected the call, for an address of the
    /// wrong length or a listening socket. No more events of this number follow.
    Withdrawn {
        /// The connection.
        connection: u64,
        /// When connect returned.
        at: Timestamp,
    },
    /// A run of sends.
    Sent(Run),
    /// A run of receives.
    Received(Run),
    /// shutdown(2) with success.
    Shut {
        /// The connection.
        connection: u64,
        /// When it was called.
        at: Timestamp,
        /// The receiving direction is shut down.
        receive: bool,
        /// The sending direction is shut down.
        send: bool,
    },
    /// The last descriptor of the connection in this process was closed. Other processes may still have it: the last
    /// of several `Closed` events of one number has the complete [`TcpCounts`].
    Closed(Closed),
    /// Like `Closed`, from a process that is about to end or to exec with the connection open. The connection ends
    /// only if the image ends (exec may fail, destructors may still send).
    Leaving(Closed),
    /// Time that this thread spent inside poll, select and epoll_wait on any descriptors since its last such event.
    /// Reported at most every 100 ms per thread.
    Polled {
        /// The end of the last such call.
        at: Timestamp,
        /// Sum of the time in the calls.
        blocked: Duration,
        /// Number of calls.
        calls: u64,
    },
    /// Activity of this image that is not followed. Counts since the image began; reported when one becomes 1, and at
    /// its end.
    Aside {
        /// Time of the event.
        at: Timestamp,
        /// Datagram sockets of IPv4 and IPv6 made with socket(2), which are out of scope.
        datagram_sockets: u32,
        /// io_uring rings created, or tried, through the library function syscall(3).
        uring_setups: u32,
        /// Connections beyond the interposer's tables, by number or descriptor. For all images together see
        /// [`Rings::unfollowed`](crate::rings::Rings::unfollowed).
        unfollowed: u32,
    },
    /// This thread's ring was full: the records dropped since the last event of this kind. All sums lack their
    /// contents. An origin with image 0 stands for threads without a ring.
    Lost {
        /// Number of dropped records.
        records: u64,
    },
}

/// How a connection became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Opened by connect: this program is the client.
    Connected,
    /// Opened by accept: this program is the server.
    Accepted,
    /// The connection was already open: inherited over exec, passed over a Unix socket, or made by a call without a
    /// hook. Earlier bytes are not in this process's runs.
    Found,
}

/// A connection became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The connection's number.
    pub connection: u64,
    /// Start of connect, which may not have returned yet; return of accept; first use of an inherited one.
    pub at: Timestamp,
    /// How it became known.
    pub role: Role,
    /// Local address. IPv4 addresses are IPv4 even on an IPv6 socket. Unspecified with port 0 if unknown, mostly
    /// before a blocking connect: see [`Attempt::local`].
    pub local: SocketAddr,
    /// Remote address.
    pub peer: SocketAddr,
    /// Whether connect returned EINPROGRESS. Always false for the other roles.
    pub nonblocking: bool,
    /// Whether the program inherited the connection and has not used it yet.
    pub inherited: bool,
}

/// An attempt to connect that ended. It lasts from `begin` to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The connection's number.
    pub connection: u64,
    /// Start of the first connect call of this attempt.
    pub begin: Timestamp,
    /// When the program learned the result.
    pub end: Timestamp,
    /// Time inside connect calls.
    pub blocked: Duration,
    /// From the return with EINPROGRESS to `end`; zero for a blocking connect.
    pub waited: Duration,
    /// errno; 0 when it succeeded.
    pub error: i32,
    /// Local address, if it was unknown when the attempt began.
    pub local: Option<SocketAddr>,
}

/// Consecutive calls of one direction. `begin <= first <= end`.
///
/// A waiting program reports nothing: a `Received` run after a `Sent` run is reported when the direction changes
/// again, when the connection is closed, after about 100 ms of it, or at the end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The connection's number.
    pub connection: u64,
    /// Start of the first successful call.
    pub begin: Timestamp,
    /// Return of the first successful call: for `Received`, when the first byte was available.
    pub first: Timestamp,
    /// Return of the last successful call.
    pub end: Timestamp,
    /// Bytes transferred. Bytes read with MSG_PEEK do not count.
    pub bytes: u64,
    /// Number of successful calls.
    pub calls: u64,
    /// Time inside these calls; those that returned EAGAIN count for `waited`.
    pub blocked: Duration,
    /// Sum of the times from the first call with EAGAIN to the one that then succeeded or failed, counted only since
    /// the other direction was last used: idle time before a request is not waiting for its response.
    pub waited: Duration,
    /// The other end closed its direction: a receive returned 0, and this run of 0 bytes is that call alone. Only for
    /// `Received`, reported once.
    pub ended: bool,
    /// The errno of a failed call, which is then alone in this run of 0 bytes; else 0. Repeated errors are reported
    /// once.
    pub error: i32,
}

/// A connection's descriptor was closed, or its program is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The connection's number.
    pub connection: u64,
    /// Start of close; reported before the call, since it may wait.
    pub begin: Timestamp,
    /// Byte counts of the kernel; absent if unavailable (see [`Caveats`]), and after a failed connect.
    pub tcp_counts: Option<TcpCounts>,
    /// Possible reasons for a difference between `tcp_counts` and the runs.
    pub caveats: Caveats,
    /// Forks of the process when the connection became known to it, and by now. Children of the forks in between
    /// share the connection, even if they report later.
    pub forks: [u32; 2],
}

/// TCP_INFO at the close, over the socket's whole life and all processes that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCounts {
    /// Bytes that programs wrote to the socket, sent or not.
    pub sent: u64,
    /// Bytes that programs read from it, or that the kernel discarded unread after an error.
    pub received: u64,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Smoothed round-trip time in microseconds; 0 if there is none.
    pub rtt_us: u32,
}

/// Why figures of a connection may be incomplete. All false: no reason is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caveats {
    /// The connection has a stdio stream (fdopen): libc then reads and writes without the hooks.
    pub stdio: bool,
    /// Kernel TLS: the kernel counts ciphertext, the program plaintext.
    pub kernel_tls: bool,
    /// A call without a hook closed or replaced the connection's descriptor.
    pub lost_sight: bool,
    /// The process had a seccomp filter, so the interposer made no more system calls.
    pub sandboxed: bool,
    /// Bytes were left unread, and a close by the other side looks like a reset: `received` may be one byte too high.
    pub off_by_one: bool,
    /// The connection was shared with another process (fork) or inherited: other images may have the rest of its bytes.
    pub shared: bool,
}
