//! One connection's HTTP, without a socket: bytes in, bytes out.
//!
//! ```text
//!   engine ──take(bytes)──▶ unread ──complete head──▶ answer ──▶ desk.out, tail ──outbound()──▶ engine
//!          ──ended()─────▶         ◀──proceed()── once that is sent              ◀──sent(n)────
//! ```
//!
//! # The contract with the engines
//!
//! A connection owns no descriptor and makes no system call: an engine moves the bytes. In one turn of its loop it may call
//! [`Connection::take`] with what was received, [`Connection::ended`] when the client sent its last byte, and
//! [`Connection::heard`] with what the relay had to say. After any of these it must, before it turns to another
//! connection,
//!
//! 1. as long as [`Connection::outbound`] is not [`Outbound::Nothing`], send it and say how much was taken by
//!    [`Connection::sent`]; or, when the kernel takes no more now, stop;
//! 2. when nothing is left to send and [`Connection::has_more`] says so, call [`Connection::proceed`] and begin again,
//!    or leave that to a later turn when this connection has had its share of this one;
//! 3. call [`Connection::settle`], which keeps what was not sent, since [`Desk::out`] belongs to all, and winds the clock up;
//! 4. do what [`Connection::step`] says.
//!
//! Responses leave in the order of their requests because a request is read only when everything owed so far is in
//! `desk.out`, and at most one body outside it is owed at a time. So a connection that is idle, or whose small answers are
//! taken at once, owns no memory but itself. When an engine lets a connection go, it says so by [`Connection::leave`].

use std::fs::File;
use std::net::SocketAddr;
use std::ops::Range;

use units::Timestamp;

use crate::answer::Tail;
use crate::files::Page;
use crate::request::{Parsed, parse};
use exchange::Exchange;
use incoming::Incoming;
use patience::LINGER;

pub(crate) use desk::Desk;

mod answering;
mod backlog;
mod desk;
mod exchange;
mod incoming;
mod patience;
mod sending;
mod visiting;

/// What is to be sent next.
#[derive(Debug)]
pub(crate) enum Outbound<'a> {
    /// Nothing now.
    Nothing,
    /// These bytes; with true, others or the FIN follow as soon as they are taken.
    Bytes(&'a [u8], bool),
    /// These, one after the other.
    Both(&'a [u8], &'a [u8]),
    /// First `front`, which may be empty, then a part of a file, which is that of `page`: before its last bytes are
    /// sent, [`Page::is_intact`] is asked.
    File { front: &'a [u8], file: &'a File, page: &'a Page, range: Range<u64> },
}

/// What is to be done about a connection once it has nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Receive, and send what is left if anything is.
    Go,
    /// Receive nothing for now: it has enough to answer, or waits for the relay.
    Hold,
    /// Throw away what comes, unread, and tell how much by [`Connection::discarded`]; send what is left if anything is.
    Discard,
    /// Say FIN, tell by [`Connection::finished`], and go on.
    Finish,
    /// Drop it as soon as the client's kernel is known to have all that was said, and receive nothing until then: the
    /// deadline ends it otherwise.
    Part,
    /// Drop it: close(2).
    Close,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The engine's token, under which the relay answers.
    ticket: u64,
    peer: SocketAddr,
    local: SocketAddr,
    /// Over TLS.
    secure: bool,
    /// Received, but not yet a complete request, or not yet its turn.
    unread: Vec<u8>,
    /// What the kernel did not take at once.
    unsent: Vec<u8>,
    /// The body that follows it.
    tail: Option<Tail>,
    /// The body of the last request that was read.
    incoming: Incoming,
    /// Bytes of it since the deadline was wound up; `None` while there is none.
    body_taken: Option<u64>,
    /// The answer under way, when it takes time.
    exchange: Option<Box<Exchange>>,
    /// Requests that an origin still answers here; 0 before the first.
    uses_left: u32,
    /// Bytes that came after the last request, and were thrown away.
    discarded: u32,
    /// What this connection has of [`Desk::backlog`].
    kept: u32,
    /// When that was reckoned last, little was left for all.
    crowded: bool,
    /// It is to a HEAD, and the last of the connection.
    head_only: bool,
    last: bool,
    phase: Phase,
    /// Cut off in the middle of an answer: what the kernel still holds of it is not worth keeping.
    aborted: bool,
    /// Answering stopped because enough was owed; `unread` may hold complete requests.
    held_up: bool,
    /// The client sent its last byte.
    ended: bool,
    /// A head has begun, and the deadline is that of its end. True from accept on: the first head is awaited no
    /// longer than the others.
    head_began: bool,
    /// Something has been owed since the last time that nothing was, and so many bytes of it were taken since the
    /// deadline was wound up.
    owing: Option<u64>,
    /// See [`Connection::owes_below`].
    owes_below: bool,
    /// When it was last accepted, answered or awaited.
    spare_since: Timestamp,
    /// When patience ends.
    deadline: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are read and answered.
    Open,
    /// The last response is being sent; then the connection is closed.
    Ending,
    /// The same, but input may be left: closing at once would reset the connection and could destroy the response on
    /// its way (RFC 9112, section 9.6).
    EndingGently,
    /// Sent everything and said so; throwing away what still comes.
    Lingering,
    /// Of no use any more.
    Over,
}

impl Connection {
    /// For a connection of `peer` to `local` that was just accepted, and will be known by `ticket`.
    pub(crate) fn new(ticket: u64, peer: SocketAddr, local: SocketAddr, secure: bool, desk: &Desk) -> Self {
        desk.books.counters().connection_opened();
        Connection {
            ticket,
            peer,
            local,
            secure,
            unread: Vec::new(),
            unsent: Vec::new(),
            tail: None,
            incoming: Incoming::Nothing,
            body_taken: None,
            exchange: None,
            uses_left: 0,
            discarded: 0,
            kept: 0,
            crowded: false,
            head_only: false,
            last: false,
            phase: Phase::Open,
            aborted: false,
            held_up: false,
            ended: false,
            head_began: true,
            owing: None,
            owes_below: false,
            spare_since: desk.now,
            deadline: desk.now + desk.limits.head_time,
        }
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes in what was received, and answers what of it is complete.
    pub(crate) fn take(&mut self, desk: &mut Desk, bytes: &[u8]) {
        if self.phase != Phase::Open {
            return self.discarded(bytes.len());
        }
        if self.unread.is_empty() {
            // The usual case: parsed where it was received, and nothing is left.
            let used = self.work(desk, bytes);
            if used < bytes.len() {
                self.unread.extend_from_slice(&bytes[used..]);
            }
        } else {
            if self.unread.len() >= UNREAD_MAX {
                // What is on its way already when there is enough: it is not doubled for it.
                self.unread.reserve_exact(bytes.len().max(UNREAD_MAX));
            }
            self.unread.extend_from_slice(bytes);
            self.proceed(desk);
        }
    }

    /// Lets go of all that was to be said: there is no way to say it.
    pub(crate) fn abandon(&mut self, desk: &mut Desk) {
        self.leave_relay(desk);
        self.enter(desk, false);
        desk.out.clear();
        self.unsent = Vec::new();
        self.tail = None;
        self.phase = Phase::EndingGently;
    }

    /// The client has sent its last byte. One that awaits an answer of the relay is taken to be gone, as nginx takes it: a
    /// dynamic program must not work for clients that gave up, and FIN is all that can be seen of most of them. One that
    /// only closes its sending half (which HTTP allows, RFC 9112, section 9.6) does not get that answer.
    pub(crate) fn ended(&mut self) {
        self.ended = true;
        if self.phase == Phase::Lingering || (self.is_awaiting() && !self.has_all()) {
            self.phase = Phase::Over;
        }
    }

    /// So many bytes came that nobody wants any more.
    pub(crate) fn discarded(&mut self, bytes: usize) {
        self.discarded = self.discarded.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.phase == Phase::Ending && bytes > 0 {
            self.phase = Phase::EndingGently;
        }
    }

    /// The engine lets it go.
    pub(crate) fn leave(&mut self, desk: &mut Desk) {
        desk.backlog.change(self.kept, 0);
        self.kept = 0;
        let whole = self.was_sent_all();
        self.leave_relay(desk);
        self.enter(desk, whole);
        desk.books.counters().connection_closed();
    }

    /// Whether what the kernel still holds for the client should be thrown away with the connection: it was cut off in the
    /// middle of an answer that it did not take.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// Nothing more can be sent or received, or what was announced cannot be sent: the connection is of no use.
    pub(crate) fn broken(&mut self) {
        self.phase = Phase::Over;
        self.unsent = Vec::new();
        self.tail = None;
    }

    /// Answers what was held up.
    pub(crate) fn proceed(&mut self, desk: &mut Desk) {
        let mut unread = std::mem::take(&mut self.unread);
        let used = self.work(desk, &unread);
        if used < unread.len() {
            unread.drain(..used);
            if unread.len() <= UNREAD_MAX {
                // What a burst took is not kept for the next.
                unread.shrink_to(2 * UNREAD_MAX);
            }
            self.unread = unread;
        }
    }

    /// Whether [`Connection::proceed`] has something to do once nothing is left to send.
    pub(crate) fn has_more(&self) -> bool {
        self.held_up && !self.owes()
    }

    /// Answers complete requests at the beginning of `input`; returns how much of it was used up.
    fn work(&mut self, desk: &mut Desk, input: &[u8]) -> usize {
        let mut at = 0;
        self.held_up = false;
        loop {
            if self.phase != Phase::Open {
                // What comes after the last request means nothing.
                if self.phase == Phase::Ending && at < input.len() {
                    self.phase = Phase::EndingGently;
                }
                return input.len();
            }
            if !self.incoming.is_nothing() && at < input.len() {
                match self.read_body(desk, &input[at..]) {
                    0 => return at,
                    used => at += used,
                }
                continue;
            }
            if at == input.len() {
                return at;
            }
            if self.tail.is_some() || !self.unsent.is_empty() || desk.out.len() >= desk.backlog.output_full() {
                self.held_up = true;
                return at;
            }
            match parse(&input[at..], &desk.limits) {
                Parsed::Incomplete => return at,
                Parsed::Complete(request) => {
                    at += request.length;
                    self.respond(desk, &request);
                }
                Parsed::Refused(status) => self.refuse(desk, status, &input[at..]),
            }
        }
    }

    /// What to do now; asked when [`Connection::settle`] has been called.
    pub(crate) fn step(&self) -> Step {
        match self.phase {
            Phase::Over => Step::Close,
            // After its last byte there is nothing to receive, and asking would be answered at once, for ever.
            _ if self.owes() && self.ended => Step::Hold,
            Phase::Open if self.owes() => {
                if self.is_full() {
                    Step::Hold
                } else {
                    Step::Go
                }
            }
            _ if self.owes() => {
                if self.discarded < DISCARDED_MAX {
                    Step::Discard
                } else {
                    Step::Hold
                }
            }
            Phase::Ending => Step::Close,
            Phase::EndingGently => Step::Finish,
            Phase::Lingering if self.discarded < DISCARDED_MAX => Step::Discard,
            Phase::Lingering => Step::Part,
            Phase::Open if self.held_up => Step::Hold,
            // Half a request, or none: nothing is owed.
            Phase::Open if self.ended => Step::Close,
            Phase::Open => Step::Go,
        }
    }

    /// FIN has been said, as [`Step::Finish`] asked.
    pub(crate) fn finished(&mut self, desk: &Desk) {
        self.phase = if self.ended { Phase::Over } else { Phase::Lingering };
        self.deadline = desk.now + LINGER;
    }

    /// The server ends: this connection ends with the answer it is busy with.
    pub(crate) fn stop(&mut self) {
        match self.phase {
            Phase::Open if !self.owes() => self.phase = Phase::Ending,
            Phase::Open if self.is_awaiting() => self.last = true,
            Phase::Open => self.phase = Phase::EndingGently,
            _ => {}
        }
    }

    /// Whether so much has been received and not answered that no more should be received. Where little room is left for
    /// all, nothing is received ahead of what is owed.
    pub(crate) fn is_full(&self) -> bool {
        self.unread.len() >= UNREAD_MAX || (self.crowded && self.owes())
    }

    /// Whether requests are read on after what is owed.
    pub(crate) fn stays_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether everything that there was to say has been handed over, and nothing follows.
    pub(crate) fn says_no_more(&self) -> bool {
        let ends = matches!(self.phase, Phase::Ending | Phase::EndingGently);
        !self.owes() && (ends || (self.phase == Phase::Open && self.ended && !self.held_up))
    }

    /// So much of what was handed over has been taken from whoever stands between this and the engine.
    pub(crate) fn taken_below(&mut self, count: usize) {
        if let Some(taken) = &mut self.owing {
            *taken += count as u64;
        }
    }

    /// What was handed over is still to be sent by whoever stands between this and the engine.
    pub(crate) fn owes_below(&mut self, owes: bool) {
        self.owes_below = owes;
    }

    fn owes(&self) -> bool {
        self.owes_below || !self.unsent.is_empty() || self.tail.is_some()
    }

    /// Whether something is owed that is there to be sent.
    fn has_to_send(&self) -> bool {
        self.owes_below || !self.unsent.is_empty() || !matches!(self.tail, None | Some(Tail::Awaited))
    }

    fn is_awaiting(&self) -> bool {
        matches!(self.tail, Some(Tail::Awaited))
    }

    /// Whether the relay awaits more of the request's body.
    fn awaits_body(&self) -> bool {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        !self.incoming.is_nothing() && relayed.is_none_or(|relayed| relayed.room > 0)
    }
}

/// Responses collected before they are sent: enough to make a system call worth it, little enough to stay in the
/// processor's cache, and what a client that takes nothing can make the server keep.
const OUTPUT_FULL: usize = 32 << 10;
/// Requests that wait for their turn, beyond which no more is received.
const UNREAD_MAX: usize = 16 << 10;
/// What a client goes on sending after its last answer is read, so that the answer is not lost in a reset (RFC 9112,
/// section 9.6), but not without end: each byte taken makes room for another, which the kernel carries on this core, and a
/// flood of refused heads costs as much as it is let. Four windows of a client that has heard nothing yet.
const DISCARDED_MAX: u32 = 256 << 10;

#[cfg(test)]
mod tests;
