//! OpenTelemetry's `http.client.request.duration`: an exponential histogram for each set of attributes.
//!
//! Durations count from the actual start of a request, as in instrumented clients, and exclude the send lag.
//! `yamabiko.response_time` counts from the scheduled time.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, Metric as Sent, Sum, metric::Data,
};
use schema::{RequestRecord, SecondRecord};

use super::super::metrics::LABELS_MAX;
use super::super::{Figures, RequestTarget};
use super::{Exponential, attribute, number, of_value};

/// The server of a URL: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpTarget {
    /// `http` or `https`.
    pub scheme: String,
    /// Name or address; an IPv6 address without brackets.
    pub address: String,
    /// Port.
    pub port: u16,
}

impl HttpTarget {
    /// Parses an absolute URL; `None` if it is not an HTTP URL.
    pub fn of(url: &str) -> Option<HttpTarget> {
        let (scheme, rest) = url.split_once("://")?;
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next().filter(|authority| !authority.is_empty())?;
        let (address, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (address, after) = bracketed.split_once(']')?;
                (address, after.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((address, port)) => (address, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Some(default), |port| port.parse().ok())?;
        Some(HttpTarget { scheme: scheme.to_owned(), address: address.to_owned(), port })
    }
}

/// Durations by their attributes.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    targets: Vec<Option<HttpTarget>>,
    methods: Vec<&'static str>,
    by: BTreeMap<Key, Exponential>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    method: &'static str,
    target: Option<HttpTarget>,
    status: Option<u16>,
    error: Option<String>,
}

impl Durations {
    /// Durations without values; `targets` are the run's request targets by index.
    pub fn of(targets: &[RequestTarget]) -> Self {
        Durations {
            targets: targets.iter().map(|target| HttpTarget::of(&target.url)).collect(),
            methods: targets.iter().map(|target| target.method.as_str()).collect(),
            by: BTreeMap::new(),
        }
    }

    /// Counts a request, if it was started.
    pub fn add(&mut self, row: &RequestRecord) {
        let Some(ns) = row.service_time_ns() else { return };
        let index = row.url as usize;
        // The error type of a request is its cause of failure, or its error status.
        let of_status = (row.status >= 400).then(|| row.status.to_string());
        let mut key = Key {
            method: self.methods.get(index).copied().unwrap_or("_OTHER"),
            target: self.targets.get(index).cloned().flatten(),
            status: (row.status > 0).then_some(row.status),
            error: row.failure.map(|cause| cause.name().to_owned()).or(of_status),
        };
        if self.by.len() >= LABELS_MAX && !self.by.contains_key(&key) {
            key = Key { method: "_OTHER", target: None, status: None, error: None };
        }
        self.by.entry(key).or_default().record(ns);
    }

    /// One metric for each set of attributes, with its number of points.
    pub(super) fn sent(&self, start: u64, end: u64) -> impl Iterator<Item = (Sent, usize)> {
        self.by.iter().map(move |(key, values)| {
            let mut attributes = vec![attribute("http.request.method", key.method)];
            attributes.extend(key.target.iter().flat_map(of_target));
            if let Some(status) = key.status {
                attributes.push(of_value("http.response.status_code", any_value::Value::IntValue(status.into())));
            }
            attributes.extend(key.error.iter().map(|error| attribute("error.type", error)));
            let data = ExponentialHistogram {
                data_points: vec![values.point(attributes, start, end)],
                aggregation_temporality: AggregationTemporality::Cumulative as i32,
            };
            let metric = Sent {
                name: "http.client.request.duration".to_owned(),
                description: "Duration of HTTP client requests.".to_owned(),
                unit: "s".to_owned(),
                data: Some(Data::ExponentialHistogram(data)),
                ..Sent::default()
            };
            (metric, 1)
        })
    }

    /// Requests in flight under OpenTelemetry's name, if there is exactly one target; split to fit into messages, with
    /// the number of points of each.
    pub(super) fn active(&self, figures: &Figures, start: u64) -> Vec<(Sent, usize)> {
        let Some(Some(target)) = self.targets.first() else { return Vec::new() };
        if self.targets.iter().any(|other| other.as_ref() != Some(target)) {
            return Vec::new();
        }
        let point = |row: &SecondRecord| {
            let unix_ms = figures.zero_unix_ms + (u64::from(row.second) + 1) * 1000;
            number(of_target(target), start, unix_ms, row.in_flight_mean)
        };
        let piece = |rows: &[SecondRecord]| {
            let sum = Sum {
                data_points: rows.iter().map(point).collect(),
                aggregation_temporality: AggregationTemporality::Cumulative as i32,
                is_monotonic: false,
            };
            let metric = Sent {
                name: "http.client.active_requests".to_owned(),
                description: "Number of active HTTP requests.".to_owned(),
                unit: "{request}".to_owned(),
                data: Some(Data::Sum(sum)),
                ..Sent::default()
            };
            (metric, rows.len())
        };
        figures.series.chunks(super::POINTS_MAX).map(piece).collect()
    }
}

fn of_target(target: &HttpTarget) -> Vec<KeyValue> {
    vec![
        attribute("server.address", &target.address),
        of_value("server.port", any_value::Value::IntValue(target.port.into())),
        attribute("url.scheme", &target.scheme),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{FailureCause, Method};
    use units::Timestamp;

    #[test]
    fn host_and_port_are_taken_from_urls() {
        let of = |url| HttpTarget::of(url).map(|target| (target.scheme, target.address, target.port));
        let is = |scheme: &str, address: &str, port| Some((scheme.to_owned(), address.to_owned(), port));
        assert_eq!(of("http://server/a"), is("http", "server", 80));
        assert_eq!(of("https://[2001:db8::1]:8443?x"), is("https", "2001:db8::1", 8443));
        assert_eq!(of("https://h:1#f"), is("https", "h", 1));
        assert!(
            ["", "/a", "ftp://h/", "http://", "http://h:port/", "http://[::1"].into_iter().all(|url| of(url).is_none())
        );
    }

    #[test]
    fn otlp_attributes_are_bounded_and_name_the_failure() {
        let targets = [RequestTarget { method: Method::Get, url: "http://server/".to_owned() }];
        let mut durations = Durations::of(&targets);
        let row = RequestRecord {
            started_at: Some(Timestamp::ZERO),
            done_at: Timestamp::from_nanos(5_000_000),
            status: 200,
            ..RequestRecord::BLANK
        };
        durations.add(&row);
        durations.add(&RequestRecord { status: 503, ..row });
        durations.add(&RequestRecord { status: 0, failure: Some(FailureCause::Reset), ..row });
        durations.add(&RequestRecord { started_at: None, ..row });
        let sent: Vec<Sent> = durations.sent(1, 2).map(|(metric, _)| metric).collect();
        let errors: Vec<Option<&str>> = durations.by.keys().map(|key| key.error.as_deref()).collect();
        assert_eq!((sent.len(), errors), (3, vec![Some("reset"), None, Some("503")]));
        (0..1000).for_each(|status| durations.add(&RequestRecord { status: 100 + status, ..row }));
        assert!(durations.by.len() <= LABELS_MAX + 1);
        assert_eq!(durations.by.values().map(Exponential::count).sum::<u64>(), 1003);
    }
}
