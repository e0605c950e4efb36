//! io_uring: many operations on sockets for one system call.
//!
//! ```text
//!   accept, receive, send, poll ..  --> submission queue --\
//!                                                           wait() : one system call for all of them
//!   next() <------------------------- completion queue <---/
//!      `- bytes(buffer): what was received, in a buffer the kernel chose; give_back(buffer) when it is done with
//! ```
//!
//! One thread owns a ring. The ring owns the memory of an operation until its completion: the bytes to send are
//! [`Message`]s that exist as long as the ring, and received bytes arrive in buffers of the ring. Tokens are chosen by
//! the caller, below 2^63. Descriptors are borrowed when an operation is queued; close one by [`Ring::close`], which
//! waits for earlier operations on it.
//!
//! Uses multishot operations and provided buffers: Linux 6.1 or later. [`Ring::new`] fails without them.

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
    /// Created by the first [`Ring::send_copy`].
    arena: Option<Arena>,
    /// Permanently watched descriptors, by token. The kernel stops watching when its completion queue is full.
    polled: Vec<(u64, RawFd)>,
    /// Entries that did not fit in the queue, in order.
    later: VecDeque<Box<[squeue::Entry]>>,
}

/// Bytes that a ring stores for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message(u32);

/// Bytes that [`Ring::send_copy`] has copied, in case the kernel does not accept all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied(std::ops::Range<usize>);

/// A receive buffer that belongs to the caller until [`Ring::give_back`].
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer(u16);

/// The outcome of an operation, or of one shot of a multishot one.
#[derive(Debug)]
pub struct Completion {
    /// The operation's token.
    pub token: u64,
    /// The result or error of the system call.
    pub result: io::Result<u32>,
    /// Further completions of the same operation follow; otherwise it is over.
    pub more: bool,
    /// The received bytes: `result` is their number.
    pub buffer: Option<Buffer>,
    /// The connection accepted by [`Ring::accept`], non-blocking.
    pub accepted: Option<OwnedFd>,
}

/// The size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// Operations queued before they are submitted: a power of two.
    pub operations: u32,
    /// Receive buffers: a power of two, at most 32,768.
    pub buffers: u16,
    /// Bytes of each buffer.
    pub buffer_bytes: u32,
}

impl Default for RingSpec {
    /// 1024 operations, 1024 buffers of 4 KiB.
    fn default() -> Self {
        RingSpec { operations: 1024, buffers: 1024, buffer_bytes: 4096 }
    }
}

impl Ring {
    /// A ring for the calling thread: no other thread may use it.
    ///
    /// # Errors
    /// No io_uring, a kernel older than 6.1, or a disabled io_uring (kernel.io_uring_disabled, seccomp); no memory.
    pub fn new(spec: RingSpec) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // The kernel sets a flag while a system call would find completions: checking it needs no call.
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            // Each receive of a multishot operation is a completion: more arrive than operations were queued.
            .setup_cqsize(spec.operations.saturating_mul(8))
            .build(spec.operations)?;
        let buffers = Buffers::register(&ring, spec.buffers, spec.buffer_bytes)?;
        Ok(Ring { ring, buffers, messages: Vec::new(), arena: None, polled: Vec::new(), later: VecDeque::new() })
    }

    /// Stores bytes for sending, as long as the ring exists. Rings may share them.
    pub fn register(&mut self, bytes: Arc<[u8]>) -> Message {
        self.messages.push(bytes);
        Message(self.messages.len() as u32 - 1)
    }

    /// Accepts connections on a listening socket, with one completion per connection, which contains it. Ends only by
    /// an error.
    pub fn accept(&mut self, listener: BorrowedFd<'_>, token: u64) {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        self.push(opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(flags).build().user_data(token | ACCEPT));
    }

    /// Receives all incoming bytes into the ring's buffers, with a completion per buffer. Ends with a result of 0 at
    /// the end of the stream, with an error, or with ENOBUFS when no buffer was free: then release some and call it
    /// again.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, token: u64) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), buffers::GROUP);
        self.push(entry.build().user_data(token));
    }

    /// Copies `bytes` and passes them to the kernel when the queue is submitted. Completes only if the kernel did not
    /// accept all of them, as [`Ring::send`]; then [`Ring::copied`] has the rest. `None`, without effect, when the copy
    /// does not fit before the next [`Ring::wait`].
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
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | WITHOUT_WAITING)
            .build()
            .user_data(token);
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS));
        Ok(Some(Copied(range)))
    }

    /// The bytes copied by [`Ring::send_copy`], from byte `from` on: until the second [`Ring::wait`] after it.
    pub fn copied(&self, copied: &Copied, from: usize) -> &[u8] {
        let range = copied.0.start.saturating_add(from).min(copied.0.end)..copied.0.end;
        self.arena.as_ref().map_or(&[], |arena| arena.bytes(range))
    }

    /// Cancels the receive or poll in flight with this token, which completes with ECANCELED (or with an earlier
    /// result).
    pub fn cancel(&mut self, token: u64) {
        let cancel = opcode::AsyncCancel::new(token).build().user_data(IGNORED);
        self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Passes a part of a message to the kernel when the queue is submitted. Completes only if the kernel did not
    /// accept all of it: with the number of bytes accepted, with EAGAIN if that is none, or with the connection's
    /// error. Further sends on the same socket go out in order as long as each was accepted completely.
    pub fn send(&mut self, socket: BorrowedFd<'_>, message: Message, from: usize, to: usize, token: u64) {
        let entry = self.send_entry(socket.as_raw_fd(), message, from, to, WITHOUT_WAITING, token);
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Sends a part of a message, waiting for the peer as long as necessary, and completes when all is accepted (or
    /// with fewer bytes, or an error, when the connection breaks). No other send may be queued on the socket in the
    /// meantime.
    pub fn send_with_retries(&mut self, socket: BorrowedFd<'_>, message: Message, from: usize, to: usize, token: u64) {
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

    /// Completes each time the descriptor becomes readable (the result is poll's bits), until an error. The token must
    /// belong to no other operation, and the descriptor must stay open as long as the ring exists.
    pub fn poll_readable(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.polled.push((token, fd.as_raw_fd()));
        self.poll_again(fd.as_raw_fd(), token);
    }

    fn poll_again(&mut self, fd: RawFd, token: u64) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true);
        self.push(entry.build().user_data(token));
    }

    /// Closes a socket without operations in flight, after the queued ones.
    pub fn close(&mut self, socket: OwnedFd) {
        let close = opcode::Close::new(Fd(socket.into_raw_fd())).build().user_data(IGNORED);
        self.push(close.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Completes once, when the socket is readable, including its end or an error. Received bytes stay in the kernel
    /// until they are read: no buffer of the ring is used in the meantime.
    pub fn poll_readable_once(&mut self, socket: BorrowedFd<'_>, token: u64) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLIN as u32);
        self.push(entry.build().user_data(token));
    }

    /// Completes once, when the socket is writable: when a connect has ended, with success or failure.
    pub fn poll_writable(&mut self, socket: BorrowedFd<'_>, token: u64) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLOUT as u32);
        self.push(entry.build().user_data(token));
    }

    /// Cancels the operations in flight with these tokens, which complete with ECANCELED, and closes the socket. They
    /// must be all operations in flight on it.
    ///
    /// By token, since the kernel finds tokens in a table of its own; for all operations of a socket it would search
    /// all operations of the ring, which with 20,000 idle connections takes most of a millisecond per socket.
    pub fn cancel_and_close(&mut self, socket: OwnedFd, tokens: &[u64]) {
        for &token in tokens {
            let cancel = opcode::AsyncCancel::new(token).build().user_data(IGNORED);
            self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS));
        }
        // Not linked to the cancellations: each is done at submission, and a cancellation without a target is an error
        // that would end the link.
        self.close(socket);
    }

    /// Submits the queued operations, without waiting.
    ///
    /// # Errors
    /// The errors of io_uring_enter(2) but EINTR and EBUSY.
    pub fn submit(&mut self) -> io::Result<()> {
        self.push_later();
        // Without deferred work, which would delay the caller's next reading of the clock.
        ignore_expected(self.enter(0))
    }

    /// Submits the queued operations, without waiting; `flags` are those of io_uring_enter(2).
    fn enter(&mut self, flags: u32) -> io::Result<usize> {
        let queued = self.ring.submission().len() as u32;
        // SAFETY: no argument is passed.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) }
    }

    /// Submits the queued operations, and waits for a completion, at most `timeout` (`None`: unlimited; zero: not at
    /// all). Afterwards all completions are available; of very many, the first thousand or so.
    ///
    /// # Errors
    /// The errors of io_uring_enter(2) but ETIME and EINTR.
    pub fn wait(&mut self, timeout_left: Option<Duration>) -> io::Result<()> {
        self.wait_once(timeout_left)?;
        // One call processes a limited amount of deferred work, oldest first: with many completions new ones would wait
        // for many turns.
        let (mut seen, mut outcome) = (0, Ok(0));
        while outcome.is_ok()
            && self.has_deferred_work()
            && (seen + WORK_PER_CALL..COMPLETIONS_PER_WAIT).contains(&self.ring.completion().len())
        {
            seen = self.ring.completion().len();
            outcome = self.enter(GET_EVENTS);
        }
        ignore_expected(outcome)
    }

    /// Whether the kernel has operations that it can continue or completions that it can report.
    fn has_deferred_work(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// As [`Ring::wait`], with one system call: true if it returned the maximum per call, so that more may have
    /// completed. A caller that repeats it until it returns false gets all completions, and can stop an operation that
    /// returns too much between two calls: one receive returns all bytes waiting in its socket, sometimes a megabyte,
    /// some tens of buffers per call.
    ///
    /// # Errors
    /// As for [`Ring::wait`].
    pub fn wait_once(&mut self, timeout_left: Option<Duration>) -> io::Result<bool> {
        self.buffers.publish();
        self.push_later();
        let outcome = match timeout_left {
            // A wait of length zero would set a timer and let the scheduler run.
            Some(Duration::ZERO) if self.has_deferred_work() || !self.ring.submission().is_empty() => {
                self.enter(GET_EVENTS)
            }
            Some(Duration::ZERO) => Ok(0),
            Some(timeout_left) => {
                let timeout = Timespec::from(timeout_left);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            None => self.ring.submit_and_wait(1),
        };
        // Bytes that the kernel has not processed yet (EBUSY) must stay in place.
        if let Some(arena) = &mut self.arena
            && self.later.is_empty()
            && self.ring.submission().is_empty()
        {
            arena.switch_halves();
        }
        ignore_expected(outcome)?;
        Ok(self.ring.completion().len() >= WORK_PER_CALL)
    }

    /// The next available completion.
    #[allow(clippy::should_implement_trait, reason = "an iterator would borrow the ring while operations are queued")]
    pub fn next(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().find(|entry| entry.user_data() != IGNORED)?;
        let (result, flags) = (entry.result(), entry.flags());
        let mut more = cqueue::more(flags);
        if !more
            && result >= 0
            && let Some(&(token, fd)) = self.polled.iter().find(|(token, _)| *token == entry.user_data())
        {
            // The completion queue was full and the kernel stopped watching. Watching again reports immediately what
            // arrived in the meantime.
            self.poll_again(fd, token);
            more = true;
        }
        let is_accepted = entry.user_data() & ACCEPT != 0 && result >= 0;
        Some(Completion {
            token: entry.user_data() & !ACCEPT,
            // SAFETY: a successful accept returns a descriptor without another owner, once.
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

    /// Returns the buffer to the kernel.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.buffers.give_back(buffer.0);
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.push_chain(&[entry]);
    }

    /// Queues operations that belong together. If the queue is full and the kernel accepts no entry now (more
    /// completions wait than its queue holds), they are submitted by a later call.
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
        let has_space = |ring: &mut IoUring| {
            let queue = ring.submission();
            queue.capacity() - queue.len() >= entries.len()
        };
        if !has_space(&mut self.ring) {
            // Full: earlier entries are submitted first. A chain must not be split over two submissions.
            let _ = self.ring.submit();
        }
        // SAFETY: every entry points only to messages that exist as long as the ring (each is a separate heap
        // allocation, neither changed nor dropped before the ring), or into its arena, which exists as long and whose
        // bytes are not overwritten before the entry has been processed; and receives write into buffers that are
        // registered with it.
        has_space(&mut self.ring) && unsafe { self.ring.submission().push_multiple(entries) }.is_ok()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Queued entries may close descriptors. Entries that follow others are processed by later calls, a few per
        // call, and waiting ones would be cancelled below: the descriptors would stay open.
        let queued = self.ring.submission().len() + self.later.iter().map(|entries| entries.len()).sum::<usize>();
        let _ = self.submit();
        for _ in 0..queued.div_ceil(OPERATIONS_PER_CALL_MIN) {
            let _ = self.wait(Some(Duration::ZERO));
        }
        // Buffers and messages must not be freed while the kernel may still use them.
        let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        // A cancelled operation holds its socket until the cancellation is seen: otherwise the kernel would end the
        // connections at some later time. Accepted connections that were not taken are closed.
        self.polled.clear();
        while self.wait(Some(Duration::ZERO)).is_ok() && self.next().is_some() {
            while self.next().is_some() {}
        }
        self.buffers.unregister(&self.ring);
    }
}

/// Results of a wait that are not failures: timeout, signal, completions that must be taken first.
fn ignore_expected(outcome: io::Result<usize>) -> io::Result<()> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Minimum number of operations that the kernel continues in one call (IO_LOCAL_TW_DEFAULT_MAX of Linux 6.13 and later
/// is 20).
const OPERATIONS_PER_CALL_MIN: usize = 16;

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("messages", &self.messages.len()).finish_non_exhaustive()
    }
}

/// Pieces of deferred work that the kernel does in a call that waits for one completion (IO_LOCAL_TW_DEFAULT_MAX, since
/// Linux 6.13; all of them before).
const WORK_PER_CALL: usize = 20;
/// Maximum number of completions collected by one wait.
pub const COMPLETIONS_PER_WAIT: usize = 1024;

/// IORING_ENTER_GETEVENTS: the kernel continues deferred work and reports completions.
const GET_EVENTS: u32 = 1;

/// Marks the tokens of accepts: their results are descriptors.
const ACCEPT: u64 = 1 << 63;
/// A send that does not wait for buffer space: with MSG_WAITALL, a partial send counts as a failure and completes.
const WITHOUT_WAITING: i32 = libc::MSG_DONTWAIT;
/// Bytes of [`Ring::send_copy`] between two waits.
const COPIES_BYTES: usize = 1 << 20;
/// The token of operations whose result is ignored.
const IGNORED: u64 = u64::MAX;

#[cfg(test)]
mod tests;
