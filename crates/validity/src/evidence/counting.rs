//! Figures of the measured phase, from the records of the packet capture.

use schema::{ConnectionRecord, Direction, Framing, QuicConnectionRecord, WatchSecond, WireRequest};
use units::Timestamp;

use super::WireFigures;

const SECOND_NS: u64 = 1_000_000_000;

impl WireFigures {
    /// Counts a captured request; `phase`: the measured phase, its end as far as it is known.
    pub fn add_request(&mut self, request: &WireRequest, phase: (Timestamp, Option<Timestamp>)) {
        let ended_at = request.response_last_at.filter(|_| request.complete);
        self.responses += u64::from(ended_at.is_some_and(|at| is_in(at, phase)));
        match (request.request_first_at, ended_at) {
            (Some(first_at), Some(last_at)) => {
                self.in_flight_ns += overlap(first_at, last_at, phase);
                // The gauge counts the request as in flight until the other side sent again, because the analysis
                // recognises the earlier end of the request only then.
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

    /// Counts a captured connection. `configured_ns`: the RTT configured for each client.
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

    /// Counts a captured QUIC connection of a client.
    pub fn add_quic_connection(
        &mut self,
        connection: &QuicConnectionRecord,
        client: Option<u32>,
        phase: (Timestamp, Option<Timestamp>),
        configured_ns: &[u64],
    ) {
        let until = connection.closed_at.unwrap_or(match connection.end {
            schema::RecordEnd::CaptureEnd => Timestamp::MAX,
            _ => connection.last_at,
        });
        self.connections_ns += overlap(connection.first_at, until, phase);
        if let (Some(rtt_ns), Some(secured_at)) = (connection.handshake_rtt_ns, connection.secured_at)
            && is_in(secured_at, phase)
        {
            self.handshake_rtt.record(rtt_ns);
            if let Some(&configured) = client.and_then(|client| configured_ns.get(client as usize)) {
                self.handshake_error.record(rtt_ns.abs_diff(configured));
            }
        }
        if is_in(connection.first_at, phase) {
            self.connections_opened += 1;
            let quic = self.quic.get_or_insert_default();
            quic.connections += 1;
            watch::count_quic(quic, connection);
        }
    }

    /// Adds seconds of the time series, in order.
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

/// Length of the part of a span inside the phase, in ns. Spans across an end of the phase count partially.
fn overlap(from: Timestamp, to: Timestamp, phase: (Timestamp, Option<Timestamp>)) -> u128 {
    let (from, to) = (from.max(phase.0), phase.1.map_or(to, |end| to.min(end)));
    if from < to { to.since(from).as_nanos() } else { 0 }
}

#[cfg(test)]
mod tests {
    use schema::RecordEnd;

    use super::*;

    /// The measured phase, from 1 s to 2 s.
    const PHASE: (Timestamp, Option<Timestamp>) = (at(1000), Some(at(2000)));

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn request(first: u64, last: u64) -> WireRequest {
        WireRequest {
            request_first_at: Some(at(first)),
            request_last_at: Some(at(first)),
            response_first_at: Some(at(last)),
            response_last_at: Some(at(last)),
            status: Some(200),
            framing: Framing::Exact,
            complete: true,
            ..WireRequest::BLANK
        }
    }

    fn counted(requests: &[WireRequest]) -> WireFigures {
        let mut figures = WireFigures::default();
        requests.iter().for_each(|request| figures.add_request(request, PHASE));
        figures
    }

    #[test]
    fn requests_count_by_the_part_of_their_time_in_the_measured_phase() {
        let figures = counted(&[request(900, 1100), request(1500, 1600), request(1900, 2300), request(2100, 2200)]);
        assert_eq!((figures.requests, figures.responses, figures.service_time.len()), (2, 2, 2));
        // 100 ms of each of the first three requests.
        assert_eq!(figures.in_flight_ns, 300_000_000);
        assert_eq!(figures.status, [(200, 2)].into());
    }

    #[test]
    fn requests_of_the_warm_up_with_unknown_end_are_counted_separately() {
        let unended = WireRequest { complete: false, ..request(500, 500) };
        let by_direction = WireRequest { framing: Framing::ByDirection, ..request(800, 1500) };
        let after_the_phase = WireRequest { complete: false, ..request(2100, 2100) };
        let figures = counted(&[unended, by_direction, after_the_phase]);
        assert_eq!((figures.unended, figures.ended_by_direction), (1, 1));
        assert_eq!((figures.incomplete, figures.by_direction), (0, 0), "no request began in the phase");
    }

    #[test]
    fn connections_open_at_the_end_of_the_capture_last_to_the_end_of_the_phase() {
        let open =
            |first, end| ConnectionRecord { first_at: at(first), last_at: at(first), end, ..ConnectionRecord::BLANK };
        let mut figures = WireFigures::default();
        figures.add_connection(&open(500, RecordEnd::CaptureEnd), PHASE, &[]);
        assert_eq!(figures.connections_ns, 1_000_000_000);
        // A connection that timed out ends with its last packet.
        figures.add_connection(&ConnectionRecord { last_at: at(1100), ..open(1000, RecordEnd::Closed) }, PHASE, &[]);
        assert_eq!(figures.connections_ns, 1_100_000_000);
    }

    #[test]
    fn seconds_that_overlap_the_phase_count_whole() {
        let second =
            |second| WatchSecond { second, data_packets: 10, retransmitted_packets: 1, ..WatchSecond::default() };
        let mut figures = WireFigures::default();
        figures.add_seconds(&[0, 1, 2, 3].map(second), PHASE);
        assert_eq!((figures.data_packets, figures.retransmitted, figures.seconds.len()), (10, 1, 4));
    }
}
