//! Judging the exchanges of a mix.
//!
//! Whether a reply is right may depend on those before it, and these may be another lane's: so exchanges are judged in the
//! order in which they ended, all lanes' together, once every lane has told of that time.

use polymix::Judge;
use schema::{CacheExchange, CacheFigures};
use units::Timestamp;

/// Exchanges that may wait until every lane has told of their time: some 120 MB. A lane that is held up for so long leaves out
/// more than it holds up.
const WAITING_MAX: usize = 512 << 10;

/// The judge of a run, and what waits for it.
#[derive(Debug)]
pub struct Judging {
    judge: Judge,
    waiting: Vec<CacheExchange>,
    waiting_max: usize,
    unverified: u64,
}

impl Judging {
    /// Nothing judged yet.
    pub fn new(judge: Judge) -> Self {
        Judging { judge, waiting: Vec::new(), waiting_max: WAITING_MAX, unverified: 0 }
    }

    /// With room for so many to wait.
    #[cfg(test)]
    pub fn with_room(judge: Judge, waiting_max: usize) -> Self {
        Judging { waiting_max, ..Judging::new(judge) }
    }

    /// The measured phase ends at `end`.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.judge.set_measured_end(end);
    }

    /// Takes what a lane tells of, as far as there is room, and leaves an empty list in its place.
    pub fn take(&mut self, exchanges: &mut Vec<CacheExchange>) {
        let room = self.waiting_max.saturating_sub(self.waiting.len()).min(exchanges.len());
        self.leave_out((exchanges.len() - room) as u64);
        exchanges.truncate(room);
        self.waiting.append(exchanges);
    }

    /// So many exchanges will not be judged.
    pub fn leave_out(&mut self, exchanges: u64) {
        self.unverified += exchanges;
    }

    /// Judges what ended before `moment`, of which every lane has told, and passes it on to `keep`.
    pub fn judge_before(&mut self, moment: Timestamp, keep: impl FnOnce(&[CacheExchange])) {
        // Nearly in order already: what a lane tells is, and lanes take turns.
        self.waiting.sort_by_key(|exchange| (exchange.done_at, exchange.sequence));
        let known = self.waiting.partition_point(|exchange| exchange.done_at < moment);
        let judged = &mut self.waiting[..known];
        judged.iter_mut().for_each(|exchange| self.judge.add(exchange));
        if !judged.is_empty() {
            keep(judged);
        }
        self.waiting.drain(..known);
    }

    /// Judges the rest.
    pub fn finish(mut self, keep: impl FnOnce(&[CacheExchange])) -> CacheFigures {
        self.judge_before(Timestamp::MAX, keep);
        CacheFigures { unverified: self.unverified, ..self.judge.finish() }
    }
}
