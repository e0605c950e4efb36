//! A chart as SVG.
//!
//! ```text
//!   title (standalone only)
//!   ── one  ── two                     legend, where there is more than one name
//!   concurrent connections             label of the vertical axis, horizontal for readability
//!   25 ┤ ─────────────────
//!    0 ┼────────────────── 20
//!                 time (s)
//! ```

use super::chart::{Band, Chart, Series, Shape};
use super::legend::{self, Entry};
use super::scale::Ruler;
use super::svg::{Anchor, Svg, text_width};
use super::thin::thin;
use super::{Quantity, Width};

/// Draws the chart.
pub(super) fn chart(chart: &Chart, width: Width, standalone: bool) -> String {
    let (across, plot_height) = width.size();
    let entries = entries(chart);
    let title = if standalone { TITLE } else { 0.0 };
    let names = legend::lines(&entries, across - 2.0 * EDGE) as f64 * legend::LINE;
    let label = chart.y_label();
    let top = title + names + HALF_LINE + if label.is_empty() { 4.0 } else { LABEL };
    let height = title + names + plot_height;
    let bottom = height - BELOW;

    let ys = || chart.series.iter().flat_map(|series| series.points.iter().map(|point| point[1]));
    let xs = chart.series.iter().flat_map(|series| series.points.iter().map(|point| point[0]));
    let y = Ruler::new(&chart.y, ys().chain(chart.rules.iter().map(|rule| rule.at)), bottom, top, 5);
    let widest = y.ticks.iter().map(|(_, label)| text_width(label)).fold(0.0, f64::max);
    let (left, right) = ((widest + GAP).clamp(28.0, across / 2.0), across - RIGHT);
    let tick_count = ((right - left) / TICK_WIDTH) as usize;
    let x = Ruler::new(&chart.x, xs, left, right, tick_count.max(2));

    let mut svg = Svg::new(across, height, &chart.title, &description(chart), standalone);
    if standalone {
        svg.text("title", [EDGE, TITLE - 10.0], Anchor::Start, &legend::fitting(&chart.title, (across - EDGE) * 0.75));
    }
    legend::draw(&mut svg, &entries, EDGE, title, across - 2.0 * EDGE);
    svg.text("label", [EDGE, top - HALF_LINE - 3.0], Anchor::Start, &legend::fitting(label, across - EDGE));
    bands(&mut svg, &chart.bands, &x, top, bottom);
    for (at, label) in &y.ticks {
        let Some(place) = y.position(*at) else { continue };
        svg.line("grid", [left, place], [right, place]);
        svg.text("tick", [left - GAP, place + 4.0], Anchor::End, label);
    }
    x_marks(&mut svg, &x, bottom, across);
    svg.line("axis", [left, bottom], [right, bottom]);
    svg.text("label", [(left + right) / 2.0, height - 5.0], Anchor::Middle, &chart.x.label);
    for (at, series) in chart.series.iter().enumerate() {
        draw(&mut svg, series, chart.color_of(at), &x, &y, bottom);
    }
    // The last series is drawn first, so that the dots of the first are on top.
    for (at, series) in chart.series.iter().enumerate().rev().filter(|(_, series)| series.shape == Shape::Dotted) {
        dots(&mut svg, chart, series, chart.color_of(at), [&x, &y]);
    }
    rules(&mut svg, chart, &y, left, right);
    if chart.is_empty() {
        svg.text("nothing", [(left + right) / 2.0, (top + bottom) / 2.0], Anchor::Middle, "no values");
    }
    svg.into_text()
}

fn entries(chart: &Chart) -> Vec<Entry<'_>> {
    if chart.series.len() < 2 {
        return Vec::new();
    }
    let entry = |(at, series): (usize, &'_ Series)| {
        let (color, filled) = (chart.color_of(at), series.shape == Shape::Area);
        (if filled { format!("f{color}") } else { stroke(color, series.dashed) }, filled)
    };
    let classes = chart.series.iter().enumerate().map(entry);
    let named = chart.series.iter().zip(classes);
    named.map(|(series, (class, filled))| Entry { name: &series.name, class, filled }).collect()
}

fn stroke(color: usize, dashed: bool) -> String {
    if dashed { format!("s s{color} dashed") } else { format!("s s{color}") }
}

/// Text alternative of the plot: description, and the range of each series.
fn description(chart: &Chart) -> String {
    let mut parts = Vec::new();
    if !chart.about.is_empty() {
        parts.push(chart.about.clone());
    }
    for series in &chart.series {
        let ys = series.points.iter().map(|point| point[1]).filter(|y| y.is_finite());
        let (low, high) = ys.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), y| (l.min(y), h.max(y)));
        parts.push(match low <= high {
            true => format!("{}: {} to {}.", series.name, chart.y.quantity.text(low), chart.y.quantity.text(high)),
            false => format!("{}: no values.", series.name),
        });
    }
    parts.join(" ")
}

/// Shaded ranges, labelled if the label fits.
pub(super) fn bands(svg: &mut Svg, bands: &[Band], x: &Ruler, top: f64, bottom: f64) {
    for band in bands {
        let (Some(from), Some(to)) = (x.position(band.from), x.position(band.to)) else { continue };
        if to - from < 0.5 {
            continue;
        }
        svg.rect("band", [from, top], [to - from, bottom - top], "");
        if text_width(&band.label) + 2.0 * GAP <= to - from {
            svg.text("note", [(from + to) / 2.0, (top + bottom) / 2.0], Anchor::Middle, &band.label);
        }
    }
}

/// Draws the ticks of the horizontal axis. Labels that would overlap the previous one are omitted; their ticks remain.
pub(super) fn x_marks(svg: &mut Svg, x: &Ruler, bottom: f64, across: f64) {
    let mut free = 0.0;
    for (at, label) in &x.ticks {
        let Some(place) = x.position(*at) else { continue };
        svg.line("axis", [place, bottom], [place, bottom + 4.0]);
        let half = text_width(label) / 2.0;
        let middle = place.min(across - half - 1.0);
        if middle - half >= free {
            svg.text("tick", [middle, bottom + 18.0], Anchor::Middle, label);
            free = middle + half + GAP;
        }
    }
}

fn rules(svg: &mut Svg, chart: &Chart, y: &Ruler, left: f64, right: f64) {
    // With rules close together, the later label goes below its line.
    let mut above: Option<f64> = None;
    for rule in &chart.rules {
        let Some(place) = y.position(rule.at) else { continue };
        svg.line("rule", [left, place], [right, place]);
        let label_at = match above {
            Some(other) if (other - place).abs() < 16.0 => place + 14.0,
            _ => place - 5.0,
        };
        above = Some(place);
        svg.text("note", [right - 4.0, label_at], Anchor::End, &legend::fitting(&rule.label, right - left - GAP));
    }
}

fn draw(svg: &mut Svg, series: &Series, color: usize, x: &Ruler, y: &Ruler, bottom: f64) {
    let runs: Vec<Vec<[f64; 2]>> = runs(series, x, y).iter().map(|run| thin(run)).collect();
    if series.shape == Shape::Area {
        let floor = y.position(y.from()).unwrap_or(bottom);
        svg.path(&format!("area f{color}"), &runs, Some(floor));
    }
    svg.path(&stroke(color, series.dashed), &runs, None);
}

/// A dot for each point, with a tooltip.
fn dots(svg: &mut Svg, chart: &Chart, series: &Series, color: usize, [x, y]: [&Ruler; 2]) {
    for [across, down] in &series.points {
        let (Some(left), Some(top)) = (x.position(*across), y.position(*down)) else { continue };
        let at = chart.x.quantity.text(*across);
        svg.dot(
            &format!("f{color}"),
            [left, top],
            &format!("{} at {at}: {}", series.name, chart.y.quantity.text(*down)),
        );
    }
}

/// Coordinates of the points, split at gaps.
fn runs(series: &Series, x: &Ruler, y: &Ruler) -> Vec<Vec<[f64; 2]>> {
    let mut runs: Vec<Vec<[f64; 2]>> = vec![Vec::new()];
    for point in &series.points {
        match (x.position(point[0]), y.position(point[1])) {
            (Some(across), Some(down)) => {
                let run = runs.last_mut().expect("there is always a run");
                if matches!(series.shape, Shape::Step | Shape::Area)
                    && let Some(&[_, before]) = run.last()
                {
                    run.push([across, before]);
                }
                run.push([across, down]);
            }
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Whether the script can draw the chart: its horizontal axis is time.
pub(crate) fn over_time(chart: &Chart) -> bool {
    chart.x.quantity == Quantity::Seconds && !chart.is_empty()
}

pub(super) const TITLE: f64 = 30.0;
/// Space between a text and its element.
pub(super) const GAP: f64 = 8.0;
pub(super) const EDGE: f64 = 2.0;
/// Height of the vertical axis' label.
pub(super) const LABEL: f64 = 18.0;
/// Half the height of a label, above the topmost tick.
pub(super) const HALF_LINE: f64 = 8.0;
/// Height of the horizontal axis' tick labels and label.
pub(super) const BELOW: f64 = 46.0;
pub(super) const RIGHT: f64 = 16.0;
/// Minimum distance of ticks on the horizontal axis.
const TICK_WIDTH: f64 = 72.0;
