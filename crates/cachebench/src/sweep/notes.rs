//! Notes and checks of a sweep that depend only on its plan and points.

use std::time::Duration;

use experiment::ExperimentError;
use plan::Proxy;
use polymix::CacheWorkload;
use schema::document::{Check, CheckState, Weight};
use schema::{CachePoint, UncountedRun};
use store::StoreError;
use units::{RequestRate, format_duration};

use crate::phases::PolygraphSchedule;
use crate::runs;
use crate::sweep_plan::{CachePlan, CachePosition};

/// The failed check of a point whose origin did not report what it served.
pub(super) fn uncounted(rate: RequestRate, error: &ExperimentError) -> Check {
    Check::without_figure(
        format!("{rate}: origin counted"),
        CheckState::Failed,
        Weight::Suspect,
        format!("the origin's counters could not be read, so the requests that the cache saved are unknown: {error}"),
    )
}

/// The note of a sweep without any point that counts for the clients supported.
pub(super) fn no_clients_stated(not_counted: &[UncountedRun]) -> Option<String> {
    let points: Vec<String> =
        not_counted.iter().map(|point| format!("{}/s ({})", point.rate_per_s, point.why)).collect();
    (!points.is_empty()).then(|| {
        format!(
            "No number of clients supported is stated: only complete, valid points count, and there are none: {}.",
            points.join(", ")
        )
    })
}

/// A check that could not run, if a point has no ideal hit ratio or its table is unreadable.
pub(super) fn unsimulated(rate: RequestRate, points: &[CachePoint], read_error: Option<&StoreError>) -> Option<Check> {
    let lacks = |point: &&CachePoint| point.figures.basic_requests > 0 && point.figures.hit_ratio.ideal.is_none();
    let why = match (read_error, points.iter().find(lacks)) {
        (Some(error), _) => format!("the recorded exchanges cannot be read: {error}"),
        (None, None) => return None,
        (None, Some(point)) => format!(
            "the run's table lacks some of the {} requests that the hit ratios cover, so that they cannot be \
             simulated: is the disk too slow?",
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

pub(super) fn proxy_description(position: &CachePosition) -> String {
    match position {
        // Documents must not contain the password.
        CachePosition::Forward(proxy) => format!("forward {}", Proxy { user: None, ..proxy.clone() }),
        CachePosition::Reverse(url) => format!("reverse {url}"),
        CachePosition::Direct => "none".into(),
    }
}

/// Time of load before the measured part of a point, and mean think time of the origin in seconds. `None` for
/// schedules.
pub(super) fn warm_up_and_think_time(plan: &CachePlan, workload: &CacheWorkload) -> Option<(Duration, f64)> {
    let cache = &plan.cache;
    let before = runs::lead_time(plan, workload).saturating_add(cache.point.mul_f64(cache.warmup.value()));
    cache.is_constant().then(|| (before, workload.think.as_ref().map_or(0.0, |law| law.mean())))
}

/// Notes on the figures.
pub(super) fn notes(plan: &CachePlan, workload: &CacheWorkload) -> Vec<String> {
    let cache = &plan.cache;
    let mut notes = Vec::new();
    if cache.schedule != PolygraphSchedule::Constant {
        let name = cache.schedule.name();
        let scale = cache.time_scale;
        let times = if scale < 1.0 { format!("1/{}", (1.0 / scale).round()) } else { format!("{scale}") };
        if (scale - 1.0).abs() > 1e-9 {
            notes.push(format!(
                "Schedule {name}, scaled by {times}: ramps, plateaus, idle phases and the working set are scaled; the life cycles \
                 of objects and the cache fill are not."
            ));
        }
        if cache.cache_size.is_none() && cache.schedule != PolygraphSchedule::Polymix2 {
            notes.push("The cache was not filled beforehand, since its size is unknown (--cache-size).".into());
        }
    }
    let lead_time = runs::lead_time(plan, workload);
    if !lead_time.is_zero() {
        notes.push(format!(
            "The workload {} has phases of its own, of which only the last is measured: {} of load before it are in no figure.",
            workload.name,
            format_duration(lead_time)
        ));
    }
    if cache.keep_world {
        notes.push(
            "All points used one world (--keep-world): hits include copies from earlier points, which the \
             ideal ratios do not consider."
                .into(),
        );
    }
    if let Some((warmup, think_s)) =
        warm_up_and_think_time(plan, workload).filter(|(before, think_s)| before.as_secs_f64() < *think_s)
    {
        notes.push(format!(
            "The warm-up of a point, {}, is shorter than the mean think time of the origin, {think_s:.1} s: the point includes the \
             start, when less is achieved than offered. Make points longer (--duration) before you derive the number \
             of clients supported.",
            format_duration(warmup)
        ));
    }
    if workload.https > 0.0 {
        notes.push(format!(
            "{:.0} % of the requests were inside TLS, invisible to a forward proxy: they are in load and response times, but \
             in no hit ratio.",
            workload.https * 100.0
        ));
    }
    notes
}
