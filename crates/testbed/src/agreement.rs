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
//! way after the load's `started`, the last one way before its `done`. A request on a stream of HTTP/2 or HTTP/3 may wait
//! for the handshake or for a free stream after its `started`; it counts from its last byte (`sent`) instead, which is
//! captured as well, if it fits into one packet. So
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

use crate::connect_call::ConnectCall;
use crate::topology::target::Reach;

/// Most records that wait for their partners, both sides together. Partners arrive within a second; if one vantage
/// point has no records, memory must stay bounded.
const WAITING_RECORDS_MAX: usize = 4 << 20;

/// Pairs requests of both vantage points as their records arrive, in any order.
#[derive(Debug)]
pub struct Agreement {
    /// Configured RTT of each client; empty if links have more than a delay.
    rtts_ns: Vec<u64>,
    measured_from: Timestamp,
    /// The captured identity of each open connection of the load.
    ports: HashMap<u64, ConnectionId>,
    /// Servers whose captured address differs from the one that clients connect to.
    rewritten: HashMap<IpAddr, IpAddr>,
    waiting: HashMap<StreamId, Waiting>,
    waiting_records: usize,
    /// Whether only connections are compared: the capture cannot read requests inside TLS.
    connections_only: bool,
    /// First requests of connections, until the connection's record has the time of its SYN.
    first_requests: HashMap<u64, FirstRequest>,
    counts: Agreed,
}

/// A connection in the capture: client, its port, and the server's captured address. The address is needed because the
/// kernel gives one port of a client to connections to two servers at the same time.
type ConnectionId = (u32, u16, IpAddr);

/// Where requests follow one another: a connection, with HTTP/2 and HTTP/3 one of its streams.
type StreamId = (ConnectionId, Option<u64>);

#[derive(Debug, Default)]
struct Waiting {
    load: VecDeque<LoadRequest>,
    wire: VecDeque<CapturedRequest>,
}

/// A request in the load's records.
#[derive(Clone, Copy, Debug)]
struct LoadRequest {
    started_at: Timestamp,
    done_at: Timestamp,
    completed: bool,
    /// Bytes of the response, head and body.
    bytes: u64,
    status: u16,
    measured: bool,
    /// Whether the connection was opened for this request.
    opens_connection: bool,
    /// On a stream: when the last byte was sent, if the whole request fits into a packet and was sent once.
    sent_at: Option<Timestamp>,
}

/// A request in the capture.
#[derive(Clone, Copy, Debug)]
struct CapturedRequest {
    connection: u64,
    index: u32,
    first_at: Timestamp,
    /// Last byte of the request.
    sent_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    complete: bool,
    response_bytes: u64,
    status: Option<u16>,
    /// Time of its connection's SYN, if the connection's record arrived before the load's record of the request.
    syn_at: Option<Timestamp>,
}

/// A pair that waits for its connection's SYN.
#[derive(Clone, Copy, Debug)]
struct FirstRequest {
    service_ns: u64,
    last_at: Timestamp,
    rtt_ns: u64,
    /// For a request on an open connection: its start, and the time at which its first byte was captured.
    already_open: Option<(Timestamp, Timestamp)>,
}

impl FirstRequest {
    /// Captured start of the request, on a connection whose SYN came at `syn_at`; `None` if it is unknown.
    fn captured_start(&self, syn_at: Timestamp) -> Option<Timestamp> {
        match self.already_open {
            None => Some(syn_at),
            // The connection was already open.
            Some((started_at, first_at)) if syn_at < started_at => Some(first_at),
            // The request was retried: it started on another connection than the one that carried it.
            Some(_) => None,
        }
    }
}

/// Bytes of frames that fit into one packet of any path, so that the first is sent with the last.
const ONE_PACKET: u64 = 1000;

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
            waiting_records: 0,
            connections_only: false,
            first_requests: HashMap::new(),
            counts: Agreed::default(),
        }
    }

    /// Compares connections only: inside TLS the capture has no requests, and the load's would wait for them.
    pub fn connections_only(self) -> Self {
        Agreement { connections_only: true, ..self }
    }

    /// Maps server addresses to their captured addresses, where the path rewrites them.
    pub fn with_servers(mut self, reaches: &[Reach]) -> Self {
        self.rewritten = reaches.iter().map(|reach| (reach.connect, reach.at_server())).collect();
        self
    }

    /// Notes that records of the load were lost: captured requests remain without partners, so nothing can be
    /// concluded.
    pub fn overflow(&mut self) {
        self.counts.overflowed = true;
    }

    /// Adds a call of connect by the load, before any request of that connection.
    pub fn load_connect_call(&mut self, call: &ConnectCall) {
        self.counts.load_called += 1;
        let server = self.rewritten.get(&call.server).copied().unwrap_or(call.server);
        self.ports.insert(call.connection, (call.client, call.port, server));
    }

    /// Adds a request of the load that has ended.
    pub fn load_request(&mut self, record: &RequestRecord) {
        if self.connections_only {
            return;
        }
        let attempts = u64::from(record.attempts);
        self.counts.load_sent += attempts;
        self.counts.load_sent_in_vain += attempts.saturating_sub(u64::from(record.failure.is_none()));
        let (Some(started_at), Some(connection)) = (record.started_at, record.connection) else { return };
        // A connection without a port had no socket, so nothing was sent.
        let Some(&connection_id) = self.ports.get(&connection) else { return };
        let completed = record.failure.is_none();
        self.counts.load_failed += u64::from(!completed);
        let id = (connection_id, record.stream.map(u64::from));
        let fits = attempts == 1 && record.bytes_sent <= ONE_PACKET;
        let waiting = self.waiting.entry(id).or_default();
        waiting.load.push_back(LoadRequest {
            started_at,
            done_at: record.done_at,
            completed,
            bytes: record.bytes_received,
            status: record.status,
            measured: record.scheduled_at >= self.measured_from,
            opens_connection: record.connected_at.is_some(),
            sent_at: record.sent_at.filter(|_| fits),
        });
        self.pair_waiting(id);
    }

    /// Adds a connection of the load that has ended, after its requests.
    pub fn load_connection(&mut self, end: &ConnectionEnd) {
        if self.ports.remove(&end.connection).is_some() {
            self.counts.load_established += u64::from(end.connected_at.is_some());
        }
    }

    /// Adds a captured request that has ended. `client`: index of its client.
    pub fn wire_request(&mut self, client: u32, request: &WireRequest) {
        if self.connections_only {
            return;
        }
        if request.request_first_at.is_none() && request.status == Some(REQUEST_TIMEOUT) {
            return;
        }
        self.counts.wire_requests += u64::from(request.request_first_at.is_some());
        // Any other response without a request counts as one that the load did not report.
        let Some(first_at) = request.request_first_at.or(request.response_first_at) else { return };
        let id = ((client, request.client.port(), request.server.ip()), request.stream);
        let waiting = self.waiting.entry(id).or_default();
        waiting.wire.push_back(CapturedRequest {
            connection: request.connection,
            index: request.index,
            first_at,
            sent_at: request.request_last_at,
            last_at: request.response_last_at,
            complete: request.complete,
            response_bytes: request.response_bytes,
            status: request.status,
            syn_at: None,
        });
        self.pair_waiting(id);
    }

    /// Adds a captured connection that has ended, after its requests.
    pub fn wire_connection(&mut self, record: &ConnectionRecord) {
        self.counts.wire_opened += u64::from(record.syn_at.is_some());
        let Some(syn_at) = record.syn_at else { return };
        if let Some(first) = self.first_requests.remove(&record.connection) {
            return add_first_difference(&mut self.counts, &first, syn_at);
        }
        // If the recorder is behind, it gets the whole captured connection before the load's first request on it.
        let connection_id = record.client_index.map(|client| (client, record.client.port(), record.server.ip()));
        let waiting = connection_id
            .and_then(|connection_id| self.waiting.get_mut(&(connection_id, None)))
            .into_iter()
            .flat_map(|it| &mut it.wire);
        for wire in waiting.filter(|wire| wire.connection == record.connection && wire.index == 0) {
            wire.syn_at = Some(syn_at);
        }
    }

    /// Adds a captured QUIC connection that has ended.
    pub fn wire_quic_connection(&mut self) {
        self.counts.wire_opened += 1;
    }

    /// The counts, when load and capture have ended. Requests that still wait have no partner.
    pub fn finish(mut self) -> Agreed {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            waiting.load.into_iter().for_each(|load| load_alone(&mut self.counts, load));
            waiting.wire.into_iter().for_each(|wire| wire_alone(&mut self.counts, wire));
        }
        self.counts
    }

    /// Pairs requests of a connection as far as possible, after one was added.
    fn pair_waiting(&mut self, id: StreamId) {
        self.waiting_records += 1;
        let (connection_id, stream) = id;
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        while let (Some(&load), Some(&wire)) = (waiting.load.front(), waiting.wire.front()) {
            // The request's first byte is captured within the load's span of it.
            if wire.first_at < load.started_at {
                waiting.wire.pop_front();
                wire_alone(&mut self.counts, wire);
                self.waiting_records -= 1;
            } else if wire.first_at > load.done_at {
                waiting.load.pop_front();
                load_alone(&mut self.counts, load);
                self.waiting_records -= 1;
            } else {
                waiting.load.pop_front();
                waiting.wire.pop_front();
                self.waiting_records -= 2;
                if pair(&mut self.counts, load, wire)
                    && let (Some(&rtt_ns), Some(last_at)) = (self.rtts_ns.get(connection_id.0 as usize), wire.last_at)
                {
                    if stream.is_some() {
                        if let (Some(load_sent), Some(wire_sent)) = (load.sent_at, wire.sent_at) {
                            let service_ns = load.done_at.as_nanos().saturating_sub(load_sent.as_nanos());
                            add_difference(&mut self.counts, service_ns, wire_sent, last_at, rtt_ns);
                        }
                        continue;
                    }
                    let service_ns = load.done_at.as_nanos() - load.started_at.as_nanos();
                    let already_open = (!load.opens_connection).then_some((load.started_at, wire.first_at));
                    let first = FirstRequest { service_ns, last_at, rtt_ns, already_open };
                    if !load.opens_connection && wire.index > 0 {
                        add_difference(&mut self.counts, service_ns, wire.first_at, last_at, rtt_ns);
                    } else if let Some(syn_at) = wire.syn_at {
                        add_first_difference(&mut self.counts, &first, syn_at);
                    } else {
                        self.first_requests.insert(wire.connection, first);
                    }
                }
            }
        }
        if waiting.load.is_empty() && waiting.wire.is_empty() {
            self.waiting.remove(&id);
        }
        if self.waiting_records > WAITING_RECORDS_MAX {
            self.counts.overflowed = true;
            self.waiting.clear();
            self.waiting_records = 0;
        }
    }
}

/// Counts a pair; returns whether the times of both can be compared.
fn pair(counts: &mut Agreed, load: LoadRequest, wire: CapturedRequest) -> bool {
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

fn load_alone(counts: &mut Agreed, load: LoadRequest) {
    counts.load_only += u64::from(load.completed);
}

fn wire_alone(counts: &mut Agreed, wire: CapturedRequest) {
    counts.wire_only += u64::from(wire.complete);
}

fn add_first_difference(counts: &mut Agreed, first: &FirstRequest, syn_at: Timestamp) {
    if let Some(captured_start) = first.captured_start(syn_at) {
        add_difference(counts, first.service_ns, captured_start, first.last_at, first.rtt_ns);
    }
}

fn add_difference(counts: &mut Agreed, service_ns: u64, first_at: Timestamp, last_at: Timestamp, rtt_ns: u64) {
    let wire_ns = last_at.as_nanos().saturating_sub(first_at.as_nanos());
    counts.differences.add(i128::from(service_ns) - i128::from(wire_ns) - i128::from(rtt_ns));
}

#[cfg(test)]
mod tests;
