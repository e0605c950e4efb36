//! HTTP/2 on one connection: the `h2` crate, polled by the event loop.
//!
//! ```text
//!   socket --bytes--> receive --+--> frames: whose bytes, GOAWAY, SETTINGS
//!                               '--> pipe --> h2 --+--> H2Event --> load core
//!   socket <--bytes-- unwritten <--- pipe <-- h2 <-+--- open, reset
//! ```
//!
//! h2 needs an async socket and an executor. It gets a [`pipe`] in memory, and is polled after every change by the
//! loop: no runtime, no thread, no task. Streams have no wakers: only a stream's own frame can advance it, so the
//! polled streams are those with new frames ([`frames`]), or all when the connection broke. This saves a waker per
//! request. See docs/decisions/0016.

mod frames;
mod pipe;
mod slot;

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use h2::Reason;
use h2::client::{Builder, Connection, SendRequest};
use http::{HeaderMap, Request};
use load::StreamKey;
use schema::FrameKind;

use self::frames::{Frames, Piece};
use self::pipe::Pipe;
use self::slot::{HEAD_MAX, Slot};
use crate::http2_frames::ConnectionFrames;

/// Flow-control windows, bytes. Received data is counted and discarded, so nothing accumulates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub stream: u32,
    pub connection: u32,
}

/// Most bytes from the socket that wait for h2, which stops reading while the server does not read its responses.
const UNREAD_MAX: usize = 256 << 10;

/// Events of a connection, in the order in which they happened.
#[derive(Debug)]
pub(crate) enum H2Event {
    /// The server allows this many concurrent streams.
    Limit(u32),
    /// Bytes of a stream's response arrived, including frame headers; `head`: of a header block.
    Received { stream: StreamKey, bytes: u32, head: bool },
    /// The head of a response.
    Head { stream: StreamKey, status: u16, fields: HeaderMap },
    /// Bytes of its body.
    Body { stream: StreamKey, bytes: Bytes },
    /// The response is complete.
    End { stream: StreamKey },
    /// No response will arrive.
    Failed { stream: StreamKey, why: Why },
    /// GOAWAY: the server processes no stream above `last`; `error`: because of an error.
    GoAway { last: u32, error: bool },
    /// The server violated the protocol; the connection cannot be used any more.
    Broken,
}

/// Why a stream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// RST_STREAM with REFUSED_STREAM: the server has not processed it.
    Refused,
    /// RST_STREAM with another code.
    Reset,
    /// The received data is not HTTP/2, or violates its rules.
    Malformed,
    /// The head is larger than accepted.
    HeadTooLarge,
    /// The connection ended with an error.
    GoAway,
}

/// One connection.
pub(crate) struct Http2 {
    connection: Connection<Pipe, Bytes>,
    sender: SendRequest<Bytes>,
    pipe: Pipe,
    needs_poll: Arc<PollFlag>,
    received: Frames,
    sent: Frames,
    /// Output bytes whose frames were parsed.
    parsed: u64,
    /// Bytes written since the start.
    written: u64,
    /// Parts of requests not written yet, by the offset of their ends.
    sending: VecDeque<Sending>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Slots by stream: the k-th entry is the slot of stream `first + 2 k`, or [`NO_SLOT`].
    slots_by_stream: VecDeque<u32>,
    first: u32,
    /// Slots with new frames.
    changed: Vec<u32>,
    settings_received: bool,
    over: bool,
    /// Whether h2, in its last poll, had to wait for space, or had more work than one call allows.
    has_more: bool,
    /// Frames that are kept for `yamabiko explain`.
    kept: Option<Box<ConnectionFrames>>,
}

struct Sending {
    end: u64,
    stream: StreamKey,
    bytes: u32,
    last: bool,
}

/// No slot.
const NO_SLOT: u32 = u32::MAX;

/// Records that h2 needs to be polled again.
#[derive(Default)]
struct PollFlag(AtomicBool);

impl Wake for PollFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Http2 {
    /// A connection whose preface and SETTINGS are written next.
    pub(crate) fn new(windows: Windows) -> Self {
        let pipe = Pipe::default();
        let mut builder = Builder::new();
        builder
            .initial_window_size(windows.stream)
            .initial_connection_window_size(windows.connection)
            .max_header_list_size(HEAD_MAX)
            .enable_push(false);
        let handshake = pin!(builder.handshake(pipe.clone()));
        let Poll::Ready(Ok((sender, connection))) = handshake.poll(&mut Context::from_waker(Waker::noop())) else {
            unreachable!("a pipe accepts the preface immediately")
        };
        Http2 {
            connection,
            sender,
            pipe,
            needs_poll: Arc::default(),
            received: Frames::of_server(),
            sent: Frames::of_client(),
            parsed: 0,
            written: 0,
            sending: VecDeque::new(),
            slots: Vec::new(),
            free: Vec::new(),
            slots_by_stream: VecDeque::new(),
            first: FIRST_STREAM,
            changed: Vec::new(),
            settings_received: false,
            over: false,
            has_more: false,
            kept: None,
        }
    }

    /// Keeps frames for `yamabiko explain` from now on.
    pub(crate) fn keep(&mut self, frames: ConnectionFrames) {
        self.kept = Some(Box::new(frames));
    }

    /// The kept frames, if frames are kept.
    pub(crate) fn kept(&mut self) -> Option<&mut ConnectionFrames> {
        self.kept.as_deref_mut()
    }

    /// Queues a request; returns the number of its stream. Call [`Self::advance`] afterwards. `None`: h2 refuses it.
    pub(crate) fn open(&mut self, stream: StreamKey, request: &Request<()>, body: &[u8]) -> Option<u32> {
        let (response, mut request) = self.sender.send_request(request.clone(), body.is_empty()).ok()?;
        let number = response.stream_id().as_u32();
        if !body.is_empty() {
            // A failure is reported with the response.
            let _ = request.send_data(Bytes::copy_from_slice(body), true);
        }
        let slot =
            Slot { stream, number, response: Some(response), body: None, request, head_bytes: 0, changed: false };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(slot);
                index
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        // A request that h2 refuses may have used a stream number all the same.
        while self.first + 2 * (self.slots_by_stream.len() as u32) < number {
            self.slots_by_stream.push_back(NO_SLOT);
        }
        self.slots_by_stream.push_back(index);
        Some(number)
    }

    /// Cancels a stream: the server gets RST_STREAM with CANCEL. Call [`Self::advance`] afterwards.
    pub(crate) fn reset(&mut self, number: u32) {
        if let Some(index) = self.slot_of(number)
            && let Some(slot) = &mut self.slots[index as usize]
        {
            slot.request.send_reset(Reason::CANCEL);
            self.forget(index);
        }
    }

    /// Receives bytes from the socket. Call [`Self::advance`] afterwards.
    pub(crate) fn receive(&mut self, bytes: &[u8], events: &mut Vec<H2Event>) {
        let mut received = std::mem::replace(&mut self.received, Frames::of_server());
        received.parse(bytes, |piece| self.note(piece, events));
        self.received = received;
        self.pipe.ends().put(bytes);
    }

    /// Polls h2, and reports its events.
    pub(crate) fn advance(&mut self, events: &mut Vec<H2Event>) {
        let waker = Waker::from(Arc::clone(&self.needs_poll));
        self.has_more = false;
        // Bounded: a round without progress ends the loop, and each round consumes data that already arrived.
        for _ in 0..POLLS_MAX {
            self.needs_poll.0.store(false, Ordering::Relaxed);
            let refused = self.poll(&waker, events);
            self.has_more |= refused;
            self.poll_streams(refused, events);
            if !self.needs_poll.0.load(Ordering::Relaxed) {
                break;
            }
        }
        self.has_more |= self.needs_poll.0.load(Ordering::Relaxed);
        self.parse_output();
    }

    /// Whether the connection must be advanced again after everything is written, although nothing may come from the
    /// server: only a part of a large body fitted into the pipe.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether reading from the socket must pause.
    pub(crate) fn is_full(&self) -> bool {
        self.pipe.ends().unread() > UNREAD_MAX
    }

    /// Passes output to `write`, which returns how many bytes it wrote. True when nothing is left.
    pub(crate) fn write<E>(&mut self, mut write: impl FnMut(&[u8]) -> Result<Option<usize>, E>) -> Result<bool, E> {
        let mut ends = self.pipe.ends();
        while !ends.unwritten().is_empty() {
            match write(ends.unwritten())? {
                Some(taken) => {
                    ends.note_written(taken);
                    self.written += taken as u64;
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The next bytes to write, at most `limit`.
    pub(crate) fn copy_unwritten(&self, limit: usize, into: &mut Vec<u8>) {
        let ends = self.pipe.ends();
        let rest = ends.unwritten();
        into.extend_from_slice(&rest[..rest.len().min(limit)]);
    }

    /// Records that the first `bytes` of [`Self::copy_unwritten`] were written.
    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.pipe.ends().note_written(bytes);
        self.written += bytes as u64;
    }

    /// The next part of a request that was written: its stream, its length, and whether it was the last.
    pub(crate) fn next_sent(&mut self) -> Option<(StreamKey, u32, bool)> {
        let part = self.sending.front().filter(|part| part.end <= self.written)?;
        let sent = (part.stream, part.bytes, part.last);
        self.sending.pop_front();
        Some(sent)
    }

    fn poll(&mut self, waker: &Waker, events: &mut Vec<H2Event>) -> bool {
        if !self.over {
            match Pin::new(&mut self.connection).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => {}
                Poll::Ready(outcome) => {
                    self.over = true;
                    self.mark_all_changed();
                    if outcome.is_err_and(|error| error.is_library() || error.is_io()) {
                        events.push(H2Event::Broken);
                    }
                }
            }
        }
        if std::mem::take(&mut self.settings_received) {
            let limit = self.connection.max_concurrent_send_streams();
            events.push(H2Event::Limit(u32::try_from(limit).unwrap_or(u32::MAX)));
        }
        self.pipe.ends().take_refused()
    }

    /// Polls the streams with new frames. `again`: h2 may not have read all of them yet.
    fn poll_streams(&mut self, again: bool, events: &mut Vec<H2Event>) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|&index| {
            let Some(slot) = &mut self.slots[index as usize] else { return false };
            if slot.poll(events) {
                self.forget(index);
                return false;
            }
            slot.changed = again;
            again
        });
        self.changed = changed;
    }

    fn note(&mut self, piece: Piece, events: &mut Vec<H2Event>) {
        if let Some(kept) = &mut self.kept {
            let kind = match piece.kind {
                frames::DATA => Some(FrameKind::Data),
                frames::HEADERS | frames::CONTINUATION => Some(FrameKind::Headers),
                _ => None,
            };
            let window_bytes = if piece.kind == frames::DATA { piece.payload } else { 0 };
            kept.read(piece.stream, kind, piece.bytes, window_bytes);
        }
        match piece.kind {
            frames::DATA | frames::HEADERS | frames::CONTINUATION => {
                let head = piece.kind != frames::DATA;
                if let Some(index) = self.slot_of(piece.stream)
                    && let Some(slot) = &mut self.slots[index as usize]
                {
                    if head {
                        slot.head_bytes = slot.head_bytes.saturating_add(piece.bytes);
                    }
                    events.push(H2Event::Received { stream: slot.stream, bytes: piece.bytes, head });
                    if !std::mem::replace(&mut slot.changed, true) {
                        self.changed.push(index);
                    }
                }
            }
            frames::RST_STREAM | frames::WINDOW_UPDATE => {
                if let Some(index) = self.slot_of(piece.stream)
                    && let Some(slot) = &mut self.slots[index as usize]
                    && !std::mem::replace(&mut slot.changed, true)
                {
                    self.changed.push(index);
                }
            }
            frames::SETTINGS => self.settings_received |= piece.whole && !piece.ack,
            frames::GOAWAY => {
                if let Some((last, code)) = piece.goaway {
                    events.push(H2Event::GoAway { last, error: code != u32::from(Reason::NO_ERROR) });
                    self.mark_all_changed();
                }
            }
            _ => {}
        }
    }

    fn mark_all_changed(&mut self) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = slot
                && !std::mem::replace(&mut slot.changed, true)
            {
                self.changed.push(index as u32);
            }
        }
    }

    fn slot_of(&self, number: u32) -> Option<u32> {
        // The server's own streams, which are disabled, have even numbers.
        if number < self.first || number.is_multiple_of(2) {
            return None;
        }
        let position = ((number - self.first) / 2) as usize;
        self.slots_by_stream.get(position).copied().filter(|&index| index != NO_SLOT)
    }

    fn forget(&mut self, index: u32) {
        let Some(slot) = self.slots[index as usize].take() else { return };
        self.free.push(index);
        self.slots_by_stream[((slot.number - self.first) / 2) as usize] = NO_SLOT;
        while self.slots_by_stream.front() == Some(&NO_SLOT) {
            self.slots_by_stream.pop_front();
            self.first += 2;
        }
    }

    /// Finds the parts of requests in the output of h2 since the last call.
    fn parse_output(&mut self) {
        let Http2 { pipe, sent, parsed, written, sending, slots, slots_by_stream, first, kept, .. } = self;
        let ends = pipe.ends();
        let unwritten = ends.unwritten();
        let skip = (*parsed - *written) as usize;
        let from = *parsed;
        sent.parse(&unwritten[skip..], |piece| {
            if let (Some(kept), Some(granted)) = (&mut *kept, piece.granted) {
                kept.granted(piece.stream, granted);
            }
            if !matches!(piece.kind, frames::DATA | frames::HEADERS | frames::CONTINUATION) || piece.stream < *first {
                return;
            }
            let position = ((piece.stream - *first) / 2) as usize;
            if let Some(&index) = slots_by_stream.get(position)
                && let Some(Some(slot)) = slots.get(index as usize)
            {
                sending.push_back(Sending {
                    end: from + piece.end as u64,
                    stream: slot.stream,
                    bytes: piece.bytes,
                    last: piece.ends_stream,
                });
            }
        });
        *parsed += (unwritten.len() - skip) as u64;
    }
}

/// The first stream of a client (RFC 9113, section 5.1.1).
const FIRST_STREAM: u32 = 1;
/// Most polls of h2 in a row; remaining work waits for the next event.
const POLLS_MAX: usize = 16;

#[cfg(test)]
mod tests;
