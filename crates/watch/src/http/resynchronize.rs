//! After bytes that nobody saw: what is lost, and where reading begins again.

use schema::Direction;

use super::exchange::Exchange;
use super::framing::Stage;
use super::{Http, head};
use crate::out::Out;

impl Http {
    /// The end of the message in progress, and the start of the next, can no longer be told.
    pub(super) fn lose(&mut self, direction: Direction, out: &mut Out<'_>) {
        let reader = self.reader_mut(direction);
        let held = reader.take_held();
        reader.lose();
        out.release(held.len());
        if !held.is_empty() {
            self.head_cut(direction, &held, out);
        }
        if direction == Direction::Up && self.up.is_open && self.queue.back().is_some_and(Exchange::is_unread) {
            self.forget_request(out);
        }
        if direction == Direction::Down && self.down.is_open && self.queue.front().is_some_and(Exchange::is_unasked) {
            // Neither asked for nor readable: what looked like a response is none.
            self.down.is_open = false;
            self.queue.pop_front();
            if self.requests == 0 && self.up.stage == Stage::Between {
                self.finish(out);
            }
        }
    }

    /// What looked like a request is none. If it was the first, this is another protocol.
    pub(super) fn forget_request(&mut self, out: &mut Out<'_>) {
        self.up.is_open = false;
        if let Some(exchange) = self.queue.pop_back() {
            exchange.forget(out);
        }
        self.requests = self.requests.saturating_sub(1);
        if self.requests == 0 {
            self.close_session(out);
            self.finish(out);
        }
    }

    /// This side speaks again after the other, with its place lost: does a message start here?
    pub(super) fn look_for_start(&mut self, direction: Direction, bytes: &[u8], out: &mut Out<'_>) {
        match direction {
            Direction::Up if head::may_be_request(bytes) => {
                self.end_lost_request(out);
                self.up.stage = Stage::Between;
            }
            Direction::Down if head::may_be_response(bytes) => {
                if self.down.is_open {
                    // An interim response, cut: the final one follows it.
                    self.down.is_open = false;
                }
                self.down.stage = Stage::Between;
            }
            Direction::Down if !self.down.is_open && !self.queue.is_empty() => {
                self.message_began(direction, out);
                self.down.lose();
            }
            _ => {}
        }
    }

    /// A request begins: a response without a known end is over.
    pub(super) fn end_lost_response(&mut self, out: &mut Out<'_>) {
        if self.down.stage == Stage::Lost && self.down.is_open {
            self.message_ended(Direction::Down, out);
            // Whatever else waited was answered, unseen, in the same turn.
            while let Some(exchange) = self.queue.pop_front() {
                exchange.record(out);
            }
        }
    }

    /// A response begins: a request without a known end is over.
    pub(super) fn end_lost_request(&mut self, out: &mut Out<'_>) {
        if self.up.stage == Stage::Lost && self.up.is_open {
            self.message_ended(Direction::Up, out);
        }
    }
}
