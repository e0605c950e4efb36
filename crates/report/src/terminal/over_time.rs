//! Small plots of a run: connections in process and response times second by second, and percentiles as bars.

use schema::SecondRecord;
use schema::document::{Document, Load};

use super::bars::bar;
use super::columns::{self, Columns};
use super::page::{Ink, MARGIN, Page, length};
use crate::figures::{duration, level};

/// The plots of a run's seconds; those of the warm-up and after the end are not in them. Of fewer than three there is nothing to
/// see.
pub(super) fn print(page: &mut Page, document: &Document, seconds: &[SecondRecord]) {
    let Some(load) = &document.load else { return };
    percentiles(page, load);
    let measured: Vec<&SecondRecord> = seconds.iter().filter(|row| row.measured).collect();
    let (Some(first), Some(last)) = (measured.first(), measured.last()) else { return };
    if measured.len() < 3 {
        return;
    }
    // A second that is missing is a gap: every second has its place, unless nearly all are missing.
    let length = last.second.saturating_sub(first.second) as usize + 1;
    let mut place: Vec<Option<&SecondRecord>> = vec![None; length.min(GAPS * measured.len())];
    for row in &measured {
        if let Some(place) = place.get_mut(row.second.saturating_sub(first.second) as usize) {
            *place = Some(row);
        }
    }
    let length_ns = place.len() as f64 * 1e9;
    let drawn = |page: &mut Page, label: &str, text: &dyn Fn(f64) -> String, value: &dyn Fn(&SecondRecord) -> f64| {
        let values: Vec<f64> = place.iter().map(|row| row.map_or(f64::NAN, value)).collect();
        columns::print(page, &Columns { label, values: &values, text, length_ns, rows: ROWS, widest: WIDEST });
    };
    drawn(page, "connections in process", &level, &|row| row.connections_mean);
    drawn(page, "response time, 99 % within", &|ns| duration(ns as u64), &|row| {
        if row.completed == 0 { f64::NAN } else { row.response_p99_ns as f64 }
    });
}

/// Percentiles as lengths from 0: how much longer the tail is than the middle.
fn percentiles(page: &mut Page, load: &Load) {
    let q = &load.response_time_ns;
    if q.count == 0 || q.max == 0 {
        return;
    }
    page.blank();
    page.line(&[(&format!("{:MARGIN$}response time, so many within", ""), Ink::Label)]);
    let room = page.width().saturating_sub(MARGIN + NAME + FIGURE + 1).clamp(10, WIDEST);
    for (name, value) in [("50 %", q.p50), ("90 %", q.p90), ("99 %", q.p99), ("99.9 %", q.p99_9), ("all", q.max)] {
        let drawn = bar(value, q.max, room, page.unicode());
        let rest = " ".repeat(room.saturating_sub(length(&drawn)));
        page.line(&[
            (&format!("{:MARGIN$}{name:>width$} ", "", width = NAME - 1), Ink::Label),
            (&drawn, Ink::Bar),
            (&rest, Ink::Plain),
            (&format!(" {:>FIGURE$}", duration(value)), Ink::Plain),
        ]);
    }
}

/// A table with more missing seconds than these times its rows is none of a run.
const GAPS: usize = 10;
/// Lines of a plot.
const ROWS: usize = 4;
/// Wider plots say no more.
const WIDEST: usize = 72;
const NAME: usize = 9;
const FIGURE: usize = 8;
