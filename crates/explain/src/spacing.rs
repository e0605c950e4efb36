//! The bottleneck's rate, estimated from how a response's arrivals are spaced.

use crate::steps::Step;

/// The estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    /// Median time per byte between consecutive arrivals, in picoseconds.
    ps_per_byte: u64,
    /// Number of pairs whose spacing is within a fifth of the median.
    pub(crate) agreeing: usize,
    /// Whether at least half of all pairs agree.
    pub(crate) constant: bool,
}

impl Spacing {
    /// The estimate over `steps`. Bias: with a fast path and a slow sender it is the sender's rate.
    pub(crate) fn of(steps: &[Step]) -> Spacing {
        let per_byte = |pair: &[Step]| {
            let bytes = pair[1].to.checked_sub(pair[1].from).filter(|bytes| *bytes > 0)?;
            let time = pair[1].at.checked_sub(pair[0].at)?;
            pair[1].overtaken_at.is_none().then(|| time.saturating_mul(1_000) / bytes)
        };
        let mut all: Vec<u64> = steps.windows(2).filter_map(per_byte).collect();
        all.sort_unstable();
        let Some(&median) = all.get(all.len() / 2) else { return Spacing::default() };
        let agreeing = all.iter().filter(|value| value.abs_diff(median) <= median / 5).count();
        Spacing { ps_per_byte: median, agreeing, constant: all.len() >= MIN_PAIRS && agreeing * 2 >= all.len() }
    }

    /// Transmission time of `bytes` at the estimated rate, nanoseconds.
    pub(crate) fn serialisation(&self, bytes: u64) -> u64 {
        self.ps_per_byte.saturating_mul(bytes) / 1_000
    }
}

/// Least number of pairs for an estimate.
const MIN_PAIRS: usize = 5;
