//! A host with files of a directory and a fake relay, clients, and a link between them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http3::message::{MessageReader, Phase, Piece};
use http3::{Code, TimeBase};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    ReadError, Side, StreamId, Transmit, TransportConfig, VarInt, WriteError,
};
use sys::file::Root;
use units::Timestamp;

use super::content;
use crate::connection::WorkerContext;
use crate::dynamic::FakeRelay;
use crate::engine::address_counts::AddressCounts;
use crate::figures::Figures;
use crate::files::Files;
use crate::journal::Recorder;
use crate::quic::{Host, Origin, Outlet, QuicConfig};
use crate::spec::{FileRules, Limits};
use crate::status::{StatusSources, StatusSpec};
use crate::tls::Tls;

/// The sizes of the files; each is named by its size.
pub const SIZES: [usize; 6] = [0, 6, 1000, 20_000, 300_000, 3 << 20];
/// One way of the link.
const DELAY: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(600);

/// What tests vary.
pub struct Setup {
    pub limits: Limits,
    pub cap: usize,
    pub per_address: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { limits: Limits::default(), cap: 100, per_address: 100 }
    }
}

pub struct World {
    pub now: Timestamp,
    base: TimeBase,
    pub host: Host<'static>,
    pub context: WorkerContext,
    pub figures: Figures,
    pub relay: FakeRelay,
    pub clients: Vec<Client>,
    wire: Wire,
    roots: rustls::RootCertStore,
    _directory: tempfile::TempDir,
}

/// Datagrams in transit.
#[derive(Default)]
pub struct Wire {
    now: Timestamp,
    count: u64,
    packets: BTreeMap<(u64, u64), (SocketAddr, bool, Vec<u8>)>,
    /// Bytes and datagrams that the host sent.
    pub sent: u64,
    pub datagrams: u64,
    pub blocked: bool,
    /// Each n-th is lost.
    pub drop_each: Option<u64>,
}

impl Wire {
    fn send(&mut self, peer: SocketAddr, to_host: bool, bytes: &[u8]) {
        self.count += 1;
        if self.drop_each.is_some_and(|each| self.count.is_multiple_of(each)) {
            return;
        }
        self.packets.insert(((self.now + DELAY).as_nanos(), self.count), (peer, to_host, bytes.to_vec()));
    }
}

impl Wire {
    /// Takes the datagrams in transit from this address to the host.
    pub fn take_from(&mut self, peer: SocketAddr) -> Vec<Vec<u8>> {
        let taken = self.copies_to_host(peer);
        self.packets.retain(|_, (other, to_host, _)| !(*to_host && *other == peer));
        taken
    }

    /// The datagrams in transit from this address to the host.
    pub fn copies_to_host(&self, peer: SocketAddr) -> Vec<Vec<u8>> {
        let of_peer = self.packets.values().filter(|(other, to_host, _)| *to_host && *other == peer);
        of_peer.map(|(_, _, bytes)| bytes.clone()).collect()
    }
}

impl Outlet for Wire {
    fn transmit(&mut self, transmit: Transmit, bytes: &[u8]) {
        let bytes = &bytes[..transmit.size];
        for datagram in bytes.chunks(transmit.segment_size.unwrap_or(bytes.len())) {
            self.sent += datagram.len() as u64;
            self.datagrams += 1;
            self.send(transmit.destination, false, datagram);
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn segments_max(&self) -> usize {
        10
    }
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::create_dir(file("www")).unwrap();
        for size in SIZES {
            std::fs::write(file("www").join(size.to_string()), content(size)).unwrap();
        }
        let tls = Tls::load(&file("cert.pem"), &file("key.pem")).unwrap();
        let mut config = QuicConfig::new(&tls, &setup.limits, 1).unwrap();
        config.seed = Some([7; 32]);
        let now = Timestamp::from_nanos(5_000_000_000);
        let figures = Figures::new();
        let recorder = Recorder::new(figures.worker(), None);
        let status_sources = StatusSources {
            spec: StatusSpec::Off,
            figures: figures.clone(),
            cache: None,
            log: None,
            usage_reader: None,
        };
        let files = Files::new(Root::open(&file("www")).unwrap(), FileRules::default());
        let mut context = WorkerContext::new(files, setup.limits, now, recorder, status_sources);
        let (front, relay) = FakeRelay::new("/app=http://127.0.0.1:1");
        context.front = Some(front);
        context.tls = Some(tls);
        let base = TimeBase::new(base_instant(), now);
        // As long as the test.
        let address_counts = Box::leak(Box::new(AddressCounts::new(setup.per_address)));
        let local = "192.0.2.1:443".parse().unwrap();
        let host = Host::new(&config, base, local, address_counts, setup.cap, &context);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let wire = Wire { now, ..Wire::default() };
        World { now, base, host, context, figures, relay, clients: Vec::new(), wire, roots, _directory: directory }
    }

    /// TLS of clients, which share sessions.
    pub fn tls(&self, early_data: bool) -> Arc<QuicClientConfig> {
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.enable_early_data = early_data;
        Arc::new(QuicClientConfig::try_from(tls).unwrap())
    }

    /// Begins a connection of a client with an address of its own.
    pub fn begin(&mut self, tls: Arc<QuicClientConfig>, transport: TransportConfig) -> usize {
        let number = self.clients.len();
        let address = SocketAddr::from(([198, 51, (number >> 8) as u8, number as u8], 5000));
        let mut config = ClientConfig::new(tls);
        config.transport_config(Arc::new(transport));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, Some([number as u8; 32]));
        let host = "192.0.2.1:443".parse().unwrap();
        let (handle, quic) = endpoint.connect(self.base.instant(self.now), config, host, "server").unwrap();
        self.clients.push(Client {
            address,
            endpoint,
            handle,
            quic,
            received: HashMap::new(),
            reset: HashMap::new(),
            lost: None,
            connected: false,
            reads: true,
            is_gone: false,
        });
        self.turn();
        number
    }

    /// A connection without a control stream.
    pub fn connect(&mut self) -> usize {
        let client = self.begin(self.tls(false), TransportConfig::default());
        self.until("a handshake", |world| world.clients[client].connected || world.clients[client].lost.is_some());
        client
    }

    /// A connection with a control stream.
    pub fn connect_with_control(&mut self) -> usize {
        let client = self.connect();
        self.open(client, Dir::Uni, &super::control(&[]), false);
        client
    }

    /// Opens a stream and sends `bytes`.
    pub fn open(&mut self, client: usize, dir: Dir, bytes: &[u8], ends: bool) -> StreamId {
        let mut stream = None;
        self.until("a stream", |world| {
            stream = world.clients[client].quic.streams().open(dir);
            stream.is_some()
        });
        let stream = stream.unwrap();
        if dir == Dir::Bi {
            self.clients[client].received.insert(stream, Default::default());
        }
        self.send(client, stream, bytes, ends);
        stream
    }

    /// Sends `bytes` on a stream, as far as the host wants them.
    pub fn send(&mut self, client: usize, stream: StreamId, bytes: &[u8], ends: bool) {
        let mut sent = 0;
        self.until("bytes to be sent", |world| {
            let client = &mut world.clients[client];
            while sent < bytes.len() {
                match client.quic.send_stream(stream).write(&bytes[sent..]) {
                    Ok(count) => sent += count,
                    Err(WriteError::Blocked) => return client.lost.is_some(),
                    Err(_) => return true,
                }
            }
            true
        });
        if ends {
            let _ = self.clients[client].quic.send_stream(stream).finish();
        }
        self.turn();
    }

    pub fn get(&mut self, client: usize, path: &str) -> StreamId {
        self.open(client, Dir::Bi, &super::get(path), true)
    }

    /// Runs until `done`.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut World) -> bool) {
        let end = self.now + LIMIT;
        loop {
            self.turn();
            if done(self) {
                return;
            }
            let next = self.next().filter(|next| *next <= end);
            let Some(next) = next else { panic!("{what} does not happen") };
            self.now = self.now.max(next);
        }
    }

    /// Runs for a time.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.turn();
            match self.next().filter(|next| *next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = end;
        self.turn();
    }

    fn next(&mut self) -> Option<Timestamp> {
        let wire = self.wire.packets.keys().next().map(|(at, _)| Timestamp::from_nanos(*at));
        let base = self.base;
        let clients = self.clients.iter_mut().filter(|client| !client.is_gone);
        let timers = clients.filter_map(|client| client.quic.poll_timeout()).map(|at| base.timestamp(at));
        let host = Some(self.host.due_at()).filter(|at| *at < Timestamp::MAX);
        wire.into_iter().chain(timers).chain(host).min()
    }

    /// Everything that is due now.
    pub fn turn(&mut self) {
        self.wire.now = self.now;
        self.context.now = self.now;
        while let Some(entry) = self.wire.packets.first_entry().filter(|entry| entry.key().0 <= self.now.as_nanos()) {
            let (peer, to_host, bytes) = entry.remove();
            if to_host {
                let origin = Origin { peer, local: None, ecn: None };
                self.host.receive(&mut self.context, &origin, BytesMut::from(&bytes[..]), &mut self.wire);
            } else if let Some(client) = self.clients.iter_mut().find(|client| client.address == peer) {
                client.receive(self.base.instant(self.now), &bytes);
            }
        }
        self.host.expire(&mut self.context);
        while self.host.has_work() && !self.wire.blocked {
            self.host.work(&mut self.context, &mut self.wire);
        }
        assert!(self.context.out.is_empty() && self.context.frames.is_empty(), "buffers are shared by all connections");
        for client in &mut self.clients {
            client.turn(self.base.instant(self.now), &mut self.wire);
        }
    }

    /// The token of the host's only connection.
    pub fn host_token(&self) -> u64 {
        self.host.table.tokens()[0]
    }

    /// Bytes of responses that QUIC took of the host's only connection.
    pub fn written(&mut self) -> u64 {
        let token = self.host_token();
        self.host.table.get(token).unwrap().http.written()
    }

    /// The limit of its unacknowledged bytes.
    pub fn window(&mut self) -> u64 {
        let token = self.host_token();
        self.host.table.get(token).unwrap().window
    }

    /// Whether it has no unfinished request.
    pub fn is_idle(&mut self) -> bool {
        let token = self.host_token();
        self.host.table.get(token).unwrap().http.idle_since().is_some()
    }

    pub fn instant(&self) -> Instant {
        self.base.instant(self.now)
    }

    /// A datagram from an address without a client.
    pub fn spoof(&mut self, peer: SocketAddr, bytes: &[u8]) {
        self.wire.now = self.now;
        self.wire.send(peer, true, bytes);
    }

    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Status, other fields and content of a response.
    pub fn response(&mut self, client: usize, stream: StreamId) -> (u16, String, Vec<u8>) {
        self.until("a response", |world| {
            world.clients[client].received[&stream].1 || world.clients[client].lost.is_some()
        });
        let client = &self.clients[client];
        assert_eq!((client.reset.get(&stream), &client.lost), (None, &None));
        let mut input = &client.received[&stream].0[..];
        let mut reader = MessageReader::new(Side::Server, 1 << 16);
        let (mut section, mut body, mut head) = (Vec::new(), Vec::new(), String::new());
        while let Some(piece) = reader.next(&mut input).unwrap() {
            match piece {
                Piece::Frame { .. } => {}
                Piece::Content(bytes) => body.extend_from_slice(bytes),
                Piece::Section { bytes, complete } => {
                    section.extend_from_slice(bytes);
                    if complete {
                        head.clear();
                        field_compression::qpack::decode(&section, usize::MAX, |name, value| {
                            head += &format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                        })
                        .unwrap();
                        section.clear();
                        if !head.starts_with(":status: 1") {
                            reader.set_phase(Phase::Body);
                        }
                    }
                }
            }
        }
        reader.end().unwrap();
        let (status, rest) = head.split_once('\n').unwrap();
        (status.strip_prefix(":status: ").unwrap().parse().unwrap(), rest.to_owned(), body)
    }

    /// The host ends the connection with this code.
    pub fn assert_over(&mut self, client: usize, code: Code, why: &str) {
        self.until(why, |world| world.clients[client].lost.is_some());
        match self.clients[client].lost.take() {
            Some(ConnectionError::ApplicationClosed(close)) => {
                assert_eq!(Code(close.error_code.into_inner()), code, "{why}");
            }
            other => panic!("{why}: {other:?}"),
        }
    }

    /// The host resets the stream with this code, and the connection stays.
    pub fn assert_reset(&mut self, client: usize, stream: StreamId, code: Code, why: &str) {
        self.until(why, |world| {
            world.clients[client].reset.contains_key(&stream) || world.clients[client].lost.is_some()
        });
        assert_eq!(self.clients[client].reset.get(&stream), Some(&code), "{why}: {:?}", self.clients[client].lost);
    }
}

pub struct Client {
    pub address: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub quic: Connection,
    /// What has arrived of each stream, and whether it has ended.
    pub received: HashMap<StreamId, (Vec<u8>, bool)>,
    /// Codes of streams that the host reset.
    pub reset: HashMap<StreamId, Code>,
    pub lost: Option<ConnectionError>,
    pub connected: bool,
    /// Whether it reads; otherwise its windows do not grow.
    pub reads: bool,
    /// It neither sends nor receives any more.
    pub is_gone: bool,
}

impl Client {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        let host = "192.0.2.1:443".parse().unwrap();
        let event = self.endpoint.handle(now, host, None, None, BytesMut::from(bytes), &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event
            && !self.is_gone
        {
            self.quic.handle_event(event);
        }
    }

    fn turn(&mut self, now: Instant, wire: &mut Wire) {
        if self.is_gone {
            return;
        }
        if self.quic.poll_timeout().is_some_and(|at| at <= now) {
            self.quic.handle_timeout(now);
        }
        while let Some(event) = self.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.quic.handle_event(event);
            }
        }
        while let Some(event) = self.quic.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
        while let Some(stream) = self.quic.streams().accept(Dir::Uni) {
            self.received.entry(stream).or_default();
        }
        if self.reads {
            self.read();
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.quic.poll_transmit(now, 1, &mut out) {
            wire.send(self.address, true, &out[..transmit.size]);
            out.clear();
        }
    }

    fn read(&mut self) {
        for (&stream, (bytes, ended)) in self.received.iter_mut().filter(|(_, (_, ended))| !ended) {
            let mut receiver = self.quic.recv_stream(stream);
            let Ok(mut chunks) = receiver.read(true) else { continue };
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                    Ok(None) => {
                        *ended = true;
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(code)) => {
                        self.reset.insert(stream, Code(code.into_inner()));
                        *ended = true;
                        break;
                    }
                }
            }
            let _ = chunks.finalize();
        }
    }

    /// Cancels a request as clients do.
    pub fn cancel(&mut self, stream: StreamId) {
        let code = VarInt::from_u64(Code::REQUEST_CANCELLED.0).unwrap();
        let _ = self.quic.recv_stream(stream).stop(code);
        let _ = self.quic.send_stream(stream).reset(code);
        self.received.remove(&stream);
    }
}

/// A limit of what the host may send ahead.
pub fn small_windows(stream: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(stream.into()).receive_window(stream.into());
    transport
}

#[allow(clippy::disallowed_methods, reason = "an Instant has no other origin")]
fn base_instant() -> Instant {
    Instant::now()
}
