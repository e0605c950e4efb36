//! What the connections of a worker may make it keep, together.
//!
//! One connection keeps some 48 KiB of answers that its client does not take and some 32 KiB of requests sent ahead. A
//! thousand that only ask and never read would be 80 MB. So a worker has a bound for all of them: from half of it on
//! nobody is answered or read ahead, and at the bound whoever still adds to it is cut off. That meets only those who do not
//! take what they asked for: an answer that goes into the socket costs nothing here, nor does a file that waits to.

use super::{Connection, Desk, OUTPUT_FULL};
use crate::figures::Refusal;

/// Bytes kept for all connections of a worker.
#[derive(Debug)]
pub(crate) struct Backlog {
    bytes: usize,
    /// The bound.
    pub(crate) bytes_max: usize,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Backlog { bytes: 0, bytes_max: BACKLOG_MAX }
    }

    /// One connection keeps `now` instead of `before`.
    pub(crate) fn change(&mut self, before: u32, now: u32) {
        self.bytes = self.bytes - before as usize + now as usize;
    }

    /// Answers to requests sent ahead are collected up to here.
    pub(crate) fn output_full(&self) -> usize {
        if self.is_short() { 1 } else { OUTPUT_FULL }
    }

    /// Nothing is to be answered or read ahead.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes >= self.bytes_max / 2
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Connection {
    /// Reckons what is kept for this connection; with nothing left for it, it is cut off. A dynamic answer is bounded by its
    /// window, and counts with the relay.
    pub(super) fn weigh(&mut self, desk: &mut Desk) {
        let relayed = self.exchange.as_ref().is_some_and(|exchange| exchange.relayed.is_some());
        let ahead = if self.owes() || self.held_up { self.unread.capacity() } else { 0 };
        let kept = if relayed { 0 } else { u32::try_from(self.unsent.capacity() + ahead).unwrap_or(u32::MAX) };
        desk.backlog.change(self.kept, kept);
        self.kept = kept;
        self.crowded = !relayed && desk.backlog.is_short();
        if desk.backlog.is_full() && kept >= WORTH_IT {
            desk.books.counters().connection_refused(Refusal::Backlog);
            self.enter(desk, false);
            self.aborted = true;
            self.broken();
            self.unread = Vec::new();
            desk.backlog.change(self.kept, 0);
            self.kept = 0;
        }
    }
}

/// Of one worker: some 200 clients that take nothing, each with as much as one may have; thousands that are kept short.
const BACKLOG_MAX: usize = 16 << 20;
/// Cutting off who keeps less would gain nothing: the head of a file's answer, say, whose client is slow.
pub(super) const WORTH_IT: u32 = 4 << 10;
