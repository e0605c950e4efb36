//! Socket I/O of the load with io_uring: completions are reported to the core, and requests are submitted in small
//! batches.
//!
//! Batches are small because their requests count as started when they are queued: the last of them is sent later than
//! its record states, by the time that the kernel takes for those before it.

use schema::FailureCause;
use sys::clock::Clock;
use sys::uring::Completion;

use super::{LoadIo, Poller, connect_cause, note_unacknowledged, stream_cause};
use crate::drive::poller::{Operation, RingPoller, addressee};

/// Requests submitted with one system call.
pub(super) const SENDS_PER_CALL: usize = 8;
/// A longer request is sent by its own system call, which returns how much the kernel took: `sent_at` must not
/// be set while a part of the request is still in this process's memory.
pub(super) const QUEUED_REQUEST_BYTES_MAX: usize = 16 << 10;

impl LoadIo {
    /// Handles a completed operation on a connection.
    pub fn completed(&mut self, completion: Completion, poller: &mut Poller, clock: &Clock) {
        let Some(ring) = poller.ring() else { return };
        match addressee(&completion) {
            Some((Operation::Receive, to)) => self.received(to.index, |key| to.is(key), completion, ring, clock),
            Some((operation, to)) => {
                let Some(Some(socket)) = self.sockets.get_mut(to.index) else { return };
                if !to.is(socket.key) {
                    return;
                }
                let key = socket.key;
                match (operation, completion.result) {
                    (Operation::Writable, _) if socket.connecting => match socket.tcp.take_error() {
                        Ok(()) => {
                            socket.connecting = false;
                            socket.receiving = true;
                            ring.receive(&socket.tcp, key);
                            let now = self.now(clock);
                            self.load.handle_connected(now, key);
                        }
                        Err(error) => self.drop_failed(key, connect_cause(&error), clock),
                    },
                    (Operation::Writable, _) => {
                        socket.sending = false;
                        self.send_rest_on(key, ring, clock);
                    }
                    (Operation::Send, Ok(taken)) => {
                        socket.sending = true;
                        ring.send_rest(
                            &socket.tcp,
                            key,
                            socket.request,
                            taken as usize,
                            self.load.request(socket.request).len(),
                        );
                    }
                    (Operation::Send, Err(error)) if error.raw_os_error() == Some(libc::EAGAIN) => {
                        socket.sending = true;
                        ring.send_rest(&socket.tcp, key, socket.request, 0, self.load.request(socket.request).len());
                    }
                    (Operation::Send, Err(error)) if error.raw_os_error() != Some(libc::ECANCELED) => {
                        // The kernel took nothing, although the request counted as started when it was queued.
                        self.load.handle_unacknowledged(key, u64::MAX);
                        self.drop_failed(key, stream_cause(&error), clock);
                    }
                    // The cause of a connection broken in the middle of a request is reported by receiving on it.
                    (Operation::SendWithRetries, _) => socket.sending = false,
                    _ => {}
                }
            }
            None => {}
        }
        self.completions_handled += 1;
        if self.completions_handled >= SENDS_PER_CALL {
            self.follow_up_completions(poller, clock);
        }
    }

    /// Carries out the core's actions after completions were handled.
    pub fn follow_up_completions(&mut self, poller: &mut Poller, clock: &Clock) {
        if std::mem::take(&mut self.completions_handled) > 0 {
            self.follow_up(poller, clock);
        }
    }

    fn received(
        &mut self,
        index: usize,
        is: impl Fn(load::ConnectionKey) -> bool,
        completion: Completion,
        ring: &mut RingPoller,
        clock: &Clock,
    ) {
        let socket = self.sockets.get_mut(index).and_then(Option::as_mut).filter(|socket| is(socket.key));
        let Some(socket) = socket else {
            // The connection of this completion is already closed.
            if let Some(buffer) = completion.buffer {
                ring.give_back(buffer);
            }
            return;
        };
        let key = socket.key;
        socket.receiving = completion.more;
        match completion.result {
            Ok(0) => {
                note_unacknowledged(&mut self.load, key, &socket.tcp);
                let now = self.now(clock);
                self.load.handle_eof(now, key);
            }
            Ok(length) => {
                if self.load.wants_acknowledged(key) {
                    note_unacknowledged(&mut self.load, key, &socket.tcp);
                }
                if !completion.more {
                    ring.receive(&socket.tcp, key);
                    socket.receiving = true;
                }
                if let Some(buffer) = completion.buffer {
                    let now = self.now(clock);
                    self.load.handle_bytes(now, key, ring.bytes(&buffer, length as usize));
                    ring.give_back(buffer);
                }
            }
            // No buffer was free: received data waits in the socket.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                ring.receive(&socket.tcp, key);
                socket.receiving = true;
            }
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {}
            Err(error) => self.drop_failed(key, stream_cause(&error), clock),
        }
    }

    /// Sends the rest of a long request, by its own system calls.
    fn send_rest_on(&mut self, key: load::ConnectionKey, ring: &mut RingPoller, clock: &Clock) {
        self.send_rest(key, clock);
        if let Some(Some(socket)) = self.sockets.get_mut(key.index())
            && !self.load.unsent(key).is_empty()
        {
            socket.sending = true;
            ring.wait_writable(&socket.tcp, key);
        }
    }

    /// Submits queued requests, and passes sockets to the ring for closing.
    pub(super) fn submit(&mut self, poller: &mut Poller, clock: &Clock) {
        let Some(ring) = poller.ring() else { return };
        for (socket, key, pending) in self.closing.drain(..) {
            ring.close(socket, key, pending);
        }
        if self.queued.is_empty() {
            return;
        }
        // Operations that the ring cannot submit now go with the next call: the queue has space for many batches.
        let failed = ring.submit().is_err();
        let now = self.now(clock);
        for (key, length) in std::mem::take(&mut self.queued) {
            if failed {
                self.drop_failed(key, FailureCause::LocalError, clock);
            } else {
                self.load.handle_sent(now, key, length);
            }
        }
    }
}
