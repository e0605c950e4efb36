//! Errors of time, compared with the reported figures: the one place that decides whether an error matters.
//!
//! An error is *material* if it may change a reported figure by more than 1 %, or 50 us if that is more
//! ([`stats::materiality`]). A percentile is judged if twenty requests exceed it. A material error makes a run suspect,
//! and invalid if it is more than ten times material at the median, or a hundred times at a higher percentile: the tail
//! is then twice its true value.

use load::DelayBounds;
use schema::document::{Check, CheckState, Document, GeneratorDelay, Quantiles, Weight};
use stats::materiality::material_ns;
use units::figures::duration_f64;

use super::draft::Draft;
use crate::evidence::Evidence;
use plan::slo::TimeFigure;

/// Figures of a distribution that are judged, from the body to the tail.
const JUDGED: [TimeFigure; 7] = [
    TimeFigure::Mean,
    TimeFigure::P50,
    TimeFigure::P75,
    TimeFigure::P90,
    TimeFigure::P95,
    TimeFigure::P99,
    TimeFigure::P999,
];

/// An error at the median above this multiple of the material error makes a run invalid.
const INVALID_MULTIPLE_MEDIAN: f64 = 10.0;
/// An error at a higher percentile above this multiple of the material error makes a run invalid.
const INVALID_MULTIPLE_TAIL: f64 = 100.0;
/// A stall reduces the rate of a closed loop by its share of the time: the rate is a reported figure, too.
const RATE_SHARE: f64 = 0.01;
/// Stolen CPU time above this share makes a run suspect in any case.
const STEAL_SHARE_MAX: f64 = 0.10;
/// A smaller share changes no reported figure.
const STEAL_SHARE_MIN: f64 = 0.01;

/// A figure, its reported value, and its possible error.
#[derive(Clone, Copy, Debug)]
struct Error {
    figure: TimeFigure,
    reported_ns: f64,
    error_ns: f64,
}

impl Error {
    fn limit(self) -> f64 {
        material_ns(self.reported_ns)
    }

    /// The error in multiples of the material error.
    fn size(self) -> f64 {
        self.error_ns / self.limit()
    }

    fn is_material(self) -> bool {
        self.size() > 1.0
    }

    fn weight(self) -> Weight {
        let tail = !matches!(self.figure, TimeFigure::Mean | TimeFigure::P50);
        let spoils = if tail { INVALID_MULTIPLE_TAIL } else { INVALID_MULTIPLE_MEDIAN };
        // A mean follows the tail, which is judged itself.
        let spoilt = self.figure != TimeFigure::Mean && self.size() > spoils;
        if spoilt { Weight::Invalid } else { Weight::Suspect }
    }

    /// `p99 by up to 8.3 ms of 25.1 ms`
    fn text(self) -> String {
        format!("{} by up to {} of {}", self.figure.name(), duration_f64(self.error_ns), duration_f64(self.reported_ns))
    }
}

/// The judged figures of `count` values.
fn judged(count: u64) -> impl Iterator<Item = TimeFigure> {
    JUDGED.into_iter().filter(move |figure| figure.is_known(count))
}

/// The highest judged percentile of `count` values, from the 75th to the 99th; none of fewer than 80.
pub(super) fn tail_of(count: u64) -> Option<TimeFigure> {
    let is_tail = |figure: &TimeFigure| !matches!(figure, TimeFigure::Mean | TimeFigure::P50 | TimeFigure::P999);
    judged(count).filter(is_tail).last()
}

/// The reported response time of a run. Before the first response, and without a load, the configured RTT.
fn reported_ns(document: &Document, figure: TimeFigure) -> f64 {
    let response = document.load.as_ref().and_then(|load| figure.of(&load.response_time_ns));
    response.or_else(|| figure.of(&document.path.as_ref()?.configured_rtt_ns)).unwrap_or(0.0)
}

/// The bounds in the form of the document.
pub fn generator_delay(bounds: &DelayBounds) -> GeneratorDelay {
    GeneratorDelay {
        response_time_ns: bounds.all,
        stalls: bounds.stalls,
        stall_max_ns: units::time::saturating_nanos(bounds.longest),
        stalled_ns: units::time::saturating_nanos(bounds.stalled),
        send_lag_own_ns: bounds.own_send_lag,
        late_wakeups_ns: units::time::saturating_nanos(bounds.late_wakeups),
        // The caller adds what the kernel measured.
        run_queue_wait_ns: None,
    }
}

impl Draft {
    /// Compares an error of all requests' times at `figure` with the reported response time at it.
    pub(super) fn material(
        self,
        document: &Document,
        figure: TimeFigure,
        error_ns: f64,
        ok_text: &str,
        failed_text: &str,
    ) -> Check {
        let error = Error { figure, reported_ns: reported_ns(document, figure), error_ns };
        let text = format!("{failed_text} ({} of the response time may be wrong {})", figure.name(), after_name(error));
        let check = self.at_most(error_ns, error.limit(), ok_text, &text);
        Check { weight: error.weight(), ..check }
    }
}

fn after_name(error: Error) -> String {
    format!("by up to {} of {}", duration_f64(error.error_ns), duration_f64(error.reported_ns))
}

/// The errors of a distribution's judged figures, the largest multiple of the material error first.
fn errors(reported: &Quantiles, bounds: &Quantiles) -> Vec<Error> {
    let of = |figure: TimeFigure| {
        let reported_ns = figure.of(reported)?;
        Some(Error { figure, reported_ns, error_ns: figure.of(bounds).unwrap_or(0.0) })
    };
    let mut errors: Vec<Error> = judged(reported.count).filter_map(of).collect();
    errors.sort_by(|a, b| b.size().total_cmp(&a.size()));
    errors
}

/// All material errors, from the body to the tail, as text.
fn listed(errors: &[Error]) -> String {
    let mut material: Vec<Error> = errors.iter().copied().filter(|error| error.is_material()).collect();
    material.sort_by_key(|error| JUDGED.iter().position(|figure| *figure == error.figure));
    material.into_iter().map(Error::text).collect::<Vec<_>>().join(", ")
}

/// The generator's own delay of response times must not be material.
pub(super) fn generator_on_time(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("generator_on_time", Weight::Invalid, "ns");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    if evidence.gave_up {
        return check.failed(
            "the run ended early, with two million arrivals waiting to start: the rate exceeds what this machine, the \
             limit of connections or the server allows; lower it or raise -c",
        );
    }
    let never = load.offered_requests.saturating_sub(load.send_lag_ns.count);
    if evidence.plan.load.is_open() && never * 100 > load.offered_requests {
        return check.failed(&format!(
            "{never} of {} requests were never started: the rate exceeds what this machine, the limit of connections or \
             the server allows; lower it or raise -c",
            load.offered_requests
        ));
    }
    let errors = errors(&load.response_time_ns, &evidence.delays.all);
    let Some(worst) = errors.first().copied() else { return check.not_applicable("no request has ended") };
    let ok_text =
        format!("upper bound of the generator's own delay in the {} of the response time", worst.figure.name());
    let failed_text = format!(
        "the generator was late or stalled (its core is busy, or the hypervisor ran other guests), and may have raised the response time: {}. \
         Lower the rate, free a core, or repeat on a quieter machine",
        listed(&errors)
    );
    let unknown = worst.is_material() && objective_unknown(document, evidence);
    let failed_text = if unknown {
        format!("{failed_text}. Without that delay the objective may have been met")
    } else {
        failed_text
    };
    let spoils = unknown || errors.iter().any(|error| error.weight() == Weight::Invalid);
    let check = check.at_most(worst.error_ns, worst.limit(), &ok_text, &failed_text);
    Check { weight: if spoils { Weight::Invalid } else { Weight::Suspect }, ..check }
}

/// Whether the objective was missed, but would have been met without the generator's own delay.
fn objective_unknown(document: &Document, evidence: &Evidence<'_>) -> bool {
    let (Some(slo), Some(load)) = (&evidence.plan.slo, &document.load) else { return false };
    if slo.judge(document).met {
        return false;
    }
    let (bounds, reported) = (&evidence.delays.all, &load.response_time_ns);
    let less = |reported: u64, bound: u64| reported.saturating_sub(bound);
    let mut without = document.clone();
    if let Some(load) = &mut without.load {
        load.response_time_ns = Quantiles {
            mean: (reported.mean - bounds.mean).max(0.0),
            p50: less(reported.p50, bounds.p50),
            p75: less(reported.p75, bounds.p75),
            p90: less(reported.p90, bounds.p90),
            p95: less(reported.p95, bounds.p95),
            p99: less(reported.p99, bounds.p99),
            p99_9: less(reported.p99_9, bounds.p99_9),
            p99_99: less(reported.p99_99, bounds.p99_99),
            max: less(reported.max, bounds.max),
            ..*reported
        };
    }
    slo.judge(&without).met
}

/// Stalls of the generator and the path must not change a reported figure: a time, or the rate of a closed loop.
pub(super) fn loop_not_stalled(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("loop_not_stalled", Weight::Suspect, "ns");
    let longest = evidence.loop_health.longest_stall.max(evidence.delays.longest).as_nanos() as f64;
    let stalled_share = evidence.delays.stalled.as_secs_f64() / evidence.loop_health.wall.as_secs_f64().max(1e-9);
    let errors = document
        .load
        .as_ref()
        .map(|load| errors(&load.response_time_ns, &evidence.delays.by_stalls))
        .unwrap_or_default();
    let mut moved = Vec::new();
    if errors.first().is_some_and(|worst| worst.is_material()) {
        moved.push(format!("the response time may be too high: {}", listed(&errors)));
    }
    if !evidence.plan.load.is_open() && stalled_share > RATE_SHARE {
        moved.push(format!(
            "a stalled closed loop sends nothing, so the rate may be too low by {:.1} %",
            100.0 * stalled_share
        ));
    }
    let how = format!(
        "generator and path stalled {} times (stopped, or the hypervisor ran other guests), for {} in total",
        evidence.delays.stalls,
        duration_f64(evidence.delays.stalled.as_nanos() as f64)
    );
    if moved.is_empty() {
        return check.end(
            CheckState::Ok,
            Some(longest),
            None,
            &format!("the longest stall; {how}, which changed no judged figure"),
        );
    }
    let why = format!("this is the longest stall; {how}: {}. Repeat on a quieter machine", moved.join("; "));
    check.end(CheckState::Failed, Some(longest), None, &why)
}

pub(super) fn path_on_time(document: &Document) -> Check {
    let check = Draft::new("path_on_time", Weight::Invalid, "ns");
    let Some(path) = &document.path else { return check.not_applicable("there is no path") };
    let figure = tail_of(path.timing_error_ns.count).unwrap_or(TimeFigure::P50);
    check.material(
        document,
        figure,
        figure.of(&path.timing_error_ns).unwrap_or(0.0),
        &format!("{} of the packets' timing error: a packet should leave the path when it is due", figure.name()),
        "packets left the path late, so delays were longer than configured: lower the rate, or free a core",
    )
}

/// Stolen time lengthens the parts of a response time that use CPU: the response time less the RTT, and the time
/// between two requests of a closed loop.
pub(super) fn machine_undisturbed(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("machine_undisturbed", Weight::Suspect, "ratio");
    let Some(share) = document.run.host.steal_share else { return check.could_not_run("/proc/stat could not be read") };
    let limit = steal_limit(document, evidence.plan.load.is_open());
    let lengthened = cpu_part_ns(document) * share / (1.0 - share).max(1e-9);
    let median =
        Error { figure: TimeFigure::P50, reported_ns: reported_ns(document, TimeFigure::P50), error_ns: lengthened };
    let rate =
        if evidence.plan.load.is_open() { "" } else { ", and the rate of this closed loop too low by the same share" };
    check.at_most(
        share,
        limit,
        "share of CPU time taken away by the hypervisor",
        &format!(
            "the hypervisor took CPU time away, which may have raised the response time: {}{rate}; its tail may have risen by more",
            median.text()
        ),
    )
}

/// The share of stolen time that changes the median of the response time by the material error. A closed loop's rate
/// changes by the share itself.
fn steal_limit(document: &Document, is_open: bool) -> f64 {
    let reported = document.load.as_ref().is_some_and(|load| load.response_time_ns.count > 0);
    if !reported {
        return STEAL_SHARE_MAX;
    }
    if !is_open {
        return STEAL_SHARE_MIN;
    }
    let material = material_ns(reported_ns(document, TimeFigure::P50)) / cpu_part_ns(document).max(1.0);
    material.clamp(STEAL_SHARE_MIN, STEAL_SHARE_MAX)
}

/// The part of the median response time that is not the configured RTT.
fn cpu_part_ns(document: &Document) -> f64 {
    let distance = document.path.as_ref().map_or(0.0, |path| path.configured_rtt_ns.p50 as f64);
    (reported_ns(document, TimeFigure::P50) - distance).max(0.0)
}
