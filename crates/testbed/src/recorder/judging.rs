//! Verifies the exchanges of a cache workload.
//!
//! Whether a response is correct may depend on earlier responses, also of other shards. Exchanges are therefore
//! verified in the order in which they ended, those of all shards together, once every shard has reported that time.

use polymix::Verifier;
use schema::{CacheExchange, CacheFigures};
use units::Timestamp;

/// Most exchanges that wait until every shard has reported their time: about 120 MB. If a shard is stalled for longer,
/// more exchanges are left out than this.
const WAITING_MAX: usize = 512 << 10;

/// The verifier of a run, and its queue.
#[derive(Debug)]
pub struct Judging {
    judge: Verifier,
    waiting: Vec<CacheExchange>,
    waiting_max: usize,
    unverified: u64,
}

impl Judging {
    /// Nothing verified yet.
    pub fn new(judge: Verifier) -> Self {
        Judging { judge, waiting: Vec::new(), waiting_max: WAITING_MAX, unverified: 0 }
    }

    /// With space for this many waiting exchanges.
    #[cfg(test)]
    pub fn with_room(judge: Verifier, waiting_max: usize) -> Self {
        Judging { waiting_max, ..Judging::new(judge) }
    }

    /// The measured phase ends at `end`.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.judge.set_measured_end(end);
    }

    /// Takes a shard's exchanges as far as they fit, and leaves an empty list.
    pub fn take(&mut self, exchanges: &mut Vec<CacheExchange>) {
        let room = self.waiting_max.saturating_sub(self.waiting.len()).min(exchanges.len());
        self.leave_out((exchanges.len() - room) as u64);
        exchanges.truncate(room);
        self.waiting.append(exchanges);
    }

    /// This many exchanges will not be verified.
    pub fn leave_out(&mut self, exchanges: u64) {
        self.unverified += exchanges;
    }

    /// Verifies exchanges that ended before `moment`, which every shard has reported, and passes them to `keep`.
    pub fn judge_before(&mut self, moment: Timestamp, keep: impl FnOnce(&[CacheExchange])) {
        // Nearly sorted already: each shard's exchanges are, and shards alternate.
        self.waiting.sort_by_key(|exchange| (exchange.done_at, exchange.sequence));
        let known = self.waiting.partition_point(|exchange| exchange.done_at < moment);
        let judged = &mut self.waiting[..known];
        judged.iter_mut().for_each(|exchange| self.judge.add(exchange));
        if !judged.is_empty() {
            keep(judged);
        }
        self.waiting.drain(..known);
    }

    /// Verifies the rest.
    pub fn finish(mut self, keep: impl FnOnce(&[CacheExchange])) -> CacheFigures {
        self.judge_before(Timestamp::MAX, keep);
        CacheFigures { unverified: self.unverified, ..self.judge.finish() }
    }
}
