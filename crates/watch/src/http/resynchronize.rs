//! Resynchronization after bytes that were not captured: what is lost, and where reading continues.

use schema::Direction;

use super::exchange::Exchange;
use super::framing::Stage;
use super::{Http, head};
use crate::out::Out;

impl Http {
    /// Marks the end of the current message, and the start of the next, as unknown.
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
        if direction == Direction::Down && self.down.is_open && self.queue.front().is_some_and(Exchange::has_no_request)
        {
            // A response without a request and without readable parts is not a response.
            self.down.is_open = false;
            self.queue.pop_front();
            if self.requests == 0 && self.up.stage == Stage::Between {
                self.finish(out);
            }
        }
    }

    /// Discards a request that is not one. If it was the first, the connection uses another protocol.
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

    /// This side sends again after the other, with its position lost: searches the start of a message.
    pub(super) fn look_for_start(&mut self, direction: Direction, bytes: &[u8], out: &mut Out<'_>) {
        match direction {
            Direction::Up if head::may_be_request(bytes) => {
                self.end_lost_request(out);
                self.up.stage = Stage::Between;
            }
            Direction::Down if head::may_be_response(bytes) => {
                if self.down.is_open {
                    // An interim response, truncated: the final one follows it.
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

    /// A request begins: ends a response without a known end.
    pub(super) fn end_lost_response(&mut self, out: &mut Out<'_>) {
        if self.down.stage == Stage::Lost && self.down.is_open {
            self.message_ended(Direction::Down, out);
            // All other waiting requests had their responses, unseen, in the same turn.
            while let Some(exchange) = self.queue.pop_front() {
                exchange.record(out);
            }
        }
    }

    /// A response begins: ends a request without a known end.
    pub(super) fn end_lost_request(&mut self, out: &mut Out<'_>) {
        if self.up.stage == Stage::Lost && self.up.is_open {
            self.message_ended(Direction::Up, out);
        }
    }
}
