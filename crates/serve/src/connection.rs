//! HTTP of one connection, without a socket: bytes in, bytes out.
//!
//! ```text
//!   engine ──take(bytes)──▶ unread ──complete head──▶ response ──▶ context.out, tail ──outbound()──▶ engine
//!          ──ended()─────▶         ◀──proceed()── once that is sent                  ◀──sent(n)────
//! ```
//!
//! # The contract with the engines
//!
//! A connection owns no descriptor and makes no system call: an engine moves the bytes. In one turn of its loop it may
//! call [`Connection::take`] with received bytes, [`Connection::ended`] after the client's FIN, and
//! [`Connection::relay_event`] with an event of the relay. After any of these, and before it turns to another
//! connection, it must
//!
//! 1. while [`Connection::outbound`] is not [`Outbound::Nothing`], send it and report the number of accepted bytes by
//!    [`Connection::sent`], until the kernel's buffer is full;
//! 2. when all output is sent and [`Connection::has_more`] is true, call [`Connection::proceed`] and begin again, or
//!    leave that to a later turn when this connection has used its share of this one;
//! 3. call [`Connection::settle`], which buffers unsent output, since all connections share [`WorkerContext::out`], and
//!    updates the deadline;
//! 4. do what [`Connection::step`] returns.
//!
//! Responses are sent in the order of their requests, because a request is read only when all earlier output is in
//! `context.out`, plus at most one body outside of it. So a connection that is idle, or whose small responses are
//! accepted immediately, allocates nothing. An engine that removes a connection calls [`Connection::leave`].

use std::fs::File;
use std::net::SocketAddr;
use std::ops::Range;

use units::Timestamp;

use crate::dynamic::Ticket;
use crate::file_response::Tail;
use crate::files::Page;
use crate::http2::Http2;
use crate::request::{Parsed, parse};
use exchange::Exchange;
use incoming::Incoming;
use timeouts::LINGER;

pub(crate) use worker_context::WorkerContext;

mod backlog;
mod exchange;
mod http2;
mod incoming;
mod origin_exchange;
mod responding;
mod sending;
mod streams;
mod timeouts;
mod worker_context;

/// What is to be sent next.
#[derive(Debug)]
pub(crate) enum Outbound<'a> {
    /// Nothing to send now.
    Nothing,
    /// These bytes; true if others or the FIN follow immediately.
    Bytes(&'a [u8], bool),
    /// Both slices, one after the other.
    Both(&'a [u8], &'a [u8]),
    /// First `front`, which may be empty, then a range of a file, which belongs to `page`: [`Page::is_intact`] is
    /// checked before its last bytes.
    File { front: &'a [u8], file: &'a File, page: &'a Page, range: Range<u64> },
}

/// What to do with a connection that has nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Receive, and send remaining bytes if there are any.
    Receive,
    /// Receive nothing for now: enough input is buffered, or the connection waits for the relay.
    Pause,
    /// Discard input and report its length by [`Connection::discarded`]; send remaining bytes if there are any.
    Discard,
    /// Send FIN, report it by [`Connection::finished`], and continue.
    SendFin,
    /// Close as soon as the client's kernel has acknowledged everything, and receive nothing until then; the deadline
    /// closes it otherwise.
    CloseWhenAcknowledged,
    /// Close: close(2).
    Close,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Under which the relay responds.
    ticket: Ticket,
    peer: SocketAddr,
    local: SocketAddr,
    /// The connection uses TLS.
    secure: bool,
    /// One stream of another connection, whose framing marks the end of the response.
    framed: bool,
    /// As a stream: the response ended before its end.
    cut_short: bool,
    /// No request was read yet.
    is_new: bool,
    /// HTTP/2, once the client has begun it: then this connection has no request itself.
    http2: Option<Box<Http2>>,
    /// Received bytes that are not a complete request or wait for their turn.
    unread: Vec<u8>,
    /// Bytes that the kernel did not accept yet.
    unsent: Vec<u8>,
    /// The body that follows `unsent`.
    tail: Option<Tail>,
    /// The body of the last request that was read.
    incoming: Incoming,
    /// Bytes of the body since the deadline was reset; `None` without a body.
    body_taken: Option<u64>,
    /// The response in progress, if it takes time.
    exchange: Option<Box<Exchange>>,
    /// Requests that an origin still serves on this connection; 0 before the first.
    uses_left: u32,
    /// Bytes discarded after the last request.
    discarded: u32,
    /// This connection's share of [`WorkerContext::backlog`].
    buffered_bytes: u32,
    /// The backlog was short when the share was last computed.
    crowded: bool,
    /// The response is to HEAD; below: it is the last of the connection.
    head_only: bool,
    last: bool,
    phase: Phase,
    /// Aborted in the middle of a response: bytes in the kernel may be dropped.
    aborted: bool,
    /// Responding paused because enough output is pending; `unread` may contain complete requests.
    held_up: bool,
    /// The client sent FIN.
    ended: bool,
    /// A head has begun, and the deadline is that of its end. True from accept on: the first head has no longer time
    /// than others.
    head_began: bool,
    /// Output is pending; the bytes accepted by the kernel since the deadline was reset.
    owing: Option<u64>,
    /// The bytes in the kernel when the deadline was reset, once the engine has reported them.
    in_kernel: Option<u32>,
    /// See [`Connection::set_output_pending_below`].
    output_pending_below: bool,
    /// When the connection was last accepted, served or waiting for a response.
    idle_since: Timestamp,
    /// When the current timeout expires.
    deadline: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are read and served.
    Open,
    /// The last response is being sent; then the connection closes.
    Ending,
    /// As `Ending`, but with unread input: an immediate close would reset the connection and could destroy the response
    /// in transit (RFC 9112, section 9.6).
    EndingGently,
    /// Everything including FIN is sent; remaining input is discarded.
    Lingering,
    /// The connection is unusable.
    Over,
}

impl Connection {
    /// A newly accepted connection from `peer` to `local`, with the token `ticket`.
    pub(crate) fn new(ticket: u64, peer: SocketAddr, local: SocketAddr, secure: bool, context: &WorkerContext) -> Self {
        context.recorder.counters().connection_opened();
        Connection::uncounted(Ticket::from(ticket), peer, local, secure, context)
    }

    fn uncounted(ticket: Ticket, peer: SocketAddr, local: SocketAddr, secure: bool, context: &WorkerContext) -> Self {
        Connection {
            ticket,
            peer,
            local,
            secure,
            framed: false,
            cut_short: false,
            is_new: true,
            http2: None,
            unread: Vec::new(),
            unsent: Vec::new(),
            tail: None,
            incoming: Incoming::Nothing,
            body_taken: None,
            exchange: None,
            uses_left: 0,
            discarded: 0,
            buffered_bytes: 0,
            crowded: false,
            head_only: false,
            last: false,
            phase: Phase::Open,
            aborted: false,
            held_up: false,
            ended: false,
            head_began: true,
            owing: None,
            in_kernel: None,
            output_pending_below: false,
            idle_since: context.now,
            deadline: context.now + context.limits.head_time,
        }
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes received bytes and responds to complete requests in them.
    pub(crate) fn take(&mut self, context: &mut WorkerContext, bytes: &[u8]) {
        if self.phase != Phase::Open {
            return self.discarded(bytes.len());
        }
        if self.unread.is_empty() {
            // The usual case: requests are parsed in the receive buffer, and nothing remains.
            let used = self.work(context, bytes);
            if used < bytes.len() {
                self.unread.extend_from_slice(&bytes[used..]);
            }
        } else {
            if self.unread.len() >= UNREAD_MAX {
                // Input in transit when the buffer is full: reserve exactly, without doubling.
                self.unread.reserve_exact(bytes.len().max(UNREAD_MAX));
            }
            self.unread.extend_from_slice(bytes);
            self.proceed(context);
        }
    }

    /// Drops all pending output: it cannot be sent.
    pub(crate) fn abandon(&mut self, context: &mut WorkerContext) {
        self.leave_streams(context);
        self.leave_relay(context);
        self.enter(context, false);
        context.out.clear();
        self.unsent = Vec::new();
        self.tail = None;
        self.phase = Phase::EndingGently;
    }

    /// The client has sent FIN. A client that waits for a response of the relay counts as disconnected, as in nginx: a
    /// dynamic program must not work for clients that gave up, and FIN is the only visible sign of most of them. A
    /// client that only half-closes (RFC 9112, section 9.6) does not get that response.
    pub(crate) fn ended(&mut self) {
        self.ended = true;
        if self.phase == Phase::Lingering || (self.is_awaiting() && !self.has_all()) {
            self.phase = Phase::Over;
        }
    }

    /// `bytes` bytes of input were discarded.
    pub(crate) fn discarded(&mut self, bytes: usize) {
        self.discarded = self.discarded.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.phase == Phase::Ending && bytes > 0 {
            self.phase = Phase::EndingGently;
        }
    }

    /// The engine removes the connection.
    pub(crate) fn leave(&mut self, context: &mut WorkerContext) {
        context.backlog.change(self.buffered_bytes, 0);
        self.buffered_bytes = 0;
        let whole = self.was_sent_all();
        self.leave_streams(context);
        self.leave_relay(context);
        self.enter(context, whole);
        context.recorder.counters().connection_closed();
    }

    /// Whether bytes in the kernel's send buffer should be dropped with the connection: it was aborted in the middle of
    /// a response that the client did not read.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// The connection cannot send or receive any more, or cannot send what it announced: it is unusable.
    pub(crate) fn broken(&mut self) {
        self.phase = Phase::Over;
        self.unsent = Vec::new();
        self.tail = None;
    }

    /// Responds to requests that waited for output space.
    pub(crate) fn proceed(&mut self, context: &mut WorkerContext) {
        let mut unread = std::mem::take(&mut self.unread);
        let used = self.work(context, &unread);
        if used < unread.len() {
            unread.drain(..used);
            if unread.len() <= UNREAD_MAX {
                // Memory of a burst is released.
                unread.shrink_to(2 * UNREAD_MAX);
            }
            self.unread = unread;
        }
    }

    /// Whether [`Connection::proceed`] has work once all output is sent.
    pub(crate) fn has_more(&self) -> bool {
        (self.held_up || self.has_streams_to_send()) && !self.has_pending_output()
    }

    /// Responds to complete requests at the beginning of `input`; returns the number of bytes used.
    fn work(&mut self, context: &mut WorkerContext, input: &[u8]) -> usize {
        let mut at = 0;
        self.held_up = false;
        if self.http2.is_some() && self.phase == Phase::Open {
            return self.work_http2(context, input);
        }
        loop {
            if self.phase != Phase::Open {
                // Input after the last request is ignored.
                if self.phase == Phase::Ending && at < input.len() {
                    self.phase = Phase::EndingGently;
                }
                return input.len();
            }
            if !self.incoming.is_nothing() && at < input.len() {
                match self.read_body(context, &input[at..]) {
                    0 => return at,
                    used => at += used,
                }
                continue;
            }
            if at == input.len() {
                return at;
            }
            if self.tail.is_some() || !self.unsent.is_empty() || context.out.len() >= context.backlog.output_full() {
                self.held_up = true;
                return at;
            }
            if self.begins_http2(&input[at..]) {
                if input.len() - at < http2::PREFACE.len() {
                    return at;
                }
                self.begin_http2(context);
                return at + self.work_http2(context, &input[at..]);
            }
            match parse(&input[at..], &context.limits) {
                Parsed::Incomplete => return at,
                Parsed::Complete(request) => {
                    at += request.length;
                    self.respond(context, &request);
                }
                Parsed::Refused(status) => self.refuse(context, status, &input[at..]),
            }
        }
    }

    /// What to do now; valid after [`Connection::settle`].
    pub(crate) fn step(&self) -> Step {
        match self.phase {
            Phase::Over => Step::Close,
            // After FIN there is nothing to receive, and polling would return immediately forever.
            _ if self.has_pending_output() && self.ended => Step::Pause,
            Phase::Open if self.has_pending_output() => {
                if self.is_full() {
                    Step::Pause
                } else {
                    Step::Receive
                }
            }
            _ if self.has_pending_output() => {
                if self.discarded < DISCARDED_MAX {
                    Step::Discard
                } else {
                    Step::Pause
                }
            }
            Phase::Ending => Step::Close,
            Phase::EndingGently => Step::SendFin,
            Phase::Lingering if self.discarded < DISCARDED_MAX => Step::Discard,
            Phase::Lingering => Step::CloseWhenAcknowledged,
            Phase::Open if self.held_up || self.has_streams_to_send() => Step::Pause,
            // An incomplete request or none: no response is due.
            Phase::Open if self.ended => Step::Close,
            Phase::Open => Step::Receive,
        }
    }

    /// FIN was sent, as [`Step::SendFin`] requested.
    pub(crate) fn finished(&mut self, context: &WorkerContext) {
        self.phase = if self.ended { Phase::Over } else { Phase::Lingering };
        self.deadline = context.now + LINGER;
    }

    /// The server stops: this connection ends with its current response.
    pub(crate) fn stop(&mut self) {
        match self.phase {
            Phase::Open if self.http2.is_some() => self.stop_streams(),
            Phase::Open if !self.has_pending_output() => self.phase = Phase::Ending,
            Phase::Open if self.is_awaiting() => self.last = true,
            Phase::Open => self.phase = Phase::EndingGently,
            _ => {}
        }
    }

    /// Whether enough input is buffered to stop receiving. With a short backlog nothing is received ahead of pending
    /// output.
    pub(crate) fn is_full(&self) -> bool {
        let most = if self.http2.is_some() { 2 * UNREAD_MAX } else { UNREAD_MAX };
        self.unread.len() >= most || (self.crowded && self.has_pending_output())
    }

    /// Whether more requests are read after the pending output.
    pub(crate) fn stays_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether all output was passed on and nothing follows.
    pub(crate) fn input_ended(&self) -> bool {
        let ends = matches!(self.phase, Phase::Ending | Phase::EndingGently);
        !self.has_pending_output()
            && (ends || (self.phase == Phase::Open && self.ended && !self.held_up && !self.has_streams_to_send()))
    }

    /// The layer between this connection and the engine has sent `count` bytes of the output it took.
    pub(crate) fn sent_below(&mut self, count: usize) {
        if let Some(taken) = &mut self.owing {
            *taken += count as u64;
        }
    }

    /// Whether the layer between this connection and the engine still has output of it to send.
    pub(crate) fn set_output_pending_below(&mut self, pending: bool) {
        self.output_pending_below = pending;
    }

    fn has_pending_output(&self) -> bool {
        self.output_pending_below || !self.unsent.is_empty() || self.tail.is_some()
    }

    /// Whether pending output can be sent now.
    fn has_to_send(&self) -> bool {
        self.output_pending_below || !self.unsent.is_empty() || !matches!(self.tail, None | Some(Tail::Awaited))
    }

    fn is_awaiting(&self) -> bool {
        matches!(self.tail, Some(Tail::Awaited))
    }

    /// Whether the relay waits for more of the request's body.
    fn awaits_body(&self) -> bool {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        !self.incoming.is_nothing() && relayed.is_none_or(|relayed| relayed.room > 0)
    }
}

/// Responses collected before they are sent: enough to justify a system call, few enough for the CPU cache, and a limit
/// on the memory of a client that does not read.
const OUTPUT_FULL: usize = 32 << 10;
/// Unread requests, beyond which no more input is received.
const UNREAD_MAX: usize = 16 << 10;
/// Input that is discarded after the last response, so that a reset does not destroy that response (RFC 9112, section
/// 9.6). It is limited: each discarded byte lets the client send another, which costs CPU on this core. Four initial
/// windows.
const DISCARDED_MAX: u32 = 256 << 10;

#[cfg(test)]
mod tests;
