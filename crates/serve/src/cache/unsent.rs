//! Memory of bodies that are in use: a slow client holds the body of a response that the store has evicted.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes of all current bodies.
#[derive(Clone, Debug, Default)]
pub(super) struct CurrentBytes(Arc<AtomicUsize>);

impl CurrentBytes {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn counted(&self, body: Box<[u8]>) -> Bytes {
        self.0.fetch_add(body.len(), Ordering::Relaxed);
        Bytes::from_owner(Counted { body, current: self.clone() })
    }
}

/// A body that subtracts itself from the counter when dropped.
struct Counted {
    body: Box<[u8]>,
    current: CurrentBytes,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.current.0.fetch_sub(self.body.len(), Ordering::Relaxed);
    }
}

/// Bytes outside the store, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Unsent {
    current: CurrentBytes,
    bytes: Cell<usize>,
}

impl Unsent {
    pub(super) fn new(current: &CurrentBytes) -> Self {
        Unsent { current: current.clone(), bytes: Cell::new(0) }
    }

    /// Adds `bytes`.
    pub(crate) fn grow(&self, bytes: usize) {
        self.current.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Subtracts everything.
    pub(crate) fn clear(&self) {
        self.current.0.fetch_sub(self.bytes.take(), Ordering::Relaxed);
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_bytes_follow_allocated_and_dropped_bodies() {
        let current = CurrentBytes::default();
        let body = current.counted(vec![0; 100].into());
        let part = body.slice(10..20);
        drop(body);
        assert_eq!(current.bytes(), 100);
        let unsent = Unsent::new(&current);
        unsent.grow(7);
        unsent.grow(8);
        assert_eq!(current.bytes(), 115);
        drop(part);
        unsent.clear();
        assert_eq!(current.bytes(), 0);
        unsent.grow(3);
        drop(unsent);
        assert_eq!(current.bytes(), 0);
    }
}
