//! A path profile, with the distribution of its RTTs.

use super::Style;
use super::load::distributions;
use super::page::{Ink, MARGIN, Page, length};
use crate::figures::duration;

/// What there is to show of a path profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileView {
    /// Its name.
    pub name: String,
    /// Where its figures come from.
    pub about: String,
    /// The RTT of each client in nanoseconds, rising; any number of them.
    pub rtts_ns: Vec<u64>,
    /// What else it says (rates, queues, loss), a line each.
    pub lines: Vec<String>,
}

/// A profile on less than a screen: quantiles and a small plot of the share of clients within each RTT.
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
        return page.into_text();
    }
    distributions(&mut page, "", &[("RTT of clients", &stats::quantiles_of_sorted(&rtts))]);
    page.blank();
    plot(&mut page, &rtts, lowest, highest);
    page.into_text()
}

/// Columns spaced by the logarithm of the RTT, each as high as the share of clients within it.
fn plot(page: &mut Page, rtts: &[u64], lowest: u64, highest: u64) {
    let columns = (page.width() - MARGIN - AXIS).min(COLUMNS);
    // From 1 ns: an RTT of zero has no logarithm.
    let (left, right) = ((lowest.max(1) as f64).ln(), (highest.max(2) as f64).ln());
    let rtt_at = |column: usize| (left + (right - left) * column as f64 / (columns - 1) as f64).exp();
    let shares: Vec<f64> = (0..columns)
        .map(|column| {
            // The last column is the largest RTT itself; its logarithm and back may fall short of it.
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

/// One character of a column that is filled to `height` (0 to 1).
fn block(height: f64, unicode: bool) -> char {
    if !unicode {
        return if height >= 0.5 { '#' } else { ' ' };
    }
    [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(height.clamp(0.0, 1.0) * 8.0).round() as usize]
}

/// The RTTs at evenly spaced columns, each beginning under its column, the last one ending under it.
fn ticks(columns: usize, rtt_at: &impl Fn(usize) -> f64) -> String {
    let mut line = String::new();
    for tick in 0..TICKS {
        let column = (columns - 1) * tick / (TICKS - 1);
        let label = duration(rtt_at(column).round() as u64);
        let start = if tick + 1 == TICKS { columns.saturating_sub(length(&label)) } else { column };
        let gap = start.saturating_sub(length(&line));
        line.push_str(&" ".repeat(gap.max(usize::from(tick > 0))));
        line.push_str(&label);
    }
    format!("{:MARGIN$}{line}", "")
}

const ROWS: usize = 8;
const COLUMNS: usize = 72;
/// Width of the labels at the left.
const AXIS: usize = 6;
const TICKS: usize = 5;
