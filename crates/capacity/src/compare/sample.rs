//! Documents for tests.

use schema::document::{Check, CheckState, Load, Weight};
use schema::{Document, Quantiles, Validity};

/// A run of an open loop with these times.
pub(super) fn document(mean_ns: f64, rate_per_s: f64) -> Document {
    let times = Quantiles {
        count: 1000,
        mean: mean_ns,
        p50: mean_ns as u64,
        p90: (2.0 * mean_ns) as u64,
        p99: (4.0 * mean_ns) as u64,
        ..Quantiles::default()
    };
    let load = Load {
        loop_kind: "open".into(),
        offered_requests: 1000,
        completed: 1000,
        achieved_rate_per_s: rate_per_s,
        response_time_ns: times,
        ..Load::default()
    };
    Document::of_load(load, 5.0)
}

/// A run whose generator was late.
pub(super) fn invalid(document: Document) -> Document {
    let check = Check::without_figure("generator_on_time", CheckState::Failed, Weight::Invalid, "it was late");
    Document { validity: Validity::from_checks(vec![check]), ..document }
}
