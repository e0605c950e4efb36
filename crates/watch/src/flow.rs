//! One connection: its handshake, both directions, its stream, and its end.

use std::net::SocketAddr;
use std::sync::Arc;

use schema::{ConnectionRecord, Direction, RecordEnd};
use units::Timestamp;
use wire::tcp::flags::{ACK, RST, SYN};

use crate::out::Out;
use crate::series::Silence;
use crate::spec::CapturePoint;
use crate::stream::{Feed, Stream};
use crate::tcp::Segment;
use crate::tcp::half::{Half, NEVER};
use crate::tcp::state::Endpoints;
use crate::waiting::Waiting;

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Sequence number in the capture.
    pub(crate) number: u64,
    /// Latest capture time of a packet of this connection: never decreases.
    pub(crate) last_packet_at: u64,
    /// Latest capture time when it closed; [`NEVER`] before.
    pub(crate) over_at: u64,
    /// Whether the client is the second end of the key.
    pub(crate) client_is_second: bool,
    roles_seen: bool,
    is_in_process: bool,
    endpoints: Endpoints,
    halves: [Half; 2],
    stream: Stream,
    first_at: u64,
    last_at: u64,
    first_data_at: u64,
    last_data_at: u64,
    syn_at: u64,
    syn_ack_at: u64,
    ack_at: u64,
    closed_at: u64,
    /// Latest packet until both ends had sent FIN or RST.
    open_until: u64,
    fragments: u32,
    /// Number of silences of the capture up to its last packet.
    pub(crate) silences: u32,
    /// Packets that wait for a packet that they acknowledge.
    pub(crate) waiting: Option<Box<Waiting>>,
    /// Few connections have a server name: in a box, which takes half the memory here.
    server_name: Option<Box<Arc<[u8]>>>,
}

impl Flow {
    /// A connection whose first packet arrived at `at`.
    pub(crate) fn new(number: u64, at: u64, client_is_second: bool, roles_seen: bool, silences: u32) -> Flow {
        Flow {
            number,
            last_packet_at: at,
            over_at: NEVER,
            client_is_second,
            roles_seen,
            is_in_process: false,
            endpoints: Endpoints::default(),
            halves: [Half::new(), Half::new()],
            stream: Stream::Unknown { is_fresh: false },
            first_at: at,
            last_at: at,
            first_data_at: NEVER,
            last_data_at: NEVER,
            syn_at: NEVER,
            syn_ack_at: NEVER,
            ack_at: NEVER,
            closed_at: NEVER,
            open_until: at,
            fragments: 0,
            silences,
            waiting: None,
            server_name: None,
        }
    }

    /// Whether a segment with SYN begins another connection between the same ends: its sequence number differs from
    /// that of the recorded SYN, and it is not the other half of a simultaneous open. A SYN that a host would only
    /// challenge (RFC 5961) counts as a new connection, too: an observer cannot distinguish the cases.
    pub(crate) fn is_replaced_by(&self, direction: Direction, segment: &Segment<'_>) -> bool {
        if !segment.has(SYN) || segment.has(RST) {
            return false;
        }
        let (own, peer) = (&self.halves[direction.index()], opposite(direction));
        match own.syn_sequence() {
            Some(sequence) if sequence == segment.sequence => false,
            _ if self.over_at != NEVER => true,
            Some(_) => !segment.has(ACK),
            None => !segment.has(ACK) && !self.endpoints.awaits_syn_response(peer),
        }
    }

    /// Whether a segment must wait: it acknowledges a packet that was not seen yet, or waits behind others, or ends
    /// their wait.
    #[inline]
    pub(crate) fn must_wait(&self, direction: Direction, segment: &Segment<'_>) -> bool {
        self.waiting.is_some() || self.acknowledges_unseen(direction, segment)
    }

    /// Whether a segment acknowledges bytes, or a SYN-ACK, that were not seen.
    #[inline]
    pub(crate) fn acknowledges_unseen(&self, direction: Direction, segment: &Segment<'_>) -> bool {
        if segment.flags & (ACK | RST | SYN) != ACK {
            return false;
        }
        let (own, peer) = (&self.halves[direction.index()], &self.halves[opposite(direction).index()]);
        if peer.is_started() {
            peer.is_behind(segment.acknowledgement)
        } else {
            own.syns() > 0 && self.over_at == NEVER
        }
    }

    /// Whether the other side has requested, since `at`, a retransmission of a segment of `direction`.
    pub(crate) fn was_retransmission_requested(&self, direction: Direction, at: u64) -> bool {
        self.halves[opposite(direction).index()].has_sacked_since(at)
    }

    /// The first segment after a silence of the capture. Returns whether the connection continues in a way that
    /// contradicts that silence: the sender's clock did not advance, or, if the clock is unknown, data in flight was
    /// acknowledged without a retransmission.
    #[cold]
    pub(crate) fn contradicts_silence(
        &mut self,
        silence: Silence,
        direction: Direction,
        segment: &Segment<'_>,
    ) -> bool {
        self.silences = silence.count;
        if !self.is_in_process || segment.has(RST) || segment.flags & (SYN | ACK) == SYN {
            return false;
        }
        let (own, peer) = (&self.halves[direction.index()], &self.halves[opposite(direction).index()]);
        match own.contradicts(segment, silence.length_ns) {
            Some(contradicts) => contradicts,
            None if segment.has(ACK) && peer.is_answered_by(segment.acknowledgement) => true,
            None => silence.length_ns >= UNUSUAL_IDLE_NS,
        }
    }

    /// Processes a segment. True when the connection has just closed.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        direction: Direction,
        segment: &Segment<'_>,
        capture_point: CapturePoint,
        is_fragment: bool,
        out: &mut Out<'_>,
    ) -> bool {
        let at = segment.at;
        self.last_packet_at = out.series.clock();
        (self.first_at, self.last_at) = (self.first_at.min(at), self.last_at.max(at));
        self.fragments = self.fragments.saturating_add(u32::from(is_fragment));
        if segment.length > 0 {
            self.last_data_at = at;
            self.first_data_at = self.first_data_at.min(at);
            out.series.row.data_packets += 1;
        }
        if !self.is_in_process && self.over_at == NEVER && (segment.length > 0 || segment.has(SYN)) {
            self.is_in_process = true;
            out.series.connection_opened();
        }
        if !self.endpoints.both_have_closed() {
            self.open_until = self.open_until.max(at);
        }
        self.endpoints.packet(direction, segment.flags, segment.length > 0);
        if segment.has(SYN) {
            self.note_syn(direction, segment, out);
        }
        if segment.flags & (ACK | RST) == ACK {
            let peer = opposite(direction);
            let (half, mut feed) = self.half(peer, out);
            let limits = feed.out.limits;
            let missing = half.acknowledge(segment, limits, &mut feed);
            out.series.row.missing_bytes += missing;
            if self.ack_at == NEVER && direction == Direction::Up && !segment.has(SYN) {
                self.note_handshake(at, capture_point, out);
            }
        }
        let (half, mut feed) = self.half(direction, out);
        let limits = feed.out.limits;
        let receipt = half.receive(segment, limits, &mut feed);
        if !segment.options.sack().is_empty() {
            half.note_sack(segment);
        }
        out.series.row.retransmitted_packets += u64::from(receipt.is_retransmitted);
        if self.over_at == NEVER && self.endpoints.is_over() {
            self.close(segment, out);
            return true;
        }
        false
    }

    /// The record in its present state, and the end of open messages: releases all held memory. `key_ends` are the ends
    /// of the key, in its order.
    pub(crate) fn record(&mut self, key_ends: [SocketAddr; 2], end: RecordEnd, out: &mut Out<'_>) -> ConnectionRecord {
        self.close_in_series(out);
        self.stream.finish(out);
        for direction in Direction::BOTH {
            let (half, mut feed) = self.half(direction, out);
            half.release(&mut feed);
        }
        let [up, down] = self.halves.each_mut().map(|half| (half.has_payload(), half.take_sent()));
        let timestamp = |at: u64| (at != NEVER).then_some(Timestamp::from_nanos(at));
        let (client_side, server_side) = self.handshake_rtts();
        ConnectionRecord {
            connection: self.number,
            client: key_ends[usize::from(self.client_is_second)],
            client_index: None,
            server: key_ends[usize::from(!self.client_is_second)],
            roles_seen: self.roles_seen,
            syn_at: timestamp(self.syn_at),
            syn_ack_at: timestamp(self.syn_ack_at),
            ack_at: timestamp(self.ack_at),
            handshake_rtt_ns: client_side,
            server_rtt_ns: server_side,
            first_at: Timestamp::from_nanos(self.first_at),
            last_at: Timestamp::from_nanos(self.last_at),
            first_data_at: timestamp(self.first_data_at),
            last_data_at: timestamp(self.last_data_at),
            closed_at: timestamp(self.closed_at),
            open_until: Timestamp::from_nanos(self.open_until),
            state: self.endpoints.name(up.0 || down.0),
            end,
            up: up.1,
            down: down.1,
            fragments: self.fragments,
            requests: self.stream.requests(),
            server_name: self.server_name.take().map(|name| *name),
        }
    }

    fn note_syn(&mut self, direction: Direction, segment: &Segment<'_>, out: &mut Out<'_>) {
        match (direction, segment.has(ACK)) {
            (Direction::Up, false) if self.syn_at == NEVER => {
                self.syn_at = segment.at;
                if self.syn_ack_at != NEVER && self.syn_ack_at < segment.at {
                    out.reading.early_acks.note(out.packet, segment.at - self.syn_ack_at);
                }
                out.series.row.connections_opened += 1;
                self.stream.starts(self.first_data_at == NEVER || segment.length > 0);
            }
            (Direction::Down, true) if self.syn_ack_at == NEVER => {
                self.syn_ack_at = segment.at;
                self.stream.starts(self.first_data_at == NEVER);
            }
            _ => {}
        }
    }

    fn note_handshake(&mut self, at: u64, capture_point: CapturePoint, out: &mut Out<'_>) {
        if self.syn_ack_at == NEVER || !self.halves[Direction::Down.index()].is_syn_acknowledged() {
            return;
        }
        self.ack_at = at;
        let (client_side, server_side) = self.handshake_rtts();
        if let Some(rtt) = capture_point.handshake_rtt_ns(client_side, server_side) {
            out.series.handshake(rtt);
        }
    }

    /// ACK - SYN-ACK and SYN-ACK - SYN. Karn's algorithm: after a retransmission it is unknown which packet was
    /// acknowledged.
    fn handshake_rtts(&self) -> (Option<u64>, Option<u64>) {
        // A packet with a time before the packet that it acknowledges gives no RTT.
        let between = |from: u64, to: u64| (from != NEVER && to != NEVER).then(|| to.checked_sub(from)).flatten();
        let once = |direction: Direction| self.halves[direction.index()].syns() == 1;
        (
            between(self.syn_ack_at, self.ack_at).filter(|_| once(Direction::Down)),
            between(self.syn_at, self.syn_ack_at).filter(|_| once(Direction::Up)),
        )
    }

    fn close(&mut self, segment: &Segment<'_>, out: &mut Out<'_>) {
        self.closed_at = segment.at;
        self.over_at = out.series.clock();
        self.close_in_series(out);
        // With FINs from both sides and a hole below one of them, the rest may still arrive.
        if segment.has(RST) || self.halves.iter().all(Half::has_ended) {
            self.stream.finish(out);
        }
    }

    fn close_in_series(&mut self, out: &mut Out<'_>) {
        if std::mem::replace(&mut self.is_in_process, false) {
            out.series.connection_closed();
        }
        self.stream.close_session(out);
    }

    fn half<'a, 'b>(&'a mut self, direction: Direction, out: &'a mut Out<'b>) -> (&'a mut Half, Feed<'a, 'b>) {
        let feed = Feed { stream: &mut self.stream, server_name: &mut self.server_name, direction, out };
        (&mut self.halves[direction.index()], feed)
    }
}

/// Unusual idle time of an open connection: servers wait a minute or two for the next request.
const UNUSUAL_IDLE_NS: u64 = 300_000_000_000;

pub(crate) fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}
