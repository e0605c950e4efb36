//! The exchanges of a run as its table has them: in the order that is wanted, as often as wanted, and never all at once.
//!
//! ```text
//!   cache_exchanges.parquet --first look--> the least moments of each block of rows, and what was answered
//!                          '--again-------> rows wait in a heap until no later block can hold an earlier one
//! ```
//!
//! An hour at a thousand a second is four million exchanges, a gigabyte of rows. What waits is what ended out of order:
//! the requests that were under way at one time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use schema::CacheExchange;
use store::StoreError;
use units::Timestamp;

use super::ideal;

/// Rows of a block; the table's row groups are eight times as long.
const BLOCK: usize = 4096;

/// A row's place in an order: a moment, and for those of one moment the number of the request.
pub type ExchangeOrder = (Timestamp, u64);

/// The table of a run that ended.
#[derive(Clone, Debug)]
pub struct Exchanges {
    folder: PathBuf,
    by_end: Vec<ExchangeOrder>,
    by_sending: Vec<ExchangeOrder>,
    answered: Answered,
}

/// Exchanges that were answered, outside TLS, the warm-up and the drain included: what the origin's own count is held
/// against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// How many.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Exchanges {
    /// Looks through the table of the run in `folder` once.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn open(folder: &Path) -> Result<Exchanges, StoreError> {
        let (mut by_end, mut by_sending) = (Least::new(BLOCK), Least::new(BLOCK));
        let mut answered = Answered::default();
        for row in store::read_cache_exchanges(folder)? {
            let row = row?;
            by_end.add(place_by_end(&row));
            by_sending.add(ideal::place(&row));
            // What was never sent reached nobody, and an error page is no answer that was saved.
            if row.sent_at.is_some() && row.failure.is_none() && !row.secure {
                answered.requests += 1;
                answered.bytes = answered.bytes.saturating_add(row.body_bytes);
            }
        }
        let (by_end, by_sending) = (by_end.of_the_rest(), by_sending.of_the_rest());
        Ok(Exchanges { folder: folder.to_owned(), by_end, by_sending, answered })
    }

    /// What was answered.
    pub fn answered(&self) -> Answered {
        self.answered
    }

    /// In the order in which they ended, which is the judge's.
    ///
    /// # Errors
    /// The table cannot be opened any more.
    pub fn by_end(&self) -> Result<impl Iterator<Item = Result<CacheExchange, StoreError>>, StoreError> {
        Ok(InOrder::new(store::read_cache_exchanges(&self.folder)?, &self.by_end, BLOCK, place_by_end))
    }

    /// In the order in which they were sent, which is the simulation's.
    ///
    /// # Errors
    /// The table cannot be opened any more.
    pub fn by_sending(&self) -> Result<impl Iterator<Item = Result<CacheExchange, StoreError>>, StoreError> {
        Ok(InOrder::new(store::read_cache_exchanges(&self.folder)?, &self.by_sending, BLOCK, ideal::place))
    }
}

fn place_by_end(row: &CacheExchange) -> ExchangeOrder {
    (row.done_at, row.sequence)
}

/// The least place of each block, as rows come.
struct Least {
    block: usize,
    rows: usize,
    least: Vec<ExchangeOrder>,
}

impl Least {
    fn new(block: usize) -> Self {
        Least { block, rows: 0, least: Vec::new() }
    }

    fn add(&mut self, place: ExchangeOrder) {
        match self.least.last_mut() {
            Some(least) if !self.rows.is_multiple_of(self.block) => *least = place.min(*least),
            _ => self.least.push(place),
        }
        self.rows += 1;
    }

    /// For each block the least of it and all after it.
    fn of_the_rest(mut self) -> Vec<ExchangeOrder> {
        for at in (1..self.least.len()).rev() {
            self.least[at - 1] = self.least[at - 1].min(self.least[at]);
        }
        self.least
    }
}

/// Rows put in order as they are read.
struct InOrder<'a, I, R> {
    rows: I,
    place: fn(&R) -> ExchangeOrder,
    /// For each block the least place of it and all after it.
    least: &'a [ExchangeOrder],
    block: usize,
    read: usize,
    ended: bool,
    waiting: BinaryHeap<Reverse<Waiting<R>>>,
}

impl<'a, I, R> InOrder<'a, I, R> {
    fn new(rows: I, least: &'a [ExchangeOrder], block: usize, place: fn(&R) -> ExchangeOrder) -> Self {
        InOrder { rows, place, least, block, read: 0, ended: false, waiting: BinaryHeap::new() }
    }

    /// Whether no row that is still to come can be before the first that waits.
    fn is_next_known(&self) -> bool {
        let Some(Reverse(first)) = self.waiting.peek() else { return false };
        // The block of the next row: its least may lie behind already, then one row more is read in vain.
        self.ended || self.least.get(self.read / self.block).is_none_or(|least| first.place <= *least)
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
                    self.waiting.push(Reverse(Waiting { place: (self.place)(&row), row }));
                }
            }
        }
        self.waiting.pop().map(|Reverse(waiting)| Ok(waiting.row))
    }
}

/// A row that waits, compared by its place alone.
struct Waiting<R> {
    place: ExchangeOrder,
    row: R,
}

impl<R> PartialEq for Waiting<R> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
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
        self.place.cmp(&other.place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(row: &ExchangeOrder) -> ExchangeOrder {
        *row
    }

    /// The rows in order, and how many waited at most.
    fn ordered(rows: &[ExchangeOrder], block: usize) -> (Vec<ExchangeOrder>, usize) {
        let mut least = Least::new(block);
        rows.iter().for_each(|row| least.add(*row));
        let least = least.of_the_rest();
        let mut order = InOrder::new(rows.iter().copied().map(Ok::<_, ()>), &least, block, place);
        let (mut out, mut waited) = (Vec::new(), 0);
        while let Some(row) = order.next() {
            waited = waited.max(order.waiting.len());
            out.push(row.unwrap());
        }
        (out, waited)
    }

    fn rows(moments: &[u64]) -> Vec<ExchangeOrder> {
        moments.iter().zip(0..).map(|(&moment, sequence)| (Timestamp::from_nanos(moment), sequence)).collect()
    }

    proptest! {
        #[test]
        fn whatever_the_order_it_comes_out_right(
            moments in prop::collection::vec(0u64..50, 0..200),
            block in 1usize..20,
        ) {
            let rows = rows(&moments);
            let mut wanted = rows.clone();
            wanted.sort();
            prop_assert_eq!(ordered(&rows, block).0, wanted);
        }
    }

    #[test]
    fn what_is_nearly_in_order_hardly_waits() {
        // Each up to 100 later than its place.
        let moments: Vec<u64> = (1..=100_000u64).map(|at| at + at * 7919 % 100).collect();
        let (out, waited) = ordered(&rows(&moments), BLOCK);
        assert!(out.is_sorted() && out.len() == moments.len());
        assert!(waited < 2 * BLOCK, "{waited}");
        // One that comes last of all although it was first holds up everything: it cannot be otherwise.
        let last = [&moments[..], &[0]].concat();
        assert!(ordered(&rows(&last), BLOCK).1 >= moments.len());
    }

    #[test]
    fn an_error_is_passed_on_and_ends_nothing() {
        let rows = [Ok((Timestamp::ZERO, 2)), Err("no"), Ok((Timestamp::ZERO, 1))];
        let out: Vec<_> = InOrder::new(rows.into_iter(), &[(Timestamp::ZERO, 1)], 9, place).collect();
        assert_eq!(out, [Err("no"), Ok((Timestamp::ZERO, 1)), Ok((Timestamp::ZERO, 2))]);
    }
}
