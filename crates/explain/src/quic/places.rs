//! Places of the bytes of all streams on one direction of a connection.
//!
//! Streams are independent, and a packet has bytes of any of them. Their bytes get places in the order in which they
//! were first sent, as if the connection were one stream: bytes that are sent again keep theirs. The connection's flow
//! control counts the same (RFC 9000, section 4.1: the sum of the highest offsets), so that a byte is admitted exactly
//! if its place is below MAX_DATA.

use std::collections::HashMap;

/// The places. Add packets in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    next: u64,
    streams: HashMap<u64, Vec<Piece>>,
}

/// Bytes of a stream with consecutive places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte on the stream.
    pub(crate) offset: u64,
    /// Its place.
    pub(crate) first: u64,
    /// Number of bytes.
    pub(crate) length: u64,
}

/// Bytes of a connection that are followed, 256 GB: far above what a capture has, and far below an overflow.
const PLACES_MAX: u64 = 1 << 38;

impl Places {
    /// The places of bytes of a stream, first and end of each consecutive range. A hole before them, of packets that
    /// were not captured, gets its places first. Empty beyond what is followed.
    pub(super) fn add(&mut self, id: u64, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let Some(end) = offset.checked_add(length) else { return Vec::new() };
        let pieces = self.streams.entry(id).or_default();
        let known = pieces.last().map_or(0, |last| last.offset + last.length);
        if end > known {
            let new = end - known;
            if new > PLACES_MAX.saturating_sub(self.next) {
                return Vec::new();
            }
            match pieces.last_mut() {
                Some(last) if last.first + last.length == self.next => last.length += new,
                _ => pieces.push(Piece { offset: known, first: self.next, length: new }),
            }
            self.next += new;
        }
        let from = pieces.partition_point(|piece| piece.offset + piece.length <= offset);
        let inside = pieces[from..].iter().take_while(|piece| piece.offset < end);
        inside
            .map(|piece| {
                let (low, high) = (offset.max(piece.offset), end.min(piece.offset + piece.length));
                (piece.first + (low - piece.offset), piece.first + (high - piece.offset))
            })
            .filter(|(first, end)| first < end)
            .collect()
    }

    /// The bytes of a stream, in order.
    pub(super) fn of_stream(&self, id: u64) -> &[Piece] {
        self.streams.get(&id).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_the_places_of_their_first_transmission() {
        let mut places = Places::default();
        assert_eq!(places.add(0, 0, 100), [(0, 100)]);
        assert_eq!(places.add(4, 0, 50), [(100, 150)]);
        assert_eq!(places.add(0, 100, 100), [(150, 250)]);
        assert_eq!(places.add(0, 50, 100), [(50, 100), (150, 200)], "sent again, in one frame");
        // A packet between was not captured; its bytes are sent again later.
        assert_eq!(places.add(4, 70, 30), [(270, 300)]);
        assert_eq!(places.add(4, 50, 20), [(250, 270)]);
        assert_eq!(places.of_stream(4).len(), 2);
        assert_eq!(places.add(8, u64::MAX, 2), []);
        assert_eq!(places.add(8, u64::MAX / 2, 2), []);
        assert_eq!(places.add(8, 0, 0), []);
        assert_eq!(places.add(8, 0, 5), [(300, 305)]);
    }
}
