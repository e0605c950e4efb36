//! The list of runs, and their disk usage.

use schema::Verdict;
use store::{DiskUse, RunEntry, RunState};

use super::Style;
use super::page::{Ink, MARGIN, Page, length, shortened};
use crate::durations::milliseconds;
use crate::figures::{bytes, count, plain, rate, share};

/// The list of runs, one line each, in the order given: verdict, figures and URL of a load; of a run without a load the
/// result from `sentence`. A sentence where there are no runs.
pub fn runs(entries: &[RunEntry], sentence: impl Fn(&RunEntry) -> Option<String>, style: Style) -> String {
    let mut page = Page::new(style);
    if entries.is_empty() {
        page.entry("runs", "none yet; `yamabiko demo` makes the first");
        return page.into_text();
    }
    let lines: Vec<Line> = entries.iter().map(|entry| line(entry, &sentence)).collect();
    let width = |of: &dyn Fn(&Line) -> usize, head: &str| lines.iter().map(of).max().unwrap_or(0).max(length(head));
    let id = width(&|line| length(&line.id), "run");
    let verdict = width(&|line| length(&line.state), "verdict");
    let figures: Vec<usize> = FIGURES
        .iter()
        .enumerate()
        .map(|(at, head)| width(&|line| line.figures.get(at).map_or(0, |figure| length(figure)), head))
        .collect();
    let cells = |figures_of: &dyn Fn(usize) -> String| -> String {
        figures.iter().enumerate().map(|(at, &width)| format!("  {:>width$}", figures_of(at))).collect()
    };
    let front = |name: &str, state: &str| format!("{:MARGIN$}{name:<id$}  {state:<verdict$}", "");
    let head = front("run", "verdict") + &cells(&|at| FIGURES[at].to_owned()) + "  URL or result";
    page.line(&[(head.trim_end(), Ink::Label)]);
    for one in &lines {
        let figures = if one.figures.is_empty() { String::new() } else { cells(&|at| one.figures[at].clone()) };
        let state = format!("  {:<verdict$}", one.state);
        let taken = MARGIN + id + length(&state) + length(&figures) + 2;
        let text = shortened(&one.text, page.width().saturating_sub(taken).max(TEXT_MIN));
        page.line(&[
            (&format!("{:MARGIN$}{:<id$}", "", one.id), Ink::Label),
            (&state, one.ink),
            (&figures, Ink::Plain),
            ("  ", Ink::Plain),
            (&text, Ink::Plain),
        ]);
    }
    page.into_text()
}

/// One run of the list.
struct Line {
    id: String,
    state: String,
    ink: Ink,
    /// One text for each of [`FIGURES`], or none.
    figures: Vec<String>,
    text: String,
}

/// Columns of a run with a load.
const FIGURES: [&str; 5] = ["offered", "achieved", "p50 ms", "p99 ms", "errors"];
/// Minimum width of the URL or result, even if the line becomes longer than the page.
const TEXT_MIN: usize = 24;

fn line(entry: &RunEntry, sentence: impl Fn(&RunEntry) -> Option<String>) -> Line {
    let brief = match &entry.state {
        RunState::Finished(brief) => brief,
        RunState::Running { .. } => return without_figures(entry, "running", Ink::Strong, String::new()),
        RunState::Unfinished { rows, parts } => {
            let text = format!(
                "{} requests readable (in {} closed parts); no summary: killed, or the disk was full",
                count(*rows),
                count(*parts as u64)
            );
            return without_figures(entry, "unfinished", Ink::Doubtful, text);
        }
        RunState::Unreadable { why } => return without_figures(entry, "unreadable", Ink::Bad, why.clone()),
        _ => return without_figures(entry, "unknown", Ink::Doubtful, String::new()),
    };
    let ink = match brief.verdict {
        Verdict::Valid => Ink::Good,
        Verdict::Suspect => Ink::Doubtful,
        Verdict::Invalid => Ink::Bad,
    };
    let Some(load) = &brief.load else {
        let result = sentence(entry).unwrap_or_default();
        let parts = [brief.url.clone(), result].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
        return without_figures(entry, brief.verdict.name(), ink, parts.join(": "));
    };
    let errors = crate::phrases::total(&load.failed).saturating_add(crate::phrases::not_success(&load.status));
    let figures = vec![
        rate(load.offered_rate_per_s),
        rate(load.achieved_rate_per_s),
        milliseconds(load.response_time_ns.p50 as f64),
        milliseconds(load.response_time_ns.p99 as f64),
        if errors == 0 { "0".to_owned() } else { share(errors as f64 / load.offered_requests.max(1) as f64) },
    ];
    Line { figures, ..without_figures(entry, brief.verdict.name(), ink, brief.url.clone()) }
}

fn without_figures(entry: &RunEntry, state: &str, ink: Ink, text: String) -> Line {
    let tags: Vec<String> = entry.tags.iter().map(|tag| format!("[{}]", plain(tag))).collect();
    let text = [tags.join(" "), text].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    Line { id: plain(&entry.id), state: state.to_owned(), ink, figures: Vec::new(), text }
}

/// Disk usage by run, the largest first, and the total by table.
pub fn disk_use(runs: &[(String, DiskUse)], total: &DiskUse, style: Style) -> String {
    let mut page = Page::new(style);
    let row = |name: &str, used: &DiskUse| {
        let mut parts: Vec<(&String, &u64)> = used.parts.iter().collect();
        parts.sort_by_key(|(name, size)| (std::cmp::Reverse(**size), *name));
        let shown = parts.iter().take(TABLES_SHOWN).map(|(name, size)| format!("{name} {}", bytes(**size)));
        let mut shown = shown.collect::<Vec<_>>().join(", ");
        if parts.len() > TABLES_SHOWN {
            shown.push_str(", ..");
        }
        vec![name.to_owned(), bytes(used.bytes), bytes(used.bytes_on_disk), count(used.files), shown]
    };
    let mut rows: Vec<Vec<String>> = runs.iter().map(|(id, used)| row(id, used)).collect();
    if runs.len() != 1 {
        rows.push(row("total", total));
    }
    page.table(&["run", "bytes", "on disk", "files", "largest tables"], &rows);
    page.into_text()
}

/// Tables shown of a run; the JSON has all.
const TABLES_SHOWN: usize = 3;
