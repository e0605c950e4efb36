//! The client: opens a session, and has the two ends do one trial after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::namespace::NetNamespace;

use super::TesterError;
use super::datagram::Introduction;
use super::frame::FrameDirection;
use super::handshake::{Nonce, Opening, Proof};
use super::line::{self, Heard, Line, Lost, passing};
use super::message::{PROTOCOL, Test, ToClient, ToServer};
use super::secret::{End, Keys, Secret, Tag};
use super::seen::{EndReport, TrialSeen};
use super::trial::{self, Trial};

/// A client's session with a server: one trial after the other. Ends, with a goodbye, when it is dropped.
pub struct Session {
    to: SocketAddr,
    secret: Secret,
    net: Option<NetNamespace>,
    line: Line,
    keys: Keys,
    server: ServerFacts,
    trial: u32,
}

/// What is known of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// The program's version.
    pub version: String,
    /// Processor cores of its host.
    pub cores: u32,
    /// What its TCP uses; empty where that is not known.
    pub congestion_control: String,
}

impl Session {
    /// Connects, from inside `net` where it is given, and proves and demands knowledge of the secret.
    ///
    /// # Errors
    /// All of [`TesterError`] but those of a trial.
    pub fn open(to: SocketAddr, secret: &Secret, net: Option<&NetNamespace>) -> Result<Session, TesterError> {
        let net = net.map(NetNamespace::try_clone).transpose().map_err(environment("the clients' namespace"))?;
        let (stream, keys) = connect(to, secret, Opening::Control, net.as_ref())?;
        let line =
            Line::start(stream, &keys, FrameDirection::Up, line::inbox()).map_err(system("the control connection"))?;
        let mut session =
            Session { to, secret: secret.clone(), net, line, keys, server: ServerFacts::default(), trial: 0 };
        session.greet()?;
        Ok(session)
    }

    /// What is known of the server.
    pub fn server(&self) -> &ServerFacts {
        &self.server
    }

    /// Runs one trial and returns what both ends saw.
    ///
    /// # Errors
    /// [`TesterError::Refused`] and [`TesterError::UdpBlocked`]: this trial cannot be, the session goes on. Others end
    /// the session.
    pub fn run(&mut self, test: &Test) -> Result<TrialSeen, TesterError> {
        self.run_while(test, &|| true)
    }

    /// The same, ended early once `go_on` says no: it is asked some twenty times a second.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_while(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialSeen, TesterError> {
        test.check().map_err(TesterError::Refused)?;
        if let Test::Packets { ip_bytes, .. } = test
            && !self.to.ip().to_canonical().is_ipv4()
            && *ip_bytes < IPV6_MIN
        {
            return Err(TesterError::Refused(format!("packets of IPv6 have {IPV6_MIN} bytes and more")));
        }
        self.trial += 1;
        let begun_ns = monotonic_ns();
        let outcome = self.try_run(test, go_on, begun_ns);
        self.line.beat_on(None);
        if let Err(TesterError::UdpBlocked { .. } | TesterError::Refused(_) | TesterError::Io { .. }) = &outcome {
            // The server forgets the trial; if it is gone, the next one says so.
            let _ = self.line.send(&ToServer::Stop { trial: self.trial });
        }
        outcome
    }

    fn greet(&mut self) -> Result<(), TesterError> {
        let begun_ns = monotonic_ns();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = ToServer::Hello { version: version.clone(), protocol: PROTOCOL };
        self.line.send(&hello).map_err(lost(begun_ns))?;
        // Whatever its version puts into the first message, its version is in it.
        let text = loop {
            match self.line.receive(TURN).map_err(lost(begun_ns))? {
                Some(Heard::Text(text)) => break text,
                _ if monotonic_ns() - begun_ns > ANSWER.as_nanos() as u64 => {
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

    fn try_run(&mut self, test: &Test, go_on: &dyn Fn() -> bool, begun_ns: u64) -> Result<TrialSeen, TesterError> {
        let number = self.trial;
        self.say(&ToServer::Ready { trial: number, test: test.clone() }, begun_ns)?;
        self.expect(begun_ns, ANSWER, |message| match message {
            ToClient::Ready { trial } if trial == number => Some(()),
            _ => None,
        })?;
        let mut trial = Trial::new(End::Client, number, test.clone(), self.keys.clone(), self.line.pulse());
        let streams = self.open_streams(&mut trial)?;
        if test.needs_udp() {
            self.introduce(&mut trial, begun_ns)?;
        }
        let net = self.net.as_ref().map(NetNamespace::try_clone).transpose();
        let net = net.map_err(environment("the clients' namespace"))?;
        // This end first: what the server sends comes after its word, but not long after.
        let begun_ns = monotonic_ns();
        trial.go(streams, self.to, net).map_err(system("beginning the trial"))?;
        self.say(&ToServer::Go { trial: number }, begun_ns)?;
        let mut cut_short = false;
        while !(trial.is_done() && trial.is_over()) {
            if !cut_short && !go_on() {
                cut_short = true;
                trial.halt.set();
                self.say(&ToServer::Stop { trial: number }, begun_ns)?;
                break;
            }
            self.idle(begun_ns)?;
        }
        self.finish(trial, cut_short, begun_ns)
    }

    /// Asks for the server's half, and puts the two together.
    fn finish(&mut self, trial: Trial, cut_short: bool, begun_ns: u64) -> Result<TrialSeen, TesterError> {
        let (number, test) = (trial.number, trial.test.clone());
        let report = |message| match message {
            ToClient::Report { trial, seen } if trial == number => Some(seen),
            _ => None,
        };
        // Who sent up says how much before the server can know what is missing; what was sent down the server says first.
        let receives = trial.receives_packets();
        let (saw, server): (_, EndReport) = if receives {
            self.say(&ToServer::Report { trial: number, sent: None }, begun_ns)?;
            let server: EndReport = self.expect(begun_ns, REPORT, report)?;
            let (sent, since_ns) = (server.sent.as_ref().map_or(0, |sent| sent.sent), monotonic_ns());
            while !cut_short && !trial.has_settled(sent, since_ns) {
                std::thread::sleep(BRIEF);
            }
            (trial.finish(Some(sent)).map_err(system("the trial"))?, server)
        } else {
            // Ears are for signs of life and probes: they may go once the report is there.
            let sent = trial.sent();
            self.say(&ToServer::Report { trial: number, sent }, begun_ns)?;
            let server = self.expect(begun_ns, REPORT, report)?;
            (trial.finish(None).map_err(system("the trial"))?, server)
        };
        self.line.pulse().loss().map_or(Ok(()), |loss| Err(lost(begun_ns)(loss)))?;
        Ok(TrialSeen { test, client: saw.seen, server, rtt: saw.rtt, exchanges: saw.exchanges, cut_short })
    }

    fn open_streams(&self, trial: &mut Trial) -> Result<Vec<TcpStream>, TesterError> {
        let mut streams = Vec::new();
        for index in 0..u32::from(trial.test.streams()) {
            let opening = Opening::Stream { session: self.keys.session(), trial: trial.number, index };
            let (stream, _) = connect(self.to, &self.secret, opening, self.net.as_ref())?;
            let got = trial::prepare(&stream, &trial.test).map_err(system("setsockopt of a stream"))?;
            trial.socket_bytes_actual.get_or_insert(got);
            streams.push(stream);
        }
        Ok(streams)
    }

    /// Sends first datagrams until the server says that it has one.
    fn introduce(&self, trial: &mut Trial, begun_ns: u64) -> Result<(), TesterError> {
        let any: IpAddr = if self.to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let to = self.to;
        let open = move || {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(to)?;
            Ok(socket)
        };
        let socket = inside(self.net.as_ref(), open).map_err(|source| self.unreachable(source))?;
        let introduction = Introduction::new(&self.keys, trial.number).write();
        let socket = trial.hear(socket).map_err(system("a socket for datagrams"))?;
        let number = trial.number;
        let first_ns = monotonic_ns();
        let mut sent_ns = 0;
        while monotonic_ns() - first_ns < UDP.as_nanos() as u64 {
            if monotonic_ns() - sent_ns > INTRODUCE_NS {
                sent_ns = monotonic_ns();
                // What the network says to it, no way or nobody there, comes to the same as silence.
                let _ = socket.send(&introduction);
            }
            match self.hear(TURN, begun_ns)? {
                Some(ToClient::UdpSeen { trial, .. }) if trial == number => {
                    self.line.beat_on(Some((socket, trial_mark(&self.keys, number))));
                    return Ok(());
                }
                Some(ToClient::Refused { why }) => return Err(TesterError::Refused(why)),
                _ => {}
            }
        }
        Err(TesterError::UdpBlocked { address: self.to })
    }

    fn say(&self, message: &ToServer, begun_ns: u64) -> Result<(), TesterError> {
        self.line.send(message).map_err(lost(begun_ns))
    }

    fn hear(&self, timeout: Duration, begun_ns: u64) -> Result<Option<ToClient>, TesterError> {
        match self.line.receive(timeout).map_err(lost(begun_ns))? {
            Some(Heard::Text(text)) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|_| lost(begun_ns)(Lost("it sent an invalid message".to_owned()))),
            _ => Ok(None),
        }
    }

    /// Waits a moment; messages of no trial that goes on are nothing, a refusal is its end.
    fn idle(&self, begun_ns: u64) -> Result<(), TesterError> {
        match self.hear(TURN, begun_ns)? {
            Some(ToClient::Refused { why }) => Err(TesterError::Refused(why)),
            _ => Ok(()),
        }
    }

    fn expect<T>(
        &self,
        begun_ns: u64,
        patience: Duration,
        wanted: impl Fn(ToClient) -> Option<T>,
    ) -> Result<T, TesterError> {
        let since_ns = monotonic_ns();
        loop {
            match self.hear(TURN, begun_ns)? {
                Some(ToClient::Refused { why }) => return Err(TesterError::Refused(why)),
                Some(message) => {
                    if let Some(found) = wanted(message) {
                        return Ok(found);
                    }
                }
                None if monotonic_ns() - since_ns > patience.as_nanos() as u64 => {
                    let why = format!("it is there, and did not answer within {} s", patience.as_secs());
                    return Err(lost(begun_ns)(Lost(why)));
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
        // It may be gone already.
        let _ = self.line.send(&ToServer::Bye {});
    }
}

/// Connects and does the client's half of the handshake.
fn connect(
    to: SocketAddr,
    secret: &Secret,
    opening: Opening,
    net: Option<&NetNamespace>,
) -> Result<(TcpStream, Keys), TesterError> {
    let stream = inside(net, || TcpStream::connect_timeout(&to, ANSWER));
    let mut stream = stream.map_err(|source| match source.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => TesterError::NoAnswer { address: to },
        _ => TesterError::Unreachable { address: to, source },
    })?;
    let set_up = |stream: &TcpStream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TURN))?;
        stream.set_write_timeout(Some(ANSWER))
    };
    set_up(&stream).map_err(system("setsockopt of a connection"))?;
    let not_ours = || TesterError::NotAServer { address: to };
    let send = |stream: &mut TcpStream, bytes: &[u8]| stream.write_all(bytes).map_err(|_| not_ours());
    send(&mut stream, &opening.write())?;
    let nonce: Nonce = match read(&mut stream) {
        // Chance is not all letters: it is some other server's greeting.
        Ok(nonce) if is_text(&nonce) => return Err(not_ours()),
        Ok(nonce) => nonce,
        Err(error) if passing(&error) => return Err(TesterError::NoAnswer { address: to }),
        Err(_) => return Err(not_ours()),
    };
    let proof = Proof::new(secret, &opening, nonce);
    send(&mut stream, proof.bytes())?;
    let answer: Tag = match read(&mut stream) {
        Ok(answer) => answer,
        Err(error) if passing(&error) => return Err(TesterError::NoAnswer { address: to }),
        // Of a stream the session's own secret is right: the trial is not waited for any more.
        Err(_) if opening != Opening::Control => {
            return Err(TesterError::Refused("the server does not wait for this stream".to_owned()));
        }
        Err(_) => return Err(TesterError::WrongSecret { address: to }),
    };
    let keys = proof.accept(&answer).ok_or_else(not_ours)?;
    Ok((stream, keys))
}

/// 32 bytes, within [`ANSWER`].
fn read(stream: &mut TcpStream) -> io::Result<[u8; 32]> {
    let end_ns = monotonic_ns() + ANSWER.as_nanos() as u64;
    let (mut bytes, mut length) = ([0; 32], 0);
    while length < bytes.len() {
        match stream.read(&mut bytes[length..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => length += more,
            Err(error) if passing(&error) && monotonic_ns() < end_ns => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Sockets opened by `work` are the namespace's.
fn inside<T: Send>(net: Option<&NetNamespace>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    match net {
        Some(net) => net.run(work).map_err(io::Error::other)?,
        None => work(),
    }
}

fn trial_mark(keys: &Keys, trial: u32) -> u64 {
    super::datagram::Marks::new(keys, trial).alive
}

fn lost(begun_ns: u64) -> impl Fn(Lost) -> TesterError {
    move |Lost(why)| TesterError::Lost { at: Duration::from_nanos(monotonic_ns().saturating_sub(begun_ns)), why }
}

fn system(doing: &str) -> impl FnOnce(io::Error) -> TesterError {
    let doing = doing.to_owned();
    move |source| TesterError::Io { doing, source }
}

fn environment(doing: &str) -> impl FnOnce(sys::Error) -> TesterError {
    let doing = doing.to_owned();
    move |source| TesterError::Io { doing, source: io::Error::other(source) }
}

/// For a connect, which repeats a lost SYN after 1 and 3 s, and for each step of a handshake.
const ANSWER: Duration = Duration::from_secs(5);
/// For the server's report. After a flood of a minute the control connection may be repeating a lost segment as seldom as
/// every half minute; whether the server is there at all is known by its datagrams.
const REPORT: Duration = Duration::from_secs(60);
/// For the first datagram.
const UDP: Duration = Duration::from_secs(3);
/// One each.
const INTRODUCE_NS: u64 = 50_000_000;
/// How often `go_on` is asked, and the like.
const TURN: Duration = Duration::from_millis(50);
const BRIEF: Duration = Duration::from_millis(2);
/// The shortest packet of IPv6 that holds what each of ours holds.
const IPV6_MIN: u16 = 72;
