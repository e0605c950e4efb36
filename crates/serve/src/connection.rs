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
//! `heard` with what the relay had to say. After any of these it must, before it turns to another
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
//! taken at once, owns no memory but itself.

use std::fs::File;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use bytes::Buf as _;
use units::Timestamp;

use crate::answer::{COPY_MAX, Piece, Reply, Tail, answer};
use crate::date::{DateField, seconds};
use crate::files::{Content, Files, Page};
use crate::request::{Parsed, Request, parse};
use crate::response::{Fate, Status, write_refusal};
use crate::spec::Limits;

use incoming::Incoming;

mod incoming;

/// What a worker lends to the connection it is busy with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) files: Files,
    pub(crate) date: DateField,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    /// Heads and small bodies that the connection at hand has to send. Empty between connections.
    pub(crate) out: Vec<u8>,
    /// The same in TLS records.
    pub(crate) sealed: Vec<u8>,
    /// What a client said through TLS, while it is taken in.
    pub(crate) plain: Vec<u8>,
    /// What is about to be sealed.
    pub(crate) chunk: Vec<u8>,
    /// The server ends: answers are the last ones of their connections.
    pub(crate) stopping: bool,
}

impl Desk {
    pub(crate) fn new(files: Files, limits: Limits, now: Timestamp) -> Self {
        let limits = Limits { head_bytes: limits.head_bytes.min(HEAD_BYTES_MAX), ..limits };
        let out = Vec::with_capacity(OUTPUT_FULL + COPY_MAX);
        Desk {
            files,
            date: DateField::new(now),
            limits,
            now,
            out,
            sealed: Vec::new(),
            plain: Vec::new(),
            chunk: Vec::new(),
            stopping: false,
        }
    }
}

/// What is to be sent next.
#[derive(Debug)]
pub(crate) enum Outbound<'a> {
    /// Nothing now.
    Nothing,
    /// These bytes; `more`: others follow as soon as they are taken.
    Bytes(&'a [u8], bool),
    /// These, one after the other.
    Both(&'a [u8], &'a [u8]),
    /// First `front`, which may be empty, then a part of a file.
    File { front: &'a [u8], file: &'a File, range: Range<u64> },
}

/// What is to be done about a connection once it has nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Receive, and send what is left if anything is.
    Go,
    /// Receive nothing for now: it has enough to answer, or waits for the relay.
    Hold,
    /// Say FIN, tell by [`Connection::finished`], and go on receiving: what comes is thrown away.
    Finish,
    /// Drop it: close(2).
    Close,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: SocketAddr,
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
    phase: Phase,
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
    /// For a connection of `peer` that was just accepted.
    pub(crate) fn new(peer: SocketAddr, desk: &Desk) -> Self {
        Connection {
            peer,
            unread: Vec::new(),
            unsent: Vec::new(),
            tail: None,
            incoming: Incoming::Nothing,
            body_taken: None,
            phase: Phase::Open,
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
            return;
        }
        if self.unread.is_empty() {
            // The usual case: parsed where it was received, and nothing is left.
            let used = self.work(desk, bytes);
            if used < bytes.len() {
                self.unread.extend_from_slice(&bytes[used..]);
            }
        } else {
            self.unread.extend_from_slice(bytes);
            self.proceed(desk);
        }
    }

    /// Lets go of all that was to be said: there is no way to say it.
    pub(crate) fn abandon(&mut self, desk: &mut Desk) {
        desk.out.clear();
        self.unsent = Vec::new();
        self.tail = None;
        self.phase = Phase::EndingGently;
    }

    /// The client has sent its last byte.
    pub(crate) fn ended(&mut self) {
        self.ended = true;
        if self.phase == Phase::Lingering {
            self.phase = Phase::Over;
        }
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
            self.unread = unread;
        }
    }

    /// Whether [`Connection::proceed`] has something to do once nothing is left to send.
    pub(crate) fn has_more(&self) -> bool {
        self.held_up
    }

    /// Answers complete requests at the beginning of `input`; returns how much of it was used up.
    fn work(&mut self, desk: &mut Desk, input: &[u8]) -> usize {
        let mut at = 0;
        self.held_up = false;
        loop {
            if self.phase != Phase::Open {
                // What comes after the last request means nothing.
                return input.len();
            }
            if !self.incoming.is_nothing() && at < input.len() {
                match self.incoming.read(&input[at..]) {
                    Ok((used, content)) => {
                        at += used;
                        *self.body_taken.get_or_insert(0) += content.len() as u64;
                    }
                    Err(status) => self.refuse(desk, status),
                }
                continue;
            }
            if at == input.len() {
                return at;
            }
            if self.tail.is_some() || !self.unsent.is_empty() || desk.out.len() >= OUTPUT_FULL {
                self.held_up = true;
                return at;
            }
            match parse(&input[at..], &desk.limits) {
                Parsed::Incomplete => return at,
                Parsed::Complete(request) => {
                    at += request.length;
                    self.respond(desk, &request);
                    if self.phase == Phase::Ending && at < input.len() {
                        self.phase = Phase::EndingGently;
                    }
                }
                Parsed::Refused(status) => self.refuse(desk, status),
            }
        }
    }

    fn respond(&mut self, desk: &mut Desk, request: &Request<'_>) {
        self.head_began = false;
        match Incoming::new(request.body, desk.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse(desk, status),
        }
        let has_body = !self.incoming.is_nothing();
        // A client that holds its body back may drop it at the final answer or send it all the same: what follows would have
        // two meanings (RFC 9110, section 10.1.1).
        let keep = request.keep_alive && !request.expects_continue && !desk.stopping;
        let fate = match (keep, request.old) {
            (true, false) => Fate::Kept,
            (true, true) => Fate::KeptOld,
            (false, _) => Fate::Closed,
        };
        if !keep {
            self.phase = if has_body { Phase::EndingGently } else { Phase::Ending };
        }
        let Reply { body, .. } =
            answer(&mut desk.files, request, seconds(desk.now), desk.date.line(), fate, &mut desk.out);
        self.tail = body;
        self.skip_what_is_sent();
    }

    /// Answers what is no request, or none that is waited for.
    fn refuse(&mut self, desk: &mut Desk, status: Status) {
        write_refusal(&mut desk.out, status, desk.date.line(), Fate::Closed, false);
        self.phase = Phase::EndingGently;
    }

    /// What is to be sent now.
    pub(crate) fn outbound<'a>(&'a self, desk: &'a Desk) -> Outbound<'a> {
        let front = if self.unsent.is_empty() { &desk.out[..] } else { &self.unsent[..] };
        match &self.tail {
            None | Some(Tail::Awaited(_)) if front.is_empty() => Outbound::Nothing,
            None | Some(Tail::Awaited(_)) => Outbound::Bytes(front, false),
            Some(Tail::Page(page, range)) => page_part(front, page, range),
            Some(Tail::Pieces(pieces)) => match pieces.front() {
                Some(Piece::Text(text)) => Outbound::Both(front, text),
                Some(Piece::Page(page, range)) => page_part(front, page, range),
                None => Outbound::Nothing,
            },
            Some(Tail::Stored(bytes)) => Outbound::Both(front, bytes),
        }
    }

    /// The kernel has taken the first `count` bytes of what [`Connection::outbound`] offered.
    pub(crate) fn sent(&mut self, desk: &mut Desk, count: usize) {
        if let Some(taken) = &mut self.owing {
            *taken += count as u64;
        }
        let front = if self.unsent.is_empty() { &mut desk.out } else { &mut self.unsent };
        let of_front = count.min(front.len());
        if of_front == front.len() {
            front.clear();
        } else {
            front.drain(..of_front);
        }
        let rest = (count - of_front) as u64;
        match &mut self.tail {
            None => {}
            Some(Tail::Page(_, range)) => range.start += rest,
            Some(Tail::Pieces(pieces)) => match pieces.front_mut() {
                // A rare piece of some hundred bytes, rarely cut.
                Some(Piece::Text(text)) => *text = text[rest as usize..].into(),
                Some(Piece::Page(_, range)) => range.start += rest,
                None => {}
            },
            Some(Tail::Stored(bytes)) => bytes.advance(rest as usize),
            Some(Tail::Awaited(_)) => {}
        }
        self.skip_what_is_sent();
    }

    /// Lets go of a tail, or of pieces of it, of which nothing is left.
    fn skip_what_is_sent(&mut self) {
        let over = match &mut self.tail {
            None => false,
            Some(Tail::Page(_, range)) => range.is_empty(),
            Some(Tail::Pieces(pieces)) => {
                while pieces.front().is_some_and(is_sent) {
                    pieces.pop_front();
                }
                pieces.is_empty()
            }
            Some(Tail::Stored(bytes)) => bytes.is_empty(),
            Some(Tail::Awaited(_)) => false,
        };
        if over {
            self.tail = None;
        }
    }

    /// What [`Connection::sent`] was told was not taken after all: it goes first.
    pub(crate) fn not_sent(&mut self, bytes: &[u8]) {
        self.unsent.splice(..0, bytes.iter().copied());
    }

    /// Ends this connection's turn: keeps what is still to be sent, and winds the clock up.
    pub(crate) fn settle(&mut self, desk: &mut Desk) {
        if !desk.out.is_empty() {
            self.unsent.extend_from_slice(&desk.out);
            desk.out.clear();
        } else if self.unsent.is_empty() && self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
        }
        if self.phase == Phase::Lingering || self.phase == Phase::Over {
            return;
        }
        if self.owes() {
            // Wound up when something begins to be owed, and each time that enough of it was taken: a client that takes
            // a byte now and then keeps its place no longer than one that takes none.
            if self.owing.is_none_or(|taken| taken >= PROGRESS_BYTES) {
                self.owing = Some(0);
                self.deadline = desk.now + desk.limits.stall_time;
            }
            return;
        }
        let owed = self.owing.take().is_some();
        if owed || !self.head_began {
            self.spare_since = desk.now;
        }
        if !self.incoming.is_nothing() {
            // As for what is owed: enough of a body must come within its time.
            if owed || self.body_taken.is_none_or(|taken| taken >= BODY_PROGRESS_BYTES) {
                self.body_taken = Some(0);
                self.deadline = desk.now + desk.limits.body_time;
            }
            return;
        }
        self.body_taken = None;
        if self.unread.is_empty() {
            if !self.head_began {
                self.deadline = desk.now + desk.limits.idle_time;
            }
        } else if !self.head_began || owed {
            // The clock of a head starts with its first byte; further bytes do not wind it up again.
            self.head_began = true;
            self.deadline = desk.now + desk.limits.head_time;
        }
    }

    /// What to do now; asked when [`Connection::settle`] has been called.
    pub(crate) fn step(&self) -> Step {
        match self.phase {
            Phase::Over => Step::Close,
            _ if self.owes() => if self.unread.len() < UNREAD_MAX { Step::Go } else { Step::Hold },
            Phase::Ending => Step::Close,
            Phase::EndingGently => Step::Finish,
            Phase::Open if self.held_up => Step::Hold,
            // Half a request, or none: nothing is owed.
            Phase::Open if self.ended => Step::Close,
            Phase::Open | Phase::Lingering => Step::Go,
        }
    }

    /// FIN has been said, as [`Step::Finish`] asked.
    pub(crate) fn finished(&mut self, desk: &Desk) {
        self.phase = if self.ended { Phase::Over } else { Phase::Lingering };
        self.deadline = desk.now + LINGER;
    }

    /// When patience ends.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Patience has ended, unless the deadline has moved meanwhile: what is left to say is in `desk.out`.
    pub(crate) fn late(&mut self, desk: &mut Desk) {
        if desk.now < self.deadline {
            return;
        }
        // RFC 9110, section 15.5.9. A client that never began has nothing to be told.
        if self.phase == Phase::Open && !self.owes() && self.head_began && !self.unread.is_empty() {
            self.refuse(desk, Status::RequestTimeout);
        } else if self.phase == Phase::Open && !self.owes() {
            self.phase = Phase::Ending;
        } else {
            self.broken();
        }
    }

    /// The server ends: this connection ends with the answer it is busy with.
    pub(crate) fn stop(&mut self) {
        match self.phase {
            Phase::Open if !self.owes() => self.phase = Phase::Ending,
            Phase::Open => self.phase = Phase::EndingGently,
            _ => {}
        }
    }

    /// Since when it could be dropped to make room for another: no answer is under way.
    pub(crate) fn spare_since(&self) -> Option<Timestamp> {
        (!self.owes()).then_some(self.spare_since)
    }

    /// Whether everything that there was to say has been handed over, and nothing follows.
    pub(crate) fn says_no_more(&self) -> bool {
        let ends = matches!(self.phase, Phase::Ending | Phase::EndingGently);
        !self.owes() && (ends || (self.phase == Phase::Open && self.ended && !self.held_up))
    }

    /// What was handed over is still to be sent by whoever stands between this and the engine.
    pub(crate) fn owes_below(&mut self, owes: bool) {
        self.owes_below = owes;
    }

    fn owes(&self) -> bool {
        self.owes_below || !self.unsent.is_empty() || self.tail.is_some()
    }
}

fn is_sent(piece: &Piece) -> bool {
    match piece {
        Piece::Text(text) => text.is_empty(),
        Piece::Page(_, range) => range.is_empty(),
    }
}

fn page_part<'a>(front: &'a [u8], page: &'a Page, range: &Range<u64>) -> Outbound<'a> {
    match &page.content {
        Content::Held(bytes) => Outbound::Both(front, &bytes[range.start as usize..range.end as usize]),
        Content::Stored(file, _) => Outbound::File { front, file, range: range.clone() },
    }
}

/// Heads may be this long: one more receive always makes progress.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Responses collected before they are sent: enough to make a system call worth it, little enough to stay in the
/// processor's cache, and what a client that takes nothing can make the server keep.
const OUTPUT_FULL: usize = 32 << 10;
/// Requests that wait for their turn, beyond which no more is received.
const UNREAD_MAX: usize = 16 << 10;
/// A client must take so much within the stall time: 273 bytes a second with the default of a minute.
const PROGRESS_BYTES: u64 = 16 << 10;
/// The same for the body of a request, which may be a form of a few bytes on a bad line: 17 bytes a second.
const BODY_PROGRESS_BYTES: u64 = 1 << 10;
/// How long a client may take to notice that the connection has ended. Its own data is not wanted.
const LINGER: Duration = Duration::from_secs(2);
