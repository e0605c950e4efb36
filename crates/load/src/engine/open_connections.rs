//! Connections that are opened before the load and held through it: paced at both ends, so that neither the set-up nor the
//! close of many is part of what is measured.
//!
//! ```text
//!   from            start               end of the phase, everything answered
//!   | one each 1/rate | warm-up, phase: requests take them in turn | one each 1/rate |
//! ```

use units::Timestamp;

use super::Load;
use super::output::What;
use crate::queues::Queue;

/// This shard's part of them.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    /// To be opened; 0 where none is asked for.
    connections: u64,
    /// Opened so far, or tried.
    tried: u64,
    /// The run's, over all shards.
    per_second: u64,
    from: Timestamp,
    /// Closing began then, and so many are closed.
    closing: Option<(Timestamp, u64)>,
}

impl OpenConnections {
    /// The longest idle connection of a client serves its next request, so that each has its turn.
    pub(super) fn in_turn(&self) -> bool {
        self.connections > 0
    }
}

impl Load {
    /// `connections` of the run are to be opened from `from` on, `per_second` of them a second over all shards, and held
    /// until the load is over; then they are closed at the same pace, and [`Self::finished`] waits for it. Each client has
    /// its share of them. To be called once, before anything else; open loop, persistent connections, HTTP/1.
    pub fn open_first(&mut self, connections: u32, per_second: u32, from: Timestamp) {
        self.idle.keep_bottoms();
        self.open_connections = OpenConnections {
            connections: self.spec.lane.share(u64::from(connections)),
            tried: 0,
            per_second: u64::from(per_second.max(1)),
            from,
            closing: None,
        };
    }

    /// Opens and closes what is due.
    pub(super) fn hold(&mut self, now: Timestamp) {
        if self.open_connections.connections == 0 {
            return;
        }
        while !self.phase.is_over() && self.held_next().is_some_and(|at| at <= now) {
            self.open_held();
        }
        if !self.is_at_rest() || !self.is_idle_watched() {
            return;
        }
        if self.open_connections.closing.is_none() {
            self.open_connections.closing = Some((now, 0));
        }
        while self.held_next().is_some_and(|at| at <= now) {
            let Some((index, _)) = self.queues.first(Queue::Idle) else { return };
            self.close(index);
            if let Some((_, closed)) = &mut self.open_connections.closing {
                *closed += 1;
            }
        }
    }

    /// When the next is to be opened or closed.
    pub(super) fn held_next(&self) -> Option<Timestamp> {
        let held = &self.open_connections;
        let after = |from: Timestamp, number: u64| {
            from + std::time::Duration::from_nanos(number.saturating_mul(1_000_000_000) / held.per_second)
        };
        match held.closing {
            _ if held.connections == 0 => None,
            Some((from, closed)) => self.queues.first(Queue::Idle).map(|_| after(from, self.spec.lane.number(closed))),
            // Nothing else may happen any more.
            None if self.phase.is_over() => self.is_at_rest().then(|| self.idle_watch_end()),
            None => (held.tried < held.connections).then(|| after(held.from, self.spec.lane.number(held.tried))),
        }
    }

    /// Whether none is left to be closed.
    pub(super) fn holds_nothing(&self) -> bool {
        self.open_connections.connections == 0 || self.pool.open() == 0
    }

    /// A connection has failed: notes that one to be held is not established, and why a response could not be read.
    pub(super) fn note_not_held(&mut self, index: u32) {
        self.note_fault(index);
        if self.open_connections.connections > 0 && self.pool.at(index).request.is_none() {
            self.live.held_failed += 1;
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.phase.is_over() && self.live.in_flight == 0 && self.live.backlog == 0
    }

    fn open_held(&mut self) {
        let (lane, clients, nth) = (self.spec.lane, u64::from(self.spec.clients), self.open_connections.tried);
        self.open_connections.tried += 1;
        // A client's connections belong to the shard that has its requests.
        let own = lane.share(clients);
        let client = if clients >= u64::from(lane.of) { lane.number(nth % own) } else { nth % clients };
        let index = self.pool.take();
        let connection = self.pool.at(index);
        connection.client = client as u32;
        // Where the first request goes.
        connection.endpoint = 0;
        connection.worker = 0;
        connection.request = None;
        self.act(index, What::Connect);
    }
}
