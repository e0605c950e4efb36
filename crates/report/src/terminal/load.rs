//! The results of the load: rates, times, phases, distances, URLs, gauges.

use std::collections::BTreeMap;

use schema::Quantiles;
use schema::document::{DistanceBand, Level, Load, PhasePart, Run};
use stats::Histogram;

use super::bars;
use super::page::{Ink, Page, shortened};
use crate::figures::{bit_rate, bytes, count, level, plain, rate, round_duration, share};
use crate::phrases::{self, irregular, quic_line, recordings, span, tls_line, total};

pub(super) fn print(page: &mut Page, load: &Load, run: &Run, response_times: Option<&Histogram>) {
    totals(page, load, run);
    page.blank();
    let mut has_legend = times(page, load);
    let mut legend = |page: &mut Page, rows: Vec<&Quantiles>| {
        // One legend of the mark on a screen is enough.
        if let Some(text) = phrases::too_few_values_to_p99(rows).filter(|_| !has_legend) {
            page.entry("", &text);
            has_legend = true;
        }
    };
    if let Some(values) = response_times.filter(|values| !values.is_empty()) {
        page.blank();
        bars::print(page, values);
    }
    if !load.by_phase.is_empty() {
        page.blank();
        by_phase(page, &load.by_phase);
        legend(page, load.by_phase.iter().map(|phase| &phase.response_time_ns).collect());
    }
    if !load.by_distance.is_empty() {
        page.blank();
        by_distance(page, &load.by_distance);
        legend(page, load.by_distance.iter().map(|band| &band.response_time_ns).collect());
    }
    if load.by_url.len() > 1 {
        page.blank();
        by_url(page, load);
        legend(page, load.by_url.iter().take(URLS_SHOWN).map(|part| &part.response_time_ns).collect());
    }
    page.blank();
    gauges(page, load);
}

fn totals(page: &mut Page, load: &Load, run: &Run) {
    let seconds = run.duration_s;
    let warmup = if run.warmup_s > 0.0 { format!(" after a warm-up of {}", span(run.warmup_s)) } else { String::new() };
    let kind = match load.loop_kind.as_str() {
        "" => String::new(),
        kind => format!(", {kind} loop"),
    };
    if let Some(text) = phrases::shards(run) {
        page.entry("shards", &text);
    }
    page.entry(
        "offered",
        &format!(
            "{}: {} requests in {}{warmup}{kind}",
            rate(load.offered_rate_per_s),
            count(load.offered_requests),
            span(seconds)
        ),
    );
    let received = if seconds > 0.0 { bit_rate(load.bytes_received as f64 * 8.0 / seconds) } else { bytes(0) };
    // An achieved rate below the offered rate is the finding of many runs with an open loop.
    let short = load.loop_kind == "open" && load.achieved_rate_per_s < 0.99 * load.offered_rate_per_s;
    page.entry_in(
        "achieved",
        &format!(
            "{}: {} complete responses, {} received ({received}), {} sent",
            rate(load.achieved_rate_per_s),
            count(load.completed),
            bytes(load.bytes_received),
            bytes(load.bytes_sent)
        ),
        if short { Ink::Doubtful } else { Ink::Plain },
    );
    if !load.status.is_empty() {
        page.entry("status", &counted(&load.status));
    }
    let failed = total(&load.failed);
    if failed > 0 {
        let part = share(failed as f64 / load.offered_requests.max(1) as f64);
        page.entry_in("failed", &format!("{} ({part}): {}", count(failed), counted(&load.failed)), Ink::Bad);
    }
    for line in malformed(load) {
        page.entry_in("", &line, Ink::Bad);
    }
    for (name, line) in irregular(load) {
        page.entry_in(name, &line, Ink::Doubtful);
    }
    for (name, line) in recordings(load) {
        page.entry(name, &line);
    }
    if let Some(tls) = &load.tls {
        page.entry("TLS", &tls_line(tls));
        if let Some(why) = &tls.first_failure {
            page.entry_in("", &format!("first failure: {why}"), Ink::Bad);
        }
    }
    if let Some(quic) = &load.quic {
        page.entry("QUIC", &quic_line(quic));
        if let Some(why) = &quic.first_failure {
            page.entry_in("", &format!("first failure: {why}"), Ink::Bad);
        }
        if quic.receive_drops > 0 {
            let drops = count(quic.receive_drops);
            page.entry_in("", &format!("{drops} datagrams dropped by the load's own sockets"), Ink::Doubtful);
        }
    }
    if load.in_flight_at_end > 0 {
        page.entry_in(
            "unfinished",
            &format!("{} neither completed nor failed at the end", count(load.in_flight_at_end)),
            Ink::Doubtful,
        );
    }
}

/// The most frequent reasons why responses were malformed.
fn malformed(load: &Load) -> Vec<String> {
    let shown = load.malformed_responses.iter().take(REASONS_SHOWN);
    let mut lines: Vec<String> =
        shown.map(|part| format!("malformed {}: {}", count(part.count), plain(&part.first))).collect();
    if let Some(rest @ [_, ..]) = load.malformed_responses.get(REASONS_SHOWN..) {
        let responses = rest.iter().fold(0u64, |sum, part| sum.saturating_add(part.count));
        lines.push(format!("malformed {}: for {} other reasons", count(responses), rest.len()));
    }
    lines
}

/// One row for each time that has values. Returns whether the legend of the mark `~` was printed.
fn times(page: &mut Page, load: &Load) -> bool {
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
    let times = times.into_iter().filter(|(_, q)| q.count > 0);
    let row = |(name, q): (&str, &Quantiles)| [vec![name.to_owned()], phrases::times_row(q)].concat();
    let mut rows: Vec<Vec<String>> = times.clone().map(row).collect();
    // Below the response time, which the generator delay may have raised.
    if let Some(bound) = load.generator_delay.map(|delay| delay.response_time_ns).filter(|bound| bound.count > 0) {
        let row = [vec!["generator delay, max".to_owned()], phrases::durations_row(&bound)].concat();
        rows.insert(1.min(rows.len()), row);
    }
    if !rows.is_empty() {
        page.table(&["", "mean", "p50", "p90", "p99", "p99.9", "max"], &rows);
    }
    let legend = phrases::too_few_values(times.map(|(_, q)| q));
    if let Some(text) = &legend {
        page.entry("", text);
    }
    if let Some(stalls) = phrases::stalls(load) {
        page.entry("stalls", &stalls);
    }
    legend.is_some()
}

/// One row for each distribution in nanoseconds; distributions without values are left out.
pub(super) fn distributions(page: &mut Page, name: &str, rows: &[(&str, &Quantiles)]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .filter(|(_, q)| q.count > 0)
        .map(|(name, q)| [vec![(*name).to_owned()], phrases::durations_row(q)].concat())
        .collect();
    if !rows.is_empty() {
        page.table(&[name, "mean", "p50", "p90", "p99", "p99.9", "max"], &rows);
    }
}

fn by_phase(page: &mut Page, phases: &[PhasePart]) {
    let available = page.width().saturating_sub(70).max(12);
    let rows: Vec<Vec<String>> = phases
        .iter()
        .map(|phase| {
            let lasts = span((phase.to_s - phase.from_s).max(0.0));
            let mut row = vec![shortened(&phase.name, available), lasts, rate(phase.offered_rate_per_s)];
            row.extend([rate(phase.achieved_rate_per_s), count(phase.failed)]);
            row.extend(phrases::percentiles(&phase.response_time_ns));
            row
        })
        .collect();
    page.table(&["by phase", "length", "offered", "achieved", "failed", "p50", "p90", "p99", "max"], &rows);
}

fn by_distance(page: &mut Page, bands: &[DistanceBand]) {
    let rows: Vec<Vec<String>> = bands
        .iter()
        .map(|band| {
            let name = match (band.rtt_ns_from, band.rtt_ns_to) {
                (from, to) if to > Histogram::HIGHEST => format!("from {}", round_duration(from)),
                (0, to) => format!("under {}", round_duration(to)),
                (from, to) => format!("{} to {}", round_duration(from), round_duration(to)),
            };
            let mut row = vec![name, count(band.clients), count(band.completed), count(band.failed)];
            row.extend(phrases::percentiles(&band.response_time_ns));
            row
        })
        .collect();
    page.table(&["by RTT", "clients", "completed", "failed", "p50", "p90", "p99", "max"], &rows);
}

fn by_url(page: &mut Page, load: &Load) {
    let parts = &load.by_url;
    let available = page.width().saturating_sub(60).max(20);
    let mut rows: Vec<Vec<String>> = parts
        .iter()
        .take(URLS_SHOWN)
        .map(|part| {
            let mut row = vec![shortened(&part.url, available), count(part.completed), count(part.failed)];
            row.extend(phrases::percentiles(&part.response_time_ns));
            row
        })
        .collect();
    let others = load.by_url_left_out.as_ref().map_or(0, |others| others.urls);
    let more = others.saturating_add(parts.len().saturating_sub(URLS_SHOWN) as u64);
    if more > 0 {
        rows.push(vec![format!("and {} more", count(more))]);
    }
    page.table(&["by URL", "completed", "failed", "p50", "p90", "p99", "max"], &rows);
}

fn gauges(page: &mut Page, load: &Load) {
    let row = |name: &str, l: &Level| vec![name.to_owned(), level(l.mean), count(l.p50), count(l.max)];
    let mut rows = vec![row("requests in flight", &load.in_flight), row("concurrent connections", &load.connections)];
    if load.backlog.max > 0 {
        rows.push(row("backlog", &load.backlog));
    }
    rows[1].push(format!("{} opened in all", count(load.connections_opened)));
    page.table(&["", "mean", "median", "max", ""], &rows);
    if let Some(sessions) = &load.sessions {
        page.entry(
            "sessions",
            &format!(
                "{} started, {} in the measured phase; {} ended, {} failed, {} cut off by the end of the run",
                count(sessions.begun),
                rate(sessions.rate_per_s),
                count(sessions.ended),
                count(sessions.failed),
                count(sessions.cut)
            ),
        );
    }
}

/// `200 x 6,588, 503 x 12`, the most frequent first.
pub(super) fn counted(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().filter(|&(_, &n)| n > 0).collect();
    counts.sort_by_key(|&(_, &n)| std::cmp::Reverse(n));
    let texts: Vec<String> = counts.iter().map(|(name, n)| format!("{name} x {}", count(**n))).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// URLs shown; the others are counted in one row.
const URLS_SHOWN: usize = 10;
/// Reasons of malformed responses shown; the others are counted in one line.
const REASONS_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use schema::document::MalformedResponses;

    #[test]
    fn malformed_responses_are_listed_by_their_most_frequent_reasons() {
        let part = |count, first: &str| MalformedResponses { reason: "x".into(), count, first: first.into() };
        let mut load =
            Load { malformed_responses: vec![part(3, "Content-Length `+5` is not a number")], ..Load::default() };
        assert_eq!(malformed(&load), ["malformed 3: Content-Length `+5` is not a number"]);
        load.malformed_responses.extend([part(2, "b"), part(2, "c\u{1b}[2J"), part(1, "d"), part(1, "e")]);
        let lines = malformed(&load);
        assert_eq!(lines.len(), 4);
        assert!(!lines[2].contains('\u{1b}'), "{lines:?}");
        assert_eq!(lines[3], "malformed 2: for 2 other reasons");
        assert!(malformed(&Load::default()).is_empty());
    }
}
