//! Idle connections that are opened before the load and kept open through it. They are opened and closed at a constant
//! rate, so that neither is part of the measurement.
//!
//! ```text
//!   from            start                                 end of the phase, all requests ended
//!   | open one per 1/rate | warm-up, phase: requests use them in turn | close one per 1/rate |
//! ```

use units::Timestamp;

use super::Load;
use super::output::ActionKind;
use crate::queues::Queue;
use crate::spec::Shard;

/// This shard's share of the idle connections.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    /// Connections to open; 0 if the load has none.
    connections: u64,
    /// Connections attempted so far.
    tried: u64,
    /// Connections opened per second by all shards together.
    per_second: u64,
    from: Timestamp,
    /// When closing began, and the number of connections closed since.
    closing: Option<(Timestamp, u64)>,
}

impl OpenConnections {
    /// Whether a client's next request uses its longest idle connection, so that all connections are used in turn.
    pub(super) fn in_turn(&self) -> bool {
        self.connections > 0
    }
}

impl Load {
    /// Opens `connections` idle connections, counted over all shards, from `from` on at `per_second` connections per
    /// second, and keeps them open until the load is over. Then they are closed at the same rate, and
    /// [`Self::finished`] waits for that. Each client has its share of the connections. Call once, before any other
    /// call; for an open loop with persistent connections over HTTP/1.
    pub fn open_first(&mut self, connections: u32, per_second: u32, from: Timestamp) {
        self.idle.track_bottoms();
        self.open_connections = OpenConnections {
            connections: self.spec.shard.share(u64::from(connections)),
            tried: 0,
            per_second: u64::from(per_second.max(1)),
            from,
            closing: None,
        };
    }

    /// Opens or closes the idle connections that are due.
    pub(super) fn open_and_close_idle(&mut self, now: Timestamp) {
        if self.open_connections.connections == 0 {
            return;
        }
        while !self.phase.is_over() && self.next_idle_change().is_some_and(|at| at <= now) {
            self.open_idle_connection();
        }
        if !self.is_at_rest() || !self.is_idle_watched() {
            return;
        }
        if self.open_connections.closing.is_none() {
            self.open_connections.closing = Some((now, 0));
        }
        while self.next_idle_change().is_some_and(|at| at <= now) {
            let Some((index, _)) = self.queues.first(Queue::Idle) else { return };
            self.close(index);
            if let Some((_, closed)) = &mut self.open_connections.closing {
                *closed += 1;
            }
        }
    }

    /// When the next idle connection is to be opened or closed.
    pub(super) fn next_idle_change(&self) -> Option<Timestamp> {
        let open = &self.open_connections;
        let after = |from: Timestamp, number: u64| {
            from + std::time::Duration::from_nanos(number.saturating_mul(1_000_000_000) / open.per_second)
        };
        match open.closing {
            _ if open.connections == 0 => None,
            Some((from, closed)) => self.queues.first(Queue::Idle).map(|_| after(from, self.spec.shard.number(closed))),
            // Closing begins only after all requests have ended.
            None if self.phase.is_over() => self.is_at_rest().then(|| self.idle_watch_end()),
            None => (open.tried < open.connections).then(|| after(open.from, self.spec.shard.number(open.tried))),
        }
    }

    /// Whether all idle connections are closed.
    pub(super) fn all_idle_closed(&self) -> bool {
        self.open_connections.connections == 0 || self.pool.open() == 0
    }

    /// Records the failure of a connection: an idle one that was not established, or a malformed response.
    pub(super) fn note_connection_failed(&mut self, index: u32) {
        self.note_fault(index);
        if self.open_connections.connections > 0 && self.pool.at(index).request.is_none() {
            self.live.held_failed += 1;
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.phase.is_over() && self.live.in_flight == 0 && self.live.backlog == 0
    }

    fn open_idle_connection(&mut self) {
        let (shard, clients, nth) = (self.spec.shard, u64::from(self.spec.clients), self.open_connections.tried);
        self.open_connections.tried += 1;
        // The shard that makes a client's requests opens the client's idle connections.
        let machine = Shard::new(shard.index % shard.machines, shard.machines);
        let mut parts = [shard, machine].into_iter();
        let part = parts.find(|part| clients >= u64::from(part.of)).unwrap_or(Shard::WHOLE);
        let client = part.number(nth % part.share(clients));
        let index = self.pool.take();
        let connection = self.pool.at(index);
        connection.client = client as u32;
        // The target of the workload's first request.
        connection.endpoint = 0;
        connection.worker = 0;
        connection.request = None;
        self.act(index, ActionKind::Connect);
    }
}
