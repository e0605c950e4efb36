//! How far away the client of one connection is.
//!
//! The handshake is the best measure: two small packets answered by the kernels, no application, no delayed
//! acknowledgement, one for each connection. It is no measure where the SYN-ACK was sent twice (Karn's rule), which is
//! not an accident only: a client farther away than the server's first timeout (a second on Linux) always makes it
//! send again, so leaving these out would cut the far end off. Their data tells which SYN-ACK was answered. Connections
//! that were open before the capture are measured by their data too: leaving them out would prefer those that do not
//! last.

use schema::{ConnectionRecord, Sent};
use units::Timestamp;

use crate::CapturePoint;

/// The RTT of a connection, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Handshake(u64),
    Data(u64),
    Nothing,
}

/// The whole way between client and server as this capture point sees it, in ns, at least 1.
pub(super) fn told(record: &ConnectionRecord, point: CapturePoint) -> Told {
    if let Some(rtt_ns) = point.handshake_rtt_ns(record.handshake_rtt_ns, record.server_rtt_ns) {
        return Told::Handshake(rtt_ns.max(1));
    }
    // A connection seen from its middle must show a few: the only one may have waited for a delayed acknowledgement.
    let least = if record.ack_at.is_some() { 1 } else { SAMPLES_MIN };
    let by_data = point.handshake_rtt_ns(data_rtt(&record.down, least), data_rtt(&record.up, least));
    let Some(by_data) = by_data else { return Told::Nothing };
    let since = |to: Option<Timestamp>, from: Option<Timestamp>| Some(to?.as_nanos().saturating_sub(from?.as_nanos()));
    let by_first = point
        .handshake_rtt_ns(since(record.ack_at, record.syn_ack_at), since(record.syn_ack_at, record.syn_at))
        .filter(|&first| first.abs_diff(by_data) <= by_data / AGREES);
    match by_first {
        Some(rtt_ns) => Told::Handshake(rtt_ns.max(1)),
        None => Told::Data(by_data.max(1)),
    }
}

/// The smallest RTT of what one side sent: by timestamps, which also tell repetitions apart, else by Karn's rule. The
/// smallest, since an acknowledgement may be delayed (by up to 40 ms on Linux, 500 ms by RFC 9293) or wait in a queue.
fn data_rtt(sent: &Sent, least: u32) -> Option<u64> {
    let samples = [sent.timestamp_rtt, sent.data_rtt];
    samples.into_iter().find(|samples| samples.count >= least).map(|samples| samples.min_ns)
}

const SAMPLES_MIN: u32 = 3;
/// The first SYN-ACK was the one that was answered if that gives the data's RTT to within one part in this.
const AGREES: u64 = 5;
