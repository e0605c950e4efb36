//! What a connection has to say, piece by piece.

use std::ops::Range;

use bytes::Buf as _;

use super::{Connection, Desk, Outbound};
use crate::answer::{Piece, Tail};
use crate::files::{Content, Page};

impl Connection {
    /// What is to be sent now.
    pub(crate) fn outbound<'a>(&'a self, desk: &'a Desk) -> Outbound<'a> {
        let front = if self.unsent.is_empty() { &desk.out[..] } else { &self.unsent[..] };
        match &self.tail {
            None | Some(Tail::Awaited) if front.is_empty() => Outbound::Nothing,
            Some(Tail::Awaited) => Outbound::Bytes(front, false),
            // The last bytes wait for the FIN, which follows at once: one packet, and one waking of the client, less.
            None => Outbound::Bytes(front, !self.stays_open()),
            Some(Tail::Page(page, range)) => page_part(front, page, range),
            Some(Tail::Pieces(pieces)) => match pieces.front() {
                Some(Piece::Text(text)) => Outbound::Both(front, text),
                Some(Piece::Page(page, range)) => page_part(front, page, range),
                None => Outbound::Nothing,
            },
            Some(Tail::Stored(bytes)) => Outbound::Both(front, bytes),
            Some(Tail::Matter(matter)) => Outbound::Both(front, matter.rest()),
        }
    }

    /// The kernel has taken the first `count` bytes of what [`Connection::outbound`] offered.
    pub(crate) fn sent(&mut self, desk: &mut Desk, count: usize) {
        if let Some(taken) = &mut self.owing {
            *taken += count as u64;
        }
        let front = if self.unsent.is_empty() { &desk.out } else { &self.unsent };
        let of_front = count.min(front.len());
        self.acknowledge(desk, of_front);
        let front = if self.unsent.is_empty() { &mut desk.out } else { &mut self.unsent };
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
                // A rare piece of some hundred bytes, rarely cut.
                Some(Piece::Text(text)) => *text = text[rest as usize..].into(),
                Some(Piece::Page(_, range)) => range.start += rest,
                None => {}
            },
            Some(Tail::Stored(bytes)) => bytes.advance(rest as usize),
            Some(Tail::Matter(matter)) => matter.advance(rest as usize),
            Some(Tail::Awaited) => {}
        }
        self.skip_what_is_sent(desk);
    }

    /// Lets go of a tail, or of pieces of it, of which nothing is left.
    pub(super) fn skip_what_is_sent(&mut self, desk: &mut Desk) {
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
            Some(Tail::Matter(matter)) => matter.length() == 0,
            Some(Tail::Awaited) => false,
        };
        if over {
            self.tail = None;
            self.enter(desk, true);
        }
    }

    /// What [`Connection::sent`] was told was not taken after all: it goes first.
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
