//! Sections of a run's page about the load.

use schema::Quantiles;
use schema::document::{DistanceBand, Level, Load, Run};
use stats::Histogram;

use super::Sources;
use super::over_time::response_tail;
use crate::figures::{bit_rate, bytes, count, duration, level, rate, round_duration, share};
use crate::page::{Section, Table};
use crate::phrases::{self, by_frequency, irregular, not_success, quic_line, recordings, span, tls_line, total};
use crate::plot::{Bars, Chart, Quantity};

/// Offered, achieved and failed requests; gauges.
pub(super) fn figures(load: &Load, run: &Run) -> Section {
    let seconds = run.duration_s;
    let received = if seconds > 0.0 { bit_rate(load.bytes_received as f64 * 8.0 / seconds) } else { String::new() };
    let failed = total(&load.failed);
    let part = |n: u64| share(n as f64 / load.offered_requests.max(1) as f64);
    let mut table = Table::new(&["", "requests", "per second", ""]).left(&[3]);
    let kind = if load.loop_kind.is_empty() { String::new() } else { format!("{} loop, ", load.loop_kind) };
    let row = |name: &str, requests: u64, rate: String, note: String| [name.to_owned(), count(requests), rate, note];
    table = table
        .row(row("offered", load.offered_requests, rate(load.offered_rate_per_s), format!("{kind}{}", span(seconds))))
        .row(row(
            "achieved",
            load.completed,
            rate(load.achieved_rate_per_s),
            format!("{} received ({received}), {} sent", bytes(load.bytes_received), bytes(load.bytes_sent)),
        ))
        .row(row("failed", failed, String::new(), if failed > 0 { part(failed) } else { String::new() }));
    let other = not_success(&load.status);
    if other > 0 {
        let note = format!(
            "{}: {}",
            part(other),
            by_frequency(&load.status)
                .iter()
                .map(|(status, n)| format!("{status} x {n}"))
                .collect::<Vec<_>>()
                .join(", ")
        );
        table = table.row(row("status not 2xx", other, String::new(), note));
    }
    if load.in_flight_at_end > 0 {
        table = table.row(row(
            "unfinished",
            load.in_flight_at_end,
            String::new(),
            "neither completed nor failed at the end".into(),
        ));
    }
    let gauges =
        |name: &str, l: &Level, note: String| [name.to_owned(), level(l.mean), count(l.p50), count(l.max), note];
    let mut gauge_table = Table::new(&["", "mean", "median", "max", ""])
        .left(&[4])
        .row(gauges("requests in flight", &load.in_flight, String::new()))
        .row(gauges("concurrent connections", &load.connections, format!("{} opened", count(load.connections_opened))));
    if load.backlog.max > 0 {
        gauge_table = gauge_table.row(gauges("backlog", &load.backlog, "scheduled, not started".into()));
    }
    let tls = load.tls.as_ref().map(tls_line).unwrap_or_default();
    let tls = if tls.is_empty() { tls } else { format!("TLS: {tls}.") };
    let failure = load.tls.as_ref().and_then(|tls| tls.first_failure.as_deref());
    let failure = failure.map(|why| format!("First TLS failure: {why}.")).unwrap_or_default();
    let quic = load.quic.as_ref().map(|quic| format!("QUIC: {}.", quic_line(quic))).unwrap_or_default();
    let of_quic = load.quic.as_ref().and_then(|quic| quic.first_failure.as_deref());
    let of_quic = of_quic.map(|why| format!("First QUIC failure: {why}.")).unwrap_or_default();
    let section = Section::new("Load").table(table).table(gauge_table);
    let section = section.text(tls).text(failure).text(quic).text(of_quic);
    let lines = irregular(load).into_iter().chain(recordings(load));
    lines.fold(section, |section, (name, line)| section.text(format!("{name}: {line}.")))
}

/// The table of times, and their distributions.
pub(super) fn times(load: &Load, sources: &Sources) -> Section {
    let tls = load.tls_handshake_ns.unwrap_or_default();
    let times = [
        ("response time", &load.response_time_ns),
        ("service time", &load.service_time_ns),
        ("connect", &load.connect_ns),
        ("TLS handshake", &tls),
        ("first byte", &load.first_byte_ns),
        ("send lag", &load.send_lag_ns),
        ("connection duration", &load.connection_duration_ns),
    ];
    let tail = response_tail([("response time", &sources.response_time), ("service time", &sources.service_time)]);
    Section::new("Times")
        .text(
            "Response time counts from the scheduled time of the request, service time from its actual start. The send \
             lag between them is caused by the load generator.",
        )
        .table(times_table(load, &times))
        .text(phrases::too_few_values(times.iter().map(|(_, q)| *q)).map(|note| format!("{note}.")).unwrap_or_default())
        .text(phrases::stalls(load).map(|stalls| format!("Stalls: {stalls}.")).unwrap_or_default())
        .figure(tail)
        .figure(histogram("Distribution of response times", &sources.response_time))
}

/// The times of the load; below the response time, the upper bound of the generator delay in it.
fn times_table(load: &Load, times: &[(&str, &Quantiles)]) -> Table {
    let table = Table::new(&["", "values", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    let bound = load.generator_delay.map(|delay| delay.response_time_ns).filter(|bound| bound.count > 0);
    times.iter().filter(|(_, q)| q.count > 0).fold(table, |table, (name, q)| {
        let table = table.row([vec![(*name).to_owned(), count(q.count)], phrases::times_row(q)].concat());
        match bound.filter(|_| *name == "response time") {
            None => table,
            Some(bound) => {
                let name = "generator delay, max".to_owned();
                table.row([vec![name, count(bound.count)], phrases::durations_row(&bound)].concat())
            }
        }
    })
}

/// One row for each distribution in nanoseconds; distributions without values are left out.
pub(super) fn distributions(rows: &[(&str, &Quantiles)]) -> Table {
    let table = Table::new(&["", "values", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    rows.iter().filter(|(_, q)| q.count > 0).fold(table, |table, (name, q)| {
        table.row([vec![(*name).to_owned(), count(q.count)], phrases::durations_row(q)].concat())
    })
}

/// A histogram with logarithmic bins, ten in each decade.
pub(super) fn histogram(title: &str, values: &Histogram) -> Chart {
    let (mut edges, mut counts) = (Vec::new(), Vec::new());
    if !values.is_empty() {
        let (low, high) = (values.value_at(0.0).max(1_000) as f64, values.max().max(1_000) as f64);
        let first = (low.log10() * BINS_PER_DECADE).floor() as i32;
        let last = (high.log10() * BINS_PER_DECADE).floor() as i32 + 1;
        edges = (first..=last).map(|at| 10_f64.powf(f64::from(at) / BINS_PER_DECADE)).collect();
        let whole = |edge: f64| edge.round() as u64;
        counts = edges.windows(2).map(|pair| values.count_between(whole(pair[0]), whole(pair[1]))).collect();
        // Values below the first edge count in the first bin.
        if let Some(first) = counts.first_mut() {
            *first += values.count_between(0, whole(edges[0]));
        }
    }
    let mut chart = Chart::histogram(title, "time", &edges, &counts)
        .about(format!("{} values in logarithmic bins.", count(values.len())));
    chart.y.label = "values per bin".into();
    chart
}

/// Results by band of the client's configured RTT.
pub(crate) fn by_distance(load: &Load) -> Section {
    let bands: Vec<&DistanceBand> = load.by_distance.iter().filter(|band| band.clients > 0).collect();
    let mut table = Table::new(&["configured RTT", "clients", "completed", "failed", "p50", "p90", "p99", "max"]);
    let mut bars = Bars::dots("Response time by distance", Quantity::Nanoseconds, &["p50", "p90", "p99"]);
    for band in &bands {
        let name = match (band.rtt_ns_from, band.rtt_ns_to) {
            (from, to) if to > Histogram::HIGHEST => format!("from {}", round_duration(from)),
            (0, to) => format!("under {}", round_duration(to)),
            (from, to) => format!("{} to {}", round_duration(from), round_duration(to)),
        };
        let q = &band.response_time_ns;
        let mut row = vec![name.clone(), count(band.clients), count(band.completed), count(band.failed)];
        row.extend(phrases::percentiles(q));
        table = table.row(row);
        let bar = |ns: u64| (q.count > 0).then_some(ns as f64);
        bars = bars.row(name, &[bar(q.p50), bar(q.p90), bar(q.p99)]);
    }
    let section = Section::new("By distance").table(table);
    // A plot needs at least two bands.
    if bands.len() > 1 {
        section.figure(bars.about("Clients grouped by their configured round-trip time."))
    } else {
        section
    }
}

/// Results by URL, if there are several.
pub(super) fn by_url(load: &Load) -> Section {
    let section = Section::new("By URL");
    if load.by_url.len() < 2 {
        return section;
    }
    let mut table = Table::new(&["URL", "completed", "failed", "p50", "p90", "p99", "max"]);
    for part in load.by_url.iter().take(URLS_SHOWN) {
        let q = &part.response_time_ns;
        let mut row = vec![part.url.clone(), count(part.completed), count(part.failed)];
        row.extend(phrases::percentiles(q));
        table = table.row(row);
    }
    let hidden = load.by_url.len().saturating_sub(URLS_SHOWN) as u64;
    let others = match &load.by_url_left_out {
        Some(others) => format!(
            "{} more URLs, less often requested by the plan: {} completed, {} failed, p99 {}.",
            count(others.urls.saturating_add(hidden)),
            count(others.completed),
            count(others.failed),
            duration(others.response_time_ns.p99)
        ),
        None if hidden > 0 => format!("{} more URLs.", count(hidden)),
        None => String::new(),
    };
    let legend = phrases::too_few_values_to_p99(load.by_url.iter().take(URLS_SHOWN).map(|part| &part.response_time_ns));
    section.table(table).text(others).text(legend.map(|text| format!("{text}.")).unwrap_or_default())
}

/// Responses by status, and failures by cause.
pub(crate) fn failures(load: &Load) -> Section {
    let mut statuses = Table::new(&["status", "responses"]);
    for (status, n) in by_frequency(&load.status) {
        statuses = statuses.row([status.to_owned(), count(n)]);
    }
    let mut causes = Bars::new("Failures by cause", Quantity::Count, &["requests"]);
    for (cause, n) in by_frequency(&load.failed) {
        causes = causes.row(cause.replace('_', " "), &[Some(n as f64)]);
    }
    let none = if total(&load.failed) == 0 { "No request failed." } else { "" };
    let section = Section::new("Responses").table(statuses).text(none).figure(causes);
    if load.malformed_responses.is_empty() {
        return section;
    }
    let reasons = load.malformed_responses.iter();
    let reasons = reasons
        .fold(Table::new(&["malformed responses: first example", "requests"]).left(&[0]), |table, part| {
            table.row([part.first.clone(), count(part.count)])
        });
    section.table(reasons)
}

const BINS_PER_DECADE: f64 = 10.0;
/// URLs shown; the others are counted.
const URLS_SHOWN: usize = 50;
