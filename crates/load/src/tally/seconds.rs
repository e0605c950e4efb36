//! The time series: counters of each second of the run.

use schema::{DistributionRecord, Measure, RequestRecord, SecondRecord};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::sketch::Sketch;
use crate::connection::ConnectionEnd;
use crate::gauges::SecondGauges;

/// One entry per second from time zero of the run. All entries stay open, as a request that ends late still belongs to
/// the second of its scheduled time. An entry has about 4 KB; an hour 15 MB.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Seconds(Vec<Second>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Second {
    offered: u64,
    started: u64,
    completed: u64,
    failed: u64,
    connections_opened: u64,
    bytes_received: u64,
    response: Sketch,
    send_lag: Sketch,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Seconds {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add_request(&mut self, record: &RequestRecord) {
        self.at(record.scheduled_at).offered += 1;
        if let (Some(started_at), Some(send_lag_ns)) = (record.started_at, record.send_lag_ns()) {
            let second = self.at(started_at);
            second.started += 1;
            second.send_lag.record(send_lag_ns);
        }
        let second = self.at(record.done_at);
        second.bytes_received += record.bytes_received;
        if record.failure.is_some() {
            second.failed += 1;
            return;
        }
        let response_time_ns = record.response_time_ns();
        second.completed += 1;
        second.response.record(response_time_ns);
    }

    pub(super) fn add_connection(&mut self, end: &ConnectionEnd) {
        self.at(end.opened_at).connections_opened += 1;
    }

    pub(super) fn merge(&mut self, other: &Seconds) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Second::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(second, other)| second.merge(other));
    }

    pub(super) fn record(
        &self,
        second: u32,
        levels: SecondGauges,
        (start, end): (Timestamp, Option<Timestamp>),
    ) -> SecondRecord {
        let from = u64::from(second) * SECOND_NS;
        let measured = from >= start.as_nanos() && end.is_none_or(|end| from + SECOND_NS <= end.as_nanos());
        let none = Second::default();
        let counted = self.0.get(second as usize).unwrap_or(&none);
        SecondRecord {
            second,
            measured,
            offered: counted.offered,
            started: counted.started,
            completed: counted.completed,
            failed: counted.failed,
            connections_opened: counted.connections_opened,
            bytes_received: counted.bytes_received,
            in_flight_mean: levels.in_flight_mean,
            in_flight_max: levels.in_flight_max,
            connections_mean: levels.connections_mean,
            connections_max: levels.connections_max,
            backlog: levels.backlog,
            response_p50_ns: counted.response.value_at(50),
            response_p99_ns: counted.response.value_at(99),
            response_max_ns: counted.response.max(),
            send_lag_p99_ns: counted.send_lag.value_at(99),
        }
    }

    /// The current distribution of the response times of the requests completed in a second.
    pub(super) fn distribution(&self, second: u32) -> impl Iterator<Item = DistributionRecord> {
        let response = self.0.get(second as usize).map(|second| &second.response);
        response.into_iter().flat_map(Sketch::buckets).map(move |(bucket, count)| DistributionRecord {
            second,
            measure: Measure::ResponseTime,
            from_ns: bucket.from_ns(),
            to_ns: bucket.to_ns(),
            count,
        })
    }

    fn at(&mut self, at: Timestamp) -> &mut Second {
        let second = (at.as_nanos() / SECOND_NS) as usize;
        if self.0.len() <= second {
            self.0.resize_with(second + 1, Second::default);
        }
        &mut self.0[second]
    }
}

impl Second {
    fn merge(&mut self, other: &Second) {
        self.offered += other.offered;
        self.started += other.started;
        self.completed += other.completed;
        self.failed += other.failed;
        self.connections_opened += other.connections_opened;
        self.bytes_received += other.bytes_received;
        self.response.merge(&other.response);
        self.send_lag.merge(&other.send_lag);
    }
}
