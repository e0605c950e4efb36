//! From the records that packets gave to the figures of the measured phase.

use schema::{ConnectionRecord, Direction, Framing, WatchSecond, WireRequest};
use units::Timestamp;

use super::WireFigures;

const SECOND_NS: u64 = 1_000_000_000;

impl WireFigures {
    /// Counts a request that packets showed; `phase`: the measured phase, its end as far as it is known.
    pub fn add_request(&mut self, request: &WireRequest, phase: (Timestamp, Option<Timestamp>)) {
        let ended_at = request.response_last_at.filter(|_| request.complete);
        self.responses += u64::from(ended_at.is_some_and(|at| is_in(at, phase)));
        match (request.request_first_at, ended_at) {
            (Some(first_at), Some(last_at)) => {
                self.in_flight_ns += overlap(first_at, last_at, phase);
                // The live level has it in flight until the other side spoke again: that it ended earlier was only
                // seen later.
                let by_direction = request.framing == Framing::ByDirection;
                self.ended_by_direction += u64::from(by_direction && phase.1.is_none_or(|end| first_at < end));
            }
            (Some(first_at), None) => self.unended += u64::from(phase.1.is_none_or(|end| first_at < end)),
            (None, _) => {}
        }
        if !request.request_first_at.is_some_and(|at| is_in(at, phase)) {
            return;
        }
        self.requests += 1;
        self.incomplete += u64::from(!request.complete);
        self.by_direction += u64::from(request.framing == Framing::ByDirection);
        if let Some(status) = request.status.filter(|_| request.complete) {
            *self.status.entry(status).or_default() += 1;
        }
        if let Some(service_ns) = request.service_time_ns() {
            self.service_time.record(service_ns);
        }
    }

    /// Counts a connection that packets showed. `configured_ns`: the RTT configured for each client.
    pub fn add_connection(
        &mut self,
        connection: &ConnectionRecord,
        phase: (Timestamp, Option<Timestamp>),
        configured_ns: &[u64],
    ) {
        let until = connection.closed_at.unwrap_or(match connection.end {
            schema::RecordEnd::CaptureEnd => Timestamp::MAX,
            _ => connection.last_at,
        });
        self.connections_ns += overlap(connection.first_at, until, phase);
        self.missing_bytes += connection.up.missing_bytes + connection.down.missing_bytes;
        self.made += u64::from(connection.syn_at.is_some() && connection.syn_ack_at.is_some());
        self.up_bytes += connection.up.unique_bytes;
        self.down_bytes += connection.down.unique_bytes;
        let spoke = |direction| connection.sent(direction).unique_bytes > 0;
        self.not_http += u64::from(connection.requests == 0 && Direction::BOTH.into_iter().all(spoke));
        if let (Some(rtt_ns), Some(ack_at)) = (connection.handshake_rtt_ns, connection.ack_at)
            && is_in(ack_at, phase)
        {
            self.handshake_rtt.record(rtt_ns);
            let configured = connection.client_index.and_then(|client| configured_ns.get(client as usize));
            if let Some(&configured) = configured {
                self.handshake_error.record(rtt_ns.abs_diff(configured));
            }
        }
        if connection.syn_at.is_some_and(|at| is_in(at, phase)) {
            self.connections_opened += 1;
            *self.states.entry(connection.state.as_str()).or_default() += 1;
            self.out_of_order += connection.up.out_of_order_packets + connection.down.out_of_order_packets;
        }
    }

    /// Adds seconds of the series, in order.
    pub fn add_seconds(&mut self, seconds: &[WatchSecond], (from, to): (Timestamp, Option<Timestamp>)) {
        for second in seconds {
            let begins = Timestamp::from_nanos(second.second.saturating_mul(SECOND_NS));
            let ends = Timestamp::from_nanos((second.second + 1).saturating_mul(SECOND_NS));
            if ends > from && to.is_none_or(|to| begins < to) {
                self.data_packets += second.data_packets;
                self.retransmitted += second.retransmitted_packets;
            }
        }
        self.seconds.extend_from_slice(seconds);
    }
}

fn is_in(at: Timestamp, (from, to): (Timestamp, Option<Timestamp>)) -> bool {
    at >= from && to.is_none_or(|to| at < to)
}

/// How much of a span lies in the phase, in ns. No edge error: what began before or ended after counts by its part.
fn overlap(from: Timestamp, to: Timestamp, phase: (Timestamp, Option<Timestamp>)) -> u128 {
    let (from, to) = (from.max(phase.0), phase.1.map_or(to, |end| to.min(end)));
    if from < to { to.since(from).as_nanos() } else { 0 }
}
