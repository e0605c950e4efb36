//! The memory that bodies take as long as anybody holds them: a slow client keeps what the store has long forgotten.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes of all bodies that live.
#[derive(Clone, Debug, Default)]
pub(super) struct Living(Arc<AtomicUsize>);

impl Living {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn counted(&self, body: Box<[u8]>) -> Bytes {
        self.0.fetch_add(body.len(), Ordering::Relaxed);
        Bytes::from_owner(Counted { body, living: self.clone() })
    }
}

/// A body that takes itself off the count.
struct Counted {
    body: Box<[u8]>,
    living: Living,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.living.0.fetch_sub(self.body.len(), Ordering::Relaxed);
    }
}

/// Bytes held beside the store, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Unsent {
    living: Living,
    bytes: Cell<usize>,
}

impl Unsent {
    pub(super) fn new(living: &Living) -> Self {
        Unsent { living: living.clone(), bytes: Cell::new(0) }
    }

    /// So many more.
    pub(crate) fn grow(&self, bytes: usize) {
        self.living.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// None any more.
    pub(crate) fn clear(&self) {
        self.living.0.fetch_sub(self.bytes.take(), Ordering::Relaxed);
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
    fn what_is_held_is_counted_and_what_is_not_is_not() {
        let living = Living::default();
        let body = living.counted(vec![0; 100].into());
        let part = body.slice(10..20);
        drop(body);
        assert_eq!(living.bytes(), 100);
        let unsent = Unsent::new(&living);
        unsent.grow(7);
        unsent.grow(8);
        assert_eq!(living.bytes(), 115);
        drop(part);
        unsent.clear();
        assert_eq!(living.bytes(), 0);
        unsent.grow(3);
        drop(unsent);
        assert_eq!(living.bytes(), 0);
    }
}
