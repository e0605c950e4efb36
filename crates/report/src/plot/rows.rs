//! Bars and dots as SVG. The height depends on their number.

use super::Width;
use super::bars::Bars;
use super::chart::{Axis, COLORS};
use super::legend::{self, Entry};
use super::scale::Ruler;
use super::svg::{Anchor, Svg, text_width};

/// Draws them.
pub(super) fn bars(bars: &Bars, width: Width, standalone: bool) -> String {
    match (bars.dots, bars.stacked) {
        (true, _) => dots(bars, width, standalone),
        (false, true) => super::stacked::stacked(bars, width, standalone),
        (false, false) => lengths(bars, width, standalone),
    }
}

fn lengths(bars: &Bars, width: Width, standalone: bool) -> String {
    let (across, _) = width.size();
    let entries = entries(bars);
    let title = if standalone { TITLE } else { 0.0 };
    let names = legend::lines(&entries, across) as f64 * legend::LINE;
    let group = bars.series.len().max(1) as f64 * BAR_HEIGHT + GROUP_GAP;
    let top = title + names + 6.0;
    let height = top + bars.rows.len().max(1) as f64 * group;

    let longest = bars.rows.iter().map(|row| text_width(&row.name)).fold(0.0, f64::max);
    let named = longest.min(across * 0.42 - GAP);
    let left = named + GAP;
    let values = || bars.rows.iter().flat_map(|row| &row.values).flatten().copied().filter(|value| value.is_finite());
    let figures = values().map(|value| text_width(&bars.quantity.text(value))).fold(0.0, f64::max);
    let available = (across - left - figures - 2.0 * GAP).max(20.0);
    let ends = bars.rows.iter().flat_map(|row| &row.intervals).flatten().map(|interval| interval[1]);
    let most = values().chain(ends.filter(|end| end.is_finite())).fold(0.0, f64::max);

    let mut svg = begun(bars, &entries, across, height, title);
    for (at, row) in bars.rows.iter().enumerate() {
        let y = top + at as f64 * group;
        let middle = y + (group - GROUP_GAP) / 2.0 + 4.0;
        svg.text("name", [left - GAP, middle], Anchor::End, &legend::fitting(&row.name, named));
        for place in 0..bars.series.len().max(1) {
            let y = y + place as f64 * BAR_HEIGHT;
            let value = row.values.get(place).copied().flatten().filter(|value| value.is_finite());
            let part = value.filter(|_| most > 0.0).map_or(0.0, |value| (value / most).clamp(0.0, 1.0));
            let length = part * available;
            svg.rect(&format!("f{}", place % COLORS), [left, y + 1.0], [length, BAR_HEIGHT - 2.0], "");
            let interval = row.intervals.get(place).copied().flatten().filter(|_| value.is_some() && most > 0.0);
            let mut end = left + length;
            if let Some([low, high]) = interval {
                let [low, high] = [low, high].map(|at| left + (at / most).clamp(0.0, 1.0) * available);
                let middle = y + BAR_HEIGHT / 2.0;
                svg.line("axis", [low, middle], [high, middle]);
                for at in [low, high] {
                    svg.line("axis", [at, middle - WHISKER], [at, middle + WHISKER]);
                }
                end = end.max(high);
            }
            let text = value.map_or_else(|| "-".to_owned(), |value| bars.quantity.text(value));
            svg.text("tick", [end + GAP, y + BAR_HEIGHT / 2.0 + 4.0], Anchor::Start, &text);
        }
    }
    if bars.rows.is_empty() {
        svg.text("nothing", [across / 2.0, height - 8.0], Anchor::Middle, "no values");
    }
    svg.line("axis", [left, top - 2.0], [left, height - GROUP_GAP + 2.0]);
    svg.into_text()
}

/// One line for each name, a dot for each value, and a thin line from the first dot to the last.
fn dots(bars: &Bars, width: Width, standalone: bool) -> String {
    let (across, _) = width.size();
    let entries = entries(bars);
    let title = if standalone { TITLE } else { 0.0 };
    let top = title + legend::lines(&entries, across) as f64 * legend::LINE + 6.0;
    let bottom = top + bars.rows.len().max(1) as f64 * ROW_HEIGHT;
    let height = bottom + TICK_LABELS;
    let longest = bars.rows.iter().map(|row| text_width(&row.name)).fold(0.0, f64::max);
    let named = longest.clamp(20.0 - GAP, across * 0.42 - GAP);
    let left = named + GAP;
    let right = across - RIGHT;
    let values = bars.rows.iter().flat_map(|row| &row.values).flatten().copied();
    let ruler = Ruler::new(&Axis::log("", bars.quantity), values, left + GAP, right, ((right - left) / 64.0) as usize);

    let mut svg = begun(bars, &entries, across, height, title);
    let mut free = 0.0;
    for (at, label) in &ruler.ticks {
        let Some(place) = ruler.position(*at) else { continue };
        svg.line("grid", [place, top], [place, bottom]);
        let half = text_width(label) / 2.0;
        let middle = place.min(across - half - 1.0);
        if middle - half >= free {
            svg.text("tick", [middle, bottom + 18.0], Anchor::Middle, label);
            free = middle + half + GAP;
        }
    }
    for (at, row) in bars.rows.iter().enumerate() {
        let y = top + (at as f64 + 0.5) * ROW_HEIGHT;
        svg.text("name", [left - GAP, y + 4.0], Anchor::End, &legend::fitting(&row.name, named));
        let places: Vec<Option<f64>> =
            row.values.iter().map(|value| value.and_then(|value| ruler.position(value))).collect();
        let found = || places.iter().flatten().copied();
        if found().next().is_some() {
            svg.line("axis", [found().fold(across, f64::min), y], [found().fold(0.0, f64::max), y]);
        }
        // Drawn from last to first, so that the median is on top of overlapping dots.
        for (place, x) in places.iter().enumerate().rev() {
            let (Some(x), Some(value)) = (x, row.values[place]) else { continue };
            let name = bars.series.get(place).map(String::as_str).unwrap_or_default();
            let hint = format!("{}: {name} {}", row.name, bars.quantity.text(value));
            svg.dot(&format!("f{}", place % COLORS), [*x, y], &hint);
        }
    }
    if bars.rows.is_empty() {
        svg.text("nothing", [across / 2.0, bottom - 8.0], Anchor::Middle, "no values");
    }
    svg.into_text()
}

pub(super) fn entries(bars: &Bars) -> Vec<Entry<'_>> {
    match bars.series.len() {
        0 | 1 => Vec::new(),
        _ => (bars.series.iter().enumerate())
            .map(|(at, name)| Entry { name, class: format!("f{}", at % COLORS), filled: true })
            .collect(),
    }
}

pub(super) fn begun(bars: &Bars, entries: &[Entry<'_>], across: f64, height: f64, title: f64) -> Svg {
    let standalone = title > 0.0;
    let mut svg = Svg::new(across, height, &bars.title, &description(bars), standalone);
    if standalone {
        svg.text("title", [2.0, TITLE - 10.0], Anchor::Start, &legend::fitting(&bars.title, across * 0.75));
    }
    legend::draw(&mut svg, entries, 0.0, title, across);
    svg
}

fn description(bars: &Bars) -> String {
    let rows = bars.rows.iter().map(|row| {
        let values = row.values.iter().zip(bars.series.iter().map(Some).chain(std::iter::repeat(None)));
        let texts: Vec<String> = values
            .filter_map(|(value, name)| value.map(|value| (value, name)))
            .map(|(value, name)| match name {
                Some(name) => format!("{name} {}", bars.quantity.text(value)),
                None => bars.quantity.text(value),
            })
            .collect();
        format!("{}: {}.", row.name, texts.join(", "))
    });
    std::iter::once(bars.about.clone()).filter(|about| !about.is_empty()).chain(rows).collect::<Vec<_>>().join(" ")
}

const TITLE: f64 = 30.0;
const BAR_HEIGHT: f64 = 17.0;
const GROUP_GAP: f64 = 13.0;
/// Half the height of an interval's ends.
const WHISKER: f64 = 4.0;
const GAP: f64 = 8.0;
/// Height of a line of dots.
const ROW_HEIGHT: f64 = 24.0;
/// Height of the tick labels below the dots.
const TICK_LABELS: f64 = 26.0;
const RIGHT: f64 = 16.0;
