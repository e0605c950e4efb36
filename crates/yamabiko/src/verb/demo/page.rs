//! The page of `yamabiko demo`, with its runs side by side.

use std::path::{Path, PathBuf};

use anyhow::Result;
use report::page::{Page, Section, Table};
use report::plot::{Chart, Series};
use report::run_page::{Sources, concurrent_connections, response_tail};
use testbed::Outcome;

use super::{CLIENTS, EXPERIMENTS, NOTES, RATE_PER_S, rows};
use crate::page_file;
use crate::verb::report::sources;

/// Writes the page into the folder of the last run. `None` if no run was stored.
pub(super) fn write(outcomes: &[Outcome]) -> Result<Option<PathBuf>> {
    let mut runs = Vec::new();
    for (experiment, outcome) in EXPERIMENTS.iter().zip(outcomes) {
        if !outcome.document.run.dir.is_empty() {
            runs.push((experiment.label, sources(Path::new(&outcome.document.run.dir))?));
        }
    }
    let Some((_, last)) = runs.last() else { return Ok(None) };
    let path = Path::new(&last.document.run.dir).join("demo.html");
    page_file::write(&path, page(outcomes, &runs).into_html().as_bytes())?;
    Ok(Some(path))
}

fn page(outcomes: &[Outcome], runs: &[(&'static str, Sources)]) -> Page {
    let table = Table::new(&[
        "",
        "configured RTT, median",
        "measured RTT, median",
        "concurrent connections, measured",
        "published, 2001",
        "response time, median",
        "response time, p99",
        "result",
    ]);
    let table = rows(outcomes).into_iter().fold(table, |table, row| table.row(row));
    let named = || runs.iter().map(|(label, sources)| (*label, sources));
    let rtt = Chart::cumulative("Round-trip times", "round-trip time")
        .about("Time from the connect call to the established connection.");
    let rtt = named().fold(rtt, |chart, (label, run)| chart.series(Series::distribution(label, &run.connect)));

    let mut page = Page::new("One server, one rate, three distances").lead(lead(runs)).about(format!(
        "{RATE_PER_S:.0} requests/s for a 10 KB file, one connection each, {CLIENTS} clients; only the distance \
         changes."
    ));
    for (label, run) in named() {
        page = page.judged(label, &run.document.validity);
    }
    let mut meaning = Section::new("What it means");
    for note in NOTES {
        meaning = meaning.text(note);
    }
    let mut each = Section::new("Full reports");
    for (label, run) in named() {
        each = each.verbatim(label, format!("yamabiko report {}", run.document.run.id));
    }
    page.answer(Section::new("Published vs. measured").table(table))
        .section(
            Section::new("Over time and by percentile")
                .figure(concurrent_connections(named()))
                .figure(response_tail(named().map(|(label, run)| (label, &run.response_time))))
                .figure(rtt),
        )
        .section(meaning)
        .section(each)
}

/// The result as a sentence.
fn lead(runs: &[(&'static str, Sources)]) -> String {
    let means: Vec<String> = runs
        .iter()
        .filter_map(|(label, run)| Some(format!("{:.1} ({label})", run.document.load.as_ref()?.connections.mean)))
        .collect();
    let (last, front) = match means.split_last() {
        Some((last, front)) if !front.is_empty() => (last, front.join(", ")),
        Some((last, _)) => return format!("Concurrent connections of the server: {last}."),
        None => return String::new(),
    };
    format!("The same server at the same rate had {front} and {last} concurrent connections.")
}
