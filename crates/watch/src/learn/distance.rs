//! The RTT of one connection.
//!
//! The handshake is the best measure: two small packets processed by the kernels, without application or delayed
//! acknowledgement, one per connection. It cannot be used if the SYN-ACK was retransmitted (Karn's algorithm). That is
//! systematic: a client farther away than the server's first timeout (a second on Linux) always causes a
//! retransmission, so omitting these connections would remove the far end of the distribution. Their data shows which
//! SYN-ACK was acknowledged. Connections open before the capture are measured by their data as well: omitting them
//! would prefer short connections.

use schema::{ConnectionRecord, Sent};
use units::Timestamp;

use crate::CapturePoint;

/// The RTT of a connection, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRtt {
    Handshake(u64),
    Data(u64),
    Nothing,
}

/// The whole RTT between client and server from this capture point, in ns, at least 1.
pub(super) fn measure(record: &ConnectionRecord, point: CapturePoint) -> ConnectionRtt {
    if let Some(rtt_ns) = point.handshake_rtt_ns(record.handshake_rtt_ns, record.server_rtt_ns) {
        return ConnectionRtt::Handshake(rtt_ns.max(1));
    }
    // A connection seen from its middle needs several samples: a single one may be a delayed acknowledgement.
    let least = if record.ack_at.is_some() { 1 } else { SAMPLES_MIN };
    let by_data = point.handshake_rtt_ns(data_rtt(&record.down, least), data_rtt(&record.up, least));
    let Some(by_data) = by_data else { return ConnectionRtt::Nothing };
    let since = |to: Option<Timestamp>, from: Option<Timestamp>| Some(to?.as_nanos().saturating_sub(from?.as_nanos()));
    let by_first = point
        .handshake_rtt_ns(since(record.ack_at, record.syn_ack_at), since(record.syn_ack_at, record.syn_at))
        .filter(|&first| first.abs_diff(by_data) <= by_data / AGREEMENT_DIVISOR);
    match by_first {
        Some(rtt_ns) => ConnectionRtt::Handshake(rtt_ns.max(1)),
        None => ConnectionRtt::Data(by_data.max(1)),
    }
}

/// The smallest RTT of one side's data: by timestamps, which also identify retransmissions, otherwise by Karn's
/// algorithm. The smallest, since an acknowledgement may be delayed (by up to 40 ms on Linux, 500 ms by RFC 9293) or
/// wait in a queue.
fn data_rtt(sent: &Sent, least: u32) -> Option<u64> {
    let samples = [sent.timestamp_rtt, sent.data_rtt];
    samples.into_iter().find(|samples| samples.count >= least).map(|samples| samples.min_ns)
}

const SAMPLES_MIN: u32 = 3;
/// The first SYN-ACK was acknowledged if its RTT equals that of the data to within one part in this.
const AGREEMENT_DIVISOR: u64 = 5;
