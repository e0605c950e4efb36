//! HTTP/3 connections of one worker: QUIC by quinn-proto, without a socket and without a clock.
//!
//! ```text
//!   datagrams ──▶ Endpoint::handle ─┬─ a connection's: its event
//!                                   ├─ a new connection: accepted, told to prove its address (Retry), or refused
//!                                   └─ an answer of the endpoint itself
//!   timers, relay ──▶ connections with something to do ──▶ Http3 ──▶ poll_transmit ──▶ Outlet
//! ```
//!
//! What clients can use is bounded: connections by number and address; unproven addresses by
//! [`UNPROVEN_HANDSHAKES_MAX`], beyond which each new client gets a Retry, and by quinn-proto, which sends at most
//! three times what it received (RFC 9000, section 8.1); unacknowledged bytes of a connection by [`SEND_WINDOW_MIN`],
//! and of those that read fast by [`SEND_WINDOW_MAX`], within [`SEND_MEMORY_MAX`] of the worker.

mod config;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http3::{Code, TimeBase};
use quinn_proto::{
    Connection as Quic, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointEvent, Event as QuicEvent,
    Incoming, Transmit,
};
use units::Timestamp;

use crate::connection::WorkerContext;
use crate::dynamic::{Event, Ticket};
use crate::engine::address_counts::AddressCounts;
use crate::engine::table::Table;
use crate::figures::Refusal;
use crate::http3::{Http3, varint_of};
use crate::multiplexed::Ends;
pub(crate) use config::QuicConfig;

/// Where datagrams go.
pub(crate) trait Outlet {
    /// Takes one or more datagrams: the first bytes of `bytes`, as many as `transmit` says.
    fn transmit(&mut self, transmit: Transmit, bytes: &[u8]);

    /// Whether nothing more can be taken for now.
    fn is_blocked(&self) -> bool;

    /// Most datagrams of one connection in one call.
    fn segments_max(&self) -> usize;
}

/// A received datagram's circumstances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    /// The local address that it was sent to, if known.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
}

/// The connections of one worker.
pub(crate) struct Host<'a> {
    endpoint: Endpoint,
    base: TimeBase,
    local: SocketAddr,
    address_counts: &'a AddressCounts,
    /// Most connections.
    cap: usize,
    table: Table<Client>,
    /// Tokens by quinn-proto's handles.
    tokens: Vec<Option<u64>>,
    /// Tokens of connections with something to do.
    active: VecDeque<u64>,
    /// Handshakes in progress of clients that have not proved their address.
    unproven: usize,
    /// Bytes by which windows may still grow.
    send_memory_left: u64,
    stopping: bool,
    output: Vec<u8>,
}

/// One connection.
#[derive(Debug)]
struct Client {
    quic: Quic,
    handle: ConnectionHandle,
    http: Http3,
    /// In `active`.
    queued: bool,
    in_handshake: bool,
    /// When the handshake must be finished.
    handshake_until: Timestamp,
    /// Counted in [`Host::unproven`].
    is_unproven: bool,
    /// HTTP has ended: only QUIC's end remains.
    is_over: bool,
    peer: IpAddr,
    /// The limit of unacknowledged bytes, and what was written when it was set.
    window: u64,
    written_before: u64,
}

impl<'a> Host<'a> {
    /// No connections yet. `base`: relates the clock of `context` to quinn-proto's; `local`: the bound address.
    pub(crate) fn new(
        config: &QuicConfig,
        base: TimeBase,
        local: SocketAddr,
        address_counts: &'a AddressCounts,
        cap: usize,
        context: &WorkerContext,
    ) -> Self {
        Host {
            endpoint: Endpoint::new(Arc::clone(&config.endpoint), Some(Arc::clone(&config.server)), true, config.seed),
            base,
            local,
            address_counts,
            cap,
            table: Table::new(TICK, context.now),
            tokens: Vec::new(),
            active: VecDeque::new(),
            unproven: 0,
            send_memory_left: SEND_MEMORY_MAX,
            stopping: false,
            output: Vec::new(),
        }
    }

    /// When [`Host::expire`] must be called next.
    pub(crate) fn due_at(&self) -> Timestamp {
        self.table.due_at()
    }

    /// Whether [`Host::work`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.active.is_empty()
    }

    /// Takes a datagram.
    pub(crate) fn receive(
        &mut self,
        context: &mut WorkerContext,
        origin: &Origin,
        datagram: BytesMut,
        outlet: &mut impl Outlet,
    ) {
        context.recorder.counters().received(datagram.len() as u64);
        let now = self.base.instant(context.now);
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        match self.endpoint.handle(now, origin.peer, origin.local, origin.ecn, datagram, &mut output) {
            None => {}
            Some(DatagramEvent::Response(transmit)) => outlet.transmit(transmit, &output),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(token) = self.tokens.get(handle.0).copied().flatten()
                    && let Some(client) = self.table.get(token)
                {
                    client.quic.handle_event(event);
                    self.activate(token);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(context, incoming, now, &mut output, outlet),
        }
        self.output = output;
    }

    /// Decides on a new connection.
    fn admit(
        &mut self,
        context: &mut WorkerContext,
        incoming: Incoming,
        now: Instant,
        output: &mut Vec<u8>,
        outlet: &mut impl Outlet,
    ) {
        let peer = incoming.remote_address();
        if self.stopping {
            return self.refuse(incoming, output, outlet);
        }
        let is_unproven = !incoming.remote_address_validated();
        if is_unproven && self.unproven >= UNPROVEN_HANDSHAKES_MAX {
            // Stateless: the client comes back with a token.
            if let Ok(transmit) = self.endpoint.retry(incoming, output) {
                outlet.transmit(transmit, output);
            }
            return;
        }
        let counters = context.recorder.counters();
        if self.table.length() >= self.cap {
            let idle_for = |client: &Client| client.http.idle_since().map(|since| context.now.since(since));
            let Some(oldest) = self.table.oldest(DISPLACED_AFTER, idle_for) else {
                counters.connection_refused(Refusal::Total);
                return self.refuse(incoming, output, outlet);
            };
            counters.connection_refused(Refusal::Displaced);
            self.displace(context, oldest, outlet);
        }
        if !self.address_counts.enter(peer.ip()) {
            context.recorder.counters().connection_refused(Refusal::PerAddress);
            return self.refuse(incoming, output, outlet);
        }
        match self.endpoint.accept(incoming, now, output, None) {
            Ok((handle, quic)) => self.begin(context, handle, quic, peer, is_unproven),
            Err(error) => {
                self.address_counts.leave(peer.ip());
                if let Some(transmit) = error.response {
                    outlet.transmit(transmit, output);
                }
            }
        }
    }

    fn refuse(&mut self, incoming: Incoming, output: &mut Vec<u8>, outlet: &mut impl Outlet) {
        output.clear();
        let transmit = self.endpoint.refuse(incoming, output);
        outlet.transmit(transmit, output);
    }

    fn begin(
        &mut self,
        context: &mut WorkerContext,
        handle: ConnectionHandle,
        quic: Quic,
        peer: SocketAddr,
        is_unproven: bool,
    ) {
        context.recorder.counters().connection_opened();
        let local = SocketAddr::new(quic.local_ip().unwrap_or(self.local.ip()), self.local.port());
        let ends = Ends { connection: self.table.next_token(), peer, local, secure: true };
        let client = Client {
            quic,
            handle,
            http: Http3::new(ends, context),
            queued: false,
            in_handshake: true,
            handshake_until: context.now + context.limits.head_time,
            is_unproven,
            is_over: false,
            peer: peer.ip(),
            window: SEND_WINDOW_MIN,
            written_before: 0,
        };
        let token = self.table.insert(client);
        if self.tokens.len() <= handle.0 {
            self.tokens.resize(handle.0 + 1, None);
        }
        self.tokens[handle.0] = Some(token);
        self.unproven += usize::from(is_unproven);
        self.activate(token);
    }

    /// Whether every connection has ended, as far as this side knows.
    pub(crate) fn is_over(&mut self) -> bool {
        self.active.is_empty()
            && self.table.tokens().into_iter().all(|token| self.table.get(token).is_none_or(|client| client.is_over))
    }

    /// Processes an event of the relay.
    pub(crate) fn relay_event(&mut self, context: &mut WorkerContext, ticket: Ticket, event: Event) {
        if let Some(client) = self.table.get(ticket.connection) {
            client.http.relay_event(context, &mut client.quic, ticket.stream, event);
            self.activate(ticket.connection);
        }
    }

    /// Processes timers that have expired.
    pub(crate) fn expire(&mut self, context: &mut WorkerContext) {
        let now = self.base.instant(context.now);
        while let Some(token) = self.table.due(context.now) {
            let Some(client) = self.table.get(token) else { continue };
            if client.quic.poll_timeout().is_some_and(|at| at <= now) {
                client.quic.handle_timeout(now);
            }
            if client.in_handshake && client.handshake_until <= context.now {
                client.end(context, now, Code::NO_ERROR);
            }
            if !client.is_over && client.http.deadline() <= context.now {
                let sent = client.quic.stats().udp_tx.bytes;
                client.http.late(context, &mut client.quic, sent);
            }
            self.activate(token);
        }
    }

    /// Processes the connections with something to do, each once, as long as the outlet takes datagrams.
    pub(crate) fn work(&mut self, context: &mut WorkerContext, outlet: &mut impl Outlet) {
        for _ in 0..self.active.len() {
            if outlet.is_blocked() {
                return;
            }
            let Some(token) = self.active.pop_front() else { return };
            self.drive(context, token);
            self.send(context, token, outlet);
        }
    }

    /// The server stops: connections end with their responses.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        for token in self.table.tokens() {
            self.activate(token);
        }
    }

    /// Ends all connections now; unfinished responses are lost.
    pub(crate) fn end(&mut self, context: &mut WorkerContext, outlet: &mut impl Outlet) {
        for token in self.table.tokens() {
            self.displace(context, token, outlet);
        }
    }

    fn activate(&mut self, token: u64) {
        if let Some(client) = self.table.get(token)
            && !std::mem::replace(&mut client.queued, true)
        {
            self.active.push_back(token);
        }
    }

    /// Processes the events of a connection.
    fn drive(&mut self, context: &mut WorkerContext, token: u64) {
        let now = self.base.instant(context.now);
        let Some(client) = self.table.get(token) else { return };
        client.queued = false;
        let is_busy = client.http.idle_since().is_none();
        loop {
            while let Some(event) = client.quic.poll() {
                let is_settled = matches!(event, QuicEvent::Connected | QuicEvent::ConnectionLost { .. });
                if is_settled && std::mem::take(&mut client.is_unproven) {
                    self.unproven -= 1;
                }
                client.in_handshake &= !is_settled;
                if client.is_over {
                    continue;
                }
                if let QuicEvent::ConnectionLost { .. } = event {
                    client.is_over = true;
                    client.http.leave(context);
                } else if let Err(code) = client.http.event(context, &mut client.quic, event) {
                    client.end(context, now, code);
                }
            }
            if !client.is_over {
                if self.stopping {
                    client.http.depart();
                }
                let is_over = client.http.announce(&mut client.quic);
                if let Some(code) = client.http.failure().or(is_over.then_some(Code::NO_ERROR)) {
                    client.end(context, now, code);
                }
            }
            if client.is_over && std::mem::take(&mut client.is_unproven) {
                self.unproven -= 1;
            }
            let Some(event) = client.quic.poll_endpoint_events() else { break };
            if let Some(event) = self.endpoint.handle_event(client.handle, event) {
                client.quic.handle_event(event);
            }
        }
        debug_assert!(context.out.is_empty(), "the buffer is shared by all streams");
        client.http.settle(context);
        client.resize_window(&mut self.send_memory_left);
        if is_busy || client.http.idle_since().is_none() {
            self.table.used(token);
        }
    }

    /// Sends the datagrams of a connection, a share of the turn at most, and updates its deadline.
    fn send(&mut self, context: &mut WorkerContext, token: u64, outlet: &mut impl Outlet) {
        let now = self.base.instant(context.now);
        let Some(client) = self.table.get(token) else { return };
        let mut output = std::mem::take(&mut self.output);
        let mut more = true;
        for _ in 0..SENDS_PER_TURN {
            output.clear();
            let Some(transmit) = client.quic.poll_transmit(now, outlet.segments_max(), &mut output) else {
                more = false;
                break;
            };
            context.recorder.counters().sent(transmit.size as u64);
            outlet.transmit(transmit, &output);
            if outlet.is_blocked() {
                break;
            }
        }
        self.output = output;
        if client.quic.is_drained() {
            // What the endpoint must know of the end was passed to it, or is that it has ended.
            return self.remove(context, token);
        }
        let timer = client.quic.poll_timeout().map_or(Timestamp::MAX, |at| self.base.timestamp(at));
        let deadline = timer.min(client.deadline());
        if deadline < Timestamp::MAX {
            self.table.schedule(token, deadline);
        }
        if more {
            self.activate(token);
        }
    }

    /// Ends a connection without waiting until the client knows.
    fn displace(&mut self, context: &mut WorkerContext, token: u64, outlet: &mut impl Outlet) {
        let now = self.base.instant(context.now);
        let Some(client) = self.table.get(token) else { return };
        if !client.is_over {
            client.end(context, now, Code::NO_ERROR);
        }
        self.send(context, token, outlet);
        self.remove(context, token);
    }

    fn remove(&mut self, context: &mut WorkerContext, token: u64) {
        let Some(mut client) = self.table.remove(token) else { return };
        client.http.leave(context);
        while let Some(event) = client.quic.poll_endpoint_events() {
            self.endpoint.handle_event(client.handle, event);
        }
        if self.tokens[client.handle.0].take().is_some() && !client.quic.is_drained() {
            self.endpoint.handle_event(client.handle, EndpointEvent::drained());
        }
        self.unproven -= usize::from(client.is_unproven);
        self.send_memory_left += client.window - SEND_WINDOW_MIN;
        self.address_counts.leave(client.peer);
        context.recorder.counters().connection_closed();
    }
}

impl Client {
    fn deadline(&self) -> Timestamp {
        match (self.is_over, self.in_handshake) {
            (true, _) => Timestamp::MAX,
            (false, true) => self.http.deadline().min(self.handshake_until),
            (false, false) => self.http.deadline(),
        }
    }

    /// Ends the connection with a code; QUIC tells the client.
    fn end(&mut self, context: &mut WorkerContext, now: Instant, code: Code) {
        self.is_over = true;
        self.in_handshake = false;
        self.http.leave(context);
        context.out.clear();
        self.quic.close(now, varint_of(code), Bytes::new());
    }

    /// Lets a client that reads fast have more in transit, as long as there is memory, until it has read everything.
    fn resize_window(&mut self, memory_left: &mut u64) {
        let was_held_up = self.http.was_held_up();
        if self.window > SEND_WINDOW_MIN && (self.is_over || self.http.idle_since().is_some()) {
            *memory_left += self.window - SEND_WINDOW_MIN;
            self.window = SEND_WINDOW_MIN;
            self.quic.set_send_window(SEND_WINDOW_MIN);
            self.written_before = self.http.written();
        }
        // Twice the window: the client has acknowledged half of that at least.
        let has_read = self.http.written() - self.written_before >= 2 * self.window;
        let more = self.window.min(SEND_WINDOW_MAX - self.window);
        if was_held_up && has_read && (1..=*memory_left).contains(&more) {
            *memory_left -= more;
            self.window += more;
            self.quic.set_send_window(self.window);
            self.written_before = self.http.written();
        }
    }
}

/// Interval of timers: QUIC's pacing and its probes need a fine one.
const TICK: Duration = Duration::from_millis(1);
/// Handshakes in progress of unproven addresses; beyond them each new client proves its address first.
const UNPROVEN_HANDSHAKES_MAX: usize = 64;
/// A connection used within this time is not displaced, as over TCP.
const DISPLACED_AFTER: Duration = Duration::from_secs(1);
/// Unacknowledged bytes that any client may have: some round trips' worth at the beginning of a connection.
const SEND_WINDOW_MIN: u64 = 64 << 10;
/// The same of a client that reads fast: 300 Mbit/s at 100 ms.
const SEND_WINDOW_MAX: u64 = 4 << 20;
/// Bytes by which the windows of a worker's connections may grow altogether.
const SEND_MEMORY_MAX: u64 = 64 << 20;
/// Calls of the outlet for a connection per turn.
const SENDS_PER_TURN: usize = 8;
