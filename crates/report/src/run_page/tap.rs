//! What programs saw, on a run's page.

use schema::tap_part::{TapPart, TapView};

use super::Sources;
use super::load::distributions;
use super::over_time::response_tail;
use crate::figures::{bytes, count, duration, share};
use crate::page::{Section, Table};
use crate::phrases::{by_frequency, span, total};
use crate::plot::{Bars, Quantity};

/// The answer of a tap in one sentence.
pub(super) fn answer(part: &TapPart) -> String {
    let Some((name, view)) =
        part.client.as_ref().map(|view| ("asked", view)).or(part.server.as_ref().map(|view| ("answered", view)))
    else {
        return "The programs had no TCP connection.".to_owned();
    };
    let times = &view.response_ns;
    let within = match times.count {
        0 => "no answer came".to_owned(),
        _ => format!("half within {}, 99 % within {}", duration(times.p50), duration(times.p99)),
    };
    let failed = match total(&view.failed) {
        0 => "none failed".to_owned(),
        _ => format!("{} of the attempts failed", share(view.error_ratio.unwrap_or_default())),
    };
    format!(
        "{} exchanges {name} on {} connections; {within}; {failed}.",
        count(view.exchanges),
        count(view.connections)
    )
}

/// Programs, indicators, distributions.
pub(super) fn section(part: &TapPart, sources: &Sources) -> Section {
    let mut programs = Table::new(&["program", "processes", "connections", "seen", "why"]).left(&[3, 4]);
    for program in &part.programs {
        programs = programs.row([
            program.name.clone(),
            count(program.processes),
            count(program.connections),
            program.coverage.clone(),
            program.why.clone(),
        ]);
    }
    let mut section = Section::new("Programs' own view")
        .text(
            "Moments are those of the programs' calls to the socket interface. Requests are told apart by changes of \
             direction; what was said is not looked at.",
        )
        .table(programs);
    if let Some(lookups) = &part.lookups {
        section = section.table(distributions(&[("lookup", &lookups.lookup_ns)]));
    }
    for (name, view) in [("As clients", &part.client), ("As servers", &part.server)] {
        if let Some(view) = view {
            section = view_of(section, name, view);
        }
    }
    let mut times = response_tail([("as clients", &sources.tap_client), ("as servers", &sources.tap_server)])
        .about("Request's first moment to answer's last, of exchanges that succeeded.");
    times.title = "Response time as the programs saw it".into();
    section.figure(times)
}

/// Counts, times, amounts and errors of one end.
pub(crate) fn view_of(section: Section, name: &str, view: &TapView) -> Section {
    let mut counts = Table::new(&[name, "number", ""]).left(&[2]);
    let mut row = |name: &str, n: u64, note: String| {
        counts = std::mem::take(&mut counts).row([name.to_owned(), count(n), note]);
    };
    row(
        "connections",
        view.connections,
        format!("{} not made, {} never used", view.connections_failed, view.connections_unused),
    );
    row("exchanges", view.exchanges, format!("{} more cut by an end", view.exchanges_cut));
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
        ("sent Ds", &view.sent_bytes, ""),
        ("received Dr", &view.received_bytes, ""),
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
            ("set-up", &view.setup_ns),
            ("send Ts", &view.send_ns),
            ("wait", &view.wait_ns),
            ("receive Tr", &view.receive_ns),
            ("response", &view.response_ns),
            ("connection Tc", &view.connection_duration_ns),
            ("in calls", &view.blocked_ns),
        ]))
        .table(amounts)
        .figure(errors)
}
