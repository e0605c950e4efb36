//! From a request to its response: request body, status path, origin workload, result cache, relay, files.

use super::exchange::Exchange;
use super::incoming::Incoming;
use super::{Connection, Phase, WorkerContext};
use crate::cache::{CacheRequest, Finding};
use crate::date::seconds;
use crate::figures::Kind;
use crate::file_response::{Reply, Tail, answer};
use crate::journal::Entry;
use crate::request::{Method, Request};
use crate::response::{Persistence, Status, write_refusal};
use crate::target::plain;

impl Connection {
    /// Reads the request body from the beginning of `input`; returns the bytes used, 0 when the relay accepts no more
    /// now.
    pub(super) fn read_body(&mut self, context: &mut WorkerContext, input: &[u8]) -> usize {
        let relayed = self.exchange.as_mut().and_then(|exchange| exchange.relayed.as_mut());
        let most = relayed.as_ref().map_or(usize::MAX, |relayed| relayed.room).min(input.len());
        if most == 0 {
            return 0;
        }
        let (used, content) = match self.incoming.read(&input[..most]) {
            Ok(read) => read,
            Err(status) => {
                self.refuse_body(context, status);
                return input.len();
            }
        };
        if let Some(taken) = &mut self.body_taken {
            *taken += content.len() as u64;
        }
        if let (Some(relayed), Some(front)) = (relayed, &mut context.front) {
            if !content.is_empty() {
                relayed.room -= content.len();
                front.body(self.ticket, &input[content]);
            }
            if self.incoming.is_nothing() {
                front.body_ended(self.ticket);
            }
        } else if self.incoming.is_nothing() && self.is_awaiting() {
            self.origin_response_complete(context);
        }
        used
    }

    pub(crate) fn respond(&mut self, context: &mut WorkerContext, request: &Request<'_>) {
        (self.is_new, self.head_began) = (false, false);
        self.body_taken = None;
        self.head_only = request.method == Method::Head;
        context.recorder.began();
        // Checked before the routes: a route for every path must not hide the status path.
        let is_status_request =
            request.path.starts_with(b"/-/") && context.status_sources.matches(request, self.peer.ip());
        if !is_status_request && context.origin.is_some() {
            return self.respond_as_origin(context, request);
        }
        if !is_status_request
            && context.front.is_some()
            && request.path.starts_with(b"/")
            && self.respond_dynamically(context, request)
        {
            return;
        }
        match Incoming::new(request.body, context.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse_and_record(context, status, request),
        }
        // A client that waits for 100 (Continue) may drop its body after a final response or send it: the following
        // bytes are ambiguous (RFC 9110, section 10.1.1).
        let persistence = self.persistence(context, request, !request.expects_continue);
        let (date, out) = (context.date.line(), &mut context.out);
        let (kind, reply) = if is_status_request {
            (Kind::Status, context.status_sources.answer(request, context.now, date, persistence, out))
        } else {
            (
                Kind::Static,
                answer(&mut context.files, request, context.copy_max, seconds(context.now), date, persistence, out),
            )
        };
        let Reply { status, content_bytes, body } = reply;
        // Looking up a file checks the file itself; its precompressed variants are checked once a second only.
        if let Some(Tail::Page(page, _)) = &body
            && page.coding.is_none()
        {
            page.found_intact(context.now);
        }
        self.follow(context, request, status, content_bytes, body, kind, Finding::NONE);
    }

    /// Responds from the result cache or forwards to the relay; false for the path of a file.
    fn respond_dynamically(&mut self, context: &mut WorkerContext, request: &Request<'_>) -> bool {
        if is_at_its_last_hop(request) {
            return false;
        }
        // An impossible file path is refused by the file handler.
        let Ok(path) = plain(request.path, &mut context.path) else { return false };
        let Some(route) = context.front.as_ref().and_then(|front| front.routed(path)) else { return false };
        if let Some(cache) = &context.cache
            && let Ok(cache_request) = CacheRequest::of(request, self.secure)
            && let Some(fresh) = cache.fresh(&cache_request, context.now, &mut context.out)
        {
            let persistence = self.persistence(context, request, true);
            context.out.extend_from_slice(context.date.appended());
            context.out.extend_from_slice(persistence.field());
            context.out.extend_from_slice(b"\r\n");
            let length = fresh.body.len();
            let body = if length <= context.copy_max {
                context.out.extend_from_slice(&fresh.body);
                None
            } else {
                Some(Tail::Stored(fresh.body))
            };
            self.follow(context, request, fresh.status, length as u64, body, Kind::Dynamic, fresh.finding);
        } else if let Some(page) =
            context.front.as_ref().and_then(|front| front.refusal(route, context.cache.is_some()))
        {
            self.refuse_overloaded(context, request, &page);
        } else {
            self.forward_to_relay(context, request, route);
        }
        true
    }

    /// Whether the connection persists after a response that permits it (`keep`).
    pub(super) fn persistence(&mut self, context: &WorkerContext, request: &Request<'_>, keep: bool) -> Persistence {
        let keep = keep && request.keep_alive && !context.stopping;
        if !keep {
            self.phase = if self.incoming.is_nothing() { Phase::Ending } else { Phase::EndingGently };
        }
        Persistence::of(keep, request.old)
    }

    /// The head of a response is written: records it now, or when its body has been sent.
    #[allow(clippy::too_many_arguments, reason = "what is known of an answer")]
    pub(super) fn follow(
        &mut self,
        context: &mut WorkerContext,
        request: &Request<'_>,
        status: u16,
        content_bytes: u64,
        body: Option<Tail>,
        kind: Kind,
        finding: Finding,
    ) {
        let Some(tail) = body else { return self.note(context, request, status, content_bytes, kind, finding) };
        let request_head = context.recorder.keep(request.head);
        let began = context.now;
        self.exchange = Some(Box::new(Exchange {
            request_head,
            status,
            content_bytes,
            kind,
            finding,
            began,
            relayed: None,
            origin_exchange: None,
            world: None,
        }));
        self.tail = Some(tail);
        self.skip_what_is_sent(context);
    }

    /// Refuses invalid input; `head` is what arrived of the head.
    pub(crate) fn refuse(&mut self, context: &mut WorkerContext, status: Status, head: &[u8]) {
        let head_only = self.framed && head.starts_with(b"HEAD ");
        write_refusal(&mut context.out, status, context.date.line(), Persistence::Close, head_only);
        self.phase = Phase::EndingGently;
        context.recorder.refused(&Entry {
            peer: self.peer.ip(),
            head,
            status: status.code(),
            content_bytes: 0,
            kind: Kind::Refused,
            finding: Finding::NONE,
            began: context.now,
            ended: context.now,
            whole: true,
        });
    }
}

/// RFC 9110, section 7.6.2: with Max-Forwards: 0 a proxy responds itself.
fn is_at_its_last_hop(request: &Request<'_>) -> bool {
    matches!(request.method, Method::Options | Method::Trace)
        && request
            .fields
            .values(b"max-forwards")
            .any(|hops| !hops.is_empty() && hops.iter().all(|&digit| digit == b'0'))
}
