//! Round trips of a connection in half the memory: most connections have few, and short ones.

use schema::RttSummary;

/// An [`RttSummary`] while the sum is below 2^32 ns (4.3 s). Later samples are stored elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    /// Number of samples; the top bit means that no more fit.
    count: u32,
    min_ns: u32,
    max_ns: u32,
    sum_ns: u32,
}

const FULL: u32 = 1 << 31;

impl Rtt {
    /// Records one sample; false when it does not fit, and then for all later samples.
    #[inline]
    pub(super) fn record(&mut self, rtt_ns: u64) -> bool {
        // A sample may be 0 ns, so the sum does not bound their number.
        let has_space = self.count < FULL - 1;
        let sum = u64::from(self.sum_ns).saturating_add(rtt_ns);
        let (Ok(sum_ns), true) = (u32::try_from(sum), has_space) else {
            self.count |= FULL;
            return false;
        };
        // Not larger than the sum.
        let rtt_ns = rtt_ns as u32;
        self.min_ns = if self.count == 0 { rtt_ns } else { self.min_ns.min(rtt_ns) };
        self.max_ns = self.max_ns.max(rtt_ns);
        self.sum_ns = sum_ns;
        self.count += 1;
        true
    }

    /// Summary of all samples: those here, and `later` ones.
    pub(super) fn summary(self, later: RttSummary) -> RttSummary {
        let own = RttSummary {
            count: self.count & !FULL,
            min_ns: self.min_ns.into(),
            max_ns: self.max_ns.into(),
            sum_ns: self.sum_ns.into(),
        };
        match (own.count, later.count) {
            (_, 0) => own,
            (0, _) => later,
            _ => RttSummary {
                count: own.count.saturating_add(later.count),
                min_ns: own.min_ns.min(later.min_ns),
                max_ns: own.max_ns.max(later.max_ns),
                sum_ns: own.sum_ns.saturating_add(later.sum_ns),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rtt_summary_with_overflow_equals_the_direct_summary(
            samples in prop::collection::vec(prop_oneof![0u64..1000, 0u64..2_000_000_000, any::<u64>()], 0..20)
        ) {
            let (mut whole, mut small, mut later) = (RttSummary::default(), Rtt::default(), RttSummary::default());
            for sample in samples {
                whole.record(sample);
                if !small.record(sample) {
                    later.record(sample);
                }
            }
            prop_assert_eq!(small.summary(later), whole);
        }
    }
}
