//! The occupied slots of 2^18, and the next one: three levels of 64-way summaries.

/// 2^18 bits. A bit of an upper level is set when the word below it has any bit set: finding the next set bit reads at
/// most five words, and clearing or setting one touches at most three.
#[derive(Debug)]
pub(super) struct Bitmap {
    top: u64,
    middle: [u64; 64],
    bottom: Box<[u64]>,
}

impl Bitmap {
    pub(super) fn new() -> Self {
        Bitmap { top: 0, middle: [0; 64], bottom: vec![0; 64 * 64].into_boxed_slice() }
    }

    /// Sets a bit; true when it was not set before.
    #[inline]
    pub(super) fn set(&mut self, at: usize) -> bool {
        let word = &mut self.bottom[at >> 6];
        let (before, bit) = (*word, 1 << (at & 63));
        *word |= bit;
        if before == 0 {
            self.middle[at >> 12] |= 1 << (at >> 6 & 63);
            self.top |= 1 << (at >> 12);
        }
        before & bit == 0
    }

    /// Clears a bit; true when it was set before.
    #[inline]
    pub(super) fn clear(&mut self, at: usize) -> bool {
        let word = &mut self.bottom[at >> 6];
        let (before, bit) = (*word, 1 << (at & 63));
        *word &= !bit;
        if before == bit {
            let middle = &mut self.middle[at >> 12];
            *middle &= !(1 << (at >> 6 & 63));
            if *middle == 0 {
                self.top &= !(1 << (at >> 12));
            }
        }
        before & bit != 0
    }

    /// The first set bit after `at`, wrapping around; `at` itself comes last.
    #[inline]
    pub(super) fn next_after(&self, at: usize) -> Option<usize> {
        let here = self.bottom[at >> 6] & above(at & 63);
        if here != 0 {
            return Some(at & !63 | here.trailing_zeros() as usize);
        }
        let near = self.middle[at >> 12] & above(at >> 6 & 63);
        if near != 0 {
            return Some(self.first_of_word(at >> 12 << 6 | near.trailing_zeros() as usize));
        }
        let far = self.top & above(at >> 12);
        let round = if far != 0 { far } else { self.top };
        if round == 0 {
            return None;
        }
        let block = round.trailing_zeros() as usize;
        Some(self.first_of_word(block << 6 | self.middle[block].trailing_zeros() as usize))
    }

    fn first_of_word(&self, word: usize) -> usize {
        word << 6 | self.bottom[word].trailing_zeros() as usize
    }
}

/// A mask of the bits above `bit` (0 to 63).
#[inline]
fn above(bit: usize) -> u64 {
    // Shifted in two steps, since a shift by 64 overflows.
    u64::MAX << bit << 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bitmap_equals_a_set_with_a_wrapping_successor(
            steps in prop::collection::vec((any::<bool>(), 0usize..1 << 18, 0usize..1 << 18), 0..200),
            crowd in 1usize..1 << 18,
        ) {
            let (mut bitmap, mut model) = (Bitmap::new(), BTreeSet::new());
            for (set, at, from) in steps {
                // Bits spread over the whole range, and bits crowded at its beginning.
                let at = if from % 2 == 0 { at } else { at % crowd };
                if set {
                    prop_assert_eq!(bitmap.set(at), model.insert(at));
                } else {
                    let at = model.range(at..).next().copied().unwrap_or(at);
                    prop_assert_eq!(bitmap.clear(at), model.remove(&at));
                }
                let after = model.range(from + 1..).next().or(model.iter().next()).copied();
                prop_assert_eq!(bitmap.next_after(from), after);
            }
        }
    }
}
