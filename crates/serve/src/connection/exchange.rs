//! An answer that takes time: its place in the books, and what comes of it from the relay.

use bytes::Bytes;
use units::Timestamp;

use super::visiting::Visit;
use super::{Connection, Desk, Phase};
use crate::answer::Tail;
use crate::cache::Finding;
use crate::connection::incoming::Incoming;
use crate::dynamic::{Ask, Event};
use crate::figures::Kind;
use crate::journal::{Entry, Kept, NO_ANSWER};
use crate::phrase::{reason_phrase, status_line};
use crate::request::{Method, Request, as_known_version};
use crate::response::{Fate, Status, field, write_refusal};

/// An answer that was not over when it began.
#[derive(Debug)]
pub(super) struct Exchange {
    pub kept: Kept,
    pub status: u16,
    /// Of a static answer all of it, of a dynamic one what has come so far.
    pub content_bytes: u64,
    pub kind: Kind,
    pub finding: Finding,
    pub began: Timestamp,
    /// It comes from the relay.
    pub relayed: Option<Relayed>,
    /// It is awaited of an origin.
    pub visit: Option<Visit>,
    /// It is an origin's answer, of an object of this world.
    pub world: Option<u32>,
}

/// What has to be known of a dynamic answer.
#[derive(Debug)]
pub(super) struct Relayed {
    /// HTTP/1.0.
    old: bool,
    /// The client wants the connection kept.
    keep_alive: bool,
    /// It holds its body back until it is told 100.
    expects_continue: bool,
    /// So many bytes of the body may be passed on.
    pub room: usize,
    /// None before its head has come.
    framing: Option<Framing>,
    /// Bytes on their way to the client that the relay has not been told about.
    unacknowledged: usize,
}

/// How the client finds the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// So many bytes are left.
    Length(u64),
    Chunks,
    /// The connection ends with it.
    Close,
}

impl Relayed {
    /// Whether the head of the answer has gone.
    pub fn has_begun(&self) -> bool {
        self.framing.is_some()
    }
}

impl Connection {
    /// Hands a request over to the relay.
    pub(super) fn ask(&mut self, desk: &mut Desk, request: &Request<'_>, route: usize) {
        self.incoming = match Incoming::new(request.body, desk.limits.body_bytes) {
            Ok(incoming) => incoming,
            Err(status) => return self.refuse_answered(desk, status, request),
        };
        self.exchange = Some(Box::new(Exchange {
            kept: desk.books.keep(request.head),
            status: NO_ANSWER,
            content_bytes: 0,
            kind: Kind::Dynamic,
            finding: Finding::NONE,
            began: desk.now,
            relayed: Some(Relayed {
                old: request.old,
                keep_alive: request.keep_alive,
                expects_continue: request.expects_continue,
                room: 0,
                framing: None,
                unacknowledged: 0,
            }),
            visit: None,
            world: None,
        }));
        self.tail = Some(Tail::Awaited);
        let mut head: Box<[u8]> = request.head.into();
        as_known_version(&mut head);
        let ask = Ask {
            ticket: self.ticket,
            route,
            head,
            body: request.body,
            peer: self.peer,
            local: self.local,
            secure: self.secure,
        };
        if let Some(front) = &mut desk.front {
            front.ask(ask);
        }
    }

    /// Answers in the place of a relay that takes no more requests of this kind now. `page`: status, field lines, text.
    pub(super) fn turn_away(&mut self, desk: &mut Desk, request: &Request<'_>, page: &(u16, Bytes, Bytes)) {
        match Incoming::new(request.body, desk.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse_answered(desk, status, request),
        }
        // As for files: a body that is held back may come or not.
        let fate = self.fate(desk, request, !request.expects_continue);
        let (status, fields, text) = page;
        let out = &mut desk.out;
        status_line(out, *status);
        out.extend_from_slice(fields);
        field(out, format_args!("Content-Length: {}\r\n", text.len()));
        out.extend_from_slice(fate.field());
        out.extend_from_slice(b"\r\n");
        let text: &[u8] = if self.head_only { b"" } else { text };
        out.extend_from_slice(text);
        self.note(desk, request, *status, text.len() as u64, Kind::Dynamic, Finding::NONE);
    }

    /// Takes in what the relay has to say. As after [`Connection::take`], what is to be sent is to be sent.
    pub(crate) fn heard(&mut self, desk: &mut Desk, event: Event) {
        let Some(exchange) = self.exchange.as_mut() else { return };
        let Some(relayed) = exchange.relayed.as_mut() else { return };
        match event {
            Event::Room(bytes) => {
                relayed.room += bytes;
                // Once the answer has begun, it would stand in the middle of that.
                if std::mem::take(&mut relayed.expects_continue) && !relayed.has_begun() {
                    desk.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.proceed(desk);
            }
            Event::Interim { status, fields } => {
                if !relayed.old && relayed.framing.is_none() {
                    let line = format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status));
                    desk.out.extend_from_slice(line.as_bytes());
                    desk.out.extend_from_slice(&fields);
                    desk.out.extend_from_slice(b"\r\n");
                }
            }
            Event::Head { status, fields, length, finding } => {
                exchange.status = status;
                exchange.finding = finding;
                self.begin_answer(desk, status, &fields, length);
            }
            Event::Body(bytes) => self.pass_on(desk, &bytes),
            Event::End => self.end_answer(desk),
            Event::Broken => self.cut(desk),
        }
    }

    fn begin_answer(&mut self, desk: &mut Desk, status: u16, fields: &[u8], length: Option<u64>) {
        let Some(relayed) = self.exchange.as_mut().and_then(|exchange| exchange.relayed.as_mut()) else { return };
        // An answer before the request is whole: whether the client still sends the rest is its own decision.
        let whole = self.incoming.is_nothing() && !relayed.expects_continue;
        let may_have_body = !self.head_only && status != 204 && status != 304;
        let framing = match length {
            Some(bytes) if may_have_body => Framing::Length(bytes),
            _ if !may_have_body => Framing::Length(0),
            _ if relayed.old => Framing::Close,
            _ => Framing::Chunks,
        };
        let keep = relayed.keep_alive && whole && framing != Framing::Close && !desk.stopping;
        if !keep {
            self.last = true;
        }
        relayed.framing = Some(framing);
        let out = &mut desk.out;
        status_line(out, status);
        out.extend_from_slice(fields);
        if framing == Framing::Chunks {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if let Some(bytes) = length.filter(|_| status != 204) {
            field(out, format_args!("Content-Length: {bytes}\r\n"));
        }
        out.extend_from_slice(Fate::of(keep, relayed.old).field());
        out.extend_from_slice(b"\r\n");
    }

    fn pass_on(&mut self, desk: &mut Desk, bytes: &Bytes) {
        let Some(exchange) = self.exchange.as_mut() else { return };
        let Some(relayed) = exchange.relayed.as_mut() else { return };
        exchange.content_bytes += bytes.len() as u64;
        match &mut relayed.framing {
            // An empty chunk would be the end.
            _ if bytes.is_empty() => return,
            Some(Framing::Length(left)) => match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                // Longer than announced: what is too much would be read as the next answer.
                None => return self.cut(desk),
            },
            Some(Framing::Chunks) => field(&mut desk.out, format_args!("{:x}\r\n", bytes.len())),
            Some(Framing::Close) => {}
            None => return self.cut(desk),
        }
        desk.out.extend_from_slice(bytes);
        if relayed.framing == Some(Framing::Chunks) {
            desk.out.extend_from_slice(b"\r\n");
        }
        relayed.unacknowledged += bytes.len();
    }

    fn end_answer(&mut self, desk: &mut Desk) {
        let Some(exchange) = self.exchange.as_mut() else { return };
        match exchange.relayed.as_ref().and_then(|relayed| relayed.framing) {
            Some(Framing::Chunks) => desk.out.extend_from_slice(b"0\r\n\r\n"),
            Some(Framing::Length(0) | Framing::Close) => {}
            // Shorter than announced, or nothing at all.
            Some(Framing::Length(_)) | None => return self.cut(desk),
        }
        exchange.relayed = None;
        self.tail = None;
        self.enter(desk, true);
        if self.last {
            self.phase = Phase::EndingGently;
        }
        self.proceed(desk);
    }

    /// The answer cannot become whole: only the end of the connection tells the client, after what there is of it.
    fn cut(&mut self, desk: &mut Desk) {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        let ends_by_close = relayed.is_some_and(|relayed| relayed.framing == Some(Framing::Close));
        self.leave_relay(desk);
        self.enter(desk, false);
        if ends_by_close {
            // An orderly end would say that it is whole.
            self.aborted = true;
            self.broken();
        } else {
            self.phase = Phase::Ending;
        }
    }

    /// Whether the client has been given all of the answer, although the relay has not said so yet.
    pub(super) fn has_all(&self) -> bool {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        relayed.is_some_and(|relayed| relayed.framing == Some(Framing::Length(0)))
    }

    /// Tells the relay that nobody wants its answer any more, if one is awaited.
    pub(super) fn leave_relay(&mut self, desk: &mut Desk) {
        if let Some(exchange) = &mut self.exchange
            && exchange.relayed.take().is_some()
            && let Some(front) = &mut desk.front
        {
            front.cancel(self.ticket);
        }
        if matches!(self.tail, Some(Tail::Awaited)) {
            self.tail = None;
        }
    }

    /// Tells the relay how much has gone to the client.
    pub(super) fn acknowledge(&mut self, desk: &mut Desk, count: usize) {
        let Some(relayed) = self.exchange.as_mut().and_then(|exchange| exchange.relayed.as_mut()) else { return };
        let bytes = count.min(relayed.unacknowledged);
        if bytes > 0
            && let Some(front) = &mut desk.front
        {
            relayed.unacknowledged -= bytes;
            front.taken(self.ticket, bytes);
        }
    }

    /// The body of the request cannot be read on. A client that has not been answered is told why.
    pub(super) fn refuse_body(&mut self, desk: &mut Desk, status: Status) {
        self.incoming = Incoming::Nothing;
        match self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref()) {
            // A file's answer has gone before its body was looked at.
            None if self.visit().is_none() => self.phase = Phase::EndingGently,
            Some(relayed) if relayed.has_begun() => self.cut(desk),
            _ => {
                self.leave_relay(desk);
                if let Some(exchange) = &mut self.exchange {
                    (exchange.status, exchange.kind) = (status.code(), Kind::Refused);
                }
                self.enter(desk, true);
                write_refusal(&mut desk.out, status, desk.date.line(), Fate::Closed, false);
                self.phase = Phase::EndingGently;
            }
        }
    }

    /// Whether the client was sent all that was announced of a dynamic answer: it may go before the relay says that this
    /// was the end.
    pub(super) fn was_sent_all(&self) -> bool {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        let all_came = relayed.is_some_and(|one| one.framing == Some(Framing::Length(0)) && one.unacknowledged == 0);
        all_came && self.unsent.is_empty()
    }

    /// Enters the answer that is over into the books.
    pub(super) fn enter(&mut self, desk: &mut Desk, whole: bool) {
        let Some(exchange) = self.exchange.take() else { return };
        let unsent = if whole { 0 } else { self.tail.as_ref().map_or(0, Tail::content_bytes) };
        if let Some(origin) = &desk.origin {
            match (&exchange.visit, exchange.world) {
                (Some(visit), _) => origin.abandoned(visit.ready_at.is_some()),
                (None, Some(world)) if unsent > 0 => origin.unsent(world, unsent),
                _ => {}
            }
        }
        desk.books.answered(&Entry {
            peer: self.peer.ip(),
            head: exchange.kept.bytes(),
            status: exchange.status,
            content_bytes: exchange.content_bytes.saturating_sub(unsent),
            kind: exchange.kind,
            finding: exchange.finding,
            began: exchange.began,
            ended: desk.now,
            whole,
        });
    }

    /// Answers a request that is complete but for its body with a refusal, and ends with it.
    pub(super) fn refuse_answered(&mut self, desk: &mut Desk, status: Status, request: &Request<'_>) {
        let head_only = request.method == Method::Head;
        write_refusal(&mut desk.out, status, desk.date.line(), Fate::Closed, head_only);
        self.phase = Phase::EndingGently;
        self.note(desk, request, status.code(), 0, Kind::Refused, Finding::NONE);
    }

    /// Enters an answer that is over as soon as it is made.
    pub(super) fn note(
        &mut self,
        desk: &mut Desk,
        request: &Request<'_>,
        status: u16,
        content_bytes: u64,
        kind: Kind,
        finding: Finding,
    ) {
        desk.books.answered(&Entry {
            peer: self.peer.ip(),
            head: request.head,
            status,
            content_bytes,
            kind,
            finding,
            began: desk.now,
            ended: desk.now,
            whole: true,
        });
    }
}
