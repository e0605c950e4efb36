//! Plots over time, one point for each second.

use std::collections::BTreeMap;

use schema::{DistributionRecord, SecondRecord, ServerSecond, WatchSecond};
use stats::Histogram;

use super::Sources;
use crate::buckets::{Filled, between, quantile_if_known};
use crate::capture_time;
use crate::page::Section;
use crate::plot::{Axis, Band, Chart, Heat, HeatCell, Quantity, Series, Shape};

/// Concurrent connections, rates, requests in flight, response times, CPU. Time counts from the run's zero.
pub(super) fn section(sources: &Sources) -> Section {
    let rows = &sources.series;
    let wire = Wire::of(sources);
    let mut section = Section::new("Over time");
    for text in &sources.missing {
        section = section.text(text.clone());
    }
    section
        .figure(phases(connections(rows, &wire), sources))
        .figure(phases(rates(rows, &wire, sources), sources))
        .figure(phases(in_flight(rows, &wire), sources))
        .figure(phases(response_times(rows, &sources.distributions), sources))
        .figure(heat(sources))
        .figure(phases(server_cpu(&sources.server_series), sources))
}

/// Concurrent connections of several runs in one chart, each from the start of its measured phase: `(name, run)`.
pub fn concurrent_connections<'a>(runs: impl IntoIterator<Item = (&'a str, &'a Sources)>) -> Chart {
    let chart = Chart::over_time("Concurrent connections", "concurrent connections", Quantity::Count)
        .about("Mean of each second, from the start of the measured phase.");
    runs.into_iter().fold(chart, |chart, (name, run)| {
        let first = run.measured().next().map_or(0, |row| row.second);
        let rows = run.measured().map(|row| (f64::from(row.second - first), row.connections_mean));
        chart.series(Series::seconds(name, rows))
    })
}

/// Percentile curves of several histograms of nanoseconds: `(name, values)`.
pub fn response_tail<'a>(runs: impl IntoIterator<Item = (&'a str, &'a Histogram)>) -> Chart {
    let chart = Chart::percentiles("Response time by percentile", "response time").about(
        "Left: the fastest half. Right: the slowest 1 %, 0.1 % and so on. Counted from the scheduled time of the request.",
    );
    runs.into_iter().fold(chart, |chart, (name, values)| chart.series(Series::tail(name, values)))
}

/// The seconds of the packet capture on the time axis of the load.
struct Wire<'a> {
    rows: &'a [WatchSecond],
    zero: f64,
}

impl<'a> Wire<'a> {
    fn of(sources: &'a Sources) -> Self {
        let rows = &sources.watch_series[..];
        let first = rows.first().map_or(0, |row| row.second);
        let zero = capture_time::zero(first, !sources.series.is_empty(), &sources.document.run.started_at);
        Wire { rows, zero }
    }

    fn series(&self, name: &str, value: impl Fn(&WatchSecond) -> f64) -> Series {
        Series::seconds(name, self.rows.iter().map(|row| (row.second as f64 - self.zero, value(row)))).color(1)
    }

    /// Counts over the captured part of the second.
    fn rate(&self, name: &str, count: impl Fn(&WatchSecond) -> u64) -> Series {
        self.series(name, |row| capture_time::rate(count(row), row.watched_ns))
    }
}

fn seconds(name: &str, rows: &[SecondRecord], value: impl Fn(&SecondRecord) -> f64) -> Series {
    Series::seconds(name, rows.iter().map(|row| (f64::from(row.second), value(row))))
}

fn connections(rows: &[SecondRecord], wire: &Wire<'_>) -> Chart {
    let chart = Chart::over_time("Concurrent connections", "concurrent connections", Quantity::Count);
    let about = match (rows.is_empty(), wire.rows.is_empty()) {
        (false, false) => {
            "Mean of each second, as counted by the load generator, and from packets at the server's end."
        }
        (false, true) => "Mean of each second: connect called, not closed.",
        _ => "Mean of each second: SYN captured, not closed.",
    };
    let chart = chart.about(about);
    let chart = if rows.is_empty() { chart } else { chart.series(seconds("load", rows, |row| row.connections_mean)) };
    let chart = match wire.rows.is_empty() {
        true => chart,
        false => chart.series(wire.series("wire", |row| row.connections_mean)),
    };
    if rows.is_empty() {
        return chart.series(wire.series("max", |row| row.connections_max as f64).color(2).dashed());
    }
    chart.series(seconds("max", rows, |row| row.connections_max as f64).color(2).dashed())
}

fn rates(rows: &[SecondRecord], wire: &Wire<'_>, sources: &Sources) -> Chart {
    let mut chart = Chart::over_time("Requests per second", "requests/s", Quantity::PerSecond);
    if rows.is_empty() {
        return chart
            .about("From packets.")
            .series(wire.rate("arrived", |row| row.requests).color(0))
            .series(wire.rate("responses", |row| row.responses).color(2))
            .series(wire.rate("connections opened", |row| row.connections_opened).color(3));
    }
    chart = chart
        .about("Offered: scheduled in this second. Achieved: complete responses that ended in it.")
        .series(seconds("offered", rows, |row| row.offered as f64).color(0))
        .series(seconds("achieved", rows, |row| row.completed as f64).color(2));
    if !wire.rows.is_empty() {
        chart = chart.series(wire.rate("arrived (packets)", |row| row.requests));
    }
    if rows.iter().any(|row| row.failed > 0) {
        chart = chart.series(seconds("failed", rows, |row| row.failed as f64).color(3));
    }
    match &sources.document.load {
        Some(load) if load.loop_kind == "open" => {
            let mean = Quantity::PerSecond.text(load.offered_rate_per_s);
            chart.rule(load.offered_rate_per_s, format!("offered, mean: {mean}"))
        }
        _ => chart,
    }
}

fn in_flight(rows: &[SecondRecord], wire: &Wire<'_>) -> Chart {
    let about = match (rows.is_empty(), wire.rows.is_empty()) {
        (_, true) => "Mean of each second: started, not ended.",
        (true, false) => "Mean of each second: from the first byte of the request to the last byte of the response.",
        (false, false) => {
            "Mean of each second. Load: started, not ended. Wire: from the first byte of the request to the last byte of \
             the response at the server's end, so without the network delay."
        }
    };
    let mut chart = Chart::over_time("Requests in flight", "requests", Quantity::Count).about(about);
    if !rows.is_empty() {
        chart = chart.series(seconds("load", rows, |row| row.in_flight_mean).color(0));
    }
    if !wire.rows.is_empty() {
        chart = chart.series(wire.series("wire", |row| row.in_flight_mean));
    }
    if rows.iter().any(|row| row.backlog > 0) {
        chart = chart.series(seconds("backlog: scheduled, not started", rows, |row| row.backlog as f64).color(3));
    }
    chart
}

fn response_times(rows: &[SecondRecord], distributions: &[DistributionRecord]) -> Chart {
    let time = |value: fn(&SecondRecord) -> u64| {
        // A second without completed requests has no response time.
        move |row: &SecondRecord| if row.completed == 0 { f64::NAN } else { value(row) as f64 }
    };
    let values = || rows.iter().filter(|row| row.completed > 0);
    let low = values().map(|row| row.response_p50_ns).filter(|&ns| ns > 0).min().unwrap_or(1);
    let high = values().map(|row| row.response_max_ns).max().unwrap_or(1);
    let mut chart = Chart::over_time("Response time", "response time", Quantity::Nanoseconds)
        .about("Percentiles of the requests completed in each second.")
        .series(seconds("p50", rows, time(|row| row.response_p50_ns)).color(0));
    // Percentiles from buckets are less precise than those of the series, and are limited by those.
    let finer: BTreeMap<u32, &SecondRecord> = values().map(|row| (row.second, row)).collect();
    let by_buckets = |name: &str, quantile: f64, color: usize, ends: fn(&SecondRecord) -> (u64, u64)| {
        let fit = |(second, value): (u32, f64)| {
            let value = finer.get(&second).map_or(value, |row| between(value, ends(row)));
            (f64::from(second), value)
        };
        let points: Vec<(f64, f64)> = percentile(distributions, quantile).into_iter().map(fit).collect();
        Some(Series::seconds(name, points).color(color)).filter(|series| !series.is_empty())
    };
    chart.series.extend(by_buckets("p90", 0.9, 2, |row| (row.response_p50_ns, row.response_p99_ns)));
    chart = chart.series(seconds("p99", rows, time(|row| row.response_p99_ns)).color(1));
    chart.series.extend(by_buckets("p99.9", 0.999, 5, |row| (row.response_p99_ns, row.response_max_ns)));
    chart = chart.series(seconds("max", rows, time(|row| row.response_max_ns)).color(3).dashed());
    if high / low.max(1) > LOG_AXIS_RATIO {
        chart.y = Axis::log("response time", Quantity::Nanoseconds);
    }
    chart
}

/// A quantile of each second, from its buckets. Seconds with too few values are gaps.
fn percentile(rows: &[DistributionRecord], quantile: f64) -> Vec<(u32, f64)> {
    let mut values: Vec<(u32, f64)> = Vec::new();
    for second in rows.chunk_by(|one, next| one.second == next.second) {
        let filled = |row: &DistributionRecord| Filled { from_ns: row.from_ns, to_ns: row.to_ns, count: row.count };
        let mut buckets: Vec<Filled> = second.iter().map(filled).collect();
        buckets.sort_by_key(|bucket| bucket.from_ns);
        values.push((second[0].second, quantile_if_known(&buckets, quantile).unwrap_or(f64::NAN)));
    }
    values
}

fn heat(sources: &Sources) -> Heat {
    let cells = sources.distributions.iter().map(|row| HeatCell {
        second: row.second,
        from_ns: row.from_ns,
        to_ns: row.to_ns,
        count: row.count,
    });
    let heat = Heat::new("Distribution of response times over time", "response time", cells.collect()).about(
        "Requests that ended in each second, by their response time. Darker cells have more requests, on a logarithmic scale.",
    );
    // Without labels, which the cells would cover.
    let bands = phases(response_times(&sources.series, &[]), sources).bands.into_iter();
    Heat { bands: bands.map(|band| Band { label: String::new(), ..band }).collect(), ..heat }
}

/// CPU time of the server, from the kernel's counters.
fn server_cpu(rows: &[ServerSecond]) -> Chart {
    let line = |name: &str, value: &dyn Fn(&ServerSecond) -> f64| Series {
        shape: Shape::Step,
        ..Series::line(
            name,
            intervals(rows, &|row| if row.elapsed_s > 0.0 { value(row) / row.elapsed_s } else { f64::NAN }),
        )
    };
    let mut chart = Chart::over_time("Server CPU", "cores in use", Quantity::Count)
        .about("CPU seconds per second, of all processes of the server.");
    if rows.is_empty() {
        return chart;
    }
    let all = |row: &ServerSecond| row.cpu_user_s + row.cpu_system_s + row.cpu_receive_s.unwrap_or(0.0);
    chart = chart
        .series(line("total", &all).color(0))
        .series(line("user", &|row| row.cpu_user_s).color(2))
        .series(line("system", &|row| row.cpu_system_s).color(1));
    if rows.iter().any(|row| row.cpu_receive_s.is_some()) {
        chart = chart.series(line("receive processing", &|row| row.cpu_receive_s.unwrap_or(f64::NAN)).color(4));
    }
    chart
}

/// Memory of the server's processes.
pub(super) fn memory(rows: &[ServerSecond]) -> Chart {
    let chart = Chart::over_time("Server memory", "resident memory", Quantity::Bytes).about(
        "Of all processes of the server, at the end of each second; a page shared by several processes counts in each.",
    );
    if rows.is_empty() {
        return chart;
    }
    let points = intervals(rows, &|row| row.rss_bytes as f64);
    chart.series(Series { shape: Shape::Step, ..Series::line("resident", points) })
}

/// Each value as a line from the begin to the end of its interval.
fn intervals(rows: &[ServerSecond], value: &dyn Fn(&ServerSecond) -> f64) -> Vec<[f64; 2]> {
    let mut points = Vec::with_capacity(rows.len() + 1);
    for row in rows {
        points.push([(row.at_ns as f64 / 1e9 - row.elapsed_s).max(0.0), value(row)]);
    }
    points.extend(rows.last().map(|row| [row.at_ns as f64 / 1e9, value(row)]));
    points
}

/// Shades the warm-up, the phases, and the time after the measured phase.
fn phases(chart: Chart, sources: &Sources) -> Chart {
    let run = &sources.document.run;
    if sources.series.is_empty() {
        return chart;
    }
    let (from, to) = (LOAD_BEGINS_S + run.warmup_s, LOAD_BEGINS_S + run.warmup_s + run.duration_s);
    let ends = chart.series.iter().flat_map(|series| &series.points).map(|point| point[0]);
    let end = ends.filter(|end| end.is_finite()).fold(to, f64::max);
    let chart = if run.warmup_s > 0.0 { chart.band(0.0, from, "warm-up") } else { chart };
    let chart = super::phases::bands(chart, sources.document.load.as_ref(), from);
    chart.band(to, end, "after")
}

/// Time from the run's zero to its first request (docs/concepts/columns.md).
const LOAD_BEGINS_S: f64 = 0.05;
/// Ratio of maximum to median above which the axis is logarithmic, so that the median stays visible.
const LOG_AXIS_RATIO: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_second_are_interpolated_in_its_buckets() {
        let row = |second, from_ns, to_ns, count| DistributionRecord {
            second,
            measure: schema::Measure::ResponseTime,
            from_ns,
            to_ns,
            count,
        };
        let rows = [row(3, 200, 300, 10), row(3, 100, 200, 90), row(5, 100, 200, 4)];
        let found = percentile(&rows, 0.9);
        assert_eq!(found[0], (3, 200.0));
        assert!(found[1].0 == 5 && found[1].1.is_nan(), "four values have no p90");
        assert_eq!(percentile(&rows, 0.5)[0].1, 100.0 + 100.0 * 50.0 / 90.0);
        assert!(percentile(&[], 0.5).is_empty());
    }

    /// All requests took 150 ns, and their bucket is 100 to 200 ns.
    #[test]
    fn percentiles_from_buckets_stay_between_those_of_the_series() {
        let series = SecondRecord {
            second: 3,
            completed: 5000,
            response_p50_ns: 150,
            response_p99_ns: 150,
            response_max_ns: 150,
            ..SecondRecord::default()
        };
        let counts = DistributionRecord {
            second: 3,
            measure: schema::Measure::ResponseTime,
            from_ns: 100,
            to_ns: 200,
            count: 5000,
        };
        let chart = response_times(&[series], &[counts]);
        let values: Vec<f64> = chart.series.iter().map(|series| series.points[0][1]).collect();
        assert_eq!(values, [150.0; 5]);
    }

    #[test]
    fn server_cpu_is_divided_by_the_length_of_each_interval() {
        let row = |at_s: f64, cpu| ServerSecond {
            at_ns: (at_s * 1e9) as u64,
            elapsed_s: 1.25,
            cpu_user_s: cpu,
            ..ServerSecond::default()
        };
        let chart = server_cpu(&[row(1.25, 0.5), row(2.5, 1.0)]);
        assert_eq!(chart.series[0].points, [[0.0, 0.4], [1.25, 0.8], [2.5, 0.8]]);
        assert_eq!(chart.series.len(), 3);
        assert!(server_cpu(&[]).is_empty() && memory(&[]).is_empty());
    }
}
