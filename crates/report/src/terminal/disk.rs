//! The storage under a folder on the terminal.

use schema::{DiskDocument, Quantiles};

use super::{Style, judged, table};
use crate::disk::{self, Made};
use crate::figures;

/// The verdict, the result in a sentence, Bonnie's table, and what caches and databases ask for.
pub fn disk(document: &DiskDocument, style: Style) -> String {
    let bonnies: Vec<Vec<String>> = disk::of_bonnie(document).iter().map(bonnies_line).collect();
    let needs: Vec<Vec<String>> = disk::of_needs(document).iter().map(needs_line).collect();
    let mut text = String::new();
    if !bonnies.is_empty() {
        text += &table(&["as Bonnie does", "KB/s", "a second", "%CPU", "from or to storage"], &bonnies, style);
    }
    if !needs.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &table(&["caches, databases", "a second", "p50", "p99", "p99.9", "max", "%CPU"], &needs, style);
    }
    judged(&document.run, &document.validity, &disk::answer(document), &text, &[disk::COUNTED], style)
}

fn bonnies_line(test: &Made<'_>) -> Vec<String> {
    vec![
        test.label(),
        disk::whole(test.figures.bytes_per_s / 1e3),
        if test.name == "seeks" { disk::whole(test.figures.iops) } else { String::new() },
        disk::percent(test.figures.cpu),
        disk::storage(test.figures),
    ]
}

fn needs_line(test: &Made<'_>) -> Vec<String> {
    let time = |of: fn(&Quantiles) -> u64| {
        test.figures.latency_ns.as_ref().map(|times| figures::duration(of(times))).unwrap_or_default()
    };
    vec![
        test.label(),
        disk::whole(test.figures.iops),
        time(|q| q.p50),
        time(|q| q.p99),
        time(|q| q.p99_9),
        time(|q| q.max),
        disk::percent(test.figures.cpu),
    ]
}
