//! Verifies the exchanges of a cache workload.
//!
//! Whether a response is correct may depend on earlier responses, also of other shards. Exchanges are therefore
//! verified in the order in which they ended, those of all shards together, once every shard has reported that time.

use polymix::Verifier;
use schema::{CacheExchange, CacheFigures};
use units::Timestamp;

/// Most exchanges that wait until every shard has reported their time: about 120 MB. If a shard is stalled for longer,
/// more exchanges are left out than this.
const WAITING_EXCHANGES_MAX: usize = 512 << 10;

/// The verifier of a run, and its queue.
#[derive(Debug)]
pub struct Judging {
    judge: Verifier,
    waiting: Vec<CacheExchange>,
    waiting_max: usize,
    unverified: u64,
}

impl Judging {
    /// A verifier without exchanges.
    pub fn new(judge: Verifier) -> Self {
        Judging { judge, waiting: Vec::new(), waiting_max: WAITING_EXCHANGES_MAX, unverified: 0 }
    }

    /// A verifier with space for this many waiting exchanges.
    #[cfg(test)]
    pub fn with_space(judge: Verifier, waiting_max: usize) -> Self {
        Judging { waiting_max, ..Judging::new(judge) }
    }

    /// Sets the end of the measured phase.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.judge.set_measured_end(end);
    }

    /// Takes a shard's exchanges as far as they fit, and leaves an empty list.
    pub fn add_exchanges(&mut self, exchanges: &mut Vec<CacheExchange>) {
        let fitting = self.waiting_max.saturating_sub(self.waiting.len()).min(exchanges.len());
        self.leave_out((exchanges.len() - fitting) as u64);
        exchanges.truncate(fitting);
        self.waiting.append(exchanges);
    }

    /// Counts exchanges that will not be verified.
    pub fn leave_out(&mut self, exchanges: u64) {
        self.unverified += exchanges;
    }

    /// Verifies exchanges that ended before `end`, a time that every shard has reported, and passes them to `store`.
    pub fn judge_before(&mut self, end: Timestamp, store: impl FnOnce(&[CacheExchange])) {
        // The list is nearly sorted already: each shard's exchanges are, and shards alternate.
        self.waiting.sort_by_key(|exchange| (exchange.done_at, exchange.sequence));
        let known = self.waiting.partition_point(|exchange| exchange.done_at < end);
        let judged = &mut self.waiting[..known];
        judged.iter_mut().for_each(|exchange| self.judge.add(exchange));
        if !judged.is_empty() {
            store(judged);
        }
        self.waiting.drain(..known);
    }

    /// Verifies the remaining exchanges.
    pub fn finish(mut self, store: impl FnOnce(&[CacheExchange])) -> CacheFigures {
        self.judge_before(Timestamp::MAX, store);
        CacheFigures { unverified: self.unverified, ..self.judge.finish() }
    }
}
