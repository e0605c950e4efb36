//! Delay over time, from a file.

use super::super::columns::{self, Columns};
use super::super::page::Page;
use super::{COLUMNS, ROWS};
use crate::figures::duration;

/// A delay at equal intervals of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Name, such as `RTT over time`.
    pub label: String,
    /// Time from the first delay to the last, in nanoseconds.
    pub length_ns: u64,
    /// The delays in nanoseconds.
    pub delays_ns: Vec<u64>,
}

/// Draws the delays; nothing if all are zero.
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
