//! The verifier's memory of earlier exchanges.

use std::collections::HashMap;

use schema::CacheExchange;
use units::Timestamp;

/// The first complete copy of each object and variant, from which on a cache could have one.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies(HashMap<(u64, u8, bool), StoredCopy>);

/// A complete copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredCopy {
    /// Last byte at the client; the cache had it before.
    pub(super) whole_at: Timestamp,
    /// Expiry; `i64::MAX` if the origin stated none.
    pub(super) expires_unix_s: i64,
}

impl Copies {
    pub(super) fn of(&self, exchange: &CacheExchange) -> Option<&StoredCopy> {
        self.0.get(&key(exchange))
    }

    /// Replaces the copy of the object and variant.
    pub(super) fn keep(&mut self, exchange: &CacheExchange, copy: StoredCopy) {
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

/// The object of each request of this run, as a 32-bit hash, for comparison with responses generated for it. A hash
/// collision (1 in 4 billion) hides one false hit.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestedObjects {
    /// By number of the arrival; 0 if it has not ended.
    arrivals: Vec<u32>,
    /// Of requests for embedded objects, whose numbers are sparse.
    others: HashMap<u64, u32>,
}

/// Limit of remembered arrivals: half an hour at 36,000/s, 256 MB. Responses for later ones are not verified.
const ARRIVALS_MAX: u64 = 1 << 26;
/// First number of requests for embedded objects.
const FOLLOW_UPS: u64 = 1 << 40;

impl RequestedObjects {
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

    /// Whether the request named by the response was for another object. False for requests that have not ended or are
    /// of another run.
    pub(super) fn is_for_another_object(&self, exchange: &CacheExchange) -> bool {
        let (Some(sequence), true) = (exchange.from_sequence, exchange.from_run == Some(exchange.run)) else {
            return false;
        };
        let known = match usize::try_from(sequence).ok().and_then(|at| self.arrivals.get(at)) {
            Some(&mark) => Some(mark).filter(|&mark| mark != 0),
            None => self.others.get(&sequence).copied(),
        };
        known.is_some_and(|known| known != mark(exchange.kind, exchange.object))
    }

    pub(super) fn merge(&mut self, other: RequestedObjects) {
        if other.arrivals.len() > self.arrivals.len() {
            self.arrivals.resize(other.arrivals.len(), 0);
        }
        for (mine, theirs) in self.arrivals.iter_mut().zip(other.arrivals) {
            *mine = if *mine == 0 { theirs } else { *mine };
        }
        self.others.extend(other.others);
    }
}

/// A hash other than 0. The multiplier is that of Fibonacci hashing: 2^64 over the golden ratio.
fn mark(kind: u8, object: u64) -> u32 {
    let mixed = (object ^ (u64::from(kind) << 56)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed >> 32) as u32).max(1)
}
