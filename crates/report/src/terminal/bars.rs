//! A histogram as rows of bars with logarithmic buckets.

use stats::Histogram;

use super::page::{Ink, MARGIN, Page, length};
use crate::figures::{count, round_duration, share};

/// Prints the bars of `values` in nanoseconds; nothing for an empty histogram.
pub(super) fn print(page: &mut Page, values: &Histogram) {
    if values.is_empty() {
        return;
    }
    let (lowest, highest) = (values.value_at(0.0), values.max());
    let edges = edges(lowest, highest);
    let marks = [("p50", values.value_at(0.5)), ("p99", values.value_at(0.99)), ("p99.9", values.value_at(0.999))];
    let rows: Vec<(String, u64, String)> = edges
        .windows(2)
        .map(|pair| {
            let [from, to] = [pair[0], pair[1]];
            let inside = |value: u64| (from..to).contains(&value);
            let names: Vec<&str> = marks.iter().filter(|(_, value)| inside(*value)).map(|(name, _)| *name).collect();
            (
                format!("{} to {}", round_duration(from), round_duration(to)),
                values.count_between(from, to),
                names.join(" "),
            )
        })
        .collect();
    let largest = rows.iter().map(|(_, count, _)| *count).max().unwrap_or(1).max(1);
    let name_width = rows.iter().map(|(name, ..)| length(name)).max().unwrap_or(0).max(22);
    let available = page.width().saturating_sub(MARGIN + name_width + 34).max(10);
    page.line(&[(&format!("{:MARGIN$}response time", ""), Ink::Label)]);
    for (name, number, marks) in rows {
        let bar = bar(number, largest, available, page.unicode());
        let figures = format!(" {:>11} {:>8}  ", count(number), share(number as f64 / values.len() as f64));
        page.line(&[
            (&format!("{:MARGIN$}{name:<name_width$} ", ""), Ink::Label),
            (&bar, Ink::Bar),
            (&" ".repeat(available.saturating_sub(length(&bar))), Ink::Plain),
            (&figures, Ink::Plain),
            (&marks, Ink::Strong),
        ]);
    }
}

/// A bar of at most `available` characters; at least one character for a value above zero.
pub(super) fn bar(value: u64, largest: u64, available: usize, unicode: bool) -> String {
    if value == 0 {
        return String::new();
    }
    let length = value as f64 / largest as f64 * available as f64;
    if !unicode {
        return "#".repeat((length.round() as usize).clamp(1, available));
    }
    let eighths = ((length * 8.0).round() as usize).clamp(1, available * 8);
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]);
    bar
}

/// Rising bucket edges, from at or below `lowest` to above `highest`: the finest series of round numbers with at most
/// [`ROWS_MAX`] rows.
fn edges(lowest: u64, highest: u64) -> Vec<u64> {
    SERIES
        .iter()
        .rev()
        .map(|series| edges_of(series, lowest, highest))
        .find(|edges| edges.len() <= ROWS_MAX + 1)
        .unwrap_or_else(|| edges_of(SERIES[0], lowest, highest))
}

fn edges_of(series: &[u64], lowest: u64, highest: u64) -> Vec<u64> {
    // The first decade begins at 10 ns, so that every edge is a whole number; all below is one row.
    let mut round: Vec<u64> = vec![0];
    let mut decade = 1u64;
    while decade <= 10_000_000_000_000 {
        round.extend(series.iter().map(|step| decade.saturating_mul(*step)));
        decade *= 10;
    }
    let first = round.iter().rposition(|&edge| edge <= lowest).unwrap_or(0);
    let last = round.iter().position(|&edge| edge > highest).unwrap_or(round.len() - 1);
    round[first..=last.max(first + 1).min(round.len() - 1)].to_vec()
}

/// The number of decades from 0 to an hour, so that the coarsest series always fits.
const ROWS_MAX: usize = 13;

/// Edges within the decade from 10 to 100, coarse to fine, about evenly spaced in the logarithm.
const SERIES: [&[u64]; 5] =
    [&[10], &[10, 30], &[10, 20, 50], &[10, 15, 20, 30, 50, 70], &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82]];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_edges_enclose_all_values_and_need_few_rows() {
        let nanos = [0, 1, 9, 10, 11, 999, 1_000, 47_000, 1_500_000, 48_000_000, 1_000_000_000, Histogram::HIGHEST];
        for (at, &lowest) in nanos.iter().enumerate() {
            for &highest in &nanos[at..] {
                let edges = edges(lowest, highest);
                assert!(edges[0] <= lowest && *edges.last().unwrap() > highest, "{lowest} {highest} {edges:?}");
                assert!((2..=ROWS_MAX + 1).contains(&edges.len()), "{lowest} {highest} {edges:?}");
                assert!(edges.is_sorted_by(|a, b| a < b), "{edges:?}");
            }
        }
    }

    #[test]
    fn largest_bar_fills_the_width_and_smallest_stays_visible() {
        assert_eq!(bar(10, 10, 4, true), "████");
        assert_eq!(bar(1, 1_000_000, 4, true), "▏");
        assert_eq!(bar(5, 10, 3, true), "█▌");
        assert_eq!((bar(1, 1_000_000, 4, false), bar(0, 9, 4, true)), ("#".to_owned(), String::new()));
    }
}
