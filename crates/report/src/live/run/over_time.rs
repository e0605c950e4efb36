//! The charts over time.

use std::collections::BTreeMap;
use std::ops::Range;

use schema::{RunPhase, SecondRecord, ServerSecond, WatchSecond};

use super::super::follow::Records;
use super::super::heat::Percentiles;
use super::super::seconds::{Fold, Lane, OverTime, Seconds};
use super::super::state::Section;
use super::LOAD_BEGINS_S;
use crate::wire_seconds;

/// The main figure first: connections in process, as each witness counts them.
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

    let offered = Lane::new("offered", 0, Fold::Mean, |row: &SecondRecord| row.offered as f64).dashed();
    let carried = Lane::new("carried", 2, Fold::Mean, |row: &SecondRecord| row.completed as f64).filled();
    let failed = Lane::new("failed", 3, Fold::Mean, |row: &SecondRecord| row.failed as f64);
    let mut rates = over_time(
        "rates",
        "Requests each second",
        if is_alone { "As packets show them." } else { "Offered: meant to start then. Carried: answered whole then." },
        "rate",
    )
    .lane(&load, carried)
    .lane(&load, offered)
    .lane(&wire, rate(if is_alone { "arrived" } else { "arrived, by the wire" }, 1, |row| row.requests));
    if is_alone {
        rates = rates.lane(&wire, rate("answered", 2, |row| row.responses));
    }
    if records.series.iter().any(|row| row.failed > 0) {
        rates = rates.lane(&load, failed);
    }

    let most = |row: &SecondRecord| row.connections_max as f64;
    let connections = over_time(
        "connections",
        "Connections in process",
        "Opened and not closed: as the load counts them, and as packets show them at the server.",
        "count",
    )
    .wide()
    .lane(&load, Lane::new("load", 0, Fold::Mean, |row: &SecondRecord| row.connections_mean).filled())
    .lane(&wire, Lane::new("wire", 1, Fold::Mean, |row: &WatchSecond| row.connections_mean))
    .lane(&load, Lane::new("most at once", 2, Fold::Most, most).dashed());
    let connections = match is_alone {
        true => connections.lane(
            &wire,
            Lane::new("most at once", 2, Fold::Most, |row: &WatchSecond| row.connections_max as f64).dashed(),
        ),
        false => connections,
    };

    let mut in_flight = over_time(
        "in-flight",
        "Requests in flight",
        "Load: started and not done. Wire: first byte of the request to last byte of the response, at the server's door.",
        "count",
    )
    .lane(&load, Lane::new("load", 0, Fold::Mean, |row: &SecondRecord| row.in_flight_mean).filled())
    .lane(&wire, Lane::new("wire", 1, Fold::Mean, |row: &WatchSecond| row.in_flight_mean));
    if records.series.iter().any(|row| row.backlog > 0) {
        let backlog = |row: &SecondRecord| row.backlog as f64;
        in_flight = in_flight.lane(&load, Lane::new("backlog: meant, not started", 3, Fold::Most, backlog));
    }

    let opened = over_time("opened", "Connections opened each second", "Connect called, and SYN seen.", "rate")
        .lane(&load, Lane::new("load", 0, Fold::Mean, |row: &SecondRecord| row.connections_opened as f64))
        .lane(&wire, rate("wire", 1, |row| row.connections_opened));

    let mut section = Section::new("over-time", "Over time")
        .with(connections.chart())
        .with(rates.chart())
        .with(in_flight.chart())
        .with(times(records, &load, over_time("times", "Response time", TIMES, "ns")).chart())
        .with(opened.chart())
        .with(records.spread.piece());
    if !wire.is_empty() {
        section = section
            .with(handshakes(&wire, over_time("handshakes", "Handshake round trips", "As the wire shows them.", "ns")));
    }
    if !server.is_empty() {
        section = section.with(processor(&records.server, &server, over_time("cpu", "Server CPU", CPU, "count")));
    }
    section
}

/// Response times. Median and 99 % are those of the series, as the report has them, where a point is one second. Percentiles of
/// seconds do not add up, so where a point is several, they are of the counts of all of them.
fn times(records: &Records, load: &Seconds<'_, SecondRecord>, chart: OverTime) -> OverTime {
    // A second in which nothing was completed has no response time.
    let time = |value: fn(&SecondRecord) -> u64| {
        move |row: &SecondRecord| if row.completed == 0 { f64::NAN } else { value(row) as f64 }
    };
    let low = records.series.iter().filter(|row| row.completed > 0).map(|row| row.response_p50_ns.max(1)).min();
    let high = records.series.iter().map(|row| row.response_max_ns).max();
    let width = chart.width();
    let chart = chart.log(high.unwrap_or(0) / low.unwrap_or(1) > FAR_APART);
    let median = Lane::new("median", 0, Fold::Mean, time(|row| row.response_p50_ns));
    let slowest = Lane::new("99 % within", 1, Fold::Most, time(|row| row.response_p99_ns));
    let longest = Lane::new("longest", 3, Fold::Most, time(|row| row.response_max_ns)).dashed();
    if records.spread.is_empty() {
        let chart = if width > 1 { chart.noted(FOLDED) } else { chart };
        return chart.lane(load, median).lane(load, slowest).lane(load, longest);
    }
    // Buckets are an eighth wide, the longest is exact: nothing is longer than that.
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
            *values = rows.get(second).filter(|row| row.completed > 0).map_or(*values, |row| values.beside(row));
        }
    }
    let spread = Seconds::new(found.iter().map(|(second, values)| (*second, values)));
    let counted =
        |name, color, value: fn(&Percentiles) -> f64| Lane::<Percentiles>::new(name, color, Fold::Most, value);
    let chart = match by_counts {
        true => chart.noted(COUNTED).lane(&spread, counted("median", 0, |values| values.p50)),
        false => chart.lane(load, median),
    };
    let chart = chart.lane(&spread, counted("90 % within", 2, |values| values.p90));
    let chart = match by_counts {
        true => chart.lane(&spread, counted("99 % within", 1, |values| values.p99)),
        false => chart.lane(load, slowest),
    };
    // Many a run has in no second so many requests that one of a thousand could be told.
    let chart = match found.iter().any(|(_, values)| values.p99_9.is_finite()) {
        true => chart.lane(&spread, counted("99.9 % within", 5, |values| values.p99_9)),
        false => chart,
    };
    chart.lane(load, longest)
}

fn handshakes(wire: &Seconds<'_, WatchSecond>, chart: OverTime) -> Option<super::super::state::Piece> {
    let time = |value: fn(&WatchSecond) -> u64| {
        move |row: &WatchSecond| if row.handshakes == 0 { f64::NAN } else { value(row) as f64 }
    };
    let chart = if chart.width() > 1 { chart.noted(FOLDED) } else { chart };
    chart
        .log(true)
        .lane(wire, Lane::new("median", 0, Fold::Mean, time(|row| row.handshake_rtt_p50_ns)))
        .lane(wire, Lane::new("90 % within", 2, Fold::Most, time(|row| row.handshake_rtt_p90_ns)))
        .lane(wire, Lane::new("99 % within", 1, Fold::Most, time(|row| row.handshake_rtt_p99_ns)))
        .chart()
}

fn processor(
    rows: &[ServerSecond],
    server: &Seconds<'_, ServerSecond>,
    chart: OverTime,
) -> Option<super::super::state::Piece> {
    // It is read late at times: what it used is over the time that passed.
    let over = |value: fn(&ServerSecond) -> f64| {
        move |row: &ServerSecond| if row.elapsed_s > 0.0 { value(row) / row.elapsed_s } else { f64::NAN }
    };
    let all = |row: &ServerSecond| row.cpu_user_s + row.cpu_system_s + row.cpu_receive_s.unwrap_or(0.0);
    let mut chart = chart
        .lane(server, Lane::new("in all", 0, Fold::Mean, over(all)).filled())
        .lane(server, Lane::new("user", 2, Fold::Mean, over(|row| row.cpu_user_s)))
        .lane(server, Lane::new("system", 1, Fold::Mean, over(|row| row.cpu_system_s)));
    if rows.iter().any(|row| row.cpu_receive_s.is_some()) {
        let receive = over(|row| row.cpu_receive_s.unwrap_or(f64::NAN));
        chart = chart.lane(server, Lane::new("receiving packets", 4, Fold::Mean, receive));
    }
    chart.chart()
}

/// Counts over the part of the second that was watched.
fn rate<'a>(name: &str, color: u8, value: fn(&WatchSecond) -> u64) -> Lane<'a, WatchSecond> {
    Lane::new(name, color, Fold::Mean, move |row: &WatchSecond| wire_seconds::rate(value(row), row.watched_ns))
}

/// As the report has it; whole seconds, since that is what points are of.
fn wire_zero(records: &Records) -> u64 {
    let standing = records.standing.as_ref();
    let has_load = !records.series.is_empty() || standing.is_some_and(|standing| standing.load.is_some());
    let started_at = records.document().map(|document| &document.run.started_at);
    let started_at = started_at.or(standing.map(|standing| &standing.started_at)).map_or("", String::as_str);
    wire_seconds::zero(records.wire_first.unwrap_or(0), has_load, started_at) as u64
}

/// The seconds of the run's clock that it is of: more than one where it was read late.
fn server_seconds(row: &ServerSecond) -> Range<u32> {
    let end_s = row.at_ns as f64 / 1e9;
    let first = (end_s - row.elapsed_s).max(0.0).round() as u32;
    first..(end_s.round() as u32).clamp(first.saturating_add(1), first.saturating_add(LATE_MAX))
}

/// Warm-up, and what came after the measured phase.
fn bands(records: &Records) -> Vec<(f64, f64, &'static str)> {
    let mut bands = Vec::new();
    let (warmup_s, duration_s) = match (records.document(), &records.standing) {
        (Some(document), _) => (document.run.warmup_s, Some(document.run.duration_s)),
        (None, Some(standing)) if standing.phase != RunPhase::Starting => (standing.warmup_s, None),
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

const TIMES: &str = "Of the requests completed in each second, from the moment at which they were meant to start.";
const CPU: &str = "Cores' worth of processor time: 1 is one core all the time.";
/// Of points that have nothing but the percentiles of their seconds.
const FOLDED: &str = "Of its seconds' medians a point is the mean, of their other percentiles the largest.";
/// Of points whose percentiles were counted.
const COUNTED: &str = "Percentiles are of all requests of a point, right to an eighth.";
/// Seconds that one reading stands for at most; the program does not sleep longer.
const LATE_MAX: u32 = 60;
/// Ratio of longest to median from which on a linear axis would hide the median.
const FAR_APART: u64 = 30;
