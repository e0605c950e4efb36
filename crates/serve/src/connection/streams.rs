//! A connection as one stream of another: see `multiplexed.rs`.

use super::{Connection, Phase, WorkerContext};
use crate::dynamic::Ticket;
use crate::multiplexed::{Ends, Progress};

impl Connection {
    /// For one request; it is not counted as a connection.
    pub(crate) fn of_stream(ticket: Ticket, ends: &Ends, context: &WorkerContext) -> Self {
        let mut connection = Connection::uncounted(ticket, ends.peer, ends.local, ends.secure, context);
        connection.framed = true;
        // The connection of the stream counts its requests.
        connection.uses_left = u32::MAX;
        connection
    }

    /// Output that precedes the content of `tail`; `out`: the worker's buffer.
    pub(crate) fn front<'a>(&'a self, out: &'a [u8]) -> &'a [u8] {
        if self.unsent.is_empty() { out } else { &self.unsent }
    }

    /// Whether the response comes from the relay.
    pub(crate) fn is_relayed(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.relayed.is_some())
    }

    /// Input that waits for its turn.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.unread.len()
    }

    /// What is left of the response, whose head was taken or not.
    pub(crate) fn progress(&self, context: &WorkerContext, head_taken: bool) -> Progress {
        if self.phase == Phase::Over {
            return Progress::Broken;
        }
        let is_pending = !self.front(&context.out).is_empty() || self.tail.is_some() || self.exchange.is_some();
        match (is_pending, head_taken && !self.cut_short) {
            (true, _) => Progress::Unfinished,
            (false, true) => Progress::Complete,
            (false, false) => Progress::Broken,
        }
    }

    /// The stream ends, as [`Connection::leave`].
    pub(crate) fn leave_stream(&mut self, context: &mut WorkerContext) {
        context.backlog.change(std::mem::take(&mut self.buffered_bytes), 0);
        let whole = self.was_sent_all();
        self.leave_relay(context);
        self.enter(context, whole);
    }
}
