//! The analysis as a whole: packets in, records out.

mod ageing;
mod counts;

use schema::{ConnectionRecord, Direction, Quantiles, RecordEnd, WatchSecond, WireRequest};
use stats::Histogram;
use units::{Timestamp, time::saturating_nanos};
use wire::link::{LinkType, Payload};
use wire::tcp::flags::{ACK, RST, SYN};
use wire::tunnel::{Innermost, Unread};
use wire::{Error, ip};

use crate::copies::{self, Copies};
use crate::flow::Flow;
use crate::interned::Words;
use crate::key::Key;
use crate::out::Out;
use crate::quic::{PacketLog, Quic};
use crate::reading::Reading;
use crate::secrets::SecretStore;
use crate::series::Series;
use crate::spec::WatchSpec;
use crate::table::{Index, Table};
use crate::tcp::Segment;
use crate::waiting::WaitPolicy;
pub use counts::{Counts, WatchLive};

mod udp;
mod waits;

/// Follows every TCP connection in a capture.
///
/// Pass packets in the order of capture ([`Watch::handle_packet`]) and, for a live capture, the time at intervals
/// ([`Watch::handle_time`]); take the finished records as often as memory requires; call [`Watch::finish`] at the end
/// and take the rest. Packets are borrowed for the call only. A timestamp before the latest is used for figures of the
/// connection, while the series stays at the latest. A packet that acknowledges unseen bytes waits for them, for a
/// limited time ([`WatchSpec::reorder`]).
pub struct Watch {
    spec: WatchSpec,
    table: Table<Flow>,
    series: Series,
    words: Words,
    connections: Vec<ConnectionRecord>,
    requests: Vec<WireRequest>,
    /// Flows to be checked; a member only to reuse its memory.
    due: Vec<Index>,
    /// During the end: connections still to be recorded.
    ending: Option<Vec<Index>>,
    counts: Counts,
    reading: Reading,
    held: usize,
    /// Number of the current packet, from 1.
    number: u64,
    /// The latest time of a packet.
    latest_at: u64,
    copies: Option<Box<Copies>>,
    /// Connections with waiting packets, and their numbers; some may no longer wait.
    waiting: Vec<(Index, u64)>,
    /// Number of entries at which those that no longer wait are removed.
    waiting_most: usize,
    wait_policy: WaitPolicy,
    quic: Box<Quic>,
    secrets: SecretStore,
    quic_packets: PacketLog,
}

impl Watch {
    /// An analysis without packets yet.
    pub fn new(spec: WatchSpec) -> Watch {
        Watch {
            table: Table::new(spec.hash_seed),
            series: Series::new(),
            words: Words::new(),
            connections: Vec::new(),
            requests: Vec::new(),
            due: Vec::new(),
            ending: None,
            counts: Counts::default(),
            reading: Reading::default(),
            held: 0,
            number: 0,
            latest_at: 0,
            copies: spec.duplicates.then(|| Box::new(Copies::new())),
            waiting: Vec::new(),
            waiting_most: WAITING_MAX,
            wait_policy: WaitPolicy::new(),
            quic: Box::new(Quic::new(spec.hash_seed)),
            secrets: SecretStore::new(spec.key_log.clone(), spec.secrets_are_reported),
            quic_packets: PacketLog::new(spec.quic_packets),
            spec,
        }
    }

    /// Processes a packet captured at `at`, of which `captured` was captured and `original_length` bytes were on the
    /// wire, both with the link header. Any bytes are accepted; malformed packets are counted.
    #[inline]
    pub fn handle_packet(&mut self, at: Timestamp, link: LinkType, captured: &[u8], original_length: u32) {
        self.begin_packet(at);
        let length = (original_length as usize).max(captured.len());
        self.counts.packets += 1;
        self.counts.bytes += length as u64;
        self.series.row.packets += 1;
        self.series.row.bytes += length as u64;
        if let Ok(Payload::Ip(start)) = link.payload(captured) {
            let packet = captured.get(start..).unwrap_or(&[]);
            if let Ok(header) = ip::Packet::parse(packet, length - start)
                && header.protocol == wire::protocol::TCP
                && header.fragment.is_none_or(|fragment| fragment.offset == 0)
            {
                return self.handle_ip(at, &header, packet, length);
            }
        }
        self.handle_wrapped(at, link, captured, length);
    }

    /// Processes a packet at `at` with an unsupported link layer (its LINKTYPE number).
    pub fn handle_unknown(&mut self, at: Timestamp, link: u16, original_length: u32) {
        self.begin_packet(at);
        self.counts.packets += 1;
        self.counts.bytes += u64::from(original_length);
        self.series.row.packets += 1;
        self.series.row.bytes += u64::from(original_length);
        self.counts.other += 1;
        self.reading.note_unread(Unread::Link(link));
    }

    /// Sets the number of the next packet in its capture, if others were left out before it. Otherwise packets are
    /// numbered in sequence, from 1.
    #[inline]
    pub fn number_next(&mut self, number: u64) {
        self.number = number.saturating_sub(1);
    }

    /// Stores a secret of a connection whose ClientHello has this random, with its label in a key log, as the client
    /// reports it ([`WatchSpec::secrets_are_reported`]). Unknown labels are ignored. Report a secret before the first packet that
    /// the client sends with it.
    pub fn report_secret(&mut self, label: &str, random: &[u8; 32], secret: &[u8]) {
        self.secrets.report(label, random, secret);
    }

    /// Advances to `now` without a packet: ends seconds, ages idle connections.
    pub fn handle_time(&mut self, now: Timestamp) {
        if self.series.advance(now) {
            self.age();
        }
    }

    /// Records that the capturing system lost packets since its last report.
    pub fn handle_capture_drops(&mut self, now: Timestamp, dropped: u64) {
        self.handle_time(now);
        self.counts.capture_drops += dropped;
        self.series.row.capture_drops += dropped;
    }

    /// Ends the analysis at `at`: records every remaining connection, and the current second, in their present state.
    pub fn finish(&mut self, at: Timestamp) {
        while self.finish_some(at, usize::MAX) {}
    }

    /// The same for at most `connections` of the remaining connections, so that their records can be taken before the
    /// next: all together would need more memory than the analysis did. True while there are more.
    pub fn finish_some(&mut self, at: Timestamp, connections: usize) -> bool {
        if self.ending.is_none() {
            self.handle_time(at);
            self.end_waiting();
            self.series.finish();
        }
        let mut ending = self.ending.take().unwrap_or_else(|| self.table.indices());
        // In the order of the slab, which is about that of the beginnings of the connections.
        for index in ending.drain(..connections.min(ending.len())) {
            self.end(index, RecordEnd::CaptureEnd);
        }
        self.table.shrink(ending.first().copied());
        let more = !ending.is_empty();
        self.ending = Some(ending);
        more || self.finish_quic(connections)
    }

    /// Appends the connections whose records were closed since the last call, in the order of closing.
    pub fn take_connections(&mut self, into: &mut Vec<ConnectionRecord>) {
        append(&mut self.connections, into);
    }

    /// Appends the requests that ended since the last call, in the order of ending.
    pub fn take_requests(&mut self, into: &mut Vec<WireRequest>) {
        append(&mut self.requests, into);
    }

    /// Appends the seconds that ended since the last call. Seconds in a silence of more than a minute are left out.
    pub fn take_seconds(&mut self, into: &mut Vec<WatchSecond>) {
        self.series.take(into);
    }

    /// The present state.
    pub fn live(&self) -> WatchLive {
        let [connections, sessions, in_flight] = self.series.gauges();
        WatchLive {
            connections,
            sessions,
            in_flight,
            flows_held: (self.table.len() + self.quic.len()) as u64,
            bytes_held: self.held as u64,
            counts: self.counts,
        }
    }

    /// Maximum time for which a packet waits for a packet that it acknowledges.
    pub fn reorder_window_ns(&self) -> u64 {
        saturating_nanos(self.spec.reorder)
    }

    /// Quality of the capture.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Round-trip times of all handshakes so far at this capture point, in ns.
    pub fn handshake_rtt(&self) -> Quantiles {
        self.series.handshake_rtt.quantiles()
    }

    /// Round-trip times of all handshakes as a histogram, for a live display of the distribution.
    pub fn handshake_rtt_histogram(&self) -> &Histogram {
        &self.series.handshake_rtt
    }

    /// Service times of all complete requests so far, in ns.
    pub fn service_time(&self) -> Quantiles {
        self.series.service_time.quantiles()
    }

    /// Memory of a connection before any bytes are held: its entry in the slab.
    pub const FLOW_BYTES: usize = size_of::<Flow>();

    /// Additional memory of an HTTP connection, before its queue and its strings.
    pub const HTTP_BYTES: usize = size_of::<crate::http::Http>();

    /// Records the time of a packet.
    #[inline]
    fn begin_packet(&mut self, at: Timestamp) {
        self.number += 1;
        if at.as_nanos() >= self.latest_at {
            self.latest_at = at.as_nanos();
        } else {
            self.note_late(at);
        }
        if self.series.ends_before(at) {
            self.series.note_silence(at);
            self.handle_time(at);
        } else {
            self.series.advance(at);
        }
    }

    #[cold]
    fn note_late(&mut self, at: Timestamp) {
        let late_ns = self.latest_at - at.as_nanos();
        if late_ns > saturating_nanos(self.spec.disorder) {
            self.reading.late.note(self.number, late_ns);
        }
    }

    /// Processes a frame whose IP packet is not TCP, or that has none: it may be a tunnel.
    #[cold]
    fn handle_wrapped(&mut self, at: Timestamp, link: LinkType, captured: &[u8], length: usize) {
        match link.innermost(captured, length) {
            Ok(Innermost::Tcp { at: start, packet: header, tunnels }) => {
                self.reading.note_tunnels(tunnels);
                self.handle_ip(at, &header, captured.get(start..).unwrap_or(&[]), length);
            }
            Ok(Innermost::Udp { at: start, packet: header, tunnels }) => {
                self.handle_udp(at, &header, captured.get(start..).unwrap_or(&[]), tunnels);
            }
            Ok(Innermost::LaterFragment) => self.counts.later_fragments += 1,
            Ok(Innermost::Unread(what)) => {
                self.counts.other += 1;
                self.reading.note_unread(what);
            }
            Err(error) => self.note_malformed(error, captured.len() < length),
        }
    }

    #[cold]
    fn note_malformed(&mut self, error: Error, is_cut: bool) {
        self.counts.malformed += 1;
        self.reading.cut += u64::from(is_cut && matches!(error, Error::Truncated { .. }));
    }

    #[inline]
    fn handle_ip(&mut self, at: Timestamp, header: &ip::Packet, packet: &[u8], frame_length: usize) {
        let is_cut = packet.len() < header.total_len;
        // Bytes beyond the packet are padding of a short frame.
        let packet = &packet[..packet.len().min(header.total_len)];
        let bytes = packet.get(header.transport_at..).unwrap_or(&[]);
        let length = header.total_len - header.transport_at;
        let tcp = match ip::TcpHeader::parse(bytes, length) {
            Ok(tcp) => tcp,
            Err(error) => return self.note_malformed(error, is_cut),
        };
        let options = bytes.get(wire::tcp::HEADER_MIN..tcp.header_len.min(bytes.len())).unwrap_or(&[]);
        let segment = Segment {
            at: at.as_nanos(),
            sequence: tcp.sequence,
            acknowledgement: tcp.acknowledgement,
            flags: tcp.flags,
            window: tcp.window,
            payload: bytes.get(tcp.header_len..).unwrap_or(&[]),
            length: (length - tcp.header_len) as u64,
            ip_bytes: header.total_len as u64,
            options: wire::tcp::Options::parse(options),
            identification: header.identification,
            number: self.number,
        };
        let (key, is_second) = Key::new(header.addresses, tcp.source_port, tcp.destination_port);
        let hash = self.table.hash(&key);
        if self.copies.is_some() && self.is_copy(&key, hash, is_second, &segment) {
            return self.count_copy(frame_length);
        }
        self.counts.tcp += 1;
        self.counts.first_fragments += u64::from(header.fragment.is_some());
        self.handle_segment(key, hash, is_second, &segment, header.fragment.is_some());
    }

    /// Whether this packet is a copy of a recent one.
    fn is_copy(&mut self, key: &Key, hash: u32, is_second: bool, segment: &Segment<'_>) -> bool {
        let Some(copies) = &mut self.copies else { return false };
        let Some(first_at) = copies.note(copies::fingerprint(hash, is_second, segment), segment.at) else {
            return false;
        };
        if segment.identification != 0 {
            return true;
        }
        // A kernel without the socket responds to each packet in transit with the same reset.
        if segment.has(RST) {
            return false;
        }
        let Some(index) = self.table.find(key, hash) else { return false };
        let flow = self.table.flow(index);
        !flow.was_retransmission_requested(direction_of(flow, is_second), first_at)
    }

    #[cold]
    fn count_copy(&mut self, frame_length: usize) {
        self.reading.duplicates += 1;
        self.counts.packets -= 1;
        self.counts.bytes -= frame_length as u64;
        self.series.row.packets -= 1;
        self.series.row.bytes -= frame_length as u64;
    }

    #[inline]
    fn handle_segment(&mut self, key: Key, hash: u32, is_second: bool, segment: &Segment<'_>, is_fragment: bool) {
        let index = match self.table.find(&key, hash) {
            Some(index) => {
                let flow = self.table.flow(index);
                if segment.has(SYN) && flow.is_replaced_by(direction_of(flow, is_second), segment) {
                    self.begin_again(index, is_second, segment)
                } else {
                    index
                }
            }
            None => self.begin(key, hash, is_second, segment),
        };
        let silence = self.series.silence();
        let flow = self.table.flow(index);
        let direction = direction_of(flow, is_second);
        if flow.silences != silence.count {
            let length_ns = silence.length_ns;
            if flow.contradicts_silence(silence, direction, segment) {
                self.reading.jumps.note(segment.number, length_ns);
            }
        }
        if flow.must_wait(direction, segment) {
            return self.enqueue(index, direction, segment, is_fragment);
        }
        self.receive(index, &key, direction, segment, is_fragment);
    }

    /// Processes a segment in its turn.
    #[inline]
    fn receive(&mut self, index: Index, key: &Key, direction: Direction, segment: &Segment<'_>, is_fragment: bool) {
        let flow = self.table.flow(index);
        let mut out = Out {
            at: segment.at,
            packet: segment.number,
            connection: flow.number,
            key,
            client_is_second: flow.client_is_second,
            limits: &self.spec.limits,
            secrets: &mut self.secrets,
            later_protocols: self.spec.later_protocols,
            stores_words: self.spec.words,
            series: &mut self.series,
            reading: &mut self.reading,
            words: &mut self.words,
            requests: &mut self.requests,
            quic_packets: &mut self.quic_packets,
            held: &mut self.held,
        };
        if flow.receive(direction, segment, self.spec.capture_point, is_fragment, &mut out) {
            self.table.close(index);
        }
    }

    /// The first packet between two ends.
    #[cold]
    fn begin(&mut self, key: Key, hash: u32, is_second: bool, segment: &Segment<'_>) -> Index {
        if self.table.len() >= self.spec.limits.flows.max(1) {
            self.evict_one();
        }
        let flow = self.new_flow(&key, is_second, segment);
        let second = self.next_check(self.series.clock());
        self.table.insert(key, hash, second, flow)
    }

    /// A new connection between the ends of a known one.
    #[cold]
    fn begin_again(&mut self, index: Index, is_second: bool, segment: &Segment<'_>) -> Index {
        let key = self.table.key(index);
        let flow = self.new_flow(&key, is_second, segment);
        let hash = self.table.hash(&key);
        let second = self.next_check(self.series.clock());
        self.end(index, RecordEnd::Reused);
        self.table.insert(key, hash, second, flow)
    }

    fn new_flow(&mut self, key: &Key, is_second: bool, segment: &Segment<'_>) -> Flow {
        let source_is_client = match (segment.has(SYN), segment.has(ACK)) {
            (true, false) => Some(true),
            (true, true) => Some(false),
            (false, _) => None,
        };
        let client_is_second = match source_is_client {
            Some(is_client) => is_second == is_client,
            None => self.server_is_first(key),
        };
        let number = self.counts.connections + self.counts.quic_connections;
        self.counts.connections += 1;
        Flow::new(number, segment.at, client_is_second, source_is_client.is_some(), self.series.silence().count)
    }

    /// Which end of a connection seen from its middle is the server: by address, by port, or the lower port.
    fn server_is_first(&self, key: &Key) -> bool {
        let [first, second] = [key.end(false), key.end(true)];
        let is_configured = [first, second].map(|end| self.spec.servers.contains(&end.ip()));
        if is_configured[0] != is_configured[1] {
            return is_configured[0];
        }
        let ports = self.spec.server_ports.as_deref().unwrap_or(&[]);
        let listens = [first, second].map(|end| ports.contains(&end.port()));
        if listens[0] != listens[1] { listens[0] } else { first.port() <= second.port() }
    }
}

/// Appends without copying if the target is empty.
fn append<T>(from: &mut Vec<T>, into: &mut Vec<T>) {
    if into.is_empty() {
        std::mem::swap(from, into);
    } else {
        into.append(from);
    }
}

#[inline]
fn direction_of(flow: &Flow, is_second: bool) -> Direction {
    if is_second == flow.client_is_second { Direction::Up } else { Direction::Down }
}

const SECOND: u64 = 1_000_000_000;
/// Number of waiting connections beyond which those that no longer wait are removed.
const WAITING_MAX: usize = 1024;
/// Connections examined to find the longest silent one.
const EVICTION_CANDIDATES: usize = 16;
