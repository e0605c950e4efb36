//! Hand-made packets, and the result of their analysis.
#![allow(dead_code, reason = "every test target uses its own part")]

use schema::{ConnectionRecord, WatchSecond, WireRequest};
use units::Timestamp;
use watch::{Watch, WatchSpec};
use wire::link::LinkType;
#[allow(unused_imports, reason = "every test target uses its own part")]
pub use wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};

/// The result of an analysis.
#[derive(Debug, Default)]
pub struct Outcome {
    pub connections: Vec<ConnectionRecord>,
    pub requests: Vec<WireRequest>,
    pub seconds: Vec<WatchSecond>,
}

impl Outcome {
    /// The only connection.
    #[track_caller]
    pub fn connection(&self) -> &ConnectionRecord {
        assert_eq!(self.connections.len(), 1, "{:#?}", self.connections);
        &self.connections[0]
    }

    /// Method, path, status and framing of every request, in the order of ending.
    pub fn requests_seen(&self) -> Vec<String> {
        let word = |word: &Option<std::sync::Arc<[u8]>>| {
            word.as_deref().map_or("?".to_owned(), |word| String::from_utf8_lossy(word).into_owned())
        };
        self.requests
            .iter()
            .map(|request| {
                let status = request.status.map_or("?".to_owned(), |status| status.to_string());
                let mark = if request.complete { "" } else { " incomplete" };
                let framing = request.framing.as_str();
                format!("{} {} {status} {framing}{mark}", word(&request.method), word(&request.path))
            })
            .collect()
    }
}

pub fn millis(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Ends the analysis at `at` and takes all records.
pub fn finish(mut watch: Watch, at: Timestamp) -> Outcome {
    watch.finish(at);
    let mut outcome = Outcome::default();
    watch.take_connections(&mut outcome.connections);
    watch.take_requests(&mut outcome.requests);
    watch.take_seconds(&mut outcome.seconds);
    assert_eq!(watch.live().bytes_held, 0, "no memory is held after the end");
    assert_eq!((watch.live().connections, watch.live().in_flight, watch.live().sessions), (0, 0, 0));
    outcome
}

/// A TCP packet over IPv4, as raw IP.
#[derive(Clone, Debug)]
pub struct Packet {
    pub source: ([u8; 4], u16),
    pub destination: ([u8; 4], u16),
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Packet {
    pub fn bytes(&self) -> Vec<u8> {
        let options = self.options.len().next_multiple_of(4);
        let total = 40 + options + self.payload.len();
        let mut bytes = vec![0x45, 0];
        bytes.extend((total as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend(self.source.0);
        bytes.extend(self.destination.0);
        bytes.extend(self.source.1.to_be_bytes());
        bytes.extend(self.destination.1.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgement.to_be_bytes());
        bytes.extend([((20 + options) / 4 * 16) as u8, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(&self.options);
        bytes.resize(40 + options, 0);
        bytes.extend(&self.payload);
        bytes
    }
}

/// One end of a connection, with its sequence numbers.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub address: ([u8; 4], u16),
    pub next: u32,
}

/// A connection that writes its own packets into a list, each with its time in milliseconds.
#[derive(Clone, Debug)]
pub struct Talk {
    pub client: End,
    pub server: End,
    pub at: u64,
    pub packets: Vec<(u64, Packet)>,
}

pub const CLIENT: bool = true;
pub const SERVER: bool = false;

impl Talk {
    pub fn new() -> Talk {
        Talk::from_port(40_000)
    }

    pub fn from_port(port: u16) -> Talk {
        Talk {
            client: End { address: ([198, 19, 0, 1], port), next: 1000 },
            server: End { address: ([198, 18, 0, 1], 80), next: 500_000 },
            at: 1000,
            packets: Vec::new(),
        }
    }

    /// Advances the time.
    pub fn wait(&mut self, millis: u64) -> &mut Talk {
        self.at += millis;
        self
    }

    /// A packet as it would be sent now, without sending it.
    pub fn make(&self, from_client: bool, flags: u8, payload: &[u8]) -> Packet {
        let (source, destination) = if from_client { (self.client, self.server) } else { (self.server, self.client) };
        Packet {
            source: source.address,
            destination: destination.address,
            sequence: source.next,
            acknowledgement: if flags & ACK != 0 { destination.next } else { 0 },
            flags,
            window: 1000,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    /// Sends a packet and advances the sequence number.
    pub fn send(&mut self, from_client: bool, flags: u8, payload: &[u8]) -> &mut Talk {
        let packet = self.make(from_client, flags, payload);
        let end = if from_client { &mut self.client } else { &mut self.server };
        let phantom = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        end.next = end.next.wrapping_add(payload.len() as u32 + phantom);
        self.packets.push((self.at, packet));
        self
    }

    /// SYN, 2 ms, SYN-ACK, 48 ms, ACK.
    pub fn open(&mut self) -> &mut Talk {
        self.send(CLIENT, SYN, b"").wait(2).send(SERVER, SYN | ACK, b"").wait(48).send(CLIENT, ACK, b"")
    }

    /// Data from one side, 10 ms later its acknowledgement.
    pub fn send_data(&mut self, from_client: bool, payload: &[u8]) -> &mut Talk {
        self.send(from_client, ACK | PSH, payload).wait(10).send(!from_client, ACK, b"")
    }

    /// FIN from the client, FIN from the server, ACK.
    pub fn close(&mut self) -> &mut Talk {
        self.send(CLIENT, FIN | ACK, b"").wait(1).send(SERVER, FIN | ACK, b"").wait(1).send(CLIENT, ACK, b"")
    }

    /// Passes the packets, truncated to `snap` bytes, to `watch`.
    pub fn feed(&self, watch: &mut Watch, snap: usize) {
        for (at, packet) in &self.packets {
            let bytes = packet.bytes();
            watch.handle_packet(millis(*at), LinkType::RawIp, &bytes[..bytes.len().min(snap)], bytes.len() as u32);
        }
    }

    /// The result of an analysis with these limits; it ends at the last packet.
    pub fn outcome_with(&self, spec: WatchSpec, snap: usize) -> Outcome {
        let mut watch = Watch::new(spec);
        self.feed(&mut watch, snap);
        finish(watch, millis(self.packets.last().map_or(0, |(at, _)| *at)))
    }

    /// The result of an analysis with default limits.
    pub fn outcome(&self) -> Outcome {
        self.outcome_with(WatchSpec::default(), 65_536)
    }
}
