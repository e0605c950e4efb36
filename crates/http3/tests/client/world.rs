//! A client and a quinn-proto server with a link between them, in virtual time.
//!
//! Each direction of the link has a delay, optionally a rate, and drops packets by a rule. The server is HTTP/3 written
//! by hand, so that it can also be wrong.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use field_compression::qpack;
use http::Request;
use http3::client::StreamFault;
use http3::frame::{self, put_head};
use http3::{Client, Connection, Event, Lost, TimeBase, TlsClient, Transport};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig, RandomConnectionIdGenerator,
    ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use units::Timestamp;

use crate::link::Link;

pub const MS: Duration = Duration::from_millis(1);

/// What the server does with a request: returns bytes of the stream, and whether they end it.
pub type Respond = Box<dyn FnMut(&str) -> (Vec<u8>, bool)>;

pub struct Server {
    pub endpoint: Endpoint,
    pub connections: HashMap<ConnectionHandle, quinn_proto::Connection>,
    requests: HashMap<(ConnectionHandle, StreamId), Vec<u8>>,
    unsent: HashMap<(ConnectionHandle, StreamId), (VecDeque<u8>, bool)>,
    pub respond: Respond,
    /// Bytes of unidirectional streams that it opens, and whether it ends them.
    pub uni: Vec<(Vec<u8>, bool)>,
    /// Whether it validates addresses by Retry.
    pub retries: bool,
    pub received: u64,
    /// Datagrams received that were marked as ECN-capable.
    pub ecn_capable: u64,
    /// Bytes of requests received.
    pub uploaded: u64,
    /// Whether it responds to the first bytes of a request, and then stops reading.
    pub responds_early: bool,
    identity: Identity,
}

/// What a server keeps when it restarts.
struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    alpn: &'static [u8],
    transport: Arc<TransportConfig>,
    versions: Vec<u32>,
}

impl Identity {
    fn endpoint(&self, seed: u8) -> Endpoint {
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], PrivatePkcs8KeyDer::from(self.key.clone()).into())
            .unwrap();
        tls.alpn_protocols = vec![self.alpn.to_vec()];
        tls.max_early_data_size = u32::MAX;
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        config.transport_config(Arc::clone(&self.transport));
        let reset_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[3; 32]);
        let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
        endpoint
            .rng_seed(Some([seed; 32]))
            .supported_versions(self.versions.clone())
            .cid_generator(|| Box::new(RandomConnectionIdGenerator::new(8)));
        Endpoint::new(Arc::new(endpoint), Some(Arc::new(config)), true, None)
    }
}

/// A client with one connection at a time, its server, and the link.
pub struct World {
    pub now: Timestamp,
    base: TimeBase,
    pub client: Client,
    pub connection: Option<Connection<u32>>,
    pub server: Server,
    pub up: Link,
    pub down: Link,
    pub events: Vec<(Timestamp, Event<u32>)>,
    seed: u8,
}

pub const SERVER: &str = "192.0.2.1:443";
const CLIENT: &str = "192.0.2.9:5000";

/// Settings of both sides that tests vary.
pub struct Setup {
    pub transport: Transport,
    pub server_transport: TransportConfig,
    pub early_data: bool,
    pub alpn: &'static [u8],
    pub name: &'static str,
    pub versions: Vec<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            transport: Transport::default(),
            server_transport: TransportConfig::default(),
            early_data: false,
            alpn: b"h3",
            name: "shop.example",
            versions: vec![1],
        }
    }
}

impl World {
    /// `rtt`: of the link, half in each direction.
    pub fn new(rtt: Duration, setup: Setup) -> Self {
        let signed = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let identity = Identity {
            certificate: signed.cert.der().clone(),
            key: signed.signing_key.serialize_der(),
            alpn: setup.alpn,
            transport: Arc::new(setup.server_transport),
            versions: setup.versions,
        };
        let endpoint = identity.endpoint(7);

        let mut roots = rustls::RootCertStore::empty();
        roots.add(signed.cert.der().clone()).unwrap();
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.enable_early_data = setup.early_data;
        let name = ServerName::try_from(setup.name).unwrap();
        let client = Client::new(&setup.transport, TlsClient::new(Arc::new(tls), name).unwrap());
        let now = Timestamp::from_nanos(1_000_000_000);
        let link = || Link::new(rtt / 2);
        World {
            now,
            base: TimeBase::new(Instant::now(), now),
            client,
            connection: None,
            server: Server {
                endpoint,
                connections: HashMap::new(),
                requests: HashMap::new(),
                unsent: HashMap::new(),
                respond: Box::new(|path| (bytes_of(path), true)),
                uni: vec![(settings(), false)],
                retries: false,
                received: 0,
                ecn_capable: 0,
                uploaded: 0,
                responds_early: false,
                identity,
            },
            up: link(),
            down: link(),
            events: Vec::new(),
            seed: 0,
        }
    }

    /// The server forgets all connections and sessions. It keeps its certificate, and its key for stateless resets.
    pub fn restart_server(&mut self) {
        self.server.connections.clear();
        self.server.endpoint = self.server.identity.endpoint(8);
    }

    /// Begins a connection; a former one is forgotten.
    pub fn connect(&mut self) {
        self.seed += 1;
        let server: SocketAddr = SERVER.parse().unwrap();
        let connection = Connection::connect(self.now, self.base, &self.client, server, [self.seed; 32]);
        self.connection = Some(connection.unwrap());
        self.advance_client();
    }

    pub fn request(&mut self, key: u32, path: &str) {
        self.send(key, path, &[]);
    }

    pub fn send(&mut self, key: u32, path: &str, body: &[u8]) {
        let request = Request::get(format!("https://shop.example{path}")).body(()).unwrap();
        self.connection.as_mut().unwrap().open(key, &request, body);
        self.advance_client();
    }

    /// Runs until nothing is left to do before `until`, counted from now, or until `done` after an event.
    pub fn run(&mut self, until: Duration, mut done: impl FnMut(&World) -> bool) {
        let end = self.now + until;
        while !done(self) {
            let Some(next) = self.next() else { return };
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn next(&mut self) -> Option<Timestamp> {
        let links = [self.up.next(), self.down.next()].into_iter().flatten().map(Timestamp::from_nanos);
        let client = self.connection.as_mut().and_then(Connection::next_timeout);
        let base = self.base;
        let server = self.server.connections.values_mut().filter_map(|it| it.poll_timeout());
        links.chain(client).chain(server.map(|at| base.timestamp(at))).min()
    }

    fn step(&mut self) {
        while let Some((ecn, packet)) = self.down.due(self.now) {
            if let Some(connection) = &mut self.connection {
                connection.receive(self.now, ecn, BytesMut::from(&packet[..]));
            }
        }
        while let Some((ecn, packet)) = self.up.due(self.now) {
            self.server_receive(ecn, packet);
        }
        self.advance_client();
        self.advance_server();
    }

    pub fn advance_client(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if connection.next_timeout().is_some_and(|at| at <= self.now) {
            connection.handle_timeout(self.now);
        }
        let mut events = Vec::new();
        connection.advance(self.now, &mut events);
        let mut datagrams = Vec::new();
        while let Some(sent) = connection.transmit(self.now, 10, &mut datagrams) {
            for datagram in datagrams.chunks(sent.segment.unwrap_or(datagrams.len())) {
                self.up.send(self.now, sent.ecn, datagram.to_vec());
            }
            datagrams.clear();
            connection.note_transmitted(&mut events);
        }
        let now = self.now;
        self.events.extend(events.into_iter().map(|event| (now, event)));
    }

    fn server_receive(&mut self, ecn: u8, packet: Vec<u8>) {
        self.server.ecn_capable += u64::from(ecn != 0);
        let (now, mut answer) = (self.base.instant(self.now), Vec::new());
        self.server.received += 1;
        let ecn = EcnCodepoint::from_bits(ecn);
        let client: SocketAddr = CLIENT.parse().unwrap();
        let event = self.server.endpoint.handle(now, client, None, ecn, BytesMut::from(&packet[..]), &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.server.connections.get_mut(&handle) {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.server.retries && incoming.may_retry() {
                    let transmit = self.server.endpoint.retry(incoming, &mut answer).unwrap();
                    self.down.send(self.now, 0, answer[..transmit.size].to_vec());
                    return;
                }
                match self.server.endpoint.accept(incoming, now, &mut answer, None) {
                    Ok((handle, connection)) => drop(self.server.connections.insert(handle, connection)),
                    Err(refused) => {
                        if let Some(transmit) = refused.response {
                            self.down.send(self.now, 0, answer[..transmit.size].to_vec());
                        }
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.down.send(self.now, 0, answer[..transmit.size].to_vec()),
            None => {}
        }
    }

    pub fn advance_server(&mut self) {
        let now = self.base.instant(self.now);
        let handles: Vec<_> = self.server.connections.keys().copied().collect();
        for handle in handles {
            self.server.advance(handle, now);
            let connection = self.server.connections.get_mut(&handle).unwrap();
            let mut datagrams = Vec::new();
            while let Some(transmit) = connection.poll_transmit(now, 10, &mut datagrams) {
                for datagram in datagrams.chunks(transmit.segment_size.unwrap_or(datagrams.len())) {
                    self.down.send(self.now, transmit.ecn.map_or(0, |ecn| ecn as u8), datagram.to_vec());
                }
                datagrams.clear();
            }
            if connection.is_drained() {
                self.server.connections.remove(&handle);
            }
        }
    }

    /// Time from the connect, or another time, to the first event for which `is_it`.
    pub fn time_of(&self, since: Timestamp, is_it: impl Fn(&Event<u32>) -> bool) -> Option<Duration> {
        self.events.iter().find(|(at, event)| *at >= since && is_it(event)).map(|(at, _)| at.since(since))
    }

    /// The reason for which the connection ended.
    pub fn lost(&self) -> Option<&Lost> {
        self.events.iter().find_map(|(_, event)| if let Event::Lost(lost) = event { Some(lost) } else { None })
    }

    /// Why a request failed.
    pub fn fault(&self, key: u32) -> Option<StreamFault> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Failed { stream, why } if *stream == key => Some(*why),
            _ => None,
        })
    }

    pub fn has(&self, is_it: impl Fn(&Event<u32>) -> bool) -> bool {
        self.events.iter().any(|(_, event)| is_it(event))
    }

    pub fn ended(&self) -> usize {
        self.events.iter().filter(|(_, event)| matches!(event, Event::End { .. })).count()
    }

    pub fn body_bytes(&self, key: u32) -> usize {
        let bytes = self.events.iter().map(|(_, event)| match event {
            Event::Body { stream, bytes } if *stream == key => bytes.len(),
            _ => 0,
        });
        bytes.sum()
    }
}

impl Server {
    fn advance(&mut self, handle: ConnectionHandle, now: Instant) {
        let Some(connection) = self.connections.get_mut(&handle) else { return };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        loop {
            let connection = self.connections.get_mut(&handle).unwrap();
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(handle, event) {
                    connection.handle_event(event);
                }
            }
            let Some(event) = connection.poll() else { break };
            match event {
                quinn_proto::Event::Connected => {
                    for (bytes, ends) in &self.uni {
                        let Some(id) = connection.streams().open(Dir::Uni) else { continue };
                        let _ = connection.send_stream(id).write(bytes);
                        if *ends {
                            let _ = connection.send_stream(id).finish();
                        }
                    }
                }
                quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = self.connections.get_mut(&handle).unwrap().streams().accept(dir) {
                        self.read(handle, id);
                    }
                }
                quinn_proto::Event::Stream(StreamEvent::Readable { id }) => self.read(handle, id),
                quinn_proto::Event::Stream(StreamEvent::Writable { id }) => self.write(handle, id),
                _ => {}
            }
        }
    }

    fn read(&mut self, handle: ConnectionHandle, id: StreamId) {
        let connection = self.connections.get_mut(&handle).unwrap();
        let mut receiver = connection.recv_stream(id);
        let Ok(mut chunks) = receiver.read(true) else { return };
        let mut is_whole = false;
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.uploaded += if id.dir() == Dir::Bi { chunk.bytes.len() as u64 } else { 0 };
                    self.requests.entry((handle, id)).or_default().extend_from_slice(&chunk.bytes);
                }
                Ok(None) => {
                    is_whole = true;
                    break;
                }
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
        if self.responds_early && id.dir() == Dir::Bi && !self.requests[&(handle, id)].is_empty() {
            let _ = connection.recv_stream(id).stop(VarInt::from_u32(0x100));
            is_whole = true;
        }
        if is_whole && id.dir() == Dir::Bi {
            let request = self.requests.remove(&(handle, id)).unwrap_or_default();
            let (bytes, ends) = (self.respond)(&path_of(&request));
            self.unsent.insert((handle, id), (bytes.into(), ends));
            self.write(handle, id);
        }
    }

    fn write(&mut self, handle: ConnectionHandle, id: StreamId) {
        let Some((unsent, ends)) = self.unsent.get_mut(&(handle, id)) else { return };
        let connection = self.connections.get_mut(&handle).unwrap();
        while !unsent.is_empty() {
            match connection.send_stream(id).write(unsent.make_contiguous()) {
                Ok(written) => drop(unsent.drain(..written)),
                Err(_) => return,
            }
        }
        if *ends {
            let _ = connection.send_stream(id).finish();
        }
        self.unsent.remove(&(handle, id));
    }
}

/// A control stream with SETTINGS.
pub fn settings() -> Vec<u8> {
    let mut bytes = vec![0];
    frame::Settings::default().put(&mut bytes);
    bytes
}

/// A response with this body.
pub fn response(body: &[u8]) -> Vec<u8> {
    let mut bytes = headers(&[(":status", "200"), ("content-length", &body.len().to_string())]);
    put_head(frame::DATA, body.len() as u64, &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::begin(&mut section);
    for (name, value) in fields {
        qpack::encode(name.as_bytes(), value.as_bytes(), &mut section);
    }
    let mut bytes = Vec::new();
    put_head(frame::HEADERS, section.len() as u64, &mut bytes);
    bytes.extend_from_slice(&section);
    bytes
}

/// The response to `/bytes/N`: a body of N bytes.
fn bytes_of(path: &str) -> Vec<u8> {
    let length = path.strip_prefix("/bytes/").and_then(|number| number.parse().ok()).unwrap_or(0);
    response(&vec![b'x'; length])
}

fn path_of(request: &[u8]) -> String {
    let mut path = String::new();
    let (_, first) = http3::varint::get(request).unwrap();
    let (length, second) = http3::varint::get(&request[first..]).unwrap();
    let from = first + second;
    qpack::decode(&request[from..from + length as usize], 1 << 20, |name, value| {
        if name == b":path" {
            path = String::from_utf8_lossy(value).into_owned();
        }
    })
    .unwrap();
    path
}

/// The server's limit of concurrent requests.
pub fn streams(limit: u32) -> TransportConfig {
    let mut config = TransportConfig::default();
    config.max_concurrent_bidi_streams(VarInt::from_u32(limit));
    config
}
