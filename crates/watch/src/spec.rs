//! What an analysis is told before its first packet.

use std::net::IpAddr;
use std::time::Duration;

/// Where packets are captured, which decides what round-trip time a handshake shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapturePoint {
    /// Beside the server: the way to the client and back is ACK - SYN-ACK.
    #[default]
    AtServer,
    /// Beside the client: the way to the server and back is SYN-ACK - SYN.
    AtClient,
    /// Somewhere between: the whole way is the sum of both, ACK - SYN.
    Between,
}

impl CapturePoint {
    /// As in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CapturePoint::AtServer => "server",
            CapturePoint::AtClient => "client",
            CapturePoint::Between => "between",
        }
    }

    /// The handshake's round-trip time over the network at this point, of the part towards the client (ACK -
    /// SYN-ACK) and that towards the server (SYN-ACK - SYN).
    pub fn handshake_rtt_ns(self, client_side: Option<u64>, server_side: Option<u64>) -> Option<u64> {
        match self {
            CapturePoint::AtServer => client_side,
            CapturePoint::AtClient => server_side,
            CapturePoint::Between => client_side?.checked_add(server_side?),
        }
    }
}

/// Bounds on memory. Every one holds whatever the packets say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections held at once, closed ones that wait for stragglers included. When a new one finds no room, a
    /// closed one goes first, else one of the longest silent.
    pub flows: usize,
    /// Bytes held for one direction of one connection: heads in pieces, and segments beyond a hole.
    pub held_per_direction: usize,
    /// Bytes held so by all connections together. Beyond it a stream that would need more loses its framing.
    pub held_in_all: usize,
    /// Holes in one direction's sequence space that are remembered.
    pub holes: usize,
    /// Requests waiting for their responses on one connection. A connection with more is not analysed further.
    pub pipelined: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { flows: 1 << 20, held_per_direction: 256 * 1024, held_in_all: 256 << 20, holes: 64, pipelined: 128 }
    }
}

/// How to look at the packets.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// Where they are captured.
    pub capture_point: CapturePoint,
    /// Ports that servers listen on: tells the ends apart where no SYN was seen. `None` takes the lower port.
    pub server_ports: Option<Vec<u16>>,
    /// Addresses of servers: comes before ports, after what a SYN says.
    pub servers: Vec<IpAddr>,
    /// A connection silent for so long is closed as idle. Checked each second; at least a second.
    pub idle_timeout: Duration,
    /// A closed connection is kept for so long, so that repetitions are counted with it. Whole seconds, as above.
    pub linger: Duration,
    /// Bounds on memory.
    pub limits: Limits,
    /// For how long a packet waits for one that it answers, by the packets' times: what is captured in two places may come
    /// in the wrong order.
    pub reorder: Duration,
    /// By how much a packet's time may be before that of one handled earlier without casting doubt.
    pub disorder: Duration,
    /// Whether packets captured twice are recognised and left out. Some nanoseconds a packet, and of no use where packets
    /// pass one device, once.
    pub duplicates: bool,
    /// Whether methods, hosts and paths are kept for the records of requests. Without them each is `None` there, as
    /// if it could not be read; nothing else differs.
    pub words: bool,
    /// Seed of the hash over addresses: a random one keeps a hostile capture from making every look-up slow.
    pub hash_seed: u64,
}

/// Queues of one card differ by microseconds, clocks of two machines kept by NTP by milliseconds.
const REORDER: Duration = Duration::from_millis(100);

impl Default for WatchSpec {
    /// Idle after 5 minutes and 5 seconds of linger, which are Zeek's.
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
            hash_seed: 0x5961_6D61_6269_6B6F,
        }
    }
}
