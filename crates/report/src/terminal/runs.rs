//! The list of runs, and what they take of the disk.

use store::{DiskUse, RunEntry, RunState};

use super::Style;
use super::page::{Ink, Page};
use crate::figures::{bytes, count, duration, rate, share};

/// A line of figures a run, in the order given, and under it its URL; where it had no load of its own, what it found, by `sentence`. A
/// sentence where there are no runs.
pub fn runs(entries: &[RunEntry], sentence: impl Fn(&RunEntry) -> Option<String>, style: Style) -> String {
    let mut page = Page::new(style);
    if entries.is_empty() {
        page.entry("runs", "none yet; `yamabiko demo` makes the first");
        return page.into_text();
    }
    let mut head = vec!["run", "verdict", "offered", "carried", "p50", "p99", "failed"];
    let mut rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    if entries.iter().any(|entry| !entry.tags.is_empty()) {
        for (row, entry) in rows.iter_mut().zip(entries) {
            row.resize(head.len(), String::new());
            row.push(entry.tags.join(" "));
        }
        head.push("tags");
    }
    let under: Vec<String> = entries.iter().map(|entry| under(entry, &sentence)).collect();
    page.table_with(&head, &rows, &under);
    for (entry, note) in entries.iter().filter_map(|entry| Some((entry, note(&entry.state)?))) {
        page.blank();
        page.marked(&[], 0, &format!("{} {note}", entry.id), Ink::Plain);
    }
    page.into_text()
}

/// What runs take, the largest first, and all together by table.
pub fn disk_use(runs: &[(String, DiskUse)], total: &DiskUse, style: Style) -> String {
    let mut page = Page::new(style);
    let row = |name: &str, used: &DiskUse| {
        let mut parts: Vec<(&String, &u64)> = used.parts.iter().collect();
        parts.sort_by_key(|(name, size)| (std::cmp::Reverse(**size), *name));
        let shown = parts.iter().take(PARTS_SHOWN).map(|(name, size)| format!("{name} {}", bytes(**size)));
        let mut shown = shown.collect::<Vec<_>>().join(", ");
        if parts.len() > PARTS_SHOWN {
            shown.push_str(", ..");
        }
        vec![name.to_owned(), bytes(used.bytes), bytes(used.bytes_on_disk), count(used.files), shown]
    };
    let mut rows: Vec<Vec<String>> = runs.iter().map(|(id, used)| row(id, used)).collect();
    if runs.len() != 1 {
        rows.push(row("all", total));
    }
    page.table(&["run", "bytes", "on disk", "files", "most of it"], &rows);
    page.into_text()
}

/// The rest is in the JSON.
const PARTS_SHOWN: usize = 3;

fn row(entry: &RunEntry) -> Vec<String> {
    let mut row = vec![entry.id.clone()];
    let brief = match &entry.state {
        RunState::Finished(brief) => brief,
        RunState::Running { .. } => return with(row, "running"),
        RunState::Unfinished { .. } => return with(row, "unfinished"),
        _ => return with(row, "unreadable"),
    };
    row.push(brief.verdict.name().to_owned());
    if let Some(load) = &brief.load {
        let failed = crate::phrases::total(&load.failed).saturating_add(crate::phrases::not_success(&load.status));
        row.extend([
            rate(load.offered_rate_per_s),
            rate(load.achieved_rate_per_s),
            duration(load.response_time_ns.p50),
            duration(load.response_time_ns.p99),
            if failed == 0 { "0".to_owned() } else { share(failed as f64 / load.offered_requests.max(1) as f64) },
        ]);
    }
    row
}

/// What the columns do not say of a finished run.
fn under(entry: &RunEntry, sentence: impl Fn(&RunEntry) -> Option<String>) -> String {
    let RunState::Finished(brief) = &entry.state else { return String::new() };
    let found = if brief.load.is_none() { sentence(entry) } else { None };
    let parts = [Some(brief.url.clone()).filter(|url| !url.is_empty()), found];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
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
