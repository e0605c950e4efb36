//! The closed loop: a fixed number of connections, each issuing its next request when the one before has ended.
//!
//! A connection is replaced after it is closed, not before, so that the number of connections stays as configured.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use units::Timestamp;

use super::dispatch::BacklogRequest;
use super::{Load, Loop};
use crate::in_flight::FollowUp;
use crate::spec::{Reuse, Shard};

/// The workers of a closed loop. Each uses one connection at a time and replaces it after a close.
#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<Worker>,
    /// This many consecutive workers share an HTTP/2 or HTTP/3 connection.
    streams_per_connection: u32,
    begun: bool,
    paused: BinaryHeap<Reverse<(Timestamp, u32)>>,
    shard: Shard,
    clients: u32,
    /// Clients handed out by [`Self::next_client`].
    clients_taken: u64,
    /// Requests issued, without hops of redirects.
    issued: u64,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    client: u32,
    pause: Pause,
    /// The next hop of a redirect, which is the worker's next request.
    follow_up: Option<FollowUp>,
}

/// The pause before the next attempt after a request without a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause(Duration);

/// First pause of a worker whose connection received no byte of a response; each further pause is twice as long, up to
/// `PAUSE_MAX`. Without pauses a server that refuses connections would receive attempts as fast as the machine can
/// make them.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Pause {
    pub(super) const FIRST: Pause = Pause(PAUSE_FIRST);

    /// Returns the pause to make now, and doubles the next.
    pub(super) fn take(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

impl Workers {
    /// The workers of a shard with `connections` connections and up to `streams_per_connection` concurrent requests on
    /// each. `clients` are those of the whole run, at least 1.
    pub(super) fn new(connections: u32, streams_per_connection: u32, clients: u32, shard: Shard) -> Self {
        let worker = Worker { client: 0, pause: Pause::FIRST, follow_up: None };
        let workers = vec![worker; connections as usize * streams_per_connection as usize];
        Workers {
            workers,
            streams_per_connection,
            begun: false,
            paused: BinaryHeap::new(),
            shard,
            clients,
            clients_taken: 0,
            issued: 0,
        }
    }

    /// Assigns clients round-robin: the k-th connection of the run, over all shards, gets client k modulo `clients`.
    fn next_client(&mut self) -> u32 {
        let position = self.shard.number(self.clients_taken);
        self.clients_taken += 1;
        (position % u64::from(self.clients)) as u32
    }

    /// When the loop starts; after that, the earliest end of a pause.
    pub(super) fn next_wake(&self, start: Timestamp) -> Option<Timestamp> {
        if self.begun { self.paused.peek().map(|Reverse((at, _))| *at) } else { Some(start) }
    }

    pub(super) fn pause(&mut self, worker: u32, now: Timestamp) {
        let pause = self.workers[worker as usize].pause.take();
        self.paused.push(Reverse((now + pause, worker)));
    }

    /// A worker's response is complete: resets its pause and stores the next hop of a redirect.
    pub(super) fn answered(&mut self, worker: u32, follow_up: Option<FollowUp>) {
        let worker = &mut self.workers[worker as usize];
        (worker.pause, worker.follow_up) = (Pause::FIRST, follow_up);
    }
}

impl Load {
    /// Starts the loop, and ends pauses that are due.
    pub(super) fn run_workers(&mut self, now: Timestamp) {
        let Loop::Closed(workers) = &mut self.arrivals else { return };
        if !workers.begun && now >= self.start {
            workers.begun = true;
            let all = workers.workers.len() as u32;
            for first in (0..all).step_by(workers.streams_per_connection as usize) {
                let client = workers.next_client();
                let sharing = first as usize..(first + workers.streams_per_connection) as usize;
                workers.workers[sharing].iter_mut().for_each(|worker| worker.client = client);
            }
            for worker in 0..all {
                self.issue_for_client(self.start, worker);
            }
        }
        loop {
            let Loop::Closed(workers) = &mut self.arrivals else { return };
            let Some(&Reverse((at, worker))) = workers.paused.peek() else { return };
            if at > now {
                return;
            }
            workers.paused.pop();
            self.issue(at, worker);
        }
    }

    /// Issues a worker's next request on a new connection, for the same client. With one connection per request the
    /// worker moves on to the next client, except for a hop of a redirect.
    pub(super) fn issue(&mut self, at: Timestamp, worker: u32) {
        if self.spec.reuse == Reuse::Close && self.phase.admits(at) {
            let Loop::Closed(workers) = &mut self.arrivals else { return };
            if workers.workers[worker as usize].follow_up.is_none() {
                workers.workers[worker as usize].client = workers.next_client();
            }
        }
        self.issue_for_client(at, worker);
    }

    fn issue_for_client(&mut self, at: Timestamp, worker: u32) {
        if self.is_multiplexed() {
            return self.issue_stream(at, worker);
        }
        if let Some(waiting) = self.next_of(at, worker) {
            self.open_for(waiting.into_in_flight(), worker);
        }
    }

    /// Issues a worker's next request on the open connection whose response is complete.
    pub(super) fn issue_on(&mut self, now: Timestamp, index: u32) {
        let connection = self.pool.at(index);
        let (worker, endpoint) = (connection.worker, connection.endpoint);
        let Some(waiting) = self.next_of(now, worker) else {
            self.enter_idle(now, index);
            return;
        };
        if self.endpoint_of(waiting.url, waiting.purpose_key) == endpoint {
            self.send_on(index, waiting);
        } else {
            self.close(index);
            self.open_for(waiting.into_in_flight(), worker);
        }
    }

    /// Drops the next hops of redirects at the end of the load.
    pub(super) fn drop_follow_ups(&mut self, now: Timestamp) {
        let Loop::Closed(workers) = &mut self.arrivals else { return };
        let follow_ups: Vec<FollowUp> =
            workers.workers.iter_mut().filter_map(|worker| worker.follow_up.take()).collect();
        follow_ups.into_iter().for_each(|follow_up| self.drop_purpose(now, follow_up.purpose_key));
    }

    /// A worker's next request, unless the phase is over: the next hop of a redirect, otherwise a new request.
    pub(super) fn next_of(&mut self, at: Timestamp, worker: u32) -> Option<BacklogRequest> {
        let Loop::Closed(workers) = &mut self.arrivals else { return None };
        let position = &mut workers.workers[worker as usize];
        let (client, follow_up) = (position.client, position.follow_up.take());
        let admitted = self.phase.admits(at);
        match follow_up {
            Some(follow_up) if admitted => Some(self.schedule_follow_up(at, client, follow_up)),
            Some(follow_up) => {
                self.drop_purpose(at, follow_up.purpose_key);
                None
            }
            None if admitted => {
                let number = workers.shard.number(workers.issued);
                workers.issued += 1;
                Some(self.schedule_new(at, number, client, None))
            }
            None => None,
        }
    }
}
