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
    /// The TCP port on which it must listen; `None`: any port, of TCP or UDP.
    pub port: Option<u16>,
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
        if spec.port.is_none() {
            let udp = sockets.unconnected_udp();
            listening.extend(listen_wait.settled(monotonic_ns(), udp));
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
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn socket(on: &str, port: u16) -> ListeningSocket {
        ListeningSocket { address: address(on), port, v6_only: false, inode: 1 }
    }

    #[test]
    fn lines_of_proc_net_tcp_are_parsed() {
        let line =
            "   0: 010012C6:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100";
        assert_eq!(listener(line, "0A", parse_v4), Some(ListeningSocket { inode: 77, ..socket("198.18.0.1", 8080) }));
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(listener(&established, "0A", parse_v4), None);
        let any = "  1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9";
        assert_eq!(listener(any, "0A", parse_v6), Some(ListeningSocket { inode: 9, ..socket("::", 80) }));
        assert_eq!(listener("  sl  local_address rem_address   st", "0A", parse_v4), None);
    }

    #[test]
    fn a_socket_on_all_ipv4_addresses_is_on_no_ipv6_address() {
        let is_reached = |on: &str, at: &str| reaches(&socket(on, 80), address(at));
        assert!(is_reached("0.0.0.0", "198.18.0.1"));
        assert!(is_reached("::", "198.18.0.1"));
        assert!(is_reached("::", "2001:2:0:1::1"));
        assert!(!is_reached("0.0.0.0", "2001:2:0:1::1"));
        assert!(!is_reached("::1", "2001:2:0:1::1"));
        let only = ListeningSocket { v6_only: true, ..socket("::", 80) };
        assert!(reaches(&only, address("2001:2:0:1::1")) && !reaches(&only, address("198.18.0.1")));
    }

    const MS: u64 = 1_000_000;

    /// Polls at this interval in virtual time; returns the time of the last poll, in ms, and the result.
    fn poll_until_done(
        spec: &ListenWaitSpec<'_>,
        every_ms: u64,
        listens: impl Fn(u64) -> Vec<ListeningSocket>,
    ) -> (u64, Result<(), NotListening>) {
        let mut listen_wait = ListenWait::new(spec, 7 * MS);
        let outcome = (0..).map(|poll| poll * every_ms);
        let mut outcome = outcome.filter_map(|at| Some((at, listen_wait.judge((7 + at) * MS, &listens(at))?)));
        outcome.next().unwrap()
    }

    #[test]
    fn a_busy_machine_does_not_lengthen_the_wait() {
        let addresses = [address("198.18.0.1")];
        let spec = ListenWaitSpec {
            pid: 0,
            addresses: &addresses,
            port: Some(8080),
            timeout: Duration::from_secs(10),
            alone: true,
        };
        // A poll and its pause take 5 ms, or 18 if another program has the core most of the time: counting pauses gave
        // 35 s.
        for every_ms in [5, 18, 700] {
            let (at, outcome) = poll_until_done(&spec, every_ms, |_| Vec::new());
            assert!((10_000..10_000 + every_ms).contains(&at), "ended at {at} ms with a poll every {every_ms} ms");
            assert_eq!(outcome, Err(NotListening::OtherPorts { ports: Vec::new(), unchanged_for: None }));
            let (at, outcome) =
                poll_until_done(
                    &spec,
                    every_ms,
                    |at| if at < 9_000 { Vec::new() } else { vec![socket("0.0.0.0", 8080)] },
                );
            assert!(outcome.is_ok() && at < 9_000 + every_ms, "{at} {outcome:?}");
        }
    }

    #[test]
    fn a_server_on_another_port_ends_the_wait_early() {
        let addresses = [address("198.18.0.1"), address("198.18.0.2")];
        let spec = ListenWaitSpec {
            pid: 0,
            addresses: &addresses,
            port: Some(8080),
            timeout: Duration::from_secs(10),
            alone: true,
        };
        let (at, outcome) =
            poll_until_done(&spec, 5, |at| if at < 500 { Vec::new() } else { vec![socket("::", 9090)] });
        assert_eq!(at, 3_500);
        let unchanged_for = Some(Duration::from_secs(3));
        assert_eq!(outcome, Err(NotListening::OtherPorts { ports: vec![9090], unchanged_for }));
        // A server that opens its administration port first opens the expected port just before the wait ends.
        let both = || vec![socket("127.0.0.1", 9090), socket("0.0.0.0", 8080)];
        let (at, outcome) =
            poll_until_done(&spec, 5, |at| if at < 2_990 { vec![socket("127.0.0.1", 9090)] } else { both() });
        assert_eq!((at, outcome), (2_990, Ok(())));
        // A server that still opens sockets is still starting.
        let one_each_second = |at: u64| (0..=at / 1000).map(|nth| socket("::", 9000 + nth as u16)).collect();
        let (at, outcome) = poll_until_done(&spec, 5, one_each_second);
        assert_eq!(at, 10_000);
        assert!(matches!(outcome, Err(NotListening::OtherPorts { unchanged_for: None, .. })), "{outcome:?}");
        // A longer timeout means that the server may need longer.
        let longer = ListenWaitSpec { timeout: Duration::from_secs(60), ..spec.clone() };
        assert_eq!(poll_until_done(&longer, 5, |_| vec![socket("::", 9090)]).0, 18_000);
        // If other programs listen too, their ports show nothing.
        let shared = ListenWaitSpec { alone: false, ..spec.clone() };
        let (at, outcome) = poll_until_done(&shared, 5, |_| vec![socket("::", 9090)]);
        assert_eq!((at, outcome), (10_000, Err(NotListening::OtherPorts { ports: Vec::new(), unchanged_for: None })));
        // The expected port on an address that no client reaches, or that reaches only one of the expected addresses.
        let (at, outcome) = poll_until_done(&shared, 5, |_| vec![socket("127.0.0.1", 8080)]);
        let (on, to) = (address("127.0.0.1"), addresses[0]);
        assert_eq!((at, outcome), (3_000, Err(NotListening::Unreachable { on, expected: to })));
        let (_, outcome) = poll_until_done(&spec, 5, |_| vec![socket("198.18.0.1", 8080)]);
        assert_eq!(outcome, Err(NotListening::Unreachable { on: addresses[0], expected: addresses[1] }));
    }

    #[test]
    fn with_any_port_a_socket_that_clients_reach_counts() {
        let addresses = [address("198.18.0.1"), address("2001:2:0:1::1")];
        let spec =
            ListenWaitSpec { pid: 0, addresses: &addresses, port: None, timeout: Duration::from_secs(10), alone: true };
        let (at, outcome) =
            poll_until_done(&spec, 5, |at| if at < 4_000 { Vec::new() } else { vec![socket("0.0.0.0", 5353)] });
        assert_eq!((at, outcome), (4_300, Ok(())));
        // A server that opens several ports, a tenth of a second apart, is ready when the last is open.
        let several =
            |at| (0..=u16::try_from(at / 100).unwrap().min(20)).map(|i| socket("0.0.0.0", 5200 + i)).collect();
        assert_eq!(poll_until_done(&spec, 5, several), (2_300, Ok(())));
        let (at, outcome) = poll_until_done(&spec, 5, |_| vec![socket("127.0.0.1", 8080)]);
        assert_eq!(at, 3_000);
        assert_eq!(outcome, Err(NotListening::Unreachable { on: address("127.0.0.1"), expected: addresses[0] }));
        let (at, outcome) = poll_until_done(&spec, 5, |_| Vec::new());
        assert_eq!((at, outcome), (10_000, Err(NotListening::OtherPorts { ports: Vec::new(), unchanged_for: None })));
        // A UDP socket of a name lookup is closed before it counts as a service.
        let mut listen_wait = ListenWait::new(&spec, 0);
        let (lookup, service) = (socket("0.0.0.0", 40_000), socket("0.0.0.0", 53));
        assert_eq!(listen_wait.settled(0, vec![lookup]), []);
        assert_eq!(listen_wait.settled(200 * MS, vec![lookup, service]), []);
        assert_eq!(listen_wait.settled(290 * MS, vec![service]), []);
        assert_eq!(listen_wait.settled(500 * MS, vec![lookup, service]), [service]);
    }

    #[test]
    fn udp_sockets_of_this_process_are_listed() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let pid = std::process::id() as i32;
        assert_eq!(find_udp(pid, address("127.0.0.1"), port), Listening::Yes);
        assert!(tables(pid, UDP_UNCONNECTED).iter().any(|socket| socket.port == port));
        drop(socket);
        assert_eq!(find_udp(pid, address("127.0.0.1"), port), Listening::No);
    }

    #[test]
    fn listening_sockets_of_this_process_are_listed() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let pid = std::process::id() as i32;
        assert_eq!(find_tcp(pid, "127.0.0.1".parse().unwrap(), port), Listening::Yes);
        // The kernel's list and the tables in /proc agree.
        let of_port = |all: Vec<ListeningSocket>| -> Vec<ListeningSocket> {
            all.into_iter().filter(|socket| socket.port == port).collect()
        };
        let [listed, read] = [Sockets::of(pid).listening(), tables(pid, TCP_LISTENS)].map(of_port);
        assert_eq!((listed.len(), &listed), (1, &read));
        let other = "127.0.0.2".parse().unwrap();
        assert_eq!(find_tcp(pid, other, port), Listening::Elsewhere("127.0.0.1".parse().unwrap()));
        let own = Cores::allowed().unwrap();
        let of_process = cores_of("127.0.0.1".parse().unwrap(), port).unwrap();
        assert!(own.list().iter().all(|core| of_process.list().contains(core)), "{of_process}");
        assert_eq!(cores_of(other, port), None);
        drop(socket);
        assert_eq!(find_tcp(pid, other, port), Listening::No);
    }
}
