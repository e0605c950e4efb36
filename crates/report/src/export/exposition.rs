//! Metrics as text: Prometheus' exposition format 0.0.4, and OpenMetrics 1.0.
//!
//! [`prometheus`] has the newest value of every series, for a scrape. [`openmetrics`] has every second with its time,
//! for `promtool tsdb create-blocks-from openmetrics`, which imports a run of any age.
//!
//! Sources: Prometheus, "Exposition formats"; OpenMetrics 1.0.0.

use std::fmt::Write;

use super::metrics::{self, Kind, Metric, Point, Series, Value};

/// Content type of [`prometheus`].
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Content type of [`openmetrics`].
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The newest value of every series, without a time. A gauge without a value for some seconds is absent: without
/// responses there is no response time.
pub fn prometheus(metrics: &[Metric]) -> String {
    let mut text = String::new();
    let newest = metrics::end_ms(metrics);
    for metric in metrics {
        let is_past = |point: &&Point| metric.kind == Kind::Gauge && point.unix_ms + GAUGE_AGE_MAX_MS < newest;
        let last = |series: &&Series| series.points.last().is_some_and(|point| !is_past(&point));
        if !metric.series.iter().any(|series| last(&series)) {
            continue;
        }
        let _ = writeln!(text, "# HELP {} {}", metric.name, escaped_help(metric.help));
        let _ = writeln!(text, "# TYPE {} {}", metric.name, metric.kind.name());
        for series in metric.series.iter().filter(last) {
            series.points.last().into_iter().for_each(|point| samples(&mut text, metric, series, &point.value, None));
        }
    }
    text
}

/// Every point of every series with its time. A gauge is NaN from its first missing value until the next one.
pub fn openmetrics(metrics: &[Metric]) -> String {
    let mut text = String::new();
    let end = metrics::end_ms(metrics);
    let none = Value::Number(f64::NAN);
    for metric in metrics {
        // A counter's samples end in `_total`, its name does not.
        let family = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        let _ = writeln!(text, "# TYPE {family} {}", metric.kind.name());
        let unit = metric.unit.name();
        if !unit.is_empty() && family.ends_with(&format!("_{unit}")) {
            let _ = writeln!(text, "# UNIT {family} {unit}");
        }
        let _ = writeln!(text, "# HELP {family} {}", escaped(metric.help));
        for series in &metric.series {
            for (unix_ms, value) in series.values(metric.kind, end) {
                samples(&mut text, metric, series, value.unwrap_or(&none), Some(unix_ms));
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

/// Maximum age of the newest value of a gauge: parts of a run are read a second or two late.
const GAUGE_AGE_MAX_MS: u64 = 5000;

fn samples(text: &mut String, metric: &Metric, series: &Series, value: &Value, unix_ms: Option<u64>) {
    let mut line = |suffix: &str, edge: Option<f64>, value: f64| {
        let _ = write!(text, "{}{suffix}", metric.name);
        let mut labels: Vec<String> =
            series.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        labels.extend(edge.map(|edge| format!("le=\"{}\"", number(edge))));
        if !labels.is_empty() {
            let _ = write!(text, "{{{}}}", labels.join(","));
        }
        let _ = write!(text, " {}", number(value));
        if let Some(unix_ms) = unix_ms {
            let _ = write!(text, " {}.{:03}", unix_ms / 1000, unix_ms % 1000);
        }
        text.push('\n');
    };
    match value {
        Value::Number(value) => line("", None, *value),
        Value::BucketHistogram(spread) => {
            debug_assert_eq!(metric.kind, Kind::Histogram);
            spread.cumulative().for_each(|(edge, count)| line("_bucket", Some(edge), count as f64));
            line("_sum", None, spread.sum_s);
            line("_count", None, spread.count() as f64);
        }
    }
}

/// A number in both formats. OpenMetrics requires a point in bucket edges: `1.0`.
pub fn number(value: f64) -> String {
    if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else if value.is_nan() {
        "NaN".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// A label value or OpenMetrics help text, with backslash, line break and quote escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

/// Help text of format 0.0.4, which does not escape quotes.
fn escaped_help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Unit;
    use super::super::spread::BucketHistogram;
    use super::*;

    fn metric(kind: Kind, name: &'static str, values: Vec<Value>) -> Metric {
        let points = values.into_iter().zip(1..).map(|(value, at)| Point { unix_ms: at * 1000 + 5, value }).collect();
        let labels = vec![("run", "a\"b\\c\nd".to_owned())];
        Metric { name, help: "Help.", kind, unit: Unit::Of("{request}"), series: vec![Series { labels, points }] }
    }

    #[test]
    fn prometheus_text_has_the_newest_point_and_openmetrics_all_points() {
        let counter = [metric(Kind::Counter, "x_total", vec![Value::Number(1.0), Value::Number(2.5)])];
        let labels = r#"{run="a\"b\\c\nd"}"#;
        assert_eq!(
            prometheus(&counter),
            format!("# HELP x_total Help.\n# TYPE x_total counter\nx_total{labels} 2.5\n")
        );
        assert_eq!(
            openmetrics(&counter),
            format!("# TYPE x counter\n# HELP x Help.\nx_total{labels} 1.0 1.005\nx_total{labels} 2.5 2.005\n# EOF\n")
        );
    }

    #[test]
    fn gauge_without_a_recent_value_is_absent_from_a_scrape() {
        let old = metric(Kind::Gauge, "old", vec![Value::Number(1.0)]);
        let counter = metric(Kind::Counter, "old_total", vec![Value::Number(1.0)]);
        let of = |seconds: usize| {
            let new = metric(Kind::Gauge, "new", vec![Value::Number(2.0); seconds]);
            prometheus(&[old.clone(), counter.clone(), new])
        };
        assert!(of(6).contains("\nold{") && !of(7).contains("old{"));
        assert!(of(7).contains("\nold_total{") && of(7).contains("\nnew{"));
    }

    #[test]
    fn gauge_is_nan_from_the_first_missing_point() {
        let mut stalled = metric(Kind::Gauge, "g", vec![Value::Number(1.0), Value::Number(2.0), Value::Number(3.0)]);
        stalled.series[0].points[2].unix_ms += 10_000;
        stalled.series[0].labels.clear();
        let mut counter = Metric { kind: Kind::Counter, name: "c_total", ..stalled.clone() };
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(
            lines(&openmetrics(std::slice::from_ref(&stalled))),
            ["g 1.0 1.005", "g 2.0 2.005", "g NaN 3.005", "g 3.0 13.005"]
        );
        // A counter keeps its value; a gauge that ended before the run ends at its last point.
        assert_eq!(
            lines(&openmetrics(std::slice::from_ref(&counter))),
            ["c_total 1.0 1.005", "c_total 2.0 2.005", "c_total 3.0 13.005"]
        );
        stalled.series[0].points.truncate(2);
        counter.series[0].points.drain(..2);
        assert_eq!(
            lines(&openmetrics(&[stalled, counter])),
            ["g 1.0 1.005", "g 2.0 2.005", "g NaN 3.005", "c_total 3.0 13.005"]
        );
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let mut spread = BucketHistogram::default();
        spread.add(100_000, 100_000, 3);
        spread.add(90_000_000_000, 90_000_000_000, 1);
        let text = prometheus(&[metric(Kind::Histogram, "h_seconds", vec![Value::BucketHistogram(Box::new(spread))])]);
        let labels = r#"run="a\"b\\c\nd""#;
        for line in [
            format!("h_seconds_bucket{{{labels},le=\"0.0001\"}} 3.0"),
            format!("h_seconds_bucket{{{labels},le=\"60.0\"}} 3.0"),
            format!("h_seconds_bucket{{{labels},le=\"+Inf\"}} 4.0"),
            format!("h_seconds_count{{{labels}}} 4.0"),
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
        assert!(text.contains("h_seconds_sum"));
    }

    #[test]
    fn numbers_are_written_in_the_exposition_format() {
        assert_eq!([0.0, 1.0, 1e-9, f64::INFINITY, f64::NAN].map(number), ["0.0", "1.0", "1e-9", "+Inf", "NaN"]);
    }
}
