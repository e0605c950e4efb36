//! Counts of a capture, and its present state.

/// Counts since the start, in packets unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All packets, as captured.
    pub packets: u64,
    /// Their bytes on the wire, link headers included.
    pub bytes: u64,
    /// Packets assigned to a connection.
    pub tcp: u64,
    /// UDP datagrams assigned to a QUIC connection.
    pub quic: u64,
    /// Complete packets of protocols other than TCP and QUIC, and frames that are not IP.
    pub other: u64,
    /// First fragments of TCP packets, assigned to a connection; `tcp` includes them.
    pub first_fragments: u64,
    /// Later fragments of any protocol, counted and ignored.
    pub later_fragments: u64,
    /// Headers that are inconsistent or were not captured. None of these includes copies ([`Reading::duplicates`]).
    pub malformed: u64,
    /// Lost by the capturing system, as reported to [`Watch::handle_capture_drops`].
    pub capture_drops: u64,
    /// TCP connections begun.
    pub connections: u64,
    /// QUIC connections begun.
    pub quic_connections: u64,
    /// Connections whose record was closed early because the table was full.
    pub evicted: u64,
}

/// Present state: for a live display, or to be sampled by a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchLive {
    /// Concurrent connections: SYN seen (or data, if the capture started later), and neither both FINs nor a RST.
    pub connections: u64,
    /// HTTP sessions: those connections with a request.
    pub sessions: u64,
    /// Requests in flight: first byte of a request seen, last byte of its response not.
    pub in_flight: u64,
    /// TCP and QUIC connections in memory, including closed ones that wait for late packets.
    pub flows_held: u64,
    /// Bytes of heads in several segments and of segments beyond holes, all connections together.
    pub bytes_held: u64,
    /// Counts since the start.
    pub counts: Counts,
}
