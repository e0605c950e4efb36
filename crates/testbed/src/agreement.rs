//! Whether load and wire tell the same story, request by request.
//!
//! A request of the load and one of the wire are the same if they are on the same port of the same client, to the same
//! server, and the wire saw the request's first byte between the load's start of it and its end. Requests on one port follow one another
//! (the load does not pipeline), so these spans do not overlap and at most one fits: no counting on order, which one
//! missing record would shift for good.
//!
//! ```text
//!   load:  | started ---------------- done |      | started ---- done |
//!   wire:        first byte .. last byte               first .. last
//! ```
//!
//! For a pair the load's service time must be the wire's and one RTT of the client. The wire's counterpart of `started`
//! is the SYN where the load opened the connection for this request (connect called), else the request's first byte
//! (first write); the counterpart of `done` is the last byte of the response. Both pass the server's end: the first one
//! way after the load's `started`, the last one way before its `done`. So
//!
//! ```text
//!   (done - started) - (last byte - first byte or SYN) = way up + way down = RTT
//! ```
//!
//! whatever the handshake, slow start or the size of the response cost, since the wire saw all of that as well. It holds
//! on links that only delay.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use load::ConnectionEnd;
use schema::{ConnectionRecord, RequestRecord, WireRequest};
use units::Timestamp;

use validity::evidence::Agreed;

use crate::called::Called;
use crate::places::target::Reach;

/// What may wait for its partner at once, both sides together. Partners come within a second; where one witness is silent,
/// memory must not grow for ever.
const WAITING_MAX: usize = 4 << 20;

/// Pairs requests of both witnesses as their records come, in any mixture.
#[derive(Debug)]
pub struct Agreement {
    /// Asked RTT of each client; empty where links do more than delay.
    rtts_ns: Vec<u64>,
    measured_from: Timestamp,
    /// Where each open connection of the load is on the wire.
    ports: HashMap<u64, Place>,
    /// Servers that the wire knows by another address than clients connect to.
    rewritten: HashMap<IpAddr, IpAddr>,
    waiting: HashMap<Place, Waiting>,
    held: usize,
    /// Only connections can be told of: the wire cannot read requests inside TLS.
    connections_only: bool,
    /// First requests of connections, until the connection's record says when its SYN came.
    firsts: HashMap<u64, First>,
    counts: Agreed,
}

/// A client, its port, and the server's address as the wire has it: the kernel gives one port of a client to connections
/// to two servers at once.
type Place = (u32, u16, IpAddr);

#[derive(Debug, Default)]
struct Waiting {
    load: VecDeque<Loaded>,
    wire: VecDeque<Wired>,
}

/// A request by the load's clock.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    started_at: Timestamp,
    done_at: Timestamp,
    completed: bool,
    /// Bytes of the response, head and body.
    bytes: u64,
    status: u16,
    measured: bool,
    /// The connection was opened for it.
    opened: bool,
}

/// A request by the wire's.
#[derive(Clone, Copy, Debug)]
struct Wired {
    connection: u64,
    index: u32,
    first_at: Timestamp,
    last_at: Option<Timestamp>,
    complete: bool,
    response_bytes: u64,
    status: Option<u16>,
    /// When its connection's SYN came, where the connection's record was here before the load's of the request.
    syn_at: Option<Timestamp>,
}

/// A pair that waits for its connection's SYN.
#[derive(Clone, Copy, Debug)]
struct First {
    service_ns: u64,
    last_at: Timestamp,
    rtt_ns: u64,
    /// Where the load did not open the connection for it: when it started there, and when its first byte passed the wire.
    unopened: Option<(Timestamp, Timestamp)>,
}

impl First {
    /// When it began on the wire, of a connection whose SYN came at `syn_at`; `None` where that cannot be told.
    fn began_at(&self, syn_at: Timestamp) -> Option<Timestamp> {
        match self.unopened {
            None => Some(syn_at),
            // The connection stood open already.
            Some((started_at, first_at)) if syn_at < started_at => Some(first_at),
            // It was sent again on a new connection, and its start was on another.
            Some(_) => None,
        }
    }
}

/// What a server may say before it closes a connection that waits for a request (RFC 9110, section 15.5.9): an answer
/// that nobody asked for and nobody counts.
const REQUEST_TIMEOUT: u16 = 408;

impl Agreement {
    /// `rtts_ns`: each client's asked RTT, in client order; empty where a link has a rate, loss or jitter, so that
    /// times cannot be held against it.
    pub fn new(measured_from: Timestamp, rtts_ns: Vec<u64>) -> Self {
        Agreement {
            rtts_ns,
            measured_from,
            ports: HashMap::new(),
            rewritten: HashMap::new(),
            waiting: HashMap::new(),
            held: 0,
            connections_only: false,
            firsts: HashMap::new(),
            counts: Agreed::default(),
        }
    }

    /// Leaves requests alone: where they are inside TLS they would wait for partners in vain.
    pub fn connections_only(self) -> Self {
        Agreement { connections_only: true, ..self }
    }

    /// Knows servers by the addresses that they have on the wire, where the path writes others in their place.
    pub fn with_servers(mut self, reaches: &[Reach]) -> Self {
        self.rewritten = reaches.iter().map(|reach| (reach.connect, reach.at_server())).collect();
        self
    }

    /// Records of the load did not come this way: what is left of the wire's has no partners, and nothing is to be said.
    pub fn overflow(&mut self) {
        self.counts.overflowed = true;
    }

    /// The load called connect on a connection. Before any of its requests.
    pub fn load_called(&mut self, called: &Called) {
        self.counts.load_called += 1;
        let server = self.rewritten.get(&called.server).copied().unwrap_or(called.server);
        self.ports.insert(called.connection, (called.client, called.port, server));
    }

    /// A request of the load ended.
    pub fn load_request(&mut self, record: &RequestRecord) {
        if self.connections_only {
            return;
        }
        let attempts = u64::from(record.attempts);
        self.counts.load_sent += attempts;
        self.counts.load_sent_in_vain += attempts.saturating_sub(u64::from(record.failure.is_none()));
        let (Some(started_at), Some(connection)) = (record.started_at, record.connection) else { return };
        // Without a port there was no socket, so that nothing was sent.
        let Some(&place) = self.ports.get(&connection) else { return };
        let completed = record.failure.is_none();
        self.counts.load_failed += u64::from(!completed);
        let waiting = self.waiting.entry(place).or_default();
        waiting.load.push_back(Loaded {
            started_at,
            done_at: record.done_at,
            completed,
            bytes: record.bytes_received,
            status: record.status,
            measured: record.scheduled_at >= self.measured_from,
            opened: record.connected_at.is_some(),
        });
        self.pushed(place);
    }

    /// A connection of the load ended, after its requests.
    pub fn load_connection(&mut self, end: &ConnectionEnd) {
        if self.ports.remove(&end.connection).is_some() {
            self.counts.load_established += u64::from(end.connected_at.is_some());
        }
    }

    /// A request ended on the wire. `client`: whose it was.
    pub fn wire_request(&mut self, client: u32, request: &WireRequest) {
        if self.connections_only {
            return;
        }
        if request.request_first_at.is_none() && request.status == Some(REQUEST_TIMEOUT) {
            return;
        }
        self.counts.wire_requests += u64::from(request.request_first_at.is_some());
        // Any other answer to nothing is a request that the load cannot know.
        let Some(first_at) = request.request_first_at.or(request.response_first_at) else { return };
        let place = (client, request.client.port(), request.server.ip());
        let waiting = self.waiting.entry(place).or_default();
        waiting.wire.push_back(Wired {
            connection: request.connection,
            index: request.index,
            first_at,
            last_at: request.response_last_at,
            complete: request.complete,
            response_bytes: request.response_bytes,
            status: request.status,
            syn_at: None,
        });
        self.pushed(place);
    }

    /// A connection ended on the wire, after its requests.
    pub fn wire_connection(&mut self, record: &ConnectionRecord) {
        self.counts.wire_opened += u64::from(record.syn_at.is_some());
        let Some(syn_at) = record.syn_at else { return };
        if let Some(first) = self.firsts.remove(&record.connection) {
            return differ_first(&mut self.counts, &first, syn_at);
        }
        // A recorder that is behind has the whole connection from the wire before its first request from the load.
        let place = record.client_index.map(|client| (client, record.client.port(), record.server.ip()));
        let waiting = place.and_then(|place| self.waiting.get_mut(&place)).into_iter().flat_map(|it| &mut it.wire);
        for wire in waiting.filter(|wire| wire.connection == record.connection && wire.index == 0) {
            wire.syn_at = Some(syn_at);
        }
    }

    /// The counts, when both have ended. What still waits has no partner.
    pub fn finish(mut self) -> Agreed {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            waiting.load.into_iter().for_each(|load| load_alone(&mut self.counts, load));
            waiting.wire.into_iter().for_each(|wire| wire_alone(&mut self.counts, wire));
        }
        self.counts
    }

    /// Something was added to a place: pairs what can be paired.
    fn pushed(&mut self, place: Place) {
        self.held += 1;
        let Some(waiting) = self.waiting.get_mut(&place) else { return };
        while let (Some(&load), Some(&wire)) = (waiting.load.front(), waiting.wire.front()) {
            // The request's first byte passes the wire within the load's span of it.
            if wire.first_at < load.started_at {
                waiting.wire.pop_front();
                wire_alone(&mut self.counts, wire);
                self.held -= 1;
            } else if wire.first_at > load.done_at {
                waiting.load.pop_front();
                load_alone(&mut self.counts, load);
                self.held -= 1;
            } else {
                waiting.load.pop_front();
                waiting.wire.pop_front();
                self.held -= 2;
                if pair(&mut self.counts, load, wire)
                    && let (Some(&rtt_ns), Some(last_at)) = (self.rtts_ns.get(place.0 as usize), wire.last_at)
                {
                    let service_ns = load.done_at.as_nanos() - load.started_at.as_nanos();
                    let unopened = (!load.opened).then_some((load.started_at, wire.first_at));
                    let first = First { service_ns, last_at, rtt_ns, unopened };
                    if !load.opened && wire.index > 0 {
                        differ(&mut self.counts, service_ns, wire.first_at, last_at, rtt_ns);
                    } else if let Some(syn_at) = wire.syn_at {
                        differ_first(&mut self.counts, &first, syn_at);
                    } else {
                        self.firsts.insert(wire.connection, first);
                    }
                }
            }
        }
        if waiting.load.is_empty() && waiting.wire.is_empty() {
            self.waiting.remove(&place);
        }
        if self.held > WAITING_MAX {
            self.counts.overflowed = true;
            self.waiting.clear();
            self.held = 0;
        }
    }
}

/// True where the times of the two can be held against each other.
fn pair(counts: &mut Agreed, load: Loaded, wire: Wired) -> bool {
    // Where an end is not to be read (a head or a chunk beyond the snap length) and nobody spoke again, the wire
    // cannot say that it was the end; but every byte that the load read has passed it.
    let wire_complete = wire.complete || (load.completed && wire.response_bytes >= load.bytes.max(1));
    match (load.completed, wire_complete) {
        (true, true) => counts.both += 1,
        (true, false) => counts.load_only += 1,
        (false, true) => counts.failed_at_load += 1,
        (false, false) => {}
    }
    let whole = load.completed && wire_complete;
    counts.status_differs += u64::from(whole && wire.status.is_some_and(|status| status != load.status));
    whole && load.measured
}

fn load_alone(counts: &mut Agreed, load: Loaded) {
    counts.load_only += u64::from(load.completed);
}

fn wire_alone(counts: &mut Agreed, wire: Wired) {
    counts.wire_only += u64::from(wire.complete);
}

fn differ_first(counts: &mut Agreed, first: &First, syn_at: Timestamp) {
    if let Some(began_at) = first.began_at(syn_at) {
        differ(counts, first.service_ns, began_at, first.last_at, first.rtt_ns);
    }
}

fn differ(counts: &mut Agreed, service_ns: u64, first_at: Timestamp, last_at: Timestamp, rtt_ns: u64) {
    let wire_ns = last_at.as_nanos().saturating_sub(first_at.as_nanos());
    counts.differences.add(i128::from(service_ns) - i128::from(wire_ns) - i128::from(rtt_ns));
}

#[cfg(test)]
mod tests;
