//! The load as a machine without I/O: told what happened, asked what to do.
//!
//! # The contract with the driver
//!
//! ```text
//!   loop:  wait until next_wake() or something is ready
//!          sampler.sample(now, load.live())           (before each call below that takes a `now`, with the same one, so that a gauge
//!                                                     counts a request as long as its record does: see GaugeSampler)
//!          handle_time(now)                           arrivals that are due, timeouts
//!          handle_connected / handle_secured / handle_sent / handle_bytes / handle_eof / handle_failure, for what is ready
//!          while let Some(action) = poll_action(now)  Connect, Send, Close: do it; poll_follow_up while there are
//!                                                     answers to read, so that they free connections first
//!          take_records, take_connections             to the tally and the run store
//! ```
//!
//! - `now` never goes back from one call to the next.
//! - Every `Connect` is answered by `handle_connected` or `handle_failure`, at once if need be, and is followed,
//!   sooner or later, by exactly one `Close` with the same key, whatever happened in between. The driver closes the
//!   socket then and only then. After that the key is void, and calls with it are ignored.
//! - A connection to a secure target ([`Target::secure`](crate::Target)) is shaken hands on by the driver after
//!   `handle_connected`, and said so with `handle_secured`; the engine hears only what is inside TLS. When the server
//!   ends, `handle_close_notify` comes before `handle_eof`; where it did not come, `handle_truncated` instead.
//! - `Send` names the whole request. The driver writes what the kernel takes and says so with `handle_sent`; while
//!   [`Load::unsent`] is not empty it writes on when the socket is writable.
//! - After the end the driver calls [`Load::abort`] and carries out the Closes.
//!
//! # When a request starts, ends, and is tried again
//!
//! It starts when its Connect is handed out, or its Send on an open connection. It ends with the last byte of its
//! response, or with a failure, recorded at the time of the failure (for a timeout: at the timeout). A persistent connection
//! that the server closed before the first byte of the response may have been closed before the request arrived: a race
//! between the server's idle timeout and the request. Where that is certain ([`Retry::IdleRace`](crate::Retry)) the request
//! is sent once more on a fresh connection and counted as retried; otherwise it has failed. A retried request keeps
//! `scheduled_at` and `started_at`; its `connected_at` and `secured_at` stay empty, so that connect times are those of single
//! handshakes; `attempts` says how often it was sent.
//!
//! A connection that is not to be reused is closed by the client as soon as its response is complete. A response that is whole
//! before the server has received the whole request (`early_response`) ends its request and its connection.
//!
//! # What follows from a response
//!
//! Redirects that are followed, embedded objects and the next steps of sessions are requests like any other: each has its
//! own record, is intended when it is due by the plan (at the end of the hop before, of the page, of the think time), and
//! finds its connection as an arrival does. Nothing is intended after the end of the phase. Numbers are then given in the
//! order in which requests come to be intended; one that follows from a response is intended when that response is
//! handled, arrivals at the next [`Load::handle_time`].
//!
//! Only what the workload looks at is kept: heads where it wants cookies, redirects or values, bodies (up to
//! [`BODY_KEPT_MAX`](crate::http1::BODY_KEPT_MAX)) where it wants values or checks them. A body is looked at as it came:
//! chunks put together, Content-Encoding not undone. A response that is not as expected fails its request; its
//! status and sizes stay in the record, and its connection stays.
//!
//! A request whose bytes are always the same is written once and for all, with the first 65536 of the workload; any
//! other is written into its connection's memory when it is sent, and kept there until it has ended.
//!
//! The asks of a workload are written when they are sent, and what comes back is looked at where it lies, head and body; nothing of
//! it is kept but one [`CacheExchange`](schema::CacheExchange) a request, beside its record ([`Load::take_exchanges`]).
//!
//! Code map: [`Load`]'s entry points are in `input`, `output` and `ending`; `dispatch` finds a connection for a request,
//! `closing` ends requests and connections, `evaluation` says what a response is found to be and what follows from it,
//! `workload_requests` makes the requests of cache workloads,
//! `sessions` carries out sessions, `closed_loop` and `users` are the two closed loops, `streams` is HTTP/2.

mod closed_loop;
mod closing;
mod dispatch;
mod ending;
mod evaluation;
mod input;
mod open_connections;
mod output;
mod sessions;
mod streams;
mod tunnel;
mod users;
mod workload_requests;

use std::collections::VecDeque;
use std::time::Duration;

use schema::document::MalformedResponses;
use schema::{CacheExchange, RequestRecord};
use stats::Rng;
use units::Timestamp;

pub use input::RACE_MARGIN;
pub use output::Action;
pub use streams::{RequestHead, StreamFailure, StreamKey};

use crate::choice::Chooser;
use crate::connection::{ConnectionEnd, ConnectionKey, State};
use crate::due::DueHeap;
use crate::faults::Faults;
use crate::idle::IdleByClient;
use crate::in_flight::Purposes;
use crate::live::Live;
use crate::phase::Phase;
use crate::pool::Pool;
use crate::prepared::Prepared;
use crate::queues::Queues;
use crate::spec::{HttpVersion, LoadSpec};
use crate::target::Target;
use crate::turns::Turns;
use crate::virtual_users::VirtualUsers;
use crate::workload::Choice;
use crate::workload::cookie::Jars;
use closed_loop::Workers;
use dispatch::Waiting;
use evaluation::Outline;
use open_connections::OpenConnections;
use output::Pending;
use sessions::Sessions;
use streams::Streams;
use users::Users;

/// The load engine.
#[derive(Debug)]
pub struct Load {
    spec: LoadSpec,
    /// The bytes of the requests that are always the same.
    prepared: Prepared,
    /// Of each request of the workload, what is needed at every turn.
    outlines: Vec<Outline>,
    /// The different hosts and ports.
    targets: Vec<Target>,
    start: Timestamp,
    phase: Phase,
    arrivals: Loop,
    /// Which request an arrival asks for.
    chooser: Chooser,
    /// Virtual users of a cache workload, which replace the requests of arrivals.
    virtual_users: Option<Box<VirtualUsers>>,
    /// Seed of what is drawn in requests that are part of no session.
    places_seed: u64,
    sessions: Sessions,
    purposes: Purposes,
    due: DueHeap,
    cookies: Jars,
    /// Requests follow from responses: sessions, redirects.
    follows_up: bool,
    /// The cap on open connections.
    connections_most: u32,
    pool: Pool,
    queues: Queues,
    idle: IdleByClient,
    backlog: VecDeque<Waiting>,
    /// Connections opened before the load.
    open_connections: OpenConnections,
    /// Requests on connections that carry several.
    streams: Streams,
    /// Every connection was busy when the first of the backlog was to be placed, and none has become free since.
    stuck: bool,
    /// The backlog waits behind the cap on connections.
    capped: bool,
    actions: VecDeque<Pending>,
    records: Vec<RequestRecord>,
    exchanges: Vec<CacheExchange>,
    ends: Vec<ConnectionEnd>,
    /// Why responses of the measured phase could not be read.
    faults: Faults,
    live: Live,
    /// Longest time from start to end of a request that was answered.
    service_time_max: Duration,
    /// Idle connections were watched after the last request had ended.
    idle_watched: bool,
    last_done_at: Timestamp,
    first_head: Option<Box<[u8]>>,
}

/// What makes requests.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, and every turn looks into it")]
enum Loop {
    Open(Turns),
    Closed(Workers),
    /// Closed, of sessions.
    Users(Users),
}

impl Load {
    /// A load that begins at `start`, with its warm-up if it has one.
    ///
    /// # Panics
    /// Without a request, or with more than 65535 different hosts and ports; with a cache workload in a closed loop
    /// or over HTTP/2, or with fewer requests than the cache workload has kinds.
    pub fn new(mut spec: LoadSpec, start: Timestamp) -> Self {
        assert!(!spec.workload.requests.is_empty(), "at least one request");
        spec.clients = spec.clients.max(1);
        spec.connections_max = spec.connections_max.max(1);
        let workload = &spec.workload;
        let (targets, endpoints) = workload.endpoints();
        let outlines = workload.requests.iter().zip(endpoints);
        let outlines = outlines.map(|(request, endpoint)| Outline::new(request, endpoint, workload.cookies)).collect();
        let chooser = match workload.choice {
            Choice::Drawn => Chooser::drawn(workload.requests.iter().map(|it| it.weight), spec.seed, "request choice"),
            Choice::InTurn | Choice::Sessions(_) | Choice::Mix(_) => Chooser::in_turn(workload.requests.len()),
        };
        let virtual_users = match &workload.choice {
            Choice::Mix(mix) => {
                assert!(spec.arrivals.is_open() && spec.version != HttpVersion::Http2, "an open loop over HTTP/1");
                assert!(workload.requests.len() >= mix.requests(), "a request for each kind");
                Some(Box::new(VirtualUsers::new(mix.clone(), spec.clients, spec.seed)))
            }
            Choice::InTurn | Choice::Drawn | Choice::Sessions(_) => None,
        };
        let follows_up = workload.has_follow_ups();
        let lane = spec.lane;
        let (arrivals, requests_max) = match Turns::new(&spec.arrivals, start, spec.seed, spec.clients, lane) {
            // Every shard counts all arrivals.
            Some(turns) if !follows_up => (Loop::Open(turns), spec.requests_max),
            Some(turns) => (Loop::Open(turns), spec.requests_max.map(|requests| lane.share(requests))),
            None if matches!(spec.workload.choice, Choice::Sessions(_)) => {
                let users = Users::new(spec.connections_max, spec.clients, lane);
                (Loop::Users(users), spec.requests_max.map(|requests| lane.share(requests)))
            }
            None => {
                let workers = Workers::new(spec.connections_max, spec.streams_most(), spec.clients, lane);
                (Loop::Closed(workers), spec.requests_max.map(|requests| lane.share(requests)))
            }
        };
        let streams = Streams::new(&spec, targets.len());
        let mut load = Load {
            prepared: Prepared::new(&spec),
            outlines,
            targets,
            start,
            phase: Phase::new(start + spec.warmup, spec.duration, requests_max),
            arrivals,
            chooser,
            virtual_users,
            places_seed: Rng::named(spec.seed, "places").next(),
            sessions: Sessions::new(&spec.workload, spec.seed),
            purposes: Purposes::default(),
            due: DueHeap::default(),
            cookies: Jars::default(),
            follows_up,
            connections_most: spec.connections_most(),
            pool: Pool::default(),
            queues: Queues::new(),
            idle: IdleByClient::new(spec.clients),
            backlog: VecDeque::new(),
            open_connections: OpenConnections::default(),
            streams,
            stuck: false,
            capped: false,
            actions: VecDeque::new(),
            records: Vec::new(),
            exchanges: Vec::new(),
            ends: Vec::new(),
            faults: Faults::default(),
            live: Live::default(),
            service_time_max: Duration::ZERO,
            idle_watched: false,
            last_done_at: start,
            first_head: None,
            spec,
        };
        load.pass_over();
        load.invite_users();
        load
    }

    fn has_sessions(&self) -> bool {
        matches!(self.spec.workload.choice, Choice::Sessions(_))
    }

    /// Seed of what is drawn in a request that is part of no session.
    fn request_seed(&self, sequence: u64) -> u64 {
        Rng::new(self.places_seed, sequence).next()
    }

    /// When [`Self::handle_time`] must be called next, whatever else happens: the next arrival, timeout, or the end of
    /// the measured phase. In the past if there is more to do at once. `None` when only the network can move things.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let arrival = match &self.arrivals {
            Loop::Open(turns) => Some(turns.next()).filter(|&at| self.phase.admits(at)),
            Loop::Closed(workers) => workers.next_wake(self.start).filter(|&at| self.phase.admits(at)),
            Loop::Users(_) => None,
        };
        let follow_up = self.due.next().filter(|&at| self.phase.admits(at));
        let end = self.phase.end().filter(|_| !self.phase.is_over());
        let held = self.held_next();
        let idle = (self.is_at_rest() && !self.is_idle_watched()).then(|| self.idle_watch_end());
        [arrival, follow_up, end, held, idle, self.queues.next_deadline(), self.streams.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sequence number in the run of a connection that is not closed: what its requests' records and its own end say.
    pub fn connection_number(&self, key: ConnectionKey) -> Option<u64> {
        self.pool.find(key).map(|connection| connection.number)
    }

    /// Whether a connection is established and waits for its TLS handshake, to be told with
    /// [`Self::handle_secured`].
    pub fn wants_handshake(&self, key: ConnectionKey) -> bool {
        self.pool.find(key).is_some_and(|connection| connection.state == State::Securing)
    }

    /// The different hosts and ports: what [`Action::Connect`] names by its index.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether it is a closed loop: a request is intended when the one before has ended.
    pub fn is_closed(&self) -> bool {
        !matches!(self.arrivals, Loop::Open(_))
    }

    /// Counters as they stand.
    #[inline]
    pub fn live(&self) -> Live {
        self.live
    }

    /// Whether the schedule is over, every request has ended, and idle connections were watched for a while for responses
    /// that no request asked for. They may still be open: [`Self::abort`] closes them.
    pub fn finished(&self) -> bool {
        self.phase.is_over()
            && self.live.in_flight == 0
            && self.live.backlog == 0
            && self.is_idle_watched()
            && self.holds_nothing()
    }

    /// The measured phase, `[start, end)`. The end is `None` while nobody can know it (no duration, or a closed loop
    /// that counts requests); it may still come earlier than first said, by [`Self::stop`] or by `requests_max`.
    ///
    /// With `requests_max` n, the phase of an open loop ends when request n + 1 would have been intended, and that of
    /// a closed loop just after the last of the n requests has ended: of this shard's share of them, so that the phase of
    /// the run ends with the last shard's. That of an open loop ends for every shard at the same moment, but where requests
    /// follow from responses: then a shard has its share here, too.
    pub fn measured(&self) -> (Timestamp, Option<Timestamp>) {
        (self.phase.start(), self.phase.end())
    }

    /// Requests scheduled in the measured phase that have not ended.
    pub fn unfinished_measured(&self) -> u64 {
        let measured = |scheduled_at: Timestamp| scheduled_at >= self.phase.start();
        let held = self.pool.iter().filter_map(|(_, connection)| connection.request.as_ref());
        let held = held.chain(self.streams.requests());
        let held = held.filter(|request| measured(request.record.scheduled_at)).count();
        let waiting = self.backlog.iter().filter(|waiting| measured(waiting.scheduled_at)).count();
        (held + waiting) as u64
    }

    /// The head of the first response of the run that was whole, as it came, with its empty line.
    pub fn first_head(&self) -> Option<&[u8]> {
        self.first_head.as_deref()
    }

    /// Why responses to requests of the measured phase could not be read, by reason.
    pub fn malformed_responses(&self) -> Vec<MalformedResponses> {
        self.faults.parts()
    }

    /// The request of a connection is about to fail: notes why its response could not be read, if that is the cause.
    fn note_fault(&mut self, index: u32) {
        let connection = self.pool.slot(index);
        if let (Some(request), Some(fault)) = (&connection.request, connection.response.fault())
            && request.record.scheduled_at >= self.phase.start()
        {
            self.faults.note(fault);
        }
    }

    /// Moves the requests that have ended since the last call to the end of `into`, in the order in which they ended.
    pub fn take_records(&mut self, into: &mut Vec<RequestRecord>) {
        hand_over(&mut self.records, into);
    }

    /// What the replies of a workload said of themselves, of the requests that have ended since the last call, in the order in
    /// which they ended; nothing where the load is no mix.
    pub fn take_exchanges(&mut self) -> std::vec::Drain<'_, CacheExchange> {
        self.exchanges.drain(..)
    }

    /// Moves the connections that have ended since the last call to the end of `into`.
    pub fn take_connections(&mut self, into: &mut Vec<ConnectionEnd>) {
        hand_over(&mut self.ends, into);
    }
}

/// Moves all of `from` to the end of `into`; into an empty one without touching what there is.
fn hand_over<T>(from: &mut Vec<T>, into: &mut Vec<T>) {
    if into.is_empty() { std::mem::swap(from, into) } else { into.append(from) }
}
