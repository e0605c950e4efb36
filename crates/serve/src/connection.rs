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
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use units::Timestamp;

use crate::answer::{COPY_MAX, Piece, Reply, Tail, answer};
use crate::cache::{Asked, Cache, Finding};
use crate::date::{DateField, seconds};
use crate::dynamic::Front;
use crate::engine::turn::Turn;
use crate::figures::{Kind, Refusal};
use crate::files::{Content, Files, Page};
use crate::journal::{Books, Entry};
use crate::request::{Method, Parsed, Request, parse};
use crate::response::{Fate, Status, write_refusal};
use crate::spec::Limits;
use crate::status::Board;
use crate::target::plain;

use exchange::Exchange;
use incoming::Incoming;

mod exchange;
mod incoming;

/// What a worker lends to the connection it is busy with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) files: Files,
    pub(crate) date: DateField,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    pub(crate) books: Books,
    pub(crate) board: Board,
    /// The way to the relay, where something is dynamic.
    pub(crate) front: Option<Front>,
    /// The results that the relay keeps.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Heads and small bodies that the connection at hand has to send. Empty between connections.
    pub(crate) out: Vec<u8>,
    /// The same in TLS records.
    pub(crate) sealed: Vec<u8>,
    /// What a client said through TLS, while it is taken in.
    pub(crate) plain: Vec<u8>,
    /// What is about to be sealed.
    pub(crate) chunk: Vec<u8>,
    /// A path that is compared with the routes.
    path: Vec<u8>,
    /// The server ends: answers are the last ones of their connections.
    pub(crate) stopping: bool,
    /// How long heavy work may go on in this turn of the loop.
    pub(crate) turn: Turn,
}

impl Desk {
    pub(crate) fn new(files: Files, limits: Limits, now: Timestamp, books: Books, board: Board) -> Self {
        let limits = Limits { head_bytes: limits.head_bytes.min(HEAD_BYTES_MAX), ..limits };
        let out = Vec::with_capacity(OUTPUT_FULL + COPY_MAX);
        Desk {
            files,
            date: DateField::new(now),
            limits,
            now,
            books,
            board,
            front: None,
            cache: None,
            out,
            sealed: Vec::new(),
            plain: Vec::new(),
            chunk: Vec::new(),
            path: Vec::new(),
            stopping: false,
            turn: Turn::default(),
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
    /// Say FIN, tell by [`Connection::finished`], and go on receiving: what comes is thrown away.
    Finish,
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
        self.leave_relay(desk);
        self.enter(desk, false);
        desk.out.clear();
        self.unsent = Vec::new();
        self.tail = None;
        self.phase = Phase::EndingGently;
    }

    /// The client has sent its last byte. One that awaits an answer of the relay is taken to be gone: a dynamic program
    /// must not work for clients that gave up.
    pub(crate) fn ended(&mut self) {
        self.ended = true;
        if self.phase == Phase::Lingering || (self.is_awaiting() && !self.has_all()) {
            self.phase = Phase::Over;
        }
    }

    /// The engine lets it go.
    pub(crate) fn leave(&mut self, desk: &mut Desk) {
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
                Parsed::Refused(status) => self.refuse(desk, status, &input[at..]),
            }
        }
    }

    /// Reads the body of a request from the beginning of `input`; returns how much was used up, 0 when the relay takes
    /// no more now.
    fn read_body(&mut self, desk: &mut Desk, input: &[u8]) -> usize {
        let relayed = self.exchange.as_mut().and_then(|exchange| exchange.relayed.as_mut());
        let most = relayed.as_ref().map_or(usize::MAX, |relayed| relayed.room).min(input.len());
        if most == 0 {
            return 0;
        }
        let (used, content) = match self.incoming.read(&input[..most]) {
            Ok(read) => read,
            Err(status) => {
                self.refuse_body(desk, status);
                return input.len();
            }
        };
        *self.body_taken.get_or_insert(0) += content.len() as u64;
        if let (Some(relayed), Some(front)) = (relayed, &mut desk.front) {
            if !content.is_empty() {
                relayed.room -= content.len();
                front.body(self.ticket, &input[content]);
            }
            if self.incoming.is_nothing() {
                front.body_ended(self.ticket);
            }
        }
        used
    }

    fn respond(&mut self, desk: &mut Desk, request: &Request<'_>) {
        self.head_began = false;
        self.head_only = request.method == Method::Head;
        desk.books.began();
        if desk.front.is_some() && request.path.starts_with(b"/") && self.respond_dynamically(desk, request) {
            return;
        }
        match Incoming::new(request.body, desk.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse_answered(desk, status, request),
        }
        // A client that holds its body back may drop it at the final answer or send it all the same: what follows would have
        // two meanings (RFC 9110, section 10.1.1).
        let fate = self.fate(desk, request, !request.expects_continue);
        let (date, out) = (desk.date.line(), &mut desk.out);
        let mut kind = Kind::Static;
        let own = if request.path.starts_with(b"/-/") {
            desk.board.answer(request, self.peer.ip(), desk.now, date, fate, out)
        } else {
            None
        };
        let Reply { status, content_bytes, body } = match own {
            Some(reply) => {
                kind = Kind::Status;
                reply
            }
            None => answer(&mut desk.files, request, seconds(desk.now), date, fate, out),
        };
        self.follow(desk, request, status, content_bytes, body, kind, Finding::NONE);
    }

    /// Answers out of the result cache, or asks the relay; false when the path is a file's.
    fn respond_dynamically(&mut self, desk: &mut Desk, request: &Request<'_>) -> bool {
        // A path that no file can have is for the files to refuse.
        let Ok(path) = plain(request.path, &mut desk.path) else { return false };
        let Some(route) = desk.front.as_ref().and_then(|front| front.routed(path)) else { return false };
        if let Some(cache) = &desk.cache
            && let Ok(asked) = Asked::of(request, self.secure)
            && let Some(fresh) = cache.fresh(&asked, desk.now, &mut desk.out)
        {
            let fate = self.fate(desk, request, true);
            desk.out.extend_from_slice(fate.field());
            desk.out.extend_from_slice(b"\r\n");
            let length = fresh.body.len();
            let body = if length <= COPY_MAX {
                desk.out.extend_from_slice(&fresh.body);
                None
            } else {
                Some(Tail::Stored(fresh.body))
            };
            self.follow(desk, request, fresh.status, length as u64, body, Kind::Dynamic, fresh.finding);
        } else {
            self.ask(desk, request, route);
        }
        true
    }

    /// What becomes of the connection after an answer that may `keep` it.
    fn fate(&mut self, desk: &Desk, request: &Request<'_>, keep: bool) -> Fate {
        let keep = keep && request.keep_alive && !desk.stopping;
        if !keep {
            self.phase = if self.incoming.is_nothing() { Phase::Ending } else { Phase::EndingGently };
        }
        Fate::of(keep, request.old)
    }

    /// An answer's head is written: enters it into the books, now or when its body has gone.
    #[allow(clippy::too_many_arguments, reason = "what is known of an answer")]
    fn follow(
        &mut self,
        desk: &mut Desk,
        request: &Request<'_>,
        status: u16,
        content_bytes: u64,
        body: Option<Tail>,
        kind: Kind,
        finding: Finding,
    ) {
        let Some(tail) = body else { return self.note(desk, request, status, content_bytes, kind, finding) };
        let kept = desk.books.keep(request.head);
        let began = desk.now;
        self.exchange =
            Some(Box::new(Exchange { kept, status, content_bytes, kind, finding, began, relayed: None }));
        self.tail = Some(tail);
        self.skip_what_is_sent(desk);
    }

    /// Answers what is no request; `head` is what there is of it.
    fn refuse(&mut self, desk: &mut Desk, status: Status, head: &[u8]) {
        write_refusal(&mut desk.out, status, desk.date.line(), Fate::Closed, false);
        self.phase = Phase::EndingGently;
        desk.books.refused(&Entry {
            peer: self.peer.ip(),
            head,
            status: status.code(),
            content_bytes: 0,
            kind: Kind::Refused,
            finding: Finding::NONE,
            began: desk.now,
            ended: desk.now,
            whole: true,
        });
    }

    /// What is to be sent now.
    pub(crate) fn outbound<'a>(&'a self, desk: &'a Desk) -> Outbound<'a> {
        let front = if self.unsent.is_empty() { &desk.out[..] } else { &self.unsent[..] };
        match &self.tail {
            None | Some(Tail::Awaited) if front.is_empty() => Outbound::Nothing,
            None | Some(Tail::Awaited) => Outbound::Bytes(front, false),
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
        let front = if self.unsent.is_empty() { &desk.out } else { &self.unsent };
        let of_front = count.min(front.len());
        self.acknowledge(desk, of_front);
        let front = if self.unsent.is_empty() { &mut desk.out } else { &mut self.unsent };
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
            Some(Tail::Awaited) => {}
        }
        self.skip_what_is_sent(desk);
    }

    /// Lets go of a tail, or of pieces of it, of which nothing is left.
    fn skip_what_is_sent(&mut self, desk: &mut Desk) {
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
            Some(Tail::Awaited) => false,
        };
        if over {
            self.tail = None;
            self.enter(desk, true);
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
        if self.has_to_send() {
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
        if self.is_awaiting() && !self.awaits_body() {
            // The relay has its own clocks.
            self.body_taken = None;
            self.deadline = Timestamp::MAX;
            return;
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
        let counters = desk.books.counters();
        counters.connection_refused(Refusal::Late);
        if self.phase == Phase::Open && self.is_awaiting() && !self.has_to_send() {
            self.refuse_body(desk, Status::RequestTimeout);
        } else if self.phase != Phase::Open || self.owes() {
            self.aborted = self.has_to_send();
            self.enter(desk, false);
            self.broken();
        } else if self.head_began && !self.unread.is_empty() {
            // RFC 9110, section 15.5.9. A client that never began has nothing to be told.
            let head = std::mem::take(&mut self.unread);
            self.refuse(desk, Status::RequestTimeout, &head);
        } else {
            self.phase = Phase::Ending;
        }
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

    /// Since when it could be dropped to make room for another: no answer is under way.
    pub(crate) fn spare_since(&self) -> Option<Timestamp> {
        (!self.owes()).then_some(self.spare_since)
    }

    /// Whether so much has been received and not answered that no more should be received.
    pub(crate) fn is_full(&self) -> bool {
        self.unread.len() >= UNREAD_MAX
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

fn is_sent(piece: &Piece) -> bool {
    match piece {
        Piece::Text(text) => text.is_empty(),
        Piece::Page(_, range) => range.is_empty(),
    }
}

fn page_part<'a>(front: &'a [u8], page: &'a Page, range: &Range<u64>) -> Outbound<'a> {
    match &page.content {
        Content::Held(bytes) => Outbound::Both(front, &bytes[range.start as usize..range.end as usize]),
        Content::Stored(file, _) => Outbound::File { front, file, page, range: range.clone() },
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

#[cfg(test)]
mod tests;
