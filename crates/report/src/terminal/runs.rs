//! The list of runs.

use store::{RunEntry, RunState};

use super::Style;
use super::page::{Ink, Page};
use crate::figures::{count, duration, rate, share};

/// One line a run, in the order given; a sentence where there are none.
pub fn runs(entries: &[RunEntry], style: Style) -> String {
    let mut page = Page::new(style);
    if entries.is_empty() {
        page.entry("runs", "none yet; `yamabiko demo` makes the first");
        return page.into_text();
    }
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    page.table(&["run", "verdict", "offered", "carried", "p50", "p99", "failed"], &rows);
    for (entry, note) in entries.iter().filter_map(|entry| Some((entry, note(&entry.state)?))) {
        page.blank();
        page.marked(&[], 0, &format!("{} {note}", entry.id), Ink::Plain);
    }
    page.into_text()
}

fn row(entry: &RunEntry) -> Vec<String> {
    let mut row = vec![entry.id.clone()];
    let document = match &entry.state {
        RunState::Finished(document) => document,
        RunState::Running { .. } => return with(row, "running"),
        RunState::Unfinished { .. } => return with(row, "unfinished"),
        _ => return with(row, "unreadable"),
    };
    row.push(document.validity.verdict.name().to_owned());
    if let Some(load) = &document.load {
        let failed = crate::words::total(&load.failed);
        row.extend([
            rate(load.offered_rate_per_s),
            rate(load.carried_rate_per_s),
            duration(load.response_time_ns.p50),
            duration(load.response_time_ns.p99),
            if failed == 0 { "0".to_owned() } else { share(failed as f64 / load.offered_requests.max(1) as f64) },
        ]);
    }
    row
}

fn with(mut row: Vec<String>, word: &str) -> Vec<String> {
    row.push(word.to_owned());
    row
}

/// What a line of the table has no room for.
fn note(state: &RunState) -> Option<String> {
    match state {
        RunState::Unfinished { parts, rows } => Some(format!(
            "was killed or could not write its end: there is no summary. {} requests in {} closed parts are readable \
             (requests/*.parquet); what came after the last part is lost.",
            count(*rows),
            count(*parts as u64)
        )),
        RunState::Unreadable { why } => Some(format!("cannot be read: {why}")),
        _ => None,
    }
}
