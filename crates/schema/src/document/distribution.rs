//! Distributions and gauges as the document has them.

use serde::{Deserialize, Serialize};

/// A distribution, Q in the documentation. The name of the field gives the unit (`_ns`). All zero when `count` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Smallest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 75th percentile.
    pub p75: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Largest.
    pub max: u64,
}

impl Quantiles {
    /// Whether its figures can be those of one sample: percentiles that rise, and a mean between the least and the largest value. Tests check
    /// every estimator with it.
    pub fn is_consistent(&self) -> bool {
        let Quantiles { count, mean, stddev, min, p50, p75, p90, p95, p99, p99_9, p99_99, max } = *self;
        let rises = [min, p50, p75, p90, p95, p99, p99_9, p99_99, max].is_sorted();
        let between = (min as f64..=max as f64).contains(&mean);
        rises && between && stddev >= 0.0 && (count > 0 || max == 0)
    }
}

/// A gauge sampled over the measured phase: G in the documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Mean of the samples.
    pub mean: f64,
    /// Median of the samples.
    pub p50: u64,
    /// Largest sample.
    pub max: u64,
}
