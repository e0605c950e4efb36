//! Sorts packets of a file by time, within a bounded window.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use units::Timestamp;

/// A packet in the window: its time, its number in the file, and the owner's reference to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// When it was captured.
    pub at: Timestamp,
    /// Its number in the file; of packets with the same time the smaller number comes first.
    pub number: u64,
    /// The owner's reference.
    pub place: T,
}

/// Holds packets until no earlier one can follow: until a packet arrives that is later by the length of the window. If
/// a time is before the latest by more than that ([`Sorted::is_beyond`]), as after a clock step, the owner takes all
/// packets ([`Sorted::pop_any`]), and sorting restarts: on either side of a clock step the order of the file is better.
///
/// A packet in order costs a push and a pop at the ends of a queue; only the others are sorted.
#[derive(Debug)]
pub struct Sorted<T> {
    window_ns: u64,
    /// In the order of their times.
    line: VecDeque<Placed<T>>,
    /// Packets with a time before that of the last in the line.
    displaced: BinaryHeap<Reverse<Displaced<T>>>,
    latest_ns: u64,
    moved: u64,
}

impl<T: Copy> Sorted<T> {
    /// An empty sorter with a window of this length.
    pub fn new(window_ns: u64) -> Sorted<T> {
        Sorted { window_ns, line: VecDeque::new(), displaced: BinaryHeap::new(), latest_ns: 0, moved: 0 }
    }

    /// Whether a packet of this time is too late to be sorted among the earlier ones.
    #[inline]
    pub fn is_beyond(&self, at: Timestamp) -> bool {
        at.as_nanos().saturating_add(self.window_ns) < self.latest_ns
    }

    /// Adds a packet.
    #[inline]
    pub fn push(&mut self, at: Timestamp, number: u64, place: T) {
        let packet = Placed { at, number, place };
        if at.as_nanos() >= self.latest_ns || self.is_empty() && self.is_beyond(at) {
            self.latest_ns = at.as_nanos();
            self.line.push_back(packet);
        } else {
            self.moved += 1;
            self.displaced.push(Reverse(Displaced(packet)));
        }
    }

    /// The earliest packet, if its window has passed.
    #[inline]
    pub fn pop(&mut self) -> Option<Placed<T>> {
        let due = self.latest_ns.saturating_sub(self.window_ns);
        if self.earliest()?.at.as_nanos() < due { self.pop_any() } else { None }
    }

    /// The earliest packet, regardless of the window.
    #[inline]
    pub fn pop_any(&mut self) -> Option<Placed<T>> {
        if self.displaced.is_empty() {
            return self.line.pop_front();
        }
        self.pop_sorted()
    }

    /// Number of held packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.line.len() + self.displaced.len()
    }

    /// Whether no packet is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of packets with a time before that of an earlier packet.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    #[inline]
    fn earliest(&self) -> Option<&Placed<T>> {
        match (self.line.front(), self.displaced.peek()) {
            (Some(first), Some(Reverse(Displaced(other)))) => Some(if key(other) < key(first) { other } else { first }),
            (Some(first), None) => Some(first),
            (None, other) => other.map(|Reverse(Displaced(other))| other),
        }
    }

    #[cold]
    fn pop_sorted(&mut self) -> Option<Placed<T>> {
        let displaced = self.displaced.peek().map(|Reverse(Displaced(other))| key(other));
        match self.line.front().map(key) {
            Some(first) if displaced.is_none_or(|other| first < other) => self.line.pop_front(),
            _ => self.displaced.pop().map(|Reverse(Displaced(other))| other),
        }
    }
}

fn key<T>(packet: &Placed<T>) -> (Timestamp, u64) {
    (packet.at, packet.number)
}

/// Ordered by time and number.
#[derive(Clone, Copy, Debug)]
struct Displaced<T>(Placed<T>);

impl<T> PartialEq for Displaced<T> {
    fn eq(&self, other: &Displaced<T>) -> bool {
        key(&self.0) == key(&other.0)
    }
}

impl<T> Eq for Displaced<T> {}

impl<T> PartialOrd for Displaced<T> {
    fn partial_cmp(&self, other: &Displaced<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Displaced<T> {
    fn cmp(&self, other: &Displaced<T>) -> std::cmp::Ordering {
        key(&self.0).cmp(&key(&other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 100;

    /// Packet numbers in output order, each when its window has passed.
    fn sorted(times: &[u64]) -> Vec<(u64, u64)> {
        let (mut sorted, mut out) = (Sorted::new(WINDOW), Vec::new());
        for (&at, number) in times.iter().zip(1..) {
            if sorted.is_beyond(Timestamp::from_nanos(at)) {
                while let Some(packet) = sorted.pop_any() {
                    out.push((packet.at.as_nanos(), packet.number));
                }
            }
            sorted.push(Timestamp::from_nanos(at), number, ());
            while let Some(packet) = sorted.pop() {
                out.push((packet.at.as_nanos(), packet.number));
            }
        }
        while let Some(packet) = sorted.pop_any() {
            out.push((packet.at.as_nanos(), packet.number));
        }
        assert!(sorted.is_empty());
        out
    }

    #[test]
    fn packet_is_reordered_within_the_window_and_not_beyond() {
        let ordered = |times: &[u64]| sorted(times).is_sorted();
        assert!(ordered(&[1000, 1100, 1000]));
        assert!(!ordered(&[1000, 1101, 1250, 1000]), "1101 was returned before");
        assert_eq!(sorted(&[5, 5, 4, 5]), [(4, 3), (5, 1), (5, 2), (5, 4)]);
        assert_eq!(
            sorted(&[1000, 10, 20, 15, 2000]).iter().map(|(_, number)| *number).collect::<Vec<_>>(),
            [1, 2, 4, 3, 5]
        );
        assert_eq!(sorted(&[1000, 10, 20]), [(1000, 1), (10, 2), (20, 3)], "a clock step back");
    }

    proptest! {
        #[test]
        fn packets_displaced_within_the_window_are_sorted(
            steps in prop::collection::vec((0u64..50, 0u64..WINDOW / 2), 0..200)
        ) {
            let mut at = 1000;
            let times: Vec<u64> = steps.iter().map(|(step, back)| { at += step; at - back }).collect();
            let out = sorted(&times);
            prop_assert!(out.is_sorted());
            prop_assert_eq!(out.len(), times.len());
        }
    }
}
