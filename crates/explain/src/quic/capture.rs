//! Evidence of a response over HTTP/3 in capture files that were decrypted.

use schema::WireRequest;
use units::Timestamp;

use super::QuicConnections;
use crate::evidence::{Evidence, LoadTimes, Protocol};
use std::sync::Arc;

/// Longest time between handshake and request for which the connection counts as opened for the request.
const PRECONNECT_NS: u64 = 2_000_000;

/// The evidence of a response of HTTP/3 in captures of the client's end, the server's, or both on one clock. `request`
/// is from the client's capture if there is one, else from the server's. `None` if the response was not seen to its end,
/// or its connection was not decrypted.
///
/// At the server's end alone, the times at the client are estimated by the connection's fastest acknowledgement.
pub fn quic_evidence(request: &WireRequest, connections: &QuicConnections) -> Option<Evidence> {
    let opened = connections.numbered(request.connection)?;
    let first = request.request_first_at?.as_nanos();
    let last = request.response_last_at.filter(|_| request.complete)?.as_nanos();
    let connection = &opened.connection;
    let at_client = connection.is_at_client();
    let [up, down] = if at_client { [0; 2] } else { connection.delays()? };
    let is_opener = |secured: &u64| {
        let round_trip = secured.saturating_sub(opened.opened_at);
        request.index == 0 && first.saturating_sub(*secured) <= PRECONNECT_NS + round_trip / 4
    };
    let secured = connection.secured_at.filter(is_opener);
    let at = |nanos: u64| Timestamp::from_nanos(nanos);
    let started = secured.map_or(first, |_| opened.opened_at).saturating_sub(up);
    let quic = connection.response(request.stream?, started, last)?;
    let again = quic.down.iter().filter(|sent| quic.has(sent.first)).map(|sent| sent.at).max();
    let done = if at_client { last } else { last.max(again.unwrap_or(0)).saturating_add(down) };
    let load = LoadTimes {
        scheduled_at: at(started),
        started_at: Some(at(started)),
        connected_at: secured.map(|secured| at(secured.saturating_sub(up))),
        secured_at: secured.map(|secured| at(secured.saturating_sub(up))),
        sent_at: request.request_last_at.map(|sent| at(sent.as_nanos().saturating_sub(up))),
        first_byte_at: request.response_first_at.map(|first| at(first.as_nanos().saturating_add(down))),
        done_at: at(done),
        ..LoadTimes::default()
    };
    let capture_lost_packets = !quic.is_whole;
    let protocol = Some(Protocol::Http3);
    Some(Evidence { load, quic: Some(Arc::new(quic)), protocol, capture_lost_packets, ..Evidence::default() })
}
