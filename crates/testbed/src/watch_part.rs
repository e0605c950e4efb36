//! The capture's part of a run's document.

use std::time::Duration;
use validity::evidence::{Watched, WireFigures};

use schema::watch_part::{WatchConnections, WatchPart, WatchQuic};

/// Makes the part, for a measured phase of this length.
pub fn document(watched: &Watched, figures: &WireFigures, phase: Duration) -> WatchPart {
    let seconds = phase.as_secs_f64();
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    let connections = watched.levels.connections.level;
    WatchPart {
        source: watched.device.clone(),
        capture_point: "server".into(),
        packets: watched.measured.packets,
        bytes: watched.measured.bytes,
        tcp_packets: watched.measured.tcp,
        malformed_packets: watched.measured.malformed,
        later_fragments: watched.measured.later_fragments,
        capture_drops: watched.drops + watched.client_drops,
        missing_bytes: figures.missing_bytes,
        connections: WatchConnections {
            count: figures.connections_opened,
            mean: connections.mean,
            p50: connections.p50,
            max: connections.max,
            states: figures.states.iter().map(|(name, &count)| ((*name).to_owned(), count)).collect(),
            evicted: watched.whole.evicted,
        },
        in_flight: watched.levels.in_flight.level,
        sessions: watched.levels.sessions,
        requests: figures.requests,
        responses: figures.responses,
        request_rate_per_s: rate(figures.requests),
        response_rate_per_s: rate(figures.responses),
        connection_rate_per_s: rate(figures.connections_opened),
        handshake_rtt_ns: figures.handshake_rtt.quantiles(),
        service_time_ns: figures.service_time.quantiles(),
        status: figures.status.iter().map(|(status, &count)| (status.to_string(), count)).collect(),
        incomplete: figures.incomplete,
        by_direction: figures.by_direction,
        data_packets: figures.data_packets,
        retransmitted: figures.retransmitted,
        retransmit_share: share(figures.retransmitted, figures.data_packets),
        out_of_order: figures.out_of_order,
        quic: figures
            .quic
            .clone()
            .map(|quic| WatchQuic { handshake_rtt_ns: figures.handshake_rtt.quantiles(), ..quic }),
        unread: watched.unread.map(str::to_owned),
        undecrypted_connections: (watched.undecrypted > 0).then_some(watched.undecrypted),
        // The devices belong to the run: each packet passes once, in order, without a tunnel.
        capture: None,
    }
}
