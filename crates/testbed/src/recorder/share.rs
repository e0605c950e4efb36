//! The share of requests in the table, if it cannot have all.
//!
//! One in 2^e, chosen by a hash of the request's number: the choice does not depend on the outcome of requests, on
//! their end or on their shard. When e grows, the stored ones are thinned to the same share, so that at the end the
//! table is an even sample of the whole run.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Most counted records that may be passed on at one share, before the share is halved.
const PASSED_RECORDS_MAX: usize = 128 << 10;
/// One in a billion: the smallest share.
const EXPONENT_MAX: u32 = 30;

/// The current share, common to all threads that choose.
#[derive(Debug, Default)]
pub struct Share {
    exponent: AtomicU32,
    passed: AtomicUsize,
}

impl Share {
    /// One request in this many is stored.
    pub fn one_in(&self) -> u64 {
        1 << self.exponent.load(Ordering::Acquire)
    }

    /// Whether the request of this number is stored.
    pub fn stores(&self, sequence: u64) -> bool {
        let exponent = self.exponent.load(Ordering::Acquire);
        exponent == 0 || mixed(sequence).trailing_zeros() >= exponent
    }

    /// Halves the share.
    pub fn halve(&self) {
        let halved = |exponent: u32| (exponent < EXPONENT_MAX).then_some(exponent + 1);
        // At its limit the share stays.
        let _ = self.exponent.fetch_update(Ordering::AcqRel, Ordering::Acquire, halved);
    }

    /// Counts records that a shard counted itself and passed on; too many halve the share.
    pub fn count_passed(&self, records: usize) {
        if self.passed.fetch_add(records, Ordering::AcqRel) + records > PASSED_RECORDS_MAX {
            self.passed.store(0, Ordering::Release);
            self.halve();
        }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): neighbouring numbers become independent.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_share_is_even_over_the_run_and_a_subset_when_halved() {
        let share = Share::default();
        assert!((0..1000).all(|sequence| share.stores(sequence)));
        let mut before: Vec<u64> = (0..100_000).collect();
        for exponent in 1..6u32 {
            share.halve();
            assert_eq!(share.one_in(), 1 << exponent);
            let stored: Vec<u64> = (0..100_000).filter(|&sequence| share.stores(sequence)).collect();
            assert!(stored.iter().all(|sequence| before.binary_search(sequence).is_ok()));
            // Binomial: five standard deviations, in each tenth of the run.
            let expected = 10_000.0 / share.one_in() as f64;
            for tenth in 0..10u64 {
                let here = stored.iter().filter(|&&sequence| sequence / 10_000 == tenth).count() as f64;
                assert!((here - expected).abs() < 5.0 * expected.sqrt(), "{here} of {expected}");
            }
            before = stored;
        }
    }

    #[test]
    fn records_passed_on_by_shards_are_bounded() {
        let share = Share::default();
        // Ten million requests, of which the stored ones are passed on a hundred at a time.
        let mut passed = 0;
        for first in (0..10_000_000u64).step_by(100) {
            let stored = (first..first + 100).filter(|&sequence| share.stores(sequence)).count();
            share.count_passed(stored);
            passed += stored;
        }
        assert!((64..=128).contains(&share.one_in()), "{}", share.one_in());
        assert!(passed < 9 * (PASSED_RECORDS_MAX + 100), "{passed}");
    }
}
