//! The charts over time.

use std::collections::BTreeMap;
use std::ops::Range;

use schema::{RunPhase, SecondRecord, ServerSecond, WatchSecond};

use super::super::follow::Records;
use super::super::heat::Percentiles;
use super::super::seconds::{Fold, LineSource, OverTime, Seconds};
use super::super::state::Section;
use super::LOAD_BEGINS_S;
use crate::capture_time;

/// Concurrent connections first, from each vantage point.
pub(super) fn section(records: &Records) -> Section {
    let load = Seconds::new(records.series.iter().map(|row| (row.second, row)));
    let zero = wire_zero(records);
    let wire = Seconds::new(records.watch.iter().map(|row| ((row.second.saturating_sub(zero)) as u32, row)));
    let server =
        Seconds::new(records.server.iter().flat_map(|row| server_seconds(row).map(move |second| (second, row))));
    let points = OverTime::points(&load, &wire, &server);
    let bands = bands(records);
    let over_time = |id, title, about, quantity| OverTime::new(points, id, title, about, quantity).bands(&bands);
    let is_alone = load.is_empty();

    let offered = LineSource::new("offered", 0, Fold::Mean, |row: &SecondRecord| row.offered as f64).dashed();
    let achieved = LineSource::new("achieved", 2, Fold::Mean, |row: &SecondRecord| row.completed as f64).filled();
    let failed = LineSource::new("failed", 3, Fold::Mean, |row: &SecondRecord| row.failed as f64);
    let mut rates = over_time(
        "rates",
        "Requests per second",
        if is_alone { "From packets." } else { "Offered: scheduled. Achieved: complete responses." },
        "rate",
    )
    .line(&load, achieved)
    .line(&load, offered)
    .line(&wire, rate(if is_alone { "arrived" } else { "arrived (packets)" }, 1, |row| row.requests));
    if is_alone {
        rates = rates.line(&wire, rate("responses", 2, |row| row.responses));
    }
    if records.series.iter().any(|row| row.failed > 0) {
        rates = rates.line(&load, failed);
    }

    let most = |row: &SecondRecord| row.connections_max as f64;
    let connections = over_time(
        "connections",
        "Concurrent connections",
        "Opened, not closed: counted by the load generator, and from packets at the server's end.",
        "count",
    )
    .wide()
    .line(&load, LineSource::new("load", 0, Fold::Mean, |row: &SecondRecord| row.connections_mean).filled())
    .line(&wire, LineSource::new("wire", 1, Fold::Mean, |row: &WatchSecond| row.connections_mean))
    .line(&load, LineSource::new("max", 2, Fold::Max, most).dashed());
    let connections = match is_alone {
        true => connections
            .line(&wire, LineSource::new("max", 2, Fold::Max, |row: &WatchSecond| row.connections_max as f64).dashed()),
        false => connections,
    };

    let mut in_flight = over_time(
        "in-flight",
        "Requests in flight",
        "Load: started, not ended. Wire: from the first byte of the request to the last byte of the response, at the server's end.",
        "count",
    )
    .line(&load, LineSource::new("load", 0, Fold::Mean, |row: &SecondRecord| row.in_flight_mean).filled())
    .line(&wire, LineSource::new("wire", 1, Fold::Mean, |row: &WatchSecond| row.in_flight_mean));
    if records.series.iter().any(|row| row.backlog > 0) {
        let backlog = |row: &SecondRecord| row.backlog as f64;
        in_flight = in_flight.line(&load, LineSource::new("backlog: scheduled, not started", 3, Fold::Max, backlog));
    }

    let opened =
        over_time("opened", "Connections opened per second", "Load: connect called. Wire: SYN captured.", "rate")
            .line(&load, LineSource::new("load", 0, Fold::Mean, |row: &SecondRecord| row.connections_opened as f64))
            .line(&wire, rate("wire", 1, |row| row.connections_opened));

    let mut section = Section::new("over-time", "Over time")
        .with(connections.chart())
        .with(rates.chart())
        .with(in_flight.chart())
        .with(times(records, &load, over_time("times", "Response time", TIMES, "ns")).chart())
        .with(opened.chart())
        .with(records.spread.piece());
    if !wire.is_empty() {
        section = section.with(handshakes(&wire, over_time("handshakes", "Handshake RTT", "From packets.", "ns")));
    }
    if !server.is_empty() {
        section = section.with(server_cpu(&records.server, &server, over_time("cpu", "Server CPU", CPU, "count")));
    }
    section
}

/// Response times. With a point for each second, p50 and p99 are those of the series, as in the report. Percentiles of
/// seconds cannot be averaged, so a point of several seconds has the percentiles of all its requests.
fn times(records: &Records, load: &Seconds<'_, SecondRecord>, chart: OverTime) -> OverTime {
    // A second without completed requests has no response time.
    let time = |value: fn(&SecondRecord) -> u64| {
        move |row: &SecondRecord| if row.completed == 0 { f64::NAN } else { value(row) as f64 }
    };
    let low = records.series.iter().filter(|row| row.completed > 0).map(|row| row.response_p50_ns.max(1)).min();
    let high = records.series.iter().map(|row| row.response_max_ns).max();
    let width = chart.width();
    let chart = chart.log(high.unwrap_or(0) / low.unwrap_or(1) > LOG_AXIS_RATIO);
    let median = LineSource::new("p50", 0, Fold::Mean, time(|row| row.response_p50_ns));
    let slowest = LineSource::new("p99", 1, Fold::Max, time(|row| row.response_p99_ns));
    let longest = LineSource::new("max", 3, Fold::Max, time(|row| row.response_max_ns)).dashed();
    if records.spread.is_empty() {
        let chart = if width > 1 { chart.noted(MERGED_BY_PERCENTILES) } else { chart };
        return chart.line(load, median).line(load, slowest).line(load, longest);
    }
    // Buckets are an eighth wide, the maximum is exact: percentiles are limited to it.
    let mut longest_ns: BTreeMap<u32, u64> = BTreeMap::new();
    for row in &records.series {
        let most = longest_ns.entry(row.second / width * width).or_default();
        *most = row.response_max_ns.max(*most);
    }
    let cap = |(second, values): (u32, Percentiles)| match longest_ns.get(&second) {
        Some(&most) if most > 0 => (second, values.at_most(most as f64)),
        _ => (second, values),
    };
    let mut found: Vec<(u32, Percentiles)> = records.spread.percentiles(width).into_iter().map(cap).collect();
    let by_counts = width > 1 || load.is_empty();
    if !by_counts {
        let rows: BTreeMap<u32, &SecondRecord> = records.series.iter().map(|row| (row.second, row)).collect();
        for (second, values) in &mut found {
            *values = rows.get(second).filter(|row| row.completed > 0).map_or(*values, |row| values.limited_by(row));
        }
    }
    let spread = Seconds::new(found.iter().map(|(second, values)| (*second, values)));
    let counted =
        |name, color, value: fn(&Percentiles) -> f64| LineSource::<Percentiles>::new(name, color, Fold::Max, value);
    let chart = match by_counts {
        true => chart.noted(MERGED_BY_COUNTS).line(&spread, counted("p50", 0, |values| values.p50)),
        false => chart.line(load, median),
    };
    let chart = chart.line(&spread, counted("p90", 2, |values| values.p90));
    let chart = match by_counts {
        true => chart.line(&spread, counted("p99", 1, |values| values.p99)),
        false => chart.line(load, slowest),
    };
    // p99.9 needs a thousand requests in a second, which many runs do not have.
    let chart = match found.iter().any(|(_, values)| values.p99_9.is_finite()) {
        true => chart.line(&spread, counted("p99.9", 5, |values| values.p99_9)),
        false => chart,
    };
    chart.line(load, longest)
}

fn handshakes(wire: &Seconds<'_, WatchSecond>, chart: OverTime) -> Option<super::super::state::Piece> {
    let time = |value: fn(&WatchSecond) -> u64| {
        move |row: &WatchSecond| if row.handshakes == 0 { f64::NAN } else { value(row) as f64 }
    };
    let chart = if chart.width() > 1 { chart.noted(MERGED_BY_PERCENTILES) } else { chart };
    chart
        .log(true)
        .line(wire, LineSource::new("p50", 0, Fold::Mean, time(|row| row.handshake_rtt_p50_ns)))
        .line(wire, LineSource::new("p90", 2, Fold::Max, time(|row| row.handshake_rtt_p90_ns)))
        .line(wire, LineSource::new("p99", 1, Fold::Max, time(|row| row.handshake_rtt_p99_ns)))
        .chart()
}

fn server_cpu(
    rows: &[ServerSecond],
    server: &Seconds<'_, ServerSecond>,
    chart: OverTime,
) -> Option<super::super::state::Piece> {
    // A reading may be late: usage is divided by the time since the last reading.
    let over = |value: fn(&ServerSecond) -> f64| {
        move |row: &ServerSecond| if row.elapsed_s > 0.0 { value(row) / row.elapsed_s } else { f64::NAN }
    };
    let all = |row: &ServerSecond| row.cpu_user_s + row.cpu_system_s + row.cpu_receive_s.unwrap_or(0.0);
    let mut chart = chart
        .line(server, LineSource::new("total", 0, Fold::Mean, over(all)).filled())
        .line(server, LineSource::new("user", 2, Fold::Mean, over(|row| row.cpu_user_s)))
        .line(server, LineSource::new("system", 1, Fold::Mean, over(|row| row.cpu_system_s)));
    if rows.iter().any(|row| row.cpu_receive_s.is_some()) {
        let receive = over(|row| row.cpu_receive_s.unwrap_or(f64::NAN));
        chart = chart.line(server, LineSource::new("receive processing", 4, Fold::Mean, receive));
    }
    chart.chart()
}

/// Counts over the captured part of the second.
fn rate<'a>(name: &str, color: u8, value: fn(&WatchSecond) -> u64) -> LineSource<'a, WatchSecond> {
    LineSource::new(name, color, Fold::Mean, move |row: &WatchSecond| capture_time::rate(value(row), row.watched_ns))
}

/// The zero of the packet capture as in the report, in whole seconds.
fn wire_zero(records: &Records) -> u64 {
    let progress = records.progress.as_ref();
    let has_load = !records.series.is_empty() || progress.is_some_and(|progress| progress.load.is_some());
    let started_at = records.document().map(|document| &document.run.started_at);
    let started_at = started_at.or(progress.map(|progress| &progress.started_at)).map_or("", String::as_str);
    capture_time::zero(records.wire_first.unwrap_or(0), has_load, started_at) as u64
}

/// The seconds of a reading: several if it was late.
fn server_seconds(row: &ServerSecond) -> Range<u32> {
    let end_s = row.at_ns as f64 / 1e9;
    let first = (end_s - row.elapsed_s).max(0.0).round() as u32;
    first..(end_s.round() as u32).clamp(first.saturating_add(1), first.saturating_add(LATE_MAX))
}

/// Warm-up, and the time after the measured phase.
fn bands(records: &Records) -> Vec<(f64, f64, &'static str)> {
    let mut bands = Vec::new();
    let (warmup_s, duration_s) = match (records.document(), &records.progress) {
        (Some(document), _) => (document.run.warmup_s, Some(document.run.duration_s)),
        (None, Some(progress)) if progress.phase != RunPhase::Starting => (progress.warmup_s, None),
        _ => return bands,
    };
    if records.series.is_empty() {
        return bands;
    }
    let from = LOAD_BEGINS_S + warmup_s;
    if warmup_s > 0.0 {
        bands.push((0.0, from, "warm-up"));
    }
    let last = records.series.last().map_or(0.0, |row| f64::from(row.second) + 1.0);
    if let Some(end) = duration_s.map(|duration| from + duration).filter(|end| *end < last) {
        bands.push((end, last, "after"));
    }
    bands
}

const TIMES: &str = "Of requests completed in each second, from their scheduled time.";
const CPU: &str = "Cores in use: 1 is one core, busy all the time.";
/// Note on points that merge the percentiles of their seconds.
const MERGED_BY_PERCENTILES: &str =
    "A point is the mean of the p50 of its seconds, and the maximum of the other percentiles.";
/// Note on points with percentiles from the counts of all their requests.
const MERGED_BY_COUNTS: &str = "Percentiles of all requests of a point, precise to 12.5 %.";
/// Most seconds of one reading.
const LATE_MAX: u32 = 60;
/// Ratio of maximum to median above which the axis is logarithmic, so that the median stays visible.
const LOG_AXIS_RATIO: u64 = 30;
