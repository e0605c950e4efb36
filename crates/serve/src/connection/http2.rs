//! A connection that speaks HTTP/2: the bytes and timeouts around its streams.

use units::Timestamp;

use super::{Connection, Phase, WorkerContext};
use crate::dynamic::Event;
pub(super) use crate::http2::PREFACE;
use crate::http2::{ErrorCode, Http2};
use crate::multiplexed::Ends;

impl Connection {
    /// The client speaks HTTP/2: by ALPN, or by its preface.
    pub(crate) fn begin_http2(&mut self, context: &mut WorkerContext) {
        let ends = Ends { connection: self.ticket.connection, peer: self.peer, local: self.local, secure: self.secure };
        self.http2 = Some(Box::new(Http2::new(ends, &mut context.out, context.limits.head_bytes)));
    }

    /// Whether the beginning of a connection without TLS is that of HTTP/2, as far as it has arrived
    /// (RFC 9113, section 3.3).
    pub(super) fn begins_http2(&self, input: &[u8]) -> bool {
        let length = input.len().min(PREFACE.len());
        // No method of HTTP/1 that this server knows begins with `PRI`.
        self.is_new && length >= 3 && input[..length] == PREFACE[..length] && !self.secure && !self.framed
    }

    /// Whether the streams have output now.
    pub(super) fn has_streams_to_send(&self) -> bool {
        self.phase == Phase::Open && self.http2.as_ref().is_some_and(|http2| http2.has_output())
    }

    /// Processes frames at the beginning of `input`, and writes output of the streams.
    pub(super) fn work_http2(&mut self, context: &mut WorkerContext, input: &[u8]) -> usize {
        if !self.unsent.is_empty() {
            self.held_up = !input.is_empty();
            return 0;
        }
        let mut outcome = Ok(0);
        self.with_http2(context, |http2, context| outcome = http2.work(context, input));
        match outcome {
            Ok(used) => {
                self.held_up = Http2::has_frame(&input[used..]);
                self.end_http2_if_over();
                used
            }
            Err(code) => {
                self.fail_http2(context, code);
                input.len()
            }
        }
    }

    /// Processes an event of the relay.
    pub(super) fn relay_event_of_stream(&mut self, context: &mut WorkerContext, stream: u64, event: Event) {
        self.with_http2(context, |http2, context| http2.relay_event(context, stream, event));
        self.end_http2_if_over();
    }

    /// The server stops: this connection ends with its current responses.
    pub(super) fn stop_streams(&mut self) {
        if let Some(http2) = &mut self.http2 {
            http2.depart();
        }
    }

    /// Ends all streams.
    pub(super) fn leave_streams(&mut self, context: &mut WorkerContext) {
        if let Some(http2) = &mut self.http2 {
            http2.leave(context);
        }
    }

    /// As [`Connection::deadline`], of the streams.
    pub(super) fn streams_deadline(&self) -> Timestamp {
        self.http2.as_ref().map_or(Timestamp::MAX, |http2| http2.deadline())
    }

    /// Whether no request is unfinished.
    pub(super) fn has_no_stream(&self) -> bool {
        self.http2.as_ref().is_none_or(|http2| http2.is_idle())
    }

    /// The deadline of a stream has expired.
    pub(super) fn streams_late(&mut self, context: &mut WorkerContext) {
        self.with_http2(context, |http2, context| http2.late(context));
        self.end_http2_if_over();
    }

    /// No request came within its time.
    pub(super) fn end_idle_http2(&mut self, context: &mut WorkerContext) {
        self.fail_http2(context, ErrorCode::NoError);
    }

    /// Updates the deadline, as [`Connection::settle`] does without streams and with no output pending.
    pub(super) fn settle_http2(&mut self, context: &WorkerContext, owed: bool) {
        let Some(http2) = &mut self.http2 else { return };
        let is_idle = http2.is_idle();
        let is_partial = http2.is_in_section() || (!self.unread.is_empty() && !self.held_up);
        let took_frame = http2.took_frame();
        if http2.took_request() || !is_idle || owed {
            self.idle_since = context.now;
        }
        if is_partial {
            // As the head of HTTP/1: further bytes of the same frame do not prolong it.
            if took_frame || !self.head_began {
                self.head_began = true;
                self.deadline = context.now + context.limits.head_time;
            }
            return;
        }
        // The first frame has as much time as the first head.
        if took_frame || !self.head_began {
            self.head_began = false;
            self.deadline = if is_idle { self.idle_since + context.limits.idle_time } else { Timestamp::MAX };
        }
    }

    /// Lends the output buffer to the streams.
    fn with_http2(&mut self, context: &mut WorkerContext, work: impl FnOnce(&mut Http2, &mut WorkerContext)) {
        let Some(mut http2) = self.http2.take() else { return };
        std::mem::swap(&mut context.out, &mut context.frames);
        work(&mut http2, context);
        if self.unsent.is_empty() {
            let most = context.backlog.output_full();
            http2.fill(context, most);
        }
        http2.settle();
        std::mem::swap(&mut context.out, &mut context.frames);
        self.http2 = Some(http2);
    }

    fn end_http2_if_over(&mut self) {
        if self.phase == Phase::Open && self.http2.as_ref().is_some_and(|http2| http2.is_over()) {
            self.phase = Phase::EndingGently;
        }
    }

    /// Ends the connection with an error, or without one.
    fn fail_http2(&mut self, context: &mut WorkerContext, code: ErrorCode) {
        if let Some(http2) = &mut self.http2 {
            http2.leave(context);
            http2.write_end(&mut context.out, code);
        }
        self.phase = Phase::EndingGently;
    }
}
