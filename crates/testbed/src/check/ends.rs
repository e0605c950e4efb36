//! The two ends of a check: sockets in both namespaces that send and receive.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use path::PathSpec;
use sys::clock::monotonic_ns;
use sys::namespace::NetNamespace;
use sys::sched::Urgency;

use super::expected::{self, Flood, HEADERS};
use super::message::{Kind, Message};
use super::stream;
use crate::distances;
use crate::error::TestbedError;
use crate::topology::{self, SERVER, Topology};

const SERVER_PORT: u16 = 7007;
const CLIENT_PORT: u16 = 7008;
/// Receive buffer for packets that arrive while a receiver is not scheduled.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Interval at which receivers check whether the test has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time that the ends' programs may take after the last packet is due.
const PROCESSING_TIME_MAX: Duration = Duration::from_millis(200);
/// Pings of each client; `judge` computes its RTT from them.
const PINGS_PER_CLIENT: usize = 9;
/// Payload of a ping or probe after the headers.
pub(super) const PAYLOAD: usize = 32;
/// Most probes per second, and their share of a link's rate: they must not fill a queue.
const PROBES_PER_SECOND: f64 = 1500.0;
const PROBES_RATE_SHARE: f64 = 0.3;

/// Sockets at both ends.
pub(super) struct Ends {
    client_net: NetNamespace,
    server_net: NetNamespace,
    server: UdpSocket,
    client: UdpSocket,
}

/// Arrivals of a client's numbered datagrams.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// How often each number arrived.
    times: Vec<u8>,
    highest: Option<u32>,
    /// First arrivals: how many different numbers arrived.
    pub(super) first: u32,
    /// Duplicates.
    pub(super) again: u32,
    /// Arrivals after one with a higher number.
    pub(super) late: u32,
}

impl Arrivals {
    /// Adds the arrival of datagram `number`; returns whether it is the first arrival of this number.
    fn add(&mut self, number: u32) -> bool {
        // A corrupted number must not determine the amount of memory.
        if number > 1 << 24 {
            return false;
        }
        let index = number as usize;
        if self.times.len() <= index {
            self.times.resize(index + 1, 0);
        }
        self.times[index] = self.times[index].saturating_add(1);
        if self.times[index] > 1 {
            self.again += 1;
            return false;
        }
        self.first += 1;
        if self.highest.is_some_and(|highest| number < highest) {
            self.late += 1;
        }
        self.highest = self.highest.max(Some(number));
        true
    }
}

/// Results of the probes of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Probed {
    pub(super) sent: u32,
    pub(super) up: Arrivals,
    /// Responses sent down: first arrivals that were answered.
    pub(super) answered: u32,
    pub(super) down: Arrivals,
    /// Datagrams whose checksum was wrong, at the server's end and at the clients'.
    pub(super) corrupted: [u64; 2],
    /// Mean time between two probes, in nanoseconds.
    pub(super) gap_ns: f64,
}

/// Results of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flooded {
    /// Bits of IP packets a second that were sent.
    pub(super) sent: f64,
    /// Bits of IP packets per second that arrived, from the first to the last.
    pub(super) received: f64,
}

impl Ends {
    pub(super) fn open(topology: &Topology) -> Result<Self, TestbedError> {
        let open = |net: &NetNamespace, address: IpAddr, port: u16| {
            let socket = net
                .run(|| UdpSocket::bind(SocketAddr::new(address, port)))
                .map_err(TestbedError::environment)?
                .map_err(TestbedError::system("bind a UDP socket"))?;
            sys::socket::set_receive_buffer(&socket, RECEIVE_BUFFER)
                .map_err(TestbedError::system("setsockopt SO_RCVBUF"))?;
            socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(TestbedError::system("setsockopt SO_RCVTIMEO"))?;
            Ok::<_, TestbedError>(socket)
        };
        Ok(Ends {
            server: open(&topology.server_net, SERVER.into(), SERVER_PORT)?,
            client: open(&topology.client_net, Ipv4Addr::UNSPECIFIED.into(), CLIENT_PORT)?,
            client_net: topology.client_net.try_clone().map_err(TestbedError::environment)?,
            server_net: topology.server_net.try_clone().map_err(TestbedError::environment)?,
        })
    }

    /// A socket that sends as `client`; responses go to the common receiving socket.
    fn sender(&self, client: u32) -> io::Result<UdpSocket> {
        let address = SocketAddr::new(topology::client_address(client, SERVER.into()), 0);
        let socket = self.client_net.run(|| UdpSocket::bind(address)).map_err(io::Error::other)??;
        socket.connect((SERVER, SERVER_PORT))?;
        Ok(socket)
    }

    /// RTTs of small packets, in nanoseconds, of each of `clients`; lost packets are left out.
    pub(super) fn ping(
        &self,
        clients: &[u32],
        spec: &PathSpec,
        duration: Duration,
    ) -> io::Result<Vec<(u32, Vec<f64>)>> {
        let senders: Vec<UdpSocket> = clients.iter().map(|&client| self.sender(client)).collect::<io::Result<_>>()?;
        let gap = duration / (PINGS_PER_CLIENT * clients.len()) as u32;
        let mut rtts: HashMap<u32, Vec<f64>> = HashMap::new();
        self.exchange(
            |server, message, buffer| {
                if message.kind == Kind::Ping {
                    let _ = server.send_to(buffer, client_receiver(message.client));
                }
            },
            |message, now| {
                if message.kind == Kind::Ping && clients.contains(&message.client) {
                    rtts.entry(message.client).or_default().push(now.saturating_sub(message.sent_ns) as f64);
                }
            },
            || {
                let mut pacer = SendPacer::new(gap);
                for number in 0..PINGS_PER_CLIENT as u32 {
                    for (sender, &client) in senders.iter().zip(clients) {
                        pacer.wait();
                        send(sender, Message { kind: Kind::Ping, client, number, sent_ns: monotonic_ns() }, PAYLOAD);
                    }
                }
                std::thread::sleep(settle(spec));
            },
        )?;
        Ok(clients.iter().map(|client| (*client, rtts.remove(client).unwrap_or_default())).collect())
    }

    /// Sends numbered probes of one client; each first arrival is answered with a number in the other direction.
    pub(super) fn probe(&self, client: u32, spec: &PathSpec, duration: Duration) -> io::Result<Probed> {
        let sender = self.sender(client)?;
        let wire_bits = ((PAYLOAD + HEADERS) * 8) as f64;
        let slowest =
            [true, false].into_iter().filter_map(|up| expected::flood(spec, client, up)).map(|flood| flood.rate);
        let per_second = slowest.fold(PROBES_PER_SECOND, |least, rate| least.min(rate * PROBES_RATE_SHARE / wire_bits));
        let gap = Duration::from_secs_f64(1.0 / per_second.max(1.0));
        let mut probed = Probed::default();
        let before = self.checksum_errors()?;
        let (mut up, mut answered) = (Arrivals::default(), 0);
        let down = &mut probed.down;
        let (mut sent, mut elapsed) = (0, Duration::ZERO);
        self.exchange(
            |server, message, buffer| {
                if message.kind == Kind::Probe && message.client == client && up.add(message.number) {
                    Message { number: answered, ..message }.write(buffer);
                    answered += 1;
                    let _ = server.send_to(buffer, client_receiver(client));
                }
            },
            |message, _| {
                if message.kind == Kind::Probe && message.client == client {
                    down.add(message.number);
                }
            },
            || {
                let mut pacer = SendPacer::new(gap);
                let start_ns = monotonic_ns();
                while monotonic_ns() - start_ns < duration.as_nanos() as u64 {
                    pacer.wait();
                    send(
                        &sender,
                        Message { kind: Kind::Probe, client, number: sent, sent_ns: monotonic_ns() },
                        PAYLOAD,
                    );
                    sent += 1;
                }
                elapsed = Duration::from_nanos(monotonic_ns() - start_ns);
                std::thread::sleep(settle(spec));
            },
        )?;
        let after = self.checksum_errors()?;
        probed.corrupted = [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])];
        probed.gap_ns = elapsed.as_nanos() as f64 / f64::from(sent.max(1));
        Ok(Probed { sent, up, answered, ..probed })
    }

    /// Sends more than the link can carry, and measures the rate of arrivals.
    pub(super) fn flood(
        &self,
        client: u32,
        spec: &PathSpec,
        up: bool,
        flood: &Flood,
        duration: Duration,
    ) -> io::Result<Flooded> {
        let sender = if up { self.sender(client)? } else { self.server.try_clone()? };
        let mut arrived = Window::default();
        let mut at_client = Window::default();
        let wire_bits = ((flood.payload + HEADERS) * 8) as f64;
        let mut sent = 0.0;
        let of_this = |message: Message| message.kind == Kind::Flood && message.client == client;
        self.exchange(
            |_, message, _| {
                if of_this(message) {
                    arrived.add(monotonic_ns());
                }
            },
            |message, now| {
                if of_this(message) {
                    at_client.add(now);
                }
            },
            || {
                let start_ns = monotonic_ns();
                let mut buffer = vec![0; flood.payload];
                let mut number = 0u32;
                loop {
                    let elapsed = monotonic_ns() - start_ns;
                    if elapsed >= duration.as_nanos() as u64 {
                        break;
                    }
                    // Sends all datagrams that are due by now: overdue datagrams are sent immediately.
                    let due = (elapsed as f64 / 1e9 * flood.per_second) as u32 + 1;
                    while number < due {
                        Message { kind: Kind::Flood, client, number, sent_ns: 0 }.write(&mut buffer);
                        let _ =
                            if up { sender.send(&buffer) } else { sender.send_to(&buffer, client_receiver(client)) };
                        number += 1;
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
                sent = f64::from(number) * wire_bits / ((monotonic_ns() - start_ns) as f64 / 1e9);
                std::thread::sleep(settle(spec) + queues(spec, client, up));
            },
        )?;
        let window = if up { arrived } else { at_client };
        Ok(Flooded { sent, received: window.per_second() * wire_bits })
    }

    /// Bits of IP packets per second of a TCP stream.
    pub(super) fn stream(&self, client: u32, up: bool, duration: Duration) -> io::Result<f64> {
        stream::run(&self.client_net, &self.server_net, client, up, duration)
    }

    /// Runs `work` while both ends receive: `at_server` may send responses, `at_client` gets the time of arrival.
    fn exchange(
        &self,
        mut at_server: impl FnMut(&UdpSocket, Message, &mut [u8]) + Send,
        mut at_client: impl FnMut(Message, u64) + Send,
        work: impl FnOnce(),
    ) -> io::Result<()> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                receive(&self.server, &over, |message, buffer| at_server(&self.server, message, buffer));
            });
            scope.spawn(|| receive(&self.client, &over, |message, _| at_client(message, monotonic_ns())));
            work();
            over.store(true, Ordering::Relaxed);
        });
        Ok(())
    }

    /// UDP datagrams with a wrong checksum, at the server's end and at the clients'.
    fn checksum_errors(&self) -> io::Result<[u64; 2]> {
        let read = |net: &NetNamespace| {
            net.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).map_err(io::Error::other)?
        };
        Ok([wrong_checksums(&read(&self.server_net)?), wrong_checksums(&read(&self.client_net)?)])
    }
}

/// `InCsumErrors` of UDP in /proc/net/snmp; 0 without this line.
fn wrong_checksums(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "InCsumErrors").and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Address and port at which the clients' end receives datagrams for `client`.
fn client_receiver(client: u32) -> SocketAddr {
    SocketAddr::new(topology::client_address(client, SERVER.into()), CLIENT_PORT)
}

/// Sends a datagram. A datagram that the socket's buffer cannot take counts as lost.
fn send(socket: &UdpSocket, message: Message, payload: usize) {
    let mut buffer = [0; PAYLOAD];
    message.write(&mut buffer);
    let _ = socket.send(&buffer[..payload]);
}

fn receive(socket: &UdpSocket, over: &AtomicBool, mut take: impl FnMut(Message, &mut [u8])) {
    Urgency::High.apply_to_this_thread();
    let mut buffer = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        // After a timeout the loop checks `over` again; any other error shows as loss.
        let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
        let datagram = &mut buffer[..length];
        if let Some(message) = Message::read(datagram) {
            take(message, datagram);
        }
    }
}

/// Time to wait for the last arrivals: the longest RTT and the processing time of the ends.
fn settle(spec: &PathSpec) -> Duration {
    distances::longest_rtt(spec) + PROCESSING_TIME_MAX
}

/// Time to empty a full queue, at most two seconds: packets still queued afterwards are not awaited.
fn queues(spec: &PathSpec, client: u32, up: bool) -> Duration {
    let waits = expected::effects(spec, client, up).into_iter().filter_map(|effect| match effect {
        path::EffectSpec::Bottleneck(bottleneck) => Some(match bottleneck.queue.limit {
            path::QueueLimit::Time(time) => time,
            _ => Duration::from_secs(1),
        }),
        _ => None,
    });
    waits.fold(Duration::ZERO, Duration::saturating_add).min(Duration::from_secs(2))
}

/// Spaces sends at least `gap` apart. A late sender does not catch up: a burst would build a queue.
struct SendPacer {
    gap_ns: u64,
    next_ns: u64,
}

impl SendPacer {
    fn new(gap: Duration) -> Self {
        SendPacer { gap_ns: gap.as_nanos() as u64, next_ns: monotonic_ns() }
    }

    fn wait(&mut self) {
        let now = monotonic_ns();
        if self.next_ns > now {
            std::thread::sleep(Duration::from_nanos(self.next_ns - now));
        }
        self.next_ns = self.next_ns.max(now) + self.gap_ns;
    }
}

/// Number of arrivals, and the times of the first and the last.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Window {
    fn add(&mut self, now_ns: u64) {
        if self.number == 0 {
            self.first_ns = now_ns;
        }
        self.number += 1;
        self.last_ns = now_ns;
    }

    /// Arrivals per second: those after the first, over the time since the first.
    fn per_second(&self) -> f64 {
        let time = self.last_ns.saturating_sub(self.first_ns);
        if time == 0 { 0.0 } else { self.number.saturating_sub(1) as f64 / (time as f64 / 1e9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_counted_as_new_duplicate_or_reordered() {
        let mut arrivals = Arrivals::default();
        let firsts: Vec<bool> = [0, 1, 3, 2, 3, 3, u32::MAX].iter().map(|&number| arrivals.add(number)).collect();
        assert_eq!(firsts, [true, true, true, true, false, false, false]);
        assert_eq!((arrivals.first, arrivals.again, arrivals.late), (4, 2, 1));
    }

    #[test]
    fn checksum_errors_are_found_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InCsumErrors\nUdp: 5 6 7\nUdpLite: InDatagrams\n";
        assert_eq!((wrong_checksums(snmp), wrong_checksums("Udp: InDatagrams\n")), (7, 0));
    }

    #[test]
    fn a_rate_excludes_the_first_arrival() {
        let mut window = Window::default();
        assert_eq!(window.per_second(), 0.0);
        for at in 0..=10 {
            window.add(1_000_000_000 + at * 100_000_000);
        }
        assert_eq!(window.per_second(), 10.0);
    }
}
