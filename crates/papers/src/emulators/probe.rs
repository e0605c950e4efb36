//! The probes that are the same for every emulator: a server, and clients that measure RTTs, a flood of numbered
//! packets, or TCP flows. The program starts itself at both ends of an emulated path; a probe is described as JSON, and
//! so are its figures.
//!
//! Times are of CLOCK_MONOTONIC, which all network namespaces of a host share.
#![allow(clippy::disallowed_methods, reason = "a probe is a program of its own, which waits and reads the clock")]

mod bulk;
mod flood;
mod rtt;
mod server;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use schema::Quantiles;
use serde::{Deserialize, Serialize};
use sys::clock::Deadline;
use sys::sched::Urgency;

use super::analysis::LossFigures;

/// Port of the probes' server, UDP and TCP.
pub const PORT: u16 = 18090;
/// Every probe waits at most this long for its server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// A probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "probe", rename_all = "snake_case")]
pub enum Probe {
    /// The server: echoes datagrams, sends floods, and writes to each TCP connection.
    Serve {
        /// Send buffer of each TCP connection, where root may set it; absent: the kernel's, of some MB.
        send_buffer: Option<usize>,
    },
    /// Round trips of datagrams with Poisson arrivals.
    Rtt {
        /// The server.
        server: ServerName,
        /// Datagrams a second.
        per_s: f64,
        /// Length of the measurement.
        seconds: f64,
    },
    /// Numbered datagrams from the server at a constant rate.
    Flood {
        /// The server.
        server: ServerName,
        /// Datagrams a second.
        per_s: f64,
        /// Payload of a datagram in bytes, at least 8.
        payload: usize,
        /// Length of the measurement.
        seconds: f64,
    },
    /// TCP flows from the server, as fast as possible.
    Bulk {
        /// The server.
        server: ServerName,
        /// Number of flows.
        flows: u32,
        /// Whether flow i has the address of yamabiko's client i.
        by_client: bool,
        /// Start of the measured interval by CLOCK_MONOTONIC, for several processes; absent: after a warm-up of
        /// `warmup_s`.
        start_ns: Option<u64>,
        /// Warm-up.
        warmup_s: f64,
        /// Length of the measured interval.
        seconds: f64,
    },
}

/// How a client finds its server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerName {
    /// By address.
    Address(Ipv4Addr),
    /// By the environment variable in which an emulator names the address of the far end.
    Variable(String),
}

/// Figures of a probe. With the tag outside: serde reads no number as a key of a map inside of a tagged object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Of [`Probe::Rtt`].
    Rtt(RttFigures),
    /// Of [`Probe::Flood`].
    Flood(FloodFigures),
    /// Of [`Probe::Bulk`].
    Bulk(BulkFigures),
}

/// Round trips.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttFigures {
    /// Datagrams sent.
    pub sent: u64,
    /// Echoes received.
    pub received: u64,
    /// Echoes that a later sent one overtook.
    pub overtaken: u64,
    /// Round trip times.
    pub rtt_ns: Quantiles,
    /// CPU time of the whole machine, all processes, from the first to the last datagram.
    pub machine_cpu_s: f64,
}

/// A flood of numbered datagrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FloodFigures {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that a later sent one overtook.
    pub overtaken: u64,
    /// Losses as a sequence.
    pub loss: LossFigures,
    /// From the first to the last arrival.
    pub span_ns: u64,
    /// IP bytes of all datagrams but the first: those that arrived in `span_ns`.
    pub bytes: u64,
    /// IP bytes of each millisecond from the first arrival.
    pub per_ms: Vec<u64>,
}

/// TCP flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkFigures {
    /// Payload bytes of each flow in the measured interval.
    pub bytes: Vec<u64>,
    /// Length of the measured interval.
    pub seconds: f64,
    /// CPU time of the whole machine, all processes, in the interval.
    pub machine_cpu_s: f64,
}

/// Runs a probe; the server runs until a client ends it.
///
/// # Errors
/// The server is not reached in [`SERVER_TIMEOUT`], or a socket call fails.
pub fn run(probe: &Probe) -> io::Result<Option<Answer>> {
    // An emulator's child must not inherit its real-time priority.
    Urgency::Ordinary.apply_to_this_thread();
    match probe {
        Probe::Serve { send_buffer } => server::serve(*send_buffer).map(|()| None),
        Probe::Rtt { server, per_s, seconds } => {
            let socket = Client::connect(server)?;
            rtt::measure(&socket, *per_s, *seconds).map(Answer::Rtt).map(Some)
        }
        Probe::Flood { server, per_s, payload, seconds } => {
            let socket = Client::connect(server)?;
            flood::measure(&socket, *per_s, *payload, *seconds).map(Answer::Flood).map(Some)
        }
        Probe::Bulk { server, flows, by_client, start_ns, warmup_s, seconds } => {
            let client = Client::connect(server)?;
            let plan = bulk::BulkPlan {
                server: client.server,
                flows: *flows,
                by_client: *by_client,
                start_ns: *start_ns,
                warmup_s: *warmup_s,
                seconds: *seconds,
            };
            bulk::measure(&plan).map(Answer::Bulk).map(Some)
        }
    }
}

impl ServerName {
    fn address(&self) -> io::Result<SocketAddrV4> {
        let address = match self {
            ServerName::Address(address) => *address,
            ServerName::Variable(name) => {
                let text = std::env::var(name).map_err(|_| io::Error::other(format!("${name} is not set")))?;
                text.parse().map_err(|_| io::Error::other(format!("${name} is not an IPv4 address: {text}")))?
            }
        };
        Ok(SocketAddrV4::new(address, PORT))
    }
}

/// A client's UDP socket.
struct Client {
    socket: UdpSocket,
    server: SocketAddrV4,
    /// Whether the server ends with this client.
    ends_server: bool,
}

impl Client {
    /// Waits until the server answers.
    fn connect(name: &ServerName) -> io::Result<Self> {
        let server = name.address()?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        sys::socket::set_receive_buffer(&socket, RECEIVE_BUFFER)?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let deadline = Deadline::after(SERVER_TIMEOUT);
        let mut buffer = [0u8; 64];
        while !deadline.has_passed() {
            // Until the server listens, the kernel answers with an error.
            let sent = socket.send_to(&[server::HELLO], server);
            if sent.is_ok() && socket.recv(&mut buffer).is_ok_and(|length| buffer[..length] == [server::HELLO]) {
                let ends_server = *name == ServerName::Variable(RATTAN_BASE.to_owned());
                return Ok(Client { socket, server, ends_server });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("no server answers at {server}")))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for _ in 0..if self.ends_server { QUIT_COPIES } else { 0 } {
            let _ = self.socket.send_to(&[server::QUIT], self.server);
        }
    }
}

/// Variable with which rattan names the far end. rattan ends when the programs at both ends have ended; the other
/// emulators end the server themselves.
pub const RATTAN_BASE: &str = "RATTAN_BASE";
/// A datagram may be lost.
const QUIT_COPIES: usize = 3;
/// Enough for a tenth of a second of the fastest flood.
const RECEIVE_BUFFER: usize = 8 << 20;

/// CPU time that all processes of the machine and its kernel used since the start, steal time not counted.
fn machine_cpu_s() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    cpu_ticks(&text)
        .map(|ticks| ticks as f64 / TICKS_PER_S)
        .ok_or_else(|| io::Error::other("/proc/stat: expected a first line \"cpu \" with 7 numbers"))
}

/// Ticks of user, nice, system, irq and softirq of the first line of /proc/stat.
fn cpu_ticks(text: &str) -> Option<u64> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks = fields.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    [0, 1, 2, 5, 6].into_iter().map(|at| ticks.get(at).copied()).sum()
}

/// USER_HZ, which is 100 on every architecture that this program supports.
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_loss_bursts_are_read_back() {
        let loss = LossFigures { sent: 10, lost: 3, runs: 4, bursts: [(1, 1), (2, 1)].into() };
        let answer = Answer::Flood(FloodFigures { loss, ..FloodFigures::default() });
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
    }

    #[test]
    fn cpu_ticks_leave_out_idle_and_steal() {
        assert_eq!(cpu_ticks("cpu  1 2 4 1000 2000 8 16 4000 0 0\ncpu0 9 9 9"), Some(31));
        assert_eq!(cpu_ticks("cpu  1 2 4"), None);
        assert_eq!(cpu_ticks("memory 1"), None);
    }
}
