//! What the judge remembers of the exchanges before.

use std::collections::HashMap;

use schema::CacheExchange;
use units::Timestamp;

/// The first copy of each object and variant that came whole: from then on a cache could have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies(HashMap<(u64, u8, bool), Kept>);

/// A copy that came whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Its last byte at the client; the cache had it before.
    pub(super) whole_at: Timestamp,
    /// Until when it may be used; `i64::MAX` where the origin did not say.
    pub(super) expires_unix_s: i64,
}

impl Copies {
    pub(super) fn of(&self, exchange: &CacheExchange) -> Option<&Kept> {
        self.0.get(&key(exchange))
    }

    /// In the place of the one before.
    pub(super) fn keep(&mut self, exchange: &CacheExchange, copy: Kept) {
        self.0.insert(key(exchange), copy);
    }

    pub(super) fn merge(&mut self, other: Copies) {
        for (key, copy) in other.0 {
            let mine = self.0.entry(key).or_insert(copy);
            if copy.whole_at < mine.whole_at {
                *mine = copy;
            }
        }
    }
}

fn key(exchange: &CacheExchange) -> (u64, u8, bool) {
    (exchange.object, exchange.kind, exchange.variant_gzip)
}

/// What each ask of this run asked for, as a mark of 32 bits: the answer that bears its number must be of that object. Two
/// objects have the same mark once in four thousand million, and then one false hit goes unseen.
#[derive(Clone, Debug, Default)]
pub(super) struct Makers {
    /// By number of the arrival; 0 where it has not ended.
    arrivals: Vec<u32>,
    /// Of asks that follow from answers: their numbers are sparse.
    others: HashMap<u64, u32>,
}

/// Arrivals beyond are not remembered, and what is said to be made for them is believed: half an hour at 36,000/s, 256 MB.
const ARRIVALS_MAX: u64 = 1 << 26;
/// From here on numbers are of asks that follow from answers.
const FOLLOW_UPS: u64 = 1 << 40;

impl Makers {
    pub(super) fn add(&mut self, exchange: &CacheExchange) {
        let mark = mark(exchange.kind, exchange.object);
        match exchange.sequence {
            sequence if sequence < ARRIVALS_MAX => {
                let at = sequence as usize;
                if at >= self.arrivals.len() {
                    self.arrivals.resize(at + 1, 0);
                }
                self.arrivals[at] = mark;
            }
            sequence if sequence >= FOLLOW_UPS => {
                self.others.insert(sequence, mark);
            }
            _ => {}
        }
    }

    /// Whether the ask for which the answer is said to be made asked for something else. One that has not ended yet, or of
    /// another run, is not known, and believed.
    pub(super) fn asked_for_another(&self, exchange: &CacheExchange) -> bool {
        let (Some(sequence), true) = (exchange.from_sequence, exchange.from_run == Some(exchange.run)) else {
            return false;
        };
        let known = match usize::try_from(sequence).ok().and_then(|at| self.arrivals.get(at)) {
            Some(&mark) => Some(mark).filter(|&mark| mark != 0),
            None => self.others.get(&sequence).copied(),
        };
        known.is_some_and(|known| known != mark(exchange.kind, exchange.object))
    }

    pub(super) fn merge(&mut self, other: Makers) {
        if other.arrivals.len() > self.arrivals.len() {
            self.arrivals.resize(other.arrivals.len(), 0);
        }
        for (mine, theirs) in self.arrivals.iter_mut().zip(other.arrivals) {
            *mine = if *mine == 0 { theirs } else { *mine };
        }
        self.others.extend(other.others);
    }
}

/// Never 0. The multiplier is the one of Fibonacci hashing: 2^64 over the golden ratio.
fn mark(kind: u8, object: u64) -> u32 {
    let mixed = (object ^ (u64::from(kind) << 56)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed >> 32) as u32).max(1)
}
