//! HTTP/3 on one QUIC connection (RFC 9114): reads the frames of its streams, and pairs requests with responses, which
//! share a stream.
//!
//! Streams are put in order; what the capture lost and nobody sent again leaves a hole, at which the stream stops: its
//! request is recorded as incomplete when the connection ends. Bodies are not stored, apart from pieces behind a hole.
//! A head that refers to entries of the table that are not there yet waits for them.

mod frames;

use std::collections::{BTreeMap, BTreeSet};

use schema::{Direction, Framing};
use wire::quic::varint;

use crate::fields::Fields;
use crate::fields::qpack::{Decoded, Decoder};
use crate::flow::opposite;
use crate::http::exchange::Exchange;
use crate::out::Out;
use crate::work;
use frames::{Event, Frames, Unidirectional};

/// All streams of one connection.
#[derive(Debug)]
pub(crate) struct Http3 {
    /// Requests in flight.
    streams: BTreeMap<u64, Request>,
    /// Streams of control and of compression, each of one direction.
    others: BTreeMap<u64, Unidirectional>,
    /// Decoders of the heads of each direction.
    decoders: [Decoder; 2],
    decoders_held: [usize; 2],
    /// Heads that wait for entries of the table, in the order of their arrival.
    blocked: Vec<(u64, Direction, Vec<u8>)>,
    /// The next stream that the client opens. Lower ones that are not there have ended, but for reordered packets.
    next_stream: u64,
    /// The latest streams that have ended.
    ended: BTreeSet<u64>,
    /// Number of requests seen, for their index.
    requests: u32,
    is_over: bool,
    is_session: bool,
    was_session: bool,
}

/// A request and its stream.
#[derive(Debug)]
struct Request {
    exchange: Exchange,
    sides: [Frames; 2],
    /// Heads that wait for entries of the table.
    blocked: u32,
    /// The client gave up its part.
    is_abandoned: bool,
}

impl Http3 {
    pub(crate) fn new() -> Http3 {
        Http3 {
            streams: BTreeMap::new(),
            others: BTreeMap::new(),
            decoders: [Decoder::new(), Decoder::new()],
            decoders_held: [0; 2],
            blocked: Vec::new(),
            next_stream: 0,
            ended: BTreeSet::new(),
            requests: 0,
            is_over: false,
            is_session: false,
            was_session: false,
        }
    }

    /// Number of requests so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Processes bytes of a stream.
    pub(crate) fn receive(
        &mut self,
        direction: Direction,
        id: u64,
        offset: u64,
        bytes: &[u8],
        ends: bool,
        out: &mut Out<'_>,
    ) {
        if self.is_over {
            return;
        }
        match id & 3 {
            CLIENT_BIDIRECTIONAL => self.receive_request(direction, id, offset, bytes, ends, out),
            CLIENT_UNIDIRECTIONAL if direction == Direction::Up => {
                self.receive_other(direction, id, offset, bytes, out)
            }
            SERVER_UNIDIRECTIONAL if direction == Direction::Down => {
                self.receive_other(direction, id, offset, bytes, out);
            }
            _ => {}
        }
    }

    /// The sender gives up its part of a stream.
    pub(crate) fn reset(&mut self, direction: Direction, id: u64, out: &mut Out<'_>) {
        let Some(request) = self.streams.get_mut(&id) else { return };
        if direction == Direction::Up && !request.exchange.has_response() {
            request.is_abandoned = true;
            return;
        }
        self.record(id, out);
    }

    /// The connection ended: records open requests in their present state, releases all memory.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        if std::mem::replace(&mut self.is_session, false) {
            out.series.session_closed();
        }
        while let Some((&id, _)) = self.streams.first_key_value() {
            self.record(id, out);
        }
        for (_, mut other) in std::mem::take(&mut self.others) {
            other.release(out);
            out.release(OTHER_COST);
        }
        for own in [0, 1] {
            self.decoders[own].forget();
            self.account(own, out);
        }
        self.is_over = true;
    }

    fn receive_request(
        &mut self,
        direction: Direction,
        id: u64,
        offset: u64,
        bytes: &[u8],
        ends: bool,
        out: &mut Out<'_>,
    ) {
        if !self.streams.contains_key(&id) && !self.begin(direction, id, out) {
            return;
        }
        let Some(request) = self.streams.get_mut(&id) else { return };
        let mut events = Vec::new();
        let new = request.sides[direction.index()].receive(offset, bytes, ends, &mut events, out);
        let Some(new) = new else {
            // A piece does not fit, or contradicts the stream: the rest is not read.
            request.exchange.miss_frames();
            return;
        };
        if new > 0 {
            match direction {
                Direction::Up => request.exchange.count_request(new, out.at),
                Direction::Down => {
                    if !request.exchange.has_response_head() {
                        request.exchange.response_began(out.at);
                    }
                    request.exchange.count_response(new, out.at);
                }
            }
        }
        for event in events {
            work::spend(1);
            match event {
                Event::Head(block) => self.head(direction, id, block, out),
                Event::End => self.message_ended(direction, id, out),
            }
        }
    }

    /// A stream begins; false if it has ended before, or there is no memory for it.
    fn begin(&mut self, direction: Direction, id: u64, out: &mut Out<'_>) -> bool {
        // The client opens streams in order, but their packets may be reordered.
        let is_old = id < self.next_stream.saturating_sub(4 * ENDED_MAX as u64);
        if is_old || self.ended.contains(&id) {
            return false;
        }
        if self.streams.len() >= out.limits.streams || !out.hold(STREAM_COST) {
            self.finish(out);
            return false;
        }
        self.next_stream = self.next_stream.max(id + 4);
        let exchange = if direction == Direction::Up {
            if !self.is_session && !self.was_session {
                (self.is_session, self.was_session) = (true, true);
                out.series.session_opened();
            }
            out.series.request_began();
            Exchange::of_request(self.requests, out.at)
        } else {
            Exchange::of_response(self.requests)
        };
        self.requests += u32::from(direction == Direction::Up);
        let request = Request {
            exchange: exchange.on_stream(3, id),
            sides: [Frames::new(), Frames::new()],
            blocked: 0,
            is_abandoned: false,
        };
        self.streams.insert(id, request);
        true
    }

    /// Bytes of a stream of control or compression.
    fn receive_other(&mut self, direction: Direction, id: u64, offset: u64, bytes: &[u8], out: &mut Out<'_>) {
        if !self.others.contains_key(&id) {
            if self.others.len() >= OTHERS_MAX || !out.hold(OTHER_COST) {
                return;
            }
            self.others.insert(id, Unidirectional::default());
        }
        let Some(mut other) = self.others.remove(&id) else { return };
        if other.receive(offset, bytes, out).is_some() {
            match other.kind {
                Some(frames::CONTROL) => {
                    while let Some((kind, content)) = other.frame(out) {
                        self.control(direction, kind, &content, out);
                    }
                }
                Some(frames::ENCODER) => self.instructions(direction, &mut other, out),
                _ => {}
            }
        }
        if self.is_over {
            other.release(out);
            out.release(OTHER_COST);
        } else {
            self.others.insert(id, other);
        }
    }

    /// A frame of a control stream.
    fn control(&mut self, direction: Direction, kind: u64, content: &[u8], out: &mut Out<'_>) {
        let mut rest = content;
        match kind {
            frames::SETTINGS => {
                // Without the setting there is no table (RFC 9204, section 5).
                let mut capacity = 0;
                while let (Some(setting), Some(value)) = (varint(&mut rest), varint(&mut rest)) {
                    work::spend(1);
                    if setting == TABLE_CAPACITY {
                        capacity = value;
                    }
                }
                self.decoders[opposite(direction).index()].permit(capacity);
            }
            frames::GOAWAY if direction == Direction::Down => {
                // Requests from this stream on were not processed and will not be.
                let Some(first) = varint(&mut rest) else { return };
                while let Some((&id, _)) = self.streams.range(first..).next_back() {
                    self.record(id, out);
                }
            }
            _ => {}
        }
    }

    /// Instructions for the table of a direction; heads that have waited for them are decoded.
    fn instructions(&mut self, direction: Direction, stream: &mut Unidirectional, out: &mut Out<'_>) {
        let decoder = &mut self.decoders[direction.index()];
        let inserted = decoder.inserted();
        match decoder.instructions(&stream.buffer) {
            Ok(used) => stream.used(used, out),
            // Both ends close the connection; what follows, if anything, cannot be decoded.
            Err(_) => stream.release(out),
        }
        let has_grown = decoder.inserted() > inserted;
        self.account(direction.index(), out);
        if has_grown && !self.blocked.is_empty() {
            for (id, of, block) in std::mem::take(&mut self.blocked) {
                work::spend(1);
                out.release(block.len() + BLOCKED_COST);
                if let Some(request) = self.streams.get_mut(&id) {
                    request.blocked -= 1;
                    self.head(of, id, block, out);
                    self.record_if_done(id, out);
                }
            }
        }
    }

    /// Reserves the memory that a decoder has taken; forgets its table if there is none.
    fn account(&mut self, own: usize, out: &mut Out<'_>) {
        out.release(self.decoders_held[own]);
        self.decoders_held[own] = self.decoders[own].memory();
        if self.decoders_held[own] > 0 && !out.hold(self.decoders_held[own]) {
            self.decoders[own].forget();
            self.decoders_held[own] = 0;
        }
    }

    /// A complete head, or trailers.
    fn head(&mut self, direction: Direction, id: u64, block: Vec<u8>, out: &mut Out<'_>) {
        let Some(request) = self.streams.get_mut(&id) else { return };
        let fields = match self.decoders[direction.index()].decode(&block) {
            Ok(Decoded::Fields(fields)) => Some(fields),
            Ok(Decoded::Blocked) => {
                let cost = block.len() + BLOCKED_COST;
                if self.blocked.len() < BLOCKED_MAX && out.hold(cost) {
                    request.blocked += 1;
                    self.blocked.push((id, direction, block));
                    return;
                }
                None
            }
            Err(_) => None,
        };
        let unknown = fields.as_ref().map_or(1, |fields| fields.unknown);
        out.reading.undecoded_heads += u64::from(unknown > 0);
        note_head(direction, &mut request.exchange, fields.as_ref(), out);
    }

    fn message_ended(&mut self, direction: Direction, id: u64, out: &mut Out<'_>) {
        let Some(request) = self.streams.get_mut(&id) else { return };
        match direction {
            Direction::Up => request.exchange.request_ended(Framing::Exact),
            Direction::Down => request.exchange.response_ended(Framing::Exact, out),
        }
        self.record_if_done(id, out);
    }

    fn record_if_done(&mut self, id: u64, out: &mut Out<'_>) {
        let Some(request) = self.streams.get(&id) else { return };
        let exchange = &request.exchange;
        let is_done = exchange.is_done() || request.is_abandoned && exchange.has_response();
        if is_done && request.blocked == 0 {
            self.record(id, out);
        }
    }

    fn record(&mut self, id: u64, out: &mut Out<'_>) {
        let Some(mut request) = self.streams.remove(&id) else { return };
        if request.blocked > 0 {
            out.reading.undecoded_heads += 1;
            request.exchange.miss_frames();
            let (own, others) = std::mem::take(&mut self.blocked).into_iter().partition(|(of, ..)| *of == id);
            let own: Vec<(u64, Direction, Vec<u8>)> = own;
            out.release(own.iter().map(|(_, _, block)| block.len() + BLOCKED_COST).sum());
            self.blocked = others;
        }
        request.sides.iter_mut().for_each(|side| side.release(out));
        out.release(STREAM_COST);
        request.exchange.record(out);
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_first();
        }
        self.ended.insert(id);
    }
}

/// Records a head, or skips trailers. `fields` are `None` if they could not be decoded.
fn note_head(direction: Direction, exchange: &mut Exchange, fields: Option<&Fields>, out: &mut Out<'_>) {
    let Some(fields) = fields else { return exchange.miss_frames() };
    match direction {
        Direction::Up if exchange.lacks_head() => exchange.note_fields(fields, out.stored_words()),
        Direction::Down if exchange.lacks_status() => {
            exchange.note_unknown(fields.unknown);
            // The final head may come with the interim one, before which the response began.
            if let Some(status) = fields.status
                && !exchange.note_status(status)
                && !exchange.has_response_head()
            {
                exchange.response_began(out.at);
            }
        }
        _ => {}
    }
}

/// The setting with the capacity of the table.
const TABLE_CAPACITY: u64 = 1;
/// Memory of a stream in the tree, with its share of a node.
const STREAM_COST: usize = 2 * size_of::<Request>();
const OTHER_COST: usize = 2 * size_of::<Unidirectional>();
const BLOCKED_COST: usize = 64;
/// Streams of control and compression: each side has three.
const OTHERS_MAX: usize = 32;
/// Heads that wait. More than a decoder permits by any default.
const BLOCKED_MAX: usize = 256;
/// Ended streams that are remembered, so that late packets do not begin them again.
const ENDED_MAX: usize = 256;
const CLIENT_BIDIRECTIONAL: u64 = 0;
const CLIENT_UNIDIRECTIONAL: u64 = 2;
const SERVER_UNIDIRECTIONAL: u64 = 3;

#[cfg(test)]
mod tests;
