//! The output of a connection, piece by piece.

use std::ops::Range;

use bytes::Buf as _;

use super::{Connection, Outbound, WorkerContext};
use crate::file_response::{Piece, Tail};
use crate::files::{Content, Page};

impl Connection {
    /// What to send now.
    pub(crate) fn outbound<'a>(&'a self, context: &'a WorkerContext) -> Outbound<'a> {
        let front = if self.unsent.is_empty() { &context.out[..] } else { &self.unsent[..] };
        match &self.tail {
            None | Some(Tail::Awaited) if front.is_empty() => Outbound::Nothing,
            Some(Tail::Awaited) => Outbound::Bytes(front, false),
            // The last bytes are sent with the FIN: one packet and one wake-up of the client less.
            None => Outbound::Bytes(front, !self.stays_open()),
            Some(Tail::Page(page, range)) => page_part(front, page, range),
            Some(Tail::Pieces(pieces)) => match pieces.front() {
                Some(Piece::Text(text)) => Outbound::Both(front, text),
                Some(Piece::Page(page, range)) => page_part(front, page, range),
                None => Outbound::Nothing,
            },
            Some(Tail::Stored(bytes)) => Outbound::Both(front, bytes),
            Some(Tail::WorkloadBody(body)) => Outbound::Both(front, body.rest()),
        }
    }

    /// The kernel accepted the first `count` bytes of [`Connection::outbound`].
    pub(crate) fn sent(&mut self, context: &mut WorkerContext, count: usize) {
        if let Some(taken) = &mut self.owing {
            *taken += count as u64;
        }
        let front = if self.unsent.is_empty() { &context.out } else { &self.unsent };
        let of_front = count.min(front.len());
        self.acknowledge(context, of_front);
        let front = if self.unsent.is_empty() { &mut context.out } else { &mut self.unsent };
        if of_front == front.len() {
            front.clear();
        } else {
            front.drain(..of_front);
        }
        let rest = (count - of_front) as u64;
        match &mut self.tail {
            None => {}
            Some(Tail::Page(_, range)) => range.start += rest,
            Some(Tail::Pieces(pieces)) => match pieces.front_mut() {
                // A rare piece of some hundred bytes, rarely split.
                Some(Piece::Text(text)) => *text = text[rest as usize..].into(),
                Some(Piece::Page(_, range)) => range.start += rest,
                None => {}
            },
            Some(Tail::Stored(bytes)) => bytes.advance(rest as usize),
            Some(Tail::WorkloadBody(body)) => body.advance(rest as usize),
            Some(Tail::Awaited) => {}
        }
        self.skip_what_is_sent(context);
    }

    /// Drops a tail, or pieces of it, that are sent completely.
    pub(super) fn skip_what_is_sent(&mut self, context: &mut WorkerContext) {
        let over = match &mut self.tail {
            None => false,
            Some(Tail::Page(_, range)) => range.is_empty(),
            Some(Tail::Pieces(pieces)) => {
                while pieces.front().is_some_and(is_sent) {
                    pieces.pop_front();
                }
                pieces.is_empty()
            }
            Some(Tail::Stored(bytes)) => bytes.is_empty(),
            Some(Tail::WorkloadBody(body)) => body.length() == 0,
            Some(Tail::Awaited) => false,
        };
        if over {
            self.tail = None;
            self.enter(context, true);
        }
    }

    /// Bytes that [`Connection::sent`] counted were not accepted after all: they are sent first.
    pub(crate) fn not_sent(&mut self, bytes: &[u8]) {
        self.unsent.splice(..0, bytes.iter().copied());
    }
}

fn is_sent(piece: &Piece) -> bool {
    match piece {
        Piece::Text(text) => text.is_empty(),
        Piece::Page(_, range) => range.is_empty(),
    }
}

fn page_part<'a>(front: &'a [u8], page: &'a Page, range: &Range<u64>) -> Outbound<'a> {
    match &page.content {
        Content::Held(bytes) => Outbound::Both(front, &bytes[range.start as usize..range.end as usize]),
        Content::Stored(file, _) => Outbound::File { front, file, page, range: range.clone() },
    }
}
