//! The load engine: a state machine without I/O that takes events and returns actions.
//!
//! # The contract with the driver
//!
//! ```text
//!   loop:  wait until next_wake() or something is ready
//!          sampler.sample(now, load.live())           (before each call below that takes a `now`, with the same `now`,
//!                                                     so that gauges and records agree: see GaugeSampler)
//!          handle_time(now)                           arrivals that are due, timeouts
//!          handle_connected, handle_secured, handle_sent, handle_bytes, handle_eof, handle_failure: for each event
//!          while let Some(action) = poll_action(now)  carry out Connect, Send, Close; poll_follow_up instead while
//!                                                     there are responses to read, which free connections first
//!          take_records, take_connections             for the tally and the run store
//! ```
//!
//! - `now` never decreases from one call to the next.
//! - The driver reports the result of every `Connect` with `handle_connected` or `handle_failure`, possibly before the
//!   next call. Every `Connect` is followed by exactly one `Close` with the same key, whatever happens in between. Only
//!   then does the driver close the socket. After that the key is void, and calls with it are ignored.
//! - On a connection to a secure target ([`Target::secure`](crate::Target)) the driver makes the TLS handshake after
//!   `handle_connected`, and reports its end with `handle_secured`. The engine receives only the data inside TLS. When
//!   the server closes, `handle_close_notify` comes before `handle_eof`; without close_notify, `handle_truncated`
//!   replaces both.
//! - `Send` contains the whole request. The driver writes what the kernel accepts and reports it with `handle_sent`;
//!   while [`Load::unsent`] is not empty it writes the rest whenever the socket is writable.
//! - At the end the driver calls [`Load::abort`] and carries out the Closes.
//!
//! # When a request starts and ends, and when it is retried
//!
//! A request starts when the driver fetches its Connect, or its Send on an open connection. It ends with the last byte
//! of its response, or with a failure, recorded at the time of the failure (for a timeout: at the timeout). If the
//! server closes a persistent connection before the first byte of the response, it may have closed it before the
//! request arrived: a race between the server's idle timeout and the request. If the race is certain
//! ([`Retry::IdleRace`](crate::Retry)), the request is sent once more on a new connection and counted as retried;
//! otherwise it fails. A retried request keeps `scheduled_at` and `started_at`. Its `connected_at` and `secured_at`
//! stay empty, so that connect times are those of single handshakes. `attempts` is the number of times it was sent.
//!
//! Without connection reuse the client closes a connection as soon as its response is complete. A response that is
//! complete before the server has received the whole request (`early_response`) ends its request and its connection.
//!
//! # Follow-up requests
//!
//! Hops of redirects, embedded objects and the next steps of sessions are requests like any other. Each has its own
//! record, is scheduled at the end of the hop before, of the page or of the think time, and finds its connection as an
//! arrival does. No request is scheduled after the end of the measured phase. With follow-ups, sequence numbers are
//! assigned in the order in which requests are scheduled: a follow-up when its response is handled, arrivals at the
//! next [`Load::handle_time`].
//!
//! The engine stores only the parts of a response that the workload needs: heads for cookies, redirects or extracted
//! values, bodies (up to [`BODY_STORED_MAX`](crate::http1::BODY_STORED_MAX)) for extracted values or checks. Chunks of
//! a body are joined; its Content-Encoding is not decoded. An unexpected response fails its request; its status and
//! sizes stay in the record, and its connection stays open.
//!
//! A request whose bytes are always the same is written once in advance, if it is among the first 65536 of the
//! workload. Any other request is written into its connection's buffer when it is sent, and stays there until it has
//! ended.
//!
//! Requests of a cache workload are written when they are sent, and their responses are verified in place, head and
//! body. Of each response only a [`CacheExchange`](schema::CacheExchange) is stored, in addition to the request's
//! record ([`Load::take_exchanges`]).
//!
//! Code map: [`Load`]'s entry points are in `input`, `output` and `ending`; `dispatch` finds a connection for a
//! request, `closing` ends requests and connections, `evaluation` evaluates responses and schedules follow-ups,
//! `workload_requests` makes the requests of cache workloads, `sessions` runs sessions, `closed_loop` and `users` are
//! the two closed loops, `streams` is HTTP/2 and HTTP/3.

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

use crate::arrival_source::ArrivalSource;
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
use crate::spec::LoadSpec;
use crate::target::Target;
use crate::virtual_users::VirtualUsers;
use crate::workload::Choice;
use crate::workload::cookie::Jars;
use closed_loop::Workers;
use dispatch::BacklogRequest;
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
    /// The bytes of requests that are the same every time.
    prepared: Prepared,
    /// By request of the workload: the properties that every arrival needs.
    outlines: Vec<Outline>,
    /// The different hosts and ports.
    targets: Vec<Target>,
    start: Timestamp,
    phase: Phase,
    arrivals: Loop,
    /// Arrivals of the measured phase in the whole schedule so far, those of other shards included.
    arrivals_measured: u64,
    /// Chooses the request of an arrival.
    chooser: Chooser,
    /// Virtual users of a cache workload, which choose the requests of arrivals.
    virtual_users: Option<Box<VirtualUsers>>,
    /// Seed of the random placeholders in requests outside of sessions.
    placeholder_seed: u64,
    sessions: Sessions,
    purposes: Purposes,
    due: DueHeap,
    cookies: Jars,
    /// Whether responses lead to further requests: sessions, redirects.
    follows_up: bool,
    /// Maximum open connections.
    connections_limit: u32,
    pool: Pool,
    queues: Queues,
    idle: IdleByClient,
    backlog: VecDeque<BacklogRequest>,
    /// Idle connections opened before the load.
    open_connections: OpenConnections,
    /// Requests on HTTP/2 and HTTP/3 connections.
    streams: Streams,
    /// Whether every connection was busy at the last attempt to dispatch from the backlog, and none has become free
    /// since.
    all_busy: bool,
    /// Whether the backlog waits because the maximum of open connections is reached.
    capped: bool,
    actions: VecDeque<Pending>,
    records: Vec<RequestRecord>,
    exchanges: Vec<CacheExchange>,
    ends: Vec<ConnectionEnd>,
    /// Why responses of the measured phase were malformed.
    faults: Faults,
    live: Live,
    /// Longest time from start to end of a completed request.
    service_time_max: Duration,
    /// Whether idle connections were watched for unsolicited responses after the last request had ended.
    idle_watched: bool,
    last_done_at: Timestamp,
    first_head: Option<Box<[u8]>>,
}

/// The load model, which decides when requests are scheduled.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a load has one value, which every arrival reads")]
enum Loop {
    Open(ArrivalSource),
    Closed(Workers),
    /// Closed loop of sessions.
    Users(Users),
}

impl Load {
    /// A load that begins at `start`, with its warm-up if the spec has one.
    ///
    /// # Panics
    /// If the spec has no request or more than 65535 different hosts and ports, or has a cache workload in a closed
    /// loop, over HTTP/2 or HTTP/3, or with fewer requests than kinds.
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
            Choice::InTurn | Choice::Sessions(_) | Choice::CacheWorkload(_) => {
                Chooser::in_turn(workload.requests.len())
            }
        };
        let virtual_users = match &workload.choice {
            Choice::CacheWorkload(cache_load) => {
                assert!(spec.arrivals.is_open() && spec.version.is_http1(), "an open loop over HTTP/1");
                assert!(workload.requests.len() >= cache_load.requests(), "a request for each kind");
                Some(Box::new(VirtualUsers::new(cache_load.clone(), spec.clients, spec.seed)))
            }
            Choice::InTurn | Choice::Drawn | Choice::Sessions(_) => None,
        };
        let follows_up = workload.has_follow_ups();
        let shard = spec.shard;
        let (arrivals, requests_max) = match ArrivalSource::new(&spec.arrivals, start, spec.seed, spec.clients, shard) {
            // Every shard counts all arrivals.
            Some(source) if !follows_up => (Loop::Open(source), spec.requests_max),
            Some(source) => (Loop::Open(source), spec.requests_max.map(|requests| shard.share(requests))),
            None if matches!(spec.workload.choice, Choice::Sessions(_)) => {
                let users = Users::new(spec.connections_max, spec.clients, shard);
                (Loop::Users(users), spec.requests_max.map(|requests| shard.share(requests)))
            }
            None => {
                let workers = Workers::new(spec.connections_max, spec.streams_limit(), spec.clients, shard);
                (Loop::Closed(workers), spec.requests_max.map(|requests| shard.share(requests)))
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
            arrivals_measured: 0,
            chooser,
            virtual_users,
            placeholder_seed: Rng::named(spec.seed, "places").next(),
            sessions: Sessions::new(&spec.workload, spec.seed),
            purposes: Purposes::default(),
            due: DueHeap::default(),
            cookies: Jars::default(),
            follows_up,
            connections_limit: spec.connections_limit(),
            pool: Pool::default(),
            queues: Queues::new(),
            idle: IdleByClient::new(spec.clients),
            backlog: VecDeque::new(),
            open_connections: OpenConnections::default(),
            streams,
            all_busy: false,
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
        load.skip_other_shards();
        load.schedule_users();
        load
    }

    fn has_sessions(&self) -> bool {
        matches!(self.spec.workload.choice, Choice::Sessions(_))
    }

    /// Seed of the random placeholders in a request outside of sessions.
    fn request_seed(&self, sequence: u64) -> u64 {
        Rng::new(self.placeholder_seed, sequence).next()
    }

    /// When [`Self::handle_time`] must be called next at the latest: the next arrival, timeout, or the end of the
    /// measured phase. In the past if there is more to do now. `None` if the engine waits only for the network.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let arrival = match &self.arrivals {
            Loop::Open(source) => Some(source.next()).filter(|&at| self.phase.admits(at)),
            Loop::Closed(workers) => workers.next_wake(self.start).filter(|&at| self.phase.admits(at)),
            Loop::Users(_) => None,
        };
        let follow_up = self.due.next().filter(|&at| self.phase.admits(at));
        let end = self.phase.end().filter(|_| !self.phase.is_over());
        let idle_change = self.next_idle_change();
        let idle = (self.is_at_rest() && !self.is_idle_watched()).then(|| self.idle_watch_end());
        [arrival, follow_up, end, idle_change, idle, self.queues.next_deadline(), self.streams.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sequence number in the run of an open connection, as in its requests' records and its [`ConnectionEnd`].
    pub fn connection_number(&self, key: ConnectionKey) -> Option<u64> {
        self.pool.find(key).map(|connection| connection.number)
    }

    /// Whether a connection is established and waits for its TLS handshake, whose end the driver reports with
    /// [`Self::handle_secured`].
    pub fn wants_handshake(&self, key: ConnectionKey) -> bool {
        self.pool.find(key).is_some_and(|connection| connection.state == State::Securing)
    }

    /// The different hosts and ports, to which [`Action::Connect`] refers by index.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether requests wait because all connections are busy, as many as may be open.
    pub fn waits_for_connection(&self) -> bool {
        self.capped && self.all_busy
    }

    /// Whether the load is a closed loop, in which a request is scheduled when the one before has ended.
    pub fn is_closed(&self) -> bool {
        !matches!(self.arrivals, Loop::Open(_))
    }

    /// The current counters.
    #[inline]
    pub fn live(&self) -> Live {
        self.live
    }

    /// Whether the schedule is over, every request has ended, and idle connections were watched for unsolicited
    /// responses. Connections may still be open: [`Self::abort`] closes them.
    pub fn finished(&self) -> bool {
        self.phase.is_over()
            && self.live.in_flight == 0
            && self.live.backlog == 0
            && self.is_idle_watched()
            && self.all_idle_closed()
    }

    /// The measured phase, `[start, end)`. The end is `None` while it is unknown (no duration, or a closed loop that
    /// counts requests). A known end may still move to an earlier time, by [`Self::stop`] or by `requests_max`.
    ///
    /// With `requests_max` n, the phase of an open loop ends when request n + 1 would have been scheduled, at the same
    /// time in every shard. The phase of a closed loop ends just after the last of this shard's share of the n requests
    /// has ended, so that the phase of the run ends with the last shard's. An open loop with follow-up requests also
    /// counts by shares.
    pub fn measured(&self) -> (Timestamp, Option<Timestamp>) {
        (self.phase.start(), self.phase.end())
    }

    /// Arrivals of the whole schedule in the measured phase, those of other shards included; `None` for a closed loop,
    /// which has no schedule. Every shard counts the same number, unless its phase was ended early ([`Self::stop`],
    /// [`Self::end_at`]).
    pub fn arrivals_measured(&self) -> Option<u64> {
        matches!(self.arrivals, Loop::Open(_)).then_some(self.arrivals_measured)
    }

    /// Whether requests follow from responses, so that an arrival may be several requests.
    pub fn follows_up(&self) -> bool {
        self.follows_up
    }

    /// Requests scheduled in the measured phase that have not ended.
    pub fn unfinished_measured(&self) -> u64 {
        let measured = |scheduled_at: Timestamp| scheduled_at >= self.phase.start();
        let assigned = self.pool.iter().filter_map(|(_, connection)| connection.request.as_ref());
        let assigned = assigned.chain(self.streams.requests());
        let assigned = assigned.filter(|request| measured(request.record.scheduled_at)).count();
        let waiting = self.backlog.iter().filter(|waiting| measured(waiting.scheduled_at)).count();
        (assigned + waiting) as u64
    }

    /// The unmodified head of the first complete response of the run, with its empty line.
    pub fn first_head(&self) -> Option<&[u8]> {
        self.first_head.as_deref()
    }

    /// Malformed responses to requests of the measured phase, by reason.
    pub fn malformed_responses(&self) -> Vec<MalformedResponses> {
        self.faults.parts()
    }

    /// Records why the response on a connection is malformed, if it is. Called before its request fails.
    fn note_fault(&mut self, index: u32) {
        let connection = self.pool.slot(index);
        if let (Some(request), Some(fault)) = (&connection.request, connection.response.fault())
            && request.record.scheduled_at >= self.phase.start()
        {
            self.faults.note(fault);
        }
    }

    /// Number of records that [`Self::take_records`] would move.
    pub fn finished_records(&self) -> usize {
        self.records.len()
    }

    /// Moves the requests that have ended since the last call to the end of `into`, in the order in which they ended.
    pub fn take_records(&mut self, into: &mut Vec<RequestRecord>) {
        hand_over(&mut self.records, into);
    }

    /// The verified exchanges of the cache workload's requests that have ended since the last call, in the order in
    /// which they ended. Empty for other workloads.
    pub fn take_exchanges(&mut self) -> std::vec::Drain<'_, CacheExchange> {
        self.exchanges.drain(..)
    }

    /// Moves the connections that have ended since the last call to the end of `into`.
    pub fn take_connections(&mut self, into: &mut Vec<ConnectionEnd>) {
        hand_over(&mut self.ends, into);
    }
}

/// Moves all of `from` to the end of `into`, without a copy if `into` is empty.
fn hand_over<T>(from: &mut Vec<T>, into: &mut Vec<T>) {
    if into.is_empty() { std::mem::swap(from, into) } else { into.append(from) }
}
