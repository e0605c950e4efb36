//! Agreement of load and packet capture, request by request.
//!
//! A request of the load and one of the capture are the same if they have the same client, port and server, and if the
//! capture has the request's first byte between the load's start and end of it. Requests on one port follow one another
//! (the load does not pipeline), so these spans do not overlap and at most one fits. Pairing by order would go wrong
//! permanently after one missing record.
//!
//! ```text
//!   load:  | started ---------------- done |      | started ---- done |
//!   wire:        first byte .. last byte               first .. last
//! ```
//!
//! For a pair, the load's service time must be the captured one plus one RTT of the client. The captured counterpart of
//! `started` is the SYN if the load opened the connection for this request (connect called), otherwise the request's
//! first byte (first write); that of `done` is the last byte of the response. Both pass the server's end: the first one
//! way after the load's `started`, the last one way before its `done`. So
//!
//! ```text
//!   (done - started) - (last byte - first byte or SYN) = way up + way down = RTT
//! ```
//!
//! whatever the handshake, slow start or the size of the response cost, because the capture includes all of that as
//! well. It holds on links with a delay only.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use load::ConnectionEnd;
use schema::{ConnectionRecord, RequestRecord, WireRequest};
use units::Timestamp;

use validity::evidence::Agreed;

use crate::connect_call::Called;
use crate::places::target::Reach;

/// Most records that wait for their partners, both sides together. Partners arrive within a second; if one vantage
/// point has no records, memory must stay bounded.
const WAITING_MAX: usize = 4 << 20;

/// Pairs requests of both vantage points as their records arrive, in any order.
#[derive(Debug)]
pub struct Agreement {
    /// Configured RTT of each client; empty if links have more than a delay.
    rtts_ns: Vec<u64>,
    measured_from: Timestamp,
    /// Where each open connection of the load is in the capture.
    ports: HashMap<u64, Place>,
    /// Servers whose captured address differs from the one that clients connect to.
    rewritten: HashMap<IpAddr, IpAddr>,
    waiting: HashMap<Place, Waiting>,
    held: usize,
    /// Only connections are compared: the capture cannot read requests inside TLS.
    connections_only: bool,
    /// First requests of connections, until the connection's record has the time of its SYN.
    firsts: HashMap<u64, First>,
    counts: Agreed,
}

/// A client, its port, and the server's captured address: the kernel gives one port of a client to connections to two
/// servers at the same time.
type Place = (u32, u16, IpAddr);

#[derive(Debug, Default)]
struct Waiting {
    load: VecDeque<Loaded>,
    wire: VecDeque<Wired>,
}

/// A request in the load's records.
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

/// A request in the capture.
#[derive(Clone, Copy, Debug)]
struct Wired {
    connection: u64,
    index: u32,
    first_at: Timestamp,
    last_at: Option<Timestamp>,
    complete: bool,
    response_bytes: u64,
    status: Option<u16>,
    /// Time of its connection's SYN, if the connection's record arrived before the load's record of the request.
    syn_at: Option<Timestamp>,
}

/// A pair that waits for its connection's SYN.
#[derive(Clone, Copy, Debug)]
struct First {
    service_ns: u64,
    last_at: Timestamp,
    rtt_ns: u64,
    /// For a request on an open connection: its start, and the time at which its first byte was captured.
    unopened: Option<(Timestamp, Timestamp)>,
}

impl First {
    /// Captured start of the request, on a connection whose SYN came at `syn_at`; `None` if it is unknown.
    fn began_at(&self, syn_at: Timestamp) -> Option<Timestamp> {
        match self.unopened {
            None => Some(syn_at),
            // The connection was already open.
            Some((started_at, first_at)) if syn_at < started_at => Some(first_at),
            // It was retried on a new connection, and its start was on another.
            Some(_) => None,
        }
    }
}

/// Response with which a server may close an idle connection (RFC 9110, section 15.5.9); it belongs to no request.
const REQUEST_TIMEOUT: u16 = 408;

impl Agreement {
    /// `rtts_ns`: each client's configured RTT, in client order; empty if a link has a rate, loss or jitter, so that
    /// times cannot be compared with it.
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

    /// Ignores requests: inside TLS they would wait for partners that never come.
    pub fn connections_only(self) -> Self {
        Agreement { connections_only: true, ..self }
    }

    /// Maps server addresses to their captured addresses, where the path rewrites them.
    pub fn with_servers(mut self, reaches: &[Reach]) -> Self {
        self.rewritten = reaches.iter().map(|reach| (reach.connect, reach.at_server())).collect();
        self
    }

    /// Records of the load were lost: remaining captured requests have no partners, and nothing can be concluded.
    pub fn overflow(&mut self) {
        self.counts.overflowed = true;
    }

    /// The load called connect on a connection. Called before any of its requests.
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
        // Without a port there was no socket, so nothing was sent.
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

    /// A captured request ended. `client`: its client.
    pub fn wire_request(&mut self, client: u32, request: &WireRequest) {
        if self.connections_only {
            return;
        }
        if request.request_first_at.is_none() && request.status == Some(REQUEST_TIMEOUT) {
            return;
        }
        self.counts.wire_requests += u64::from(request.request_first_at.is_some());
        // Any other response without a request is one that the load cannot know.
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

    /// A captured connection ended, after its requests.
    pub fn wire_connection(&mut self, record: &ConnectionRecord) {
        self.counts.wire_opened += u64::from(record.syn_at.is_some());
        let Some(syn_at) = record.syn_at else { return };
        if let Some(first) = self.firsts.remove(&record.connection) {
            return differ_first(&mut self.counts, &first, syn_at);
        }
        // If the recorder is behind, it gets the whole captured connection before the load's first request on it.
        let place = record.client_index.map(|client| (client, record.client.port(), record.server.ip()));
        let waiting = place.and_then(|place| self.waiting.get_mut(&place)).into_iter().flat_map(|it| &mut it.wire);
        for wire in waiting.filter(|wire| wire.connection == record.connection && wire.index == 0) {
            wire.syn_at = Some(syn_at);
        }
    }

    /// The counts when both have ended. Requests that still wait have no partner.
    pub fn finish(mut self) -> Agreed {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            waiting.load.into_iter().for_each(|load| load_alone(&mut self.counts, load));
            waiting.wire.into_iter().for_each(|wire| wire_alone(&mut self.counts, wire));
        }
        self.counts
    }

    /// A request was added to `place`: pairs what can be paired.
    fn pushed(&mut self, place: Place) {
        self.held += 1;
        let Some(waiting) = self.waiting.get_mut(&place) else { return };
        while let (Some(&load), Some(&wire)) = (waiting.load.front(), waiting.wire.front()) {
            // The request's first byte is captured within the load's span of it.
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

/// Whether the times of both are consistent.
fn pair(counts: &mut Agreed, load: Loaded, wire: Wired) -> bool {
    // If an end cannot be read (a head or a chunk beyond the snap length) and the other side sent nothing more, its
    // time is unknown; but every byte that the load read was captured.
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
