//! One load by several HTTP versions and loss rates: a table for the terminal, and a page.

use schema::{Check, CheckState, ProtocolRun, ProtocolsDocument, Quantiles, Validity, Verdict};

use crate::figures::{count, duration};
use crate::page::{Page, Section, Table};
use crate::plot::{Bars, Quantity};

/// One row: a loss and a class of distance, with the response times of each version.
struct Row<'a> {
    loss: &'a str,
    distance: String,
    clients: u64,
    /// By version: its response times, and whether its run counts.
    times: Vec<Option<(Quantiles, bool)>>,
}

/// The table: names of the columns, cells.
pub struct ProtocolTable {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Cells; the first two are text.
    pub rows: Vec<Vec<String>>,
    /// Sentences below it: why runs do not count.
    pub notes: Vec<String>,
}

/// The HTTP versions, in the order of the runs.
fn versions(document: &ProtocolsDocument) -> Vec<&str> {
    let mut versions: Vec<&str> = Vec::new();
    for run in &document.runs {
        if !versions.contains(&run.http.as_str()) {
            versions.push(&run.http);
        }
    }
    versions
}

fn rows<'a>(document: &'a ProtocolsDocument, versions: &[&str]) -> Vec<Row<'a>> {
    let mut losses: Vec<&str> = Vec::new();
    for run in &document.runs {
        let loss = run.loss.as_deref().unwrap_or_default();
        if !losses.contains(&loss) {
            losses.push(loss);
        }
    }
    let mut rows = Vec::new();
    for loss in losses {
        let runs: Vec<Option<&ProtocolRun>> = versions
            .iter()
            .map(|version| {
                document.runs.iter().find(|run| run.http == *version && run.loss.as_deref().unwrap_or_default() == loss)
            })
            .collect();
        let counts = |run: &ProtocolRun| run.validity.verdict != Verdict::Invalid;
        let all = |run: &Option<&ProtocolRun>| run.and_then(|run| Some((run.response_time_ns?, counts(run))));
        // Every run has the same clients, so the same classes of distance.
        let bands = runs.iter().flatten().map(|run| &run.by_distance).max_by_key(|bands| bands.len());
        for band in bands.into_iter().flatten() {
            let of_band = |run: &Option<&ProtocolRun>| {
                let run = (*run)?;
                let own = run.by_distance.iter().find(|other| other.rtt_ns_from == band.rtt_ns_from)?;
                (own.response_time_ns.count > 0).then_some((own.response_time_ns, counts(run)))
            };
            rows.push(Row {
                loss,
                distance: format!("{} to {}", duration(band.rtt_ns_from), duration(band.rtt_ns_to)),
                clients: band.clients,
                times: runs.iter().map(of_band).collect(),
            });
        }
        if bands.is_none_or(|bands| bands.len() != 1) {
            let clients = bands.into_iter().flatten().map(|band| band.clients).sum();
            rows.push(Row { loss, distance: "all".into(), clients, times: runs.iter().map(all).collect() });
        }
    }
    rows
}

/// The table of a document. The change of the median is that against the first version.
pub fn table(document: &ProtocolsDocument) -> ProtocolTable {
    let versions = versions(document);
    let mut head: Vec<String> = ["loss", "distance (RTT)", "clients"].map(str::to_owned).to_vec();
    for (place, version) in versions.iter().enumerate() {
        head.extend([format!("HTTP/{version} p50"), "p95".to_owned()]);
        if place > 0 {
            head.push("change of p50".to_owned());
        }
    }
    let cells = |row: &Row<'_>| {
        let clients = if row.clients == 0 { "-".to_owned() } else { count(row.clients) };
        let loss = if row.loss.is_empty() { "-" } else { row.loss };
        let mut cells = vec![loss.to_owned(), row.distance.clone(), clients];
        let first = row.times.first().copied().flatten();
        for (place, times) in row.times.iter().enumerate() {
            let text = |value: u64, counts: bool| format!("{}{}", duration(value), if counts { "" } else { " *" });
            match times {
                Some((times, counts)) => cells.extend([text(times.p50, *counts), text(times.p95, *counts)]),
                None => cells.extend(["-".to_owned(), "-".to_owned()]),
            }
            if place > 0 {
                cells.push(change(first, *times));
            }
        }
        cells
    };
    let rows = rows(document, &versions).iter().map(cells).collect();
    let mut notes = Vec::new();
    for run in &document.runs {
        let name = name(run);
        let mark = match run.validity.verdict {
            Verdict::Valid => continue,
            Verdict::Suspect => String::new(),
            Verdict::Invalid => "* ".to_owned(),
        };
        let failed = run.validity.checks.iter().filter(|check| check.state == CheckState::Failed);
        let why: Vec<&str> = failed.map(|check| check.name.as_str()).collect();
        notes.push(format!("{mark}{name} is {}: {}", run.validity.verdict.name(), why.join(", ")));
        if run.failed > 0 {
            notes.push(format!(
                "{name}: {} of {} requests failed",
                count(run.failed),
                count(run.failed + run.completed)
            ));
        }
    }
    let versions_of_tcp = document.runs.iter().filter(|run| run.http != "3");
    if let Some(tcp) = versions_of_tcp.filter_map(|run| run.server_tcp.as_ref()).next()
        && versions.contains(&"3")
    {
        let alike = if tcp.contains("congestion control cubic") {
            ""
        } else {
            ": `--server-tcp cc=cubic` makes them alike for servers whose QUIC uses CUBIC"
        };
        notes.push(format!("Over TCP the server sent with {tcp}, over QUIC with its own congestion control{alike}."));
    }
    notes.push("One run each; `yamabiko compare RUN RUN` tells whether a difference is more than chance.".to_owned());
    ProtocolTable { head, rows, notes }
}

/// The change of the median; only between runs that count.
fn change(first: Option<(Quantiles, bool)>, other: Option<(Quantiles, bool)>) -> String {
    match (first, other) {
        (Some((first, true)), Some((other, true))) if first.p50 > 0 => {
            format!("{:+.1} %", (other.p50 as f64 / first.p50 as f64 - 1.0) * 100.0)
        }
        _ => "-".to_owned(),
    }
}

fn name(run: &ProtocolRun) -> String {
    match &run.loss {
        Some(loss) => format!("HTTP/{} at a loss of {loss}", run.http),
        None => format!("HTTP/{}", run.http),
    }
}

/// The checks of all runs as of one, so that the figures are not behind a screen of verdicts; each is named by its run.
fn validity(document: &ProtocolsDocument) -> Validity {
    let of_run = |run: &ProtocolRun| {
        let name = name(run);
        let named = |check: &Check| Check { name: format!("{name}: {}", check.name), ..check.clone() };
        run.validity.checks.iter().map(named).collect::<Vec<_>>()
    };
    Validity::from_checks(document.runs.iter().flat_map(of_run).collect())
}

/// The page of a document.
pub fn page(document: &ProtocolsDocument) -> Page {
    let versions = versions(document);
    let series: Vec<String> = versions.iter().map(|version| format!("HTTP/{version}")).collect();
    let series: Vec<&str> = series.iter().map(String::as_str).collect();
    let ProtocolTable { head, rows: cells, notes } = table(document);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let all = cells.into_iter().fold(Table::new(&head).left(&[0, 1]), Table::row);
    let bars = |title: &str, of: fn(&Quantiles) -> u64| {
        rows(document, &versions).iter().fold(Bars::new(title, Quantity::Nanoseconds, &series), |bars, row| {
            let values: Vec<Option<f64>> = row
                .times
                .iter()
                .map(|times| times.filter(|(_, counts)| *counts).map(|(times, _)| of(&times) as f64))
                .collect();
            let loss = if row.loss.is_empty() { String::new() } else { format!(", loss {}", row.loss) };
            bars.row(format!("{}{loss}", row.distance), &values)
        })
    };
    let section = Section::new("Response time by protocol, distance and loss")
        .table(all)
        .figure(bars("Median response time", |times| times.p50))
        .figure(bars("95th percentile of the response time", |times| times.p95));
    let section = notes.iter().fold(section, Section::text);
    let runs: Vec<&str> = document.runs.iter().map(|run| run.run.as_str()).filter(|run| !run.is_empty()).collect();
    Page::new("HTTP versions compared")
        .subject("", document.command.clone())
        .judged("", &validity(document))
        .section(section)
        .foot(format!("Stored runs: {}", runs.join(", ")))
}

#[cfg(test)]
mod tests {
    use schema::PROTOCOLS_SCHEMA;
    use schema::document::DistanceBand;

    use super::*;

    fn run(http: &str, loss: &str, p50: u64, verdict: Verdict) -> ProtocolRun {
        let times = Quantiles { count: 10, p50, p95: 2 * p50, ..Quantiles::default() };
        let band = |from, p50| DistanceBand {
            rtt_ns_from: from,
            rtt_ns_to: from + 50_000_000,
            clients: 5,
            completed: 5,
            failed: 0,
            response_time_ns: Quantiles { p50, ..times },
        };
        ProtocolRun {
            http: http.into(),
            loss: Some(loss.into()),
            run: format!("r{http}"),
            validity: Validity { verdict, checks: Vec::new() },
            completed: 10,
            failed: 0,
            response_time_ns: Some(times),
            server_tcp: (http != "3").then(|| "congestion control bbr".to_owned()),
            by_distance: vec![band(0, p50 / 2), band(50_000_000, p50)],
        }
    }

    fn document() -> ProtocolsDocument {
        let runs = vec![
            run("1.1", "0%", 100_000_000, Verdict::Valid),
            run("3", "0%", 60_000_000, Verdict::Valid),
            run("1.1", "2%", 200_000_000, Verdict::Valid),
            run("3", "2%", 90_000_000, Verdict::Invalid),
        ];
        ProtocolsDocument { schema: PROTOCOLS_SCHEMA.into(), command: "yamabiko bench ..".into(), runs }
    }

    #[test]
    fn a_row_is_a_loss_and_a_distance_with_each_version() {
        let table = table(&document());
        assert_eq!(
            table.head,
            ["loss", "distance (RTT)", "clients", "HTTP/1.1 p50", "p95", "HTTP/3 p50", "p95", "change of p50"]
        );
        assert_eq!(table.rows.len(), 6);
        assert_eq!(table.rows[2], ["0%", "all", "10", "100 ms", "200 ms", "60.0 ms", "120 ms", "-40.0 %"]);
        // An invalid run is marked, and no change is computed from it.
        assert_eq!(table.rows[5], ["2%", "all", "10", "200 ms", "400 ms", "90.0 ms *", "180 ms *", "-"]);
        assert!(table.notes[0].starts_with("* HTTP/3 at a loss of 2% is invalid"), "{:?}", table.notes);
        // A comparison of congestion controls must not pass for one of protocols.
        assert!(table.notes[1].contains("congestion control bbr"), "{:?}", table.notes);
    }

    #[test]
    fn the_page_has_the_table_and_no_bars_of_invalid_runs() {
        let text = page(&document()).to_markdown();
        assert!(text.contains("HTTP/1.1 p50") && text.contains("-40.0 %"), "{text}");
        assert!(page(&document()).into_html().contains("Median response time"));
    }
}
