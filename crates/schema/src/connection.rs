//! One TCP connection as seen on the wire.

use std::net::SocketAddr;
use std::sync::Arc;

use units::Timestamp;

use crate::Direction;

/// How a connection stood when its record was closed, by the names of Zeek's `conn_state`. The originator is the
/// client: who sent the first SYN, or who was taken for it where none was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// SYN seen, no answer.
    S0,
    /// Established, neither side has closed.
    S1,
    /// Established and closed by both sides.
    SF,
    /// SYN answered by RST; also RST from both sides before any byte of payload.
    Rej,
    /// Established; the originator closed, the responder has not.
    S2,
    /// Established; the responder closed, the originator has not.
    S3,
    /// Established; the originator aborted with RST.
    Rsto,
    /// The responder aborted with RST.
    Rstr,
    /// SYN then RST from the originator; no SYN-ACK seen.
    Rstos0,
    /// SYN-ACK then RST from the responder; no SYN seen.
    Rstrh,
    /// SYN then FIN from the originator; no SYN-ACK seen.
    Sh,
    /// SYN-ACK then FIN from the responder; no SYN seen.
    Shr,
    /// None of the others; most often no SYN was seen, as the connection was open when the capture began.
    #[default]
    Oth,
}

impl ConnectionState {
    /// As Zeek writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConnectionState::S0 => "S0",
            ConnectionState::S1 => "S1",
            ConnectionState::SF => "SF",
            ConnectionState::Rej => "REJ",
            ConnectionState::S2 => "S2",
            ConnectionState::S3 => "S3",
            ConnectionState::Rsto => "RSTO",
            ConnectionState::Rstr => "RSTR",
            ConnectionState::Rstos0 => "RSTOS0",
            ConnectionState::Rstrh => "RSTRH",
            ConnectionState::Sh => "SH",
            ConnectionState::Shr => "SHR",
            ConnectionState::Oth => "OTH",
        }
    }
}

/// Why a connection's record was closed when it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RecordEnd {
    /// FINs from both sides or a RST, and the time after it for stragglers.
    #[default]
    Closed,
    /// Nothing was heard for the idle timeout.
    Idle,
    /// A new SYN took the same addresses and ports.
    Reused,
    /// The bound on connections held at once was reached; this one had been silent longest of those looked at.
    Evicted,
    /// The capture ended.
    CaptureEnd,
}

impl RecordEnd {
    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            RecordEnd::Closed => "closed",
            RecordEnd::Idle => "idle",
            RecordEnd::Reused => "reused",
            RecordEnd::Evicted => "evicted",
            RecordEnd::CaptureEnd => "capture_end",
        }
    }
}

/// A few figures about round-trip times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttSummary {
    /// Number of samples; the others mean nothing when it is 0.
    pub count: u32,
    /// Smallest.
    pub min_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Sum of all.
    pub sum_ns: u64,
}

impl RttSummary {
    /// Takes one sample in.
    pub fn record(&mut self, rtt_ns: u64) {
        self.min_ns = if self.count == 0 { rtt_ns } else { self.min_ns.min(rtt_ns) };
        self.max_ns = self.max_ns.max(rtt_ns);
        self.sum_ns = self.sum_ns.saturating_add(rtt_ns);
        self.count = self.count.saturating_add(1);
    }

    /// Mean; `None` without samples.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(u64::from(self.count))
    }
}

/// What one side of a connection sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets, as captured: a super-packet the kernel had not yet cut counts once.
    pub packets: u64,
    /// Bytes of IP packets, headers included.
    pub ip_bytes: u64,
    /// Payload bytes, retransmissions included.
    pub payload_bytes: u64,
    /// Payload bytes by sequence number, each once; missing ones are not in it.
    pub unique_bytes: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Packets of which at least one payload byte had been seen before; keep-alives are not among them.
    pub retransmitted_packets: u64,
    /// Payload bytes that had been seen before.
    pub retransmitted_bytes: u64,
    /// Packets that filled a hole: reordered on the way to the capture, or sent again after a loss in front of it,
    /// which one observer cannot tell apart.
    pub out_of_order_packets: u64,
    /// Keep-alive and window probes: at most one byte, one below the next sequence number.
    pub keep_alives: u64,
    /// Packets that announced a window of zero (RST and SYN left out).
    pub zero_windows: u64,
    /// Selective acknowledgements this side sent for bytes it had acknowledged already (D-SACK, RFC 2883): the
    /// other side sent them again for nothing.
    pub duplicate_sacks: u64,
    /// Bytes the other side acknowledged that the capture never saw: capture loss, not network loss.
    pub missing_bytes: u64,
    /// SYN packets, repetitions included.
    pub syns: u32,
    /// FIN packets, repetitions included. A bare SYN or FIN sent again is not among `retransmitted_packets`, which
    /// counts payload; tcptrace counts it there.
    pub fins: u32,
    /// Largest segment it takes, from its SYN, in bytes.
    pub mss: Option<u16>,
    /// Shift of its window, from its SYN.
    pub window_scale: Option<u8>,
    /// First FIN.
    pub fin_at: Option<Timestamp>,
    /// First RST.
    pub rst_at: Option<Timestamp>,
    /// From its data to the acknowledgement by the other side, as seen at the capture: the way from there to the
    /// other end and back. Karn's rule: nothing sent twice is sampled. Includes delayed acknowledgements.
    pub data_rtt: RttSummary,
    /// The same by TCP timestamps: first packet of a tick of its clock to that tick's first echo.
    pub timestamp_rtt: RttSummary,
}

/// One connection, from its first packet seen to its last. All moments are capture times; those that were not seen
/// are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Sequence number in the capture, from 0, in the order of first packets.
    pub connection: u64,
    /// The end that opened it.
    pub client: SocketAddr,
    /// The virtual client, in a lab: its address less the first one's.
    pub client_index: Option<u32>,
    /// The end that was called.
    pub server: SocketAddr,
    /// Whether the roles are known from a SYN, and not taken from ports or told.
    pub roles_seen: bool,
    /// First SYN.
    pub syn_at: Option<Timestamp>,
    /// First SYN-ACK.
    pub syn_ack_at: Option<Timestamp>,
    /// First acknowledgement of the SYN-ACK.
    pub ack_at: Option<Timestamp>,
    /// ACK - SYN-ACK: from the capture to the client and back. Absent when the SYN-ACK was sent more than once
    /// (Karn's rule).
    pub handshake_rtt_ns: Option<u64>,
    /// SYN-ACK - SYN: from the capture to the server and back. Absent when the SYN was sent more than once.
    pub server_rtt_ns: Option<u64>,
    /// First packet of any kind.
    pub first_at: Timestamp,
    /// Last packet of any kind.
    pub last_at: Timestamp,
    /// First and last packet with payload.
    pub first_data_at: Option<Timestamp>,
    /// Last packet with payload.
    pub last_data_at: Option<Timestamp>,
    /// When it stopped being in process: the second side's FIN, or the first RST.
    pub closed_at: Option<Timestamp>,
    /// Last packet until both sides had sent FIN or RST, the one that made it so included. Unlike `closed_at` it takes
    /// in what one side still sends after the other's RST.
    pub open_until: Timestamp,
    /// How it ended.
    pub state: ConnectionState,
    /// Why the record was closed.
    pub end: RecordEnd,
    /// What the client sent.
    pub up: Sent,
    /// What the server sent.
    pub down: Sent,
    /// First fragments of packets, analysed as far as they went; later fragments cannot be told to a connection.
    pub fragments: u32,
    /// HTTP requests seen on it.
    pub requests: u32,
    /// Server name the client asked TLS for; any bytes, at most 255.
    pub server_name: Option<Arc<[u8]>>,
}

impl ConnectionRecord {
    /// What one side sent.
    pub fn sent(&self, direction: Direction) -> &Sent {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// First to last packet, as tcptrace counts.
    pub fn first_to_last_ns(&self) -> u64 {
        self.last_at.as_nanos().saturating_sub(self.first_at.as_nanos())
    }

    /// First packet to the last before both sides had sent FIN or RST, that one included, as Zeek counts: the last
    /// acknowledgement of a tear-down is not in it. For a connection that was not closed, to its last packet. Zeek
    /// waits besides, when a FIN comes before data that is still missing, until the data came; here it does not.
    pub fn duration_ns(&self) -> u64 {
        self.open_until.as_nanos().saturating_sub(self.first_at.as_nanos())
    }
}
