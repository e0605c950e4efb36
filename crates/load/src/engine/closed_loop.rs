//! The closed loop: a fixed number of connections, each issuing its next request when the one before has ended.
//!
//! A connection that closes is replaced when it is closed, not before, so that their number is what was asked for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use units::Timestamp;

use super::dispatch::Waiting;
use super::{Load, Loop};
use crate::in_flight::Onward;
use crate::spec::{Lane, Reuse};

/// The connections of a closed loop, as positions that are filled by one real connection after another.
#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<Worker>,
    /// So many of them, one behind the other, share a connection.
    places: u32,
    begun: bool,
    paused: BinaryHeap<Reverse<(Timestamp, u32)>>,
    lane: Lane,
    clients: u32,
    /// Clients handed out by [`Self::next_client`].
    clients_taken: u64,
    /// Requests issued that were no hop of a redirect.
    issued: u64,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    client: u32,
    pause: Pause,
    /// Where a redirect leads: the position's next request.
    onward: Option<Onward>,
}

/// The next pause of something that has had no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause(Duration);

/// First pause of a position whose connection brought no byte of a response; it doubles up to the last. Without it a
/// server that refuses connections would be asked as fast as the machine can.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_secs(1);

impl Pause {
    pub(super) const FIRST: Pause = Pause(PAUSE_FIRST);

    /// The pause to make now; the next is twice as long.
    pub(super) fn take(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_LAST);
        pause
    }
}

impl Workers {
    /// `connections` of this shard, with so many requests at once on each; `clients` of the whole run, at least 1.
    pub(super) fn new(connections: u32, places: u32, clients: u32, lane: Lane) -> Self {
        let worker = Worker { client: 0, pause: Pause::FIRST, onward: None };
        let workers = vec![worker; connections as usize * places as usize];
        Workers { workers, places, begun: false, paused: BinaryHeap::new(), lane, clients, clients_taken: 0, issued: 0 }
    }

    /// Clients in turn: position k of the run, over all shards, has client k modulo their number.
    fn next_client(&mut self) -> u32 {
        let position = self.lane.number(self.clients_taken);
        self.clients_taken += 1;
        (position % u64::from(self.clients)) as u32
    }

    /// Start of the loop, then the earliest end of a pause.
    pub(super) fn next_wake(&self, start: Timestamp) -> Option<Timestamp> {
        if self.begun { self.paused.peek().map(|Reverse((at, _))| *at) } else { Some(start) }
    }

    pub(super) fn pause(&mut self, worker: u32, now: Timestamp) {
        let pause = self.workers[worker as usize].pause.take();
        self.paused.push(Reverse((now + pause, worker)));
    }

    /// A response was complete: the next pause is a first one again. `onward` is where it leads.
    pub(super) fn answered(&mut self, worker: u32, onward: Option<Onward>) {
        let worker = &mut self.workers[worker as usize];
        (worker.pause, worker.onward) = (Pause::FIRST, onward);
    }
}

impl Load {
    /// Begins the loop, and ends pauses that are due.
    pub(super) fn run_workers(&mut self, now: Timestamp) {
        let Loop::Closed(workers) = &mut self.arrivals else { return };
        if !workers.begun && now >= self.start {
            workers.begun = true;
            let all = workers.workers.len() as u32;
            for first in (0..all).step_by(workers.places as usize) {
                let client = workers.next_client();
                let sharing = first as usize..(first + workers.places) as usize;
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

    /// The next request of a position, on a new connection: of the same client, or with one connection a request of
    /// the next client in turn. A hop of a redirect stays with its client.
    pub(super) fn issue(&mut self, at: Timestamp, worker: u32) {
        if self.spec.reuse == Reuse::Close && self.phase.admits(at) {
            let Loop::Closed(workers) = &mut self.arrivals else { return };
            if workers.workers[worker as usize].onward.is_none() {
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
            self.open_for(waiting.in_hand(), worker);
        }
    }

    /// The next request of a position, on the open connection that has just brought a response.
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
            self.open_for(waiting.in_hand(), worker);
        }
    }

    /// Forgets where responses would have led positions that issue nothing more.
    pub(super) fn drop_onwards(&mut self, now: Timestamp) {
        let Loop::Closed(workers) = &mut self.arrivals else { return };
        let onwards: Vec<Onward> = workers.workers.iter_mut().filter_map(|worker| worker.onward.take()).collect();
        onwards.into_iter().for_each(|onward| self.drop_purpose(now, onward.purpose_key));
    }

    /// The next request of a position, if there is to be one: where the last one's response leads, else a new one.
    pub(super) fn next_of(&mut self, at: Timestamp, worker: u32) -> Option<Waiting> {
        let Loop::Closed(workers) = &mut self.arrivals else { return None };
        let position = &mut workers.workers[worker as usize];
        let (client, onward) = (position.client, position.onward.take());
        let admitted = self.phase.admits(at);
        match onward {
            Some(onward) if admitted => Some(self.intend_onward(at, client, onward)),
            Some(onward) => {
                self.drop_purpose(at, onward.purpose_key);
                None
            }
            None if admitted => {
                let number = workers.lane.number(workers.issued);
                workers.issued += 1;
                Some(self.intend_new(at, number, client, None))
            }
            None => None,
        }
    }
}
