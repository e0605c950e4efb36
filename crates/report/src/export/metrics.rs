//! A run as metrics: names and units by the conventions of Prometheus, a point for each second.
//!
//! Counters start at 0 at the run's zero and include the warm-up. Figures of the measured phase alone are in metrics
//! that begin with `yamabiko_measured_`, at the run's last second. docs/concepts/exports.md lists every name and label.
//! Labels have few values, all fixed except statuses and causes, which [`LABELS_MAX`] bounds.
//!
//! During a run `offered` and `started` of the newest seconds may still grow; a scraper sees the rate a little late.

mod build;
#[cfg(test)]
mod tests;

pub use build::metrics;

use super::spread::BucketHistogram;

/// One metric with all its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Prometheus' name, with unit and `_total`, without the suffixes of histogram samples.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Unit of the values.
    pub unit: Unit,
    /// The series, at least one.
    pub series: Vec<Series>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A counter: never falls.
    Counter,
    /// A gauge: rises and falls.
    Gauge,
    /// A histogram: values counted in buckets; never falls.
    Histogram,
}

impl Kind {
    /// The name in Prometheus' text format.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Unit of a metric. Prometheus requires base units, whose names end the name of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A count, with the name that OpenTelemetry writes in braces, such as `{request}`.
    Of(&'static str),
    /// A figure between 0 and 1, or 0 or 1.
    One,
}

impl Unit {
    /// The unit's name in OpenMetrics; empty for a count.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::Of(_) | Unit::One => "",
        }
    }

    /// The unit in UCUM, as OpenTelemetry requires; empty for a figure without a unit.
    pub const fn ucum(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Bytes => "By",
            Unit::Of(what) => what,
            // "1" would make Prometheus add `_ratio`.
            Unit::One => "",
        }
    }
}

/// Points with the same labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values, sorted by name.
    pub labels: Vec<(&'static str, String)>,
    /// The points in order of time, with distinct times.
    pub points: Vec<Point>,
}

impl Series {
    /// Values in order of time, and `None` where a gauge has no value from there on, at the time of its next expected
    /// point. Without that mark Prometheus would repeat the last value for five minutes. `end_ms`: the last time of all
    /// series ([`end_ms`]).
    pub fn values(&self, kind: Kind, end_ms: u64) -> impl Iterator<Item = (u64, Option<&Value>)> {
        let nexts = self.points.iter().skip(1).map(|point| point.unix_ms).chain([end_ms]);
        self.points.iter().zip(nexts).flat_map(move |(point, next)| {
            let ends = kind == Kind::Gauge && next >= point.unix_ms + HOLE_MS;
            let hole = ends.then_some((point.unix_ms + SECOND_MS, None));
            std::iter::once((point.unix_ms, Some(&point.value))).chain(hole)
        })
    }
}

/// The last time at which any series has a point; 0 without points.
pub fn end_ms(metrics: &[Metric]) -> u64 {
    let ends = metrics.iter().flat_map(|metric| &metric.series).filter_map(|series| series.points.last());
    ends.map(|point| point.unix_ms).max().unwrap_or_default()
}

/// Time between points of a gauge.
const SECOND_MS: u64 = 1000;
/// Time between points from which on one is missing: seconds of the server are read some milliseconds early or late.
const HOLE_MS: u64 = 1500;

/// A value at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Value of a counter or a gauge.
    Number(f64),
    /// Value of a histogram; boxed because of its size.
    BucketHistogram(Box<BucketHistogram>),
}

impl Metric {
    /// The name in OpenTelemetry's form, without the suffixes for unit and kind: `yamabiko.response_time`. Prometheus
    /// adds the suffixes again when it receives OTLP metrics.
    pub fn open_telemetry_name(&self) -> String {
        let bare = self.name.strip_suffix("_total").unwrap_or(self.name);
        let unit = self.unit.name();
        let bare = if unit.is_empty() {
            bare
        } else {
            bare.strip_suffix(unit).map_or(bare, |rest| rest.trim_end_matches('_'))
        };
        bare.replacen('_', ".", 1)
    }
}

/// Most values of a label that the run does not bound itself (statuses, causes); further ones are summed as `other`.
pub const LABELS_MAX: usize = 64;
