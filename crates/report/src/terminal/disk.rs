//! The result of `disk` on the terminal.

use schema::DiskDocument;

use super::{Style, judged, table};
use crate::disk::{self, TestResult};
use crate::durations;

/// Verdict and result, Bonnie's table, and the tests of caches and databases.
pub fn disk(document: &DiskDocument, style: Style) -> String {
    let bonnie: Vec<Vec<String>> = disk::bonnie_tests(document).iter().map(bonnie_row).collect();
    let applications: Vec<Vec<String>> = disk::application_tests(document).iter().map(application_row).collect();
    let mut text = String::new();
    if !bonnie.is_empty() {
        text += &table(&["Bonnie tests", "KB/s", "per second", "%CPU", "from or to storage"], &bonnie, style);
    }
    if !applications.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        text +=
            &table(&["caches, databases", "per second", "p50", "p99", "p99.9", "max", "%CPU"], &applications, style);
    }
    judged(&document.run, &document.validity, &disk::answer(document), &text, &[disk::TERMS], style)
}

fn bonnie_row(test: &TestResult<'_>) -> Vec<String> {
    vec![
        test.label(),
        disk::rounded(test.figures.bytes_per_s / 1e3),
        if test.name == "seeks" { disk::rounded(test.figures.iops) } else { String::new() },
        disk::percent(test.figures.cpu),
        disk::storage(test.figures),
    ]
}

fn application_row(test: &TestResult<'_>) -> Vec<String> {
    let times = test.figures.latency_ns.as_ref().map(|q| [q.p50, q.p99, q.p99_9, q.max].map(|ns| ns as f64));
    let times = times.map_or_else(|| vec![String::new(); 4], |times| durations::in_one_unit(&times));
    let front = vec![test.label(), disk::rounded(test.figures.iops)];
    [front, times, vec![disk::percent(test.figures.cpu)]].concat()
}
