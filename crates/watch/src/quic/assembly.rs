//! Puts the pieces of a stream of bytes in order.

use std::collections::BTreeMap;

/// A stream whose bytes arrive in pieces, in any order and repeatedly.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Everything before this offset was passed on.
    next: u64,
    /// Pieces that begin behind it, by their starts; they may overlap.
    pieces: BTreeMap<u64, Piece>,
    /// Memory of the pieces.
    held: usize,
}

/// A piece behind a hole.
#[derive(Debug)]
struct Piece {
    length: u64,
    /// Empty if they are skipped.
    bytes: Box<[u8]>,
}

impl Assembly {
    /// Memory in use.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Offset of the first byte that was not passed on.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Passes on bytes at `offset` if they continue the stream. Returns the part that does, and keeps pieces that will
    /// do so later, in at most `most` bytes of memory; `None` if a piece does not fit. Of a piece that ends before
    /// `skipped_until` only the position is kept, not the bytes.
    pub(crate) fn receive<'a>(
        &mut self,
        offset: u64,
        bytes: &'a [u8],
        skipped_until: u64,
        most: usize,
    ) -> Option<&'a [u8]> {
        let end = offset.checked_add(bytes.len() as u64)?;
        if end <= self.next {
            return Some(&[]);
        }
        if offset <= self.next {
            let new = &bytes[(self.next - offset) as usize..];
            self.next = end;
            return Some(new);
        }
        let length = bytes.len() as u64;
        if self.pieces.get(&offset).is_some_and(|piece| piece.length >= length) {
            return Some(&[]);
        }
        let bytes = if end <= skipped_until { &[] } else { bytes };
        let cost = bytes.len() + PIECE_COST;
        if self.held + cost > most {
            return None;
        }
        self.held += cost;
        if let Some(shorter) = self.pieces.insert(offset, Piece { length, bytes: bytes.into() }) {
            self.held -= shorter.bytes.len() + PIECE_COST;
        }
        Some(&[])
    }

    /// The next stored piece that continues the stream: its new bytes, and their number, which is larger if the bytes
    /// themselves were not kept.
    pub(crate) fn stored(&mut self) -> Option<(Vec<u8>, u64)> {
        loop {
            let first = self.pieces.first_entry()?;
            let start = *first.key();
            if start > self.next {
                return None;
            }
            let piece = first.remove();
            self.held -= piece.bytes.len() + PIECE_COST;
            let end = start + piece.length;
            if end > self.next {
                let (seen, new) = (self.next - start, end - self.next);
                self.next = end;
                let mut bytes = piece.bytes.into_vec();
                bytes.drain(..bytes.len().min(seen as usize));
                return Some((bytes, new));
            }
        }
    }

    /// Forgets all pieces; returns their memory.
    pub(crate) fn clear(&mut self) -> usize {
        self.pieces.clear();
        std::mem::take(&mut self.held)
    }
}

/// Overhead of a piece in the tree.
const PIECE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All bytes that a piece lets pass.
    fn receive(assembly: &mut Assembly, offset: u64, bytes: &[u8], into: &mut Vec<u8>) {
        into.extend(assembly.receive(offset, bytes, 0, 1 << 20).unwrap());
        while let Some((piece, new)) = assembly.stored() {
            assert_eq!(piece.len() as u64, new);
            into.extend(&piece);
        }
    }

    #[test]
    fn pieces_beyond_the_memory_are_refused_and_offsets_do_not_overflow() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.receive(10, &[0; 100], 0, 163), None);
        assert_eq!(assembly.receive(10, &[0; 100], 0, 164), Some(&[][..]));
        assert_eq!(assembly.receive(10, &[0; 50], 0, 164), Some(&[][..]), "known");
        assert_eq!(assembly.receive(u64::MAX, &[0; 2], 0, 1 << 20), None);
        assert_eq!((assembly.held(), assembly.clear(), assembly.held()), (164, 164, 0));
        assert_eq!(assembly.receive(10, &[0; 100], 110, 64), Some(&[][..]), "without its bytes");
        assert_eq!(assembly.receive(0, &[7; 20], 110, 0), Some(&[7; 20][..]));
        assert_eq!(assembly.stored(), Some((Vec::new(), 90)));
        assert_eq!((assembly.next(), assembly.held()), (110, 0));
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_give_the_stream(
            pieces in prop::collection::vec((0usize..200, 1usize..60), 0..60),
        ) {
            let stream: Vec<u8> = (0..=255).collect();
            let (mut assembly, mut seen) = (Assembly::default(), Vec::new());
            for &(at, length) in &pieces {
                receive(&mut assembly, at as u64, &stream[at..(at + length).min(256)], &mut seen);
                prop_assert_eq!(seen.len() as u64, assembly.next());
                prop_assert_eq!(&seen[..], &stream[..seen.len()]);
            }
            let mut covered = 0;
            while let Some(&(at, length)) = pieces.iter().find(|&&(at, length)| at <= covered && covered < (at + length).min(256)) {
                covered = (at + length).min(256);
            }
            prop_assert_eq!(seen.len(), covered);
            assembly.clear();
            prop_assert_eq!(assembly.held(), 0);
        }
    }
}
