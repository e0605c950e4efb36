//! A response that takes time: its log entry and its events from the relay.

use bytes::Bytes;
use units::Timestamp;

use super::origin_exchange::OriginExchange;
use super::{Connection, Phase, WorkerContext};
use crate::cache::Finding;
use crate::connection::incoming::Incoming;
use crate::dynamic::{Event, RelayRequest};
use crate::figures::Kind;
use crate::file_response::Tail;
use crate::journal::{Entry, NO_RESPONSE, RequestHead};
use crate::phrase::{reason_phrase, status_line};
use crate::request::{Method, Request, as_known_version};
use crate::response::{Persistence, Status, field, write_refusal};

/// A response in progress.
#[derive(Debug)]
pub(super) struct Exchange {
    pub request_head: RequestHead,
    pub status: u16,
    /// For a static response all content bytes, for a dynamic one those that arrived so far.
    pub content_bytes: u64,
    pub kind: Kind,
    pub finding: Finding,
    pub began: Timestamp,
    /// The response comes from the relay.
    pub relayed: Option<Relayed>,
    /// The response comes from an origin workload.
    pub origin_exchange: Option<OriginExchange>,
    /// The world of the origin's object.
    pub world: Option<u32>,
}

/// State of a dynamic response.
#[derive(Debug)]
pub(super) struct Relayed {
    /// HTTP/1.0.
    old: bool,
    /// Whether the client requests a persistent connection.
    keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body.
    expects_continue: bool,
    /// Bytes of the request body that may be forwarded.
    pub room: usize,
    /// `None` before the head arrived.
    framing: Option<Framing>,
    /// Bytes sent to the client that were not reported to the relay yet.
    unacknowledged: usize,
}

/// How the client finds the end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Remaining bytes.
    Length(u64),
    Chunks,
    /// The connection closes at its end.
    Close,
}

impl Relayed {
    /// Whether the head of the response was sent.
    pub fn has_begun(&self) -> bool {
        self.framing.is_some()
    }
}

impl Connection {
    /// Forwards a request to the relay.
    pub(super) fn forward_to_relay(&mut self, context: &mut WorkerContext, request: &Request<'_>, route: usize) {
        self.incoming = match Incoming::new(request.body, context.limits.body_bytes) {
            Ok(incoming) => incoming,
            Err(status) => return self.refuse_and_record(context, status, request),
        };
        self.exchange = Some(Box::new(Exchange {
            request_head: context.recorder.keep(request.head),
            status: NO_RESPONSE,
            content_bytes: 0,
            kind: Kind::Dynamic,
            finding: Finding::NONE,
            began: context.now,
            relayed: Some(Relayed {
                old: request.old,
                keep_alive: request.keep_alive,
                expects_continue: request.expects_continue,
                room: 0,
                framing: None,
                unacknowledged: 0,
            }),
            origin_exchange: None,
            world: None,
        }));
        self.tail = Some(Tail::Awaited);
        let mut head: Box<[u8]> = request.head.into();
        as_known_version(&mut head);
        let relay_request = RelayRequest {
            ticket: self.ticket,
            route,
            head,
            body: request.body,
            peer: self.peer,
            local: self.local,
            secure: self.secure,
        };
        if let Some(front) = &mut context.front {
            front.send_request(relay_request);
        }
    }

    /// Responds without the relay, which accepts no such requests now. `page`: status, field lines, text.
    pub(super) fn refuse_overloaded(
        &mut self,
        context: &mut WorkerContext,
        request: &Request<'_>,
        page: &(u16, Bytes, Bytes),
    ) {
        match Incoming::new(request.body, context.limits.body_bytes) {
            Ok(incoming) => self.incoming = incoming,
            Err(status) => return self.refuse_and_record(context, status, request),
        }
        // As for files: an expected body may or may not follow.
        let persistence = self.persistence(context, request, !request.expects_continue);
        let (status, fields, text) = page;
        let out = &mut context.out;
        status_line(out, *status);
        out.extend_from_slice(fields);
        field(out, format_args!("Content-Length: {}\r\n", text.len()));
        out.extend_from_slice(persistence.field());
        out.extend_from_slice(b"\r\n");
        let text: &[u8] = if self.head_only { b"" } else { text };
        out.extend_from_slice(text);
        self.note(context, request, *status, text.len() as u64, Kind::Dynamic, Finding::NONE);
    }

    /// Processes an event of the relay for one of the streams, or for the connection without streams.
    pub(crate) fn relay_event_of(&mut self, context: &mut WorkerContext, stream: u64, event: Event) {
        if self.http2.is_some() {
            self.relay_event_of_stream(context, stream, event);
        } else {
            self.relay_event(context, event);
        }
    }

    /// Processes an event of the relay. As after [`Connection::take`], new output must be sent.
    pub(crate) fn relay_event(&mut self, context: &mut WorkerContext, event: Event) {
        let Some(exchange) = self.exchange.as_mut() else { return };
        let Some(relayed) = exchange.relayed.as_mut() else { return };
        match event {
            Event::Room(bytes) => {
                relayed.room += bytes;
                // After the response has begun, 100 (Continue) would be inside of it.
                if std::mem::take(&mut relayed.expects_continue) && !relayed.has_begun() {
                    context.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.proceed(context);
            }
            Event::Interim { status, fields } => {
                if !relayed.old && relayed.framing.is_none() {
                    let line = format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status));
                    context.out.extend_from_slice(line.as_bytes());
                    context.out.extend_from_slice(&fields);
                    context.out.extend_from_slice(b"\r\n");
                }
            }
            Event::Head { status, fields, length, finding } => {
                exchange.status = status;
                exchange.finding = finding;
                self.begin_response(context, status, &fields, length);
            }
            Event::Body(bytes) => self.forward(context, &bytes),
            Event::End => self.end_response(context),
            Event::Broken => self.cut(context),
        }
    }

    fn begin_response(&mut self, context: &mut WorkerContext, status: u16, fields: &[u8], length: Option<u64>) {
        let Some(relayed) = self.exchange.as_mut().and_then(|exchange| exchange.relayed.as_mut()) else { return };
        // A response before the end of the request body: whether the client sends the rest is its decision.
        let whole = self.incoming.is_nothing() && !relayed.expects_continue;
        let may_have_body = !self.head_only && status != 204 && status != 304;
        let framing = match length {
            Some(bytes) if may_have_body => Framing::Length(bytes),
            _ if !may_have_body => Framing::Length(0),
            _ if relayed.old || self.framed => Framing::Close,
            _ => Framing::Chunks,
        };
        let keep = relayed.keep_alive && whole && framing != Framing::Close && !context.stopping;
        if !keep {
            self.last = true;
        }
        relayed.framing = Some(framing);
        let out = &mut context.out;
        status_line(out, status);
        out.extend_from_slice(fields);
        if framing == Framing::Chunks {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if let Some(bytes) = length.filter(|_| status != 204) {
            field(out, format_args!("Content-Length: {bytes}\r\n"));
        }
        out.extend_from_slice(context.date.appended());
        out.extend_from_slice(Persistence::of(keep, relayed.old).field());
        out.extend_from_slice(b"\r\n");
    }

    fn forward(&mut self, context: &mut WorkerContext, bytes: &Bytes) {
        let Some(exchange) = self.exchange.as_mut() else { return };
        let Some(relayed) = exchange.relayed.as_mut() else { return };
        exchange.content_bytes += bytes.len() as u64;
        match &mut relayed.framing {
            // An empty chunk would end the body.
            _ if bytes.is_empty() => return,
            Some(Framing::Length(left)) => match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                // More content than announced would be read as the next response.
                None => return self.cut(context),
            },
            Some(Framing::Chunks) => field(&mut context.out, format_args!("{:x}\r\n", bytes.len())),
            Some(Framing::Close) => {}
            None => return self.cut(context),
        }
        context.out.extend_from_slice(bytes);
        if relayed.framing == Some(Framing::Chunks) {
            context.out.extend_from_slice(b"\r\n");
        }
        relayed.unacknowledged += bytes.len();
    }

    fn end_response(&mut self, context: &mut WorkerContext) {
        let Some(exchange) = self.exchange.as_mut() else { return };
        match exchange.relayed.as_ref().and_then(|relayed| relayed.framing) {
            Some(Framing::Chunks) => context.out.extend_from_slice(b"0\r\n\r\n"),
            Some(Framing::Length(0) | Framing::Close) => {}
            // Less content than announced, or none.
            Some(Framing::Length(_)) | None => return self.cut(context),
        }
        exchange.relayed = None;
        self.tail = None;
        self.enter(context, true);
        if self.last {
            self.phase = Phase::EndingGently;
        }
        self.proceed(context);
    }

    /// The response cannot be completed: the connection closes after the bytes sent so far, which tells the client.
    fn cut(&mut self, context: &mut WorkerContext) {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        let ends_by_close = relayed.is_some_and(|relayed| relayed.framing == Some(Framing::Close));
        self.leave_relay(context);
        self.enter(context, false);
        self.cut_short = true;
        if ends_by_close {
            // An orderly close would mark the response as complete.
            self.aborted = true;
            self.broken();
        } else {
            self.phase = Phase::Ending;
        }
    }

    /// Whether the client has the complete response, although the relay has not reported its end.
    pub(super) fn has_all(&self) -> bool {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        relayed.is_some_and(|relayed| relayed.framing == Some(Framing::Length(0)))
    }

    /// Cancels the relay's response, if one is pending.
    pub(super) fn leave_relay(&mut self, context: &mut WorkerContext) {
        if let Some(exchange) = &mut self.exchange
            && exchange.relayed.take().is_some()
            && let Some(front) = &mut context.front
        {
            front.cancel(self.ticket);
        }
        if matches!(self.tail, Some(Tail::Awaited)) {
            self.tail = None;
        }
    }

    /// Reports the bytes sent to the client to the relay.
    pub(super) fn acknowledge(&mut self, context: &mut WorkerContext, count: usize) {
        let Some(relayed) = self.exchange.as_mut().and_then(|exchange| exchange.relayed.as_mut()) else { return };
        let bytes = count.min(relayed.unacknowledged);
        if bytes > 0
            && let Some(front) = &mut context.front
        {
            relayed.unacknowledged -= bytes;
            front.taken(self.ticket, bytes);
        }
    }

    /// The request body is unreadable. A client without a response gets the error status.
    pub(super) fn refuse_body(&mut self, context: &mut WorkerContext, status: Status) {
        self.incoming = Incoming::Nothing;
        match self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref()) {
            // The response of a file was sent before its request body was read.
            None if self.origin_exchange().is_none() => self.phase = Phase::EndingGently,
            Some(relayed) if relayed.has_begun() => self.cut(context),
            _ => {
                self.leave_relay(context);
                if let Some(exchange) = &mut self.exchange {
                    (exchange.status, exchange.kind) = (status.code(), Kind::Refused);
                }
                self.enter(context, true);
                write_refusal(&mut context.out, status, context.date.line(), Persistence::Close, false);
                self.phase = Phase::EndingGently;
            }
        }
    }

    /// Whether all announced content of a dynamic response was sent; the relay may not have reported its end yet.
    pub(super) fn was_sent_all(&self) -> bool {
        let relayed = self.exchange.as_ref().and_then(|exchange| exchange.relayed.as_ref());
        let all_came = relayed.is_some_and(|one| one.framing == Some(Framing::Length(0)) && one.unacknowledged == 0);
        all_came && self.unsent.is_empty()
    }

    /// Records a completed response.
    pub(super) fn enter(&mut self, context: &mut WorkerContext, whole: bool) {
        let Some(exchange) = self.exchange.take() else { return };
        let unsent = if whole { 0 } else { self.tail.as_ref().map_or(0, Tail::content_bytes) };
        if let Some(origin) = &context.origin {
            match (&exchange.origin_exchange, exchange.world) {
                (Some(origin_exchange), _) => origin.abandoned(origin_exchange.ready_at.is_some()),
                (None, Some(world)) if unsent > 0 => origin.unsent(world, unsent),
                _ => {}
            }
        }
        context.recorder.answered(&Entry {
            peer: self.peer.ip(),
            head: exchange.request_head.bytes(),
            status: exchange.status,
            content_bytes: exchange.content_bytes.saturating_sub(unsent),
            kind: exchange.kind,
            finding: exchange.finding,
            began: exchange.began,
            ended: context.now,
            whole,
        });
    }

    /// Refuses a request with a complete head and closes the connection after the refusal.
    pub(crate) fn refuse_and_record(&mut self, context: &mut WorkerContext, status: Status, request: &Request<'_>) {
        let head_only = request.method == Method::Head;
        write_refusal(&mut context.out, status, context.date.line(), Persistence::Close, head_only);
        self.phase = Phase::EndingGently;
        self.note(context, request, status.code(), 0, Kind::Refused, Finding::NONE);
    }

    /// Records a response that is complete immediately.
    pub(super) fn note(
        &mut self,
        context: &mut WorkerContext,
        request: &Request<'_>,
        status: u16,
        content_bytes: u64,
        kind: Kind,
        finding: Finding,
    ) {
        context.recorder.answered(&Entry {
            peer: self.peer.ip(),
            head: request.head,
            status,
            content_bytes,
            kind,
            finding,
            began: context.now,
            ended: context.now,
            whole: true,
        });
    }
}
