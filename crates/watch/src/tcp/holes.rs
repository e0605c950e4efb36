//! Holes: ranges of a direction's sequence space that were not seen.

use crate::work;

/// Ranges in ascending order that neither touch nor overlap. Positions are bytes of the direction, unwrapped.
#[derive(Debug, Default)]
pub(super) struct Holes(Vec<Hole>);

/// From `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Result of filling: bytes that had not been seen, and how many of these are below the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) bytes: u64,
    pub(super) below: u64,
}

impl Holes {
    /// Adds a hole above all others. At the limit, the first hole is removed if it is below `mark`, where it is no
    /// longer needed; otherwise the last one is extended, and bytes seen in between are forgotten. Either only
    /// miscounts.
    pub(super) fn push(&mut self, start: u64, end: u64, mark: u64, limit: usize) {
        if self.0.len() >= limit.max(1) && self.0.first().is_some_and(|first| first.end <= mark) {
            work::spend(1);
            self.0.remove(0);
        }
        let count = self.0.len();
        match self.0.last_mut() {
            Some(last) if count >= limit.max(1) => last.end = end,
            Some(last) if last.end == start => last.end = end,
            _ => self.0.push(Hole { start, end }),
        }
    }

    /// Removes `start` to `end` from the holes; counts those bytes, and those of them below `mark`.
    pub(super) fn fill(&mut self, start: u64, end: u64, mark: u64, limit: usize) -> Filled {
        let mut filled = Filled::default();
        let mut at = 0;
        while let Some(&hole) = self.0.get(at) {
            work::spend(1);
            if hole.start >= end {
                break;
            }
            let (from, to) = (hole.start.max(start), hole.end.min(end));
            if from >= to {
                at += 1;
                continue;
            }
            filled.bytes += to - from;
            filled.below += to.min(mark).saturating_sub(from);
            match (hole.start < from, to < hole.end) {
                (false, false) => {
                    self.0.remove(at);
                }
                (true, false) => {
                    self.0[at].end = from;
                    at += 1;
                }
                (false, true) => self.0[at].start = to,
                (true, true) if self.0.len() < limit => {
                    self.0[at].end = from;
                    self.0.insert(at + 1, Hole { start: to, end: hole.end });
                    at += 2;
                }
                // At the limit the lower part is removed.
                (true, true) => self.0[at].start = to,
            }
        }
        filled
    }

    /// The first hole that ends above `position`.
    pub(super) fn first_above(&self, position: u64) -> Option<Hole> {
        self.0.iter().inspect(|_| work::spend(1)).find(|hole| hole.end > position).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn hole_is_filled_from_both_ends_and_the_middle() {
        let mut holes = Holes::default();
        holes.push(10, 20, 0, 64);
        assert_eq!(holes.fill(12, 14, 13, 64), Filled { bytes: 2, below: 1 });
        assert_eq!(holes.first_above(0), Some(Hole { start: 10, end: 12 }));
        assert_eq!(holes.first_above(12), Some(Hole { start: 14, end: 20 }));
        assert_eq!(holes.fill(0, 100, 0, 64).bytes, 8);
        assert!(holes.0.is_empty());
    }

    #[test]
    fn number_of_holes_is_bounded() {
        let mut holes = Holes::default();
        for number in 0..1000 {
            holes.push(number * 10, number * 10 + 5, 0, 64);
        }
        assert_eq!(holes.0.len(), 64);
        holes.fill(2, 3, 0, 64);
        assert_eq!(holes.0.len(), 64);
    }

    #[test]
    fn oldest_hole_below_the_mark_is_removed_first() {
        let mut holes = Holes::default();
        for number in 0..1000 {
            holes.push(number * 10, number * 10 + 5, number * 10, 64);
        }
        assert_eq!(holes.0.len(), 64);
        assert_eq!(holes.0[0], Hole { start: 9360, end: 9365 });
        assert_eq!(holes.fill(9985, 9990, 0, 64).bytes, 0, "bytes already seen");
    }

    proptest! {
        /// Against a set of single bytes.
        #[test]
        fn filling_holes_counts_each_byte_once(pushes in prop::collection::vec((1u64..5, 1u64..5), 1..10),
                                         fills in prop::collection::vec((0u64..60, 1u64..20), 0..20)) {
            let (mut holes, mut bytes, mut high) = (Holes::default(), BTreeSet::new(), 0);
            for (seen, missed) in pushes {
                holes.push(high + seen, high + seen + missed, 0, 64);
                bytes.extend(high + seen..high + seen + missed);
                high += seen + missed;
            }
            for (start, length) in fills {
                let expected = (start..start + length).filter(|byte| bytes.remove(byte)).count() as u64;
                prop_assert_eq!(holes.fill(start, start + length, 0, 64).bytes, expected);
            }
            let left: u64 = holes.0.iter().map(|hole| hole.end - hole.start).sum();
            prop_assert_eq!(left, bytes.len() as u64);
        }
    }
}
