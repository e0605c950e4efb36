//! Computes the statistics of a run from its records: the `load` part of the document, the time series, and the terms
//! of Little's law.
//!
//! ```text
//!   RequestRecord --add_request-----> histograms, by_distance, by_url, by_phase   (scheduled in the measured phase)
//!                  \                > seconds, Little's terms           (all)
//!   ConnectionEnd --add_connection--> seconds, Little's terms, durations
//! ```
//!
//! A [`Tally`] needs neither clock nor engine, and may run on another thread than the load. If several engines make one
//! load, each may have its own tally: [`Tally::merge`] gives the result of one tally of all records.

mod delays;
mod distance;
mod little;
mod phases;
mod seconds;
mod sketch;
mod spans;
mod urls;

use std::collections::BTreeMap;

use schema::document;
use schema::{DistributionRecord, FailureCause, Quantiles, RequestRecord, SecondRecord};
use serde::{Deserialize, Serialize};
use stats::Histogram;
use units::Timestamp;

use crate::connection::ConnectionEnd;
use crate::gauges::{Levels, SecondGauges};
use distance::Distances;
use phases::ByPhase;
use seconds::Seconds;
use spans::Spans;
use urls::ByUrl;

pub use delays::{DelayBounds, Delays, Stall};
pub use little::LittleTerms;
pub use phases::PhaseSpan;
pub use spans::Span;
pub use urls::Urls;

/// The settings of a tally.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TallySpec {
    /// Whether the loop is open.
    pub open_loop: bool,
    /// The measured phase, as known to [`Load::measured`](crate::Load::measured).
    pub measured: (Timestamp, Option<Timestamp>),
    /// Configured RTT of every client, in nanoseconds; `None` without a path.
    pub clients_rtt_ns: Option<Vec<u64>>,
    /// The names of the requests.
    pub urls: Urls,
    /// Phases with their own results; empty for a load with a single phase.
    pub phases: Vec<PhaseSpan>,
}

/// Aggregates the records of a run. Its serialised form has every count: what was read back is merged as losslessly as
/// the tally itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tally {
    spec: TallySpec,
    histograms: Histograms,
    completed: u64,
    achieved: u64,
    failed: BTreeMap<FailureCause, u64>,
    status: BTreeMap<u16, u64>,
    bytes_received: u64,
    bytes_sent: u64,
    sends: u64,
    retried: u64,
    early_responses: u64,
    connections_opened: u64,
    little: little::Integrals,
    seconds: Seconds,
    spans: Spans,
    distances: Option<Distances>,
    urls: ByUrl,
    phases: ByPhase,
}

/// The distributions of the measured phase, for .hlog files and plots; all in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Histograms {
    /// done - scheduled; failed requests included, up to the time of their failure.
    pub response_time: Histogram,
    /// done - started.
    pub service_time: Histogram,
    /// started - scheduled.
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

/// The state at the end of a run.
#[derive(Clone, Debug)]
pub struct Ending {
    /// End of the measured phase.
    pub measured_end: Timestamp,
    /// [`Live::offered_measured`](crate::Live::offered_measured): counted by the engine, so that conservation
    /// (offered = completed + failed + in flight) compares two counts.
    pub offered: u64,
    /// [`Load::unfinished_measured`](crate::Load::unfinished_measured) at the end.
    pub unfinished: u64,
    /// The sampled gauges.
    pub levels: Levels,
}

/// The statistics of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The document's `load` part.
    pub load: document::Load,
    /// The side of Little's law that is computed from records.
    pub little: LittleTerms,
    /// The time series, one row per second from time zero of the run.
    pub seconds: Vec<SecondRecord>,
    /// The distribution of response times of each of these seconds.
    pub distributions: Vec<DistributionRecord>,
    /// The complete spans of 100 ms of the measured phase.
    pub spans: Vec<Span>,
    /// The distributions.
    pub histograms: Histograms,
}

/// Statistics of a run in progress, of the ended requests that were scheduled in the measured phase.
#[derive(Clone, Debug, Default)]
pub struct SoFar {
    /// Complete responses.
    pub completed: u64,
    /// Complete responses that ended in the measured phase, whenever their requests were scheduled.
    pub achieved: u64,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// done - scheduled.
    pub response_time_ns: Quantiles,
    /// started - scheduled.
    pub send_lag_ns: Quantiles,
    /// Results by band of the client's configured RTT; empty without a path.
    pub by_distance: Vec<document::DistanceBand>,
}

/// One group of a breakdown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

    fn merge(&mut self, other: &Part) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.response_time.merge(&other.response_time);
    }
}

impl Histograms {
    fn merge(&mut self, other: &Histograms) {
        self.response_time.merge(&other.response_time);
        self.service_time.merge(&other.service_time);
        self.send_lag.merge(&other.send_lag);
        self.connect.merge(&other.connect);
        self.tls_handshake.merge(&other.tls_handshake);
        self.first_byte.merge(&other.first_byte);
        self.connection_duration.merge(&other.connection_duration);
    }
}

impl Tally {
    /// An empty tally.
    pub fn new(spec: TallySpec) -> Self {
        Tally {
            histograms: Histograms::default(),
            completed: 0,
            achieved: 0,
            failed: BTreeMap::new(),
            status: BTreeMap::new(),
            bytes_received: 0,
            bytes_sent: 0,
            sends: 0,
            retried: 0,
            early_responses: 0,
            connections_opened: 0,
            little: little::Integrals::default(),
            seconds: Seconds::default(),
            spans: Spans::default(),
            distances: spec.clients_rtt_ns.as_deref().map(Distances::new),
            urls: ByUrl::new(spec.urls.clone()),
            phases: ByPhase::new(&spec.phases, spec.measured.0),
            spec,
        }
    }

    /// An empty collector of generator delays for the same load.
    pub fn delays(&self) -> Delays {
        Delays::new(self.spec.open_loop, self.spec.measured, self.spec.clients_rtt_ns.is_some())
    }

    /// The response times so far: done - scheduled.
    pub fn response_times(&self) -> &Histogram {
        &self.histograms.response_time
    }

    /// Sets the end of the measured phase. Call whenever the end by [`Load::measured`](crate::Load::measured) changes,
    /// before records that end after it are added.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.spec.measured.1 = Some(end);
    }

    /// Adds a request.
    pub fn add_request(&mut self, record: &RequestRecord) {
        self.seconds.add_request(record);
        let (start, end) = self.spec.measured;
        self.spans.add_request(record, start);
        if let Some(started_at) = record.started_at {
            self.little.add_request(started_at, record.done_at, self.spec.measured);
        }
        if record.failure.is_none() && record.done_at >= start && end.is_none_or(|end| record.done_at < end) {
            self.achieved += 1;
            self.phases.add_achieved(record.done_at);
        }
        if record.scheduled_at >= start {
            self.add_measured(record);
        }
    }

    /// Adds a connection, also one that was open until the final abort.
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

    /// Whether the other tally counts the same load: the same start of the measured phase, clients, URLs and phases.
    /// Only then may the two be merged.
    pub fn is_of_same_load(&self, other: &Tally) -> bool {
        let facts = |tally: &Tally| {
            let TallySpec { open_loop, measured, clients_rtt_ns, urls, phases } = tally.spec.clone();
            (open_loop, measured.0, clients_rtt_ns, urls, phases)
        };
        let is_whole = |tally: &Tally| {
            let bands = tally.distances.is_some() == tally.spec.clients_rtt_ns.is_some();
            bands && tally.urls.is_of(&tally.spec.urls) && tally.phases.is_of(&tally.spec.phases, tally.spec.measured.0)
        };
        facts(self) == facts(other)
            && is_whole(other)
            && match (&self.distances, &other.distances) {
                (Some(own), Some(other)) => own.is_of_same_clients(other),
                (own, other) => own.is_none() && other.is_none(),
            }
    }

    /// Adds the counts of another tally of the same load: the statistics become those of one tally of all records. The
    /// end of the measured phase is this tally's, or the other's if this one has none.
    ///
    /// # Panics
    /// If the tallies have different clients, URLs or phases.
    pub fn merge(&mut self, other: Tally) {
        assert_eq!(self.spec.measured.0, other.spec.measured.0, "parts of one load are measured from the same time");
        self.spec.measured.1 = self.spec.measured.1.or(other.spec.measured.1);
        self.histograms.merge(&other.histograms);
        self.completed += other.completed;
        self.achieved += other.achieved;
        other.failed.iter().for_each(|(&cause, count)| *self.failed.entry(cause).or_default() += count);
        other.status.iter().for_each(|(&status, count)| *self.status.entry(status).or_default() += count);
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.sends += other.sends;
        self.retried += other.retried;
        self.early_responses += other.early_responses;
        self.connections_opened += other.connections_opened;
        self.little.merge(&other.little);
        self.seconds.merge(&other.seconds);
        self.spans.merge(&other.spans);
        match (&mut self.distances, &other.distances) {
            (None, None) => {}
            (Some(distances), Some(other)) => distances.merge(other),
            _ => panic!("parts of one load have the same clients"),
        }
        self.urls.merge(&other.urls);
        self.phases.merge(&other.phases);
    }

    /// The current values of one second of the time series. Later records may still change them, since a request is
    /// added when it ends but belongs to the second of its scheduled time.
    pub fn second(&self, second: u32, levels: SecondGauges) -> SecondRecord {
        self.seconds.record(second, levels, self.spec.measured)
    }

    /// The current distribution of the response times of one second.
    pub fn distribution(&self, second: u32) -> impl Iterator<Item = DistributionRecord> {
        self.seconds.distribution(second)
    }

    /// The statistics so far of the ended requests, for live views. Takes some 0.1 ms per band of distance.
    pub fn so_far(&self) -> SoFar {
        SoFar {
            completed: self.completed,
            achieved: self.achieved,
            failed: self.failed.iter().map(|(cause, &count)| (cause.name().to_owned(), count)).collect(),
            status: self.status.iter().map(|(status, &count)| (status.to_string(), count)).collect(),
            response_time_ns: self.histograms.response_time.quantiles(),
            send_lag_ns: self.histograms.send_lag.quantiles(),
            by_distance: self.distances.as_ref().map(Distances::bands).unwrap_or_default(),
        }
    }

    /// The statistics of the run.
    pub fn finish(mut self, ending: Ending) -> Outcome {
        let Ending { measured_end, offered, unfinished, levels } = ending;
        let measured = (self.spec.measured.0, Some(measured_end));
        let phase_s = measured_end.since(measured.0).as_secs_f64();
        let per_second = |count: u64| if phase_s > 0.0 { count as f64 / phase_s } else { 0.0 };
        let histograms = std::mem::take(&mut self.histograms);
        let load = document::Load {
            loop_kind: if self.spec.open_loop { "open" } else { "closed" }.to_owned(),
            offered_requests: offered,
            offered_rate_per_s: per_second(offered),
            completed: self.completed,
            achieved_rate_per_s: per_second(self.achieved),
            failed: self.failed.iter().map(|(cause, &count)| (cause.name().to_owned(), count)).collect(),
            // The caller adds the reasons from the engine.
            malformed_responses: Vec::new(),
            in_flight_at_end: unfinished,
            statuses_expected: false,
            status: self.status.iter().map(|(status, &count)| (status.to_string(), count)).collect(),
            response_time_ns: histograms.response_time.quantiles(),
            service_time_ns: histograms.service_time.quantiles(),
            send_lag_ns: histograms.send_lag.quantiles(),
            connect_ns: histograms.connect.quantiles(),
            tls_handshake_ns: Some(histograms.tls_handshake.quantiles()).filter(|q| q.count > 0),
            // The caller adds the TLS parameters from the driver.
            tls: None,
            quic: None,
            first_byte_ns: histograms.first_byte.quantiles(),
            connection_duration_ns: histograms.connection_duration.quantiles(),
            bytes_received: self.bytes_received,
            bytes_sent: self.bytes_sent,
            requests_sent: self.sends,
            requests_retried: self.retried,
            early_responses: self.early_responses,
            // The caller adds these counters from the engine.
            stray_lines: 0,
            unsolicited: None,
            in_flight: levels.in_flight.level,
            connections: levels.connections.level,
            connections_opened: self.connections_opened,
            backlog: levels.backlog.level,
            by_distance: self.distances.as_ref().map(Distances::bands).unwrap_or_default(),
            by_url: self.urls.parts(),
            by_url_left_out: self.urls.left_out(),
            by_phase: self.phases.parts(measured_end),
            // The caller adds the generator delay, which is computed from the shards' stalls.
            generator_delay: None,
            // The caller adds the properties of recordings.
            open_connections: None,
            sessions: None,
            replay: None,
            har: None,
        };
        let seconds = self.seconds.len().max(levels.seconds.len()) as u32;
        let level = |second: u32| levels.seconds.get(second as usize).copied().unwrap_or_default();
        let distributions = (0..seconds).flat_map(|second| self.seconds.distribution(second)).collect();
        let seconds = (0..seconds).map(|second| self.seconds.record(second, level(second), measured)).collect();
        let spans = self.spans.finish((measured.0, measured_end), &levels.spans);
        let little = self.little.terms(measured_end.since(measured.0));
        Outcome { spans, load, little, seconds, distributions, histograms }
    }

    fn add_measured(&mut self, record: &RequestRecord) {
        match record.failure {
            None => {
                self.completed += 1;
                *self.status.entry(record.status).or_default() += 1;
            }
            Some(cause) => *self.failed.entry(cause).or_default() += 1,
        }
        self.bytes_received += record.bytes_received;
        self.bytes_sent += record.bytes_sent;
        self.sends += u64::from(record.attempts);
        self.retried += u64::from(record.attempts > 1);
        self.early_responses += u64::from(record.early_response);
        let histograms = &mut self.histograms;
        histograms.response_time.record(record.response_time_ns());
        let durations = [
            (&mut histograms.service_time, record.service_time_ns()),
            (&mut histograms.send_lag, record.send_lag_ns()),
            (&mut histograms.connect, record.connect_ns()),
            (&mut histograms.tls_handshake, record.tls_handshake_ns()),
            (&mut histograms.first_byte, record.first_byte_ns()),
        ];
        for (histogram, value) in durations {
            if let Some(value) = value {
                histogram.record(value);
            }
        }
        if let Some(distances) = &mut self.distances {
            distances.add(record);
        }
        self.urls.add(record);
        self.phases.add_scheduled(record);
    }
}
