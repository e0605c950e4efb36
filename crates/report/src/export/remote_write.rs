//! Metrics as messages of Prometheus' remote write 1.0: protobuf in snappy's block format.
//!
//! A run is split into messages by time, so that the samples of each series are in order; send the messages one after
//! the other. A stale marker follows the last value before a gap of a gauge, so that no line is drawn through the gap.
//! Every series has a stale marker after the run, so that a dashboard's line ends with the run.
//!
//! Source: Prometheus Remote-Write 1.0 specification; `prompb/types.proto`.

use prost::Message;

use super::exposition;
use super::metrics::{self, Kind, Metric, Value};

/// Values of the header `Content-Type`.
pub const CONTENT_TYPE: &str = "application/x-protobuf";
/// Name and value of the header with the protocol version.
pub const VERSION: (&str, &str) = ("X-Prometheus-Remote-Write-Version", "0.1.0");

/// One message.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// Series, each with its samples.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
    /// Descriptions of the metrics, which Prometheus shows.
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<MetricMetadata>,
}

/// Samples with the same labels.
#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    /// Labels sorted by name, including `__name__`.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Samples sorted by time.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

/// A name and a value.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A value with its time.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    /// Value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// Description of a metric.
#[derive(Clone, PartialEq, Message)]
pub struct MetricMetadata {
    /// Kind: 1 counter, 2 gauge, 3 histogram.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// Name of the metric.
    #[prost(string, tag = "2")]
    pub metric_family_name: String,
    /// Help text, one sentence.
    #[prost(string, tag = "4")]
    pub help: String,
    /// Unit.
    #[prost(string, tag = "5")]
    pub unit: String,
}

/// The metrics in messages of at most about [`SAMPLES_MAX`] samples, in the order in which to send them.
pub fn messages(metrics: &[Metric]) -> Vec<WriteRequest> {
    let mut series = flat(metrics);
    let times = series.iter().flat_map(|series| series.samples.iter().map(|sample| sample.timestamp));
    let Some(last) = times.max() else { return Vec::new() };
    for series in &mut series {
        // Markers at the end follow every sample of the run, since a marker ends its series.
        series.samples.push(Sample { value: f64::from_bits(STALE), timestamp: last + 1 });
    }
    // Each message has all series up to a time, with as many times as fit.
    let mut times: Vec<i64> = series.iter().flat_map(|series| series.samples.iter().map(|s| s.timestamp)).collect();
    times.sort_unstable();
    let (mut messages, mut at, mut sent) = (Vec::new(), vec![0; series.len()], 0);
    while sent < times.len() {
        let until = times[(sent + SAMPLES_MAX).min(times.len()) - 1];
        sent = times.partition_point(|&time| time <= until);
        let mut message = WriteRequest::default();
        for (series, at) in series.iter().zip(&mut at) {
            let from = *at;
            *at += series.samples[from..].partition_point(|sample| sample.timestamp <= until);
            if *at > from {
                let samples = series.samples[from..*at].to_vec();
                message.timeseries.push(TimeSeries { labels: series.labels.clone(), samples });
            }
        }
        messages.push(message);
    }
    if let Some(first) = messages.first_mut() {
        first.metadata = metrics.iter().map(metadata).collect();
    }
    messages
}

/// The bytes of a message as sent.
pub fn body(message: &WriteRequest) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    snap::raw::Encoder::new().compress_vec(&bytes).expect("a message is far below snappy's 4 GiB")
}

/// Largest number of samples in a message: the default of Prometheus' own senders.
pub const SAMPLES_MAX: usize = 2000;

/// All series, with a series for each bucket of a histogram, and markers at the start of gaps of gauges.
fn flat(metrics: &[Metric]) -> Vec<TimeSeries> {
    let mut all = Vec::new();
    let end = metrics::end_ms(metrics);
    for metric in metrics {
        for series in &metric.series {
            let labelled = |suffix: &str, edge: Option<f64>| {
                let mut labels = vec![
                    Label { name: "__name__".to_owned(), value: format!("{}{suffix}", metric.name) },
                    Label { name: "job".to_owned(), value: "yamabiko".to_owned() },
                ];
                let of = |&(name, ref value): &(&str, String)| Label { name: name.to_owned(), value: value.clone() };
                labels.extend(series.labels.iter().map(of));
                labels.extend(edge.map(|edge| Label { name: "le".to_owned(), value: exposition::number(edge) }));
                labels.sort_by(|left, right| left.name.cmp(&right.name));
                labels
            };
            let samples = |take: &dyn Fn(&Value) -> f64| {
                let of = |(unix_ms, value): (u64, Option<&Value>)| Sample {
                    value: value.map_or(f64::from_bits(STALE), take),
                    timestamp: i64::try_from(unix_ms).unwrap_or(i64::MAX - 1),
                };
                series.values(metric.kind, end).map(of).collect::<Vec<_>>()
            };
            let mut add = |suffix: &str, edge: Option<f64>, take: &dyn Fn(&Value) -> f64| {
                all.push(TimeSeries { labels: labelled(suffix, edge), samples: samples(take) });
            };
            if metric.kind != Kind::Histogram {
                add("", None, &|value| if let Value::Number(value) = value { *value } else { f64::NAN });
                continue;
            }
            let edges: Vec<f64> = super::spread::BOUNDS_S.into_iter().chain([f64::INFINITY]).collect();
            for (bucket, edge) in edges.into_iter().enumerate() {
                add("_bucket", Some(edge), &|value| match value {
                    Value::BucketHistogram(spread) => spread.counts[..=bucket].iter().sum::<u64>() as f64,
                    Value::Number(_) => f64::NAN,
                });
            }
            add("_sum", None, &|value| {
                if let Value::BucketHistogram(spread) = value { spread.sum_s } else { f64::NAN }
            });
            add("_count", None, &|value| {
                if let Value::BucketHistogram(spread) = value { spread.count() as f64 } else { f64::NAN }
            });
        }
    }
    all
}

fn metadata(metric: &Metric) -> MetricMetadata {
    let kind = match metric.kind {
        Kind::Counter => 1,
        Kind::Gauge => 2,
        Kind::Histogram => 3,
    };
    MetricMetadata {
        kind,
        metric_family_name: metric.name.to_owned(),
        help: metric.help.to_owned(),
        unit: metric.unit.name().to_owned(),
    }
}

/// The NaN that marks the end of a series in Prometheus, permanently or until the next sample.
const STALE: u64 = 0x7ff0_0000_0000_0002;

#[cfg(test)]
mod tests {
    use super::super::metrics::{Point, Series, Unit};
    use super::*;

    fn gauge(points: u64) -> Metric {
        let points = (1..=points).map(|at| Point { unix_ms: at * 1000, value: Value::Number(at as f64) }).collect();
        let series = Series { labels: vec![("run", "r".to_owned()), ("vantage_point", "load".to_owned())], points };
        Metric { name: "g", help: "Help.", kind: Kind::Gauge, unit: Unit::One, series: vec![series.clone(), series] }
    }

    #[test]
    fn remote_write_messages_are_bounded_and_in_time_order() {
        for points in [1, 999, 1000, 2500] {
            let messages = messages(&[gauge(points)]);
            assert!(messages.iter().all(|message| {
                // Several series may have a sample at the time at which a message is full.
                message.timeseries.iter().map(|series| series.samples.len()).sum::<usize>() <= SAMPLES_MAX + 1
            }));
            assert_eq!(messages.iter().filter(|message| !message.metadata.is_empty()).count(), 1);
            let first: Vec<Sample> =
                messages.iter().flat_map(|message| message.timeseries[0].samples.iter().copied()).collect();
            assert_eq!(first.len() as u64, points + 1);
            assert!(first.windows(2).all(|pair| pair[0].timestamp < pair[1].timestamp));
            assert_eq!(first.last().unwrap().value.to_bits(), STALE);
        }
        assert!(messages(&[]).is_empty());
    }

    /// The value that Prometheus reads at a time: the newest sample of the five minutes before, unless it is a marker.
    fn seen(samples: &[Sample], at: i64) -> Option<f64> {
        let newest = samples.iter().rfind(|sample| sample.timestamp <= at && at - sample.timestamp < 300_000)?;
        (newest.value.to_bits() != STALE).then_some(newest.value)
    }

    #[test]
    fn gap_of_a_gauge_has_a_stale_marker() {
        let mut stalled = gauge(20);
        // Nothing between 5 and 15 s; the other series ends at 12 s, eight before the run.
        stalled.series[0].points.retain(|point| !(5_001..15_000).contains(&point.unix_ms));
        stalled.series[1].points.truncate(12);
        let sent = messages(std::slice::from_ref(&stalled));
        let samples = &sent[0].timeseries[0].samples;
        assert!(samples.windows(2).all(|pair| pair[0].timestamp < pair[1].timestamp));
        assert_eq!([4_999, 5_000, 5_999].map(|at| seen(samples, at)), [Some(4.0), Some(5.0), Some(5.0)]);
        assert_eq!([6_000, 10_000, 14_999].map(|at| seen(samples, at)), [None; 3]);
        assert_eq!([15_000, 20_000, 20_001].map(|at| seen(samples, at)), [Some(15.0), Some(20.0), None]);
        let shorter = &sent[0].timeseries[1].samples;
        assert_eq!([12_500, 13_000, 20_000].map(|at| seen(shorter, at)), [Some(12.0), None, None]);
        // A counter keeps its value.
        stalled.kind = Kind::Counter;
        assert_eq!(seen(&messages(&[stalled])[0].timeseries[0].samples, 10_000), Some(5.0));
    }

    #[test]
    fn remote_write_message_decodes_with_sorted_labels() {
        let message = messages(&[gauge(3)]).remove(0);
        let names: Vec<&str> = message.timeseries[0].labels.iter().map(|label| label.name.as_str()).collect();
        assert_eq!(names, ["__name__", "job", "run", "vantage_point"]);
        let bytes = snap::raw::Decoder::new().decompress_vec(&body(&message)).unwrap();
        let read = WriteRequest::decode(&bytes[..]).unwrap();
        assert_eq!(read.timeseries[0].samples[..3], message.timeseries[0].samples[..3]);
        assert_eq!((read.metadata[0].kind, read.metadata[0].metric_family_name.as_str()), (2, "g"));
    }
}
