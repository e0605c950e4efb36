//! A delay that follows a file over time.

use super::super::page::{Ink, MARGIN, Page};
use super::{AXIS, COLUMNS, ROWS, block, ticks};
use crate::figures::duration;

/// A delay at evenly spaced moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// What it is, such as `RTT over time`.
    pub label: String,
    /// From the first moment to the last, in nanoseconds.
    pub length_ns: u64,
    /// The delays in nanoseconds, the first at the first moment, the last at the last.
    pub delays_ns: Vec<u64>,
}

/// Columns as high as the delay; nothing without a delay.
pub(super) fn print(page: &mut Page, series: &Series) {
    let highest = series.delays_ns.iter().copied().max().unwrap_or(0);
    if highest == 0 {
        return;
    }
    page.blank();
    page.line(&[(&format!("{:MARGIN$}{}", "", series.label), Ink::Label)]);
    let columns = page.width().saturating_sub(MARGIN + LABEL).clamp(2, COLUMNS);
    let last = series.delays_ns.len() - 1;
    let heights = (0..columns).map(|column| series.delays_ns[last * column / (columns - 1)] as f64 / highest as f64);
    let heights: Vec<f64> = heights.collect();
    for row in (0..ROWS).rev() {
        let label = match row + 1 {
            ROWS => duration(highest),
            HALF => duration(highest / 2),
            _ => String::new(),
        };
        let bars: String =
            heights.iter().map(|height| block(height * ROWS as f64 - row as f64, page.unicode())).collect();
        page.line(&[(&format!("{:MARGIN$}{label:>width$} ", "", width = LABEL - 1), Ink::Label), (&bars, Ink::Bar)]);
    }
    let moment = |column: usize| series.length_ns as f64 * column as f64 / (columns - 1) as f64;
    page.line(&[(&format!("{:width$}{}", "", ticks(columns, &moment), width = LABEL), Ink::Label)]);
}

const HALF: usize = ROWS / 2;
/// Width of the labels at the left: wider than those of shares.
const LABEL: usize = AXIS + 3;
