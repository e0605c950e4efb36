//! Distributions of RTT.

use std::time::Duration;

use units::time::saturating_nanos;

use super::curve::Curve;
use crate::spec::DelayOverTime;

/// How the RTTs of one class are distributed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rtt {
    /// The same for all.
    Constant(Duration),
    /// The logarithm is normal with mean ln(median) and standard deviation `sigma`; cut to `min` and `max`.
    LogNormal { median: Duration, sigma: f64, min: Duration, max: Duration },
    /// A curve by quantile.
    Quantiles(Curve),
    /// Measured RTTs in ns, sorted, at least one.
    Sample(Vec<u64>),
    /// The same for all, but not at every time.
    OverTime(DelayOverTime),
}

impl Rtt {
    /// The RTT below which a share `q` of the class lies, `q` above 0 and below 1; the mean of one that changes.
    pub(super) fn quantile(&self, q: f64) -> Duration {
        match self {
            Rtt::Constant(rtt) => *rtt,
            Rtt::LogNormal { median, sigma, min, max } => {
                let nanos = saturating_nanos(*median) as f64 * (sigma * stats::normal::quantile(q)).exp();
                // The conversion cuts what is beyond u64; max is below that.
                Duration::from_nanos(nanos.round() as u64).clamp(*min, *max)
            }
            Rtt::Quantiles(curve) => curve.at(q),
            // The inverse of the sample's own distribution function: for as many clients as values, one each.
            Rtt::Sample(sorted) => {
                let rank = (q * sorted.len() as f64) as usize;
                Duration::from_nanos(sorted[rank.min(sorted.len() - 1)])
            }
            Rtt::OverTime(series) => series.mean(),
        }
    }
}
