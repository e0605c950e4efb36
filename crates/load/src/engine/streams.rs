//! HTTP/2 and HTTP/3: connections that carry several concurrent requests, each on its own stream.
//!
//! ```text
//!   request --> its client's connection with a free stream
//!           --> else a connection that is being opened and has a stream left: the request waits there
//!           --> else a new connection, up to the maximum; else the backlog
//! ```
//!
//! A request on a stream is stored here ([`Stream`]), not with its connection: [`Connection::request`] stays empty, and
//! the state of a connection that is ready for streams is [`State::StreamsReady`]. The end of a request (records, checks,
//! sessions) is handled as for HTTP/1, in `evaluation`.
//!
//! - `started_at` is the time of the Connect, or when the request joined a connection that was being opened,
//!   or the time of its own [`Action::Open`](super::Action::Open). So the wait for another request's handshake is part
//!   of the service time, and send lag is the generator's own delay. `connected_at` and `secured_at` belong to the
//!   request that opened the connection.
//! - A stream counts from the request's start to its end. The number of open streams never exceeds what the server
//!   allows (SETTINGS_MAX_CONCURRENT_STREAMS; with HTTP/3 initial_max_streams_bidi). Until its limit arrives, the limit
//!   is that of the previous connection to the server, otherwise 100, as RFC 9113 (section 6.5.2) and RFC 9114 (section
//!   6.1) recommend.
//! - In the closed loop a connection has [`LoadSpec::streams_max`](crate::LoadSpec::streams_max) workers; those beyond
//!   the server's limit wait.
//! - A stream that the server did not process (beyond GOAWAY's last stream, REFUSED_STREAM, H3_REQUEST_REJECTED, early
//!   data that it did not accept) is retried once, whatever its method: RFC 9113, section 8.7; RFC 9114, section 4.1.1.
//!   So is an idempotent request that crossed the server's close of an idle
//!   connection, as with HTTP/1. [`Retry::Never`](crate::Retry) disables both.
//! - A response that ends before its request was sent completely is early (`early_response`). The stream is over; the
//!   connection stays open.
//!
//! Code map: `dispatch` finds a connection, `events` handles the events of streams, `connections` those of whole
//! connections.

mod connections;
mod dispatch;
mod events;
mod fields;

use std::collections::VecDeque;

use units::Timestamp;

pub use fields::RequestHead;

use super::evaluation::Needs;
use crate::idle::IdleByClient;
use crate::in_flight::InFlightRequest;
use crate::queues::Queues;
use crate::spec::{HttpVersion, LoadSpec};

/// Identifies a stream between [`Load`](crate::Load) and its driver. Calls with the key of an ended stream are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Why a stream ended without a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The server did not process the request (RST_STREAM with REFUSED_STREAM, RESET_STREAM with H3_REQUEST_REJECTED,
    /// or early data that it did not accept).
    Refused,
    /// The request failed for this cause.
    Failed(schema::FailureCause),
}

/// Limit of concurrent streams until the server's SETTINGS arrive.
const DEFAULT_STREAM_LIMIT: u32 = 100;

/// The state of all streams and of the connections that carry them.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// Response deadlines, by index into `slots`.
    deadlines: Queues,
    /// The streams of connections, by index of the connection.
    stream_connections: Vec<StreamConnection>,
    /// Connections, open or being opened, that can take a further stream.
    available: IdleByClient,
    /// Closed loop: the connection of each group of workers to each endpoint.
    positions: Vec<u32>,
    /// By endpoint: the server's last limit of concurrent streams.
    limits: Vec<u32>,
    fields: fields::Fields,
}

/// A request on its stream, or waiting for one.
#[derive(Debug)]
struct Stream {
    generation: u32,
    state: StreamState,
    /// Index of its connection.
    connection: u32,
    /// Its index in the connection's list of streams.
    position: u32,
    /// Closed loop: the worker that issued the request.
    worker: u32,
    /// The stream's identifier on the connection.
    number: u32,
    request: Option<InFlightRequest>,
    needs: Needs,
    head: Vec<u8>,
    body: Vec<u8>,
    body_length: u64,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Free,
    /// The connection is not ready, or has reached the server's limit of streams.
    Waiting,
    /// Open is in the action queue.
    Due,
    /// The driver has fetched Open.
    Open,
}

/// The streams of a connection.
#[derive(Debug, Default)]
struct StreamConnection {
    /// All streams of the connection.
    streams: Vec<u32>,
    /// Streams that wait for the server's limit.
    waiting: VecDeque<u32>,
    /// Number of open streams.
    open: u32,
    /// Closed loop: workers that wait for the server's limit.
    waiting_workers: Vec<u32>,
    /// The server's limit of concurrent streams.
    limit: u32,
    /// The stream for whose request the connection was opened.
    opener: Option<StreamKey>,
    /// Whether the connection is in the list `available`.
    is_available: bool,
    /// Whether the connection takes no more streams, for example after GOAWAY.
    going_away: bool,
    /// Whether the server sent GOAWAY because of an error.
    went_away_with_error: bool,
    /// Whether bytes arrived since a stream was opened on the idle connection.
    received_since_idle: bool,
    /// Closed loop: its index in `positions`.
    position: Option<u32>,
}

/// Marks the absence of a connection.
const NONE: u32 = u32::MAX;

impl Streams {
    pub(super) fn new(spec: &LoadSpec, endpoints: usize) -> Self {
        let on = matches!(spec.version, HttpVersion::Http2 | HttpVersion::Http3);
        let of = |number: usize| if on { number } else { 0 };
        Streams {
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: Queues::new(),
            stream_connections: Vec::new(),
            available: IdleByClient::new(if on { spec.clients } else { 0 }),
            positions: vec![NONE; of(spec.connections_max as usize * endpoints)],
            limits: vec![DEFAULT_STREAM_LIMIT; of(endpoints)],
            fields: fields::Fields::new(of(spec.workload.requests.len())),
        }
    }

    /// The earliest response deadline.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.next_deadline()
    }

    /// The requests of all streams.
    pub(super) fn requests(&self) -> impl Iterator<Item = &InFlightRequest> {
        self.slots.iter().filter_map(|stream| stream.request.as_ref())
    }

    fn key(&self, index: u32) -> StreamKey {
        StreamKey { index, generation: self.slots[index as usize].generation }
    }

    fn find(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let stream = self.slots.get_mut(key.index as usize)?;
        (stream.generation == key.generation && stream.state != StreamState::Free).then_some(stream)
    }

    fn at(&mut self, index: u32) -> &mut Stream {
        &mut self.slots[index as usize]
    }

    fn stream_connection(&mut self, connection: u32) -> &mut StreamConnection {
        let index = connection as usize;
        if self.stream_connections.len() <= index {
            self.stream_connections.resize_with(index + 1, StreamConnection::default);
        }
        &mut self.stream_connections[index]
    }

    /// Initialises a slot for a request on a connection, and returns its index.
    fn take(&mut self, connection: u32, worker: u32, request: InFlightRequest, needs: Needs) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Stream {
                generation: 0,
                state: StreamState::Free,
                connection: NONE,
                position: 0,
                worker: 0,
                number: 0,
                request: None,
                needs: Needs::default(),
                head: Vec::new(),
                body: Vec::new(),
                body_length: 0,
            });
            (self.slots.len() - 1) as u32
        });
        let stream_connection = self.stream_connection(connection);
        let position = stream_connection.streams.len() as u32;
        stream_connection.streams.push(index);
        let stream = self.at(index);
        stream.state = StreamState::Waiting;
        stream.connection = connection;
        stream.position = position;
        stream.worker = worker;
        stream.number = 0;
        stream.request = Some(request);
        stream.needs = needs;
        stream.head.clear();
        stream.body.clear();
        stream.body_length = 0;
        index
    }

    /// Removes a stream from its connection and frees its slot. Returns connection, worker and request.
    fn release(&mut self, index: u32) -> (u32, u32, Option<InFlightRequest>) {
        self.deadlines.remove(index);
        let stream = self.at(index);
        let (connection, position, state) = (stream.connection, stream.position, stream.state);
        let (worker, request) = (stream.worker, stream.request.take());
        stream.state = StreamState::Free;
        stream.generation = stream.generation.wrapping_add(1);
        // Frees the memory of the body.
        stream.body.shrink_to(0);
        let stream_connection = &mut self.stream_connections[connection as usize];
        if state == StreamState::Open {
            stream_connection.open -= 1;
        }
        if state == StreamState::Waiting {
            stream_connection.waiting.retain(|&other| other != index);
        }
        stream_connection.streams.swap_remove(position as usize);
        if let Some(&moved) = stream_connection.streams.get(position as usize) {
            self.at(moved).position = position;
        }
        self.free.push(index);
        (connection, worker, request)
    }
}
