//! What is known of one response. Every input is optional, except the start and the end.
//!
//! All times are on one clock, that of [`units::Timestamp`], also those of packets at the other end: the two ends are
//! on one machine, or their clocks were aligned before. Sequence numbers are those of the wire; the core unwraps them.

use std::sync::Arc;

use schema::Direction;
use units::Timestamp;
use wire::tcp::flags;

use crate::quic::QuicResponse;

/// Everything that is known of one response and its connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The load generator's times; of a capture file, the packets' times.
    pub load: LoadTimes,
    /// Packets of the connection at the client's end, in any order. With a persistent connection at least those from
    /// the request on; earlier ones show earlier losses.
    pub client_packets: Option<Vec<Packet>>,
    /// Packets of the connection at the server's end.
    pub server_packets: Option<Vec<Packet>>,
    /// Whether the capture lost packets, so that a packet that is missing may have been there.
    pub capture_lost_packets: bool,
    /// What the emulated path did with each packet of the connection.
    pub path: Option<Vec<PathRecord>>,
    /// TCP_INFO of the client's socket, in order of time.
    pub client_tcp: Option<Vec<TcpSample>>,
    /// TCP_INFO of the server's socket, in order of time.
    pub server_tcp: Option<Vec<TcpSample>>,
    /// HTTP/2 flow control as the client's HTTP machine kept it.
    pub http2: Option<Http2Windows>,
    /// The response over QUIC, in place of TCP's packets and spans; see [`crate::QuicConnections`].
    pub quic: Option<Arc<QuicResponse>>,
    /// Times in which the server's processes could not run.
    pub server_cpu: Option<Vec<CpuInterval>>,
    /// Protocol of the connection, if known: without it a pause might be a flow-control window of HTTP/2.
    pub protocol: Option<Protocol>,
    /// Place of the request on the connection's upward stream.
    pub request: Option<Span>,
    /// Places of the response on the connection's downward stream, in order. Bytes between them belong to others.
    /// `None`: everything that the server sent after the request.
    pub response: Option<Vec<Span>>,
    /// Round-trip time of the path without queues, in nanoseconds, as configured.
    pub configured_rtt_ns: Option<u64>,
}

/// The load generator's times of one request: see `schema::RequestRecord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTimes {
    /// Scheduled start.
    pub scheduled_at: Timestamp,
    /// Whether the request waited for one of the permitted connections between schedule and start.
    pub waited_for_connection: bool,
    /// Start of name resolution or of connecting, or the first write on an open connection.
    pub started_at: Option<Timestamp>,
    /// End of name resolution.
    pub resolved_at: Option<Timestamp>,
    /// Connection established; `None` on an open connection.
    pub connected_at: Option<Timestamp>,
    /// TLS handshake finished; `None` without TLS or on an open connection.
    pub secured_at: Option<Timestamp>,
    /// Last byte of the request written to the kernel.
    pub sent_at: Option<Timestamp>,
    /// First byte of the response read.
    pub first_byte_at: Option<Timestamp>,
    /// Last byte of the response read.
    pub done_at: Timestamp,
}

/// A TCP packet at one end. A packet of a capture that merges segments (GSO, GRO) is one packet here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it passed the capture point.
    pub at: Timestamp,
    /// Up is from the client to the server.
    pub direction: Direction,
    /// Control bits, see [`wire::tcp::flags`].
    pub flags: u8,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Acknowledgement number; valid with the ACK flag.
    pub acknowledgement: u32,
    /// Advertised window in bytes, after scaling. `None`: the scale is unknown.
    pub window: Option<u64>,
    /// Payload bytes.
    pub length: u32,
    /// SACK blocks: first byte, byte after the last.
    pub sack: Vec<(u32, u32)>,
}

impl Packet {
    /// Whether all of these control bits are set.
    pub(crate) fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    /// Sequence numbers used: the payload, and one each for SYN and FIN.
    pub(crate) fn sequence_length(&self) -> u64 {
        u64::from(self.length) + u64::from(self.has(flags::SYN)) + u64::from(self.has(flags::FIN))
    }
}

/// What the path did with one packet. Delivered at `entered_at` plus the five durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// When the packet entered the path.
    pub entered_at: Timestamp,
    /// Up is from the client to the server.
    pub direction: Direction,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Payload bytes.
    pub length: u32,
    /// Wait in queues of links that belong to this client alone, nanoseconds.
    pub queue_ns: u64,
    /// Wait in queues of shared links, nanoseconds.
    pub shared_queue_ns: u64,
    /// Transmission time at the links' rates, nanoseconds.
    pub serialisation_ns: u64,
    /// Propagation delay, jitter included, nanoseconds.
    pub propagation_ns: u64,
    /// Delay added to let later packets overtake, nanoseconds.
    pub reordering_ns: u64,
    /// Whether it was dropped. The durations are then those until the drop.
    pub dropped: bool,
}

/// A sample of TCP_INFO. Durations are cumulative since the connection's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// When it was read.
    pub at: Timestamp,
    /// Congestion window in segments (`tcpi_snd_cwnd`).
    pub congestion_window: u32,
    /// Segment size in bytes (`tcpi_snd_mss`).
    pub segment_bytes: u32,
    /// Lowest round-trip time seen (`tcpi_min_rtt`), nanoseconds; `None` if none was measured.
    pub min_rtt_ns: Option<u64>,
    /// Pacing rate in bytes per second (`tcpi_pacing_rate`); `None` without a limit.
    pub pacing_rate: Option<u64>,
    /// Bytes that the application has written and that were not sent (`tcpi_notsent_bytes`); `None`: not known.
    pub unsent_bytes: Option<u64>,
    /// Time with data to send, limited by the send buffer (`tcpi_sndbuf_limited`), nanoseconds.
    pub send_buffer_limited_ns: u64,
}

/// HTTP/2 flow control of the connection from the client's side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Windows {
    /// The response's stream.
    pub stream: u32,
    /// Window of the stream at its start, bytes.
    pub stream_window: u64,
    /// Window of the connection before the first of `frames`, bytes.
    pub connection_window: u64,
    /// Window of the connection when nothing is in flight, bytes; `None`: that before the first of `frames`.
    pub connection_size: Option<u64>,
    /// Window updates that the client sent, in order of time.
    pub updates: Vec<WindowUpdate>,
    /// DATA received, whole frames or pieces of them as they arrived, in order of time.
    pub frames: Vec<DataFrame>,
}

/// A WINDOW_UPDATE that the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUpdate {
    /// When it was written.
    pub at: Timestamp,
    /// The stream, 0 for the connection.
    pub stream: u32,
    /// Bytes granted.
    pub increment: u64,
}

/// DATA that the client received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFrame {
    /// When it was read.
    pub at: Timestamp,
    /// The stream.
    pub stream: u32,
    /// Bytes that count against the windows.
    pub bytes: u64,
}

/// A time in which the server could not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuInterval {
    /// Start.
    pub from: Timestamp,
    /// End.
    pub to: Timestamp,
    /// Why.
    pub why: CpuWait,
}

/// Why a process that could run did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuWait {
    /// Its group had used up its CPU quota.
    Throttled,
    /// Every permitted CPU ran something else.
    RunQueue,
}

/// Application protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1: one response after the other, without flow control of its own.
    Http1,
    /// HTTP/2: streams with flow-control windows.
    Http2,
    /// HTTP/3: independent streams of QUIC.
    Http3,
}

/// Bytes of one direction's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Sequence number of the first byte.
    pub first: u32,
    /// Number of bytes, below 2^31.
    pub length: u32,
}
