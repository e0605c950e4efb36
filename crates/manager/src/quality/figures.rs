//! Figures of a span or of a whole time, with units in their names. Unknown figures are absent, never 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scan::Tally;
use super::time_histogram::TimeHistogram;

/// Figures of exchanges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Exchanges that ended, and failed connection attempts.
    pub attempts: u64,
    /// Estimated attempts, if agents send only a share of their connections; absent if all were sent. Ratios and
    /// times below are those of the sent rows, equally weighted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attempts_estimated: Option<f64>,
    /// Attempts that failed.
    pub failed: u64,
    /// Failures by cause, the error's name; beyond 30 names `_OTHER`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub causes: BTreeMap<String, u64>,
    /// Failed / attempts, 0 to 1; absent without attempts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_ratio: Option<f64>,
    /// Absent without attempts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub availability: Option<Availability>,
    /// Response times of successful exchanges; absent without any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<ResponseTimes>,
    /// Bytes sent by the programs' calls.
    pub sent_bytes: u64,
    /// Bytes received by the programs' calls.
    pub received_bytes: u64,
    /// Sent bytes per second of the span so far; estimated if a share was sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes_per_s: Option<f64>,
    /// Received bytes per second of the span so far; estimated if a share was sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_bytes_per_s: Option<f64>,
    /// Received bytes per second between first and last byte, of exchanges that took time to receive. Biased upward
    /// as each such rate of `tap`: the bytes of the first call arrived earlier.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receive_rate_bytes_per_s: Option<f64>,
    /// Connections that ended.
    pub connections: u64,
    /// Connections that were never established.
    pub connections_failed: u64,
    /// Failed name lookups without a connection; no attempts.
    pub lookups_failed: u64,
}

/// Share of successes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Availability {
    /// Share of attempts that succeeded, 0 to 1.
    pub attempts: f64,
    /// Share of 10 s windows with attempts of an agent in which an attempt succeeded; 0 to 1.
    pub windows: f64,
    /// Number of windows, counted separately for each agent.
    pub windows_tried: u64,
}

/// Response times in ns. Quantiles are never too low and at most 3.1 % too high; mean, minimum and maximum are exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Number of response times.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// Maximum.
    pub max: u64,
}

impl Figures {
    /// Figures of sums over `passed_s` seconds.
    pub(super) fn of(tally: &Tally, passed_s: u64) -> Figures {
        let sums = &tally.sums;
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let per_s = |bytes: f64| (passed_s > 0).then(|| bytes / passed_s as f64);
        // Floating-point sums: without sampling the estimate differs from the count in the last digit only.
        let is_drawn = sums.attempts_estimated > sums.attempts as f64 * (1.0 + 1e-9);
        let availability = share(sums.attempts.saturating_sub(sums.failed), sums.attempts)
            .zip(share(tally.succeeded, tally.tried))
            .map(|(attempts, windows)| Availability { attempts, windows, windows_tried: tally.tried });
        Figures {
            attempts: sums.attempts,
            attempts_estimated: is_drawn.then_some(sums.attempts_estimated),
            failed: sums.failed,
            causes: sums.causes.clone(),
            error_ratio: share(sums.failed, sums.attempts),
            availability,
            response_ns: ResponseTimes::of(&sums.response),
            sent_bytes: sums.sent_bytes,
            received_bytes: sums.received_bytes,
            sent_bytes_per_s: per_s(sums.sent_estimated),
            received_bytes_per_s: per_s(sums.received_estimated),
            receive_rate_bytes_per_s: share(sums.receive_bytes, sums.receive_ns).map(|rate| rate * 1e9),
            connections: sums.connections,
            connections_failed: sums.connections_failed,
            lookups_failed: sums.lookups_failed,
        }
    }
}

impl ResponseTimes {
    /// The figures of a histogram; `None` if it is empty.
    pub(super) fn of(times: &TimeHistogram) -> Option<ResponseTimes> {
        let at = |q| times.quantile(q);
        Some(ResponseTimes {
            count: times.count(),
            mean: times.mean_ns()?,
            min: times.min_ns()?,
            p50: at(0.5)?,
            p90: at(0.9)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            p99_9: at(0.999)?,
            max: times.max_ns()?,
        })
    }
}
