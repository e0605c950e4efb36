//! Little's law: the mean number present is rate times mean time.

use load::LevelStatistics;
use schema::document::Check;

use super::draft::Draft;

/// Little's law must hold within this share at each vantage point.
const SHARE: f64 = 0.02;
/// Where the sampled mean's own standard error is larger than that, so many of them.
const ERRORS: f64 = 3.0;

/// A level as it was sampled.
#[derive(Clone, Copy)]
pub(super) struct Sampled<'a> {
    pub(super) statistics: &'a LevelStatistics,
    pub(super) samples: u64,
}

/// Holds the sampled mean against the one from records. `what`: in which state things are counted.
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
    // Even where no sample happened to see anything, sampling is no finer than counting: the square root of the hits.
    let counting_error = (larger / sampled.samples as f64).sqrt();
    let resolution = ERRORS * sampled.statistics.standard_error.max(counting_error) / larger;
    let limit = SHARE.max(resolution);
    let held = if limit > SHARE {
        format!(
            "mean {what} sampled live against rate times mean time; the limit is widened to {ERRORS} standard errors of \
             the sampling, since so few were ever {what}"
        )
    } else {
        format!("mean {what} sampled live against rate times mean time (Little's law)")
    };
    check.at_most(
        difference,
        limit,
        &held,
        &format!(
            "mean {what} sampled live differs from rate times mean time: the bookkeeping is wrong, or time was lost"
        ),
    )
}
