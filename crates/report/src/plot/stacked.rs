//! Stacked bars: the parts of a whole side by side on one line, a line for each name.

use super::Width;
use super::bars::Bars;
use super::chart::COLORS;
use super::legend;
use super::rows::{begun, entries};
use super::svg::{Anchor, Svg, text_width};

/// Draws them. The name of a line is above it, since names and values would leave little for the bar on a phone.
pub(super) fn stacked(bars: &Bars, width: Width, standalone: bool) -> String {
    let (across, _) = width.size();
    let entries = entries(bars);
    let title = if standalone { TITLE } else { 0.0 };
    let top = title + legend::lines(&entries, across) as f64 * legend::LINE + 6.0;
    let height = top + bars.rows.len().max(1) as f64 * ROW;
    let whole = |values: &[Option<f64>]| parts(values).map(|(_, value)| value).sum::<f64>();
    let longest = bars.rows.iter().map(|row| whole(&row.values)).fold(0.0, f64::max);
    let mut svg: Svg = begun(bars, &entries, across, height, title);
    for (at, row) in bars.rows.iter().enumerate() {
        let y = top + at as f64 * ROW;
        let sum = whole(&row.values);
        let total = bars.quantity.text(sum);
        let named = across - text_width(&total) - GAP;
        svg.text("name", [0.0, y + NAME - 5.0], Anchor::Start, &legend::fitting(&row.name, named));
        svg.text("tick", [across, y + NAME - 5.0], Anchor::End, &total);
        let mut left = 0.0;
        for (place, value) in parts(&row.values).filter(|_| longest > 0.0) {
            let length = (value / longest * across).min(across - left);
            let name = bars.series.get(place).map(String::as_str).unwrap_or_default();
            let hint = format!("{}: {name} {}, {:.0} %", row.name, bars.quantity.text(value), value / sum * 100.0);
            svg.rect(&format!("f{}", place % COLORS), [left, y + NAME], [(length - 1.0).max(0.5), BAR], &hint);
            left += length;
        }
    }
    if bars.rows.is_empty() {
        svg.text("nothing", [across / 2.0, height - 8.0], Anchor::Middle, "no values");
    }
    svg.into_text()
}

/// The parts that can be drawn, with their places.
fn parts(values: &[Option<f64>]) -> impl Iterator<Item = (usize, f64)> {
    let drawn = |value: &f64| value.is_finite() && *value > 0.0;
    values.iter().enumerate().filter_map(move |(place, value)| value.filter(drawn).map(|value| (place, value)))
}

const TITLE: f64 = 30.0;
const NAME: f64 = 20.0;
const BAR: f64 = 20.0;
const ROW: f64 = NAME + BAR + 8.0;
const GAP: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::super::Quantity;
    use super::*;

    #[test]
    fn parts_fill_the_width_in_proportion_and_what_is_no_number_is_left_out() {
        let bars = Bars::stacked("shares", Quantity::Nanoseconds, &["server", "distance", "queue"])
            .row("p50", &[Some(1e6), Some(3e6), None])
            .row("p99", &[Some(f64::NAN), Some(-1.0), Some(8e6)]);
        let svg = stacked(&bars, Width::Half, false);
        // 8 ms are the whole width of 468; a gap of 1 separates the parts.
        for length in [57.5, 174.5, 467.0] {
            assert!(svg.contains(&format!("width=\"{length}\"")), "{length}: {svg}");
        }
        assert!(!svg.contains("NaN"));
        assert!(stacked(&Bars::stacked("none", Quantity::Count, &[]), Width::Narrow, true).contains("no values"));
    }
}
