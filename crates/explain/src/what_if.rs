//! What a remedy would gain: the response replayed with one thing changed.
//!
//! The transfer's measured time changes by the ratio of two simulations, with the remedy and without it: what the
//! simulation leaves out of each round trip (queues of others, jitter, hosts) changes with the number of round trips.
//! Time of the server's application and of the load generator stays as measured.

use crate::explanation::Explanation;
use crate::transfer::Transfer;
use schema::share::Cause;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Initial congestion window of the server, segments.
    InitialWindow(u64),
    /// Receive window of the client, bytes.
    ReceiveWindow(u64),
    /// Send buffer of the server, bytes.
    SendBuffer(u64),
    /// HTTP/2 or QUIC window of the client for stream and connection, bytes.
    StreamWindow(u64),
    /// The request finds an open connection.
    KeepAlive,
    /// The TLS handshake takes one round trip.
    TlsResumption,
    /// Round-trip time, nanoseconds: a server closer to the user.
    Rtt(u64),
}

/// What a remedy would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Prediction {
    /// The change.
    pub remedy: Remedy,
    /// Predicted response time, nanoseconds.
    pub response_time_ns: u64,
    /// Measured less predicted response time, nanoseconds; negative if the response would take longer.
    pub gain_ns: i64,
    /// Round trips of the response's segments as simulated without and with the change.
    pub round_trips: [u32; 2],
}

/// Predicts the response time with `remedy`. `None` where the evidence had no packets or no round-trip time, or where
/// the remedy does not apply.
pub fn what_if(explanation: &Explanation, remedy: Remedy) -> Option<Prediction> {
    let facts = &explanation.facts;
    let rtt = facts.rtt_ns?;
    let time_of = |cause| explanation.time_of(cause);
    let tls = time_of(Cause::TlsHandshake);
    // QUIC's handshake is one; a session that is resumed saves none of its round trips.
    let quic = time_of(Cause::QuicHandshake).saturating_add(time_of(Cause::AmplificationLimit));
    let tcp = time_of(Cause::TcpHandshake).saturating_add(quic);
    let now = transfer(explanation)?;
    let mut changed = now;
    // Handshakes with the remedy.
    let mut handshakes = tcp.saturating_add(tls);
    match remedy {
        Remedy::InitialWindow(segments) => changed.initial_window = segments,
        Remedy::ReceiveWindow(bytes) => changed.receive_window = Some(bytes),
        Remedy::SendBuffer(bytes) => changed.send_buffer = Some(bytes),
        Remedy::StreamWindow(bytes) => {
            changed.stream_window?;
            changed.stream_window = Some(bytes);
        }
        Remedy::KeepAlive => {
            (tcp > 0).then_some(())?;
            handshakes = 0;
        }
        Remedy::TlsResumption => {
            (tls > 0).then_some(())?;
            handshakes = tcp.saturating_add(tls.min(rtt));
        }
        Remedy::Rtt(closer) => {
            changed.rtt_ns = closer;
            let round_trips = handshakes.saturating_add(rtt / 2).checked_div(rtt)?;
            let (far, near) = (round_trips.saturating_mul(rtt), round_trips.saturating_mul(closer));
            handshakes = handshakes.saturating_sub(far).saturating_add(near);
        }
    }
    let [before, after] = [now, changed].map(|transfer| transfer.simulate());
    let measured = explanation.response_time_ns();
    let fixed: u64 = FIXED.iter().map(|cause| explanation.time_of(*cause)).sum();
    let transferred = measured.saturating_sub(fixed).saturating_sub(tcp).saturating_sub(tls);
    let scaled = u128::from(transferred) * u128::from(after.time_ns) / u128::from(before.time_ns.max(1));
    let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
    let response_time_ns = fixed.saturating_add(handshakes).saturating_add(scaled);
    let gain = i128::from(measured) - i128::from(response_time_ns);
    let gain_ns = gain.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    Some(Prediction { remedy, response_time_ns, gain_ns, round_trips: [before.round_trips, after.round_trips] })
}

/// What no remedy of the transfer changes.
const FIXED: [Cause; 9] = [
    Cause::SendLag,
    Cause::ConnectionWait,
    Cause::ReceiveLag,
    Cause::Dns,
    Cause::RequestUpload,
    Cause::ServerProcessing,
    Cause::ServerPause,
    Cause::CpuThrottling,
    Cause::RunQueue,
];

/// The transfer that the response was, by its facts.
pub fn transfer(explanation: &Explanation) -> Option<Transfer> {
    let facts = &explanation.facts;
    let segment = u64::from(facts.segment_bytes?).max(1);
    let bytes = facts.response_bytes?;
    // A send buffer shows as the most that was in flight, where it was the limit.
    let is_limited = explanation.time_of(Cause::SendBuffer) > explanation.response_time_ns() / 10;
    let send_buffer = facts.peak_in_flight.filter(|_| is_limited);
    // A receive window that held nothing back grows with what arrives: most kernels enlarge it.
    let receive_window = facts.receive_window.filter(|_| explanation.time_of(Cause::ReceiveWindow) > 0);
    // A response that left at once does not show how large the window was.
    let initial_window = facts.initial_window.map_or(bytes.div_ceil(segment), u64::from).max(1);
    Some(Transfer {
        response_bytes: bytes,
        segment_bytes: segment,
        rtt_ns: facts.rtt_ns?,
        bit_per_s: facts.bottleneck_bit_per_s,
        initial_window,
        receive_window,
        send_buffer,
        stream_window: facts.stream_window,
    })
}
