//! Waits until the server listens, by reading the kernel's list of sockets: nothing is sent to the server, so the load
//! opens its first connection.
//!
//! ```text
//!   Sockets (sock_diag, or /proc/net/tcp without it) --> ListenWait::judge(now, sockets) --> listens | waits | ended
//! ```

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::namespace::NetNamespace;
use sys::netlink::{ListeningSocket, SockDiag};
use sys::sched::Cores;

use crate::error::TestbedError;

/// Listeners on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// A socket that `address` reaches.
    Yes,
    /// A socket on this address only.
    Elsewhere(IpAddr),
    /// No socket.
    No,
}

/// Looks for a listener on `port` that `address` reaches, in the namespace of process `pid`.
pub fn find_tcp(pid: i32, address: IpAddr, port: u16) -> Listening {
    found(&Sockets::of(pid).listening(), address, Some(port))
}

/// Looks for a UDP socket on `port` that `address` reaches, in the namespace of process `pid`: a socket that accepts
/// datagrams from any sender.
pub fn find_udp(pid: i32, address: IpAddr, port: u16) -> Listening {
    found(&Sockets::of(pid).unconnected_udp(), address, Some(port))
}

fn found(sockets: &[ListeningSocket], address: IpAddr, port: Option<u16>) -> Listening {
    let on_port = || sockets.iter().filter(|socket| port.is_none_or(|port| socket.port == port));
    match (on_port().any(|socket| reaches(socket, address)), on_port().next_back()) {
        (true, _) => Listening::Yes,
        (false, Some(other)) => Listening::Elsewhere(other.address),
        (false, None) => Listening::No,
    }
}

/// Conditions of the wait for a server.
#[derive(Clone, Debug)]
pub struct ListenWaitSpec<'a> {
    /// A process in the server's network namespace.
    pub pid: i32,
    /// Connections to each of these addresses must reach the server; without a port, to one of them.
    pub addresses: &'a [IpAddr],
    /// The port of TCP on which it must listen; `None`: any port, of TCP or UDP.
    pub port: Option<u16>,
    /// Whether a UDP socket on that port will do, for HTTP/3: some servers have nothing else.
    pub or_udp: bool,
    /// Longest wait.
    pub timeout: Duration,
    /// Whether all sockets of the namespace belong to the server, so that one on another port shows the server's
    /// choice.
    pub alone: bool,
}

/// Why a server cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotListening {
    /// The server ended; how, as text.
    Ended(String),
    /// The server listens on the port, but a connection to `expected` does not reach it.
    Unreachable {
        /// Where it listens.
        on: IpAddr,
        /// An address at which it should be reachable.
        expected: IpAddr,
    },
    /// The server does not listen on the port.
    OtherPorts {
        /// Ports on which it listens instead, ascending.
        ports: Vec<u16>,
        /// How long its sockets have been the same, if that ended the wait.
        unchanged_for: Option<Duration>,
    },
}

/// Waits until a server listens. Ends early when it has ended, by `ended`, or when its listening sockets are on other
/// ports and have not changed for [`grace`] of the time.
///
/// # Errors
/// `ended` failed. Within: why it does not listen.
pub fn wait(
    spec: &ListenWaitSpec<'_>,
    mut ended: impl FnMut() -> Result<Option<String>, TestbedError>,
) -> Result<Result<(), NotListening>, TestbedError> {
    let mut sockets = Sockets::of(spec.pid);
    let mut listen_wait = ListenWait::new(spec, monotonic_ns());
    loop {
        let mut listening = sockets.listening();
        match spec.port {
            None => {
                let udp = sockets.unconnected_udp();
                listening.extend(listen_wait.settled(monotonic_ns(), udp));
            }
            Some(port) if spec.or_udp => {
                listening.extend(sockets.unconnected_udp().into_iter().filter(|socket| socket.port == port));
            }
            Some(_) => {}
        }
        let outcome = listen_wait.judge(monotonic_ns(), &listening);
        if outcome == Some(Ok(())) {
            return Ok(Ok(()));
        }
        if let Some(how) = ended()? {
            return Ok(Err(NotListening::Ended(how)));
        }
        if let Some(outcome) = outcome {
            return Ok(outcome);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Time without a new socket after which a server on other ports is certain not to open the expected port: three tenths
/// of its time limit, and at least three seconds, because some servers open their administration port first.
pub fn grace(timeout: Duration) -> Duration {
    (timeout / 10 * 3).max(GRACE_MIN)
}

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const GRACE_MIN: Duration = Duration::from_secs(3);
/// If any port is accepted, a server is ready when it has opened no further port for this time: some open several, one
/// after another. A UDP socket of this age belongs to a service, and not to a name lookup.
const SETTLE_DURATION: Duration = Duration::from_millis(300);

/// State of the wait, with the caller's clock.
struct ListenWait<'a> {
    spec: &'a ListenWaitSpec<'a>,
    deadline_ns: u64,
    /// The listening sockets, and since when they have not changed.
    sockets: Vec<SocketAddr>,
    since_ns: u64,
    /// UDP sockets, and since when each exists.
    udp: Vec<(ListeningSocket, u64)>,
}

impl<'a> ListenWait<'a> {
    fn new(spec: &'a ListenWaitSpec<'a>, now_ns: u64) -> Self {
        let timeout_ns = units::time::saturating_nanos(spec.timeout);
        ListenWait {
            spec,
            deadline_ns: now_ns.saturating_add(timeout_ns),
            sockets: Vec::new(),
            since_ns: now_ns,
            udp: Vec::new(),
        }
    }

    /// The current UDP sockets that have existed for a while.
    fn settled(&mut self, now_ns: u64, udp: Vec<ListeningSocket>) -> Vec<ListeningSocket> {
        self.udp.retain(|(known, _)| udp.contains(known));
        for socket in udp {
            if !self.udp.iter().any(|(known, _)| *known == socket) {
                self.udp.push((socket, now_ns));
            }
        }
        let settled = |since: u64| Duration::from_nanos(now_ns.saturating_sub(since)) >= SETTLE_DURATION;
        self.udp.iter().filter(|(_, since)| settled(*since)).map(|(socket, _)| *socket).collect()
    }

    /// The result for these sockets; none while the wait continues.
    fn judge(&mut self, now_ns: u64, listening: &[ListeningSocket]) -> Option<Result<(), NotListening>> {
        let ListenWaitSpec { addresses, port, timeout, alone, .. } = *self.spec;
        let mut sockets: Vec<SocketAddr> = listening
            .iter()
            .filter(|socket| alone || port.is_none_or(|port| socket.port == port))
            .map(|socket| SocketAddr::new(socket.address, socket.port))
            .collect();
        sockets.sort_unstable();
        sockets.dedup();
        if sockets != self.sockets {
            (self.sockets, self.since_ns) = (sockets, now_ns);
        }
        let unchanged_for = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        let states = addresses.iter().map(|&address| (address, found(listening, address, port)));
        let missing: Vec<(IpAddr, Listening)> = states.filter(|(_, state)| *state != Listening::Yes).collect();
        let listens = match port {
            Some(_) => missing.is_empty(),
            None => missing.len() < addresses.len() && unchanged_for >= SETTLE_DURATION,
        };
        if listens {
            return Some(Ok(()));
        }
        let unreachable = missing.iter().find_map(|&(expected, state)| match state {
            Listening::Elsewhere(on) => Some(NotListening::Unreachable { on, expected }),
            _ => None,
        });
        let is_certain = !self.sockets.is_empty() && unchanged_for >= grace(timeout);
        if !is_certain && now_ns < self.deadline_ns {
            return None;
        }
        let mut ports: Vec<u16> = self.sockets.iter().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        Some(Err(unreachable.unwrap_or(NotListening::OtherPorts {
            ports,
            unchanged_for: (is_certain && now_ns < self.deadline_ns).then_some(unchanged_for),
        })))
    }
}

/// Cores of the processes that listen on `port` of `address`, in this process's network namespace: of every thread of
/// every process with such a socket. `None` if there is none, or if it is unknown: a process of another user, or of
/// another PID namespace.
pub fn cores_of(address: IpAddr, port: u16) -> Option<Cores> {
    let sockets: HashSet<String> = Sockets::of(std::process::id().cast_signed())
        .listening()
        .into_iter()
        .filter(|socket| socket.port == port && reaches(socket, address))
        .map(|socket| format!("socket:[{}]", socket.inode))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let (mut found, mut cores) = (HashSet::new(), Vec::new());
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let of_process = sockets_among(&process.path().join("fd"), &sockets);
        if of_process.is_empty() {
            continue;
        }
        let Ok(threads) = std::fs::read_dir(process.path().join("task")) else { continue };
        found.extend(of_process);
        for thread in threads.flatten() {
            let number = thread.file_name().to_str()?.parse().ok()?;
            // A thread that has ended since has no cores.
            cores.extend(Cores::of(number).into_iter().flat_map(|cores| cores.list().to_vec()));
        }
    }
    (found.len() == sockets.len()).then(|| Cores::new(cores))
}

/// Which of `sockets` a process has open, by its directory of descriptors.
fn sockets_among(folder: &Path, sockets: &HashSet<String>) -> HashSet<String> {
    let open = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok());
    names.filter(|name| sockets.contains(name)).collect()
}

/// Whether a connection to `address` reaches this socket. A socket on `[::]` accepts IPv4 as well, unless it is
/// IPv6-only.
fn reaches(socket: &ListeningSocket, address: IpAddr) -> bool {
    let ListeningSocket { address: own, v6_only, .. } = *socket;
    let accepts_family = if own.is_ipv6() { address.is_ipv6() || !v6_only } else { address.is_ipv4() };
    own == address || own.is_unspecified() && accepts_family
}

/// The listening sockets of a network namespace.
struct Sockets {
    /// A process in it, whose tables in /proc are read if the kernel has no sock_diag for TCP, or refuses access to the
    /// namespace.
    pid: i32,
    diag: Option<SockDiag>,
}

impl Sockets {
    /// The sockets in the namespace of process `pid`; if that is this process, of the calling thread.
    fn of(pid: i32) -> Self {
        let diag = match pid == std::process::id().cast_signed() {
            true => SockDiag::open(),
            false => NetNamespace::of(pid).and_then(|net| net.run(SockDiag::open)?),
        };
        Sockets { pid, diag: diag.ok() }
    }

    /// The sockets that listen now.
    fn listening(&mut self) -> Vec<ListeningSocket> {
        if let Some(diag) = &mut self.diag {
            match diag.listening() {
                Ok(listening) => return listening,
                Err(_) => self.diag = None,
            }
        }
        tables(self.pid, TCP_LISTENS)
    }

    /// UDP sockets that accept datagrams from any sender. If the kernel does not list any, its tables are read.
    fn unconnected_udp(&mut self) -> Vec<ListeningSocket> {
        let listed = self.diag.as_mut().and_then(|diag| diag.unconnected_udp().ok());
        listed.unwrap_or_else(|| tables(self.pid, UDP_UNCONNECTED))
    }
}

/// Tables of /proc, of IPv4 and IPv6, and the state of such a socket.
type Tables = ([&'static str; 2], &'static str);
const TCP_LISTENS: Tables = (["tcp", "tcp6"], "0A");
const UDP_UNCONNECTED: Tables = (["udp", "udp6"], "07");

/// All sockets of this protocol and state in the namespace of a process.
fn tables(pid: i32, ([v4, v6], state): Tables) -> Vec<ListeningSocket> {
    let mut found = Vec::new();
    for (file, parse) in [(v4, parse_v4 as fn(&str) -> Option<IpAddr>), (v6, parse_v6)] {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        found.extend(table.lines().filter_map(|line| listener(line, state, parse)));
    }
    found
}

/// The socket of a line in this state.
fn listener(line: &str, expected_state: &str, parse: fn(&str) -> Option<IpAddr>) -> Option<ListeningSocket> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    if state != expected_state {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let inode = fields.nth(5)?.parse().ok()?;
    // The table does not show whether a socket on `[::]` accepts IPv4 as well.
    Some(ListeningSocket { address: parse(address)?, port: u16::from_str_radix(port, 16).ok()?, v6_only: false, inode })
}

fn parse_v4(text: &str) -> Option<IpAddr> {
    // Printed as one host-order number of the four network-order bytes.
    let number = u32::from_str_radix(text, 16).ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(number.to_ne_bytes())))
}

fn parse_v6(text: &str) -> Option<IpAddr> {
    let mut bytes = [0u8; 16];
    for (i, word) in bytes.chunks_exact_mut(4).enumerate() {
        let number = u32::from_str_radix(text.get(8 * i..8 * i + 8)?, 16).ok()?;
        word.copy_from_slice(&number.to_ne_bytes());
    }
    Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
}

#[cfg(test)]
mod tests;
