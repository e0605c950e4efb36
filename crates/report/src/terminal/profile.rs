//! The result of `profile show` and `list`: RTTs, rates and losses of a path profile, its delay over time.

mod check;
mod over_time;
mod spread;

use super::Style;
use super::columns::{block, ticks};
use super::load::distributions;
use super::page::{Ink, MARGIN, Page, length};
use crate::durations;
use crate::figures::{bit_rate, duration, share};

pub use check::{CheckRow, CheckView, check};
pub use over_time::Series;
pub use spread::{Spread, SpreadUnit};

/// The data of a path profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileView {
    /// Name of the profile.
    pub name: String,
    /// Source of its figures.
    pub about: String,
    /// The RTT of each client in nanoseconds, rising; any number of them.
    pub rtts_ns: Vec<u64>,
    /// Further settings (rates, queues, loss), a line each.
    pub lines: Vec<String>,
    /// Rates and losses of the clients.
    pub spreads: Vec<Spread>,
    /// Delays over time, from a file.
    pub series: Vec<Series>,
}

/// One line of the list of profiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileEntry {
    /// Name of the profile.
    pub name: String,
    /// RTT in nanoseconds: p10, p50 and p90 of the clients.
    pub rtt_ns: [u64; 3],
    /// Median rate to the clients; `None`: no limit.
    pub down_bits_per_s: Option<f64>,
    /// Median rate from the clients; `None`: no limit.
    pub up_bits_per_s: Option<f64>,
    /// Mean packet loss to the clients.
    pub loss: f64,
    /// Source of its figures.
    pub about: String,
}

/// The list of profiles: a table, and a sentence about each.
pub fn profiles(entries: &[ProfileEntry], style: Style) -> String {
    let mut page = Page::new(style);
    let rate = |rate: Option<f64>| rate.map_or("no limit".to_owned(), bit_rate);
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let mut row = vec![entry.name.clone()];
            row.extend(durations::in_one_unit(&entry.rtt_ns.map(|ns| ns as f64)));
            row.extend([rate(entry.down_bits_per_s), rate(entry.up_bits_per_s), share(entry.loss)]);
            row
        })
        .collect();
    page.table(&["name", "RTT p10", "p50", "p90", "down p50", "up p50", "loss down"], &rows);
    page.blank();
    let width = entries.iter().map(|entry| length(&entry.name)).max().unwrap_or(0) + 2;
    for entry in entries {
        page.marked(&[(&format!("{:<width$}", entry.name), Ink::Label)], width, &entry.about, Ink::Plain);
    }
    page.into_text()
}

/// A profile: quantiles and a cumulative plot of the RTTs, then rates and losses by client, and delays over time.
pub fn profile(view: &ProfileView, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&[(&" ".repeat(MARGIN), Ink::Plain), (&view.name, Ink::Strong)]);
    if !view.about.is_empty() {
        page.entry("about", &view.about);
    }
    for line in &view.lines {
        page.entry("", line);
    }
    let mut rtts = view.rtts_ns.clone();
    rtts.sort_unstable();
    let (Some(&lowest), Some(&highest)) = (rtts.first(), rtts.last()) else { return page.into_text() };
    page.blank();
    if lowest == highest {
        page.entry("RTT", &format!("{} for every client", duration(lowest)));
    } else {
        distributions(&mut page, "", &[("RTT of clients", &stats::quantiles_of_sorted(&rtts))]);
        page.blank();
        plot(&mut page, &rtts, lowest, highest);
    }
    for spread in &view.spreads {
        spread::print(&mut page, spread);
    }
    for series in &view.series {
        over_time::print(&mut page, series);
    }
    page.into_text()
}

/// Cumulative distribution of the RTTs on a logarithmic axis.
fn plot(page: &mut Page, rtts: &[u64], lowest: u64, highest: u64) {
    let columns = (page.width() - MARGIN - AXIS).min(COLUMNS);
    // From 1 ns: an RTT of zero has no logarithm.
    let (left, right) = ((lowest.max(1) as f64).ln(), (highest.max(2) as f64).ln());
    let rtt_at = |column: usize| (left + (right - left) * column as f64 / (columns - 1) as f64).exp();
    let shares: Vec<f64> = (0..columns)
        .map(|column| {
            // The last column includes the largest RTT in spite of rounding.
            let edge = if column + 1 == columns { f64::INFINITY } else { rtt_at(column) };
            rtts.partition_point(|&rtt| rtt as f64 <= edge) as f64 / rtts.len() as f64
        })
        .collect();
    for row in (0..ROWS).rev() {
        let label = match row {
            _ if row + 1 == ROWS => "100 %",
            _ if row + 1 == ROWS / 2 => "50 %",
            _ => "",
        };
        let bars: String = shares.iter().map(|share| block(share * ROWS as f64 - row as f64, page.unicode())).collect();
        page.line(&[(&format!("{:MARGIN$}{label:>5} ", ""), Ink::Label), (&bars, Ink::Bar)]);
    }
    page.line(&[(&format!("{:AXIS$}{}", "", ticks(columns, &rtt_at)), Ink::Label)]);
}

const ROWS: usize = 8;
const COLUMNS: usize = 72;
/// Width of the labels at the left.
const AXIS: usize = 6;
