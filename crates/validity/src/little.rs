//! Little's law: the mean number present is the arrival rate times the mean time present.

use load::GaugeStatistics;
use schema::document::Check;

use super::draft::Draft;

/// Largest relative difference at each vantage point.
const DIFFERENCE_SHARE_MAX: f64 = 0.02;
/// If the standard error of the sampled mean is larger than that, the limit is this multiple of it.
const STANDARD_ERRORS: f64 = 3.0;

/// A sampled gauge.
#[derive(Clone, Copy)]
pub(super) struct Sampled<'a> {
    pub(super) statistics: &'a GaugeStatistics,
    pub(super) samples: u64,
}

/// Compares the sampled mean with the one from records. `what`: the state of the counted items.
pub(super) fn check(check: Draft, what: &str, sampled: Sampled<'_>, from_records: f64) -> Check {
    let mean = sampled.statistics.level.mean;
    let larger = from_records.max(mean);
    if larger.is_nan() || larger <= 0.0 {
        return check.not_applicable(&format!("nothing was ever {what}"));
    }
    if sampled.samples == 0 {
        return check.could_not_run("the measured phase was too short to sample");
    }
    let difference = (mean - from_records).abs() / larger;
    // If no sample saw anything, sampling is at most as precise as counting: the square root of the count.
    let counting_error = (larger / sampled.samples as f64).sqrt();
    let resolution = STANDARD_ERRORS * sampled.statistics.standard_error.max(counting_error) / larger;
    let limit = DIFFERENCE_SHARE_MAX.max(resolution);
    let text = if limit > DIFFERENCE_SHARE_MAX {
        format!(
            "mean number {what}, sampled, compared with rate times mean time; the limit is widened to {STANDARD_ERRORS} standard errors of \
             the sampling, because few were {what}"
        )
    } else {
        format!("mean number {what}, sampled, compared with rate times mean time (Little's law)")
    };
    check.at_most(
        difference,
        limit,
        &text,
        &format!("the sampled mean number {what} differs from rate times mean time: counts or times are wrong"),
    )
}
