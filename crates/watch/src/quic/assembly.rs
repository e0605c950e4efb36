//! Puts the pieces of a stream of bytes in order.

use std::collections::BTreeMap;

/// A stream whose bytes arrive in pieces, in any order and repeatedly.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Everything before this offset was passed on or skipped.
    next: u64,
    /// Pieces that begin behind it, by their starts; they may overlap.
    pieces: BTreeMap<u64, Box<[u8]>>,
    /// Memory of the pieces.
    held: usize,
}

impl Assembly {
    /// Memory in use.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Passes on bytes at `offset` if they continue the stream. Returns the part that does, and keeps pieces that will
    /// do so later, in at most `most` bytes of memory; `None` if a piece does not fit.
    pub(crate) fn receive<'a>(&mut self, offset: u64, bytes: &'a [u8], most: usize) -> Option<&'a [u8]> {
        let end = offset.checked_add(bytes.len() as u64)?;
        if end <= self.next {
            return Some(&[]);
        }
        if offset <= self.next {
            let new = &bytes[(self.next - offset) as usize..];
            self.next = end;
            return Some(new);
        }
        let replaced = self.pieces.get(&offset).map(|piece| piece.len());
        if replaced.is_some_and(|length| length >= bytes.len()) {
            return Some(&[]);
        }
        let cost = bytes.len() + PIECE_COST;
        if self.held + cost > most {
            return None;
        }
        self.held = self.held + cost - replaced.map_or(0, |length| length + PIECE_COST);
        self.pieces.insert(offset, bytes.into());
        Some(&[])
    }

    /// The new bytes of the next stored piece that continues the stream.
    pub(crate) fn stored(&mut self) -> Option<Vec<u8>> {
        loop {
            let (start, piece) = self.take_first()?;
            let end = start + piece.len() as u64;
            if end > self.next {
                let mut bytes = piece.into_vec();
                bytes.drain(..(self.next - start) as usize);
                self.next = end;
                return Some(bytes);
            }
        }
    }

    /// The next `count` bytes are of no interest, whether they were received or not. Returns the memory that is free.
    pub(crate) fn skip(&mut self, count: u64) -> usize {
        let held = self.held;
        self.next = self.next.saturating_add(count);
        while let Some((&start, piece)) = self.pieces.first_key_value()
            && start + piece.len() as u64 <= self.next
        {
            self.take_first();
        }
        held - self.held
    }

    /// Removes the first piece, if it begins at most where the stream continues.
    fn take_first(&mut self) -> Option<(u64, Box<[u8]>)> {
        let first = self.pieces.first_entry().filter(|first| *first.key() <= self.next)?;
        let (start, piece) = first.remove_entry();
        self.held -= piece.len() + PIECE_COST;
        Some((start, piece))
    }

    /// Forgets all pieces; returns their memory.
    pub(crate) fn clear(&mut self) -> usize {
        self.pieces.clear();
        std::mem::take(&mut self.held)
    }
}

/// Which bytes of a stream were received, without the bytes.
#[derive(Debug, Default)]
pub(crate) struct Received {
    next: u64,
    /// Ranges behind a hole: end by start. They neither touch nor overlap.
    later: BTreeMap<u64, u64>,
}

impl Received {
    /// Offset of the first byte that was not received.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Memory in use.
    pub(crate) fn held(&self) -> usize {
        self.later.len() * PIECE_COST
    }

    /// Adds a range, in at most `most` bytes of memory; `None` if it does not fit.
    pub(crate) fn add(&mut self, offset: u64, length: u64, most: usize) -> Option<()> {
        let (mut start, mut end) = (offset, offset.checked_add(length)?);
        if end <= self.next {
            return Some(());
        }
        while let Some((&from, &to)) = self.later.range(..=end).next_back()
            && to >= start
        {
            (start, end) = (start.min(from), end.max(to));
            self.later.remove(&from);
        }
        if start <= self.next {
            self.next = end;
        } else {
            self.later.insert(start, end);
        }
        (self.held() <= most).then_some(())
    }

    /// Forgets the ranges behind a hole; returns their memory.
    pub(crate) fn clear(&mut self) -> usize {
        let held = self.held();
        self.later.clear();
        held
    }
}

/// Overhead of a piece or range in the tree.
const PIECE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All bytes that a piece lets pass.
    fn receive(assembly: &mut Assembly, offset: u64, bytes: &[u8], into: &mut Vec<u8>) {
        into.extend(assembly.receive(offset, bytes, 1 << 20).unwrap());
        while let Some(piece) = assembly.stored() {
            into.extend(&piece);
        }
    }

    #[test]
    fn pieces_beyond_the_memory_are_refused_and_offsets_do_not_overflow() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.receive(10, &[0; 100], 163), None);
        assert_eq!(assembly.receive(10, &[0; 100], 164), Some(&[][..]));
        assert_eq!(assembly.receive(10, &[0; 50], 164), Some(&[][..]), "known");
        assert_eq!(assembly.receive(u64::MAX, &[0; 2], 1 << 20), None);
        assert_eq!((assembly.held(), assembly.clear(), assembly.held()), (164, 164, 0));
        let mut received = Received::default();
        assert_eq!((received.add(10, 5, 64), received.add(u64::MAX, 2, 1 << 20)), (Some(()), None));
        assert_eq!(received.add(20, 5, 64), None);
        assert_eq!((received.clear(), received.held()), (128, 0));
    }

    #[test]
    fn skipped_bytes_are_passed_on_neither_before_nor_after() {
        let mut assembly = Assembly::default();
        assembly.receive(0, &[0; 10], 0).unwrap();
        for at in [20, 40, 95, 120] {
            assembly.receive(at, &[at as u8; 10], 1 << 20).unwrap();
        }
        assert_eq!(assembly.skip(90), 2 * (10 + PIECE_COST));
        assert_eq!(assembly.stored(), Some(vec![95; 5]));
        assert_eq!((assembly.stored(), assembly.receive(30, &[3; 60], 0)), (None, Some(&[][..])));
        assert_eq!(assembly.receive(100, &[1; 20], 0), Some(&[1; 15][..]));
        assert_eq!(assembly.stored(), Some(vec![120; 10]));
        assembly.skip(u64::MAX);
        assert_eq!(assembly.receive(u64::MAX - 10, &[0; 10], 0), Some(&[][..]));
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_give_the_stream(
            pieces in prop::collection::vec((0usize..200, 1usize..60), 0..60),
        ) {
            let stream: Vec<u8> = (0..=255).collect();
            let (mut assembly, mut received, mut seen) = (Assembly::default(), Received::default(), Vec::new());
            for &(at, length) in &pieces {
                let bytes = &stream[at..(at + length).min(256)];
                receive(&mut assembly, at as u64, bytes, &mut seen);
                received.add(at as u64, bytes.len() as u64, 1 << 20).unwrap();
                prop_assert_eq!(seen.len() as u64, received.next());
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
