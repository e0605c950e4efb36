//! A delay that follows a file over time.

use super::super::columns::{self, Columns};
use super::super::page::Page;
use super::{COLUMNS, ROWS};
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
    let values: Vec<f64> = series.delays_ns.iter().map(|&delay| delay as f64).collect();
    columns::print(
        page,
        &Columns {
            label: &series.label,
            values: &values,
            text: &|delay| duration(delay as u64),
            length_ns: series.length_ns as f64,
            rows: ROWS,
            widest: COLUMNS,
        },
    );
}
