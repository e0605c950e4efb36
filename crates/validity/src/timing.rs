//! Errors of time, held against the figures that are reported: the one place where it is decided whether an error matters.
//!
//! An error is *material* if it may move a reported figure by more than 1 %, or 50 us where that is more
//! ([`stats::materiality`]). A percentile is judged if twenty requests lie beyond it. A check with a material error casts doubt; it takes the
//! meaning from the figures (invalid) if the error is ten times that at the median, or a hundred times above it: the tail is then twice what it
//! was.

use load::DelayBounds;
use schema::document::{Check, CheckState, Document, GeneratorDelay, Quantiles, Weight};
use stats::materiality::material_ns;

use super::draft::Draft;
use crate::evidence::Evidence;
use plan::slo::TimeFigure;

/// Figures of a distribution that checks judge, from the body to the tail.
const JUDGED: [TimeFigure; 7] = [
    TimeFigure::Mean,
    TimeFigure::P50,
    TimeFigure::P75,
    TimeFigure::P90,
    TimeFigure::P95,
    TimeFigure::P99,
    TimeFigure::P999,
];

/// From so many times what is material on, an error takes the meaning from the median.
const SPOILS_MEDIAN: f64 = 10.0;
/// And from a percentile above it.
const SPOILS_TAIL: f64 = 100.0;
/// A closed loop makes as many requests less as it stalls: its rate is a reported figure, too.
const RATE_SHARE: f64 = 0.01;
/// Stolen CPU time above this share casts doubt on every time measured.
const STEAL_SHARE_MAX: f64 = 0.10;
/// Below this share it moves nothing that is reported.
const STEAL_SHARE_MIN: f64 = 0.01;

/// A figure, what it is reported as, and by how much it may be wrong.
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

    /// In units of what is material.
    fn size(self) -> f64 {
        self.error_ns / self.limit()
    }

    fn is_material(self) -> bool {
        self.size() > 1.0
    }

    fn weight(self) -> Weight {
        let tail = !matches!(self.figure, TimeFigure::Mean | TimeFigure::P50);
        let spoils = if tail { SPOILS_TAIL } else { SPOILS_MEDIAN };
        // A mean follows its tail, which is judged by itself.
        let spoilt = self.figure != TimeFigure::Mean && self.size() > spoils;
        if spoilt { Weight::Invalid } else { Weight::Suspect }
    }

    /// `p99 by up to 8.3 ms of 25.1 ms`
    fn words(self) -> String {
        format!("{} by up to {} of {}", self.figure.name(), milliseconds(self.error_ns), milliseconds(self.reported_ns))
    }
}

fn milliseconds(ns: f64) -> String {
    match ns / 1e6 {
        ms if ms < 0.1 => format!("{:.0} us", ns / 1e3),
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1000.0 => format!("{ms:.1} ms"),
        ms => format!("{:.2} s", ms / 1e3),
    }
}

/// The figures of `count` values that are judged.
fn judged(count: u64) -> impl Iterator<Item = TimeFigure> {
    JUDGED.into_iter().filter(move |figure| figure.is_known(count))
}

/// The highest percentile of `count` values that is judged, from the 75th to the 99th; none of fewer than 80.
pub(super) fn tail_of(count: u64) -> Option<TimeFigure> {
    let is_tail = |figure: &TimeFigure| !matches!(figure, TimeFigure::Mean | TimeFigure::P50 | TimeFigure::P999);
    judged(count).filter(is_tail).last()
}

/// What the response time of a run is reported as. Before the first answer, and where there is no load, what the path was configured to.
fn reported_ns(document: &Document, figure: TimeFigure) -> f64 {
    let response = document.load.as_ref().and_then(|load| figure.of(&load.response_time_ns));
    response.or_else(|| figure.of(&document.path.as_ref()?.configured_rtt_ns)).unwrap_or(0.0)
}

/// The bounds as the document has them.
pub fn generator_delay(bounds: &DelayBounds) -> GeneratorDelay {
    GeneratorDelay {
        response_time_ns: bounds.all,
        stalls: bounds.stalls,
        stall_max_ns: units::time::saturating_nanos(bounds.longest),
        stalled_ns: units::time::saturating_nanos(bounds.stalled),
    }
}

impl Draft {
    /// Holds an error of all requests' times at `figure` against the response time that is reported at it.
    pub(super) fn material(
        self,
        document: &Document,
        figure: TimeFigure,
        error_ns: f64,
        held: &str,
        broken: &str,
    ) -> Check {
        let error = Error { figure, reported_ns: reported_ns(document, figure), error_ns };
        let words = format!("{broken} ({} of the response time may be wrong {})", figure.name(), after_name(error));
        let check = self.at_most(error_ns, error.limit(), held, &words);
        Check { weight: error.weight(), ..check }
    }
}

fn after_name(error: Error) -> String {
    format!("by up to {} of {}", milliseconds(error.error_ns), milliseconds(error.reported_ns))
}

/// The errors of a distribution's judged figures, the largest in what is material first.
fn errors(reported: &Quantiles, bounds: &Quantiles) -> Vec<Error> {
    let of = |figure: TimeFigure| {
        let reported_ns = figure.of(reported)?;
        Some(Error { figure, reported_ns, error_ns: figure.of(bounds).unwrap_or(0.0) })
    };
    let mut errors: Vec<Error> = judged(reported.count).filter_map(of).collect();
    errors.sort_by(|a, b| b.size().total_cmp(&a.size()));
    errors
}

/// Every material error, from the body to the tail, in words.
fn listed(errors: &[Error]) -> String {
    let mut material: Vec<Error> = errors.iter().copied().filter(|error| error.is_material()).collect();
    material.sort_by_key(|error| JUDGED.iter().position(|figure| *figure == error.figure));
    material.into_iter().map(Error::words).collect::<Vec<_>>().join(", ")
}

/// What the generator itself may have added to the response times must not be material.
pub(super) fn generator_on_time(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("generator_on_time", Weight::Invalid, "ns");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    if evidence.gave_up {
        return check.failed(
            "the run ended early, with two million arrivals waiting to start: the rate is beyond what this machine, the \
             cap on connections or the server allows; lower it or raise -c",
        );
    }
    let never = load.offered_requests.saturating_sub(load.send_lag_ns.count);
    if evidence.plan.load.is_open() && never * 100 > load.offered_requests {
        return check.failed(&format!(
            "{never} of {} requests were never started: the rate is beyond what this machine, the cap on connections or \
             the server allows; lower it or raise -c",
            load.offered_requests
        ));
    }
    let errors = errors(&load.response_time_ns, &evidence.delays.all);
    let Some(worst) = errors.first().copied() else { return check.not_applicable("no request has ended") };
    let held =
        format!("how far the generator's own delay may have raised the {} of the response time", worst.figure.name());
    let broken = format!(
        "the generator was late or stalled (its core is busy, or the machine was taken away), and may have raised the response time: {}. \
         Lower the rate, free a core, or repeat on a quieter machine",
        listed(&errors)
    );
    let unknown = worst.is_material() && objective_unknown(document, evidence);
    let broken = if unknown { format!("{broken}. Without that delay the objective may have been met") } else { broken };
    let spoils = unknown || errors.iter().any(|error| error.weight() == Weight::Invalid);
    let check = check.at_most(worst.error_ns, worst.limit(), &held, &broken);
    Check { weight: if spoils { Weight::Invalid } else { Weight::Suspect }, ..check }
}

/// Whether the objective was missed, and would have been met if the generator had delayed nothing.
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

/// No stall of the generator and the path may have moved a reported figure: a time, or the rate of a closed loop.
pub(super) fn never_stalled(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("loop_not_stalled", Weight::Suspect, "ns");
    let longest = evidence.loop_health.standstill.max(evidence.delays.longest).as_nanos() as f64;
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
            "a closed loop asks for nothing meanwhile, so that the rate may be too low by {:.1} %",
            100.0 * stalled_share
        ));
    }
    let how = format!(
        "generator and path stalled {} times (stopped, or the machine was taken away), for {} in all",
        evidence.delays.stalls,
        milliseconds(evidence.delays.stalled.as_nanos() as f64)
    );
    if moved.is_empty() {
        return check.end(
            CheckState::Ok,
            Some(longest),
            None,
            &format!("the longest stall; {how}, which moved no figure that is judged"),
        );
    }
    let why = format!("this is the longest stall; {how}: {}. Repeat on a quieter machine", moved.join("; "));
    check.end(CheckState::Failed, Some(longest), None, &why)
}

pub(super) fn path_on_time(document: &Document) -> Check {
    let check = Draft::new("path_on_time", Weight::Invalid, "ns");
    let Some(path) = &document.path else { return check.not_applicable("no path was asked for") };
    let figure = tail_of(path.timing_error_ns.count).unwrap_or(TimeFigure::P50);
    check.material(
        document,
        figure,
        figure.of(&path.timing_error_ns).unwrap_or(0.0),
        &format!("{} of the packets' timing error: packets leave the path when they are due", figure.name()),
        "packets left the path late, so distances were longer than configured: lower the rate, or free a core",
    )
}

/// Stolen time lengthens what takes CPU time: the response time less the distance, and the time between two requests of a closed loop.
pub(super) fn machine_undisturbed(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("machine_undisturbed", Weight::Suspect, "ratio");
    let Some(share) = document.run.host.steal_share else { return check.could_not_run("/proc/stat could not be read") };
    let limit = steal_limit(document, evidence.plan.load.is_open());
    let lengthened = cpu_part_ns(document) * share / (1.0 - share).max(1e-9);
    let median =
        Error { figure: TimeFigure::P50, reported_ns: reported_ns(document, TimeFigure::P50), error_ns: lengthened };
    let rate = if evidence.plan.load.is_open() {
        ""
    } else {
        ", and the rate of this closed loop too low by as large a share"
    };
    check.at_most(
        share,
        limit,
        "share of CPU time taken away by the hypervisor",
        &format!(
            "the hypervisor took CPU time away, which may have raised the response time: {}{rate}; its tail may have risen by more",
            median.words()
        ),
    )
}

/// The share of stolen time that moves the median of the response time by what is material. A rate moves with the share itself.
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

/// Of the median response time, what is not the configured distance.
fn cpu_part_ns(document: &Document) -> f64 {
    let distance = document.path.as_ref().map_or(0.0, |path| path.configured_rtt_ns.p50 as f64);
    (reported_ns(document, TimeFigure::P50) - distance).max(0.0)
}
