//! Segments beyond a hole, held until it is filled.

use std::collections::VecDeque;

use crate::work;

/// Pieces in the order of their starts; they may overlap.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: VecDeque<Piece>,
    held: usize,
}

/// The captured bytes of a segment.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    /// End of the segment, which may be beyond the captured bytes.
    pub(super) end: u64,
    pub(super) bytes: Box<[u8]>,
}

impl Pieces {
    /// Memory used.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Memory for holding `bytes`.
    pub(super) fn cost(bytes: usize) -> usize {
        bytes + PIECE_COST
    }

    /// Whether a piece would add nothing, or exceed the limit.
    pub(super) fn refuses(&self, start: u64, end: u64) -> bool {
        self.pieces.len() >= PIECES_MAX
            || self.pieces.iter().rev().take(8).any(|piece| piece.start <= start && end <= piece.end)
    }

    pub(super) fn insert(&mut self, piece: Piece) {
        self.held += Self::cost(piece.bytes.len());
        let at = self.pieces.partition_point(|other| other.start <= piece.start);
        // Elements that the deque moves for the insertion.
        work::spend(at.min(self.pieces.len() - at));
        self.pieces.insert(at, piece);
    }

    pub(super) fn first(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    /// Drops the first piece; returns its memory.
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

/// Overhead of a piece.
const PIECE_COST: usize = 64;
/// Limits the cost of insertion for pieces of a byte each.
const PIECES_MAX: usize = 1024;
