//! Names and values of metrics, and the dashboard that queries them.

use std::collections::{BTreeMap, BTreeSet};

use schema::document::{Load, Path, Run, SCHEMA};
use schema::{
    Check, CheckState, DistributionRecord, Document, Measure, Quantiles, SecondRecord, ServerSecond, Validity,
    WatchSecond, document::Weight,
};

use super::super::Figures;
use super::*;

/// A run with every part.
fn whole() -> Figures {
    let q = Quantiles { count: 3, p50: 48_000_000, max: 3_000_000_000, ..Quantiles::default() };
    let check = |name: &str, state| Check {
        name: name.into(),
        state,
        weight: Weight::Invalid,
        value: None,
        limit: None,
        unit: String::new(),
        why: String::new(),
    };
    let document = Document {
        schema: SCHEMA.into(),
        run: Run { id: "a-run".into(), started_at: "2026-11-20T09:30:05.000Z".into(), ..Run::default() },
        validity: Validity::from_checks(vec![
            check("send_lag", CheckState::Ok),
            check("timing_error", CheckState::Failed),
            check("tap", CheckState::NotApplicable),
        ]),
        load: Some(Load {
            offered_requests: 30,
            completed: 27,
            failed: BTreeMap::from([("reset".to_owned(), 3)]),
            status: BTreeMap::from([("200".to_owned(), 27)]),
            response_time_ns: q,
            send_lag_ns: q,
            ..Load::default()
        }),
        path: Some(Path {
            configured_rtt_ns: q,
            measured_rtt_ns: Some(q),
            drops: BTreeMap::from([("loss".to_owned(), 2)]),
            ..Path::default()
        }),
        watch: None,
        tap: None,
        server: None,
        slo: None,
        cache: None,
    };
    let mut figures = Figures::of_document(&document).with_distributions(&[
        DistributionRecord {
            second: 0,
            measure: Measure::ResponseTime,
            from_ns: 45_000_000,
            to_ns: 48_000_000,
            count: 9,
        },
        DistributionRecord { second: 2, measure: Measure::ResponseTime, from_ns: 1 << 31, to_ns: 9 << 28, count: 18 },
    ]);
    figures.series = (0..3)
        .map(|second| SecondRecord {
            second,
            offered: 10,
            started: 10,
            completed: if second == 1 { 0 } else { 9 * (u64::from(second) / 2 + 1) },
            failed: u64::from(second == 2) * 3,
            in_flight_mean: 1.5,
            response_p50_ns: if second == 1 { 0 } else { 48_000_000 },
            send_lag_p99_ns: 1000,
            ..SecondRecord::default()
        })
        .collect();
    figures.watch_series = (0..3)
        .map(|second| WatchSecond {
            second,
            packets: 100,
            data_packets: 60,
            connections_mean: 4.0,
            handshake_rtt_p50_ns: 5,
            ..WatchSecond::default()
        })
        .collect();
    figures.server_series = (0..2u32)
        .map(|second| ServerSecond {
            second,
            at_ns: (u64::from(second) + 1) * 1_000_500_000,
            elapsed_s: 0.5,
            cpu_user_s: 0.25,
            cpu_receive_s: Some(0.5),
            throttled_s: Some(0.1),
            descriptors: Some(9),
            ..ServerSecond::default()
        })
        .collect();
    figures
}

fn series<'a>(metrics: &'a [Metric], name: &str, label: &str) -> &'a Series {
    let metric = metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}"));
    metric
        .series
        .iter()
        .find(|series| label.is_empty() || series.labels.iter().any(|(_, value)| value == label))
        .unwrap()
}

fn values(metrics: &[Metric], name: &str, label: &str) -> Vec<f64> {
    let number = |point: &Point| if let Value::Number(value) = point.value { value } else { f64::NAN };
    series(metrics, name, label).points.iter().map(number).collect()
}

const ZERO_MS: u64 = 1_795_167_005_000;

#[test]
fn counters_are_cumulative_and_gauges_are_not() {
    let metrics = metrics(&whole());
    assert_eq!(values(&metrics, "yamabiko_requests_offered_total", ""), [0.0, 10.0, 20.0, 30.0]);
    assert_eq!(values(&metrics, "yamabiko_requests_total", "completed"), [0.0, 9.0, 9.0, 27.0]);
    assert_eq!(values(&metrics, "yamabiko_requests_total", "failed"), [0.0, 0.0, 0.0, 3.0]);
    assert_eq!(values(&metrics, "yamabiko_requests_in_flight", "load"), [1.5; 3]);
    assert_eq!(values(&metrics, "yamabiko_connections", "wire"), [4.0; 3]);
    assert_eq!(values(&metrics, "yamabiko_server_cpu_seconds_total", "receive"), [0.0, 0.5, 1.0]);
    assert_eq!(values(&metrics, "yamabiko_path_drops_total", "loss"), [0.0, 2.0]);
    // Counters begin at the run's zero; those of the server at its first reading.
    for name in ["yamabiko_requests_offered_total", "yamabiko_wire_packets_total", "yamabiko_path_drops_total"] {
        assert_eq!(series(&metrics, name, "").points[0].unix_ms, ZERO_MS, "{name}");
    }
    assert_eq!(series(&metrics, "yamabiko_server_cpu_seconds_total", "user").points[0].unix_ms, ZERO_MS + 500);
    // A second in which nothing was completed has no percentile.
    let p50 = series(&metrics, "yamabiko_response_time_percentile_seconds", "50");
    assert_eq!(p50.points.iter().map(|point| point.unix_ms).collect::<Vec<_>>(), [ZERO_MS + 1000, ZERO_MS + 3000]);
    assert_eq!(series(&metrics, "yamabiko_server_open_fds", "").points[0].unix_ms, ZERO_MS + 1000);
}

#[test]
fn response_time_histogram_has_a_point_for_every_second() {
    let metrics = metrics(&whole());
    let points = &series(&metrics, "yamabiko_response_time_seconds", "").points;
    let spreads: Vec<&BucketHistogram> = points
        .iter()
        .map(|point| if let Value::BucketHistogram(spread) = &point.value { &**spread } else { panic!() })
        .collect();
    assert_eq!(spreads.iter().map(|spread| spread.count()).collect::<Vec<_>>(), [0, 9, 9, 27]);
    let below = |edge: f64| spreads[3].cumulative().find(|(known, _)| *known == edge).unwrap().1;
    assert_eq!((below(0.025), below(0.05), below(2.0), below(3.0)), (0, 9, 9, 27));
}

#[test]
fn figures_of_the_document_are_points_at_the_end_of_the_run() {
    let metrics = metrics(&whole());
    assert_eq!(values(&metrics, "yamabiko_measured_requests_failed", "reset"), [3.0]);
    assert_eq!(values(&metrics, "yamabiko_measured_response_time_percentile_seconds", "100"), [3.0]);
    assert_eq!(values(&metrics, "yamabiko_rtt_percentile_seconds", "configured"), [0.048]);
    assert_eq!(values(&metrics, "yamabiko_run_verdict", "invalid"), [1.0]);
    assert_eq!(values(&metrics, "yamabiko_run_verdict", "valid"), [0.0]);
    let checks: Vec<(&str, f64)> = [("send_lag", 1.0), ("timing_error", 0.0)].to_vec();
    for (check, expected) in checks {
        assert_eq!(values(&metrics, "yamabiko_check_ok", check), [expected]);
    }
    let ends = metrics.iter().flat_map(|metric| &metric.series).map(|series| series.points.last().unwrap().unix_ms);
    assert_eq!(ends.max(), Some(ZERO_MS + 3000));
}

/// The seconds of a capture without a run count from 1970; the zero is the begin of the first second.
#[test]
fn metrics_of_a_capture_without_a_run_begin_with_its_first_second() {
    let mut figures = whole();
    for row in &mut figures.watch_series {
        row.second += 1_795_000_000;
    }
    let metrics = metrics(&figures);
    let points = &series(&metrics, "yamabiko_wire_packets_total", "").points;
    let times_ms: Vec<u64> = points.iter().map(|point| point.unix_ms - 1_795_000_000_000).collect();
    assert_eq!(times_ms, [0, 1000, 2000, 3000]);
}

#[test]
fn metric_names_follow_the_conventions_and_labels_are_sorted() {
    let metrics = metrics(&whole());
    let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), metrics.len());
    for metric in &metrics {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        let base = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        assert!(metric.unit.name().is_empty() || base.ends_with(metric.unit.name()), "{}", metric.name);
        assert!(metric.help.ends_with('.'));
        let open_telemetry = metric.open_telemetry_name();
        assert!(open_telemetry.starts_with("yamabiko.") && !open_telemetry.ends_with('_'), "{open_telemetry}");
        for series in &metric.series {
            assert!(
                series.labels.is_sorted()
                    && series.labels.iter().any(|(name, value)| *name == "run" && value == "a-run")
            );
            assert!(series.points.windows(2).all(|pair| pair[0].unix_ms < pair[1].unix_ms));
        }
    }
    assert_eq!(
        metrics.iter().find(|m| m.name == "yamabiko_response_time_seconds").unwrap().open_telemetry_name(),
        "yamabiko.response_time"
    );
}

#[test]
fn run_without_a_load_has_no_load_metrics() {
    let mut figures = whole();
    (figures.series, figures.measured) = (Vec::new(), None);
    figures.times.clear();
    let metrics = metrics(&figures);
    let of_load = ["yamabiko_requests_total", "yamabiko_response_time_seconds", "yamabiko_measured_requests_offered"];
    assert!(metrics.iter().all(|metric| !of_load.contains(&metric.name)));
    // Only the gauge of the packet capture exists.
    assert_eq!(metrics.iter().find(|metric| metric.name == "yamabiko_connections").unwrap().series.len(), 1);
}

/// A capture of QUIC, or of TLS, has no zeros where nothing was read.
#[test]
fn what_the_capture_could_not_read_is_absent() {
    let mut figures = whole();
    let of_wire = |figures: &Figures, name: &str| {
        let metrics = metrics(figures);
        let metric = metrics.into_iter().find(|metric| metric.name == name);
        metric.is_some_and(|m| m.series.iter().any(|s| s.labels.iter().any(|(_, value)| value == "wire")))
    };
    assert!(of_wire(&figures, "yamabiko_connections"));
    assert!(!of_wire(&figures, "yamabiko_requests_in_flight"));
    figures.watch_series.iter_mut().for_each(|row| row.data_packets = 0);
    assert!(!of_wire(&figures, "yamabiko_connections"));
}

#[test]
fn number_of_label_values_is_bounded() {
    let mut figures = whole();
    let measured = figures.measured.as_mut().unwrap();
    measured.status = (0..1000u64).map(|status| (format!("{status:03}"), status)).collect();
    let metrics = metrics(&figures);
    let responses = metrics.iter().find(|metric| metric.name == "yamabiko_measured_responses").unwrap();
    let sum: f64 =
        responses.series.iter().map(|series| if let Value::Number(n) = series.points[0].value { n } else { 0.0 }).sum();
    assert_eq!((responses.series.len(), sum), (LABELS_MAX, (0..1000).sum::<u64>() as f64));
}

/// Every metric that Grafana's dashboard queries is exported.
#[test]
fn dashboard_queries_only_existing_metrics_and_labels() {
    let text = include_str!("../../../../../examples/grafana/yamabiko.json");
    let board: serde_json::Value = serde_json::from_str(text).unwrap();
    let metrics = metrics(&whole());
    let mut known: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for metric in &metrics {
        let labels: BTreeSet<&str> =
            metric.series.iter().flat_map(|series| series.labels.iter().map(|(name, _)| *name)).collect();
        match metric.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"].iter().for_each(|suffix| {
                known.insert(format!("{}{suffix}", metric.name), labels.clone());
            }),
            _ => drop(known.insert(metric.name.to_owned(), labels)),
        }
    }
    let mut queried = BTreeSet::new();
    let panels = board["panels"].as_array().unwrap();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("run=~\"$run\""), "{expression}");
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = expression.split(|c: char| !is_word(c)).filter(|word| word.starts_with("yamabiko_"));
            let words: Vec<&str> = words.collect();
            assert!(!words.is_empty(), "{expression}");
            queried.extend(words.into_iter().map(str::to_owned));
        }
    }
    let unknown: Vec<&String> = queried.iter().filter(|name| !known.contains_key(*name)).collect();
    assert!(unknown.is_empty() && queried.len() > 15, "{unknown:?} of {}", queried.len());
    assert!(panels.iter().filter(|panel| panel["type"] != "row").all(|panel| {
        panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()) && panel["title"].is_string()
    }));
}
