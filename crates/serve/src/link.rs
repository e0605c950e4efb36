//! A connection as the engines see it: plain HTTP, or HTTP over TLS.
//!
//! ```text
//!   engine ──take──▶ Secure::received ──plaintext──▶ Connection
//!   engine ◀─outbound── context.sealed ◀── Secure::encrypt ◀──outbound── Connection (reads files here)
//! ```
//!
//! The contract is that of `connection.rs`. Without TLS every call is passed through.

use std::net::SocketAddr;

use sys::file::append_from;
use units::Timestamp;

use crate::connection::{Connection, Outbound, Step, WorkerContext};
use crate::dynamic::Event;
use crate::engine::unsent::UnsentLimit;
use crate::figures::Refusal;
use crate::tls::{Records, Secure, Tls};

/// One connection, with or without TLS.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    session: Option<Box<Session>>,
    /// Bytes that were counted as sent and came back.
    recounted: usize,
    /// The unsent bytes that the kernel may buffer.
    pub(crate) unsent_limit: UnsentLimit,
}

/// TLS of one connection.
#[derive(Debug)]
struct Session {
    secure: Secure,
    /// Records that the kernel did not accept yet.
    unsent: Vec<u8>,
    /// Records of a handshake, which is heavy work that may wait.
    waiting: Vec<u8>,
    /// This session's share of [`WorkerContext::backlog`].
    buffered_bytes: u32,
    /// The client's FIN arrived after the waiting records.
    ended: bool,
    /// close_notify was sent, or the session failed.
    over: bool,
}

impl Link {
    /// For a newly accepted connection, as [`Connection::new`]; `None` if TLS cannot start.
    pub(crate) fn new(
        ticket: u64,
        peer: SocketAddr,
        local: SocketAddr,
        tls: Option<&Tls>,
        context: &WorkerContext,
    ) -> Option<Self> {
        let session = match tls {
            None => None,
            Some(tls) => {
                let secure = Secure::new(tls).ok()?;
                let (unsent, waiting) = (Vec::new(), Vec::new());
                Some(Box::new(Session { secure, unsent, waiting, buffered_bytes: 0, ended: false, over: false }))
            }
        };
        let connection = Connection::new(ticket, peer, local, session.is_some(), context);
        Some(Link { connection, session, recounted: 0, unsent_limit: UnsentLimit::default() })
    }

    /// As [`Connection::take`].
    pub(crate) fn take(&mut self, context: &mut WorkerContext, bytes: &[u8]) {
        context.recorder.counters().received(bytes.len() as u64);
        match &mut self.session {
            None => self.connection.take(context, bytes),
            Some(session) if session.secure.established() && session.waiting.is_empty() => self.open(context, bytes),
            Some(session) => session.waiting.extend_from_slice(bytes),
        }
    }

    /// Decrypts records.
    fn open(&mut self, context: &mut WorkerContext, bytes: &[u8]) {
        let Some(session) = &mut self.session else { return };
        let mut plain = std::mem::take(&mut context.plain);
        let was_established = session.secure.established();
        let outcome = session.secure.received(bytes, &mut plain, &mut context.sealed);
        if !was_established && session.secure.speaks_http2() {
            self.connection.begin_http2(context);
        }
        self.connection.take(context, &plain);
        plain.clear();
        context.plain = plain;
        if outcome.is_err() {
            // The alert for the failure is in the output already; responses have no key.
            session.over = true;
            context.recorder.counters().connection_refused(Refusal::Tls);
            self.connection.abandon(context);
        } else if session.secure.peer_closed() {
            self.connection.ended();
        }
    }

    /// As [`Connection::ended`].
    pub(crate) fn ended(&mut self) {
        match &mut self.session {
            Some(session) if !session.waiting.is_empty() => session.ended = true,
            _ => self.connection.ended(),
        }
    }

    /// As [`Connection::relay_event`].
    pub(crate) fn relay_event(&mut self, context: &mut WorkerContext, stream: u64, event: Event) {
        self.connection.relay_event_of(context, stream, event);
    }

    /// As [`Connection::leave`].
    pub(crate) fn leave(&mut self, context: &mut WorkerContext) {
        if let Some(session) = &mut self.session {
            context.backlog.change(std::mem::take(&mut session.buffered_bytes), 0);
        }
        self.unsent_limit.leave(context);
        self.connection.leave(context);
    }

    /// As [`Connection::begins_stall_timeout`].
    pub(crate) fn begins_stall_timeout(&self) -> bool {
        self.connection.begins_stall_timeout()
    }

    /// As [`Connection::stall_timeout_began`].
    pub(crate) fn stall_timeout_began(&mut self, unacknowledged: usize) {
        self.connection.stall_timeout_began(unacknowledged);
    }

    /// As [`Connection::is_stalled`].
    pub(crate) fn is_stalled(&self, now: Timestamp) -> bool {
        self.connection.is_stalled(now)
    }

    /// As [`Connection::has_progressed`].
    pub(crate) fn has_progressed(&mut self, context: &WorkerContext, unacknowledged: usize) -> bool {
        self.connection.has_progressed(context, unacknowledged)
    }

    /// As [`Connection::is_aborted`].
    pub(crate) fn is_aborted(&self) -> bool {
        self.connection.is_aborted()
    }

    /// As [`Connection::broken`].
    pub(crate) fn broken(&mut self) {
        self.connection.broken();
        if let Some(session) = &mut self.session {
            session.over = true;
            session.unsent = Vec::new();
            session.waiting = Vec::new();
        }
    }

    /// As [`Connection::proceed`].
    pub(crate) fn proceed(&mut self, context: &mut WorkerContext) {
        let Some(session) = self.session.as_mut().filter(|session| !session.waiting.is_empty()) else {
            return self.connection.proceed(context);
        };
        let (waiting, ended) = (std::mem::take(&mut session.waiting), std::mem::take(&mut session.ended));
        self.open(context, &waiting);
        if ended {
            self.connection.ended();
        }
    }

    /// As [`Connection::has_more`].
    pub(crate) fn has_more(&self) -> bool {
        self.in_handshake() || self.connection.has_more()
    }

    /// Whether an unprocessed part of a handshake is waiting.
    fn in_handshake(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.waiting.is_empty())
    }

    /// As [`Connection::outbound`].
    pub(crate) fn outbound<'a>(&'a mut self, context: &'a mut WorkerContext) -> Outbound<'a> {
        let Some(session) = &mut self.session else { return self.connection.outbound(context) };
        if session.unsent.is_empty()
            && context.sealed.is_empty()
            && session.seal(&mut self.connection, context).is_err()
        {
            session.over = true;
            self.connection.broken();
        }
        match if session.unsent.is_empty() { &context.sealed[..] } else { &session.unsent[..] } {
            [] => Outbound::Nothing,
            bytes => Outbound::Bytes(bytes, false),
        }
    }

    /// Whether [`Link::outbound`] has nothing more. False with TLS, which would have to encrypt to know it.
    pub(crate) fn has_sent_all(&self, context: &WorkerContext) -> bool {
        self.session.is_none() && matches!(self.connection.outbound(context), Outbound::Nothing)
    }

    /// As [`Connection::sent`].
    pub(crate) fn sent(&mut self, context: &mut WorkerContext, count: usize) {
        let before = self.recounted.min(count);
        self.recounted -= before;
        context.recorder.counters().sent((count - before) as u64);
        match &mut self.session {
            None => self.connection.sent(context, count),
            Some(session) => {
                self.connection.sent_below(count);
                if session.unsent.is_empty() {
                    context.sealed.drop_first(count);
                } else {
                    session.unsent.drain(..count.min(session.unsent.len()));
                }
                if session.unsent.is_empty() {
                    // The connection can go on in this turn: no event follows for what the kernel has accepted.
                    self.connection.set_output_pending_below(false);
                }
            }
        }
    }

    /// As [`Connection::not_sent`].
    pub(crate) fn not_sent(&mut self, bytes: &[u8]) {
        self.recounted += bytes.len();
        match &mut self.session {
            None => self.connection.not_sent(bytes),
            Some(session) => drop(session.unsent.splice(..0, bytes.iter().copied())),
        }
    }

    /// As [`Connection::settle`].
    pub(crate) fn settle(&mut self, context: &mut WorkerContext) {
        if let Some(session) = &mut self.session {
            if !context.sealed.is_empty() {
                session.unsent.extend_from_slice(&context.sealed);
                context.sealed.clear();
            } else if session.unsent.is_empty() {
                session.unsent = Vec::new();
            }
            self.connection.set_output_pending_below(!session.unsent.is_empty());
            let buffered_bytes =
                u32::try_from(session.unsent.capacity() + session.waiting.capacity()).unwrap_or(u32::MAX);
            context.backlog.change(std::mem::replace(&mut session.buffered_bytes, buffered_bytes), buffered_bytes);
        }
        self.connection.settle(context);
    }

    /// As [`Connection::discarded`]: raw TLS records.
    pub(crate) fn discarded(&mut self, context: &WorkerContext, bytes: usize) {
        context.recorder.counters().received(bytes as u64);
        self.connection.discarded(bytes);
    }

    /// As [`Connection::step`].
    pub(crate) fn step(&self) -> Step {
        self.connection.step()
    }

    /// As [`Connection::finished`].
    pub(crate) fn finished(&mut self, context: &WorkerContext) {
        self.connection.finished(context);
    }

    /// As [`Connection::deadline`].
    pub(crate) fn deadline(&self) -> Timestamp {
        self.connection.deadline()
    }

    /// As [`Connection::late`]. A session that was never established gets no response.
    pub(crate) fn late(&mut self, context: &mut WorkerContext) {
        match &self.session {
            Some(session) if !session.secure.established() && context.now >= self.connection.deadline() => {
                if !session.over {
                    context.recorder.counters().connection_refused(Refusal::Late);
                }
                self.broken();
            }
            _ => self.connection.late(context),
        }
    }

    /// As [`Connection::stop`].
    pub(crate) fn stop(&mut self) {
        self.connection.stop();
    }

    /// As [`Connection::idle_since`].
    pub(crate) fn idle_since(&self) -> Option<Timestamp> {
        self.connection.idle_since()
    }

    /// As [`Connection::is_full`].
    pub(crate) fn is_full(&self) -> bool {
        let waiting = self.session.as_ref().map_or(0, |session| session.waiting.len());
        waiting >= WAITING_MAX || self.connection.is_full()
    }

    /// As [`Connection::stays_open`].
    pub(crate) fn stays_open(&self) -> bool {
        self.connection.stays_open()
    }

    /// As [`Connection::peer`].
    pub(crate) fn peer(&self) -> SocketAddr {
        self.connection.peer()
    }
}

impl Session {
    /// Encrypts pending output into `context.sealed`, with close_notify after the last record.
    fn seal(&mut self, connection: &mut Connection, context: &mut WorkerContext) -> Result<(), RecordError> {
        if self.over {
            return Ok(());
        }
        let mut sealed = std::mem::take(&mut context.sealed);
        let mut chunk = std::mem::take(&mut context.chunk);
        let outcome = self.seal_some(connection, context, &mut sealed, &mut chunk);
        (context.sealed, context.chunk) = (sealed, chunk);
        let taken = outcome?;
        connection.sent(context, taken);
        if taken == 0 && connection.input_ended() {
            self.over = true;
            self.secure.close(&mut context.sealed);
        }
        Ok(())
    }

    fn seal_some(
        &mut self,
        connection: &Connection,
        context: &WorkerContext,
        sealed: &mut Records,
        chunk: &mut Vec<u8>,
    ) -> Result<usize, RecordError> {
        let secure = &mut self.secure;
        let most = if context.backlog.is_short() { SEALED_SHORT } else { SEALED_MAX };
        match connection.outbound(context) {
            Outbound::Nothing => Ok(0),
            Outbound::Bytes(bytes, _) => {
                let bytes = &bytes[..bytes.len().min(most)];
                secure.encrypt(bytes, sealed).map_err(|_| RecordError)?;
                Ok(bytes.len())
            }
            Outbound::Both(front, rest) => {
                // One record for both, if they fit.
                chunk.clear();
                chunk.extend_from_slice(&front[..front.len().min(most)]);
                chunk.extend_from_slice(&rest[..rest.len().min(most - chunk.len())]);
                secure.encrypt(chunk, sealed).map_err(|_| RecordError)?;
                Ok(chunk.len())
            }
            Outbound::File { front, file, page, range } => {
                chunk.clear();
                chunk.extend_from_slice(&front[..front.len().min(most)]);
                let from = chunk.len();
                let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(most - from);
                let got = append_from(file, range.start, length, chunk).map_err(|_| RecordError)?;
                let is_last = got as u64 == range.end - range.start;
                if (got == 0 && length > 0) || (is_last && !page.is_intact()) {
                    // The file was truncated or changed after its head was sent: only a reset tells the client.
                    return Err(RecordError);
                }
                secure.encrypt(chunk, sealed).map_err(|_| RecordError)?;
                Ok(chunk.len())
            }
        }
    }
}

/// No more records can be written: the connection is reset.
struct RecordError;

/// Waiting bytes of a handshake, beyond which no more input is received.
const WAITING_MAX: usize = 16 << 10;
/// Plaintext encrypted at a time: four of the largest records.
const SEALED_MAX: usize = 64 << 10;
/// The same with a short backlog.
const SEALED_SHORT: usize = 16 << 10;
