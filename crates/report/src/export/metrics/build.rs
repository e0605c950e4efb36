//! Builds the metrics of a run, one function for each part of the run.

use std::collections::BTreeMap;

use schema::{CheckState, Quantiles, SecondRecord, ServerSecond, Verdict, WatchSecond};

use super::super::figures::{Figures, Measured};
use super::super::spread::BucketHistogram;
use super::{Kind, LABELS_MAX, Metric, Point, Series, Unit, Value};

/// All metrics for which the run has values.
pub fn metrics(figures: &Figures) -> Vec<Metric> {
    let mut builder = MetricBuilder { figures, metrics: Vec::new() };
    builder.load();
    builder.wire();
    builder.server();
    builder.totals();
    builder.metrics.retain_mut(|metric| {
        metric.series.retain(|series| !series.points.is_empty());
        !metric.series.is_empty()
    });
    builder.metrics
}

struct MetricBuilder<'a> {
    figures: &'a Figures,
    metrics: Vec<Metric>,
}

type Labels<'a> = &'a [(&'static str, &'a str)];

/// No labels other than the run.
const NO_LABELS: Labels<'static> = &[];

impl MetricBuilder<'_> {
    fn load(&mut self) {
        let figures = self.figures;
        let rows = &figures.series;
        let end = |row: &SecondRecord| figures.zero_unix_ms + (u64::from(row.second) + 1) * 1000;
        let zero = |_: &SecondRecord| figures.zero_unix_ms;
        let count = |value: fn(&SecondRecord) -> u64| rising(rows, zero, end, move |row| value(row) as f64);
        let level = |value: fn(&SecondRecord) -> f64| points(rows, end, move |row| Some(value(row)));
        let time = |value: fn(&SecondRecord) -> u64| points(rows, end, move |row| seconds_if_any(value(row)));
        let requests = Unit::Of("{request}");
        let connections = Unit::Of("{connection}");
        self.counter(
            "yamabiko_requests_offered_total",
            "Requests scheduled.",
            requests,
            [(NO_LABELS, count(|row| row.offered))],
        );
        self.counter(
            "yamabiko_requests_started_total",
            "Requests started.",
            requests,
            [(NO_LABELS, count(|row| row.started))],
        );
        self.counter(
            "yamabiko_requests_total",
            "Requests that ended, by outcome.",
            requests,
            [
                (&[("outcome", "completed")][..], count(|row| row.completed)),
                (&[("outcome", "failed")][..], count(|row| row.failed)),
            ],
        );
        self.counter(
            "yamabiko_connections_opened_total",
            "Connections for which connect was called.",
            connections,
            [(NO_LABELS, count(|row| row.connections_opened))],
        );
        self.counter(
            "yamabiko_received_bytes_total",
            "Response bytes of requests that ended.",
            Unit::Bytes,
            [(NO_LABELS, count(|row| row.bytes_received))],
        );
        self.gauge(
            "yamabiko_requests_in_flight",
            "Requests in flight, mean of the second.",
            requests,
            [(&[("vantage_point", "load")][..], level(|row| row.in_flight_mean))],
        );
        self.gauge(
            "yamabiko_connections",
            "Concurrent connections, opened and not closed, mean of the second.",
            connections,
            [(&[("vantage_point", "load")][..], level(|row| row.connections_mean))],
        );
        self.gauge(
            "yamabiko_requests_backlog",
            "Requests scheduled and not started, at the end of the second.",
            requests,
            [(NO_LABELS, level(|row| row.backlog as f64))],
        );
        self.gauge(
            "yamabiko_response_time_percentile_seconds",
            "Response time from the scheduled time to the last byte, of requests completed in the second; 100 is the maximum.",
            Unit::Seconds,
            [
                (&[("percentile", "50")][..], time(|row| row.response_p50_ns)),
                (&[("percentile", "99")][..], time(|row| row.response_p99_ns)),
                (&[("percentile", "100")][..], time(|row| row.response_max_ns)),
            ],
        );
        self.gauge(
            "yamabiko_send_lag_percentile_seconds",
            "Send lag of the load generator, of requests started in the second.",
            Unit::Seconds,
            [(&[("percentile", "99")][..], time(|row| row.send_lag_p99_ns))],
        );
        self.response_times();
    }

    /// A point at the run's zero and for each second of the run, also where no request was completed.
    fn response_times(&mut self) {
        let figures = self.figures;
        let Some(last) = figures.times.keys().chain(figures.series.iter().map(|row| &row.second)).max().copied() else {
            return;
        };
        if figures.times.is_empty() {
            return;
        }
        let first = figures.series.first().map_or(0, |row| row.second);
        let mut sum = BucketHistogram::default();
        figures.times.range(..first).for_each(|(_, spread)| sum.merge(spread));
        let points = (first..=last).map(|second| {
            figures.times.get(&second).into_iter().for_each(|spread| sum.merge(spread));
            let unix_ms = figures.zero_unix_ms + (u64::from(second) + 1) * 1000;
            Point { unix_ms, value: Value::BucketHistogram(Box::new(sum)) }
        });
        let zero = Point { unix_ms: figures.zero_unix_ms, value: Value::BucketHistogram(Box::default()) };
        let points = std::iter::once(zero).chain(points).collect();
        self.push(
            "yamabiko_response_time_seconds",
            "Response time from the scheduled time to the last byte, of completed requests.",
            Kind::Histogram,
            Unit::Seconds,
            [(NO_LABELS, points)],
        );
    }

    fn wire(&mut self) {
        let figures = self.figures;
        let rows = &figures.watch_series;
        // Seconds of a capture without a run count from 1970.
        let is_of_run = |row: &WatchSecond| row.second <= RUN_SECONDS_MAX;
        let zero = |row: &WatchSecond| if is_of_run(row) { figures.zero_unix_ms } else { row.second * 1000 };
        let end =
            |row: &WatchSecond| if is_of_run(row) { zero(row) + (row.second + 1) * 1000 } else { zero(row) + 1000 };
        let count = |value: fn(&WatchSecond) -> u64| rising(rows, zero, end, move |row| value(row) as f64);
        let level = |value: fn(&WatchSecond) -> f64| points(rows, end, move |row| Some(value(row)));
        let time = |value: fn(&WatchSecond) -> u64| points(rows, end, move |row| seconds_if_any(value(row)));
        let (packets, connections) = (Unit::Of("{packet}"), Unit::Of("{connection}"));
        let requests = Unit::Of("{request}");
        // A capture that cannot read connections or requests has none of these.
        let has = |is_some: fn(&WatchSecond) -> bool| rows.iter().any(is_some);
        if has(|row| row.data_packets > 0 || row.connections_max > 0) {
            self.join("yamabiko_connections", &[("vantage_point", "wire")], level(|row| row.connections_mean));
        }
        if has(|row| row.requests > 0) {
            self.join("yamabiko_requests_in_flight", &[("vantage_point", "wire")], level(|row| row.in_flight_mean));
        }
        self.counter(
            "yamabiko_wire_packets_total",
            "Captured packets of any protocol.",
            packets,
            [(NO_LABELS, count(|row| row.packets))],
        );
        self.counter(
            "yamabiko_wire_bytes_total",
            "Bytes of captured packets, link headers included.",
            Unit::Bytes,
            [(NO_LABELS, count(|row| row.bytes))],
        );
        self.counter(
            "yamabiko_wire_data_packets_total",
            "TCP packets with data.",
            packets,
            [(NO_LABELS, count(|row| row.data_packets))],
        );
        self.counter(
            "yamabiko_wire_retransmitted_packets_total",
            "TCP packets that repeat bytes sent before.",
            packets,
            [(NO_LABELS, count(|row| row.retransmitted_packets))],
        );
        self.counter(
            "yamabiko_wire_connections_opened_total",
            "Connections whose first SYN was captured.",
            connections,
            [(NO_LABELS, count(|row| row.connections_opened))],
        );
        self.counter(
            "yamabiko_wire_connections_closed_total",
            "Connections closed.",
            connections,
            [(NO_LABELS, count(|row| row.connections_closed))],
        );
        self.counter(
            "yamabiko_wire_requests_total",
            "HTTP requests whose first byte was captured.",
            requests,
            [(NO_LABELS, count(|row| row.requests))],
        );
        self.counter(
            "yamabiko_wire_responses_total",
            "HTTP responses whose last byte was captured.",
            requests,
            [(NO_LABELS, count(|row| row.responses))],
        );
        self.counter(
            "yamabiko_wire_capture_drops_total",
            "Packets lost by the capture.",
            packets,
            [(NO_LABELS, count(|row| row.capture_drops))],
        );
        self.gauge(
            "yamabiko_wire_handshake_rtt_percentile_seconds",
            "Handshake round-trip times of the second; 100 is the maximum.",
            Unit::Seconds,
            [
                (&[("percentile", "50")][..], time(|row| row.handshake_rtt_p50_ns)),
                (&[("percentile", "90")][..], time(|row| row.handshake_rtt_p90_ns)),
                (&[("percentile", "99")][..], time(|row| row.handshake_rtt_p99_ns)),
                (&[("percentile", "100")][..], time(|row| row.handshake_rtt_max_ns)),
            ],
        );
    }

    fn server(&mut self) {
        let figures = self.figures;
        let rows = &figures.server_series;
        let end = |row: &ServerSecond| figures.zero_unix_ms + row.at_ns / 1_000_000;
        // Resource usage is measured from the measured phase on.
        let begin = |row: &ServerSecond| end(row).saturating_sub((row.elapsed_s * 1e3) as u64);
        let sum = |value: fn(&ServerSecond) -> f64| rising(rows, begin, end, value);
        let mut cpu = vec![
            (&[("mode", "user")][..], sum(|row| row.cpu_user_s)),
            (&[("mode", "system")][..], sum(|row| row.cpu_system_s)),
        ];
        if rows.iter().any(|row| row.cpu_receive_s.is_some()) {
            cpu.push((&[("mode", "receive")][..], sum(|row| row.cpu_receive_s.unwrap_or(0.0))));
        }
        self.counter(
            "yamabiko_server_cpu_seconds_total",
            "CPU time of the server in the measured phase; receive is receive processing of the kernel.",
            Unit::Seconds,
            cpu,
        );
        if rows.iter().any(|row| row.throttled_s.is_some()) {
            self.counter(
                "yamabiko_server_throttled_seconds_total",
                "Time for which the CPU limit throttled the server.",
                Unit::Seconds,
                [(NO_LABELS, sum(|row| row.throttled_s.unwrap_or(0.0)))],
            );
        }
        self.gauge(
            "yamabiko_server_resident_memory_bytes",
            "Resident memory of all processes of the server.",
            Unit::Bytes,
            [(NO_LABELS, points(rows, end, |row| Some(row.rss_bytes as f64)))],
        );
        self.gauge(
            "yamabiko_server_open_fds",
            "Open file descriptors of all processes of the server.",
            Unit::Of("{descriptor}"),
            [(NO_LABELS, points(rows, end, |row| row.descriptors.map(|count| count as f64)))],
        );
    }

    /// Figures of the run as a whole, at its end.
    fn totals(&mut self) {
        let figures = self.figures;
        let ends = self.metrics.iter().flat_map(|metric| &metric.series).flat_map(|series| series.points.last());
        let unix_ms = ends.map(|point| point.unix_ms).max().unwrap_or(figures.zero_unix_ms);
        let at = |value: f64| vec![Point { unix_ms, value: Value::Number(value) }];
        let since_zero = |count: u64| {
            let zero = (figures.zero_unix_ms < unix_ms)
                .then_some(Point { unix_ms: figures.zero_unix_ms, value: Value::Number(0.0) });
            zero.into_iter().chain(at(count as f64)).collect::<Vec<_>>()
        };
        if let Some(measured) = &figures.measured {
            self.measured(measured, &at);
        }
        let rtts = [("configured", &figures.configured_rtt_ns), ("measured", &figures.measured_rtt_ns)];
        for (of, q) in rtts.into_iter().filter_map(|(of, q)| Some((of, q.as_ref().filter(|q| q.count > 0)?))) {
            for (percentile, ns) in percentiles(q) {
                let labels = [("of", of), ("percentile", percentile)];
                let help = "Round-trip times: configured for the path, one per client; measured in handshakes.";
                self.gauge("yamabiko_rtt_percentile_seconds", help, Unit::Seconds, [(&labels[..], at(seconds(ns)))]);
            }
        }
        for (cause, count) in bounded(&figures.drops) {
            let help = "Packets that the path dropped, by cause.";
            let labels = [("cause", cause.as_str())];
            self.counter("yamabiko_path_drops_total", help, Unit::Of("{packet}"), [(&labels[..], since_zero(count))]);
        }
        if let Some(validity) = &figures.validity {
            for verdict in [Verdict::Valid, Verdict::Suspect, Verdict::Invalid] {
                let is_it = if validity.verdict == verdict { 1.0 } else { 0.0 };
                let help = "1 for the verdict of the run, 0 for other verdicts; provisional during the run.";
                let labels = [("verdict", verdict.name())];
                self.gauge("yamabiko_run_verdict", help, Unit::One, [(&labels[..], at(is_it))]);
            }
            let ran = validity.checks.iter().filter(|check| matches!(check.state, CheckState::Ok | CheckState::Failed));
            for check in ran.take(LABELS_MAX) {
                let passed = if check.state == CheckState::Ok { 1.0 } else { 0.0 };
                let help = "1 for a validity check that passed, 0 for one that failed.";
                let labels = [("check", check.name.as_str())];
                self.gauge("yamabiko_check_ok", help, Unit::One, [(&labels[..], at(passed))]);
            }
        }
    }

    fn measured(&mut self, measured: &Measured, at: &impl Fn(f64) -> Vec<Point>) {
        let requests = Unit::Of("{request}");
        self.gauge(
            "yamabiko_measured_requests_offered",
            "Requests scheduled in the measured phase.",
            requests,
            [(NO_LABELS, at(measured.offered as f64))],
        );
        self.gauge(
            "yamabiko_measured_requests_completed",
            "Requests scheduled in the measured phase with a complete response.",
            requests,
            [(NO_LABELS, at(measured.completed as f64))],
        );
        for (cause, count) in bounded(&measured.failed) {
            let labels = [("cause", cause.as_str())];
            let help = "Failed requests of the measured phase, by cause.";
            self.gauge("yamabiko_measured_requests_failed", help, requests, [(&labels[..], at(count as f64))]);
        }
        for (status, count) in bounded(&measured.status) {
            let labels = [("status", status.as_str())];
            let help = "Responses of the measured phase, by status.";
            self.gauge("yamabiko_measured_responses", help, Unit::Of("{response}"), [(&labels[..], at(count as f64))]);
        }
        let times = [
            (
                "yamabiko_measured_response_time_percentile_seconds",
                "From the scheduled time to the last byte, of the measured phase; 100 is the maximum.",
                &measured.response_time_ns,
            ),
            (
                "yamabiko_measured_send_lag_percentile_seconds",
                "Send lag of the load generator in the measured phase; 100 is the maximum.",
                &measured.send_lag_ns,
            ),
        ];
        for (name, help, q) in times.into_iter().filter(|(.., q)| q.count > 0) {
            for (percentile, ns) in percentiles(q) {
                self.gauge(name, help, Unit::Seconds, [(&[("percentile", percentile)][..], at(seconds(ns)))]);
            }
        }
    }

    fn counter<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Unit,
        series: impl IntoIterator<Item = (Labels<'a>, Vec<Point>)>,
    ) {
        self.push(name, help, Kind::Counter, unit, series);
    }

    fn gauge<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Unit,
        series: impl IntoIterator<Item = (Labels<'a>, Vec<Point>)>,
    ) {
        self.push(name, help, Kind::Gauge, unit, series);
    }

    /// Adds a metric, or adds series to an existing metric of that name.
    fn push<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        unit: Unit,
        series: impl IntoIterator<Item = (Labels<'a>, Vec<Point>)>,
    ) {
        if !self.metrics.iter().any(|metric| metric.name == name) {
            self.metrics.push(Metric { name, help, kind, unit, series: Vec::new() });
        }
        series.into_iter().for_each(|(labels, points)| self.join(name, labels, points));
    }

    /// Adds a series to a metric that was added before.
    fn join(&mut self, name: &'static str, labels: Labels<'_>, points: Vec<Point>) {
        let mut labels: Vec<(&'static str, String)> =
            labels.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        labels.push(("run", self.figures.run.clone()));
        labels.sort();
        let metric = self.metrics.iter_mut().find(|metric| metric.name == name).expect("the metric was added before");
        metric.series.push(Series { labels, points });
    }
}

/// A point for each row that has a value.
fn points<R>(rows: &[R], end: impl Fn(&R) -> u64, value: impl Fn(&R) -> Option<f64>) -> Vec<Point> {
    rows.iter().filter_map(|row| Some(Point { unix_ms: end(row), value: Value::Number(value(row)?) })).collect()
}

/// A point for each row: the sum of its value and all before it. The first point is 0 at `begin` of the first row,
/// since Prometheus ignores what a counter counted before its first point.
fn rising<R>(rows: &[R], begin: impl Fn(&R) -> u64, end: impl Fn(&R) -> u64, value: impl Fn(&R) -> f64) -> Vec<Point> {
    let mut sum = 0.0;
    let began = rows.first().filter(|row| begin(row) < end(row));
    let began = began.map(|row| Point { unix_ms: begin(row), value: Value::Number(0.0) });
    let points = rows.iter().map(|row| {
        sum += value(row);
        Point { unix_ms: end(row), value: Value::Number(sum) }
    });
    began.into_iter().chain(points).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The tables have 0 for a second without values.
fn seconds_if_any(ns: u64) -> Option<f64> {
    (ns > 0).then(|| seconds(ns))
}

fn percentiles(q: &Quantiles) -> [(&'static str, u64); 7] {
    [("50", q.p50), ("75", q.p75), ("90", q.p90), ("95", q.p95), ("99", q.p99), ("99.9", q.p99_9), ("100", q.max)]
}

/// The largest counts, and the sum of the others, at most [`LABELS_MAX`] in all.
fn bounded(counts: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = counts.iter().map(|(name, &count)| (name.clone(), count)).collect();
    if all.len() > LABELS_MAX {
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let others = all.split_off(LABELS_MAX - 1);
        all.push(("other".to_owned(), others.iter().map(|(_, count)| count).sum()));
    }
    all
}

/// Larger seconds count from 1970: a run of as many seconds would take thirty years.
const RUN_SECONDS_MAX: u64 = 1_000_000_000;
