//! Sums as OTLP messages: names, attributes, points.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use report::export::otlp::{POINTS_MAX, Request, SCHEMA_URL, attribute};

use super::sums::Series;

/// State of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agent {
    pub name: String,
    pub group: String,
    pub host: String,
    /// First seen, ns since 1970: the start of its loss counters.
    pub first_seen_ns: u64,
    pub connected: bool,
    /// Bytes in its spool, as last reported; `None`: not reported.
    pub spool_bytes: Option<u64>,
    /// Age of its newest data in s; `None`: no data yet.
    pub lag_s: Option<f64>,
    pub records_lost: u64,
    pub rows_dropped: u64,
}

/// Messages of at most [`POINTS_MAX`] points each with everything at `now_ns` (ns since 1970). A resource is an
/// agent; series without an agent belong to the manager.
pub fn messages(series: &[Series], agents: &[Agent], now_ns: u64) -> Vec<Request> {
    let mut by_agent: BTreeMap<&str, (Option<&Agent>, Vec<&Series>)> = BTreeMap::new();
    for agent in agents {
        by_agent.entry(&agent.name).or_default().0 = Some(agent);
    }
    for one in series {
        let agent = one.name.as_ref().map_or("", |[agent, ..]| agent);
        by_agent.entry(agent).or_default().1.push(one);
    }
    let mut messages: Vec<Request> = Vec::new();
    let mut points_left = 0;
    for (name, (agent, series)) in by_agent {
        let mut metrics = Metrics { now_ns, found: BTreeMap::new() };
        if let Some(agent) = agent {
            metrics.of_agent(agent);
        }
        series.iter().for_each(|one| metrics.of_series(one));
        for part in metrics.parts() {
            let points: usize = part.iter().map(points_of).sum();
            if points > points_left {
                messages.push(Request::default());
                points_left = POINTS_MAX;
            }
            points_left = points_left.saturating_sub(points);
            if let Some(message) = messages.last_mut() {
                message.resource_metrics.push(of_resource(name, agent, part));
            }
        }
    }
    messages
}

fn of_resource(name: &str, agent: Option<&Agent>, metrics: Vec<Metric>) -> ResourceMetrics {
    let service = if name.is_empty() { "yamabiko-tap-manager" } else { "yamabiko-tap" };
    let mut attributes =
        vec![attribute("service.name", service), attribute("service.version", env!("CARGO_PKG_VERSION"))];
    if !name.is_empty() {
        attributes.push(attribute("service.instance.id", name));
    }
    if let Some(agent) = agent.filter(|agent| !agent.host.is_empty()) {
        attributes.push(attribute("host.name", &agent.host));
    }
    let scope = InstrumentationScope {
        name: "yamabiko".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ResourceMetrics {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: SCHEMA_URL.to_owned() }],
        schema_url: SCHEMA_URL.to_owned(),
    }
}

/// Name, unit and description.
type About = (&'static str, &'static str, &'static str);

const ATTEMPTS: About = ("yamabiko.tap.attempts", "{attempt}", "Exchanges that ended, and failed connection attempts.");
const FAILURES: About = ("yamabiko.tap.failures", "{attempt}", "Failed attempts, by cause.");
const IO: About = ("yamabiko.tap.io", "By", "Bytes that the programs' socket calls transferred.");
const CONNECTIONS: About = ("yamabiko.tap.connections", "{connection}", "Connections that ended.");
const RESPONSE: About = (
    "yamabiko.tap.response.duration",
    "s",
    "Response times of successful exchanges: first byte of the request to last byte of the response.",
);
const CONNECTED: About = ("yamabiko.agent.connected", "1", "Whether the agent sent a request in the last minute.");
const SPOOL: About = ("yamabiko.agent.spool", "By", "Bytes that wait in the agent's spool, as last reported.");
const LAG: About = ("yamabiko.agent.lag", "s", "Age of the newest data that the agent reported.");
const LOST: About = ("yamabiko.agent.lost", "{record}", "Records and rows that the agent dropped.");

/// Metrics of a resource.
struct Metrics {
    now_ns: u64,
    found: BTreeMap<&'static str, (About, Data)>,
}

impl Metrics {
    fn of_series(&mut self, series: &Series) {
        let sums = &series.sums;
        let attributes = attributes_of(series);
        let and = |name: &str, value: &str| {
            let mut attributes = attributes.clone();
            attributes.push(attribute(name, value));
            attributes
        };
        let start = series.started_ns;
        self.sum(ATTEMPTS, attributes.clone(), start, sums.attempts);
        for (cause, count) in &sums.failed {
            self.sum(FAILURES, and("error.type", cause), start, *count);
        }
        self.sum(IO, and("network.io.direction", "transmit"), start, sums.sent_bytes);
        self.sum(IO, and("network.io.direction", "receive"), start, sums.received_bytes);
        self.sum(CONNECTIONS, attributes.clone(), start, sums.connections);
        if sums.response.count() > 0 {
            let point = sums.response.point(attributes.clone(), start, self.now_ns);
            let empty = || {
                Data::ExponentialHistogram(ExponentialHistogram {
                    data_points: Vec::new(),
                    aggregation_temporality: AggregationTemporality::Cumulative as i32,
                })
            };
            if let Data::ExponentialHistogram(all) = self.of(RESPONSE, empty) {
                all.data_points.push(point);
            }
        }
    }

    fn of_agent(&mut self, agent: &Agent) {
        let attributes = || {
            let mut attributes = vec![attribute("yamabiko.agent", &agent.name)];
            push(&mut attributes, "yamabiko.group", &agent.group);
            attributes
        };
        self.gauge(CONNECTED, attributes(), if agent.connected { 1.0 } else { 0.0 });
        if let Some(bytes) = agent.spool_bytes {
            self.gauge(SPOOL, attributes(), bytes as f64);
        }
        if let Some(lag_s) = agent.lag_s {
            self.gauge(LAG, attributes(), lag_s);
        }
        for (kind, lost) in [("records", agent.records_lost), ("rows", agent.rows_dropped)] {
            let mut attributes = attributes();
            attributes.push(attribute("yamabiko.kind", kind));
            self.sum(LOST, attributes, agent.first_seen_ns, lost);
        }
    }

    fn sum(&mut self, about: About, attributes: Vec<KeyValue>, start_ns: u64, value: u64) {
        let value = Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX));
        // After the clock was set back, a start after the point would be rejected.
        let start_time_unix_nano = start_ns.min(self.now_ns);
        let point = NumberDataPoint {
            attributes,
            start_time_unix_nano,
            time_unix_nano: self.now_ns,
            value: Some(value),
            ..NumberDataPoint::default()
        };
        let empty = || {
            Data::Sum(Sum {
                data_points: Vec::new(),
                aggregation_temporality: AggregationTemporality::Cumulative as i32,
                is_monotonic: true,
            })
        };
        if let Data::Sum(all) = self.of(about, empty) {
            all.data_points.push(point);
        }
    }

    fn gauge(&mut self, about: About, attributes: Vec<KeyValue>, value: f64) {
        let point = NumberDataPoint {
            attributes,
            time_unix_nano: self.now_ns,
            value: Some(Value::AsDouble(value)),
            ..NumberDataPoint::default()
        };
        if let Data::Gauge(all) = self.of(about, || Data::Gauge(Gauge { data_points: Vec::new() })) {
            all.data_points.push(point);
        }
    }

    fn of(&mut self, about: About, empty: impl FnOnce() -> Data) -> &mut Data {
        &mut self.found.entry(about.0).or_insert_with(|| (about, empty())).1
    }

    /// The metrics, split to fit into messages.
    fn parts(self) -> Vec<Vec<Metric>> {
        let mut parts: Vec<Vec<Metric>> = Vec::new();
        let mut points_left = 0;
        for ((name, unit, description), data) in self.found.into_values() {
            for data in pieces(data) {
                let metric = Metric {
                    name: name.to_owned(),
                    unit: unit.to_owned(),
                    description: description.to_owned(),
                    data: Some(data),
                    ..Metric::default()
                };
                let points = points_of(&metric);
                if points > points_left {
                    parts.push(Vec::new());
                    points_left = POINTS_MAX;
                }
                points_left -= points;
                if let Some(part) = parts.last_mut() {
                    part.push(metric);
                }
            }
        }
        parts
    }
}

/// Attributes of a series, with OpenTelemetry's names if there are some.
fn attributes_of(series: &Series) -> Vec<KeyValue> {
    let Some([agent, group, program, peer, side]) = &series.name else {
        return vec![attribute("yamabiko.others", "all")];
    };
    let mut attributes = vec![attribute("yamabiko.agent", agent), attribute("yamabiko.side", side)];
    push(&mut attributes, "yamabiko.group", group);
    push(&mut attributes, "process.executable.name", program);
    push(&mut attributes, "network.peer.address", peer);
    attributes
}

/// Unknown attributes are absent.
fn push(attributes: &mut Vec<KeyValue>, name: &str, value: &str) {
    if !value.is_empty() {
        attributes.push(attribute(name, value));
    }
}

fn points_of(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(all)) => all.data_points.len(),
        Some(Data::Sum(all)) => all.data_points.len(),
        Some(Data::ExponentialHistogram(all)) => all.data_points.len(),
        _ => 0,
    }
}

/// One metric's points, split to fit into messages.
fn pieces(data: Data) -> Vec<Data> {
    match data {
        Data::Sum(all) => {
            let Sum { aggregation_temporality, is_monotonic, .. } = all;
            let of =
                |points: &[_]| Data::Sum(Sum { data_points: points.to_vec(), aggregation_temporality, is_monotonic });
            all.data_points.chunks(POINTS_MAX).map(of).collect()
        }
        Data::ExponentialHistogram(all) => {
            let ExponentialHistogram { aggregation_temporality, .. } = all;
            let of = |points: &[_]| {
                Data::ExponentialHistogram(ExponentialHistogram {
                    data_points: points.to_vec(),
                    aggregation_temporality,
                })
            };
            all.data_points.chunks(POINTS_MAX).map(of).collect()
        }
        // One resource per agent.
        other => vec![other],
    }
}
