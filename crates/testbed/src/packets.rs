//! Packet headers of both ends, kept during a run and stored with it, for `yamabiko explain`.
//!
//! ```text
//!   capture thread --> KeptPackets, at most 128 MB --> at the run's end: packets-client.pcap, packets-server.pcap,
//!                                                      packets.json
//! ```
//!
//! Of TCP only the IP and TCP headers are kept, about 90 bytes a packet. QUIC shows nothing in its headers, so of HTTP/3
//! whole datagrams are kept, in at most 256 MB, and the secrets that decrypt them: `packets-keys.log`, which only its
//! owner may read. When the memory is full, the packets of half of the
//! connections are removed, and from then on those connections are not kept: the rest is whole connections, chosen by
//! address and port, independently of what happens on them. If one connection alone fills the memory, packets are kept
//! until then. Nothing is written while the load runs.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use store::RunFolder;
use units::Timestamp;
use wire::capture::write;
use wire::ip::{self, Addresses, TcpHeader};
use wire::link::LinkType;
use wire::tcp::flags;

use crate::server_samples::{OpenedSocket, SocketFeed};
use crate::watching::between::End;

/// Most bytes of memory for the kept packets of both ends.
const MEMORY_MAX: usize = 128 << 20;
/// The same for whole datagrams.
const DATAGRAM_MEMORY_MAX: usize = 256 << 20;
/// Most bytes of the key log: those of some 40,000 connections.
const KEY_LOG_MAX: usize = 32 << 20;
/// Bytes of a kept packet before its headers: time, connection, lengths.
const RECORD_BYTES: usize = 8 + 4 + 4 + 2;
/// Divisor of the memory: a sample below this part is too small, and packets are then kept until the memory is full.
const LEAST_SAMPLE: usize = 8;

/// Facts about the kept packets of a run: `packets.json` in its folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptFacts {
    /// Packets in the client's file and in the server's.
    pub packets: [u64; 2],
    /// Connections of which packets were kept are one in this many.
    pub one_in: u32,
    /// Nanoseconds of the run after which packets were not kept any more; `None`: to the end.
    pub until_ns: Option<u64>,
    /// Packets that the capture lost, at both ends.
    pub lost: u64,
    /// Secrets of TLS that had no room in the key log. Each is of one connection, which is then not explained.
    #[serde(default)]
    pub secrets_lost: u64,
    /// Nanoseconds of the run after which frames of HTTP/2 were not kept any more; `None`: to the end.
    #[serde(default)]
    pub http2_until_ns: Option<u64>,
    /// The wall clock at the run's zero, in nanoseconds since 1970: times in the files less this are the run's.
    pub zero_unix_ns: u64,
}

/// The packets.
#[derive(Debug)]
pub struct KeptPackets {
    ends: [Vec<u8>; 2],
    memory_max: usize,
    /// Connections are kept whose hash has none of these bits.
    sample_mask: u32,
    until: Option<Timestamp>,
    /// Receives the addresses of connections that are kept.
    feed: Option<SocketFeed>,
    /// Of QUIC, whose whole datagrams are kept, the secrets that decrypt them, as lines of a key log.
    key_log: Option<Vec<u8>>,
    secrets_lost: u64,
}

/// Names of the files, by end.
pub const FILES: [&str; 2] = ["packets-client.pcap", "packets-server.pcap"];
/// Name of the file with the secrets of QUIC connections.
pub const KEY_LOG_FILE: &str = "packets-keys.log";
/// Name of the file with [`KeptFacts`].
pub const FACTS_FILE: &str = "packets.json";

impl Default for KeptPackets {
    fn default() -> Self {
        KeptPackets::with_memory(MEMORY_MAX)
    }
}

impl KeptPackets {
    fn with_memory(memory_max: usize) -> KeptPackets {
        KeptPackets {
            ends: [Vec::new(), Vec::new()],
            memory_max,
            sample_mask: 0,
            until: None,
            feed: None,
            key_log: None,
            secrets_lost: 0,
        }
    }

    /// No packets yet; the addresses of new connections go to `feed`.
    pub(crate) fn feeding(feed: Option<SocketFeed>) -> KeptPackets {
        KeptPackets { feed, ..KeptPackets::default() }
    }

    /// No datagrams of QUIC yet, and no secrets.
    pub(crate) fn of_quic() -> KeptPackets {
        KeptPackets { key_log: Some(Vec::new()), ..KeptPackets::with_memory(DATAGRAM_MEMORY_MAX) }
    }

    /// Whether datagrams are kept whole.
    pub(crate) fn is_of_quic(&self) -> bool {
        self.key_log.is_some()
    }

    /// Keeps a secret of the load, with its label in a key log.
    pub(crate) fn secret(&mut self, label: &str, random: &[u8], secret: &[u8]) {
        let Some(log) = &mut self.key_log else { return };
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hexadecimal(random), hexadecimal(secret));
        if log.len() + line.len() > KEY_LOG_MAX {
            self.secrets_lost += 1;
            return;
        }
        log.extend_from_slice(line.as_bytes());
    }

    /// Keeps the headers of a TCP packet, or a whole datagram where QUIC is kept.
    pub fn packet(&mut self, end: End, at: Timestamp, bytes: &[u8], original_length: u32) {
        if self.until.is_some() {
            return;
        }
        let header = match self.is_of_quic() {
            true => Header::of_datagram(bytes, original_length as usize),
            false => Header::parse(bytes, original_length as usize),
        };
        let Some(header) = header else { return };
        let (connection, length) = (header.connection, header.length);
        if connection & self.sample_mask != 0 {
            return;
        }
        if header.opens
            && end == End::Server
            && let Some(feed) = &self.feed
        {
            feed.opened(header.socket());
        }
        let Some(headers) = bytes.get(..length) else { return };
        let used: usize = self.ends.iter().map(Vec::len).sum();
        if used + RECORD_BYTES + length > self.memory_max {
            self.shrink(at);
            return self.packet(end, at, bytes, original_length);
        }
        let into = &mut self.ends[index(end)];
        into.reserve(RECORD_BYTES + length);
        into.extend(at.as_nanos().to_le_bytes());
        into.extend(connection.to_le_bytes());
        into.extend(original_length.to_le_bytes());
        into.extend((length as u16).to_le_bytes());
        into.extend_from_slice(headers);
    }

    /// Removes half of the connections; if too little would be left, ends the keeping.
    fn shrink(&mut self, now: Timestamp) {
        let mask = self.sample_mask << 1 | 1;
        let remains = |record: &Record<'_>| record.connection & mask == 0;
        let left: usize =
            self.ends.iter().map(|end| records(end).filter(remains).map(|record| record.size()).sum::<usize>()).sum();
        if left < self.memory_max / LEAST_SAMPLE || mask == u32::MAX {
            self.until = Some(now);
            return;
        }
        for end in &mut self.ends {
            let mut to = 0;
            let mut from = 0;
            while let Some(record) = Record::at(&end[from..]) {
                let (size, is_kept) = (record.size(), remains(&record));
                if is_kept {
                    end.copy_within(from..from + size, to);
                    to += size;
                }
                from += size;
            }
            end.truncate(to);
        }
        self.sample_mask = mask;
    }

    /// Writes the files into a run's folder. `lost`: packets that the capture lost; `http2_until`: when frames of HTTP/2
    /// began to be left out. `started`: the wall clock at the run's zero.
    ///
    /// # Errors
    /// A file cannot be written; the facts, without which the packets are not used, are written last.
    pub fn write(
        &self,
        folder: &RunFolder,
        lost: u64,
        http2_until: Option<Timestamp>,
        started: SystemTime,
    ) -> store::Result<()> {
        let zero = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let zero_unix_ns = units::time::saturating_nanos(zero);
        let mut facts = KeptFacts {
            one_in: self.sample_mask.wrapping_add(1),
            until_ns: self.until.map(Timestamp::as_nanos),
            lost,
            secrets_lost: self.secrets_lost,
            http2_until_ns: http2_until.map(Timestamp::as_nanos),
            zero_unix_ns,
            ..KeptFacts::default()
        };
        for (packets, (end, name)) in facts.packets.iter_mut().zip(self.ends.iter().zip(FILES)) {
            folder.write_file(name, |file| {
                let longest = if self.is_of_quic() { DATAGRAM_MAX } else { HEADERS_MAX };
                *packets = write_packets(file, end, zero_unix_ns, longest)?;
                Ok(())
            })?;
        }
        if let Some(log) = &self.key_log {
            folder.write_private_file(KEY_LOG_FILE, log)?;
        }
        let facts = serde_json::to_vec_pretty(&facts).expect("facts are plain numbers");
        folder.write_file(FACTS_FILE, |file| file.write_all(&facts))
    }
}

/// Writes the packets of one end as a pcap file; returns their number.
fn write_packets(file: &mut dyn Write, end: &[u8], zero_unix_ns: u64, longest: usize) -> std::io::Result<u64> {
    let mut buffer = Vec::new();
    let mut packets = 0;
    write::pcap_header(&mut buffer, LinkType::RawIp, longest as u32);
    for record in records(end) {
        let stamp = Timestamp::from_nanos(zero_unix_ns.saturating_add(record.at));
        write::pcap_packet(&mut buffer, stamp, record.headers, record.original_length);
        file.write_all(&buffer)?;
        buffer.clear();
        packets += 1;
    }
    file.write_all(&buffer)?;
    Ok(packets)
}

/// Longest IP and TCP headers with all options.
pub(crate) const HEADERS_MAX: usize = 128;
/// Longest datagram that a record has room for.
const DATAGRAM_MAX: usize = u16::MAX as usize;

fn index(end: End) -> usize {
    match end {
        End::Client => 0,
        End::Server => 1,
    }
}

/// What is read of a TCP packet.
struct Header {
    packet: ip::Packet,
    /// [`connection_hash`].
    connection: u32,
    client: u32,
    client_port: u16,
    server_port: u16,
    /// Bytes of the IP and TCP headers.
    length: usize,
    /// Whether it is a client's first packet.
    opens: bool,
}

impl Header {
    /// `None` of what is not a TCP packet of a client.
    fn parse(bytes: &[u8], original_length: usize) -> Option<Header> {
        let packet = ip::Packet::parse(bytes, original_length).ok()?;
        if packet.protocol != wire::protocol::TCP || packet.fragment.is_some() {
            return None;
        }
        let segment = bytes.get(packet.transport_at..)?;
        let header = TcpHeader::parse(segment, packet.total_len.checked_sub(packet.transport_at)?).ok()?;
        let (direction, client) = crate::watching::between::direction_and_client(bytes)?;
        let (client_port, server_port) = match direction {
            schema::Direction::Up => (header.source_port, header.destination_port),
            schema::Direction::Down => (header.destination_port, header.source_port),
        };
        Some(Header {
            connection: connection_hash(client, client_port),
            client,
            client_port,
            server_port,
            length: (packet.transport_at + header.header_len).min(bytes.len()).min(HEADERS_MAX),
            opens: header.flags & (flags::SYN | flags::ACK) == flags::SYN,
            packet,
        })
    }

    /// The same of a UDP datagram, all of which is kept.
    fn of_datagram(bytes: &[u8], original_length: usize) -> Option<Header> {
        let packet = ip::Packet::parse(bytes, original_length).ok()?;
        if packet.protocol != wire::protocol::UDP || packet.fragment.is_some() {
            return None;
        }
        let ports = bytes.get(packet.transport_at..)?.first_chunk::<4>()?;
        let [source, destination] = [0, 2].map(|at| u16::from_be_bytes([ports[at], ports[at + 1]]));
        let (direction, client) = crate::watching::between::direction_and_client(bytes)?;
        let (client_port, server_port) = match direction {
            schema::Direction::Up => (source, destination),
            schema::Direction::Down => (destination, source),
        };
        let length = packet.total_len.min(bytes.len()).min(DATAGRAM_MAX);
        let connection = connection_hash(client, client_port);
        Some(Header { connection, client, client_port, server_port, length, opens: false, packet })
    }

    /// The connection's sockets; of a packet from the client.
    fn socket(&self) -> OpenedSocket {
        let (client, server): (IpAddr, IpAddr) = match self.packet.addresses {
            Addresses::V4(source, destination) => (source.into(), destination.into()),
            Addresses::V6(source, destination) => (source.into(), destination.into()),
        };
        OpenedSocket {
            client: self.client,
            remote: SocketAddr::new(client, self.client_port),
            local: SocketAddr::new(server, self.server_port),
        }
    }
}

/// A hash of the client and its port: the same for both directions and at both ends.
pub(crate) fn connection_hash(client: u32, port: u16) -> u32 {
    let mixed = (u64::from(client) << 16 | u64::from(port)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}

/// A packet in memory.
struct Record<'a> {
    at: u64,
    connection: u32,
    original_length: u32,
    headers: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`.
    fn at(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (at, bytes) = bytes.split_first_chunk::<8>()?;
        let (connection, bytes) = bytes.split_first_chunk::<4>()?;
        let (original_length, bytes) = bytes.split_first_chunk::<4>()?;
        let (length, bytes) = bytes.split_first_chunk::<2>()?;
        Some(Record {
            at: u64::from_le_bytes(*at),
            connection: u32::from_le_bytes(*connection),
            original_length: u32::from_le_bytes(*original_length),
            headers: bytes.get(..usize::from(u16::from_le_bytes(*length)))?,
        })
    }

    fn size(&self) -> usize {
        RECORD_BYTES + self.headers.len()
    }
}

fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let record = Record::at(bytes)?;
        bytes = &bytes[record.size()..];
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A TCP packet from client 0 with this port, or to it.
    fn packet(port: u16, up: bool) -> Vec<u8> {
        let (client, server) = ([198, 19, 0, 1], [198, 18, 0, 1]);
        let mut bytes = vec![0x45, 0, 0, 60, 0, 1, 0x40, 0, 64, 6, 0, 0];
        bytes.extend(if up { [client, server] } else { [server, client] }.concat());
        let ports = if up { [port, 80] } else { [80, port] };
        bytes.extend(ports.map(u16::to_be_bytes).concat());
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        bytes.extend([7; 20]);
        bytes
    }

    fn ports(kept: &KeptPackets, end: End) -> Vec<u16> {
        records(&kept.ends[index(end)])
            .map(|record| {
                let ports = [[record.headers[20], record.headers[21]], [record.headers[22], record.headers[23]]];
                ports.map(u16::from_be_bytes).into_iter().find(|port| *port != 80).unwrap()
            })
            .collect()
    }

    #[test]
    fn headers_of_both_ends_are_kept_without_payload() {
        let mut kept = KeptPackets::default();
        kept.packet(End::Client, Timestamp::from_nanos(5), &packet(1024, true), 60);
        kept.packet(End::Server, Timestamp::from_nanos(9), &packet(1024, false), 60);
        kept.packet(End::Server, Timestamp::from_nanos(9), &[0x45; 12], 60);
        let folder = tempfile::tempdir().unwrap();
        let folder = store::RunStore::at(folder.path()).create("bench", UNIX_EPOCH, 1).unwrap();
        kept.write(&folder, 3, None, UNIX_EPOCH + Duration::from_nanos(100)).unwrap();
        let folder = folder.path();
        let facts: KeptFacts = serde_json::from_slice(&std::fs::read(folder.join(FACTS_FILE)).unwrap()).unwrap();
        let expected = KeptFacts { packets: [1, 1], one_in: 1, lost: 3, zero_unix_ns: 100, ..KeptFacts::default() };
        assert_eq!(facts, expected);
        let client = std::fs::read(folder.join(FILES[0])).unwrap();
        assert_eq!(client.len(), 24 + 16 + 40, "the file's header, the packet's, and 40 bytes of headers");
        assert_eq!(client[28..32], 105u32.to_le_bytes(), "the run's time plus the wall clock at its zero");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names.into_iter().all(|name| !name.contains("unfinished")));
    }

    #[test]
    fn datagrams_are_kept_whole_with_the_secrets_that_only_the_owner_may_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let mut kept = KeptPackets::of_quic();
        let mut datagram = packet(1024, true);
        datagram[9] = 17;
        kept.packet(End::Client, Timestamp::from_nanos(5), &datagram, 60);
        kept.packet(End::Client, Timestamp::from_nanos(6), &packet(1024, true), 60);
        kept.secret("CLIENT_TRAFFIC_SECRET_0", &[0xAB; 32], &[1; 32]);
        let folder = tempfile::tempdir().unwrap();
        let folder = store::RunStore::at(folder.path()).create("bench", UNIX_EPOCH, 1).unwrap();
        kept.write(&folder, 0, None, UNIX_EPOCH).unwrap();
        let client = std::fs::read(folder.path().join(FILES[0])).unwrap();
        assert_eq!(client.len(), 24 + 16 + 60, "the file's header, the packet's, and the datagram");
        let keys = folder.path().join(KEY_LOG_FILE);
        assert_eq!(std::fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(watch::KeyLog::parse(&std::fs::read(&keys).unwrap()).unwrap().len(), 1);
    }

    #[test]
    fn full_memory_leaves_whole_connections_at_both_ends() {
        let mut kept = KeptPackets::with_memory(64 << 10);
        for round in 0..40 {
            for port in 2_000..2_100 {
                kept.packet(End::Client, Timestamp::from_nanos(round), &packet(port, true), 60);
                kept.packet(End::Server, Timestamp::from_nanos(round), &packet(port, false), 60);
            }
        }
        let (client, server) = (ports(&kept, End::Client), ports(&kept, End::Server));
        assert!(kept.ends.iter().map(Vec::len).sum::<usize>() <= 64 << 10);
        assert!(kept.until.is_none() && kept.sample_mask.count_ones() >= 3, "{:b}", kept.sample_mask);
        let mut connections = client.clone();
        connections.sort_unstable();
        connections.dedup();
        assert_eq!(client.len(), connections.len() * 40, "every packet of a connection in the sample");
        assert_eq!(client, server);
    }

    #[test]
    fn one_connection_that_fills_the_memory_is_kept_until_then() {
        let mut kept = KeptPackets::with_memory(10 << 10);
        for at in 0..1_000 {
            kept.packet(End::Client, Timestamp::from_nanos(at), &packet(1024, true), 60);
        }
        let whole = (10 << 10) / (RECORD_BYTES + 40);
        // Whether the connection belongs to the half that would stay depends on its hash; in both cases it ends.
        assert_eq!(ports(&kept, End::Client).len(), whole);
        assert_eq!(kept.until, Some(Timestamp::from_nanos(whole as u64)));
    }
}
