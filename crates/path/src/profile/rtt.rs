//! Distributions of RTT.

use std::time::Duration;

use units::time::saturating_nanos;

use super::curve::Curve;
use crate::spec::DelayOverTime;

/// How the RTTs of one class are distributed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rtt {
    /// The same RTT for all clients.
    Constant(Duration),
    /// The logarithm is normal with mean ln(median) and standard deviation `sigma`; cut to `min` and `max`.
    LogNormal { median: Duration, sigma: f64, min: Duration, max: Duration },
    /// A quantile curve.
    Quantiles(Curve),
    /// Measured RTTs in ns, sorted, at least one.
    Sample(Vec<u64>),
    /// The same RTT for all clients, changing over time.
    OverTime(DelayOverTime),
}

impl Rtt {
    /// The RTT below which a share `q` of the class lies, `q` above 0 and below 1; for a series over time, its mean.
    pub(super) fn quantile(&self, q: f64) -> Duration {
        match self {
            Rtt::Constant(rtt) => *rtt,
            Rtt::LogNormal { median, sigma, min, max } => {
                let nanos = saturating_nanos(*median) as f64 * (sigma * stats::normal::quantile(q)).exp();
                // The conversion saturates at u64::MAX; max is below that.
                Duration::from_nanos(nanos.round() as u64).clamp(*min, *max)
            }
            Rtt::Quantiles(curve) => curve.at(q),
            // The inverse of the sample's distribution function: with as many clients as values, one value each.
            Rtt::Sample(sorted) => {
                let rank = (q * sorted.len() as f64) as usize;
                Duration::from_nanos(sorted[rank.min(sorted.len() - 1)])
            }
            Rtt::OverTime(series) => series.mean(),
        }
    }
}
