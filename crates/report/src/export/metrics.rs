//! A run as metrics: names and units by Prometheus' conventions, a point for each second.
//!
//! Counters count from the run's zero, where they have a point 0, its warm-up included, and never fall. What a document says of the measured phase alone
//! is in metrics that begin with `yamabiko_measured_`, with the run's last second for a time. Every name, label and meaning
//! is listed in docs/concepts/exports.md; labels take few values, all known beforehand but for statuses and causes, which
//! [`LABELS_MAX`] bounds.
//!
//! `offered` and `started` of the newest seconds of a run that goes on may yet grow: whoever scrapes it sees that as a rate that
//! came a little late.

mod build;
#[cfg(test)]
mod tests;

pub use build::metrics;

use super::spread::Spread;

/// One metric with all its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Prometheus' name: unit and `_total` included, without what a histogram's samples add.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it is in.
    pub unit: Unit,
    /// At least one.
    pub series: Vec<Series>,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never falls.
    Counter,
    /// May rise and fall.
    Gauge,
    /// Values counted in buckets; never falls.
    Histogram,
}

impl Kind {
    /// As in Prometheus' text.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// What a metric is in. Prometheus wants base units, and their names at the end of the metric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A count of what OpenTelemetry writes in braces, such as `{request}`.
    Of(&'static str),
    /// A figure between 0 and 1, or 0 or 1.
    One,
}

impl Unit {
    /// As OpenMetrics names it; empty for a count.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::Of(_) | Unit::One => "",
        }
    }

    /// As UCUM writes it, which OpenTelemetry follows; empty for a figure without a unit.
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

/// Points that have the same labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values, sorted by name.
    pub labels: Vec<(&'static str, String)>,
    /// In the order of time, no two at one moment.
    pub points: Vec<Point>,
}

impl Series {
    /// Its values in the order of time, and `None` at each moment from which on a level has no value: where the next point
    /// would have stood, had there been one. Whoever keeps the last value for a while (a Prometheus for five minutes) would
    /// show a level through the very seconds in which there was none. `end_ms`: the last moment of all series
    /// ([`end_ms`]).
    pub fn values(&self, kind: Kind, end_ms: u64) -> impl Iterator<Item = (u64, Option<&Value>)> {
        let nexts = self.points.iter().skip(1).map(|point| point.unix_ms).chain([end_ms]);
        self.points.iter().zip(nexts).flat_map(move |(point, next)| {
            let ends = kind == Kind::Gauge && next >= point.unix_ms + HOLE_MS;
            let hole = ends.then_some((point.unix_ms + SECOND_MS, None));
            std::iter::once((point.unix_ms, Some(&point.value))).chain(hole)
        })
    }
}

/// The last moment at which any series has a point; 0 without points.
pub fn end_ms(metrics: &[Metric]) -> u64 {
    let ends = metrics.iter().flat_map(|metric| &metric.series).filter_map(|series| series.points.last());
    ends.map(|point| point.unix_ms).max().unwrap_or_default()
}

/// What lies between the points of a level.
const SECOND_MS: u64 = 1000;
/// So far apart are points between which one is missing: seconds of the server are read some milliseconds early or late.
const HOLE_MS: u64 = 1500;

/// A value at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// What it was.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter or a gauge.
    Number(f64),
    /// Of a histogram; boxed, since it is large.
    Spread(Box<Spread>),
}

impl Metric {
    /// The name without what Prometheus adds for unit and kind, in OpenTelemetry's way of writing: `yamabiko.response_time`.
    /// Prometheus adds them again when it takes metrics from there.
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

/// Values of a label that the run does not bound by itself (statuses, causes); those beyond it go together as `other`.
pub const LABELS_MAX: usize = 64;
