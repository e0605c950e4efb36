//! Requests to an origin: the answer waits until it has been thought about, and until the request's body has come.
//!
//! ```text
//!   respond_as_origin ──┬─ nothing to wait for ──────────────────────────▶ reply
//!                       └─ Tail::Awaited, deadline = ready_at ──late()──▶ think_over ──▶ reply, and on as ever
//! ```

use units::Timestamp;

use super::exchange::Exchange;
use super::incoming::Incoming;
use super::{Connection, Desk, Phase};
use crate::answer::{Reply, Tail, year};
use crate::cache::Finding;
use crate::figures::Kind;
use crate::journal::NO_ANSWER;
use crate::origin::{Asked, Cut, NotAsked};
use crate::phrase::status_line;
use crate::request::{Method, Request};
use crate::response::{Fate, SERVER, Status, field, write_head, write_refusal_with};

/// A request that an origin has not answered yet.
#[derive(Debug)]
pub(super) struct Visit {
    asked: Asked,
    /// Until when it is thought about; `None` where only the body is awaited.
    pub ready_at: Option<Timestamp>,
}

impl Connection {
    /// Answers in the place of the files.
    pub(super) fn respond_as_origin(&mut self, desk: &mut Desk, request: &Request<'_>) {
        match Incoming::new(request.body, desk.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse_answered(desk, status, request),
        }
        let year_now = year(desk.date.line());
        let Some(origin) = &mut desk.origin else { return };
        let mut asked = match Asked::of(request, year_now) {
            Ok(asked) if origin.has(&asked, request.path) => asked,
            Ok(_) => return self.answer_other(desk, request, NotAsked::Path),
            Err(other) => return self.answer_other(desk, request, other),
        };
        if self.uses_left == 0 {
            self.uses_left = origin.connected();
        }
        self.uses_left -= 1;
        asked.keep_alive &= self.uses_left > 0;
        let ready_at = origin.begin(&asked);
        if request.expects_continue {
            desk.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if ready_at.is_none() && self.incoming.is_nothing() {
            let Reply { status, content_bytes, body } = self.reply(desk, &asked);
            self.follow(desk, request, status, content_bytes, body, Kind::Origin, Finding::NONE);
            if let Some(exchange) = &mut self.exchange {
                exchange.world = Some(asked.world);
            }
            return;
        }
        self.exchange = Some(Box::new(Exchange {
            kept: desk.books.keep(request.head),
            status: NO_ANSWER,
            content_bytes: 0,
            kind: Kind::Origin,
            finding: Finding::NONE,
            began: desk.now,
            relayed: None,
            world: None,
            visit: Some(Visit { asked, ready_at }),
        }));
        self.tail = Some(Tail::Awaited);
    }

    /// Answers what is for no object.
    fn answer_other(&mut self, desk: &mut Desk, request: &Request<'_>, other: NotAsked) {
        // As for files: a body that is held back may come or not.
        let fate = self.fate(desk, request, !request.expects_continue);
        let Some(origin) = &desk.origin else { return };
        let (date, out) = (desk.date.line(), &mut desk.out);
        let head_only = request.method == Method::Head;
        let (status, content_bytes) = match other {
            NotAsked::Figures => {
                let text = origin.document();
                status_line(out, 200);
                out.extend_from_slice(SERVER);
                field(out, format_args!("Content-Type: application/json\r\nContent-Length: {}\r\n", text.len()));
                write_head(out, b"Cache-Control: no-store\r\n", date, fate);
                let text: &[u8] = if head_only { b"" } else { text.as_bytes() };
                out.extend_from_slice(text);
                (200, text.len() as u64)
            }
            NotAsked::Options => {
                out.extend_from_slice(b"HTTP/1.1 204 No Content\r\n");
                out.extend_from_slice(SERVER);
                write_head(out, ALLOW, date, fate);
                (204, 0)
            }
            NotAsked::Path | NotAsked::Method => {
                origin.refused();
                let (status, more): (_, &[u8]) = match (other, request.method) {
                    (NotAsked::Path, _) => (Status::NotFound, b"Cache-Control: no-store\r\n"),
                    (_, Method::Unknown) => (Status::NotImplemented, b""),
                    _ => (Status::MethodNotAllowed, ALLOW),
                };
                let content_bytes = write_refusal_with(out, status, more, date, fate, head_only);
                (status.code(), content_bytes)
            }
        };
        let kind = if other == NotAsked::Figures { Kind::Status } else { Kind::Origin };
        self.note(desk, request, status, content_bytes, kind, Finding::NONE);
    }

    /// Writes the answer, and settles what becomes of the connection.
    fn reply(&mut self, desk: &mut Desk, asked: &Asked) -> Reply {
        let keep = asked.keep_alive && !self.last && !desk.stopping;
        let Some(origin) = &mut desk.origin else { return Reply { status: 500, content_bytes: 0, body: None } };
        let (reply, cut) = origin.answer(asked, Fate::of(keep, asked.old), &mut desk.out);
        if !keep || cut == Cut::Yes {
            // What a client sent beyond its last request must not reset the connection.
            self.phase = if self.unread.is_empty() { Phase::Ending } else { Phase::EndingGently };
        }
        reply
    }

    /// What was awaited has come: answers. As after [`Connection::take`], what is to be sent is to be sent.
    fn think_over(&mut self, desk: &mut Desk, noticed: Option<Timestamp>) {
        let Some(visit) = self.exchange.as_mut().and_then(|exchange| exchange.visit.take()) else { return };
        if visit.ready_at.is_some()
            && let Some(origin) = &desk.origin
        {
            origin.thought(noticed);
        }
        let Reply { status, content_bytes, body } = self.reply(desk, &visit.asked);
        if let Some(exchange) = &mut self.exchange {
            (exchange.status, exchange.content_bytes) = (status, content_bytes);
            exchange.world = Some(visit.asked.world);
        }
        self.tail = body;
        match &self.tail {
            Some(_) => self.skip_what_is_sent(desk),
            None => self.enter(desk, true),
        }
    }

    /// The body of a request has come: answers it, unless there is thinking left to do.
    pub(super) fn visit_is_whole(&mut self, desk: &mut Desk) {
        let Some(visit) = self.visit() else { return };
        let is_due = match (visit.ready_at, &desk.origin) {
            (Some(ready_at), Some(origin)) => origin.is_past(ready_at),
            _ => true,
        };
        if is_due {
            self.think_over(desk, None);
        }
    }

    /// Whether the deadline was that of a think time, which is over now.
    pub(super) fn was_thinking(&mut self, desk: &mut Desk) -> bool {
        let thinks = self.phase == Phase::Open && self.incoming.is_nothing() && !self.has_to_send();
        let Some(ready_at) = self.visit().filter(|_| thinks).and_then(|visit| visit.ready_at) else { return false };
        self.think_over(desk, Some(ready_at));
        true
    }

    /// The request that an origin has still to answer.
    pub(super) fn visit(&self) -> Option<&Visit> {
        self.exchange.as_ref()?.visit.as_ref()
    }
}

const ALLOW: &[u8] = b"Allow: GET, HEAD, POST, OPTIONS\r\n";
