//! Evidence of a run of load: the load generator's record of each request, joined with its connection's packets at both
//! ends and the configuration of its client's links.
//!
//! A record names its connection, not the socket. The connection is found by its client's address and its opening: the
//! request that opened it called connect before the SYN left and had it established after the SYN-ACK arrived. A
//! request on a persistent connection has the packets between its start and its end. Where several requests of a
//! connection overlap (streams of HTTP/2), the kept frames tell whose bytes are whose; without them such a response has
//! the load's times alone.

mod frames;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use schema::{Direction, RequestRecord};
use units::Timestamp;
use wire::tcp::flags;

use crate::capture::{Connections, Opening};
use crate::evidence::{
    CpuInterval, DataFrame, Evidence, Http2Windows, LoadTimes, Packet, Protocol, Span, TcpSample, WindowUpdate,
};
use crate::fates::{self, ClientLinks};
use crate::quic::{Opened, QuicConnections, QuicResponse};

pub use self::frames::Frames;

/// What a run has besides the load's records.
#[derive(Clone, Copy)]
pub struct RunInputs<'a> {
    /// Packets at the clients' end.
    pub client: Option<&'a Connections>,
    /// Packets at the server's end.
    pub server: Option<&'a Connections>,
    /// Whether connections are missing among the captured packets. Then a connection is attributed only if no other
    /// request can have opened it.
    pub is_sample: bool,
    /// Whether the capture lost packets.
    pub capture_lost_packets: bool,
    /// The client with an address.
    pub client_of: &'a dyn Fn(IpAddr) -> Option<u32>,
    /// The links of each client; empty where they are not known or change during the run.
    pub links: &'a [ClientLinks],
    /// Configured round-trip time of each client, nanoseconds; empty without a path.
    pub rtts_ns: &'a [u64],
    /// Protocol of the load.
    pub protocol: Protocol,
    /// Windows of the load's HTTP/2 streams and connections, bytes.
    pub http2_windows: [u64; 2],
    /// Frames of HTTP/2, if they were kept.
    pub http2_frames: Option<&'a Frames>,
    /// Connections of HTTP/3 at both ends, if they could be decrypted.
    pub quic: Option<&'a QuicConnections>,
    /// TCP_INFO of the server's sockets, if it was sampled.
    pub server_tcp: Option<&'a TcpSamples>,
    /// Times in which the server's processes could not run, in order of their starts and ends; `None`: not known.
    pub server_cpu: Option<&'a [CpuInterval]>,
}

/// Samples of TCP_INFO in order of time, by client and the client's port. A port may have been used again.
pub type TcpSamples = HashMap<(u32, u16), Vec<TcpSample>>;

/// The requests of a run, prepared for [`RunJoin::evidence`]: first [`RunJoin::note`] all, then [`RunJoin::join`].
#[derive(Debug, Default)]
pub struct RunJoin {
    /// By connection: when its requests started and ended.
    in_use: HashMap<u64, Vec<(u64, u64)>>,
    openers: Vec<Opener>,
    sockets: HashMap<u64, Sockets>,
    /// Of HTTP/3, by connection: place among the openings.
    quic: HashMap<u64, usize>,
}

/// A request that opened its connection.
#[derive(Clone, Copy, Debug)]
struct Opener {
    connection: u64,
    client: u32,
    started_at: u64,
    connected_at: u64,
}

impl Opener {
    /// Whether this request may have opened the connection.
    fn may_own(&self, opening: &Opening) -> bool {
        opening.opened_at.as_nanos().saturating_add(CLOCK_TOLERANCE_NS) >= self.started_at
            && opening
                .answered_at
                .is_some_and(|at| at.as_nanos() <= self.connected_at.saturating_add(CLOCK_TOLERANCE_NS))
    }
}

/// A connection's sockets.
#[derive(Clone, Copy, Debug)]
struct Sockets {
    client: SocketAddr,
    server_at_client: SocketAddr,
    server_at_server: Option<SocketAddr>,
}

/// The load's clock and a packet's time differ by at most this, nanoseconds.
const CLOCK_TOLERANCE_NS: u64 = 1_000_000;
/// Between the end of a response and the start of the request that waited for its connection, at most.
const HANDOVER_NS: u64 = 1_000_000;
/// Payload of the first packet after a handshake that may be no response, bytes: session tickets, HTTP/2 settings.
const SMALL_PACKET: u32 = 700;
/// A later packet belongs to something else than the small packet before it, nanoseconds.
const BURST_NS: u64 = 500_000;

impl RunJoin {
    /// No requests.
    pub fn new() -> RunJoin {
        RunJoin::default()
    }

    /// Adds a request of the run, whether it is to be explained or not.
    pub fn note(&mut self, request: &RequestRecord) {
        let (Some(connection), Some(started)) = (request.connection, request.started_at) else { return };
        let (started_at, done_at) = (started.as_nanos(), request.done_at.as_nanos());
        self.in_use.entry(connection).or_default().push((started_at, done_at));
        if let Some(connected) = request.connected_at {
            let connected_at = connected.as_nanos();
            self.openers.push(Opener { connection, client: request.client, started_at, connected_at });
        }
    }

    /// Finds the sockets of the noted connections.
    pub fn join(&mut self, inputs: &RunInputs<'_>) {
        self.in_use.values_mut().for_each(|times| times.sort_unstable());
        self.openers.sort_by_key(|opener| (opener.started_at, opener.connection));
        if let Some(quic) = inputs.quic {
            let place_of =
                quic.openings().iter().enumerate().map(|(place, opened)| (identity(&opening(opened)), place));
            let places: HashMap<_, usize> = place_of.collect();
            for (connection, opening) in self.owned(quic.openings().iter().map(opening), inputs) {
                self.quic.extend(places.get(&identity(&opening)).map(|place| (connection, *place)));
            }
        }
        let Some(capture) = inputs.client else { return };
        let at_server = inputs.server.map(Connections::servers).unwrap_or_default();
        for (connection, opening) in self.owned(capture.openings().into_iter(), inputs) {
            let sockets = Sockets {
                client: opening.client,
                server_at_client: opening.server,
                server_at_server: at_server.get(&opening.client).copied(),
            };
            self.sockets.insert(connection, sockets);
        }
    }

    /// The connection of each opening that one of the noted requests owns. The openings are in order of time.
    fn owned(&self, openings: impl Iterator<Item = Opening>, inputs: &RunInputs<'_>) -> Vec<(u64, Opening)> {
        let mut waiting = HashMap::<u32, VecDeque<Opening>>::new();
        for opening in openings {
            if let Some(client) = (inputs.client_of)(opening.client.ip()) {
                waiting.entry(client).or_default().push_back(opening);
            }
        }
        if inputs.is_sample {
            self.remove_ambiguous(&mut waiting);
        }
        let mut owned = Vec::new();
        for opener in &self.openers {
            let Some(openings) = waiting.get_mut(&opener.client) else { continue };
            // Both are in order of time: what is too early for this request is too early for all later ones.
            while openings.front().is_some_and(|opening| {
                opening.opened_at.as_nanos().saturating_add(CLOCK_TOLERANCE_NS) < opener.started_at
            }) {
                openings.pop_front();
            }
            let own = openings.iter().position(|opening| opener.may_own(opening));
            owned.extend(own.and_then(|place| openings.remove(place)).map(|opening| (opener.connection, opening)));
        }
        owned
    }

    /// Removes the openings that several requests may own: the openings of the others may be missing.
    fn remove_ambiguous(&self, waiting: &mut HashMap<u32, VecDeque<Opening>>) {
        let mut of_client = HashMap::<u32, Vec<Opener>>::new();
        for opener in &self.openers {
            of_client.entry(opener.client).or_default().push(*opener);
        }
        for (client, openings) in waiting.iter_mut() {
            let openers = of_client.get(client).map_or(&[][..], Vec::as_slice);
            openings.retain(|opening| {
                let opened_at = opening.opened_at.as_nanos().saturating_add(CLOCK_TOLERANCE_NS);
                let begun = openers.partition_point(|opener| opener.started_at <= opened_at);
                let recent = openers[..begun].iter().rev().take(OVERLAP_SEARCHED);
                recent.filter(|opener| opener.may_own(opening)).count() == 1
            });
        }
    }

    /// The evidence of a response.
    pub fn evidence(&self, request: &RequestRecord, inputs: &RunInputs<'_>) -> Evidence {
        let mut evidence = Evidence {
            load: self.times(request),
            protocol: Some(inputs.protocol),
            configured_rtt_ns: inputs.rtts_ns.get(request.client as usize).copied(),
            server_cpu: inputs.server_cpu.map(|waits| during(waits, request)),
            ..Evidence::default()
        };
        let Some(started) = request.started_at else { return evidence };
        if inputs.protocol == Protocol::Http3 {
            evidence.quic = self.quic_response(request, inputs).filter(|_| request.attempts == 1);
            let is_whole = evidence.quic.as_ref().is_none_or(|quic| quic.is_whole);
            evidence.capture_lost_packets = inputs.capture_lost_packets || !is_whole;
            return evidence;
        }
        let sockets = request.connection.and_then(|connection| self.sockets.get(&connection));
        let frames = request.connection.and_then(|connection| inputs.http2_frames?.of(connection));
        let is_told_apart = frames.is_some() || !self.is_shared(request);
        let Some(sockets) = sockets.filter(|_| request.attempts == 1 && is_told_apart) else {
            return evidence;
        };
        let packets = |capture: Option<&Connections>, server: Option<SocketAddr>| {
            // A new connection's handshake lies before; it has the windows' scale.
            capture?.packets(sockets.client, server?, request.connected_at.unwrap_or(started), request.done_at)
        };
        evidence.capture_lost_packets = inputs.capture_lost_packets;
        evidence.client_packets = packets(inputs.client, Some(sockets.server_at_client));
        evidence.server_packets = packets(inputs.server, sockets.server_at_server);
        if let (Some(client), Some(server)) = (&evidence.client_packets, &evidence.server_packets)
            && let Some(links) = inputs.links.get(request.client as usize)
        {
            evidence.path = Some(fates::records(client, server, links));
        }
        evidence.server_tcp = inputs.server_tcp.and_then(|all| {
            let samples = all.get(&(request.client, sockets.client.port()))?;
            let opened = request.connected_at.unwrap_or(started);
            sampled(samples, opened, request.done_at)
        });
        if let Some(packets) = &evidence.client_packets {
            let is_first = request.connected_at.is_some();
            let by_frames = frames.and_then(|frames| {
                let first = opening_sequence(packets)?;
                Some((frames.spans(request, first)?, frames.windows(request, inputs.http2_windows)))
            });
            if let Some((spans, windows)) = by_frames {
                (evidence.response, evidence.http2) = (Some(spans), Some(windows));
            } else if self.is_shared(request) {
                (evidence.client_packets, evidence.server_packets, evidence.path) = (None, None, None);
            } else {
                evidence.response = response_span(packets, request, is_first).map(|span| vec![span]);
                if inputs.protocol == Protocol::Http2 {
                    evidence.http2 = Some(windows(packets, request, inputs.http2_windows));
                }
            }
        }
        evidence
    }

    fn quic_response(&self, request: &RequestRecord, inputs: &RunInputs<'_>) -> Option<Arc<QuicResponse>> {
        let opened = inputs.quic?.openings().get(*self.quic.get(&request.connection?)?)?;
        // The handshake's packets are in the connection, whenever they were.
        let from = request.started_at?.as_nanos().saturating_sub(CLOCK_TOLERANCE_NS);
        let done = request.done_at.as_nanos();
        opened.connection.response(u64::from(request.stream?), from, done).map(Arc::new)
    }

    fn times(&self, request: &RequestRecord) -> LoadTimes {
        LoadTimes {
            scheduled_at: request.scheduled_at,
            waited_for_connection: self.waited_for_connection(request),
            started_at: request.started_at,
            resolved_at: None,
            connected_at: request.connected_at,
            secured_at: request.secured_at,
            sent_at: request.sent_at,
            first_byte_at: request.first_byte_at,
            done_at: request.done_at,
        }
    }

    /// Whether the request started on an open connection just after an earlier response on it was complete, and not
    /// when it was scheduled.
    fn waited_for_connection(&self, request: &RequestRecord) -> bool {
        let (Some(connection), Some(started)) = (request.connection, request.started_at) else { return false };
        let started = started.as_nanos();
        if started.saturating_sub(request.scheduled_at.as_nanos()) < HANDOVER_NS || request.connected_at.is_some() {
            return false;
        }
        let times = self.in_use.get(&connection).map_or(&[][..], Vec::as_slice);
        let before = times.partition_point(|(from, _)| *from < started);
        let mut earlier = times[..before].iter().rev().take(OVERLAP_SEARCHED);
        earlier.any(|(_, done)| *done <= started && started - done < HANDOVER_NS)
    }

    /// Whether another request was in flight on the connection.
    fn is_shared(&self, request: &RequestRecord) -> bool {
        let (Some(connection), Some(started)) = (request.connection, request.started_at) else { return false };
        let (started, done) = (started.as_nanos(), request.done_at.as_nanos());
        let times = self.in_use.get(&connection).map_or(&[][..], Vec::as_slice);
        // Requests that began before this one's end; of those, the ones that ended after its start, itself included.
        let begun = times.partition_point(|(from, _)| *from < done);
        let from = begun.saturating_sub(OVERLAP_SEARCHED);
        times[from..begun].iter().filter(|(_, other)| *other > started).count() > 1
    }
}

/// The opening of a connection of QUIC: its first packets in place of SYN and SYN-ACK. Its server is not used.
fn opening(opened: &Opened) -> Opening {
    Opening {
        client: opened.client,
        server: opened.client,
        opened_at: Timestamp::from_nanos(opened.opened_at),
        answered_at: opened.answered_at.map(Timestamp::from_nanos),
    }
}

/// What tells openings apart.
fn identity(opening: &Opening) -> (SocketAddr, Timestamp) {
    (opening.client, opening.opened_at)
}

/// Sequence number of the first byte that the server sent, if its SYN was captured.
fn opening_sequence(packets: &[Packet]) -> Option<u32> {
    let syn = packets.iter().find(|packet| packet.direction == Direction::Down && packet.has(flags::SYN))?;
    Some(syn.sequence.wrapping_add(1))
}

/// The waits of the server that overlap the request.
fn during(waits: &[CpuInterval], request: &RequestRecord) -> Vec<CpuInterval> {
    let first = waits.partition_point(|wait| wait.to <= request.scheduled_at);
    waits[first..].iter().take_while(|wait| wait.from < request.done_at).copied().collect()
}

/// The samples from the last one before `from` to the first one after `to`; `None` without one that is as late as
/// `from`: the connection was not sampled then.
fn sampled(samples: &[TcpSample], from: Timestamp, to: Timestamp) -> Option<Vec<TcpSample>> {
    let first = samples.partition_point(|sample| sample.at <= from).saturating_sub(1);
    let end = (samples.partition_point(|sample| sample.at <= to) + 1).min(samples.len());
    let samples = samples.get(first..end)?;
    samples.last().is_some_and(|last| last.at >= from).then(|| samples.to_vec())
}

/// Requests before another one on its connection of which the overlap is examined: more than a connection has streams.
const OVERLAP_SEARCHED: usize = 1_024;

/// The bytes of the response among the downward packets that arrived between request and end. After a handshake the
/// server may send session tickets or HTTP/2 settings first: a small packet that is followed by nothing, while what
/// follows later is at least the whole response, is not of the response.
fn response_span(packets: &[Packet], request: &RequestRecord, is_first: bool) -> Option<Span> {
    let sent = request.sent_at.or(request.started_at)?;
    let arrivals: Vec<&Packet> = packets
        .iter()
        .filter(|packet| packet.direction == Direction::Down && packet.length > 0)
        .filter(|packet| packet.at > sent && packet.at <= request.done_at)
        .collect();
    let bytes = |arrivals: &[&Packet]| arrivals.iter().map(|packet| u64::from(packet.length)).sum::<u64>();
    let mut from = 0;
    while is_first && from + 1 < arrivals.len() {
        let (small, next) = (arrivals[from], arrivals[from + 1]);
        let is_alone = next.at.nanos_since(small.at).unsigned_abs() > BURST_NS;
        if small.length > SMALL_PACKET || !is_alone || bytes(&arrivals[from + 1..]) < request.bytes_received {
            break;
        }
        from += 1;
    }
    let first = arrivals.get(from)?.sequence;
    let offsets = arrivals[from..].iter().map(|packet| {
        let distance = packet.sequence.wrapping_sub(first).cast_signed();
        i64::from(distance) + i64::from(packet.length)
    });
    let length = u32::try_from(offsets.max()?).ok()?;
    // A hole at the beginning was filled by a packet with an earlier number.
    let earlier = arrivals[from..].iter().map(|packet| packet.sequence.wrapping_sub(first).cast_signed()).min()?;
    let first = first.wrapping_add_signed(earlier);
    Some(Span { first, length: length.saturating_add(earlier.unsigned_abs()) })
}

/// The load's HTTP/2 windows. Its updates are upward packets with payload during the response; each grants what had
/// been received since the one before.
fn windows(packets: &[Packet], request: &RequestRecord, [stream, connection]: [u64; 2]) -> Http2Windows {
    let mut windows = Http2Windows {
        stream: request.stream.unwrap_or(1),
        stream_window: stream,
        connection_window: connection,
        ..Http2Windows::default()
    };
    let Some(first_byte) = request.first_byte_at else { return windows };
    let from = Timestamp::from_nanos(first_byte.as_nanos().saturating_sub(CLOCK_TOLERANCE_NS));
    let mut received = 0;
    for packet in packets.iter().filter(|packet| packet.length > 0 && packet.at >= from) {
        match packet.direction {
            Direction::Down => {
                let bytes = u64::from(packet.length);
                received += bytes;
                windows.frames.push(DataFrame { at: packet.at, stream: windows.stream, bytes });
            }
            Direction::Up if received > 0 => {
                let increment = std::mem::take(&mut received);
                windows.updates.push(WindowUpdate { at: packet.at, stream: windows.stream, increment });
                windows.updates.push(WindowUpdate { at: packet.at, stream: 0, increment });
            }
            Direction::Up => {}
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_sample_a_connection_that_two_requests_may_have_opened_is_not_attributed() {
        let opener = |connection, started_at| Opener {
            connection,
            client: 0,
            started_at,
            connected_at: started_at + 60_000_000,
        };
        let openers = vec![opener(1, 0), opener(2, 500_000), opener(3, 900_000_000)];
        let join = RunJoin { openers, ..RunJoin::new() };
        let opening = |at| Opening {
            client: SocketAddr::from(([10, 0, 0, 1], 1_024)),
            server: SocketAddr::from(([10, 0, 0, 2], 80)),
            opened_at: Timestamp::from_nanos(at),
            answered_at: Some(Timestamp::from_nanos(at + 50_000_000)),
        };
        let mut waiting = HashMap::from([(0, VecDeque::from([opening(600_000), opening(900_100_000)]))]);
        join.remove_ambiguous(&mut waiting);
        assert_eq!(waiting[&0_u32], [opening(900_100_000)]);
    }
}
