//! The client of the tester: opens a session with a server and runs one trial after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::namespace::NetNamespace;

use super::TesterError;
use super::control_connection::{self, ControlConnection, InboxItem, PeerLost, is_temporary};
use super::datagram::Introduction;
use super::frame::FrameDirection;
use super::handshake::{Nonce, Opening, Proof};
use super::message::{PROTOCOL, Test, ToClient, ToServer};
use super::report::{EndReport, TrialReport};
use super::secret::{End, Keys, Secret, Tag};
use super::trial::{self, Trial};

/// A client's session with a server. Runs one trial at a time. Dropping it ends the session.
pub struct Session {
    to: SocketAddr,
    secret: Secret,
    net: Option<NetNamespace>,
    control: ControlConnection,
    keys: Keys,
    server: ServerFacts,
    trial: u32,
}

/// Facts about the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// Version of the program.
    pub version: String,
    /// CPU cores of its host.
    pub cores: u32,
    /// Its TCP congestion control; empty if unknown.
    pub congestion_control: String,
}

impl Session {
    /// Connects, in the namespace `net` if given. Both ends prove that they know the secret.
    ///
    /// # Errors
    /// All of [`TesterError`] except those of a trial.
    pub fn open(to: SocketAddr, secret: &Secret, net: Option<&NetNamespace>) -> Result<Session, TesterError> {
        let net = net.map(NetNamespace::try_clone).transpose().map_err(environment("the clients' namespace"))?;
        let (stream, keys) = connect(to, secret, Opening::Control, net.as_ref())?;
        let control = ControlConnection::start(stream, &keys, FrameDirection::Up, control_connection::inbox())
            .map_err(system("the control connection"))?;
        let mut session =
            Session { to, secret: secret.clone(), net, control, keys, server: ServerFacts::default(), trial: 0 };
        session.exchange_hello()?;
        Ok(session)
    }

    /// Facts about the server.
    pub fn server(&self) -> &ServerFacts {
        &self.server
    }

    /// Runs one trial and returns the reports of both ends.
    ///
    /// # Errors
    /// After [`TesterError::Refused`] and [`TesterError::UdpBlocked`] the trial is rejected and the session continues.
    /// Other errors end the session.
    pub fn run(&mut self, test: &Test) -> Result<TrialReport, TesterError> {
        self.run_while(test, &|| true)
    }

    /// The same as [`Session::run`], ended early when `go_on` returns false. It is called about twenty times a second.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_while(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialReport, TesterError> {
        test.check().map_err(TesterError::Refused)?;
        if let Test::Packets { ip_bytes, .. } = test
            && !self.to.ip().to_canonical().is_ipv4()
            && *ip_bytes < IPV6_PACKET_MIN
        {
            return Err(TesterError::Refused(format!("expected IPv6 packets of at least {IPV6_PACKET_MIN} bytes")));
        }
        self.trial += 1;
        let begun_ns = monotonic_ns();
        let outcome = self.try_run(test, go_on, begun_ns);
        self.control.set_keep_alive_socket(None);
        if let Err(TesterError::UdpBlocked { .. } | TesterError::Refused(_) | TesterError::Io { .. }) = &outcome {
            // The server discards the trial. A failure of the server is detected by the next trial.
            let _ = self.control.send(&ToServer::Stop { trial: self.trial });
        }
        outcome
    }

    fn exchange_hello(&mut self) -> Result<(), TesterError> {
        let begun_ns = monotonic_ns();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = ToServer::Hello { version: version.clone(), protocol: PROTOCOL };
        self.control.send(&hello).map_err(lost(begun_ns))?;
        // The first message has the version, whatever else the server's version puts into it.
        let text = loop {
            match self.control.receive(POLL_INTERVAL).map_err(lost(begun_ns))? {
                Some(InboxItem::Message(text)) => break text,
                _ if monotonic_ns() - begun_ns > RESPONSE_TIMEOUT.as_nanos() as u64 => {
                    return Err(TesterError::NoAnswer { address: self.to });
                }
                _ => {}
            }
        };
        if let Some((there, protocol)) = super::message::hello(&text)
            && protocol != PROTOCOL
        {
            let here = format!("{version} (protocol {PROTOCOL})");
            return Err(TesterError::OtherVersion { here, there: format!("{there} (protocol {protocol})") });
        }
        match serde_json::from_slice(&text) {
            Ok(ToClient::Hello { version, cores, congestion_control, .. }) => {
                self.server = ServerFacts { version, cores, congestion_control };
                Ok(())
            }
            Ok(ToClient::Busy { by }) => Err(TesterError::Busy { by }),
            _ => Err(TesterError::NotAServer { address: self.to }),
        }
    }

    fn try_run(&mut self, test: &Test, go_on: &dyn Fn() -> bool, begun_ns: u64) -> Result<TrialReport, TesterError> {
        let number = self.trial;
        self.send(&ToServer::Ready { trial: number, test: test.clone() }, begun_ns)?;
        self.expect(begun_ns, RESPONSE_TIMEOUT, |message| match message {
            ToClient::Ready { trial } if trial == number => Some(()),
            _ => None,
        })?;
        let mut trial = Trial::new(End::Client, number, test.clone(), self.keys.clone(), self.control.liveness());
        let streams = self.open_streams(&mut trial)?;
        if test.needs_udp() {
            self.introduce(&mut trial, begun_ns)?;
        }
        let net = self.net.as_ref().map(NetNamespace::try_clone).transpose();
        let net = net.map_err(environment("the clients' namespace"))?;
        // Start this end first: packets of the server arrive shortly after its `Go` message.
        let begun_ns = monotonic_ns();
        trial.start(streams, self.to, net).map_err(system("beginning the trial"))?;
        self.send(&ToServer::Go { trial: number }, begun_ns)?;
        let mut cut_short = false;
        while !(trial.is_done() && trial.is_over()) {
            if !cut_short && !go_on() {
                cut_short = true;
                trial.stop.set();
                self.send(&ToServer::Stop { trial: number }, begun_ns)?;
                break;
            }
            self.poll(begun_ns)?;
        }
        self.finish(trial, cut_short, begun_ns)
    }

    /// Requests the server's report and combines both.
    fn finish(&mut self, trial: Trial, cut_short: bool, begun_ns: u64) -> Result<TrialReport, TesterError> {
        let (number, test) = (trial.number, trial.test.clone());
        let report = |message| match message {
            ToClient::Report { trial, seen } if trial == number => Some(seen),
            _ => None,
        };
        // The receiver needs the number of sent packets to count losses: for packets up the client states it in its
        // request, for packets down the server states it in its report.
        let receives = trial.receives_packets();
        let (local, server): (_, EndReport) = if receives {
            self.send(&ToServer::Report { trial: number, sent: None }, begun_ns)?;
            let server: EndReport = self.expect(begun_ns, REPORT_TIMEOUT, report)?;
            let (sent, since_ns) = (server.sent.as_ref().map_or(0, |sent| sent.sent), monotonic_ns());
            while !cut_short && !trial.has_settled(sent, since_ns) {
                std::thread::sleep(SETTLE_POLL_INTERVAL);
            }
            (trial.finish(Some(sent)).map_err(system("the trial"))?, server)
        } else {
            // The datagram receiver serves keep-alives and probes only: it may end when the report has arrived.
            let sent = trial.sent();
            self.send(&ToServer::Report { trial: number, sent }, begun_ns)?;
            let server = self.expect(begun_ns, REPORT_TIMEOUT, report)?;
            (trial.finish(None).map_err(system("the trial"))?, server)
        };
        self.control.liveness().loss().map_or(Ok(()), |loss| Err(lost(begun_ns)(loss)))?;
        Ok(TrialReport { test, client: local.report, server, rtt: local.rtt, exchanges: local.exchanges, cut_short })
    }

    fn open_streams(&self, trial: &mut Trial) -> Result<Vec<TcpStream>, TesterError> {
        let mut streams = Vec::new();
        for index in 0..u32::from(trial.test.streams()) {
            let opening = Opening::Stream { session: self.keys.session(), trial: trial.number, index };
            let (stream, _) = connect(self.to, &self.secret, opening, self.net.as_ref())?;
            let actual = trial::prepare(&stream, &trial.test).map_err(system("setsockopt of a stream"))?;
            trial.socket_bytes_actual.get_or_insert(actual);
            streams.push(stream);
        }
        Ok(streams)
    }

    /// Sends introductions until the server confirms that one has arrived.
    fn introduce(&self, trial: &mut Trial, begun_ns: u64) -> Result<(), TesterError> {
        let any: IpAddr = if self.to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let to = self.to;
        let open = move || {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(to)?;
            Ok(socket)
        };
        let socket = in_namespace(self.net.as_ref(), open).map_err(|source| self.unreachable(source))?;
        let introduction = Introduction::new(&self.keys, trial.number).write();
        let socket = trial.start_receiving(socket).map_err(system("a socket for datagrams"))?;
        let number = trial.number;
        let first_ns = monotonic_ns();
        let mut sent_ns = 0;
        while monotonic_ns() - first_ns < UDP_TIMEOUT.as_nanos() as u64 {
            if monotonic_ns() - sent_ns > INTRODUCTION_INTERVAL_NS {
                sent_ns = monotonic_ns();
                // A network error, such as no route or a closed port, is treated like a lost packet.
                let _ = socket.send(&introduction);
            }
            match self.receive(POLL_INTERVAL, begun_ns)? {
                Some(ToClient::UdpSeen { trial, .. }) if trial == number => {
                    self.control.set_keep_alive_socket(Some((socket, keep_alive_mark(&self.keys, number))));
                    return Ok(());
                }
                Some(ToClient::Refused { why }) => return Err(TesterError::Refused(why)),
                _ => {}
            }
        }
        Err(TesterError::UdpBlocked { address: self.to })
    }

    fn send(&self, message: &ToServer, begun_ns: u64) -> Result<(), TesterError> {
        self.control.send(message).map_err(lost(begun_ns))
    }

    fn receive(&self, timeout: Duration, begun_ns: u64) -> Result<Option<ToClient>, TesterError> {
        match self.control.receive(timeout).map_err(lost(begun_ns))? {
            Some(InboxItem::Message(text)) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|_| lost(begun_ns)(PeerLost("it sent an invalid message".to_owned()))),
            _ => Ok(None),
        }
    }

    /// Waits up to a poll interval for a message. A refusal ends the trial; other messages are ignored.
    fn poll(&self, begun_ns: u64) -> Result<(), TesterError> {
        match self.receive(POLL_INTERVAL, begun_ns)? {
            Some(ToClient::Refused { why }) => Err(TesterError::Refused(why)),
            _ => Ok(()),
        }
    }

    fn expect<T>(
        &self,
        begun_ns: u64,
        timeout: Duration,
        select: impl Fn(ToClient) -> Option<T>,
    ) -> Result<T, TesterError> {
        let since_ns = monotonic_ns();
        loop {
            match self.receive(POLL_INTERVAL, begun_ns)? {
                Some(ToClient::Refused { why }) => return Err(TesterError::Refused(why)),
                Some(message) => {
                    if let Some(found) = select(message) {
                        return Ok(found);
                    }
                }
                None if monotonic_ns() - since_ns > timeout.as_nanos() as u64 => {
                    let why = format!("the server is alive but did not respond within {} s", timeout.as_secs());
                    return Err(lost(begun_ns)(PeerLost(why)));
                }
                None => {}
            }
        }
    }

    fn unreachable(&self, source: io::Error) -> TesterError {
        TesterError::Unreachable { address: self.to, source }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The connection may be closed already.
        let _ = self.control.send(&ToServer::Bye {});
    }
}

/// Connects and performs the client's side of the handshake.
fn connect(
    to: SocketAddr,
    secret: &Secret,
    opening: Opening,
    net: Option<&NetNamespace>,
) -> Result<(TcpStream, Keys), TesterError> {
    let stream = in_namespace(net, || TcpStream::connect_timeout(&to, RESPONSE_TIMEOUT));
    let mut stream = stream.map_err(|source| match source.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => TesterError::NoAnswer { address: to },
        _ => TesterError::Unreachable { address: to, source },
    })?;
    let set_up = |stream: &TcpStream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT))
    };
    set_up(&stream).map_err(system("setsockopt of a connection"))?;
    let not_a_server = || TesterError::NotAServer { address: to };
    let send = |stream: &mut TcpStream, bytes: &[u8]| stream.write_all(bytes).map_err(|_| not_a_server());
    send(&mut stream, &opening.write())?;
    let nonce: Nonce = match read(&mut stream) {
        // A nonce is random bytes: text is the greeting of another kind of server.
        Ok(nonce) if is_text(&nonce) => return Err(not_a_server()),
        Ok(nonce) => nonce,
        Err(error) if is_temporary(&error) => return Err(TesterError::NoAnswer { address: to }),
        Err(_) => return Err(not_a_server()),
    };
    let proof = Proof::new(secret, &opening, nonce);
    send(&mut stream, proof.bytes())?;
    let answer: Tag = match read(&mut stream) {
        Ok(answer) => answer,
        Err(error) if is_temporary(&error) => return Err(TesterError::NoAnswer { address: to }),
        // The secret of a stream's session is valid, so the server no longer expects streams of this trial.
        Err(_) if opening != Opening::Control => {
            return Err(TesterError::Refused("the server does not expect this stream".to_owned()));
        }
        Err(_) => return Err(TesterError::WrongSecret { address: to }),
    };
    let keys = proof.accept(&answer).ok_or_else(not_a_server)?;
    Ok((stream, keys))
}

/// Reads 32 bytes within [`RESPONSE_TIMEOUT`].
fn read(stream: &mut TcpStream) -> io::Result<[u8; 32]> {
    let end_ns = monotonic_ns() + RESPONSE_TIMEOUT.as_nanos() as u64;
    let (mut bytes, mut length) = ([0; 32], 0);
    while length < bytes.len() {
        match stream.read(&mut bytes[length..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => length += more,
            Err(error) if is_temporary(&error) && monotonic_ns() < end_ns => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Runs `work` in the namespace, to which the sockets that it opens belong.
fn in_namespace<T: Send>(net: Option<&NetNamespace>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    match net {
        Some(net) => net.run(work).map_err(io::Error::other)?,
        None => work(),
    }
}

fn keep_alive_mark(keys: &Keys, trial: u32) -> u64 {
    super::datagram::Marks::new(keys, trial).keep_alive
}

fn lost(begun_ns: u64) -> impl Fn(PeerLost) -> TesterError {
    move |PeerLost(why)| TesterError::Lost { at: Duration::from_nanos(monotonic_ns().saturating_sub(begun_ns)), why }
}

fn system(doing: &str) -> impl FnOnce(io::Error) -> TesterError {
    let doing = doing.to_owned();
    move |source| TesterError::Io { doing, source }
}

fn environment(doing: &str) -> impl FnOnce(sys::Error) -> TesterError {
    let doing = doing.to_owned();
    move |source| TesterError::Io { doing, source: io::Error::other(source) }
}

/// Timeout of connecting, in which a lost SYN is retransmitted after 1 and 3 s, and of each step of the handshake.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the server's report. After a minute of packets at a high rate, TCP may retransmit a lost segment of the
/// control connection only every 30 s. Keep-alive datagrams show meanwhile that the server is alive.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the first datagram to arrive at the server.
const UDP_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of the introductions.
const INTRODUCTION_INTERVAL_NS: u64 = 50_000_000;
/// Interval at which `go_on` and messages are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Shortest IPv6 packet with the data of a [`Datagram`](super::datagram::Datagram).
const IPV6_PACKET_MIN: u16 = 72;
