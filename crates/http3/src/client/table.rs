//! Open streams by number.

use std::collections::VecDeque;

use crate::response::Response;

/// A request on its stream, or waiting for one.
#[derive(Debug)]
pub(super) struct Stream<K> {
    pub(super) key: K,
    pub(super) response: Response,
    /// The part of the request that the transport has not taken.
    pub(super) unsent: Unsent,
    /// Length of the request's frames.
    pub(super) length: u64,
    /// Bytes of it that left in packets.
    pub(super) sent: u64,
    /// Whether the end of the request was passed to the transport.
    pub(super) is_finished: bool,
    /// Whether the server has acknowledged all of it.
    pub(super) is_acknowledged: bool,
}

impl<K> Stream<K> {
    pub(super) fn new(key: K, response: Response, frames: Vec<u8>) -> Self {
        let length = frames.len() as u64;
        let unsent = Unsent { bytes: frames, from: 0 };
        Stream { key, response, unsent, length, sent: 0, is_finished: false, is_acknowledged: false }
    }
}

/// Bytes that are taken from the front.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    from: usize,
}

impl Unsent {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// Removes `bytes`; frees the memory after the last.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.from += bytes;
        if self.is_empty() {
            *self = Unsent::default();
        }
    }
}

/// The open streams. A client's streams have the numbers 0, 4, 8 ..: the k-th entry is stream `first + 4 k`.
#[derive(Debug)]
pub(super) struct Table<K> {
    streams: VecDeque<Option<Box<Stream<K>>>>,
    first: u64,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table { streams: VecDeque::new(), first: 0 }
    }
}

/// Distance between the numbers of a client's streams.
const STEP: u64 = 4;

impl<K> Table<K> {
    fn position(&self, number: u64) -> Option<usize> {
        let distance = number.checked_sub(self.first).filter(|distance| distance.is_multiple_of(STEP))?;
        usize::try_from(distance / STEP).ok()
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Stream<K>> {
        let position = self.position(number)?;
        self.streams.get_mut(position)?.as_deref_mut()
    }

    /// Adds the next stream.
    pub(super) fn insert(&mut self, number: u64, stream: Stream<K>) {
        if self.streams.is_empty() {
            self.first = number;
        }
        let Some(position) = self.position(number) else { return };
        while self.streams.len() < position {
            self.streams.push_back(None);
        }
        self.streams.push_back(Some(Box::new(stream)));
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Box<Stream<K>>> {
        let position = self.position(number)?;
        let removed = self.streams.get_mut(position)?.take();
        while let Some(None) = self.streams.front() {
            self.streams.pop_front();
            self.first += STEP;
        }
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream<K>> {
        self.streams.iter().filter_map(|stream| stream.as_deref())
    }

    /// Removes all streams, in their order; numbers begin anew.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Stream<K>> + use<K> {
        let streams = std::mem::take(self).streams;
        streams.into_iter().flatten().map(|stream| *stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(key: u8) -> Stream<u8> {
        Stream::new(key, Response::new(false), vec![1, 2])
    }

    #[test]
    fn streams_are_found_by_number_until_they_are_removed() {
        let mut table = Table::default();
        for key in 0..4 {
            table.insert(u64::from(key) * 4, stream(key));
        }
        assert_eq!(table.get(8).unwrap().key, 2);
        assert!(table.get(9).is_none() && table.get(16).is_none());
        assert!(table.remove(4).is_some() && table.remove(4).is_none());
        assert!(table.remove(0).is_some() && table.get(0).is_none());
        assert_eq!((table.first, table.streams.len()), (8, 2));
        assert!(table.remove(12).is_some() && table.remove(8).is_some());
        table.insert(24, stream(9));
        assert_eq!(table.get(24).unwrap().key, 9);
        assert_eq!(table.take_all().count(), 1);
        table.insert(0, stream(1));
        assert_eq!(table.get(0).unwrap().key, 1);
    }
}
