//! Reads the exchanges of a run from their table in a requested order, without loading all of them into memory.
//!
//! ```text
//!   cache_exchanges.parquet --first pass--> smallest key of each block of rows, and counts of answered requests
//!                          '--later pass--> rows wait in a heap until no later block can have a smaller key
//! ```
//!
//! An hour at 1,000/s has four million exchanges, a gigabyte of rows. The heap holds only rows that are out of order:
//! about the requests in flight at one time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use schema::CacheExchange;
use store::StoreError;
use units::Timestamp;

use super::ideal;

/// Rows of a block; row groups of the table are eight times as long.
const BLOCK_ROWS: usize = 4096;

/// Sort key of a row: time, then number of the request.
pub type ExchangeOrder = (Timestamp, u64);

/// The table of a finished run.
#[derive(Clone, Debug)]
pub struct Exchanges {
    folder: PathBuf,
    by_end: Vec<ExchangeOrder>,
    by_sending: Vec<ExchangeOrder>,
    answered: Answered,
}

/// Answered exchanges outside TLS, warm-up and drain included, for comparison with the origin's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Number of exchanges.
    pub requests: u64,
    /// Body bytes.
    pub bytes: u64,
}

impl Exchanges {
    /// Opens the table of the run in `folder` and reads it once.
    ///
    /// # Errors
    /// The table is unreadable.
    pub fn open(folder: &Path) -> Result<Exchanges, StoreError> {
        let (mut by_end, mut by_sending) = (BlockMinima::new(BLOCK_ROWS), BlockMinima::new(BLOCK_ROWS));
        let mut answered = Answered::default();
        for row in store::read_cache_exchanges(folder)? {
            let row = row?;
            by_end.add(completion_key(&row));
            by_sending.add(ideal::sending_order(&row));
            // Requests never sent and error pages do not count.
            if row.sent_at.is_some() && row.failure.is_none() && !row.secure {
                answered.requests += 1;
                answered.bytes = answered.bytes.saturating_add(row.body_bytes);
            }
        }
        let (by_end, by_sending) = (by_end.suffix_minima(), by_sending.suffix_minima());
        Ok(Exchanges { folder: folder.to_owned(), by_end, by_sending, answered })
    }

    /// Counts of answered exchanges.
    pub fn answered(&self) -> Answered {
        self.answered
    }

    /// Exchanges in order of completion, as the verifier needs them.
    ///
    /// # Errors
    /// The table cannot be opened again.
    pub fn by_end(&self) -> Result<impl Iterator<Item = Result<CacheExchange, StoreError>>, StoreError> {
        Ok(InOrder::new(store::read_cache_exchanges(&self.folder)?, &self.by_end, BLOCK_ROWS, completion_key))
    }

    /// Exchanges in order of sending, as the simulation needs them.
    ///
    /// # Errors
    /// The table cannot be opened again.
    pub fn by_sending(&self) -> Result<impl Iterator<Item = Result<CacheExchange, StoreError>>, StoreError> {
        Ok(InOrder::new(store::read_cache_exchanges(&self.folder)?, &self.by_sending, BLOCK_ROWS, ideal::sending_order))
    }
}

fn completion_key(row: &CacheExchange) -> ExchangeOrder {
    (row.done_at, row.sequence)
}

/// Collects the smallest key of each block.
struct BlockMinima {
    block: usize,
    rows: usize,
    least: Vec<ExchangeOrder>,
}

impl BlockMinima {
    fn new(block: usize) -> Self {
        BlockMinima { block, rows: 0, least: Vec::new() }
    }

    fn add(&mut self, key: ExchangeOrder) {
        match self.least.last_mut() {
            Some(least) if !self.rows.is_multiple_of(self.block) => *least = key.min(*least),
            _ => self.least.push(key),
        }
        self.rows += 1;
    }

    /// For each block the smallest key of it and all later blocks.
    fn suffix_minima(mut self) -> Vec<ExchangeOrder> {
        for at in (1..self.least.len()).rev() {
            self.least[at - 1] = self.least[at - 1].min(self.least[at]);
        }
        self.least
    }
}

/// Iterator that sorts rows while they are read.
struct InOrder<'a, I, R> {
    rows: I,
    key: fn(&R) -> ExchangeOrder,
    /// For each block the smallest key of it and all later blocks.
    least: &'a [ExchangeOrder],
    block: usize,
    read: usize,
    ended: bool,
    waiting: BinaryHeap<Reverse<Waiting<R>>>,
}

impl<'a, I, R> InOrder<'a, I, R> {
    fn new(rows: I, least: &'a [ExchangeOrder], block: usize, key: fn(&R) -> ExchangeOrder) -> Self {
        InOrder { rows, key, least, block, read: 0, ended: false, waiting: BinaryHeap::new() }
    }

    /// Whether no unread row can precede the first waiting row.
    fn is_next_known(&self) -> bool {
        let Some(Reverse(first)) = self.waiting.peek() else { return false };
        // The minimum of the next row's block may be read already, which costs one unnecessary read.
        self.ended || self.least.get(self.read / self.block).is_none_or(|least| first.key <= *least)
    }
}

impl<I: Iterator<Item = Result<R, E>>, R, E> Iterator for InOrder<'_, I, R> {
    type Item = Result<R, E>;

    fn next(&mut self) -> Option<Result<R, E>> {
        while !self.is_next_known() && !self.ended {
            match self.rows.next() {
                None => self.ended = true,
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(row)) => {
                    self.read += 1;
                    self.waiting.push(Reverse(Waiting { key: (self.key)(&row), row }));
                }
            }
        }
        self.waiting.pop().map(|Reverse(waiting)| Ok(waiting.row))
    }
}

/// A waiting row, ordered by its key.
struct Waiting<R> {
    key: ExchangeOrder,
    row: R,
}

impl<R> PartialEq for Waiting<R> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<R> Eq for Waiting<R> {}

impl<R> PartialOrd for Waiting<R> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Waiting<R> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(row: &ExchangeOrder) -> ExchangeOrder {
        *row
    }

    /// The sorted rows, and the largest number of waiting rows.
    fn ordered(rows: &[ExchangeOrder], block: usize) -> (Vec<ExchangeOrder>, usize) {
        let mut least = BlockMinima::new(block);
        rows.iter().for_each(|row| least.add(*row));
        let least = least.suffix_minima();
        let mut order = InOrder::new(rows.iter().copied().map(Ok::<_, ()>), &least, block, key);
        let (mut out, mut waited) = (Vec::new(), 0);
        while let Some(row) = order.next() {
            waited = waited.max(order.waiting.len());
            out.push(row.unwrap());
        }
        (out, waited)
    }

    fn rows(times_ns: &[u64]) -> Vec<ExchangeOrder> {
        times_ns.iter().zip(0..).map(|(&time_ns, sequence)| (Timestamp::from_nanos(time_ns), sequence)).collect()
    }

    proptest! {
        #[test]
        fn rows_in_any_order_are_sorted(
            times_ns in prop::collection::vec(0u64..50, 0..200),
            block in 1usize..20,
        ) {
            let rows = rows(&times_ns);
            let mut sorted = rows.clone();
            sorted.sort();
            prop_assert_eq!(ordered(&rows, block).0, sorted);
        }
    }

    #[test]
    fn nearly_sorted_rows_need_a_heap_of_at_most_two_blocks() {
        // Each row is up to 100 positions late.
        let times_ns: Vec<u64> = (1..=100_000u64).map(|at| at + at * 7919 % 100).collect();
        let (out, waited) = ordered(&rows(&times_ns), BLOCK_ROWS);
        assert!(out.is_sorted() && out.len() == times_ns.len());
        assert!(waited < 2 * BLOCK_ROWS, "{waited}");
        // The smallest row at the end makes all others wait.
        let last = [&times_ns[..], &[0]].concat();
        assert!(ordered(&rows(&last), BLOCK_ROWS).1 >= times_ns.len());
    }

    #[test]
    fn read_error_is_returned_and_iteration_continues() {
        let rows = [Ok((Timestamp::ZERO, 2)), Err("no"), Ok((Timestamp::ZERO, 1))];
        let out: Vec<_> = InOrder::new(rows.into_iter(), &[(Timestamp::ZERO, 1)], 9, key).collect();
        assert_eq!(out, [Err("no"), Ok((Timestamp::ZERO, 1)), Ok((Timestamp::ZERO, 2))]);
    }
}
