//! Figures about one response that a sentence or a prediction needs.

use crate::evidence::Evidence;
use crate::response::Bytes;
use crate::view::View;

/// What the evidence states about the transfer. `None` where no input has the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Facts {
    /// Bytes of the response on the connection, TLS and HTTP framing included.
    pub response_bytes: Option<u64>,
    /// Round-trip time without queues, nanoseconds.
    pub rtt_ns: Option<u64>,
    /// Payload of a full segment, bytes.
    pub segment_bytes: Option<u32>,
    /// Segments sent before the first acknowledgement of the response arrived, if the response had more.
    pub initial_window: Option<u32>,
    /// Largest window that the client advertised, bytes.
    pub receive_window: Option<u64>,
    /// Flow-control window of HTTP/2 at the response's start, of QUIC at the connection's, of stream or connection,
    /// whichever is smaller, bytes.
    pub stream_window: Option<u64>,
    /// Rate of the bottleneck by the path's record, bit/s.
    pub bottleneck_bit_per_s: Option<u64>,
    /// Most bytes of the response that were in flight.
    pub peak_in_flight: Option<u64>,
}

impl Facts {
    pub(crate) fn of(evidence: &Evidence, view: Option<&View>, request_arrived: Option<u64>) -> Facts {
        let http2 = evidence
            .http2
            .as_ref()
            .map(|windows| windows.stream_window.min(windows.connection_size.unwrap_or(windows.connection_window)));
        let stream_window = http2.or(evidence.quic.as_ref().and_then(|quic| quic.initial_window()));
        let Some(view) = view else {
            return Facts { rtt_ns: evidence.configured_rtt_ns, stream_window, ..Facts::default() };
        };
        let bytes = Bytes::of(evidence, view, request_arrived).map(|bytes| bytes.whole);
        let segment = (!view.down.is_empty()).then(|| view.segment());
        let rates = view.down.iter().filter_map(|sent| {
            let (parts, _) = sent.path?;
            let tcp_bytes = || (sent.end - sent.first).saturating_add(HEADER_BYTES);
            let bits = sent.quic.map_or_else(tcp_bytes, |quic| quic.wire_bytes).saturating_mul(8);
            bits.saturating_mul(1_000_000_000).checked_div(parts.serialisation)
        });
        let mut facts = Facts {
            response_bytes: bytes.as_ref().map(|bytes| bytes.end - bytes.start),
            rtt_ns: view.delay.map(|_| view.rtt()),
            segment_bytes: segment.map(|segment| segment as u32),
            stream_window,
            bottleneck_bit_per_s: rates.min(),
            ..Facts::default()
        };
        if let Some(edges) = &view.up.edges {
            facts.receive_window =
                edges.iter().zip(&view.up.acked).map(|(edge, acked)| edge.saturating_sub(*acked)).max();
        }
        let (Some(bytes), Some(segment)) = (bytes, segment) else { return facts };
        let first_ack = view.up.packets.iter().zip(&view.up.acked).find(|(_, acked)| **acked > bytes.start);
        if let Some((packet, _)) = first_ack
            && view.departures_seen
            && let Some(sent) = view.sent_before(packet.arrived)
            && sent < bytes.end
        {
            let window = sent.saturating_sub(bytes.start).div_ceil(segment.max(1));
            facts.initial_window = u32::try_from(window).ok();
        }
        let in_flight = view
            .down
            .iter()
            .zip(&view.sent_end)
            .filter(|(sent, _)| bytes.contains(&sent.first))
            .map(|(sent, end)| end.saturating_sub(view.up.acked_at(sent.at).unwrap_or(0).max(bytes.start)));
        facts.peak_in_flight = in_flight.max();
        facts
    }
}

/// IPv4 and TCP header with timestamps, bytes.
const HEADER_BYTES: u64 = 52;
