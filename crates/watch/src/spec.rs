//! Configuration of an analysis.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::KeyLog;

/// Where packets are captured, which determines the meaning of a handshake's round-trip time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapturePoint {
    /// At the server: the RTT to the client is ACK - SYN-ACK.
    #[default]
    AtServer,
    /// At the client: the RTT to the server is SYN-ACK - SYN.
    AtClient,
    /// In between: the whole RTT is the sum of both, ACK - SYN.
    Between,
}

impl CapturePoint {
    /// The name in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CapturePoint::AtServer => "server",
            CapturePoint::AtClient => "client",
            CapturePoint::Between => "between",
        }
    }

    /// The handshake's RTT over the network at this capture point, from the part towards the client (ACK - SYN-ACK) and
    /// that towards the server (SYN-ACK - SYN).
    pub fn handshake_rtt_ns(self, client_side: Option<u64>, server_side: Option<u64>) -> Option<u64> {
        match self {
            CapturePoint::AtServer => client_side,
            CapturePoint::AtClient => server_side,
            CapturePoint::Between => client_side?.checked_add(server_side?),
        }
    }
}

/// Memory limits, in force for any packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections, including closed ones that wait for late packets. When the table is full, a new
    /// connection replaces a closed one, otherwise one of the longest silent.
    pub flows: usize,
    /// Bytes held for one direction of one connection: heads in several segments, and segments beyond a hole, of which
    /// there are as many as the sender has in transit.
    pub held_per_direction: usize,
    /// Bytes held by all connections together. A stream that would need more loses its framing.
    pub held_in_all: usize,
    /// Maximum number of recorded holes in one direction's sequence space.
    pub holes: usize,
    /// Maximum number of requests without response on one connection. A connection with more is not analysed further.
    pub pipelined: usize,
    /// Maximum number of concurrent streams of HTTP/2 or HTTP/3 on one connection. A connection with more is not
    /// analysed further.
    pub streams: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            flows: 1 << 20,
            held_per_direction: 4 << 20,
            held_in_all: 256 << 20,
            holes: 64,
            pipelined: 128,
            streams: 1024,
        }
    }
}

/// Configuration of the analysis.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// Where packets are captured.
    pub capture_point: CapturePoint,
    /// Ports of servers: identify the server if no SYN was captured. `None` takes the lower port.
    pub server_ports: Option<Vec<u16>>,
    /// Addresses of servers: have precedence over ports, after the direction of a SYN.
    pub servers: Vec<IpAddr>,
    /// A connection silent for this time is closed as idle. Checked every second; at least a second.
    pub idle_timeout: Duration,
    /// A closed connection is stored for this time, so that retransmissions are counted with it. Whole seconds, as
    /// above.
    pub linger: Duration,
    /// Memory limits.
    pub limits: Limits,
    /// Maximum time for which a packet waits for a packet that it acknowledges, by the packets' timestamps: packets
    /// captured in two places may be out of order.
    pub reorder: Duration,
    /// Maximum decrease of timestamps between consecutive packets that is not an anomaly.
    pub disorder: Duration,
    /// Whether packets captured twice are recognized and excluded. Costs some nanoseconds per packet, and is useless if
    /// packets pass one device, once.
    pub duplicates: bool,
    /// Whether methods, hosts and paths are stored in the records of requests. Without them each is `None`, as if it
    /// could not be read; nothing else differs.
    pub words: bool,
    /// Whether HTTP/2, QUIC and HTTP/3 are analysed. Without them HTTP/1 alone is, and UDP counts as other packets.
    pub later_protocols: bool,
    /// Secrets of TLS and QUIC connections, which are decrypted with them.
    pub key_log: Option<Arc<KeyLog>>,
    /// Whether the client reports secrets while its connections are open ([`crate::Watch::report_secret`]). What a
    /// server sends before the client has reported them is held, within the limits.
    pub secrets_are_reported: bool,
    /// Whether the decrypted packets of QUIC connections are reported ([`crate::Watch::take_quic_packets`]), those of
    /// the handshake before the first secret included.
    pub quic_packets: bool,
    /// Seed of the hash over addresses: a random seed prevents a hostile capture from slowing down every lookup.
    pub hash_seed: u64,
}

/// Queues of one network card differ by microseconds, clocks of two machines with NTP by milliseconds.
const REORDER: Duration = Duration::from_millis(100);

impl Default for WatchSpec {
    /// Idle after 5 minutes and 5 seconds of linger, as in Zeek.
    fn default() -> WatchSpec {
        WatchSpec {
            capture_point: CapturePoint::AtServer,
            server_ports: None,
            servers: Vec::new(),
            idle_timeout: Duration::from_secs(300),
            linger: Duration::from_secs(5),
            limits: Limits::default(),
            reorder: REORDER,
            disorder: REORDER,
            duplicates: false,
            words: true,
            later_protocols: true,
            key_log: None,
            secrets_are_reported: false,
            quic_packets: false,
            hash_seed: 0x5961_6D61_6269_6B6F,
        }
    }
}
