//! HTTP/2 on one connection (RFC 9113): reads the frames of both directions, and pairs requests with responses by
//! stream.
//!
//! Bodies are skipped by the lengths of their frames and never stored; a head is stored until its last frame, then
//! decoded ([`crate::fields::hpack`]). If a frame's header or a head was not captured, the direction is *lost*: frames
//! are searched at the start of each later segment ([`frame::are_frames`]), and fields that refer to the unknown part
//! of the table stay unknown. Messages that were open then are marked ([`schema::Framing::FramesMissing`]).
//!
//! ```text
//!   up   --> frames --> request begins, ends  --\
//!                                                exchanges by stream --> WireRequest
//!   down --> frames --> response begins, ends --/
//! ```

mod frame;
mod side;

use std::collections::BTreeMap;

use schema::{Direction, Framing};

use crate::fields::{Fields, Malformed};
use crate::http::Upgrade;
use crate::http::exchange::Exchange;
use crate::out::Out;
use crate::work;
use frame::{Frame, HEADER};
use side::{Block, Position, Side};

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    /// Indexed by [`Direction::index`].
    sides: [Side; 2],
    /// Requests in flight.
    streams: BTreeMap<u32, Exchange>,
    /// The highest stream that the client opened.
    last_stream: u32,
    /// Requests may have been missed: the capture began later, or lost bytes of the client.
    has_unseen: bool,
    /// Streams that were reset: their frames may still arrive.
    resets: [u32; RESETS],
    next_reset: usize,
    /// Number of requests seen, for their index.
    requests: u32,
    is_opaque: bool,
    /// Whether the series counts it as an HTTP session, now and in total.
    is_session: bool,
    was_session: bool,
}

/// Whether `bytes`, the first of a client, may begin the preface of HTTP/2.
pub(crate) fn may_be_preface(bytes: &[u8]) -> bool {
    let length = bytes.len().min(PREFACE.len());
    length >= PREFACE_DECISIVE && bytes[..length] == PREFACE[..length]
}

/// Whether `bytes`, the first of a server that sends before its client, may be HTTP/2.
pub(crate) fn may_be_server(bytes: &[u8]) -> bool {
    frame::may_be_settings(bytes)
}

/// Whether a segment from the middle of a connection consists of frames.
pub(crate) fn are_frames(direction: Direction, bytes: &[u8], length: u64) -> bool {
    frame::are_frames(direction, bytes, length)
}

impl Http2 {
    /// A connection seen from its start, or (`is_fresh` false) one whose position is unknown.
    pub(crate) fn new(is_fresh: bool) -> Http2 {
        let positions =
            if is_fresh { [Position::Preface(0), Position::Header] } else { [Position::Lost, Position::Lost] };
        Http2 {
            sides: positions.map(Side::new),
            streams: BTreeMap::new(),
            last_stream: 0,
            has_unseen: !is_fresh,
            resets: [0; RESETS],
            next_reset: 0,
            requests: 0,
            is_opaque: false,
            is_session: false,
            was_session: false,
        }
    }

    /// A connection that switched from HTTP/1: the response to its request comes on stream 1.
    pub(crate) fn of_upgrade(upgrade: Upgrade, out: &mut Out<'_>) -> Http2 {
        let mut http = Http2 { requests: upgrade.requests, last_stream: 1, ..Http2::new(true) };
        (http.is_session, http.was_session) = (upgrade.is_session, true);
        if out.hold(STREAM_COST) {
            http.streams.insert(1, upgrade.exchange);
        } else {
            upgrade.exchange.record(out);
        }
        http
    }

    /// Number of requests so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Whether the rest of the stream is not read.
    pub(crate) fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Number of the next bytes of `direction` that are skipped by length.
    pub(crate) fn skipped_bytes(&self, direction: Direction) -> u64 {
        match self.sides[direction.index()].position {
            Position::Skip(left) => left.into(),
            _ => 0,
        }
    }

    /// Processes the next `length` bytes of a direction, of which only `bytes` were captured.
    pub(crate) fn receive(&mut self, direction: Direction, mut bytes: &[u8], mut length: u64, out: &mut Out<'_>) {
        let side = &mut self.sides[direction.index()];
        if side.position == Position::Lost && frame::are_frames(direction, bytes, length) {
            side.position = Position::Header;
        }
        while length > 0 && !self.is_opaque {
            work::spend(1);
            let used = self.step(direction, bytes, length, out);
            bytes = bytes.get(used as usize..).unwrap_or(&[]);
            length -= used;
        }
    }

    /// The connection closed.
    pub(crate) fn close_session(&mut self, out: &mut Out<'_>) {
        if std::mem::replace(&mut self.is_session, false) {
            out.series.session_closed();
        }
    }

    /// The stream ended: records open exchanges in their present state.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        for side in &mut self.sides {
            side.release(out);
        }
        for (_, exchange) in std::mem::take(&mut self.streams) {
            out.release(STREAM_COST);
            exchange.record(out);
        }
        self.is_opaque = true;
    }

    /// Advances; returns the number of bytes. Zero bytes only with another position than before.
    fn step(&mut self, direction: Direction, bytes: &[u8], length: u64, out: &mut Out<'_>) -> u64 {
        let side = &mut self.sides[direction.index()];
        match side.position {
            Position::Lost => length,
            Position::Skip(left) => {
                let used = length.min(left.into());
                let (left, frame) = (left - used as u32, side.frame);
                side.position = Position::Skip(left);
                self.count(direction, frame, used, out);
                if left == 0 {
                    self.frame_ended(direction, out);
                }
                used
            }
            // Necessary bytes were not captured.
            _ if bytes.is_empty() => {
                self.lose(direction, out);
                0
            }
            Position::Preface(at) => {
                let used = bytes.len().min(PREFACE.len() - at);
                if bytes[..used] != PREFACE[at..at + used] {
                    self.finish(out);
                } else if at + used == PREFACE.len() {
                    side.position = Position::Header;
                } else {
                    side.position = Position::Preface(at + used);
                }
                used as u64
            }
            Position::Header => {
                if side.header_length == 0 {
                    side.frame_at = out.at;
                }
                let used = bytes.len().min(HEADER - side.header_length);
                side.header[side.header_length..][..used].copy_from_slice(&bytes[..used]);
                side.header_length += used;
                if side.header_length == HEADER {
                    side.header_length = 0;
                    side.frame = Frame::parse(&side.header);
                    self.frame_began(direction, out);
                }
                used as u64
            }
            Position::Content(left) => self.read_content(direction, left, bytes, out),
        }
    }

    /// Reads content of which `left` bytes are still to come: in place if it is here as a whole.
    fn read_content(&mut self, direction: Direction, left: u32, bytes: &[u8], out: &mut Out<'_>) -> u64 {
        let side = &mut self.sides[direction.index()];
        let frame = side.frame;
        let used = bytes.len().min(left as usize);
        self.count(direction, frame, used as u64, out);
        let side = &mut self.sides[direction.index()];
        if used == left as usize && side.content.is_empty() {
            self.content_ended(direction, &bytes[..used], out);
            return used as u64;
        }
        work::spend(used);
        if !side.store(&bytes[..used], out) {
            self.lose(direction, out);
        } else if used == left as usize {
            let content = side.take_content(out);
            self.content_ended(direction, &content, out);
        } else {
            side.position = Position::Content(left - used as u32);
        }
        used as u64
    }

    /// A frame's header is complete.
    fn frame_began(&mut self, direction: Direction, out: &mut Out<'_>) {
        let side = &mut self.sides[direction.index()];
        let frame = side.frame;
        // RFC 9113, section 6.10: between the frames of a head there are no others.
        let is_in_order = match &side.block {
            Some(block) => frame.kind == frame::CONTINUATION && frame.stream == block.stream,
            None => frame.kind != frame::CONTINUATION,
        };
        if !frame.is_valid() || !is_in_order {
            return self.lose(direction, out);
        }
        side.position = if frame.is_read() { Position::Content(frame.length) } else { Position::Skip(frame.length) };
        if frame.kind == frame::HEADERS {
            self.head_began(direction, frame.stream, out);
        }
        self.count(direction, frame, HEADER as u64, out);
        if frame.length == 0 && !self.is_opaque {
            self.frame_ended(direction, out);
        }
    }

    /// A frame of which nothing is left: its content was skipped, or it has none.
    fn frame_ended(&mut self, direction: Direction, out: &mut Out<'_>) {
        let side = &mut self.sides[direction.index()];
        let frame = side.frame;
        side.position = Position::Header;
        if frame.is_read() {
            return self.content_ended(direction, &[], out);
        }
        if frame.kind == frame::DATA && frame.has(frame::END_STREAM) {
            self.message_ended(direction, frame.stream, out);
        }
    }

    /// The content of a frame that is read is complete.
    fn content_ended(&mut self, direction: Direction, content: &[u8], out: &mut Out<'_>) {
        let side = &mut self.sides[direction.index()];
        let frame = side.frame;
        side.position = Position::Header;
        match frame.kind {
            frame::HEADERS | frame::PUSH_PROMISE => {
                let Some(block) = frame.block(content) else { return self.lose(direction, out) };
                let is_promise = frame.kind == frame::PUSH_PROMISE;
                let ends_stream = !is_promise && frame.has(frame::END_STREAM);
                if frame.has(frame::END_HEADERS) {
                    return self.head_ended(direction, frame.stream, block, ends_stream, is_promise, out);
                }
                if block.len() > out.limits.held_per_direction || !out.hold(block.len()) {
                    return self.lose(direction, out);
                }
                side.block = Some(Block { stream: frame.stream, ends_stream, is_promise, bytes: block.to_vec() });
            }
            frame::CONTINUATION => {
                let Some(mut block) = side.block.take() else { return };
                let before = block.bytes.len();
                if before + content.len() > out.limits.held_per_direction || !out.hold(content.len()) {
                    side.block = Some(block);
                    return self.lose(direction, out);
                }
                work::spend(content.len());
                block.bytes.extend_from_slice(content);
                if !frame.has(frame::END_HEADERS) {
                    side.block = Some(block);
                    return;
                }
                out.release(block.bytes.len());
                self.head_ended(direction, block.stream, &block.bytes, block.ends_stream, block.is_promise, out);
            }
            frame::RST_STREAM => self.reset(frame.stream, out),
            frame::GOAWAY => {
                if direction == Direction::Down
                    && let Some(last) = content.first_chunk()
                {
                    // The server has not processed later streams and will not (RFC 9113, section 6.8).
                    let last = u32::from_be_bytes(*last) & (u32::MAX >> 1);
                    while let Some((&stream, _)) = self.streams.range(last.saturating_add(1)..).next_back() {
                        self.reset(stream, out);
                    }
                }
            }
            _ => {}
        }
    }

    /// The first frame of a head, or of trailers.
    fn head_began(&mut self, direction: Direction, stream: u32, out: &mut Out<'_>) {
        let at = self.sides[direction.index()].frame_at;
        match direction {
            Direction::Up => {
                // Streams that a server opens are promised. A lower one is closed, and this its trailers.
                if stream.is_multiple_of(2) || stream <= self.last_stream {
                    return;
                }
                self.last_stream = stream;
                if self.streams.len() >= out.limits.streams || !out.hold(STREAM_COST) {
                    return self.finish(out);
                }
                self.open_session(out);
                out.series.request_began();
                self.streams.insert(stream, Exchange::of_request(self.requests, at).on_stream(2, stream.into()));
                self.requests += 1;
            }
            Direction::Down => {
                if !self.streams.contains_key(&stream) && self.is_unseen(stream) && out.hold(STREAM_COST) {
                    let exchange = Exchange::of_response(self.requests).on_stream(2, stream.into());
                    self.streams.insert(stream, exchange);
                }
                if let Some(exchange) = self.streams.get_mut(&stream)
                    && !exchange.has_response_head()
                {
                    exchange.response_began(at);
                }
            }
        }
    }

    /// Whether a response on a stream that is not open belongs to a request that was not seen.
    fn is_unseen(&self, stream: u32) -> bool {
        let is_new = self.has_unseen && !stream.is_multiple_of(2) && !self.resets.contains(&stream);
        is_new && self.streams.len() < RESPONSES_MAX
    }

    /// A head, or trailers, are complete.
    fn head_ended(
        &mut self,
        direction: Direction,
        stream: u32,
        block: &[u8],
        ends_stream: bool,
        is_promise: bool,
        out: &mut Out<'_>,
    ) {
        let side = &mut self.sides[direction.index()];
        let fields = side.decoder.decode(block);
        side.account(out);
        if is_promise {
            return;
        }
        if let Some(exchange) = self.streams.get_mut(&stream) {
            let unknown = fields.as_ref().map_or(1, |fields| fields.unknown);
            out.reading.undecoded_heads += u64::from(unknown > 0);
            note_head(direction, exchange, &fields, out);
        }
        if ends_stream {
            self.message_ended(direction, stream, out);
        }
        if fields.is_err() {
            // Both ends close the connection; what follows, if anything, cannot be decoded.
            self.lose(direction, out);
        }
    }

    fn message_ended(&mut self, direction: Direction, stream: u32, out: &mut Out<'_>) {
        let Some(exchange) = self.streams.get_mut(&stream) else { return };
        match direction {
            Direction::Up => exchange.request_ended(Framing::Exact),
            Direction::Down if exchange.has_response() => {}
            Direction::Down => exchange.response_ended(Framing::Exact, out),
        }
        if exchange.is_done() {
            self.record(stream, out);
        }
    }

    /// The stream was closed before its end.
    fn reset(&mut self, stream: u32, out: &mut Out<'_>) {
        if self.streams.contains_key(&stream) {
            self.resets[self.next_reset % RESETS] = stream;
            self.next_reset += 1;
            self.record(stream, out);
        }
    }

    fn record(&mut self, stream: u32, out: &mut Out<'_>) {
        if let Some(exchange) = self.streams.remove(&stream) {
            out.release(STREAM_COST);
            exchange.record(out);
        }
    }

    /// Counts bytes of a message.
    fn count(&mut self, direction: Direction, frame: Frame, bytes: u64, out: &Out<'_>) {
        if !frame.is_of_message() {
            return;
        }
        let Some(exchange) = self.streams.get_mut(&frame.stream) else { return };
        match direction {
            Direction::Up => exchange.count_request(bytes, out.at),
            Direction::Down => exchange.count_response(bytes, out.at),
        }
    }

    /// Marks the position of a direction as unknown, and so the parts of its open messages.
    fn lose(&mut self, direction: Direction, out: &mut Out<'_>) {
        self.sides[direction.index()].lose(out);
        self.has_unseen |= direction == Direction::Up;
        work::spend(self.streams.len());
        for exchange in self.streams.values_mut() {
            exchange.miss_frames();
        }
    }

    fn open_session(&mut self, out: &mut Out<'_>) {
        if !self.is_session && !self.was_session {
            (self.is_session, self.was_session) = (true, true);
            out.series.session_opened();
        }
    }
}

/// Records a head, or skips trailers.
fn note_head(direction: Direction, exchange: &mut Exchange, fields: &Result<Fields, Malformed>, out: &mut Out<'_>) {
    let Ok(fields) = fields else { return exchange.miss_frames() };
    match direction {
        Direction::Up if exchange.lacks_head() => {
            exchange.note_fields(fields, out.stored_words());
        }
        Direction::Down if exchange.lacks_status() => {
            exchange.note_unknown(fields.unknown);
            if let Some(status) = fields.status {
                exchange.note_status(status);
            }
        }
        _ => {}
    }
}

/// The client's first bytes (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// No method of HTTP/1 begins with these.
const PREFACE_DECISIVE: usize = 3;
/// Memory of a stream in the tree, with its share of a node.
const STREAM_COST: usize = 2 * size_of::<Exchange>();
/// Most streams at which a response to an unseen request opens another.
const RESPONSES_MAX: usize = 128;
const RESETS: usize = 8;
