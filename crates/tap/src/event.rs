//! What the interposer tells: one [`Event`] per change of direction, not per call.
//!
//! Times are of the run's clock. They are taken inside the program, right before and right after the real call, so a
//! time holds what the program itself felt: the kernel's work, waiting, and being descheduled.
//!
//! A *connection* here is a TCP socket as one program sees it. Its number is the kernel's own cookie of the socket
//! (SO_COOKIE), so it is the same in every process that shares the socket, after fork, dup, exec and passing over a
//! Unix socket. A second attempt to connect on the same socket has another number (the attempt is in its top eight
//! bits).
//!
//! What comes in which order: within one thread, in the order in which it happened. Between threads and processes,
//! order is that of the times, and a reader that drains rings one after the other sees them interleaved. Runs of one
//! direction that last long are told in pieces of about 100 ms: join them.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Timestamp;

/// One thing that happened inside a program under tap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Where.
    pub origin: Origin,
    /// What.
    pub what: What,
}

impl What {
    /// The number of the connection that it is about, if it is about one.
    pub(crate) fn connection_mut(&mut self) -> Option<&mut u64> {
        match self {
            What::Opened(opened) => Some(&mut opened.connection),
            What::Connected(attempt) | What::ConnectFailed(attempt) => Some(&mut attempt.connection),
            What::Withdrawn { connection, .. } | What::Shut { connection, .. } => Some(connection),
            What::Sent(run) | What::Received(run) => Some(&mut run.connection),
            What::Closed(closed) | What::Left(closed) => Some(&mut closed.connection),
            What::Loaded { .. }
            | What::Forked { .. }
            | What::Executing { .. }
            | What::Resolved { .. }
            | What::Polled { .. }
            | What::Aside { .. }
            | What::Filtered { .. }
            | What::Lost { .. } => None,
        }
    }
}

/// The thread that told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Number of the process image, unique within the run and never reused: after exec, and after fork in the child,
    /// it is another. From 1.
    pub image: u32,
    /// Process number as the program itself sees it, so in its own PID namespace. 0: a child of a program with a filter on its
    /// system calls, which may not ask.
    pub pid: u32,
    /// Thread number, in the same namespace.
    pub tid: u32,
    /// Which PID namespace: the number in /proc/self/ns/pid. 0 when the program could not read it (no /proc in its root, a
    /// filter on its system calls).
    pub space: u32,
}

impl Origin {
    /// The process.
    pub fn owner(&self) -> Owner {
        Owner { space: self.space, pid: self.pid }
    }
}

/// A process by its number in its own PID namespace: two containers may each have a process 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// See [`Origin::space`].
    pub space: u32,
    /// See [`Origin::pid`].
    pub pid: u32,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// The library was loaded: the proof that this process image is seen.
    Loaded {
        /// When its constructor ran.
        at: Timestamp,
        /// The parent, as the program sees it.
        parent_pid: u32,
        /// The program's short name, at most 15 bytes, as in /proc/PID/comm.
        program: String,
    },
    /// This image is a child made by fork; it has every connection that its parent had open then, with the same
    /// numbers.
    Forked {
        /// When, on the child's side.
        at: Timestamp,
        /// The parent's image; 0 when it is not known (a fork by raw system call).
        parent_image: u32,
        /// The parent, as the program sees it.
        parent_pid: u32,
        /// The parent's so many-th fork, from 1: [`Closed::forks`] counts the same. 0 when it is not known.
        fork: u32,
        /// The program's short name.
        program: String,
    },
    /// The library was loaded into a program that was started with a filter on its system calls (seccomp), one that this
    /// process is not under. It is left alone: a call of ours could be its death.
    Filtered {
        /// When its constructor ran.
        at: Timestamp,
        /// The parent, as the program sees it.
        parent_pid: u32,
        /// The program's short name.
        program: String,
    },
    /// A process is about to become another program: exec in the process itself, in a vfork child, or by posix_spawn.
    /// What loads the library says [`What::Loaded`] next, under the same pid.
    Executing {
        /// When.
        at: Timestamp,
        /// Which process: that of the origin, or its child. 0 when it is not known yet: posix_spawn tells again, with
        /// the number, when it has one.
        pid: u32,
        /// The path as given to the call, cut to its last 240 bytes; without a slash it is looked up on PATH.
        path: String,
        /// Whether the new environment still has LD_PRELOAD with this library.
        preloaded: bool,
    },
    /// A name lookup (getaddrinfo, gethostbyname) has ended.
    Resolved {
        /// Call.
        begin: Timestamp,
        /// Return.
        end: Timestamp,
        /// The name asked for, at most its last 31 bytes; empty when there was none.
        name: String,
        /// The EAI_* or h_errno value, 0 for success.
        error: i32,
    },
    /// A connection came into view. Every other event of it comes after this one, in the process that opened it.
    Opened(Opened),
    /// Connect has succeeded, as far as the program knows: a blocking call returned, or after EINPROGRESS the program
    /// asked (SO_ERROR, connect again) or used the socket with success.
    Connected(Attempt),
    /// Connect has failed, with [`Attempt::error`]. The connection may still be closed later.
    ConnectFailed(Attempt),
    /// What was told by [`What::Opened`] was no attempt: the kernel refused the call itself, for an address of the wrong length
    /// or a socket that listens. Nothing more will be told of this number.
    Withdrawn {
        /// Which.
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
        /// Which.
        connection: u64,
        /// When it was called.
        at: Timestamp,
        /// Nothing will be received.
        receive: bool,
        /// Nothing will be sent.
        send: bool,
    },
    /// The last descriptor of it in this process was closed. Other processes may still hold it: of several `Closed`
    /// of one number the last one has the whole [`Account`].
    Closed(Closed),
    /// As `Closed`, told by a process that is about to end or to exec while the connection is open. Not an end by
    /// itself (exec may fail, destructors may go on sending): it becomes one when the image is gone.
    Left(Closed),
    /// Time this thread spent inside poll, select and epoll_wait, of whatever descriptors, since it last told. Told at
    /// most every 100 ms.
    Polled {
        /// The end of the last such call.
        at: Timestamp,
        /// Sum of the time in the calls.
        blocked: Duration,
        /// How many.
        calls: u64,
    },
    /// Things this image did that are not followed. Counts since the image began; told when one becomes 1, and at its
    /// end.
    Aside {
        /// When.
        at: Timestamp,
        /// Datagram sockets of IPv4 and IPv6 made with socket(2): out of scope.
        datagram_sockets: u32,
        /// Rings for io_uring that were made, or tried to be, by the library function syscall(3).
        uring_setups: u32,
        /// Connections that found no room in the interposer's tables, or whose descriptor is above them. Of all
        /// images together: [`Rings::unfollowed`](crate::rings::Rings::unfollowed).
        unfollowed: u32,
    },
    /// This thread's ring was full: so many records were dropped since it last told. What they would have said is
    /// missing from all sums. An origin of image 0: threads that found no ring at all.
    Lost {
        /// Records.
        records: u64,
    },
}

/// How a connection came into view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// By connect: this program is the client.
    Connected,
    /// By accept: this program is the server.
    Accepted,
    /// It was open already: inherited over exec, passed over a Unix socket, or made by a call that was not seen.
    /// Bytes from before are not in this process's runs.
    Found,
}

/// A connection came into view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its number.
    pub connection: u64,
    /// Call of connect, which may not have returned yet; return of accept; first use of one that was found.
    pub at: Timestamp,
    /// How.
    pub role: Role,
    /// Own end. Addresses of IPv4 are IPv4 also when the socket is IPv6's. Unspecified with port 0 when unknown: mostly
    /// before a connect that waits, see [`Attempt::own`].
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Whether connect answered EINPROGRESS at once. Always false for the other roles.
    pub nonblocking: bool,
    /// Whether the program had it from its beginning, and has not used it yet.
    pub inherited: bool,
}

/// An attempt to connect, ended. Lasts from `begin` to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number.
    pub connection: u64,
    /// Call of connect, the first of this attempt.
    pub begin: Timestamp,
    /// When the program knew.
    pub end: Timestamp,
    /// Time inside connect calls.
    pub blocked: Duration,
    /// From the return with EINPROGRESS to `end`; zero for a blocking connect.
    pub waited: Duration,
    /// errno; 0 when it succeeded.
    pub error: i32,
    /// Own end, where it was not known when the attempt began.
    pub local: Option<SocketAddr>,
}

/// Calls of one direction without one of the other in between. `begin <= first <= end`.
///
/// While a program waits, nothing is told: a `Received` run after a `Sent` run is told when the direction changes
/// again, when the connection is closed, after about 100 ms of it, or at the end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The connection's number.
    pub connection: u64,
    /// Call of the first one that succeeded.
    pub begin: Timestamp,
    /// Return of the first one that succeeded: for `Received` the first byte is there.
    pub first: Timestamp,
    /// Return of the last one that succeeded.
    pub end: Timestamp,
    /// What they moved. Bytes looked at with MSG_PEEK are not moved.
    pub bytes: u64,
    /// How many calls succeeded.
    pub calls: u64,
    /// Time inside these calls; those answered with EAGAIN are in `waited`.
    pub blocked: Duration,
    /// Sum of the times from the first call answered with EAGAIN to the one that then succeeded (or failed), each
    /// counted once, and only since the other direction was last used: the idle time before a request is not waiting for its response.
    pub waited: Duration,
    /// The other end has sent its last: a receive returned 0, and this run, of 0 bytes, is that call alone. Only for
    /// `Received`, told once.
    pub ended: bool,
    /// The errno of a failed call, which is then alone in this run of 0 bytes; else 0. One that is repeated is told
    /// once.
    pub error: i32,
}

/// A connection's descriptor was closed, or its program is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// Its number.
    pub connection: u64,
    /// Call of close; told before it is made, since it may wait.
    pub begin: Timestamp,
    /// What the kernel says it carried; absent when it could not be asked (see [`Doubt`]), and when connect had failed.
    pub account: Option<Account>,
    /// What may explain a difference between `account` and the runs.
    pub doubt: Doubt,
    /// Forks that its process had made when the connection came into view there, and by now. Children of those in
    /// between have it, also if they tell of themselves later.
    pub forks: [u32; 2],
}

/// TCP_INFO at the moment of close, over the socket's whole life and all processes that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Bytes that programs gave to the socket, sent by now or not.
    pub sent: u64,
    /// Bytes that programs took from it, or that were thrown away unread after an error.
    pub received: u64,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Smoothed round-trip time in microseconds; 0 when there is none.
    pub rtt_us: u32,
}

/// Why figures of a connection may be incomplete. All false: nothing known against them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// A stream of stdio was made of it (fdopen): libc reads and writes by itself then.
    pub stdio: bool,
    /// The kernel does its TLS: it counts ciphertext, the program plaintext.
    pub kernel_tls: bool,
    /// Its descriptor was closed or replaced by a call that was not seen.
    pub lost_sight: bool,
    /// The process had a seccomp filter, so the interposer made no system calls of its own any more.
    pub sandboxed: bool,
    /// Bytes were left unread, and an end by the other side cannot be told from a reset: `received` may be one byte
    /// too high.
    pub off_by_one: bool,
    /// It was shared with another process (fork) or found open: other images may have the rest.
    pub shared: bool,
}
