//! HTTP/3 of one connection (RFC 9114) over quinn-proto's streams, without a socket.
//!
//! ```text
//!   quinn_proto::Connection ──streams──▶ MessageReader ──section──▶ Stream::begin
//!            ▲                                └───────content─────▶ Stream::take_body
//!            └──────────── frames ◀──────── Http3::write ◀───────── Stream::next_head, Stream::transfer
//! ```
//!
//! Frames, error codes and the client's unidirectional streams are those of crate `http3`, which the load shares.
//!
//! What a client can make this server do or store is bounded: [`STREAMS_MAX`] unfinished requests by QUIC's limit of
//! streams; content of requests by QUIC's windows, which grow only with what was read here, and nothing is read beyond
//! [`UNREAD_MAX`] before it is forwarded; content of responses by quinn-proto's window of unacknowledged bytes, whose
//! size [`Host`](crate::quic::Host) decides, since files are read only as far as it takes them; a field section by
//! [`SECTION_BYTES_MAX`]; cancelled requests by [`RESETS_MAX`].

mod requests;
mod responses;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use http3::Code;
use http3::control::Control;
use http3::frame::{GOAWAY, Settings, put_head};
use http3::message::MessageReader;
use http3::varint;
use quinn_proto::{Connection as Quic, Dir, Event as QuicEvent, ReadError, Side, StreamEvent, StreamId, VarInt};
use units::Timestamp;

use crate::connection::WorkerContext;
use crate::dynamic::Event;
use crate::multiplexed::{Authority, Ends, Stream};

/// HTTP/3 of one connection.
#[derive(Debug)]
pub(crate) struct Http3 {
    ends: Ends,
    authority: Authority,
    streams: HashMap<StreamId, Box<Entry>, RandomState>,
    /// Complete responses of which the client has not acknowledged everything.
    unacknowledged: HashSet<StreamId, RandomState>,
    /// When they are reset without progress, and the bytes that had been sent when that was decided.
    acknowledged_by: Timestamp,
    sent_before: u64,
    /// The client's unidirectional streams.
    control: Control,
    /// This server's control stream, and bytes that QUIC has not taken yet.
    own_control: Option<StreamId>,
    own_control_pending: Vec<u8>,
    /// The stream after the last request.
    next: u64,
    /// Requests that the client cancelled or broke, less completed responses.
    resets: u32,
    departure: Departure,
    /// The earliest deadline of a stream, of acknowledgements, or of the next request.
    deadline: Timestamp,
    idle_since: Timestamp,
    /// The connection ends with this code, which was found outside of [`Http3::event`].
    failure: Option<Code>,
    /// Requests that an origin still serves on this connection; 0 before the first.
    uses_left: u32,
    /// Bytes of a file that are read at a time, as many as QUIC took last.
    piece_bytes: usize,
    /// Bytes of responses that QUIC took, and whether it took less than there was.
    written: u64,
    held_up: bool,
}

/// An unfinished request or response.
#[derive(Debug)]
struct Entry {
    /// The request, once its head is complete.
    stream: Option<Stream>,
    reader: MessageReader,
    /// The field section of the request as it arrives.
    section: Vec<u8>,
    /// The client has ended the stream, or its rest is not read.
    ended: bool,
    /// Heads of frames, field sections and short content that QUIC has not taken.
    pending: Vec<u8>,
    /// Content of the current DATA frame that QUIC has not taken.
    frame_left: u64,
    /// When the head of the request must be complete.
    head_until: Timestamp,
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

impl Http3 {
    /// A connection whose handshake has begun.
    pub(crate) fn new(ends: Ends, context: &WorkerContext) -> Self {
        Http3 {
            ends,
            authority: Authority::default(),
            streams: HashMap::default(),
            unacknowledged: HashSet::default(),
            acknowledged_by: Timestamp::MAX,
            sent_before: 0,
            control: Control::new(Side::Client),
            own_control: None,
            own_control_pending: Vec::new(),
            next: 0,
            resets: 0,
            departure: Departure::Open,
            deadline: Timestamp::MAX,
            idle_since: context.now,
            failure: None,
            uses_left: 0,
            piece_bytes: responses::PIECE_BYTES_MIN,
            written: 0,
            held_up: false,
        }
    }

    /// Processes an event of QUIC.
    ///
    /// # Errors
    /// The connection ends with this code.
    pub(crate) fn event(&mut self, context: &mut WorkerContext, quic: &mut Quic, event: QuicEvent) -> Result<(), Code> {
        match event {
            QuicEvent::Connected => {
                self.idle_since = context.now;
                self.begin_control(context, quic);
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = quic.streams().accept(dir) {
                    match dir {
                        Dir::Bi => self.begin_request(context, quic, id)?,
                        Dir::Uni => {
                            self.control.accept(id);
                            self.read_control(quic, id)?;
                        }
                    }
                }
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => self.read_control(quic, id),
            QuicEvent::Stream(StreamEvent::Readable { id }) => self.read_request(context, quic, id),
            QuicEvent::Stream(StreamEvent::Writable { id }) if Some(id) == self.own_control => {
                self.write_control(quic);
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Writable { id }) => {
                self.write(context, quic, id);
                Ok(())
            }
            QuicEvent::Stream(StreamEvent::Stopped { id, .. }) if id.dir() == Dir::Uni => {
                Err(Code::CLOSED_CRITICAL_STREAM)
            }
            QuicEvent::Stream(StreamEvent::Stopped { id, .. }) => self.cancelled(context, quic, id),
            QuicEvent::Stream(StreamEvent::Finished { id }) => {
                self.acknowledged(context, id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Processes an event of the relay.
    pub(crate) fn relay_event(&mut self, context: &mut WorkerContext, quic: &mut Quic, stream: u64, event: Event) {
        let Ok(id) = VarInt::from_u64(stream).map(StreamId::from) else { return };
        let Some(stream) = self.streams.get_mut(&id).and_then(|entry| entry.stream.as_mut()) else { return };
        stream.relay_event(context, event);
        self.write(context, quic, id);
        // The relay may have taken content, so that more can be read.
        if let Err(code) = self.read_request(context, quic, id) {
            self.failure = Some(code);
        }
    }

    /// Processes what is late: streams, acknowledgements, the next request. `sent`: bytes in datagrams so far.
    pub(crate) fn late(&mut self, context: &mut WorkerContext, quic: &mut Quic, sent: u64) {
        let now = context.now;
        let late = self.streams.iter().filter(|(_, entry)| entry.deadline() <= now);
        let late: Vec<StreamId> = late.map(|(&id, _)| id).collect();
        for id in late {
            match self.streams.get_mut(&id).and_then(|entry| entry.stream.as_mut()) {
                Some(stream) => {
                    stream.late(context);
                    self.write(context, quic, id);
                }
                None => self.abort(context, quic, id, Code::REQUEST_INCOMPLETE),
            }
        }
        if self.acknowledged_by <= now {
            self.acknowledgements_late(context, quic, sent);
        }
        if self.idle_until(context) <= now {
            self.depart();
        }
    }

    /// Why the connection must end, apart from events.
    pub(crate) fn failure(&mut self) -> Option<Code> {
        self.failure.take()
    }

    /// The server stops, or has had enough of this connection: requests from now on are rejected, and the connection
    /// ends with its responses.
    pub(crate) fn depart(&mut self) {
        if self.departure == Departure::Open {
            self.departure = Departure::Wanted;
        }
    }

    /// Announces the end, if it is due. Whether everything is over.
    pub(crate) fn announce(&mut self, quic: &mut Quic) -> bool {
        if self.departure == Departure::Wanted && self.own_control.is_some() {
            self.departure = Departure::Announced;
            let mut payload = Vec::new();
            varint::put(self.next, &mut payload);
            put_head(GOAWAY, payload.len() as u64, &mut self.own_control_pending);
            self.own_control_pending.extend_from_slice(&payload);
            self.write_control(quic);
        }
        self.departure != Departure::Open && self.streams.is_empty() && self.unacknowledged.is_empty()
    }

    /// Computes [`Http3::deadline`].
    pub(crate) fn settle(&mut self, context: &WorkerContext) {
        let of_streams = self.streams.values().map(|entry| entry.deadline()).min().unwrap_or(Timestamp::MAX);
        self.deadline = of_streams.min(self.acknowledged_by).min(self.idle_until(context));
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Since when no request is unfinished; `None` while there is one.
    pub(crate) fn idle_since(&self) -> Option<Timestamp> {
        (self.streams.is_empty() && self.unacknowledged.is_empty()).then_some(self.idle_since)
    }

    /// Bytes of responses that QUIC took so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether QUIC took less of a response than there was, since the last call.
    pub(crate) fn was_held_up(&mut self) -> bool {
        std::mem::take(&mut self.held_up)
    }

    /// The connection ends: all streams end, complete or not.
    pub(crate) fn leave(&mut self, context: &mut WorkerContext) {
        for (_, mut entry) in self.streams.drain() {
            if let Some(stream) = &mut entry.stream {
                stream.leave(context);
            }
        }
        self.unacknowledged.clear();
        self.acknowledged_by = Timestamp::MAX;
    }

    /// When a connection without requests ends. A client that only keeps the connection alive by PING does not
    /// prolong it.
    fn idle_until(&self, context: &WorkerContext) -> Timestamp {
        match self.idle_since() {
            Some(since) if self.departure == Departure::Open => since + context.limits.idle_time,
            _ => Timestamp::MAX,
        }
    }

    /// Opens this server's control stream with its settings.
    fn begin_control(&mut self, context: &WorkerContext, quic: &mut Quic) {
        self.own_control = quic.streams().open(Dir::Uni);
        self.own_control_pending.push(CONTROL_STREAM);
        let size = context.limits.head_bytes as u64;
        Settings { max_field_section_size: Some(size), ..Settings::default() }.put(&mut self.own_control_pending);
        self.write_control(quic);
    }

    fn write_control(&mut self, quic: &mut Quic) {
        let Some(id) = self.own_control else { return };
        while !self.own_control_pending.is_empty() {
            match quic.send_stream(id).write(&self.own_control_pending) {
                Ok(count) => drop(self.own_control_pending.drain(..count)),
                Err(_) => return,
            }
        }
    }

    /// Reads a unidirectional stream of the client.
    fn read_control(&mut self, quic: &mut Quic, id: StreamId) -> Result<(), Code> {
        let mut receiver = quic.recv_stream(id);
        let Ok(mut chunks) = receiver.read(true) else { return Ok(()) };
        let mut outcome = Ok(());
        while outcome.is_ok() {
            match chunks.next(usize::MAX) {
                // A client's GOAWAY is about pushes, which this server does not send.
                Ok(Some(chunk)) => outcome = self.control.feed(id, &chunk.bytes, |_| {}),
                Ok(None) | Err(ReadError::Reset(_)) => {
                    outcome = self.control.end(id);
                    break;
                }
                Err(ReadError::Blocked) => break,
            }
        }
        // The window that this frees is sent with the next datagram.
        let _ = chunks.finalize();
        if outcome.is_ok() && self.control.is_unknown(id) {
            let _ = quic.recv_stream(id).stop(varint_of(Code::STREAM_CREATION_ERROR));
            self.control.forget(id);
        }
        outcome
    }
}

impl Entry {
    fn new(context: &WorkerContext) -> Self {
        Entry {
            stream: None,
            reader: MessageReader::new(Side::Client, SECTION_BYTES_MAX),
            section: Vec::new(),
            ended: false,
            pending: Vec::new(),
            frame_left: 0,
            head_until: context.now + context.limits.head_time,
        }
    }

    fn deadline(&self) -> Timestamp {
        self.stream.as_ref().map_or(self.head_until, Stream::deadline)
    }
}

/// A code as QUIC takes it.
pub(crate) fn varint_of(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

/// Unfinished requests of a connection, as over HTTP/2.
pub(crate) const STREAMS_MAX: u32 = 128;
/// Content of a request that is read before it is forwarded.
const UNREAD_MAX: usize = 64 << 10;
/// Encoded fields of a request: as long as the longest head.
const SECTION_BYTES_MAX: usize = 32 << 10;
/// Requests that a client may cancel or break beyond those that it completes.
const RESETS_MAX: u32 = 200;
/// The kind of a control stream, its first byte (RFC 9114, section 6.2.1).
const CONTROL_STREAM: u8 = 0x00;
