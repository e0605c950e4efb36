//! HTTP/1 on one connection: frames the messages of both directions, and pairs requests with responses in order.
//!
//! Bodies are skipped by length and never stored; a head in several segments is stored until its end. If a head cannot
//! be read in full, the direction is *lost*: its message lasts until the other side sends, and the next message is
//! searched when this side sends again. Everything found this way is marked ([`Framing::ByDirection`]).
//!
//! ```text
//!   up   --> framing --> request begins, ends  --\
//!                                                 queue of exchanges --> WireRequest
//!   down --> framing --> response begins, ends --/
//! ```

pub(crate) mod exchange;
mod framing;
mod head;
mod reader;
mod resynchronize;
mod upgrade;

use std::collections::VecDeque;

use schema::{Direction, Framing};

use crate::out::Out;
use crate::work;
use exchange::Exchange;
use framing::Stage;
use head::{Head, RequestHead, ResponseHead, may_be};
use http1::{Body, Chunked, RequestMethod, Step};
use reader::Reader;
pub(crate) use upgrade::Upgrade;

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Http {
    up: Reader,
    down: Reader,
    queue: VecDeque<Exchange>,
    /// The direction of the last data.
    last: Option<Direction>,
    /// Number of requests seen, for their index.
    requests: u32,
    /// The protocol was switched: the rest of the stream is not HTTP.
    is_opaque: bool,
    /// Whether the series counts it as an HTTP session, now and in total.
    is_session: bool,
    was_session: bool,
    /// The request that was answered by a switch to HTTP/2.
    upgraded: Option<Box<Exchange>>,
}

/// Whether `bytes`, the first of a client's stream, may be HTTP/1.
pub(crate) fn may_be_request(bytes: &[u8]) -> bool {
    head::may_be_request(bytes)
}

/// Whether `bytes`, the first of a server's stream, may be HTTP/1.
pub(crate) fn may_be_response(bytes: &[u8]) -> bool {
    head::may_be_response(bytes)
}

impl Http {
    /// A connection seen from its start, or (`is_fresh` false) one whose position is unknown.
    pub(crate) fn new(is_fresh: bool) -> Http {
        Http {
            up: Reader::new(is_fresh),
            down: Reader::new(is_fresh),
            queue: VecDeque::new(),
            last: None,
            requests: 0,
            is_opaque: false,
            is_session: false,
            was_session: false,
            upgraded: None,
        }
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
        self.reader(direction).stage.skipped_bytes()
    }

    /// Processes the next `length` bytes of a direction, of which only `bytes` were captured. Returns the number of the
    /// last of them that it did not read, because the connection switched to another protocol.
    pub(crate) fn receive(
        &mut self,
        direction: Direction,
        mut bytes: &[u8],
        mut length: u64,
        out: &mut Out<'_>,
    ) -> u64 {
        let has_turned = self.last != Some(direction);
        self.last = Some(direction);
        if has_turned && self.reader(direction).stage == Stage::Lost {
            self.look_for_start(direction, bytes, out);
        }
        while length > 0 && !self.is_opaque {
            work::spend(1);
            let used = self.step(direction, bytes, length, out);
            bytes = bytes.get(used as usize..).unwrap_or(&[]);
            length -= used;
        }
        length
    }

    /// A direction ended with a FIN.
    pub(crate) fn end(&mut self, direction: Direction, out: &mut Out<'_>) {
        if direction == Direction::Down
            && matches!(self.down.stage, Stage::UntilClose | Stage::Lost)
            && self.down.is_open
        {
            self.message_ended(direction, out);
        }
        if direction == Direction::Up && self.up.stage == Stage::Lost && self.up.is_open {
            self.message_ended(direction, out);
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
        for direction in Direction::BOTH {
            let held = self.reader_mut(direction).take_held();
            self.reader_mut(direction).is_open = false;
            out.release(held.len());
            if !held.is_empty() {
                // A head without an end: its first line may be complete.
                self.head_cut(direction, &held, out);
            }
        }
        for exchange in std::mem::take(&mut self.queue) {
            exchange.record(out);
        }
        self.is_opaque = true;
    }

    /// Advances by at least one byte; returns the number of bytes.
    fn step(&mut self, direction: Direction, bytes: &[u8], length: u64, out: &mut Out<'_>) -> u64 {
        match self.reader(direction).stage {
            Stage::Body(left) => {
                let used = left.min(length);
                self.count(direction, used, out);
                if used < left {
                    self.reader_mut(direction).stage = Stage::Body(left - used);
                } else {
                    self.message_ended(direction, out);
                }
                used
            }
            Stage::Chunked(mut chunked) if chunked.data_left() > 0 => {
                let used = chunked.data_left().min(length);
                self.count(direction, used, out);
                chunked.skip(used);
                self.reader_mut(direction).stage = Stage::Chunked(chunked);
                used
            }
            Stage::UntilClose | Stage::Lost => {
                if self.reader(direction).is_open {
                    self.count(direction, length, out);
                }
                length
            }
            _ if bytes.is_empty() => {
                // Necessary bytes were not captured. A response has begun nevertheless.
                let is_between = self.reader(direction).stage == Stage::Between;
                if is_between && direction == Direction::Down && !self.queue.is_empty() {
                    self.message_began(direction, out);
                }
                self.lose(direction, out);
                0
            }
            Stage::Chunked(mut chunked) => {
                let used = match chunked.step(bytes) {
                    Ok(Step::More) => bytes.len(),
                    // Data is skipped, including bytes that were not captured.
                    Ok(Step::Data(data)) => data.end,
                    Ok(Step::End(used)) => {
                        self.count(direction, used as u64, out);
                        self.message_ended(direction, out);
                        return used as u64;
                    }
                    Err(_) => {
                        self.lose(direction, out);
                        return 0;
                    }
                };
                self.count(direction, used as u64, out);
                self.reader_mut(direction).stage = Stage::Chunked(chunked);
                used as u64
            }
            Stage::Between => {
                // RFC 9112, section 2.2: an empty line before a request is ignored.
                let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                if blank > 0 {
                    return blank as u64;
                }
                self.message_began(direction, out);
                self.reader_mut(direction).stage = Stage::Head;
                0
            }
            Stage::Head => self.read_head(direction, bytes, length, out),
        }
    }

    /// Inside a head: reads it if its end is here, stores it otherwise.
    fn read_head(&mut self, direction: Direction, bytes: &[u8], length: u64, out: &mut Out<'_>) -> u64 {
        let reader = self.reader_mut(direction);
        let before = reader.held.len();
        if before == 0 {
            if let Some(used) = self.read_head_in_place(direction, bytes, length, out) {
                return used;
            }
            if !may_be(direction, bytes) {
                self.lose(direction, out);
                return 0;
            }
        }
        let reader = self.reader_mut(direction);
        let room = out.limits.held_per_direction.saturating_sub(before);
        if bytes.len() > room || !out.hold(bytes.len()) {
            self.lose(direction, out);
            return 0;
        }
        reader.held.extend_from_slice(bytes);
        work::spend(bytes.len());
        // Bytes that begin like a head may not be one: by its first bytes, or by its first line.
        let had_line = reader.has_line;
        reader.has_line |= memchr::memchr(b'\n', bytes).is_some();
        let is_none = (before < head::DECISIVE_BYTES && !may_be(direction, &reader.held))
            || (reader.has_line && !had_line && Head::read(direction, &reader.held, RequestMethod::Other).is_none());
        if is_none {
            self.count(direction, bytes.len() as u64, out);
            self.lose(direction, out);
            return bytes.len() as u64;
        }
        let reader = self.reader_mut(direction);
        if before > 0
            && let Some(end) = head::end_of_head(&reader.held, reader.searched)
        {
            let held = reader.take_held();
            out.release(held.len());
            let used = end - before;
            self.count(direction, used as u64, out);
            self.head_ended(direction, &held[..end], out);
            return used as u64;
        }
        reader.searched = reader.held.len().saturating_sub(2);
        if (bytes.len() as u64) < length {
            // The rest of the head was truncated: reads the available part.
            self.count(direction, bytes.len() as u64, out);
            self.lose(direction, out);
            return bytes.len() as u64;
        }
        self.count(direction, bytes.len() as u64, out);
        bytes.len() as u64
    }

    /// Reads the head that begins here, if no more of it follows: it ends here, or the rest was truncated. Most heads
    /// do, and are read in place. Returns the bytes used.
    fn read_head_in_place(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        length: u64,
        out: &mut Out<'_>,
    ) -> Option<u64> {
        let head = Head::read(direction, bytes, self.request_kind());
        // Bytes that are not a head may have an end nevertheless.
        let end = head.as_ref().map_or_else(|| head::end_of_head(bytes, 0), Head::end);
        if let Some(end) = end {
            work::spend(1);
            self.count(direction, end as u64, out);
            match head {
                Some(head) => self.head_read(&head, out),
                None => self.lose(direction, out),
            }
            return Some(end as u64);
        }
        let is_cut = (bytes.len() as u64) < length;
        // The same limits as for stored heads: results must not depend on how a head was read.
        let has_space = bytes.len() <= out.limits.held_per_direction && out.has_space(bytes.len());
        let head = head.filter(|_| is_cut && has_space)?;
        work::spend(bytes.len());
        self.count(direction, bytes.len() as u64, out);
        self.note_cut(&head, out);
        self.lose(direction, out);
        Some(bytes.len() as u64)
    }

    /// A complete head was read, from several segments.
    fn head_ended(&mut self, direction: Direction, bytes: &[u8], out: &mut Out<'_>) {
        match Head::read(direction, bytes, self.request_kind()) {
            Some(head) => self.head_read(&head, out),
            None => self.lose(direction, out),
        }
    }

    fn head_read(&mut self, head: &Head<'_>, out: &mut Out<'_>) {
        match head {
            Head::Request(head) => self.request_head(head, out),
            Head::Response(head) => self.response_head(head, out),
        }
    }

    fn request_head(&mut self, head: &RequestHead<'_>, out: &mut Out<'_>) {
        if head.method == b"PRI" {
            // The preface of HTTP/2 (RFC 9113, section 3.4).
            return self.forget_request(out);
        }
        if let Some(exchange) = self.queue.back_mut() {
            exchange.note_head(head, out.stored_words());
        }
        match head.body {
            Ok(Body::Length(left @ 1..)) => self.up.stage = Stage::Body(left),
            Ok(Body::Chunked) => self.up.stage = Stage::Chunked(Chunked::new()),
            Ok(Body::None | Body::Length(0)) => self.message_ended(Direction::Up, out),
            // A request has no body that lasts until the close, and no tunnel: the end of this one is unknown.
            Ok(Body::UntilClose | Body::Tunnel) | Err(_) => self.lose(Direction::Up, out),
        }
    }

    /// The kind of request that the next response belongs to.
    fn request_kind(&self) -> RequestMethod {
        self.queue.front().map_or(RequestMethod::Other, Exchange::request_kind)
    }

    fn response_head(&mut self, head: &ResponseHead, out: &mut Out<'_>) {
        let Some(exchange) = self.queue.front_mut() else { return self.lose(Direction::Down, out) };
        let is_interim = exchange.note_status(head.status);
        if head.body == Ok(Body::Tunnel) {
            // RFC 9110, sections 7.8 and 9.3.6: from here on it is another protocol.
            if head.is_http2 && out.later_protocols && self.up.stage == Stage::Between && self.queue.len() == 1 {
                self.upgraded = self.queue.pop_front().map(|exchange| Box::new(exchange.upgraded()));
                self.is_opaque = true;
                return;
            }
            self.message_ended(Direction::Down, out);
            return self.finish(out);
        }
        if is_interim {
            self.down.stage = Stage::Between;
            self.down.is_open = false;
            return;
        }
        match head.body {
            Ok(Body::None | Body::Length(0)) => self.message_ended(Direction::Down, out),
            Ok(Body::Length(left)) => self.down.stage = Stage::Body(left),
            Ok(Body::Chunked) => self.down.stage = Stage::Chunked(Chunked::new()),
            Ok(Body::UntilClose) => self.down.stage = Stage::UntilClose,
            // The client finds no end either.
            Ok(Body::Tunnel) | Err(_) => self.lose(Direction::Down, out),
        }
    }

    /// The first part of a head was read and the rest is missing.
    fn head_cut(&mut self, direction: Direction, bytes: &[u8], out: &mut Out<'_>) {
        if let Some(head) = Head::read(direction, bytes, self.request_kind()) {
            self.note_cut(&head, out);
        }
    }

    /// Uses the available part of such a head.
    fn note_cut(&mut self, head: &Head<'_>, out: &mut Out<'_>) {
        match head {
            Head::Request(head) => {
                if let Some(exchange) = self.queue.back_mut() {
                    exchange.note_head(head, out.stored_words());
                }
            }
            Head::Response(head) => {
                if let Some(exchange) = self.queue.front_mut() {
                    exchange.note_status(head.status);
                }
            }
        }
    }

    fn message_began(&mut self, direction: Direction, out: &mut Out<'_>) {
        match direction {
            Direction::Up => {
                self.end_lost_response(out);
                if self.queue.len() >= out.limits.pipelined {
                    return self.finish(out);
                }
                if !self.is_session && !self.was_session {
                    (self.is_session, self.was_session) = (true, true);
                    out.series.session_opened();
                }
                out.series.request_began();
                self.queue.push_back(Exchange::of_request(self.requests, out.at));
                self.requests += 1;
            }
            Direction::Down => {
                self.end_lost_request(out);
                // The front exchange may have its response already, while its request is still being sent.
                if self.queue.front().is_none_or(|exchange| exchange.has_response()) {
                    self.queue.push_front(Exchange::of_response(self.requests));
                }
                if let Some(exchange) = self.queue.front_mut() {
                    exchange.response_began(out.at);
                }
            }
        }
        let reader = self.reader_mut(direction);
        (reader.is_open, reader.framing) = (true, Framing::Exact);
    }

    fn message_ended(&mut self, direction: Direction, out: &mut Out<'_>) {
        let reader = self.reader_mut(direction);
        let framing = reader.framing;
        reader.is_open = false;
        if reader.stage != Stage::Lost {
            reader.stage = Stage::Between;
        }
        match direction {
            Direction::Up => {
                if let Some(exchange) = self.queue.back_mut() {
                    exchange.request_ended(framing);
                }
            }
            Direction::Down => {
                if let Some(exchange) = self.queue.front_mut() {
                    exchange.response_ended(framing, out);
                }
            }
        }
        if self.queue.front().is_some_and(Exchange::is_done)
            && let Some(exchange) = self.queue.pop_front()
        {
            exchange.record(out);
        }
    }

    /// Counts bytes of the current message.
    fn count(&mut self, direction: Direction, bytes: u64, out: &Out<'_>) {
        match direction {
            Direction::Up => {
                if let Some(exchange) = self.queue.back_mut() {
                    exchange.count_request(bytes, out.at);
                }
            }
            Direction::Down => {
                if let Some(exchange) = self.queue.front_mut() {
                    exchange.count_response(bytes, out.at);
                }
            }
        }
    }

    fn reader(&self, direction: Direction) -> &Reader {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn reader_mut(&mut self, direction: Direction) -> &mut Reader {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}
