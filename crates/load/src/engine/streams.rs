//! HTTP/2: connections that carry several requests at once, each on a stream of its own.
//!
//! ```text
//!   request --> its client's connection with a free stream
//!           --> else one that is being opened, with room: it waits there
//!           --> else a new connection, under the cap; else the backlog
//! ```
//!
//! A request on a stream is kept here ([`Stream`]), not with its connection: there, [`Connection::request`] stays empty,
//! and once it is ready for requests its state is [`State::Carrying`]. What follows from the end of a request (records,
//! checks, sessions) is the same as for HTTP/1: `evaluation`.
//!
//! - `started_at` is when Connect was handed out, or when the request joined a connection that was being opened, or when
//!   it was handed out itself ([`Action::Open`](super::Action::Open)). So the wait for somebody else's handshake is in the
//!   service time, and send lag is the generator's own. `connected_at` and `secured_at` belong to the request that opened
//!   the connection.
//! - A stream counts from the request's start to its end. There are never more open than the server allows
//!   (SETTINGS_MAX_CONCURRENT_STREAMS). Until a server has said so, up to 100 are taken for granted, as RFC 9113
//!   (section 6.5.2) recommends, or what it said on the connection before.
//! - In the closed loop a connection has as many places as [`LoadSpec::streams_max`](crate::LoadSpec::streams_max); those
//!   beyond what the server allows stay empty.
//! - A stream that the server did not take up (above GOAWAY's last stream, or REFUSED_STREAM) is tried again once,
//!   whatever its method: RFC 9113, section 8.7. So is an idempotent request that crossed the server's close of an idle
//!   connection, as with HTTP/1. [`Retry::Never`](crate::Retry) turns both off.
//! - A response that ends before its request was sent whole is early (`early_response`); the stream is over, the connection
//!   stays.
//!
//! Code map: `place` finds a connection, `answer` is what streams bring, `trunk` what happens to whole connections.

mod answer;
mod fields;
mod place;
mod trunk;

use std::collections::VecDeque;

use units::Timestamp;

pub use fields::RequestHead;

use super::evaluation::Wants;
use crate::idle::IdleByClient;
use crate::in_flight::InFlightRequest;
use crate::queues::Queues;
use crate::spec::{HttpVersion, LoadSpec};

/// Names a stream between [`Load`](crate::Load) and its driver. Calls with the key of a stream that has ended are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Why a stream brought no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The server has not taken it up (RST_STREAM with REFUSED_STREAM).
    Refused,
    /// For this cause.
    Failed(schema::FailureCause),
}

/// Streams that a server is taken to allow before it has said how many.
const LIMIT_ASSUMED: u32 = 100;

/// Everything about streams.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// By response deadline, over `slots`.
    deadlines: Queues,
    /// By index of the connection.
    trunks: Vec<Trunk>,
    /// Connections with room, open or being opened.
    roomy: IdleByClient,
    /// Closed loop: the connection of each position to each endpoint.
    positions: Vec<u32>,
    /// By endpoint: what the server allowed last.
    limits: Vec<u32>,
    fields: fields::Fields,
}

/// A request on its stream, or on the way to one.
#[derive(Debug)]
struct Stream {
    generation: u32,
    state: Being,
    /// Index of its connection.
    connection: u32,
    /// Its place among the connection's streams.
    place: u32,
    /// Closed loop: which worker's request it is.
    worker: u32,
    /// Its identifier on the connection.
    number: u32,
    request: Option<InFlightRequest>,
    wants: Wants,
    head: Vec<u8>,
    body: Vec<u8>,
    body_length: u64,
}

/// Where a stream is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Being {
    Free,
    /// Its connection is not ready, or the server allows no more streams for now.
    Waiting,
    /// Open is in the action queue.
    Due,
    /// Open was handed out.
    Open,
}

/// What a connection with streams has besides.
#[derive(Debug, Default)]
struct Trunk {
    /// All of its streams.
    streams: Vec<u32>,
    /// Those that wait for the server to allow more.
    waiting: VecDeque<u32>,
    /// Those handed out.
    open: u32,
    /// Closed loop: workers that wait for the server to allow more.
    parked: Vec<u32>,
    /// What the server allows.
    limit: u32,
    /// The stream whose request it was opened for.
    opener: Option<StreamKey>,
    /// It is in `roomy`.
    roomy: bool,
    /// The server takes no more streams.
    leaving: bool,
    /// For an error.
    leaving_for_error: bool,
    /// Something came since a stream was opened on it when it had none.
    heard: bool,
    /// Closed loop: its place in `positions`.
    position: Option<u32>,
}

/// No connection.
const NONE: u32 = u32::MAX;

impl Streams {
    pub(super) fn new(spec: &LoadSpec, endpoints: usize) -> Self {
        let on = spec.version == HttpVersion::Http2;
        let of = |number: usize| if on { number } else { 0 };
        Streams {
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: Queues::new(),
            trunks: Vec::new(),
            roomy: IdleByClient::new(if on { spec.clients } else { 0 }),
            positions: vec![NONE; of(spec.connections_max as usize * endpoints)],
            limits: vec![LIMIT_ASSUMED; of(endpoints)],
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
        (stream.generation == key.generation && stream.state != Being::Free).then_some(stream)
    }

    fn at(&mut self, index: u32) -> &mut Stream {
        &mut self.slots[index as usize]
    }

    fn trunk(&mut self, connection: u32) -> &mut Trunk {
        let index = connection as usize;
        if self.trunks.len() <= index {
            self.trunks.resize_with(index + 1, Trunk::default);
        }
        &mut self.trunks[index]
    }

    /// A slot for a request on a connection, as new.
    fn take(&mut self, connection: u32, worker: u32, request: InFlightRequest, wants: Wants) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Stream {
                generation: 0,
                state: Being::Free,
                connection: NONE,
                place: 0,
                worker: 0,
                number: 0,
                request: None,
                wants: Wants::default(),
                head: Vec::new(),
                body: Vec::new(),
                body_length: 0,
            });
            (self.slots.len() - 1) as u32
        });
        let trunk = self.trunk(connection);
        let place = trunk.streams.len() as u32;
        trunk.streams.push(index);
        let stream = self.at(index);
        stream.state = Being::Waiting;
        stream.connection = connection;
        stream.place = place;
        stream.worker = worker;
        stream.number = 0;
        stream.request = Some(request);
        stream.wants = wants;
        stream.head.clear();
        stream.body.clear();
        stream.body_length = 0;
        index
    }

    /// Takes a stream off its connection and gives its slot back.
    fn release(&mut self, index: u32) -> (u32, u32, Option<InFlightRequest>) {
        self.deadlines.remove(index);
        let stream = self.at(index);
        let (connection, place, state) = (stream.connection, stream.place, stream.state);
        let (worker, request) = (stream.worker, stream.request.take());
        stream.state = Being::Free;
        stream.generation = stream.generation.wrapping_add(1);
        // What a large body took is not kept for those without.
        stream.body.shrink_to(0);
        let trunk = &mut self.trunks[connection as usize];
        if state == Being::Open {
            trunk.open -= 1;
        }
        if state == Being::Waiting {
            trunk.waiting.retain(|&other| other != index);
        }
        trunk.streams.swap_remove(place as usize);
        if let Some(&moved) = trunk.streams.get(place as usize) {
            self.at(moved).place = place;
        }
        self.free.push(index);
        (connection, worker, request)
    }
}
