//! Sequence numbers of 32 bits as offsets of 64 bits, and a search for the packets that hold a byte.

/// Unwraps the sequence numbers of one direction. Packets may be out of order by less than 2^31 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unwrapper {
    latest: u64,
}

impl Unwrapper {
    /// Offsets in which `anchor`, an early sequence number of the direction, is above 2^32: earlier numbers stay
    /// positive.
    pub(crate) fn new(anchor: u32) -> Unwrapper {
        Unwrapper { latest: (1 << 32) + u64::from(anchor) }
    }

    /// The offset of `sequence`: the one nearest to the highest so far.
    pub(crate) fn offset(&mut self, sequence: u32) -> u64 {
        let offset = self.nearest(sequence);
        self.latest = self.latest.max(offset);
        offset
    }

    /// The same, without remembering it.
    pub(crate) fn nearest(&self, sequence: u32) -> u64 {
        let distance = sequence.wrapping_sub(self.latest as u32).cast_signed();
        self.latest.saturating_add_signed(i64::from(distance))
    }
}

/// Finds the ranges that hold a byte, in time that grows with the logarithm of their number and with how many hold it.
#[derive(Debug, Default)]
pub(crate) struct ByteIndex {
    /// First byte, byte after the last, place in the indexed list; in order of first byte, then place.
    ranges: Vec<(u64, u64, usize)>,
    longest: u64,
}

impl ByteIndex {
    /// An index over (first byte, byte after the last) in the order of the list.
    pub(crate) fn new(list: impl Iterator<Item = (u64, u64)>) -> ByteIndex {
        let mut ranges: Vec<_> = list.enumerate().map(|(place, (first, end))| (first, end, place)).collect();
        ranges.sort_unstable();
        let longest = ranges.iter().map(|(first, end, _)| end.saturating_sub(*first)).max().unwrap_or(0);
        ByteIndex { ranges, longest }
    }

    /// Places of the ranges that hold `byte`, in rising order.
    pub(crate) fn holding(&self, byte: u64) -> Vec<usize> {
        let from = self.ranges.partition_point(|(first, ..)| first.saturating_add(self.longest) <= byte);
        let mut places: Vec<usize> = self.ranges[from..]
            .iter()
            .take_while(|(first, ..)| *first <= byte)
            .filter(|(_, end, _)| byte < *end)
            .map(|(.., place)| *place)
            .collect();
        places.sort_unstable();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_continue_over_the_wrap_and_go_back_for_retransmissions() {
        let mut numbers = Unwrapper::new(u32::MAX - 10);
        let first = numbers.offset(u32::MAX - 10);
        assert_eq!(numbers.offset(1489) - first, 1500);
        assert_eq!(numbers.offset(u32::MAX - 10), first);
        assert_eq!(numbers.offset(2989) - first, 3000);
    }

    #[test]
    fn the_index_finds_every_range_that_holds_a_byte() {
        let list = [(0, 10), (10, 20), (5, 12), (100, 101)];
        let index = ByteIndex::new(list.into_iter());
        assert_eq!(index.holding(5), [0, 2]);
        assert_eq!(index.holding(11), [1, 2]);
        assert_eq!(index.holding(12), [1]);
        assert_eq!(index.holding(99), [0usize; 0]);
    }
}
