//! From records to figures: the `load` part of the document, the series, and the terms of Little's law.
//!
//! ```text
//!   RequestRecord --add_request-----> histograms, by_distance, by_url   (intended in the measured phase)
//!                  \                > seconds, Little's terms           (all)
//!   ConnectionEnd --add_connection--> seconds, Little's terms, durations
//! ```
//!
//! A [`Tally`] sees no clock and no engine; it usually runs on another thread than the load.

mod distance;
mod little;
mod seconds;
mod sketch;

use std::collections::BTreeMap;

use ledger::document::{self, UrlPart};
use ledger::{RequestRecord, SecondRecord};
use stats::Histogram;
use units::Timestamp;

use crate::connection::ConnectionEnd;
use crate::levels::{Levels, SecondLevels};
use distance::Distances;
use seconds::Seconds;

pub use little::LittleTerms;

/// What a tally needs to know before the first record.
#[derive(Clone, Debug)]
pub struct TallySpec {
    /// Whether the loop is open.
    pub open_loop: bool,
    /// The measured phase as far as [`Load::measured`](crate::Load::measured) knows it.
    pub measured: (Timestamp, Option<Timestamp>),
    /// Asked RTT of every client, in nanoseconds; `None` without a path.
    pub clients_rtt_ns: Option<Vec<u64>>,
    /// What the requests are called, in the order of the load's workload.
    pub urls: Vec<String>,
}

/// Sums up a run's records.
#[derive(Debug)]
pub struct Tally {
    spec: TallySpec,
    histograms: Histograms,
    completed: u64,
    carried: u64,
    failed: BTreeMap<&'static str, u64>,
    status: BTreeMap<u16, u64>,
    bytes_received: u64,
    bytes_sent: u64,
    connections_opened: u64,
    little: little::Integrals,
    seconds: Seconds,
    distances: Option<Distances>,
    urls: Vec<Part>,
}

/// The distributions of the measured phase, for .hlog files and pictures; all in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    /// done - intended, failed requests included at the moment of their failure.
    pub response_time: Histogram,
    /// done - started.
    pub service_time: Histogram,
    /// started - intended.
    pub send_lag: Histogram,
    /// connected - started.
    pub connect: Histogram,
    /// secured - connected; empty without TLS.
    pub tls_handshake: Histogram,
    /// first byte - started.
    pub first_byte: Histogram,
    /// closed - connect called, of connections closed in the measured phase.
    pub connection_duration: Histogram,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// End of the measured phase.
    pub measured_end: Timestamp,
    /// [`Live::offered_measured`](crate::Live::offered_measured): counted by the engine, so that conservation
    /// (offered = completed + failed + in flight) compares two counts.
    pub offered: u64,
    /// [`Load::unfinished_measured`](crate::Load::unfinished_measured) at the end.
    pub unfinished: u64,
    /// What the sampler saw.
    pub levels: Levels,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The document's `load` part.
    pub load: document::Load,
    /// The other side of Little's law.
    pub little: LittleTerms,
    /// The series, one row a second from the run's zero.
    pub seconds: Vec<SecondRecord>,
    /// The distributions.
    pub histograms: Histograms,
}

/// One part of a breakdown.
#[derive(Clone, Debug, Default)]
struct Part {
    completed: u64,
    failed: u64,
    response_time: Histogram,
}

impl Part {
    fn add(&mut self, record: &RequestRecord) {
        match record.failure {
            None => self.completed += 1,
            Some(_) => self.failed += 1,
        }
        self.response_time.record(record.response_time_ns());
    }
}

impl Tally {
    /// An empty tally.
    pub fn new(spec: TallySpec) -> Self {
        let url_parts = if spec.urls.len() > 1 { spec.urls.len() } else { 0 };
        Tally {
            histograms: Histograms::default(),
            completed: 0,
            carried: 0,
            failed: BTreeMap::new(),
            status: BTreeMap::new(),
            bytes_received: 0,
            bytes_sent: 0,
            connections_opened: 0,
            little: little::Integrals::default(),
            seconds: Seconds::default(),
            distances: spec.clients_rtt_ns.as_deref().map(Distances::new),
            urls: vec![Part::default(); url_parts],
            spec,
        }
    }

    /// The measured phase ends at `end`. To be called when [`Load::measured`](crate::Load::measured) says so first or
    /// says something new, before the records that end after it are added.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.spec.measured.1 = Some(end);
    }

    /// Takes one request in.
    pub fn add_request(&mut self, record: &RequestRecord) {
        self.seconds.add_request(record);
        let (start, end) = self.spec.measured;
        if let Some(started_at) = record.started_at {
            self.little.add_request(started_at, record.done_at, self.spec.measured);
        }
        if record.failure.is_none() && record.done_at >= start && end.is_none_or(|end| record.done_at < end) {
            self.carried += 1;
        }
        if record.intended_at >= start {
            self.add_measured(record);
        }
    }

    /// Takes one connection in; also those that were open to the end, closed by the abort.
    pub fn add_connection(&mut self, end: &ConnectionEnd) {
        self.seconds.add_connection(end);
        self.little.add_connection(end.opened_at, end.closed_at, self.spec.measured);
        let measured = |at: Timestamp| at >= self.spec.measured.0 && self.spec.measured.1.is_none_or(|end| at < end);
        if measured(end.opened_at) {
            self.connections_opened += 1;
        }
        if measured(end.closed_at) {
            self.histograms.connection_duration.record(end.closed_at.as_nanos() - end.opened_at.as_nanos());
        }
    }

    /// One second of the series as it stands: later records may still belong to it, as a request belongs to the second
    /// of its intention and is known when it has ended.
    pub fn second(&self, second: u32, levels: SecondLevels) -> SecondRecord {
        self.seconds.record(second, levels, self.spec.measured)
    }

    /// The figures.
    pub fn finish(mut self, ending: Ending) -> Outcome {
        let Ending { measured_end, offered, unfinished, levels } = ending;
        let measured = (self.spec.measured.0, Some(measured_end));
        let phase_s = measured_end.since(measured.0).as_secs_f64();
        let per_second = |count: u64| if phase_s > 0.0 { count as f64 / phase_s } else { 0.0 };
        let histograms = std::mem::take(&mut self.histograms);
        let by_url = self.spec.urls.iter().zip(&self.urls);
        let load = document::Load {
            loop_kind: if self.spec.open_loop { "open" } else { "closed" }.to_owned(),
            offered_requests: offered,
            offered_rate_per_s: per_second(offered),
            completed: self.completed,
            carried_rate_per_s: per_second(self.carried),
            failed: self.failed.iter().map(|(&cause, &count)| (cause.to_owned(), count)).collect(),
            in_flight_at_end: unfinished,
            status: self.status.iter().map(|(status, &count)| (status.to_string(), count)).collect(),
            response_time_ns: histograms.response_time.quantiles(),
            service_time_ns: histograms.service_time.quantiles(),
            send_lag_ns: histograms.send_lag.quantiles(),
            connect_ns: histograms.connect.quantiles(),
            tls_handshake_ns: Some(histograms.tls_handshake.quantiles()).filter(|q| q.count > 0),
            // Settled between driver and server: the driver tells it.
            tls: None,
            first_byte_ns: histograms.first_byte.quantiles(),
            connection_duration_ns: histograms.connection_duration.quantiles(),
            bytes_received: self.bytes_received,
            bytes_sent: self.bytes_sent,
            in_flight: levels.in_flight.level,
            connections: levels.connections.level,
            connections_opened: self.connections_opened,
            backlog: levels.backlog.level,
            by_distance: self.distances.as_ref().map(Distances::bands).unwrap_or_default(),
            by_url: by_url
                .map(|(url, part)| UrlPart {
                    url: url.clone(),
                    completed: part.completed,
                    failed: part.failed,
                    response_time_ns: part.response_time.quantiles(),
                })
                .collect(),
        };
        let seconds = self.seconds.len().max(levels.seconds.len()) as u32;
        let level = |second: u32| levels.seconds.get(second as usize).copied().unwrap_or_default();
        let seconds = (0..seconds).map(|second| self.seconds.record(second, level(second), measured)).collect();
        Outcome { load, little: self.little.terms(measured_end.since(measured.0)), seconds, histograms }
    }

    fn add_measured(&mut self, record: &RequestRecord) {
        match record.failure {
            None => {
                self.completed += 1;
                *self.status.entry(record.status).or_default() += 1;
            }
            Some(cause) => *self.failed.entry(cause.name()).or_default() += 1,
        }
        self.bytes_received += record.bytes_received;
        self.bytes_sent += record.bytes_sent;
        let histograms = &mut self.histograms;
        histograms.response_time.record(record.response_time_ns());
        let moments = [
            (&mut histograms.service_time, record.service_time_ns()),
            (&mut histograms.send_lag, record.send_lag_ns()),
            (&mut histograms.connect, record.connect_ns()),
            (&mut histograms.tls_handshake, record.tls_handshake_ns()),
            (&mut histograms.first_byte, record.first_byte_ns()),
        ];
        for (histogram, value) in moments {
            if let Some(value) = value {
                histogram.record(value);
            }
        }
        if let Some(distances) = &mut self.distances {
            distances.add(record);
        }
        if let Some(part) = self.urls.get_mut(record.url as usize) {
            part.add(record);
        }
    }
}
