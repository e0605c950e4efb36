//! Segments beyond a hole, held until it is filled.

use std::collections::VecDeque;

use crate::work;

/// Pieces in the order of their starts; they may overlap.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: VecDeque<Piece>,
    held: usize,
}

/// A segment's bytes, as far as they could be read.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    /// Where the segment ended, which may be beyond the readable bytes.
    pub(super) end: u64,
    pub(super) bytes: Box<[u8]>,
}

impl Pieces {
    /// Bytes of room taken.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// What holding so many bytes takes.
    pub(super) fn cost(bytes: usize) -> usize {
        bytes + PIECE_COST
    }

    /// Whether a piece would add nothing, or one more is too many.
    pub(super) fn refuses(&self, start: u64, end: u64) -> bool {
        self.pieces.len() >= PIECES_MAX
            || self.pieces.iter().rev().take(8).any(|piece| piece.start <= start && end <= piece.end)
    }

    pub(super) fn insert(&mut self, piece: Piece) {
        self.held += Self::cost(piece.bytes.len());
        let at = self.pieces.partition_point(|other| other.start <= piece.start);
        // What the deque moves to make room.
        work::spend(at.min(self.pieces.len() - at));
        self.pieces.insert(at, piece);
    }

    pub(super) fn first(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    /// Drops the first piece; gives the room it took.
    pub(super) fn drop_first(&mut self) -> usize {
        let Some(piece) = self.pieces.pop_front() else { return 0 };
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
        let cost = Self::cost(piece.bytes.len());
        self.held -= cost;
        cost
    }
}

/// What a piece takes besides its bytes.
const PIECE_COST: usize = 64;
/// Pieces of a byte each would otherwise make insertion slow.
const PIECES_MAX: usize = 1024;
