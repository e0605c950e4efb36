//! HTTP/2 of one connection (RFC 9113), without a socket: frames in, frames out.
//!
//! ```text
//!   Connection ──input──▶ Http2::work ──section──▶ Stream::begin        ready ──▶ Http2::fill ──▶ context.frames
//!                              └──────DATA───────▶ Stream::take_body      ▲
//!                                                     └── has content ────┘  one DATA frame each in turn
//! ```
//!
//! The connection around it (`connection/http2.rs`) moves the bytes, and has the timeouts of a connection. While
//! frames are processed, [`WorkerContext::frames`] has the output of the connection and [`WorkerContext::out`] that of
//! one stream.
//!
//! What a client can make this server do or store is bounded: [`STREAMS_MAX`] unfinished requests; content of requests
//! by the windows, which grow only with what was forwarded; content of responses by the output buffer of one
//! connection, since files are read as the client's windows permit; a field section by [`SECTION_BYTES_MAX`] and
//! [`SECTION_FRAMES_MAX`]; resets (CVE-2023-44487) by [`RESETS_MAX`], and frames without use by [`IDLE_FRAMES_MAX`].

mod frame;
mod input;
mod output;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use field_compression::hpack::{self, Decoder};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use units::Timestamp;

use crate::connection::WorkerContext;
use crate::dynamic::Event;
use crate::multiplexed::{Authority, Encoding, Ends, HeadCache, HeadCaches, Stream};
pub(crate) use frame::{ErrorCode, PREFACE};

/// HTTP/2 of one connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    ends: Ends,
    authority: Authority,
    decoder: Decoder,
    streams: HashMap<u32, Box<Entry>, RandomState>,
    /// Streams with content that their windows permit.
    ready: VecDeque<u32>,
    /// The highest stream of the client.
    last: u32,
    /// Bytes of content that the client accepts, for all streams.
    window: i64,
    /// The same for a new stream.
    initial_window: i64,
    /// Bytes of content that the client may send, for all streams.
    receive_window: u32,
    /// Bytes by which the client's window has not grown yet.
    credit: u32,
    /// A field section whose end has not arrived.
    section: Vec<u8>,
    open_section: Option<OpenSection>,
    preface_read: bool,
    settings_read: bool,
    /// Answered streams whose client has not ended its request: the content that it may still send, which is dropped.
    answered: HashMap<u32, u32, RandomState>,
    /// The streams that this server reset last: their frames may be in transit.
    reset: VecDeque<u32>,
    /// Resets by the client and because of it, less completed responses.
    resets: u32,
    /// Frames without use, less useful ones.
    idle_frames: u32,
    departure: Departure,
    /// The earliest deadline of a stream.
    deadline: Timestamp,
    /// Requests that an origin still serves on this connection; 0 before the first.
    uses_left: u32,
    /// A frame was completed since [`Http2::took_frame`].
    took_frame: bool,
    /// A request was processed since [`Http2::took_request`].
    took_request: bool,
}

/// An unfinished request or response.
#[derive(Debug)]
struct Entry {
    stream: Stream,
    /// Bytes of content that the client accepts.
    window: i64,
    /// Bytes of content that the client may send.
    receive_window: u32,
    /// Bytes by which that has not grown yet.
    credit: u32,
    /// In `ready`.
    queued: bool,
    /// The client has ended the stream.
    ended: bool,
}

/// A field section in several frames.
#[derive(Clone, Copy, Debug)]
struct OpenSection {
    stream: u32,
    ended: bool,
    /// It depends on itself, which resets the stream.
    malformed: bool,
    frames: usize,
}

/// The end of the connection, as this server announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    Open,
    /// GOAWAY is due.
    Wanted,
    /// GOAWAY was written: no request after it is processed.
    Announced,
}

impl Http2 {
    /// A connection without streams: appends the settings to `out`.
    pub(crate) fn new(ends: Ends, out: &mut Vec<u8>, head_bytes: usize) -> Self {
        let at = frame::begin(out, frame::SETTINGS, 0, 0);
        for (setting, value) in [
            (frame::MAX_CONCURRENT_STREAMS, STREAMS_MAX as u32),
            (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (frame::MAX_HEADER_LIST_SIZE, head_bytes as u32),
        ] {
            out.extend_from_slice(&setting.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        frame::set_length(out, at);
        frame::write_window(out, 0, CONNECTION_WINDOW - DEFAULT_WINDOW);
        Http2 {
            ends,
            authority: Authority::default(),
            decoder: Decoder::default(),
            streams: HashMap::default(),
            ready: VecDeque::new(),
            last: 0,
            window: i64::from(DEFAULT_WINDOW),
            initial_window: i64::from(DEFAULT_WINDOW),
            receive_window: CONNECTION_WINDOW,
            credit: 0,
            section: Vec::new(),
            open_section: None,
            preface_read: false,
            settings_read: false,
            answered: HashMap::default(),
            reset: VecDeque::new(),
            resets: 0,
            idle_frames: 0,
            departure: Departure::Open,
            deadline: Timestamp::MAX,
            uses_left: 0,
            took_frame: false,
            took_request: false,
        }
    }

    /// Whether no request is unfinished.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether the rest of a field section must arrive.
    pub(crate) fn is_in_section(&self) -> bool {
        self.open_section.is_some()
    }

    /// Whether a frame was completed since the last call.
    pub(crate) fn took_frame(&mut self) -> bool {
        std::mem::take(&mut self.took_frame)
    }

    /// Whether a request was processed since the last call.
    pub(crate) fn took_request(&mut self) -> bool {
        std::mem::take(&mut self.took_request)
    }

    /// Whether [`Http2::fill`] has something to write.
    pub(crate) fn has_output(&self) -> bool {
        (self.window > 0 && !self.ready.is_empty()) || self.departure == Departure::Wanted
    }

    /// The server stops, or has had enough of this connection: requests from now on are not processed.
    pub(crate) fn depart(&mut self) {
        if self.departure == Departure::Open {
            self.departure = Departure::Wanted;
        }
    }

    /// Whether the end was announced and every response is complete.
    pub(crate) fn is_over(&self) -> bool {
        self.departure == Departure::Announced && self.streams.is_empty()
    }

    /// Appends the announcement of the end.
    pub(crate) fn write_end(&self, out: &mut Vec<u8>, code: ErrorCode) {
        frame::write_goaway(out, self.last, code);
    }

    /// The earliest deadline of a stream.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Computes [`Http2::deadline`].
    pub(crate) fn settle(&mut self) {
        let deadlines = self.streams.values().map(|entry| entry.stream.deadline());
        self.deadline = deadlines.min().unwrap_or(Timestamp::MAX);
    }

    /// Bytes in memory: content of requests that was not forwarded, and an incomplete field section.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let held: usize = self.streams.values().map(|entry| entry.stream.unreported()).sum();
        held + self.section.capacity()
    }

    /// Processes an event of the relay.
    pub(crate) fn relay_event(&mut self, context: &mut WorkerContext, stream: u64, event: Event) {
        let Ok(stream) = u32::try_from(stream) else { return };
        self.with(context, stream, |entry, context| entry.stream.relay_event(context, event));
    }

    /// Processes the streams whose deadline has expired.
    pub(crate) fn late(&mut self, context: &mut WorkerContext) {
        let now = context.now;
        let late = self.streams.iter().filter(|(_, entry)| entry.stream.deadline() <= now);
        let late: Vec<u32> = late.map(|(&stream, _)| stream).collect();
        for stream in late {
            self.with(context, stream, |entry, context| entry.stream.late(context));
        }
    }

    /// The connection ends: all streams end, complete or not.
    pub(crate) fn leave(&mut self, context: &mut WorkerContext) {
        for (_, mut entry) in self.streams.drain() {
            entry.stream.leave(context);
        }
        self.ready.clear();
    }
}

/// Fields by HPACK.
struct Hpack;

impl Encoding for Hpack {
    fn cache(caches: &mut HeadCaches) -> &mut HeadCache {
        &mut caches.http2
    }

    fn status(status: &[u8; 3], out: &mut Vec<u8>) {
        hpack::encode_status(status, out);
    }

    fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        hpack::encode_field(name, value, out);
    }
}

/// Unfinished requests of a connection, as nginx and Apache announce about as many.
pub(crate) const STREAMS_MAX: usize = 128;
/// The window of a connection and of a stream before any setting.
const DEFAULT_WINDOW: u32 = 65_535;
/// Content of a request that may arrive before any of it is forwarded: a client 100 ms away sends 10 Mbit/s.
const STREAM_WINDOW: u32 = 128 << 10;
/// The same for all streams together.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Encoded fields of a request: as long as the longest head.
const SECTION_BYTES_MAX: usize = 32 << 10;
/// Frames of a field section (CVE-2024-27316): twice what its bytes need.
const SECTION_FRAMES_MAX: usize = 2 * SECTION_BYTES_MAX / frame::FRAME_BYTES_MAX;
/// Requests that a client may give up or that are refused, beyond those that it completes.
const RESETS_MAX: u32 = 200;
/// Frames without use: PING, SETTINGS, PRIORITY, empty DATA, unknown ones.
const IDLE_FRAMES_MAX: u32 = 1000;
/// Streams that were reset and whose frames are ignored.
const RESET_REMEMBERED: usize = 32;
