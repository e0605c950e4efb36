//! Metrics as messages of OTLP 1 (`ExportMetricsServiceRequest`), for OpenTelemetry receivers over HTTP.
//!
//! The metrics of [`super::metrics`] have dotted names (`yamabiko.response_time`). Counters and histograms are
//! cumulative since the run's zero, with a point for each second. The HTTP client metrics of OpenTelemetry's semantic
//! conventions are exported in addition ([`Durations`], `http.client.active_requests`).
//!
//! Sources: OTLP 1.7; OpenTelemetry's semantic conventions for HTTP metrics 1.27 (stable:
//! `http.client.request.duration`).

mod durations;
mod exponential;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric as Sent, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::Figures;
use super::metrics::{Kind, Metric, Point, Series, Value};
use super::spread::BOUNDS_S;

pub use durations::{Durations, HttpTarget};
pub use exponential::Exponential;
pub use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest as Request, ExportMetricsServiceResponse as Response,
};

/// Value of the header `Content-Type`.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// The metrics in messages of at most [`POINTS_MAX`] points, in the order in which to send them. `durations` are those
/// of the whole run.
pub fn messages(figures: &Figures, metrics: &[Metric], durations: &Durations) -> Vec<Request> {
    let start = figures.zero_unix_ms * 1_000_000;
    let mut parts: Vec<(Sent, usize)> = Vec::new();
    for metric in metrics {
        for series in &metric.series {
            // The points of a long run do not fit into one message.
            parts.extend(
                series.points.chunks(POINTS_MAX).map(|points| (sent(metric, series, points, start), points.len())),
            );
        }
    }
    let last = metrics.iter().flat_map(|m| &m.series).flat_map(|s| s.points.last()).map(|p| p.unix_ms).max();
    let end = last.unwrap_or(figures.zero_unix_ms) * 1_000_000;
    parts.extend(durations.sent(start, end));
    parts.extend(durations.active(figures, start));
    let mut messages: Vec<Request> = Vec::new();
    let (mut batch, mut size) = (Vec::new(), 0);
    for (metric, points) in parts {
        if size + points > POINTS_MAX && !batch.is_empty() {
            messages.push(message(figures, std::mem::take(&mut batch)));
            size = 0;
        }
        size += points;
        join(&mut batch, metric);
    }
    if !batch.is_empty() {
        messages.push(message(figures, batch));
    }
    messages
}

/// The bytes of a message, as sent and as stored in a file.
pub fn body(message: &Request) -> Vec<u8> {
    message.encode_to_vec()
}

/// All metrics as one message, for a file.
pub fn whole(figures: &Figures, metrics: &[Metric], durations: &Durations) -> Vec<u8> {
    let mut messages = messages(figures, metrics, durations).into_iter();
    let mut whole = messages.next().unwrap_or_default();
    messages.for_each(|more| whole.resource_metrics.extend(more.resource_metrics));
    body(&whole)
}

/// The URL for metrics from a base URL, as OpenTelemetry's exporters derive it: the path of metrics is added to a URL
/// without a path.
pub fn metrics_url(typed: &str) -> String {
    let after_host = typed.split_once("://").map_or("", |(_, rest)| rest);
    match after_host.find(['/', '?']) {
        None => format!("{typed}/v1/metrics"),
        Some(at) if &after_host[at..] == "/" => format!("{typed}v1/metrics"),
        Some(_) => typed.to_owned(),
    }
}

/// Number of points that the receiver rejected, and the reason; `None` if it accepted all.
///
/// # Errors
/// The response is not an OTLP message.
pub fn rejected(answer: &[u8]) -> Result<Option<(i64, String)>, prost::DecodeError> {
    let partial = Response::decode(answer)?.partial_success;
    Ok(partial.filter(|part| part.rejected_data_points > 0).map(|part| (part.rejected_data_points, part.error_message)))
}

/// Largest number of points in a message: the scale of batches of OpenTelemetry's exporters and collectors.
pub const POINTS_MAX: usize = 2000;

fn message(figures: &Figures, metrics: Vec<Sent>) -> Request {
    let resource = Resource {
        attributes: vec![
            attribute("service.name", "yamabiko"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", &figures.run),
        ],
        ..Resource::default()
    };
    let scope = InstrumentationScope {
        name: "yamabiko".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = ScopeMetrics { scope: Some(scope), metrics, schema_url: SCHEMA_URL.to_owned() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope_metrics],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }
}

fn sent(metric: &Metric, series: &Series, points: &[Point], start: u64) -> Sent {
    let attributes: Vec<KeyValue> = series.labels.iter().map(|(name, value)| attribute(name, value)).collect();
    // A gauge has no beginning.
    let start_of = if metric.kind == Kind::Gauge { 0 } else { start };
    let numbers = || -> Vec<NumberDataPoint> {
        let of = |point: &Point| match &point.value {
            Value::Number(value) => number(attributes.clone(), start_of, point.unix_ms, *value),
            Value::BucketHistogram(_) => unreachable!("only histograms have spreads"),
        };
        points.iter().map(of).collect()
    };
    let data = match metric.kind {
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
            is_monotonic: true,
        }),
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: points.iter().map(|point| spread(attributes.clone(), start, point)).collect(),
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
        }),
    };
    Sent {
        name: metric.open_telemetry_name(),
        description: metric.help.to_owned(),
        unit: metric.unit.ucum().to_owned(),
        data: Some(data),
        ..Sent::default()
    }
}

fn number(attributes: Vec<KeyValue>, start: u64, unix_ms: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: unix_ms * 1_000_000,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn spread(attributes: Vec<KeyValue>, start: u64, point: &Point) -> HistogramDataPoint {
    let Value::BucketHistogram(spread) = &point.value else { unreachable!("a histogram has spreads") };
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: point.unix_ms * 1_000_000,
        count: spread.count(),
        sum: Some(spread.sum_s),
        bucket_counts: spread.counts.to_vec(),
        explicit_bounds: BOUNDS_S.to_vec(),
        ..HistogramDataPoint::default()
    }
}

/// Adds a series to the last metric if the names are equal, so that a message has all series of a metric in one place.
fn join(batch: &mut Vec<Sent>, metric: Sent) {
    let Some(last) = batch.last_mut().filter(|last| last.name == metric.name) else {
        batch.push(metric);
        return;
    };
    match (&mut last.data, metric.data) {
        (Some(Data::Gauge(all)), Some(Data::Gauge(more))) => all.data_points.extend(more.data_points),
        (Some(Data::Sum(all)), Some(Data::Sum(more))) => all.data_points.extend(more.data_points),
        (Some(Data::Histogram(all)), Some(Data::Histogram(more))) => all.data_points.extend(more.data_points),
        (Some(Data::ExponentialHistogram(all)), Some(Data::ExponentialHistogram(more))) => {
            all.data_points.extend(more.data_points);
        }
        _ => unreachable!("a metric is of one kind"),
    }
}

/// An attribute that is text.
pub fn attribute(name: &str, value: &str) -> KeyValue {
    of_value(name, any_value::Value::StringValue(value.to_owned()))
}

fn of_value(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// URL of the semantic conventions that define the names.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.27.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn otlp_base_url_gets_the_path_of_metrics() {
        for (typed, meant) in [
            ("http://h:4318", "http://h:4318/v1/metrics"),
            ("http://h:4318/", "http://h:4318/v1/metrics"),
            ("https://h/otlp/v1/metrics", "https://h/otlp/v1/metrics"),
            ("https://h?key=1", "https://h?key=1"),
        ] {
            assert_eq!(metrics_url(typed), meant);
        }
    }
}
