//! `gateway server` and unauthenticated clients: a client without the secret gets at most a challenge, and both ends
//! stop when the other one disconnects. On loopback, without privilege.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::workspace::{Running, TEST_TIMEOUT, Workspace, str_of, wait_until};
use gateway::tester::datagram::{Datagram, Introduction};
use gateway::tester::frame::{FrameDirection, FrameReader, FrameWriter};
use gateway::tester::handshake::{Opening, Proof, Ticket};
use gateway::tester::message::{PROTOCOL, ToClient, ToServer};
use gateway::tester::{EndReport, Keys, Secret, Session, Test, TesterError};
use nix::sys::signal::Signal;
use sys::socket::TcpSocket;

const TOKEN: &str = "correct-horse-battery-staple";
/// The client's address, and another address of this host.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn secret() -> Secret {
    Secret::new(TOKEN.as_bytes())
}

/// A token file for one server: a file must not be written while another server reads it.
fn token_file(workspace: &Workspace) -> PathBuf {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let path = workspace.file(&format!("token-{}", FILES.fetch_add(1, Ordering::Relaxed)));
    fs::write(&path, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Starts a server with the secret; returns its address.
fn server(workspace: &Workspace) -> (Running, SocketAddr) {
    let token = token_file(workspace);
    let server = workspace.start(&["gateway", "server", "--listen", "127.0.0.1:0", "--token-file", str_of(&token)]);
    let mut at = None;
    wait_until("the server prints its address", || {
        at = server.stderr().split([' ', ',']).find_map(|word| word.parse().ok());
        at.is_some()
    });
    (server, at.unwrap())
}

fn connect(at: SocketAddr, from: Ipv4Addr) -> TcpStream {
    let stream = TcpStream::from(TcpSocket::connect(Some(IpAddr::V4(from)), at).unwrap().into_fd());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// All bytes that the server sends until it closes the connection.
fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset counts as a close; a timeout does not.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "still open, with {} bytes", bytes.len());
    }
    bytes
}

/// The server's complete output after `text`, until it closes.
fn response_to(at: SocketAddr, from: Ipv4Addr, text: &[u8]) -> Vec<u8> {
    let mut stream = connect(at, from);
    stream.write_all(text).unwrap();
    read_to_close(&mut stream)
}

/// A client that sends only what a test tells it to send: no keep-alive messages.
struct RawClient {
    stream: TcpStream,
    keys: Keys,
    up: FrameWriter,
    down: FrameReader,
}

impl RawClient {
    /// Performs the handshake; returns also all bytes that the client sent.
    fn handshake(at: SocketAddr, secret: &Secret, opening: &Opening) -> Option<(TcpStream, Keys, Vec<u8>)> {
        let mut stream = connect(at, CLIENT);
        stream.write_all(&opening.write()).unwrap();
        let mut nonce = [0; 32];
        stream.read_exact(&mut nonce).unwrap();
        let proof = Proof::new(secret, opening, nonce);
        let sent_bytes = [&opening.write(), proof.bytes()].concat();
        stream.write_all(proof.bytes()).unwrap();
        let mut tag = [0; 32];
        stream.read_exact(&mut tag).ok()?;
        Some((stream, proof.accept(&tag)?, sent_bytes))
    }

    fn open(at: SocketAddr) -> RawClient {
        let (stream, keys, _) = RawClient::handshake(at, &secret(), &Opening::Control).unwrap();
        let (up, down) = (FrameWriter::new(&keys, FrameDirection::Up), FrameReader::new(&keys, FrameDirection::Down));
        let mut raw = RawClient { stream, keys, up, down };
        raw.send(&ToServer::Hello { version: "test".to_owned(), protocol: PROTOCOL });
        assert!(matches!(raw.receive(), Some(ToClient::Hello { .. })));
        raw
    }

    fn frame(&mut self, message: &ToServer) -> Vec<u8> {
        self.up.write(&serde_json::to_vec(message).unwrap())
    }

    fn send(&mut self, message: &ToServer) {
        let frame = self.frame(message);
        self.stream.write_all(&frame).unwrap();
    }

    /// The next message except keep-alive messages; `None` when the server closes the connection.
    fn receive(&mut self) -> Option<ToClient> {
        loop {
            if let Some(text) = self.down.next().unwrap() {
                match serde_json::from_slice(&text).unwrap() {
                    ToClient::Alive {} => continue,
                    message => return Some(message),
                }
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(length @ 1..) => self.down.push(&buffer[..length]),
                _ => return None,
            }
        }
    }

    fn ready(&mut self, trial: u32, test: &Test) {
        self.send(&ToServer::Ready { trial, test: test.clone() });
        assert_eq!(self.receive(), Some(ToClient::Ready { trial }));
    }

    fn report(&mut self, trial: u32, sent: Option<u64>) -> EndReport {
        self.send(&ToServer::Report { trial, sent });
        match self.receive() {
            Some(ToClient::Report { seen, .. }) => seen,
            other => panic!("{other:?}"),
        }
    }
}

fn udp(from: Ipv4Addr, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

/// Number of bytes of received datagrams, until none arrives within the socket's timeout.
fn datagrams(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    let mut bytes = 0;
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => bytes += length,
            // An ICMP message is a response of the kernel, not of the server.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(_) => return bytes,
        }
    }
}

fn packets(up: bool, lasts_ms: u32) -> Test {
    Test::Packets { up, ip_bytes: 128, per_second: 1000.0, lasts_ms, settle_ms: 100, probes: false }
}

fn stream(up: bool) -> Test {
    Test::Stream {
        up,
        streams: 1,
        socket_bytes: None,
        message_bytes: 1000,
        lasts_ms: 60_000,
        omit_ms: 0,
        probes: false,
    }
}

#[test]
fn unauthenticated_clients_get_at_most_a_32_byte_challenge() {
    let workspace = Workspace::concurrent();
    let (server, at) = server(&workspace);
    // The server closes incomplete openings after 5 s; the test continues meanwhile.
    let sent_bytes = |text: &[u8]| {
        let mut stream = connect(at, OTHER_ADDRESS);
        stream.write_all(text).unwrap();
        stream
    };
    let opening = Opening::Control.write();
    let slow = [&b""[..], b"YBKG", &opening].map(sent_bytes);
    let mut half = sent_bytes(&opening);
    half.read_exact(&mut [0; 32]).unwrap();
    half.write_all(&[7; 40]).unwrap();
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"YBKGATE2\0",
        b"YBKGATE1\x02",
        &[0; 5000],
        // More bytes than an opening before the nonce.
        &[&opening[..], &[0; 100]].concat(),
        // A ticket without a session.
        &Ticket { trial: 1, index: 0, tag: [0; 16] }.write(),
    ] {
        assert_eq!(response_to(at, OTHER_ADDRESS, garbage), b"", "{garbage:?}");
    }
    // A replayed handshake: the nonce differs, so the proof is invalid.
    let (first, _, sent_bytes) = RawClient::handshake(at, &secret(), &Opening::Control).unwrap();
    drop(first);
    let again = response_to(at, Ipv4Addr::new(127, 0, 0, 3), &sent_bytes[..9]);
    assert_eq!(again.len(), 32, "the server sends only the nonce within 5 s");
    let mut stream = connect(at, Ipv4Addr::new(127, 0, 0, 4));
    stream.write_all(&sent_bytes[..9]).unwrap();
    let mut nonce = [0; 32];
    stream.read_exact(&mut nonce).unwrap();
    stream.write_all(&sent_bytes[9..]).unwrap();
    assert_eq!(read_to_close(&mut stream), b"");
    // Datagrams of unauthenticated clients get no response.
    let socket = udp(OTHER_ADDRESS, at);
    for text in [&b"x"[..], &[0; 44], &[b"YBKDGRM1", &[0; 36][..]].concat(), &[0; 1400]] {
        socket.send(text).unwrap();
    }
    assert_eq!(datagrams(&socket), 0);
    let sent = slow.map(|mut stream| read_to_close(&mut stream).len());
    assert_eq!((sent, read_to_close(&mut half).len()), ([0, 0, 32], 0));
    assert!(server.stderr().contains("refused 127.0.0."), "{}", server.stderr());
    assert!(!server.stderr().contains(TOKEN));
    server.signal(Signal::SIGTERM);
    server.finish().success();
}

#[test]
fn the_third_wrong_secret_blocks_the_address() {
    let workspace = Workspace::concurrent();
    let (server, at) = server(&workspace);
    let wrong = Secret::new(b"another-secret-altogether");
    for _ in 0..3 {
        let error = Session::open(at, &wrong, None).err().unwrap();
        assert!(matches!(error, TesterError::WrongSecret { .. }), "{error}");
    }
    let error = Session::open(at, &secret(), None).err().unwrap();
    assert!(error.to_string().contains("blocks this address for a minute"), "{error}");
    // Other addresses are not blocked. A proof is valid only for the nonce of its connection.
    let wrong_proof_response = |change: &dyn Fn(&mut Vec<u8>, [u8; 32])| {
        let mut stream = connect(at, OTHER_ADDRESS);
        stream.write_all(&Opening::Control.write()).unwrap();
        let mut nonce = [0; 32];
        stream.read_exact(&mut nonce).unwrap();
        let mut sent_bytes = Proof::new(&secret(), &Opening::Control, nonce).bytes().to_vec();
        change(&mut sent_bytes, nonce);
        stream.write_all(&sent_bytes).unwrap();
        rest_or_tag(&mut stream)
    };
    assert_eq!(wrong_proof_response(&|sent_bytes, _| sent_bytes[40] ^= 1), 0, "a wrong tag");
    assert_eq!(
        wrong_proof_response(&|sent_bytes, nonce| sent_bytes[..32].copy_from_slice(&nonce)),
        0,
        "a tag of another nonce"
    );
    assert_eq!(wrong_proof_response(&|_, _| {}), 32, "a correct proof is accepted");
    server.signal(Signal::SIGINT);
    let output = server.finish().success();
    assert!(output.stderr.contains("wrong secret"), "{output}");
}

/// Number of bytes until the close; for an accepted session, which stays open, the length of the server's tag.
fn rest_or_tag(stream: &mut TcpStream) -> usize {
    let mut tag = [0; 32];
    match stream.read_exact(&mut tag) {
        Ok(()) => tag.len(),
        Err(_) => 0,
    }
}

#[test]
fn a_hundred_unauthenticated_connections_do_not_block_a_client() {
    let workspace = Workspace::concurrent();
    let (server, at) = server(&workspace);
    let opening = Opening::Control.write();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| connect(at, OTHER_ADDRESS)).collect();
    let mut half: Vec<TcpStream> = (0..100).map(|_| connect(at, OTHER_ADDRESS)).collect();
    for stream in &mut half {
        // The server may have closed the connection in favour of a newer one.
        let _ = stream.write_all(&opening);
    }
    let mut session = Session::open(at, &secret(), None).unwrap();
    let seen = session.run(&packets(true, 100)).unwrap();
    assert_eq!(seen.server.arrivals.unwrap().received + seen.server.overflowed, 100, "{seen:?}");
    let mut open = [0, 0];
    for (count, streams) in open.iter_mut().zip([&mut silent, &mut half]) {
        for stream in streams {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut buffer = [0; 100];
            // The nonce at most; then the close, or a timeout.
            let _ = stream.read(&mut buffer);
            *count += usize::from(
                stream.read(&mut buffer).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
            );
        }
    }
    assert!(open[0] + open[1] <= 64 + 8 && open[1] <= 64 + 8, "{open:?}");
    drop(session);
    wait_until("the session has ended", || server.stderr().contains("closed by the client"));
}

/// Produces bytes that differ from the client's next frame.
type TamperedBytes = &'static dyn Fn(&mut RawClient) -> Vec<u8>;

#[test]
fn injected_repeated_or_truncated_frames_end_the_session() {
    let workspace = Workspace::concurrent();
    let (server, at) = server(&workspace);
    let ended = |server: &Running| server.stderr().matches("the session has ended: ").count();
    let tampered: [TamperedBytes; 5] = [
        &|raw| {
            let frame = raw.frame(&ToServer::Go { trial: 1 });
            [&frame[..], &frame].concat()
        },
        &|raw| {
            raw.frame(&ToServer::Go { trial: 1 });
            raw.frame(&ToServer::Go { trial: 2 })
        },
        &|raw| {
            let mut frame = raw.frame(&ToServer::Stop { trial: 1 });
            frame[10] ^= 1;
            frame
        },
        &|_| [&14u32.to_le_bytes()[..], br#"{"do":"alive"}"#, &[0; 32]].concat(),
        &|_| u32::MAX.to_le_bytes().to_vec(),
    ];
    for (number, tamper) in tampered.into_iter().enumerate() {
        let mut raw = RawClient::open(at);
        let bytes = tamper(&mut raw);
        raw.stream.write_all(&bytes).unwrap();
        assert_eq!(raw.receive(), None, "{number}");
        wait_until("the server reports the end of the session", || ended(&server) == number + 1);
    }
    assert_eq!(server.stderr().matches("received a message that is not authentic").count(), 5);
    // A truncated frame before the close.
    let mut raw = RawClient::open(at);
    let frame = raw.frame(&ToServer::Go { trial: 1 });
    raw.stream.write_all(&frame[..frame.len() - 1]).unwrap();
    drop(raw);
    wait_until("the server reports the end of the session", || server.stderr().contains("it closed the connection"));
    // A complete frame with an invalid message.
    let mut raw = RawClient::open(at);
    let frame = raw.up.write(br#"{"do":"go","trial":1,"to":"192.0.2.1"}"#);
    raw.stream.write_all(&frame).unwrap();
    assert_eq!(raw.receive(), None);
    wait_until("the server reports the end of the session", || server.stderr().contains("sent an invalid message"));
}

#[test]
fn tickets_are_accepted_once_and_from_the_right_address() {
    let workspace = Workspace::concurrent();
    let (_server, at) = server(&workspace);
    let mut raw = RawClient::open(at);
    raw.ready(1, &Test::Connections { parallel: 4, lasts_ms: 60_000 });
    let ticket = |trial, index| Ticket { trial, index, tag: raw.keys.ticket(trial, index) };
    let good = ticket(1, 5).write();
    assert_eq!(response_to(at, OTHER_ADDRESS, &good), b"", "from another address");
    assert_eq!(response_to(at, CLIENT, &good).len(), 1);
    assert_eq!(response_to(at, CLIENT, &good), b"", "a ticket is accepted once");
    assert_eq!(response_to(at, CLIENT, &ticket(2, 6).write()), b"", "a ticket of another trial");
    assert_eq!(response_to(at, CLIENT, &Ticket { tag: [1; 16], ..ticket(1, 7) }.write()), b"");
    let session = raw.keys.session();
    let opening = |trial, index| Opening::Stream { session, trial, index };
    assert!(RawClient::handshake(at, &secret(), &opening(1, 0)).is_none(), "the trial has no streams");
    raw.ready(2, &stream(true));
    assert!(RawClient::handshake(at, &secret(), &Opening::Stream { session: [0; 16], trial: 2, index: 0 }).is_none());
    let first = RawClient::handshake(at, &secret(), &opening(2, 0));
    assert!(first.is_some());
    for (trial, index) in [(2, 0), (2, 1), (1, 0), (3, 0)] {
        assert!(RawClient::handshake(at, &secret(), &opening(trial, index)).is_none(), "{trial} {index}");
    }
    assert_eq!(response_to(at, CLIENT, &ticket_of(&raw, 2, 1)), b"", "the trial has no connections");

    // Datagrams from another address are ignored, and from the client's address before its introduction.
    raw.ready(3, &packets(true, 1000));
    let (own, other_address) = (udp(CLIENT, at), udp(OTHER_ADDRESS, at));
    let introduction = Introduction::new(&raw.keys, 3);
    let wrong = [
        Introduction { tag: [0; 16], ..introduction },
        Introduction::new(&raw.keys, 2),
        Introduction { session: [0; 16], ..introduction },
    ];
    other_address.send(&introduction.write()).unwrap();
    for introduction in wrong {
        own.send(&introduction.write()).unwrap();
    }
    assert_eq!((datagrams(&other_address), datagrams(&own)), (0, 0));
    own.send(&introduction.write()).unwrap();
    assert!(
        matches!(raw.receive(), Some(ToClient::UdpSeen { trial: 3, port }) if port == own.local_addr().unwrap().port())
    );
    raw.send(&ToServer::Go { trial: 3 });
    let mark = raw.keys.mark("packet", 3);
    let other_port = udp(CLIENT, at);
    for number in 0..20 {
        let bytes = |mark| [&Datagram { mark, number, sent_ns: 0 }.write()[..], &[0; 76]].concat();
        for socket in [&other_address, &other_port] {
            socket.send(&bytes(mark)).unwrap();
        }
        own.send(&bytes(mark.wrapping_add(1))).unwrap();
        if number < 10 {
            own.send(&bytes(mark)).unwrap();
        }
    }
    // Packets with an unexpected number are not counted.
    own.send(&Datagram { mark, number: 1000, sent_ns: 0 }.write()).unwrap();
    let arrivals = raw.report(3, Some(10)).arrivals.unwrap();
    assert_eq!((arrivals.received, arrivals.lost, arrivals.duplicated), (10, 0, 0), "{arrivals:?}");
    assert_eq!((datagrams(&other_address), datagrams(&other_port)), (0, 0));
}

fn ticket_of(raw: &RawClient, trial: u32, index: u32) -> [u8; 32] {
    Ticket { trial, index, tag: raw.keys.ticket(trial, index) }.write()
}

/// The server stops sending to a client that has closed its connection or is silent.
#[test]
fn the_gateway_server_stops_sending_to_a_disconnected_client() {
    let workspace = Workspace::concurrent();
    for silent in [false, true] {
        let (server, at) = server(&workspace);
        let mut raw = RawClient::open(at);
        raw.ready(1, &packets(false, 60_000));
        let own = udp(CLIENT, at);
        own.send(&Introduction::new(&raw.keys, 1).write()).unwrap();
        assert!(matches!(raw.receive(), Some(ToClient::UdpSeen { .. })));
        raw.send(&ToServer::Go { trial: 1 });
        let mut buffer = [0; 2048];
        own.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        assert_eq!(own.recv(&mut buffer).unwrap(), 100, "the server sends");
        let raw = if silent {
            // Like a stopped client: the connection is open, and no keep-alive message is sent.
            Some(raw)
        } else {
            drop(raw);
            None
        };
        let why = if silent {
            "nothing was received from it for 3 s, during trial 1"
        } else {
            "it closed the connection, during trial 1"
        };
        wait_until("the server reports the end of the session", || server.stderr().contains(why));
        // The server has stopped: after the datagrams in transit no more arrive.
        own.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        datagrams(&own);
        assert_eq!(datagrams(&own), 0);
        drop(raw);
        // The next client is served.
        Session::open(at, &secret(), None).unwrap();
    }
}

/// A client detects that its server was killed or stopped, at any time, and reports it long before the end of the
/// trial. (The timeout is 3 s; the rest of the limit is for a busy machine.)
#[test]
fn the_gateway_client_ends_when_its_server_disconnects() {
    let workspace = Workspace::concurrent();
    // Two at a time: each trial loads a core, and both ends give up a peer that is silent for 3 s.
    for test in [packets(true, 60_000), stream(true), stream(false)] {
        std::thread::scope(|scope| {
            for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
                let (workspace, test) = (&workspace, test.clone());
                scope.spawn(move || {
                    let (server, at) = server(workspace);
                    let mut session = Session::open(at, &secret(), None).unwrap();
                    let started = std::cell::OnceCell::new();
                    let signalled = std::cell::Cell::new(false);
                    let outcome = session.run_while(&test, &|| {
                        let is_due = started.get_or_init(Instant::now).elapsed() > Duration::from_millis(300);
                        if is_due && !signalled.replace(true) {
                            server.signal(signal);
                        }
                        true
                    });
                    let Err(TesterError::Lost { at, why }) = outcome else { panic!("{test:?} {signal}: {outcome:?}") };
                    assert!(at < Duration::from_secs(20), "{at:?}: {why}");
                    let silence = why.contains("nothing was received from it for 3 s");
                    assert!(silence || signal == Signal::SIGKILL, "{why}");
                    assert!(session.run(&test).is_err(), "the session has ended");
                });
            }
        });
    }
}

#[test]
fn gateway_server_beyond_loopback_needs_a_secret() {
    let workspace = Workspace::concurrent();
    let run = |words: &[&str]| workspace.run(&[&["gateway", "server"], words].concat());
    run(&["--listen", "0.0.0.0:0"]).refused(1, &["0.0.0.0:0", "needs a token", "--token-file"]);
    run(&["--listen", "[::]:0"]).refused(1, &["needs a token"]);
    run(&["--token-file", "/no/such"]).refused(1, &["/no/such", "No such file"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    run(&["--listen", &address]).refused(2, &[&address, "in use"]);
    // On loopback a server without a secret runs until its time limit.
    let output = run(&["--listen", "127.0.0.1:0", "-d", "100ms"]).success();
    assert!(output.stderr.contains("without a secret") && output.stdout.is_empty(), "{output}");
}
