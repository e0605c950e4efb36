//! Limits the memory of all connections of a worker together.
//!
//! One connection buffers up to 48 KiB of unread responses and 32 KiB of pipelined requests. A thousand clients that
//! never read would use 80 MB. So a worker has a limit for all of them: from half of it on nothing is prepared or read
//! ahead, and at the limit a connection that adds to it is reset. Only clients that do not read are affected: a
//! response in the socket's buffer does not count, nor does a pending file.

use super::{Connection, OUTPUT_FULL, WorkerContext};
use crate::figures::Refusal;

/// Bytes buffered for all connections of a worker.
#[derive(Debug)]
pub(crate) struct Backlog {
    bytes: usize,
    /// The limit.
    pub(crate) bytes_max: usize,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Backlog { bytes: 0, bytes_max: BACKLOG_MAX }
    }

    /// One connection buffers `now` bytes instead of `before`.
    pub(crate) fn change(&mut self, before: u32, now: u32) {
        self.bytes = self.bytes - before as usize + now as usize;
    }

    /// Responses to pipelined requests are collected up to this many bytes.
    pub(crate) fn output_full(&self) -> usize {
        if self.is_short() { 1 } else { OUTPUT_FULL }
    }

    /// Whether pipelining and read-ahead are suspended.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes >= self.bytes_max / 2
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Connection {
    /// Updates this connection's share; resets the connection when the limit is reached. A dynamic response is limited
    /// by its window and counts at the relay.
    pub(super) fn update_share(&mut self, context: &mut WorkerContext) {
        let relayed = self.exchange.as_ref().is_some_and(|exchange| exchange.relayed.is_some());
        let ahead = if self.has_pending_output() || self.held_up { self.unread.capacity() } else { 0 };
        let ahead = ahead + self.http2.as_ref().map_or(0, |http2| http2.buffered_bytes());
        let buffered_bytes =
            if relayed { 0 } else { u32::try_from(self.unsent.capacity() + ahead).unwrap_or(u32::MAX) };
        context.backlog.change(self.buffered_bytes, buffered_bytes);
        self.buffered_bytes = buffered_bytes;
        self.crowded = !relayed && context.backlog.is_short();
        if context.backlog.is_full() && buffered_bytes >= CHECK_ABOVE_BYTES {
            context.recorder.counters().connection_refused(Refusal::Backlog);
            self.enter(context, false);
            self.aborted = true;
            self.broken();
            self.unread = Vec::new();
            context.backlog.change(self.buffered_bytes, 0);
            self.buffered_bytes = 0;
        }
    }
}

/// Limit of one worker: some 200 clients that do not read, with the maximum each; thousands with less.
const BACKLOG_MAX: usize = 16 << 20;
/// Connections with less are not reset, such as slow clients with the head of a file's response.
pub(super) const CHECK_ABOVE_BYTES: u32 = 4 << 10;
