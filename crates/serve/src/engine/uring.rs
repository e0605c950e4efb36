//! The engine over io_uring: one system call a turn for all input and all small responses.
//!
//! ```text
//!   wait() ── completions ─┬─ received ──▶ Link, straight from the kernel's buffer ──▶ small response: copied for the next
//!     ▲                    │                                                            wait(); large: send(2), sendfile(2)
//!     │                    ├─ a partly accepted small response: the rest goes back to the link
//!     │                    └─ space to send, listener readable, stop signal ..
//!     └── operations queued meanwhile ◀──────────────────────────────────────────────┘
//! ```
//!
//! A small response counts as sent when it is queued. The next call of `wait` submits it, and the completions of that
//! call return what the kernel did not accept. So nothing else may be sent on a connection in the same turn: it waits
//! for the next one, which begins immediately; and if a receive was queued after the response, whose completions may
//! precede those of the response, for the one after that.

mod connections;

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::libc::{EAGAIN, ECANCELED, ENOBUFS};
use sys::uring::{COMPLETIONS_PER_WAIT, Completion, Copied, Ring, RingSpec};
use units::Timestamp;

use super::table::Table;
use super::turn::Turn;
use super::{HasLink, INPUT_BYTES, RELAY_EVENTS_MAX, ROUNDS_PER_TURN, Sent, WorkerEnv, flush, has_all};
use crate::connection::{Outbound, Step, WorkerContext};
use crate::dynamic::RelayHandle;
use crate::link::Link;
use crate::spec::{ServeError, system};

/// A ring for a worker.
pub(crate) fn ring() -> Result<Ring, ServeError> {
    Ring::new(RING).map_err(system("io_uring_setup"))
}

/// A worker and its event loop.
pub(crate) struct Worker<'a> {
    env: WorkerEnv<'a>,
    ring: Ring,
    context: WorkerContext,
    table: Table<Client>,
    /// Number of this turn; the first is 1.
    turn: u64,
    /// Tokens of connections with more work in the next turn.
    again: Vec<u64>,
    /// Bursts of established connections in the order of arrival: they wait for the light work.
    bursts: VecDeque<(u64, Completion)>,
    /// New connections and others that send much, with input in the kernel: read after everything else.
    deferred: VecDeque<u64>,
    /// A connection may wait at the listener.
    knocked: bool,
    /// When to accept again, unless a connection ends before.
    accept_again_at: Option<Timestamp>,
    /// The latest time at which a stopping server ends.
    stop_at: Option<Timestamp>,
    /// Receive buffer for new connections.
    input: Box<[u8]>,
}

/// One connection.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    link: Link,
    receiving: Receiving,
    /// Waiting for space in the send buffer.
    blocked: bool,
    /// In `again`.
    queued: bool,
    /// The small response queued last and its turn; 0 for never.
    copied: Option<Copied>,
    sent_in: u64,
    /// A receive was queued after it, so its input may be reported before the unsent rest.
    receives_behind: bool,
    /// The kernel did not accept all of the previous small response: write readiness must be requested.
    short: bool,
    /// The turn in which it was accepted.
    accepted_in: u64,
    /// It has had a response, and may send another request.
    known: bool,
    /// It sends more at a time than fits into a buffer.
    heavy: bool,
    /// Number of its buffers in `bursts`.
    waiting: u32,
    /// The turn in which its receive was last cancelled.
    cancelled_in: u64,
}

impl HasLink for Client {
    fn link(&self) -> &Link {
        &self.link
    }

    fn parts(&mut self) -> (&TcpStream, &mut Link) {
        (&self.stream, &mut self.link)
    }
}

/// How input is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Nothing,
    /// Not received: polled until readable or about to be.
    Watched,
    /// By the ring, as long as input arrives.
    On,
    /// By the ring, but cancelled.
    Ending,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Input from the client.
    Input,
    /// No input: another event must happen first.
    Hold,
    /// Space in the send buffer.
    Output,
    /// The next turn.
    Turn,
    /// Nothing: it closes.
    Close,
}

impl<'a> Worker<'a> {
    /// With a ring of its own.
    pub(crate) fn new(mut ring: Ring, env: WorkerEnv<'a>, context: WorkerContext) -> Self {
        ring.poll_readable(env.stop, STOP);
        ring.poll_readable(env.failed, FAILED);
        ring.poll_readable(env.listener.as_fd(), LISTENER);
        if let Some(front) = &context.front {
            ring.poll_readable(front.wake_fd(), RELAY);
        }
        Worker {
            table: Table::new(env.tick(), context.now),
            env,
            ring,
            context,
            turn: 1,
            again: Vec::new(),
            bursts: VecDeque::new(),
            deferred: VecDeque::new(),
            knocked: true,
            accept_again_at: None,
            stop_at: None,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
        }
    }

    /// Serves until stopped; unfinished responses are reset then.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let outcome = self.serve();
        for token in self.table.tokens() {
            self.close(token);
        }
        outcome
    }

    fn serve(&mut self) -> Result<(), ServeError> {
        let mut precedence = self.env.competitor.apply(self.context.now);
        // Completions since the last turn with time for all work.
        let mut came = 0;
        loop {
            let mut timeouts = if came > 0 { Some(Duration::ZERO) } else { self.timeouts() };
            match &mut timeouts {
                None => self.context.recorder.tick(self.context.now),
                Some(timeouts) => *timeouts = (*timeouts).min(self.context.recorder.due_at().since(self.context.now)),
            }
            let more = self.ring.wait_once(timeouts).map_err(system("io_uring_enter"))?;
            self.context.now = self.env.clock.now();
            self.context.date.refresh(self.context.now);
            precedence.review(self.context.now);
            if came == 0 {
                self.context.turn = Turn::begun(self.env.clock, self.context.now);
            }
            self.turn += 1;
            let again = std::mem::take(&mut self.again);
            while let Some(completion) = self.ring.next() {
                came += 1;
                match completion.token {
                    FAILED => return Ok(()),
                    STOP if self.stop_at.is_some() => return Ok(()),
                    STOP => self.stop(),
                    LISTENER => self.knocked = true,
                    RELAY => self.process_relay_events(),
                    token => self.sort(token, completion),
                }
            }
            if self.context.now >= self.context.recorder.due_at() {
                self.context.recorder.tick(self.context.now);
            }
            if more && came < COMPLETIONS_PER_WAIT {
                // Other connections have light work too, which the kernel has not reported yet.
                self.again.splice(..0, again);
                continue;
            }
            came = 0;
            let mut done = 0;
            while done < again.len() && (done == 0 || !self.context.turn.is_over()) {
                let token = again[done];
                done += 1;
                if let Some(client) = self.table.get(token) {
                    client.queued = false;
                    self.advance(token);
                }
            }
            // Connections without time in this turn keep their order.
            self.again.splice(..0, again[done..].iter().copied());
            while let Some((token, completion)) = self.bursts.pop_front() {
                if let Some(client) = self.table.get(token & TOKEN_MASK) {
                    client.waiting -= 1;
                }
                self.completed(token, completion);
                // The buffers are shared.
                if self.bursts.len() <= BURSTS_MAX && self.context.turn.is_over() {
                    break;
                }
            }
            self.context.turn.for_new_connections();
            while let Some(token) = self.deferred.pop_front() {
                self.read_without_receive(token);
                if self.context.turn.is_over() {
                    break;
                }
            }
            while let Some(token) = self.table.due(self.context.now) {
                let Some(client) = self.table.get(token) else { continue };
                let deadline = client.link.deadline();
                if deadline > self.context.now {
                    self.table.schedule(token, deadline);
                } else {
                    super::late(&client.stream, &mut client.link, &mut self.context);
                    self.advance(token);
                }
            }
            if self.accept_again_at.is_some_and(|at| self.context.now >= at) {
                self.accept_again_at = None;
                self.knocked = true;
            }
            if self.knocked && self.accept_again_at.is_none() {
                self.accept()?;
            }
            if self.stop_at.is_some_and(|at| self.context.now >= at || self.table.length() == 0) {
                return Ok(());
            }
        }
    }

    /// Processes established connections immediately; input of new connections waits for the rest of the turn. A flood
    /// of connections or endless heads therefore costs others one turn at most; its input is not even read from the
    /// kernel before, since reading lets the clients send more.
    fn sort(&mut self, marked: u64, completion: Completion) {
        let token = marked & TOKEN_MASK;
        if marked & !TOKEN_MASK == RECEIVE
            && let Some(client) = self.table.get(token)
        {
            if client.receiving == Receiving::Watched {
                return self.deferred.push_back(token);
            }
            if completion.result.as_ref().is_ok_and(|&bytes| bytes >= RING.buffer_bytes) {
                // It sends much: from now on its input stays in the kernel until its turn.
                client.heavy = true;
            }
            if client.heavy && completion.more {
                client.receive_no_more(token, self.turn, &mut self.ring);
            }
            if client.heavy || client.waiting > 0 {
                client.waiting += 1;
                return self.bursts.push_back((marked, completion));
            }
        }
        self.completed(marked, completion);
    }

    fn completed(&mut self, marked: u64, completion: Completion) {
        let token = marked & TOKEN_MASK;
        let Some(client) = self.table.get(token) else {
            // Of a closed connection.
            if let Some(buffer) = completion.buffer {
                self.ring.give_back(buffer);
            }
            return;
        };
        match marked & !TOKEN_MASK {
            RECEIVE => return self.received(token, completion),
            SEND => match completion.result {
                Ok(taken) => client.take_back(&self.ring, taken as usize),
                Err(error) if error.raw_os_error() == Some(EAGAIN) => client.take_back(&self.ring, 0),
                Err(_) => client.link.broken(),
            },
            _ => client.blocked = false,
        }
        self.advance(token);
    }

    fn received(&mut self, token: u64, completion: Completion) {
        let Some(client) = self.table.get(token) else { return };
        if !completion.more {
            client.receiving = Receiving::Nothing;
        }
        match (completion.result, &completion.buffer) {
            (Ok(length @ 1..), Some(buffer)) => {
                client.link.take(&mut self.context, self.ring.bytes(buffer, length as usize));
            }
            (Ok(_), _) => client.link.ended(),
            (Err(error), _) if matches!(error.raw_os_error(), Some(ENOBUFS | ECANCELED)) => {}
            (Err(_), _) => client.link.broken(),
        }
        if let Some(buffer) = completion.buffer {
            self.ring.give_back(buffer);
        }
        self.advance(token);
    }

    /// Processes the relay's events.
    fn process_relay_events(&mut self) {
        if let Some(front) = &mut self.context.front {
            front.woken();
        }
        for _ in 0..RELAY_EVENTS_MAX {
            let Some((ticket, event)) = self.context.front.as_mut().and_then(RelayHandle::next) else { return };
            if let Some(client) = self.table.get(ticket.connection) {
                client.link.relay_event(&mut self.context, ticket.stream, event);
                self.advance(ticket.connection);
            }
        }
        if let Some(front) = &self.context.front {
            front.wake_again();
        }
    }

    /// Processes a connection in this turn.
    fn advance(&mut self, token: u64) {
        let Some(client) = self.table.get(token) else { return };
        if client.queued {
            // Its share of this turn is used, or output of this turn may not have been accepted.
            client.link.settle(&mut self.context);
            if client.link.is_full() || !client.link.stays_open() {
                client.receive_no_more(token, self.turn, &mut self.ring);
            }
            return;
        }
        let next = client.work(token, self.turn, &mut self.context, &mut self.ring).unwrap_or(Next::Close);
        client.link.settle(&mut self.context);
        super::begin_stall_timeout(&client.stream, &mut client.link);
        let spare = client.accepted_in < self.turn && client.link.idle_since() == Some(self.context.now);
        client.known |= spare && next == Next::Input;
        match next {
            Next::Input => client.receive(token, &mut self.ring),
            Next::Hold => {}
            Next::Output => {
                if !client.blocked {
                    client.blocked = true;
                    self.ring.poll_writable(client.stream.as_fd(), token | WRITABLE);
                }
            }
            Next::Turn => {
                client.queued = true;
                self.again.push(token);
            }
            Next::Close => return self.close(token),
        }
        // Input to be discarded is not worth a buffer.
        if client.link.is_full() || !client.link.stays_open() {
            client.receive_no_more(token, self.turn, &mut self.ring);
        }
        let deadline = client.link.deadline();
        let used = client.link.idle_since() == Some(self.context.now);
        self.table.schedule(token, deadline);
        if used {
            self.table.used(token);
        }
    }
}

impl Client {
    /// Sends and responds alternately.
    fn work(&mut self, token: u64, turn: u64, context: &mut WorkerContext, ring: &mut Ring) -> io::Result<Next> {
        for _ in 0..ROUNDS_PER_TURN {
            if self.sent_in == turn || (self.receives_behind && self.sent_in + 1 == turn) {
                // Whether the queued response is accepted completely is unknown, so nothing may follow it now.
                let idle = matches!(self.link.outbound(context), Outbound::Nothing) && !self.link.has_more();
                return Ok(if idle && self.link.step() == Step::Receive { Next::Input } else { Next::Turn });
            }
            if self.blocked {
                // Reset while it waited for space.
                return Ok(if self.link.step() == Step::Close { Next::Close } else { Next::Output });
            }
            if self.link.stays_open()
                && !self.short
                && let Outbound::Bytes(bytes, false) = self.link.outbound(context)
                && bytes.len() <= COPY_MAX
                && let Some(copied) = ring.send_copy(self.stream.as_fd(), bytes, token | SEND)?
            {
                let length = bytes.len();
                self.copied = Some(copied);
                self.sent_in = turn;
                self.receives_behind = false;
                self.link.sent(context, length);
                continue;
            }
            match flush(&self.stream, &mut self.link, context, true)? {
                Sent::All => self.short = false,
                Sent::Blocked => return Ok(Next::Output),
                Sent::Enough => return Ok(Next::Turn),
            }
            if self.link.has_more() {
                if context.turn.is_over() {
                    return Ok(Next::Turn);
                }
                self.link.proceed(context);
                continue;
            }
            match self.link.step() {
                Step::Close => return Ok(Next::Close),
                Step::CloseWhenAcknowledged if has_all(&self.stream) => return Ok(Next::Close),
                Step::Pause | Step::CloseWhenAcknowledged => return Ok(Next::Hold),
                Step::Receive | Step::Discard => return Ok(Next::Input),
                Step::SendFin => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.link.finished(context);
                }
            }
        }
        Ok(Next::Turn)
    }

    /// Only `taken` bytes of the response queued last were accepted.
    fn take_back(&mut self, ring: &Ring, taken: usize) {
        if let Some(copied) = self.copied.take() {
            self.link.not_sent(ring.copied(&copied, taken));
            self.short = true;
        }
    }

    fn receive(&mut self, token: u64, ring: &mut Ring) {
        if self.receiving == Receiving::Nothing {
            if self.known && !self.heavy && self.link.stays_open() {
                self.receives_behind = true;
                self.receiving = Receiving::On;
                ring.receive(self.stream.as_fd(), token | RECEIVE);
            } else {
                // Its buffers would be unavailable to other connections.
                self.receiving = Receiving::Watched;
                ring.poll_readable_once(self.stream.as_fd(), token | RECEIVE);
            }
        }
    }

    /// Leaves further input in the kernel, except what is already in transit. Call it again while input arrives:
    /// cancelling does not find a receive that is just restarting itself.
    fn receive_no_more(&mut self, token: u64, turn: u64, ring: &mut Ring) {
        if matches!(self.receiving, Receiving::On | Receiving::Ending) && self.cancelled_in != turn {
            self.receiving = Receiving::Ending;
            self.cancelled_in = turn;
            ring.cancel(token | RECEIVE);
        }
    }

    fn release(self, token: u64, turn: u64, ring: &mut Ring) {
        let socket = OwnedFd::from(self.stream);
        if self.receiving != Receiving::Nothing || self.blocked {
            ring.cancel_and_close(socket, &[token | RECEIVE, token | WRITABLE]);
        } else if self.known || self.sent_in == turn {
            ring.close(socket);
        }
        // A new connection is closed here: that work counts in its turn.
    }
}

/// Operation marks besides a connection's token.
const TOKEN_MASK: u64 = (1 << 60) - 1;
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << 60;
const WRITABLE: u64 = 2 << 60;
/// Tokens of other descriptors.
const STOP: u64 = (3 << 60) + 1;
const FAILED: u64 = (3 << 60) + 2;
const LISTENER: u64 = (3 << 60) + 3;
const RELAY: u64 = (3 << 60) + 4;

const RING: RingSpec = RingSpec { operations: 4096, buffers: 2048, buffer_bytes: 2048 };
/// Buffers that bursts may occupy from one turn to the next: half of all.
const BURSTS_MAX: usize = RING.buffers as usize / 2;
/// Responses up to this size are copied and sent with the next wait; larger ones justify a system call of their own.
const COPY_MAX: usize = 4 << 10;
