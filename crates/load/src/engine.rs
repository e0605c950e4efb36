//! The load as a machine without I/O: told what happened, asked what to do.
//!
//! # The contract with the driver
//!
//! ```text
//!   loop:  wait until next_wake() or something is ready
//!          sampler.sample(now, load.live())           (before what happened since is told: see LevelSampler)
//!          handle_time(now)                           arrivals that are due, timeouts
//!          handle_connected / handle_secured / handle_sent / handle_bytes / handle_eof / handle_failure, for what is ready
//!          while let Some(action) = poll_action(now)  Connect, Send, Close: do it
//!          take_records, take_connections             to the tally and the book
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
//! response, or with a failure, recorded at the moment of the failure (for a timeout: at the timeout). If a kept-alive
//! connection turns out to have been closed by the server before the first byte of the response, which is a race
//! between the server's idle timeout and the request and no failure of the server, GET and HEAD are sent once more on
//! a fresh connection. Such a request keeps `intended_at` and `started_at`; its `connected_at` and `secured_at` stay
//! empty, so that connect times are those of single handshakes; its `bytes_sent` counts both.
//!
//! Code map: [`Load`]'s entry points are in `input`, `output` and `ending`; `placing` finds a connection for a request,
//! `closing` ends requests and connections.

mod closed_loop;
mod closing;
mod ending;
mod input;
mod output;
mod placing;

use std::collections::VecDeque;

use ledger::RequestRecord;
use units::Timestamp;

pub use output::Action;

use crate::arrivals::Schedule;
use crate::client_order::ClientOrder;
use crate::connection::{ConnectionEnd, ConnectionKey, State};
use crate::idle::IdleByClient;
use crate::live::Live;
use crate::phase::Phase;
use crate::pool::Pool;
use crate::queues::Queues;
use crate::request;
use crate::spec::LoadSpec;
use crate::target::Target;
use closed_loop::Workers;
use output::Pending;
use placing::Waiting;

/// The load engine.
#[derive(Debug)]
pub struct Load {
    spec: LoadSpec,
    /// The bytes of each request of the workload.
    requests: Vec<Box<[u8]>>,
    /// For each request of the workload, where it goes: an index into `targets`.
    endpoints: Vec<u16>,
    /// The different hosts and ports.
    targets: Vec<Target>,
    start: Timestamp,
    phase: Phase,
    arrivals: Loop,
    clients: ClientOrder,
    pool: Pool,
    queues: Queues,
    idle: IdleByClient,
    backlog: VecDeque<Waiting>,
    actions: VecDeque<Pending>,
    records: Vec<RequestRecord>,
    ends: Vec<ConnectionEnd>,
    live: Live,
    lingering: u64,
    last_done_at: Timestamp,
    first_head: Option<Box<[u8]>>,
}

/// What makes requests.
#[derive(Debug)]
enum Loop {
    Open(Schedule),
    Closed(Workers),
}

impl Load {
    /// A load that begins at `start`, with its warm-up if it has one.
    ///
    /// # Panics
    /// Without a request, or with more than 65535 different hosts and ports.
    pub fn new(mut spec: LoadSpec, start: Timestamp) -> Self {
        assert!(!spec.workload.requests.is_empty(), "at least one request");
        spec.clients = spec.clients.max(1);
        spec.connections_max = spec.connections_max.max(1);
        let requests = spec.workload.requests.iter().map(|request| request::prepare(&spec, request)).collect();
        let (targets, endpoints) = spec.workload.endpoints();
        let arrivals = match Schedule::new(&spec.arrivals, start, spec.seed) {
            Some(schedule) => Loop::Open(schedule),
            None => Loop::Closed(Workers::new(spec.connections_max)),
        };
        Load {
            requests,
            endpoints,
            targets,
            start,
            phase: Phase::new(start + spec.warmup, spec.duration, spec.requests_max),
            arrivals,
            clients: ClientOrder::new(&spec.arrivals, spec.clients, spec.seed),
            pool: Pool::default(),
            queues: Queues::new(),
            idle: IdleByClient::new(spec.clients),
            backlog: VecDeque::new(),
            actions: VecDeque::new(),
            records: Vec::new(),
            ends: Vec::new(),
            live: Live::default(),
            lingering: 0,
            last_done_at: start,
            first_head: None,
            spec,
        }
    }

    /// When [`Self::handle_time`] must be called next, whatever else happens: the next arrival, timeout, or the end of
    /// the measured phase. In the past if there is more to do at once. `None` when only the network can move things.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let arrival = match &self.arrivals {
            Loop::Open(schedule) => Some(schedule.next()).filter(|&at| self.phase.admits(at)),
            Loop::Closed(workers) => workers.next_wake(self.start).filter(|&at| self.phase.admits(at)),
        };
        let end = self.phase.end().filter(|_| !self.phase.is_over());
        [arrival, end, self.queues.next_deadline()].into_iter().flatten().min()
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

    /// Counters as they stand.
    pub fn live(&self) -> Live {
        self.live
    }

    /// Whether the schedule is over, every request has ended, and no connection waits for the server's FIN. Idle
    /// connections may still be open: [`Self::abort`] closes them.
    pub fn finished(&self) -> bool {
        self.phase.is_over() && self.live.in_flight == 0 && self.live.backlog == 0 && self.lingering == 0
    }

    /// The measured phase, `[start, end)`. The end is `None` while nobody can know it (no duration, or a closed loop
    /// that counts requests); it may still come earlier than first said, by [`Self::stop`] or by `requests_max`.
    ///
    /// With `requests_max` n, the phase of an open loop ends when request n + 1 would have been intended, and that of
    /// a closed loop just after the last of the n requests has ended.
    pub fn measured(&self) -> (Timestamp, Option<Timestamp>) {
        (self.phase.start(), self.phase.end())
    }

    /// Requests intended in the measured phase that have not ended.
    pub fn unfinished_measured(&self) -> u64 {
        let measured = |intended_at: Timestamp| intended_at >= self.phase.start();
        let held = self.pool.iter().filter_map(|(_, connection)| connection.request.as_ref());
        let held = held.filter(|request| measured(request.intended_at)).count();
        let waiting = self.backlog.iter().filter(|waiting| measured(waiting.intended_at)).count();
        (held + waiting) as u64
    }

    /// The head of the first response of the run that was whole, as it came, with its empty line.
    pub fn first_head(&self) -> Option<&[u8]> {
        self.first_head.as_deref()
    }

    /// Moves the requests that have ended since the last call to the end of `into`, in the order in which they ended.
    pub fn take_records(&mut self, into: &mut Vec<RequestRecord>) {
        into.append(&mut self.records);
    }

    /// Moves the connections that have ended since the last call to the end of `into`.
    pub fn take_connections(&mut self, into: &mut Vec<ConnectionEnd>) {
        into.append(&mut self.ends);
    }
}
