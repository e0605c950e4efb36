//! Requests to an origin workload: the response waits for the think time and for the request's body.
//!
//! ```text
//!   respond_as_origin ──┬─ nothing to wait for ──────────────────────────▶ reply
//!                       └─ Tail::Awaited, deadline = ready_at ──late()──▶ was_think_deadline ──▶ reply
//! ```

use units::Timestamp;

use super::exchange::Exchange;
use super::incoming::Incoming;
use super::{Connection, Phase, WorkerContext};
use crate::cache::Finding;
use crate::figures::Kind;
use crate::file_response::{Reply, Tail, year};
use crate::journal::NO_RESPONSE;
use crate::origin::{NoObject, ObjectRequest, Truncation};
use crate::phrase::status_line;
use crate::request::{Method, Request};
use crate::response::{Persistence, SERVER, Status, field, write_head, write_refusal_with};

/// A pending request of an origin workload.
#[derive(Debug)]
pub(super) struct OriginExchange {
    object_request: ObjectRequest,
    /// End of the think time; `None` if only the body is pending.
    pub ready_at: Option<Timestamp>,
}

impl Connection {
    /// Responds as an origin workload, in place of files.
    pub(super) fn respond_as_origin(&mut self, context: &mut WorkerContext, request: &Request<'_>) {
        match Incoming::new(request.body, context.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse_and_record(context, status, request),
        }
        let year_now = year(context.date.line());
        let Some(origin) = &mut context.origin else { return };
        let mut object_request = match ObjectRequest::of(request, year_now) {
            Ok(object_request) if origin.has(&object_request, request.path) => object_request,
            Ok(_) => return self.respond_without_object(context, request, NoObject::Path),
            Err(other) => return self.respond_without_object(context, request, other),
        };
        if self.uses_left == 0 {
            self.uses_left = origin.connected();
        }
        self.uses_left -= 1;
        object_request.keep_alive &= self.uses_left > 0;
        let ready_at = origin.begin(&object_request);
        if request.expects_continue {
            context.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if ready_at.is_none() && self.incoming.is_nothing() {
            let Reply { status, content_bytes, body } = self.reply(context, &object_request);
            self.follow(context, request, status, content_bytes, body, Kind::Origin, Finding::NONE);
            if let Some(exchange) = &mut self.exchange {
                exchange.world = Some(object_request.world);
            }
            return;
        }
        self.exchange = Some(Box::new(Exchange {
            request_head: context.recorder.keep(request.head),
            status: NO_RESPONSE,
            content_bytes: 0,
            kind: Kind::Origin,
            finding: Finding::NONE,
            began: context.now,
            relayed: None,
            world: None,
            origin_exchange: Some(OriginExchange { object_request, ready_at }),
        }));
        self.tail = Some(Tail::Awaited);
    }

    /// Responds to a request for no object.
    fn respond_without_object(&mut self, context: &mut WorkerContext, request: &Request<'_>, other: NoObject) {
        // As for files: an expected body may or may not follow.
        let persistence = self.persistence(context, request, !request.expects_continue);
        let Some(origin) = &context.origin else { return };
        let (date, out) = (context.date.line(), &mut context.out);
        let head_only = request.method == Method::Head;
        let (status, content_bytes) = match other {
            NoObject::Figures => {
                let text = origin.document();
                status_line(out, 200);
                out.extend_from_slice(SERVER);
                field(out, format_args!("Content-Type: application/json\r\nContent-Length: {}\r\n", text.len()));
                write_head(out, b"Cache-Control: no-store\r\n", date, persistence);
                let text: &[u8] = if head_only { b"" } else { text.as_bytes() };
                out.extend_from_slice(text);
                (200, text.len() as u64)
            }
            NoObject::Options => {
                out.extend_from_slice(b"HTTP/1.1 204 No Content\r\n");
                out.extend_from_slice(SERVER);
                write_head(out, ALLOW, date, persistence);
                (204, 0)
            }
            NoObject::Path | NoObject::Method => {
                origin.refused();
                let (status, more): (_, &[u8]) = match (other, request.method) {
                    (NoObject::Path, _) => (Status::NotFound, b"Cache-Control: no-store\r\n"),
                    (_, Method::Unknown) => (Status::NotImplemented, b""),
                    _ => (Status::MethodNotAllowed, ALLOW),
                };
                let content_bytes = write_refusal_with(out, status, more, date, persistence, head_only);
                (status.code(), content_bytes)
            }
        };
        let kind = if other == NoObject::Figures { Kind::Status } else { Kind::Origin };
        self.note(context, request, status, content_bytes, kind, Finding::NONE);
    }

    /// Writes the response and decides whether the connection persists.
    fn reply(&mut self, context: &mut WorkerContext, object_request: &ObjectRequest) -> Reply {
        let keep = object_request.keep_alive && !self.last && !context.stopping;
        let Some(origin) = &mut context.origin else { return Reply { status: 500, content_bytes: 0, body: None } };
        let (reply, cut) = origin.answer(object_request, Persistence::of(keep, object_request.old), &mut context.out);
        self.cut_short = cut == Truncation::Yes;
        if !keep || cut == Truncation::Yes {
            // Bytes beyond the last request must not reset the connection.
            self.phase = if self.unread.is_empty() { Phase::Ending } else { Phase::EndingGently };
        }
        reply
    }

    /// Think time or body are complete: responds. As after [`Connection::take`], new output must be sent.
    fn respond_after_think_time(&mut self, context: &mut WorkerContext, noticed: Option<Timestamp>) {
        let Some(origin_exchange) = self.exchange.as_mut().and_then(|exchange| exchange.origin_exchange.take()) else {
            return;
        };
        if origin_exchange.ready_at.is_some()
            && let Some(origin) = &context.origin
        {
            origin.record_think_time(noticed);
        }
        let Reply { status, content_bytes, body } = self.reply(context, &origin_exchange.object_request);
        if let Some(exchange) = &mut self.exchange {
            (exchange.status, exchange.content_bytes) = (status, content_bytes);
            exchange.world = Some(origin_exchange.object_request.world);
        }
        self.tail = body;
        match &self.tail {
            Some(_) => self.skip_what_is_sent(context),
            None => self.enter(context, true),
        }
    }

    /// The request's body is complete: responds, unless think time remains.
    pub(super) fn origin_response_complete(&mut self, context: &mut WorkerContext) {
        let Some(origin_exchange) = self.origin_exchange() else { return };
        let is_due = match (origin_exchange.ready_at, &context.origin) {
            (Some(ready_at), Some(origin)) => origin.is_past(ready_at),
            _ => true,
        };
        if is_due {
            self.respond_after_think_time(context, None);
        }
    }

    /// Whether the expired deadline was that of a think time.
    pub(super) fn was_think_deadline(&mut self, context: &mut WorkerContext) -> bool {
        let thinks = self.phase == Phase::Open && self.incoming.is_nothing() && !self.has_to_send();
        let Some(ready_at) =
            self.origin_exchange().filter(|_| thinks).and_then(|origin_exchange| origin_exchange.ready_at)
        else {
            return false;
        };
        self.respond_after_think_time(context, Some(ready_at));
        true
    }

    /// The pending origin request.
    pub(super) fn origin_exchange(&self) -> Option<&OriginExchange> {
        self.exchange.as_ref()?.origin_exchange.as_ref()
    }
}

const ALLOW: &[u8] = b"Allow: GET, HEAD, POST, OPTIONS\r\n";
