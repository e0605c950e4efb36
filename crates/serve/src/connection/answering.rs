//! From a request to its answer: the body that came with it, the server's own figures, an origin's objects, the result cache, the relay,
//! files.

use super::exchange::Exchange;
use super::incoming::Incoming;
use super::{Connection, Desk, Phase};
use crate::answer::{COPY_MAX, Reply, Tail, answer};
use crate::cache::{Asked, Finding};
use crate::date::seconds;
use crate::figures::Kind;
use crate::journal::Entry;
use crate::request::{Method, Request};
use crate::response::{Fate, Status, write_refusal};
use crate::target::plain;

impl Connection {
    /// Reads the body of a request from the beginning of `input`; returns how much was used up, 0 when the relay takes
    /// no more now.
    pub(super) fn read_body(&mut self, desk: &mut Desk, input: &[u8]) -> usize {
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
        if let Some(taken) = &mut self.body_taken {
            *taken += content.len() as u64;
        }
        if let (Some(relayed), Some(front)) = (relayed, &mut desk.front) {
            if !content.is_empty() {
                relayed.room -= content.len();
                front.body(self.ticket, &input[content]);
            }
            if self.incoming.is_nothing() {
                front.body_ended(self.ticket);
            }
        } else if self.incoming.is_nothing() && self.is_awaiting() {
            self.visit_is_whole(desk);
        }
        used
    }

    pub(super) fn respond(&mut self, desk: &mut Desk, request: &Request<'_>) {
        self.head_began = false;
        self.body_taken = None;
        self.head_only = request.method == Method::Head;
        desk.books.began();
        // Before the routes: one that takes every path must not hide the figures.
        let own = request.path.starts_with(b"/-/") && desk.board.is_asked(request, self.peer.ip());
        if !own && desk.origin.is_some() {
            return self.respond_as_origin(desk, request);
        }
        if !own && desk.front.is_some() && request.path.starts_with(b"/") && self.respond_dynamically(desk, request) {
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
        let (kind, reply) = if own {
            (Kind::Status, desk.board.answer(request, desk.now, date, fate, out))
        } else {
            (Kind::Static, answer(&mut desk.files, request, seconds(desk.now), date, fate, out))
        };
        let Reply { status, content_bytes, body } = reply;
        self.follow(desk, request, status, content_bytes, body, kind, Finding::NONE);
    }

    /// Answers out of the result cache, or asks the relay; false when the path is a file's.
    fn respond_dynamically(&mut self, desk: &mut Desk, request: &Request<'_>) -> bool {
        if is_at_its_last_hop(request) {
            return false;
        }
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
        } else if let Some(page) = desk.front.as_ref().and_then(|front| front.refusal(route, desk.cache.is_some())) {
            self.turn_away(desk, request, &page);
        } else {
            self.ask(desk, request, route);
        }
        true
    }

    /// What becomes of the connection after an answer that may `keep` it.
    pub(super) fn fate(&mut self, desk: &Desk, request: &Request<'_>, keep: bool) -> Fate {
        let keep = keep && request.keep_alive && !desk.stopping;
        if !keep {
            self.phase = if self.incoming.is_nothing() { Phase::Ending } else { Phase::EndingGently };
        }
        Fate::of(keep, request.old)
    }

    /// An answer's head is written: enters it into the books, now or when its body has gone.
    #[allow(clippy::too_many_arguments, reason = "what is known of an answer")]
    pub(super) fn follow(
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
        self.exchange = Some(Box::new(Exchange {
            kept,
            status,
            content_bytes,
            kind,
            finding,
            began,
            relayed: None,
            visit: None,
            world: None,
        }));
        self.tail = Some(tail);
        self.skip_what_is_sent(desk);
    }

    /// Answers what is no request; `head` is what there is of it.
    pub(super) fn refuse(&mut self, desk: &mut Desk, status: Status, head: &[u8]) {
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
}

/// RFC 9110, section 7.6.2: who passes requests on keeps these to itself, and answers as the last one asked.
fn is_at_its_last_hop(request: &Request<'_>) -> bool {
    matches!(request.method, Method::Options | Method::Trace)
        && request
            .fields
            .values(b"max-forwards")
            .any(|hops| !hops.is_empty() && hops.iter().all(|&digit| digit == b'0'))
}
