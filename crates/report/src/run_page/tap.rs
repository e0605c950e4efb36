//! Section of a run's page about socket calls of programs (`tap`).

use schema::tap_part::{TapPart, TapView};

use super::Sources;
use super::load::distributions;
use super::over_time::response_tail;
use crate::durations;
use crate::figures::{bytes, count, share};
use crate::page::{Section, Table};
use crate::phrases::{TAP_SYMBOLS, by_frequency, span, total};
use crate::plot::{Bars, Quantity};

/// The result of a tap in one sentence.
pub(super) fn answer(part: &TapPart) -> String {
    let Some((name, view)) =
        part.client.as_ref().map(|view| ("as client", view)).or(part.server.as_ref().map(|view| ("as server", view)))
    else {
        return "The programs had no TCP connection.".to_owned();
    };
    let times = &view.response_ns;
    let response_times = match times.count {
        0 => "no response".to_owned(),
        _ => {
            let texts = durations::in_one_unit(&[times.p50 as f64, times.p99 as f64]);
            format!("median {}, p99 {}", texts[0], texts[1])
        }
    };
    let failed = match total(&view.failed) {
        0 => "none failed".to_owned(),
        _ => format!("{} of the attempts failed", share(view.error_ratio.unwrap_or_default())),
    };
    format!(
        "{} exchanges {name} on {} connections; {response_times}; {failed}.",
        count(view.exchanges),
        count(view.connections)
    )
}

/// Programs, indicators, distributions.
pub(super) fn section(part: &TapPart, sources: &Sources) -> Section {
    let mut programs = Table::new(&["program", "processes", "connections", "coverage", "why"]).left(&[3, 4]);
    for program in &part.programs {
        programs = programs.row([
            program.name.clone(),
            count(program.processes),
            count(program.connections),
            program.coverage.clone(),
            program.why.clone(),
        ]);
    }
    let mut section = Section::new("Sockets")
        .text(
            "Times are those of the programs' socket calls. An exchange ends where the direction of data changes back; \
             the content is not read.",
        )
        .table(programs);
    if let Some(lookups) = &part.lookups {
        section = section.table(distributions(&[("DNS lookup", &lookups.lookup_ns)]));
    }
    for (name, view) in [("As clients", &part.client), ("As servers", &part.server)] {
        if let Some(view) = view {
            section = view_of(section, name, view);
        }
    }
    let mut times = response_tail([("as clients", &sources.tap_client), ("as servers", &sources.tap_server)])
        .about("From the first call of the request to the last call of the response, of exchanges that succeeded.");
    times.title = "Response time at the programs' sockets".into();
    section.figure(times)
}

/// Counts, times, sizes and errors of one end.
pub(crate) fn view_of(section: Section, name: &str, view: &TapView) -> Section {
    let mut counts = Table::new(&[name, "number", ""]).left(&[2]);
    let mut row = |name: &str, n: u64, note: String| {
        counts = std::mem::take(&mut counts).row([name.to_owned(), count(n), note]);
    };
    row(
        "connections",
        view.connections,
        format!("{} failed to connect, {} unused", view.connections_failed, view.connections_unused),
    );
    row("exchanges", view.exchanges, format!("{} more cut off by the end of the run", view.exchanges_cut));
    row("attempts", view.attempts, String::new());
    row("failed", total(&view.failed), view.error_ratio.map(share).unwrap_or_default());
    if let Some(there) = &view.availability {
        let note = format!(
            "{} of attempts; {} of windows of {}",
            share(there.attempts),
            share(there.windows),
            span(there.window_s)
        );
        row("windows tried", there.windows_tried, format!("available: {note}"));
    }
    let mut amounts = Table::new(&["", "values", "mean", "p50", "p90", "p99", "max"]);
    for (name, q, per) in [
        ("bytes sent Ds", &view.sent_bytes, ""),
        ("bytes received Dr", &view.received_bytes, ""),
        ("send rate Rs", &view.send_rate_bytes_per_s, "/s"),
        ("receive rate Rr", &view.receive_rate_bytes_per_s, "/s"),
        ("overall rate Ra", &view.overall_rate_bytes_per_s, "/s"),
    ] {
        if q.count > 0 {
            let mut row = vec![name.to_owned(), count(q.count)];
            row.extend([q.mean.round() as u64, q.p50, q.p90, q.p99, q.max].map(|n| format!("{}{per}", bytes(n))));
            amounts = amounts.row(row);
        }
    }
    let errors = Bars::new(format!("{name}: failed, by error"), Quantity::Count, &["attempts"]);
    let errors =
        by_frequency(&view.failed).into_iter().fold(errors, |bars, (name, n)| bars.row(name, &[Some(n as f64)]));
    section
        .table(counts)
        .table(distributions(&[
            ("connection set-up", &view.setup_ns),
            ("send time Ts", &view.send_ns),
            ("wait for response", &view.wait_ns),
            ("receive time Tr", &view.receive_ns),
            ("response time", &view.response_ns),
            ("connection time Tc", &view.connection_duration_ns),
            ("blocked in calls", &view.blocked_ns),
        ]))
        .table(amounts)
        .text(TAP_SYMBOLS)
        .figure(errors)
}
