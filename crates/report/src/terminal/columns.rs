//! A small plot of block characters, a few lines high.

use super::page::{Ink, MARGIN, Page, length};
use crate::figures::duration;

/// Values at equal intervals of time.
pub(super) struct Columns<'a> {
    /// Title of the plot.
    pub label: &'a str,
    /// The values in order of time; NaN gives an empty column.
    pub values: &'a [f64],
    /// Formats a value for the axis at the left.
    pub text: &'a dyn Fn(f64) -> String,
    /// Time from the first value to the last, in nanoseconds.
    pub length_ns: f64,
    /// Height in lines.
    pub rows: usize,
    /// Greatest width in characters.
    pub widest: usize,
}

/// Draws the plot; nothing without a value above zero. With more values than columns, a column shows its highest value,
/// so that every peak is visible.
pub(super) fn print(page: &mut Page, drawn: &Columns<'_>) {
    let highest = drawn.values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    if highest <= 0.0 {
        return;
    }
    page.blank();
    page.line(&[(&format!("{:MARGIN$}{}", "", drawn.label), Ink::Label)]);
    let columns = page.width().saturating_sub(MARGIN + LABEL).clamp(2, drawn.widest.max(2));
    let heights: Vec<f64> = (0..columns).map(|column| highest_of(drawn.values, column, columns) / highest).collect();
    for row in (0..drawn.rows).rev() {
        let label = match row + 1 {
            top if top == drawn.rows => (drawn.text)(highest),
            half if half * 2 == drawn.rows => (drawn.text)(highest / 2.0),
            _ => String::new(),
        };
        let cells = heights.iter().map(|height| {
            // A value above zero is always visible.
            let least = if row == 0 && *height > 0.0 { 1.0 / 8.0 } else { 0.0 };
            block((height * drawn.rows as f64 - row as f64).max(least), page.unicode())
        });
        let cells: String = cells.collect();
        page.line(&[(&format!("{:MARGIN$}{label:>width$} ", "", width = LABEL - 1), Ink::Label), (&cells, Ink::Bar)]);
    }
    let time = |column: usize| drawn.length_ns * column as f64 / (columns - 1) as f64;
    page.line(&[(&format!("{:width$}{}", "", ticks(columns, &time), width = LABEL), Ink::Label)]);
}

/// The highest of the values in one of `columns` columns; with fewer values than columns, values repeat.
fn highest_of(values: &[f64], column: usize, columns: usize) -> f64 {
    let from = column * values.len() / columns;
    let to = ((column + 1) * values.len()).div_ceil(columns).clamp(from + 1, values.len().max(from + 1));
    let inside = values.get(from..to.min(values.len())).unwrap_or_default().iter().copied();
    inside.filter(|value| value.is_finite()).fold(f64::NAN, f64::max)
}

/// The block character for a cell filled to `height` (0 to 1).
pub(super) fn block(height: f64, unicode: bool) -> char {
    if !unicode {
        return if height >= 0.5 { '#' } else { ' ' };
    }
    [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(height.clamp(0.0, 1.0) * 8.0).round() as usize]
}

/// Axis labels at equal distances: each starts under its column, the last one ends under it.
pub(super) fn ticks(columns: usize, at: &impl Fn(usize) -> f64) -> String {
    let mut line = String::new();
    for tick in 0..TICKS {
        let column = (columns - 1) * tick / (TICKS - 1);
        let label = match at(column).round() as u64 {
            0 => "0 s".to_owned(),
            ns => duration(ns),
        };
        let start = if tick + 1 == TICKS { columns.saturating_sub(length(&label)) } else { column };
        let gap = start.saturating_sub(length(&line));
        line.push_str(&" ".repeat(gap.max(usize::from(tick > 0))));
        line.push_str(&label);
    }
    format!("{:MARGIN$}{line}", "")
}

const TICKS: usize = 5;
/// Width of the labels at the left.
const LABEL: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    #[test]
    fn peak_value_is_visible_in_exactly_one_column() {
        let values: Vec<f64> = (0..1000).map(|at| if at == 777 { 50.0 } else { 1.0 }).collect();
        let columns: Vec<f64> = (0..40).map(|column| highest_of(&values, column, 40)).collect();
        assert_eq!(columns.iter().filter(|&&value| value == 50.0).count(), 1);
        // Few values are spread over all columns.
        let spread: Vec<f64> = (0..6).map(|column| highest_of(&[1.0, 2.0], column, 6)).collect();
        assert_eq!(spread, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert!(highest_of(&[f64::NAN], 0, 3).is_nan());
    }

    #[test]
    fn plot_fits_the_page_width_with_and_without_unicode() {
        for (width, unicode) in [(60, true), (60, false), (120, true)] {
            let mut page = Page::new(Style { color: false, width, unicode });
            let values = [0.0, 0.01, 5.0, f64::NAN, 3.0];
            let text = |value: f64| format!("{value}");
            let drawn = Columns { label: "x", values: &values, text: &text, length_ns: 5e9, rows: 4, widest: 200 };
            print(&mut page, &drawn);
            let text = page.into_text();
            assert!(text.lines().all(|line| length(line) <= usize::from(width)), "{text}");
            assert!(unicode || text.is_ascii(), "{text}");
            assert_eq!(text.lines().count(), 6, "{text}");
        }
        let mut page = Page::new(Style::PLAIN);
        print(
            &mut page,
            &Columns { label: "x", values: &[0.0], text: &|_| String::new(), length_ns: 1.0, rows: 4, widest: 9 },
        );
        assert_eq!(page.into_text(), "");
    }
}
