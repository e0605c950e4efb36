//! One TCP connection as seen on the wire.

use std::net::SocketAddr;
use std::sync::Arc;

use units::Timestamp;

use crate::{Direction, group, record};

/// Connection state when the record was closed, by the names of Zeek's `conn_state`. The originator is the
/// client: the end that sent the first SYN; if no SYN was seen, the end that probably did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// SYN seen, no reply.
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
    /// Every state, in the order of declaration.
    pub const ALL: [ConnectionState; 13] = [
        ConnectionState::S0,
        ConnectionState::S1,
        ConnectionState::SF,
        ConnectionState::Rej,
        ConnectionState::S2,
        ConnectionState::S3,
        ConnectionState::Rsto,
        ConnectionState::Rstr,
        ConnectionState::Rstos0,
        ConnectionState::Rstrh,
        ConnectionState::Sh,
        ConnectionState::Shr,
        ConnectionState::Oth,
    ];

    /// The name in Zeek's logs.
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
    /// FINs from both sides or a RST, and the time after it for late packets.
    #[default]
    Closed,
    /// No packet for the idle timeout.
    Idle,
    /// A new SYN reused the addresses and ports.
    Reused,
    /// The limit of concurrent connections was reached; this connection was the longest idle of those examined.
    Evicted,
    /// The capture ended.
    CaptureEnd,
}

impl RecordEnd {
    /// Every end, in the order of declaration.
    pub const ALL: [RecordEnd; 5] =
        [RecordEnd::Closed, RecordEnd::Idle, RecordEnd::Reused, RecordEnd::Evicted, RecordEnd::CaptureEnd];

    /// The name in files.
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

group! {
    /// A few figures about round-trip times, in nanoseconds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RttSummary {
        /// Number of samples.
        pub count: u32 [meaning of field],
        /// Smallest of them. Null without samples.
        pub min_ns: u64 [null if |rtt| rtt.count == 0],
        /// Largest of them. Null without samples.
        pub max_ns: u64 [null if |rtt| rtt.count == 0],
        /// Sum of them. Null without samples.
        pub sum_ns: u64 [null if |rtt| rtt.count == 0],
    }
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

group! {
    /// Packets of one direction of a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sent {
        /// Packets, as captured: a super-packet that the kernel had not yet cut counts once.
        pub packets: u64 [unit "packets"],
        /// Bytes of IP packets, headers included.
        pub ip_bytes: u64 [unit "bytes"],
        /// Payload, retransmissions included.
        pub payload_bytes: u64 [unit "bytes"],
        /// Payload by sequence number, each byte once; missing ones are not in it.
        pub unique_bytes: u64 [unit "bytes"],
        /// Packets with payload.
        pub data_packets: u64 [unit "packets"],
        // Without keep-alives.
        /// Packets of which at least one payload byte had been seen before.
        pub retransmitted_packets: u64 [unit "packets"],
        /// Payload that had been seen before.
        pub retransmitted_bytes: u64 [unit "bytes"],
        // One capture point cannot distinguish the two.
        /// Packets that filled a gap: reordered, or retransmitted after a loss before the capture.
        pub out_of_order_packets: u64 [unit "packets"],
        // At most one byte, one below the next sequence number.
        /// Keep-alive and window probes.
        pub keep_alives: u64 [unit "packets"],
        // Without RST and SYN.
        /// Packets that announced a window of zero.
        pub zero_windows: u64 [unit "packets"],
        // RFC 2883: the other side retransmitted those bytes needlessly.
        /// D-SACKs: bytes received twice.
        pub duplicate_sacks: u64 [unit "packets"],
        // Capture loss, not network loss.
        /// Bytes that the other end acknowledged and the capture never saw.
        pub missing_bytes: u64 [unit "bytes"],
        /// SYN packets, repetitions included.
        pub syns: u32 [unit "packets"],
        // A bare SYN or FIN retransmitted is not among `retransmitted_packets`, which counts payload; tcptrace counts
        // it there.
        /// FIN packets, repetitions included.
        pub fins: u32 [unit "packets"],
        /// Maximum segment size, from its SYN. Null without the option.
        pub mss: Option<u16> [unit "bytes"],
        /// Window scale, from its SYN. Null without the option.
        pub window_scale: Option<u8>,
        /// First FIN. Null if none was seen.
        pub fin_at: Option<Timestamp>,
        /// First RST. Null if none was seen.
        pub rst_at: Option<Timestamp>,
        // RTT between the capture point and the other end. No retransmitted packet is sampled; delayed
        // acknowledgements are included.
        /// Samples of the RTT from its data to their acknowledgement (Karn's algorithm).
        pub data_rtt: RttSummary,
        // First packet of a tick of its clock to that tick's first echo.
        /// Samples of the RTT by TCP timestamps.
        pub timestamp_rtt: RttSummary,
    }
}

record! {
    // Some 800 bytes a row.
    /// One TCP connection as seen in packets (watch), in the order in which records were closed. Times are
    /// capture times: nanoseconds since the run's zero where a load or a program ran, since 1970 (UTC) in the logs of
    /// `yamabiko watch`. `up_` is what the client sent, `down_` what the server sent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ConnectionRecord in "connections", 4_096 rows a part {
        /// Number of the connection in the capture, from 0, by first packet.
        pub connection: u64,
        /// Address of the end that opened it.
        pub client: SocketAddr,
        /// The virtual client, as in requests.parquet: its address less the first one's. Null outside a testbed.
        pub client_index: Option<u32>,
        /// Address of the end that accepted it.
        pub server: SocketAddr [few],
        /// Whether the roles are known from a SYN, and not from ports or configuration.
        pub roles_seen: bool,
        /// First SYN. Null if none was seen.
        pub syn_at: Option<Timestamp>,
        /// First SYN-ACK. Null if none was seen.
        pub syn_ack_at: Option<Timestamp>,
        /// First acknowledgement of the SYN-ACK. Null if none was seen.
        pub ack_at: Option<Timestamp>,
        /// Handshake RTT between capture and client: ACK - SYN-ACK. Null if the SYN-ACK was retransmitted or not seen.
        pub handshake_rtt_ns: Option<u64>,
        /// Handshake RTT between capture and server: SYN-ACK - SYN. Null if the SYN was retransmitted or not seen.
        pub server_rtt_ns: Option<u64>,
        /// First packet of any kind.
        pub first_at: Timestamp,
        /// Last packet of any kind.
        pub last_at: Timestamp,
        /// First packet with payload. Null if there was none.
        pub first_data_at: Option<Timestamp>,
        /// Last packet with payload. Null if there was none.
        pub last_data_at: Option<Timestamp>,
        /// When the connection closed: the second side's FIN, or the first RST. Null if it did not close.
        pub closed_at: Option<Timestamp>,
        // Unlike `closed_at` it includes packets that one side still sends after the other's RST.
        /// Last packet until both sides had sent FIN or RST, inclusive; less first_at_ns it is Zeek's duration.
        pub open_until: Timestamp,
        /// Connection state at the end, by Zeek's names: S0, S1, SF, REJ, S2, S3, RSTO, RSTR, RSTOS0, RSTRH, SH, SHR,
        /// OTH.
        pub state: ConnectionState,
        /// Why the record was closed: closed, idle, reused, evicted, capture_end.
        pub end: RecordEnd,
        /// What the client sent.
        pub up: Sent,
        /// What the server sent.
        pub down: Sent,
        /// First fragments of packets; later fragments cannot be assigned to a connection.
        pub fragments: u32 [unit "packets"],
        /// HTTP requests seen on it.
        pub requests: u32 [unit "requests"],
        // At most 255 bytes.
        /// Server name that the client sent in TLS (SNI); bytes other than text as \xNN. Null without one.
        pub server_name: Option<Arc<[u8]>>,
    }
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
