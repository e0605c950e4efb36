//! Notes and checks of a sweep that need nothing but its plan and its points.

use std::time::Duration;

use experiment::ExperimentError;
use plan::Proxy;
use polymix::CacheWorkload;
use schema::document::{Check, CheckState, Weight};
use schema::{CachePoint, NotCounted};
use store::StoreError;
use units::{RequestRate, format_duration};

use crate::phases::PolygraphSchedule;
use crate::runs;
use crate::sweep_plan::{CachePlan, Front};

/// The failed check of a point whose origin did not report what it served.
pub(super) fn uncounted(rate: RequestRate, error: &ExperimentError) -> Check {
    Check::without_figure(
        format!("{rate}: origin counted"),
        CheckState::Failed,
        Weight::Suspect,
        format!("origin not counted, so what the cache kept from it is not known: {error}"),
    )
}

/// Why no seats are stated, where no point counts.
pub(super) fn no_clients_stated(not_counted: &[NotCounted]) -> Option<String> {
    let points: Vec<String> =
        not_counted.iter().map(|point| format!("{}/s ({})", point.rate_per_s, point.why)).collect();
    (!points.is_empty()).then(|| {
        format!(
            "No seats are stated: only valid points that came to their end count, and there is none: {}.",
            points.join(", ")
        )
    })
}

/// A check that could not run, if a point has no ideal to be held against, or its table could not be read.
pub(super) fn unsimulated(rate: RequestRate, points: &[CachePoint], unread: Option<&StoreError>) -> Option<Check> {
    let lacks = |point: &&CachePoint| point.figures.basic_requests > 0 && point.figures.hit_ratio.ideal.is_none();
    let why = match (unread, points.iter().find(lacks)) {
        (Some(error), _) => format!("the exchanges of the run cannot be read again: {error}"),
        (None, None) => return None,
        (None, Some(point)) => format!(
            "of the {} requests that hit ratios are of not all are in the run's table, and a part of them has no order to \
             simulate: is the disk too slow?",
            point.figures.basic_requests
        ),
    };
    Some(Check {
        name: format!("{rate}: ideal simulated"),
        state: CheckState::CouldNotRun,
        weight: Weight::Suspect,
        value: None,
        limit: None,
        unit: String::new(),
        why,
    })
}

pub(super) fn proxy_words(front: &Front) -> String {
    match front {
        // The password stays out of documents.
        Front::Forward(proxy) => format!("forward {}", Proxy { user: None, ..proxy.clone() }),
        Front::Reverse(url) => format!("reverse {url}"),
        Front::Direct => "none".into(),
    }
}

/// How long there is load before what is measured of a point, and how many seconds the origin thinks in the mean; nothing of a schedule, which
/// has phases of its own for that.
pub(super) fn before_points(plan: &CachePlan, workload: &CacheWorkload) -> Option<(Duration, f64)> {
    let cache = &plan.cache;
    let before = runs::lead(plan, workload).saturating_add(cache.point.mul_f64(cache.warmup.value()));
    cache.is_constant().then(|| (before, workload.think.as_ref().map_or(0.0, |law| law.mean())))
}

/// What to know before reading any figure.
pub(super) fn notes(plan: &CachePlan, workload: &CacheWorkload) -> Vec<String> {
    let cache = &plan.cache;
    let mut notes = Vec::new();
    if cache.schedule != PolygraphSchedule::Constant {
        let name = cache.schedule.name();
        let scale = cache.time_scale;
        let times = if scale < 1.0 { format!("1/{}", (1.0 / scale).round()) } else { format!("{scale} times") };
        if (scale - 1.0).abs() > 1e-9 {
            notes.push(format!(
                "{name}-shaped, {times} of its time: ramps, plateaus, idle phases and the working set are scaled; the life cycles \
                 of objects and the filling of the cache are not."
            ));
        }
        if cache.cache_size.is_none() && cache.schedule != PolygraphSchedule::Polymix2 {
            notes.push(
                "The cache was not filled beforehand: without its size (--cache-size) nobody knows how much that is."
                    .into(),
            );
        }
    }
    let lead = runs::lead(plan, workload);
    if !lead.is_zero() {
        notes.push(format!(
            "The workload {} has phases of its own, of which the last is measured: before it came {} of load that is in no figure.",
            workload.name,
            format_duration(lead)
        ));
    }
    if cache.keep_world {
        notes.push(
            "All points asked for the objects of one world (--keep-world): hits are among them of what points before left in \
             the cache, which the ideals do not know."
                .into(),
        );
    }
    if let Some((warmup, think_s)) =
        before_points(plan, workload).filter(|(before, think_s)| before.as_secs_f64() < *think_s)
    {
        notes.push(format!(
            "The warm-up of a point, {}, is shorter than the origin thinks, {think_s:.1} s in the mean: what is measured is the \
             beginning, in which less is carried than offered. Make points longer (--duration) before you conclude anything of \
             seats.",
            format_duration(warmup)
        ));
    }
    if workload.https > 0.0 {
        notes.push(format!(
            "{:.0} % of the requests were inside TLS, where no forward proxy sees them: they are in load and response time, and \
             in no hit ratio.",
            workload.https * 100.0
        ));
    }
    notes
}
