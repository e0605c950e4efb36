//! io_uring: many operations on sockets for one system call.
//!
//! ```text
//!   accept, receive, send, poll ..  --> submission queue --\
//!                                                           wait() : one system call for all of them
//!   next() <------------------------- completion queue <---/
//!      `- bytes(buffer): what was received, in a buffer the kernel chose; give_back(buffer) when it is done with
//! ```
//!
//! One thread owns a ring. What an operation needs is owned by the ring until it is over: the bytes to send are
//! [`Message`]s that live as long as the ring, and those received arrive in buffers of the ring's own. Tokens are the
//! caller's, below 2^63. Descriptors are borrowed when an operation is queued; close one by [`Ring::close`], which lets earlier
//! operations on it go first.
//!
//! Uses multishot operations and provided buffers: Linux 6.1 or later. [`Ring::new`] says if that is not to be had.

mod arena;
mod buffers;
mod mapping;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use arena::Arena;
use buffers::Buffers;

/// A ring, with its receive buffers and the messages it sends.
pub struct Ring {
    ring: IoUring,
    buffers: Buffers,
    messages: Vec<Arc<[u8]>>,
    /// Made by the first [`Ring::send_copy`].
    arena: Option<Arena>,
    /// Descriptors watched for ever, by token. The kernel gives up watching when its completion queue is full.
    polled: Vec<(u64, RawFd)>,
    /// What found no room in the queue, in the order in which it was to go there.
    later: VecDeque<Box<[squeue::Entry]>>,
}

/// Bytes that a ring keeps for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message(u32);

/// Bytes that [`Ring::send_copy`] has copied, for the case that the kernel does not take them all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied(std::ops::Range<usize>);

/// A receive buffer that is the caller's until [`Ring::give_back`].
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer(u16);

/// The outcome of an operation, or of one shot of a multishot one.
#[derive(Debug)]
pub struct Completion {
    /// The operation's token.
    pub token: u64,
    /// What the system call would have returned, or its error.
    pub result: io::Result<u32>,
    /// Further completions of the same operation follow; without it, it is over.
    pub more: bool,
    /// What was received: `result` bytes of it.
    pub buffer: Option<Buffer>,
    /// The connection that [`Ring::accept`] has accepted, non-blocking.
    pub accepted: Option<OwnedFd>,
}

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// Operations queued before they are submitted: a power of two.
    pub operations: u32,
    /// Receive buffers: a power of two, at most 32,768.
    pub buffers: u16,
    /// Bytes of each.
    pub buffer_bytes: u32,
}

impl Default for RingSpec {
    /// 1024 operations, 1024 buffers of 4 KiB.
    fn default() -> Self {
        RingSpec { operations: 1024, buffers: 1024, buffer_bytes: 4096 }
    }
}

impl Ring {
    /// A ring for the calling thread: no other may use it.
    ///
    /// # Errors
    /// The kernel has no io_uring, an older one than 6.1, or forbids it (kernel.io_uring_disabled, seccomp); memory.
    pub fn new(spec: RingSpec) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            // Each receive of a multishot is a completion: more come than were asked for.
            .setup_cqsize(spec.operations.saturating_mul(8))
            .build(spec.operations)?;
        let buffers = Buffers::register(&ring, spec.buffers, spec.buffer_bytes)?;
        Ok(Ring { ring, buffers, messages: Vec::new(), arena: None, polled: Vec::new(), later: VecDeque::new() })
    }

    /// Keeps bytes for sending, as long as the ring lives. Rings may share them.
    pub fn keep(&mut self, bytes: Arc<[u8]>) -> Message {
        self.messages.push(bytes);
        Message(self.messages.len() as u32 - 1)
    }

    /// Accepts connections on a listening socket, one completion each that holds it. Over only by an error.
    pub fn accept(&mut self, listener: BorrowedFd<'_>, token: u64) {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        self.push(opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(flags).build().user_data(token | ACCEPT));
    }

    /// Receives whatever comes, into the ring's buffers, a completion each. Over with a result of 0 at the end of the
    /// stream, with an error, or with ENOBUFS when no buffer was free: then give some back and ask again.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, token: u64) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), buffers::GROUP);
        self.push(entry.build().user_data(token));
    }

    /// Copies `bytes` and hands them to the kernel at once, when the queue is submitted. Completes only if the kernel did
    /// not take all of them, as [`Ring::send`]; then [`Ring::copied`] has the rest. `None`, and nothing done, when
    /// there is no room for the copy before the next [`Ring::wait`].
    ///
    /// # Errors
    /// No memory for the copies, at the first call.
    pub fn send_copy(&mut self, socket: BorrowedFd<'_>, bytes: &[u8], token: u64) -> io::Result<Option<Copied>> {
        let arena = match &mut self.arena {
            Some(arena) => arena,
            none => none.insert(Arena::new(COPIES_BYTES)?),
        };
        let Some(range) = arena.put(bytes) else { return Ok(None) };
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), arena.pointer(&range), bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | NOW)
            .build()
            .user_data(token);
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS));
        Ok(Some(Copied(range)))
    }

    /// What [`Ring::send_copy`] copied, from byte `from` on: until the second [`Ring::wait`] after it.
    pub fn copied(&self, copied: &Copied, from: usize) -> &[u8] {
        let range = copied.0.start.saturating_add(from).min(copied.0.end)..copied.0.end;
        self.arena.as_ref().map_or(&[], |arena| arena.bytes(range))
    }

    /// Ends the receive or poll that is under way with this token, which completes with ECANCELED (or with what came before).
    pub fn cancel(&mut self, token: u64) {
        let cancel = opcode::AsyncCancel::new(token).build().user_data(NOBODY);
        self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Hands a part of a message to the kernel at once, when the queue is submitted. Completes only if the kernel did
    /// not take all of it: with the number of bytes taken, with EAGAIN if that is none, or with the connection's
    /// error. Sends that follow on the same socket go out in order as long as each was taken whole.
    pub fn send(&mut self, socket: BorrowedFd<'_>, message: Message, from: usize, to: usize, token: u64) {
        let entry = self.send_entry(socket.as_raw_fd(), message, from, to, NOW, token);
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Sends a part of a message, however long the peer takes to make room, and completes when all is taken (or with
    /// fewer bytes, or an error, when the connection breaks). Nothing else may be sent on the socket meanwhile.
    pub fn send_patiently(&mut self, socket: BorrowedFd<'_>, message: Message, from: usize, to: usize, token: u64) {
        let entry = self.send_entry(socket.as_raw_fd(), message, from, to, 0, token);
        self.push(entry);
    }

    fn send_entry(&self, fd: i32, message: Message, from: usize, to: usize, flags: i32, token: u64) -> squeue::Entry {
        let bytes = &self.messages[message.0 as usize][from..to];
        opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | flags)
            .build()
            .user_data(token)
    }

    /// Completes each time the descriptor has become readable (the result are poll's bits), until an error. The token
    /// must be of no other operation, and the descriptor stay open as long as the ring lives.
    pub fn poll_readable(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.polled.push((token, fd.as_raw_fd()));
        self.poll_again(fd.as_raw_fd(), token);
    }

    fn poll_again(&mut self, fd: RawFd, token: u64) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true);
        self.push(entry.build().user_data(token));
    }

    /// Closes a socket on which nothing is under way, after what is queued.
    pub fn close(&mut self, socket: OwnedFd) {
        let close = opcode::Close::new(Fd(socket.into_raw_fd())).build().user_data(NOBODY);
        self.push(close.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Completes once, when there is something to read on the socket, its end or an error included. What comes stays in the
    /// kernel until it is read: no buffer of the ring is held meanwhile.
    pub fn poll_readable_once(&mut self, socket: BorrowedFd<'_>, token: u64) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLIN as u32);
        self.push(entry.build().user_data(token));
    }

    /// Completes once, when the socket can be written to: when a connect has ended, either way.
    pub fn poll_writable(&mut self, socket: BorrowedFd<'_>, token: u64) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLOUT as u32);
        self.push(entry.build().user_data(token));
    }

    /// Ends the operations with these tokens, those of them that are under way, which complete with ECANCELED, and closes
    /// the socket. They must be all that is under way on it.
    ///
    /// By token, since the kernel finds those in a table of its own; for all operations of a socket it goes through all
    /// that the ring has, which with 20,000 idle connections takes most of a millisecond a socket.
    pub fn cancel_and_close(&mut self, socket: OwnedFd, tokens: &[u64]) {
        for &token in tokens {
            let cancel = opcode::AsyncCancel::new(token).build().user_data(NOBODY);
            self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS));
        }
        // Not linked to them: each is done when it is submitted, and nothing to cancel is an error that ends a link.
        self.close(socket);
    }

    /// Submits what is queued, without waiting.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) but EINTR and EBUSY.
    pub fn submit(&mut self) -> io::Result<()> {
        self.push_later();
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Submits what is queued, and waits until something has completed, for at most `patience` (`None`: as long as it
    /// takes; zero: not at all). Then all that has completed is there, in a crowd the first thousand or so.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) but ETIME and EINTR.
    pub fn wait(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.wait_once(patience)?;
        // One call does so much of the deferred work, oldest first: in a crowd what comes now would wait for many turns.
        let (mut seen, mut outcome) = (0, Ok(0));
        while outcome.is_ok() && (seen + WORK_A_CALL..CROWD).contains(&self.ring.completion().len()) {
            seen = self.ring.completion().len();
            outcome = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&Timespec::new()));
        }
        forgiven(outcome)
    }

    /// The same with one system call: true if it brought as much as one does, so that more may have completed. Whoever calls
    /// it again at once, until it has not, has all, and can end between two calls what brings too much: one receive
    /// brings what waits in its socket, a megabyte at times, some tens of buffers a call.
    ///
    /// # Errors
    /// As for [`Ring::wait`].
    pub fn wait_once(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        self.buffers.publish();
        self.push_later();
        let outcome = match patience {
            Some(patience) => {
                let timeout = Timespec::from(patience);
                // Deferred work runs only in a call that waits, be it for nothing.
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            None => self.ring.submit_and_wait(1),
        };
        // What the kernel has not looked at yet (EBUSY) must stay where it is.
        if let Some(arena) = &mut self.arena
            && self.later.is_empty()
            && self.ring.submission().is_empty()
        {
            arena.turn_over();
        }
        forgiven(outcome)?;
        Ok(self.ring.completion().len() >= WORK_A_CALL)
    }

    /// The next completion that is there.
    #[allow(clippy::should_implement_trait, reason = "an iterator would hold the ring while operations are queued")]
    pub fn next(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().find(|entry| entry.user_data() != NOBODY)?;
        let (result, flags) = (entry.result(), entry.flags());
        let mut more = cqueue::more(flags);
        if !more
            && result >= 0
            && let Some(&(token, fd)) = self.polled.iter().find(|(token, _)| *token == entry.user_data())
        {
            // There was no room to say so and go on. Watching anew tells at once what has come meanwhile.
            self.poll_again(fd, token);
            more = true;
        }
        let is_accepted = entry.user_data() & ACCEPT != 0 && result >= 0;
        Some(Completion {
            token: entry.user_data() & !ACCEPT,
            // SAFETY: a successful accept gives a descriptor that nobody else owns, once.
            accepted: is_accepted.then(|| unsafe { OwnedFd::from_raw_fd(result) }),
            result: if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as u32) },
            more,
            buffer: cqueue::buffer_select(flags).map(Buffer),
        })
    }

    /// The first `length` bytes of a buffer.
    pub fn bytes(&self, buffer: &Buffer, length: usize) -> &[u8] {
        self.buffers.bytes(buffer.0, length)
    }

    /// Lets the kernel fill the buffer again.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.buffers.give_back(buffer.0);
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.push_chain(&[entry]);
    }

    /// Queues operations that belong together. Where the queue is full and the kernel takes nothing of it now (more
    /// completions wait than it has room for), they go out after those with a later call.
    fn push_chain(&mut self, entries: &[squeue::Entry]) {
        if self.later.is_empty() && self.try_push(entries) {
            return;
        }
        self.later.push_back(entries.into());
        self.push_later();
    }

    fn push_later(&mut self) {
        while let Some(entries) = self.later.pop_front() {
            if !self.try_push(&entries) {
                self.later.push_front(entries);
                return;
            }
        }
    }

    fn try_push(&mut self, entries: &[squeue::Entry]) -> bool {
        let has_room = |ring: &mut IoUring| {
            let queue = ring.submission();
            queue.capacity() - queue.len() >= entries.len()
        };
        if !has_room(&mut self.ring) {
            // Full: those before go first. A chain must not be cut between two submissions.
            let _ = self.ring.submit();
        }
        // SAFETY: every entry points only to messages that live as long as the ring (each stands on the heap by itself,
        // and is never changed or dropped before it), or into its arena, which lives as long and whose bytes are not
        // written again before the entry has been looked at; and receives go into buffers that are registered with it.
        has_room(&mut self.ring) && unsafe { self.ring.submission().push_multiple(entries) }.is_ok()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What is queued may be the closing of descriptors. Where that follows something else the kernel does it in a later
        // call, a few at a time, and what waits for that would be cancelled below: the descriptors would stay open.
        let queued = self.ring.submission().len() + self.later.iter().map(|entries| entries.len()).sum::<usize>();
        let _ = self.submit();
        for _ in 0..queued.div_ceil(AT_ONCE) {
            let _ = self.wait(Some(Duration::ZERO));
        }
        // Buffers and messages must not go while the kernel may still use them.
        let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        // What was cancelled holds its socket until the cancellation is seen: without this the kernel would end the
        // connections at some later time of its own. Those that were accepted and not looked at are closed.
        self.polled.clear();
        while self.wait(Some(Duration::ZERO)).is_ok() && self.next().is_some() {
            while self.next().is_some() {}
        }
        self.buffers.unregister(&self.ring);
    }
}

/// What is no failure of a wait: its time is over, a signal came, completions are to be looked at first.
fn forgiven(outcome: io::Result<usize>) -> io::Result<()> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Operations that the kernel goes on with in one call, at least (IO_LOCAL_TW_DEFAULT_MAX of Linux 6.13 and later is 20).
const AT_ONCE: usize = 16;

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("messages", &self.messages.len()).finish_non_exhaustive()
    }
}

/// Pieces of deferred work that the kernel does in a call that waits for one completion (IO_LOCAL_TW_DEFAULT_MAX, since
/// Linux 6.13; all of them before).
const WORK_A_CALL: usize = 20;
/// With so many completions there is enough to do.
pub const CROWD: usize = 1024;

/// Marks the tokens of accepts: their results are descriptors.
const ACCEPT: u64 = 1 << 63;
/// A send that does not wait for room: with MSG_WAITALL, less than everything counts as a failure and completes.
const NOW: i32 = libc::MSG_DONTWAIT;
/// Bytes of [`Ring::send_copy`] between two waits.
const COPIES_BYTES: usize = 1 << 20;
/// The token of operations whose outcome nobody waits for.
const NOBODY: u64 = u64::MAX;

#[cfg(test)]
mod tests;
