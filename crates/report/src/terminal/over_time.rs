//! Small plots of a run: concurrent connections and response times of each second, and percentiles as bars.

use schema::SecondRecord;
use schema::document::{Document, Load};

use super::bars::bar;
use super::columns::{self, Columns};
use super::page::{Ink, MARGIN, Page, length};
use crate::figures::{duration, level};

/// Plots of the seconds of the measured phase; nothing with fewer than three seconds.
pub(super) fn print(page: &mut Page, document: &Document, seconds: &[SecondRecord]) {
    let Some(load) = &document.load else { return };
    percentiles(page, load);
    let measured: Vec<&SecondRecord> = seconds.iter().filter(|row| row.measured).collect();
    let (Some(first), Some(last)) = (measured.first(), measured.last()) else { return };
    if measured.len() < 3 {
        return;
    }
    // A missing second is drawn as a gap, unless nearly all seconds are missing.
    let length = last.second.saturating_sub(first.second) as usize + 1;
    let mut slots: Vec<Option<&SecondRecord>> = vec![None; length.min(SLOTS_PER_ROW * measured.len())];
    for row in &measured {
        if let Some(slot) = slots.get_mut(row.second.saturating_sub(first.second) as usize) {
            *slot = Some(row);
        }
    }
    let length_ns = slots.len() as f64 * 1e9;
    let drawn = |page: &mut Page, label: &str, text: &dyn Fn(f64) -> String, value: &dyn Fn(&SecondRecord) -> f64| {
        let values: Vec<f64> = slots.iter().map(|row| row.map_or(f64::NAN, value)).collect();
        columns::print(
            page,
            &Columns { label, values: &values, text, length_ns, rows: PLOT_HEIGHT, widest: PLOT_WIDTH_MAX },
        );
    };
    drawn(page, "concurrent connections", &level, &|row| row.connections_mean);
    drawn(page, "response time, p99 of each second", &|ns| duration(ns as u64), &|row| {
        if row.completed == 0 { f64::NAN } else { row.response_p99_ns as f64 }
    });
}

/// Percentiles as bars from 0, which show how much longer the tail is than the median.
fn percentiles(page: &mut Page, load: &Load) {
    let q = &load.response_time_ns;
    if q.count == 0 || q.max == 0 {
        return;
    }
    page.blank();
    page.line(&[(&format!("{:MARGIN$}response time by percentile", ""), Ink::Label)]);
    let available = page.width().saturating_sub(MARGIN + NAME_WIDTH + FIGURE_WIDTH + 1).clamp(10, PLOT_WIDTH_MAX);
    for (name, value) in [("p50", q.p50), ("p90", q.p90), ("p99", q.p99), ("p99.9", q.p99_9), ("max", q.max)] {
        let drawn = bar(value, q.max, available, page.unicode());
        let rest = " ".repeat(available.saturating_sub(length(&drawn)));
        page.line(&[
            (&format!("{:MARGIN$}{name:>width$} ", "", width = NAME_WIDTH - 1), Ink::Label),
            (&drawn, Ink::Bar),
            (&rest, Ink::Plain),
            (&format!(" {:>FIGURE_WIDTH$}", duration(value)), Ink::Plain),
        ]);
    }
}

/// Most seconds drawn, as a multiple of the rows of the table: a table with more gaps is damaged.
const SLOTS_PER_ROW: usize = 10;
/// Height of a plot in lines.
const PLOT_HEIGHT: usize = 4;
/// Greatest width of a plot in columns.
const PLOT_WIDTH_MAX: usize = 72;
const NAME_WIDTH: usize = 9;
const FIGURE_WIDTH: usize = 8;
