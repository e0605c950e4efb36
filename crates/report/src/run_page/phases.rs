//! Results of the load by phase.

use schema::document::{Load, PhasePart};

use crate::figures::{count, duration, plain, rate};
use crate::page::{Section, Table};
use crate::phrases::{percentiles, span, too_few_values_to_p99};
use crate::plot::{Axis, Chart, Quantity, Series};

/// The phases one by one, and response time against offered rate; empty without phases.
pub(super) fn by_phase(load: &Load) -> Section {
    let section = Section::new("By phase");
    if load.by_phase.is_empty() {
        return section;
    }
    let head = ["phase", "length", "offered", "achieved", "failed", "p50", "p90", "p99", "max", "send lag p99"];
    let mut table = Table::new(&head);
    for phase in &load.by_phase {
        let q = &phase.response_time_ns;
        let mut row = vec![phase.name.clone(), span((phase.to_s - phase.from_s).max(0.0))];
        row.extend([rate(phase.offered_rate_per_s), rate(phase.achieved_rate_per_s), count(phase.failed)]);
        row.extend(percentiles(q));
        row.push(duration(phase.send_lag_ns.p99));
        table = table.row(row);
    }
    let section =
        section.text("A request belongs to the phase of its scheduled time, even if it ended later.").table(table);
    let legend = too_few_values_to_p99(load.by_phase.iter().map(|phase| &phase.response_time_ns));
    let section = section.text(legend.map(|text| format!("{text}.")).unwrap_or_default());
    let steady: Vec<&PhasePart> =
        load.by_phase.iter().filter(|phase| phase.is_steady && phase.response_time_ns.count > 0).collect();
    // A curve needs at least two rates.
    if steady.len() < 2 { section } else { section.figure(against_rate(steady)) }
}

/// Response times of the phases with a constant rate, by rate.
fn against_rate(mut phases: Vec<&PhasePart>) -> Chart {
    phases.sort_by(|a, b| a.offered_rate_per_s.total_cmp(&b.offered_rate_per_s));
    let line = |value: fn(&PhasePart) -> u64| {
        phases.iter().map(|phase| [phase.offered_rate_per_s, value(phase) as f64]).collect::<Vec<_>>()
    };
    let (median, tail) = (line(|phase| phase.response_time_ns.p50), line(|phase| phase.response_time_ns.p99));
    let axis = Axis::log("response time", Quantity::Nanoseconds);
    Chart::new("Response time by offered rate", Axis::from_zero("offered", Quantity::PerSecond), axis)
        .about("Phases with a constant rate. The curve rises steeply where the server is saturated.")
        .series(Series::line("p50", median).color(0))
        .series(Series::line("p99", tail).color(1))
}

/// Shades every second phase on a time axis; the first phase begins at `from` seconds.
pub(super) fn bands(chart: Chart, load: Option<&Load>, from: f64) -> Chart {
    let phases = load.map(|load| &load.by_phase[..]).unwrap_or_default();
    // The page's script does not escape labels.
    let named = phases.len() <= NAMED_MAX;
    let label = |phase: &PhasePart| if named { plain(&phase.name) } else { String::new() };
    let shaded = phases.iter().skip(1).step_by(2);
    shaded.fold(chart, |chart, phase| chart.band(from + phase.from_s, from + phase.to_s, label(phase)))
}

/// Most phases with labels: more labels would overlap.
const NAMED_MAX: usize = 12;
