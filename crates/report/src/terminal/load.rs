//! What the load measured.

use std::collections::BTreeMap;

use schema::Quantiles;
use schema::document::{DistanceBand, Level, Load, PhasePart, Run};
use stats::Histogram;

use super::bars;
use super::page::{Ink, Page, shortened};
use crate::figures::{bit_rate, bytes, count, duration, duration_f64, level, plain, rate, round_duration, share};
use crate::phrases::{self, irregular, recordings, span, tls_line, total};

pub(super) fn print(page: &mut Page, load: &Load, run: &Run, response_times: Option<&Histogram>) {
    totals(page, load, run);
    page.blank();
    times(page, load);
    if let Some(values) = response_times.filter(|values| !values.is_empty()) {
        page.blank();
        bars::print(page, values);
    }
    if !load.by_phase.is_empty() {
        page.blank();
        by_phase(page, &load.by_phase);
    }
    if !load.by_distance.is_empty() {
        page.blank();
        by_distance(page, &load.by_distance);
    }
    if load.by_url.len() > 1 {
        page.blank();
        by_url(page, load);
    }
    page.blank();
    levels(page, load);
}

fn totals(page: &mut Page, load: &Load, run: &Run) {
    let seconds = run.duration_s;
    let warmup = if run.warmup_s > 0.0 { format!(" after a warm-up of {}", span(run.warmup_s)) } else { String::new() };
    let kind = match load.loop_kind.as_str() {
        "" => String::new(),
        kind => format!(", {kind} loop"),
    };
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
    // Short of what was asked: an open loop that is not carried is the finding of many a run.
    let short = load.loop_kind == "open" && load.achieved_rate_per_s < 0.99 * load.offered_rate_per_s;
    page.entry_in(
        "carried",
        &format!(
            "{}: {} whole responses, {} received ({received}), {} sent",
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
            page.entry_in("", &format!("the first failure: {why}"), Ink::Bad);
        }
    }
    if load.in_flight_at_end > 0 {
        page.entry_in(
            "left",
            &format!("{} neither done nor failed at the end", count(load.in_flight_at_end)),
            Ink::Doubtful,
        );
    }
}

/// Why responses could not be read: the most frequent reasons.
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

/// Name and `Q` of each time that has values.
fn times(page: &mut Page, load: &Load) {
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
    let row = |(name, q): (&str, &Quantiles)| {
        let mut row = vec![name.to_owned(), duration_f64(q.mean)];
        row.extend(phrases::percentiles(q));
        row.push(duration(q.max));
        row
    };
    let mut rows: Vec<Vec<String>> = times.clone().map(row).collect();
    // Beside what it may have raised.
    if let Some(bound) = load.generator_delay.map(|delay| delay.response_time_ns).filter(|bound| bound.count > 0) {
        let mut row = vec!["generator, at most".to_owned(), duration_f64(bound.mean)];
        row.extend([bound.p50, bound.p90, bound.p99, bound.p99_9, bound.max].map(duration));
        rows.insert(1.min(rows.len()), row);
    }
    if !rows.is_empty() {
        page.table(&["", "mean", "p50", "p90", "p99", "p99.9", "max"], &rows);
    }
    if let Some(note) = phrases::unknown(times.map(|(_, q)| q)) {
        page.entry("", &note);
    }
    if let Some(stalls) = phrases::stalls(load) {
        page.entry("stalls", &stalls);
    }
}

/// One row a distribution of nanoseconds; those without values are left out.
pub(super) fn distributions(page: &mut Page, name: &str, rows: &[(&str, &Quantiles)]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .filter(|(_, q)| q.count > 0)
        .map(|(name, q)| {
            let mut row = vec![(*name).to_owned(), duration_f64(q.mean)];
            row.extend([q.p50, q.p90, q.p99, q.p99_9, q.max].map(duration));
            row
        })
        .collect();
    if !rows.is_empty() {
        page.table(&[name, "mean", "p50", "p90", "p99", "p99.9", "max"], &rows);
    }
}

fn by_phase(page: &mut Page, phases: &[PhasePart]) {
    let room = page.width().saturating_sub(70).max(12);
    let rows: Vec<Vec<String>> = phases
        .iter()
        .map(|phase| {
            let lasts = span((phase.to_s - phase.from_s).max(0.0));
            let mut row = vec![shortened(&phase.name, room), lasts, rate(phase.offered_rate_per_s)];
            row.extend([rate(phase.achieved_rate_per_s), count(phase.failed)]);
            row.extend(percentiles(&phase.response_time_ns));
            row
        })
        .collect();
    page.table(&["by phase", "lasts", "offered", "carried", "failed", "p50", "p90", "p99", "max"], &rows);
}

fn by_distance(page: &mut Page, bands: &[DistanceBand]) {
    let rows: Vec<Vec<String>> = bands
        .iter()
        .map(|band| {
            let name = match (band.rtt_ns_from, band.rtt_ns_to) {
                (from, to) if to > Histogram::HIGHEST => format!("RTT from {}", round_duration(from)),
                (0, to) => format!("RTT under {}", round_duration(to)),
                (from, to) => format!("RTT {} to {}", round_duration(from), round_duration(to)),
            };
            let mut row = vec![name, count(band.clients), count(band.completed), count(band.failed)];
            row.extend(percentiles(&band.response_time_ns));
            row
        })
        .collect();
    page.table(&["by distance", "clients", "done", "failed", "p50", "p90", "p99", "max"], &rows);
}

fn by_url(page: &mut Page, load: &Load) {
    let parts = &load.by_url;
    let room = page.width().saturating_sub(60).max(20);
    let mut rows: Vec<Vec<String>> = parts
        .iter()
        .take(URLS)
        .map(|part| {
            let mut row = vec![shortened(&part.url, room), count(part.completed), count(part.failed)];
            row.extend(percentiles(&part.response_time_ns));
            row
        })
        .collect();
    let others = load.by_url_left_out.as_ref().map_or(0, |others| others.urls);
    let more = others.saturating_add(parts.len().saturating_sub(URLS) as u64);
    if more > 0 {
        rows.push(vec![format!("and {} more", count(more))]);
    }
    page.table(&["by URL", "done", "failed", "p50", "p90", "p99", "max"], &rows);
}

/// p50, p90, p99 and max, or dashes where there is nothing.
fn percentiles(q: &Quantiles) -> [String; 4] {
    let [p50, p90, p99, _] = phrases::percentiles(q);
    [p50, p90, p99, duration(q.max)].map(|value| if q.count == 0 { "-".to_owned() } else { value })
}

fn levels(page: &mut Page, load: &Load) {
    let row = |name: &str, l: &Level| vec![name.to_owned(), level(l.mean), count(l.p50), count(l.max)];
    let mut rows = vec![row("requests in flight", &load.in_flight), row("connections in process", &load.connections)];
    if load.backlog.max > 0 {
        rows.push(row("backlog", &load.backlog));
    }
    rows[1].push(format!("  {} opened", count(load.connections_opened)));
    page.table(&["", "mean", "median", "max", ""], &rows);
    if let Some(sessions) = &load.sessions {
        page.entry(
            "sessions",
            &format!(
                "{} begun, {} in the measured phase; {} ended, {} failed, {} cut by the end",
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

/// URLs shown before the rest is only counted.
const URLS: usize = 10;
/// Reasons for which responses could not be read; a server that breaks more rules shows enough by these.
const REASONS_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use schema::document::MalformedResponses;

    #[test]
    fn what_was_malformed_is_said_with_the_most_frequent_reasons() {
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
