//! The closed loop: a fixed number of connections, each issuing its next request when the one before has ended.
//!
//! A connection that closes is replaced when it is closed, not before, so that their number is what was asked for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use units::Timestamp;

use super::{Load, Loop};
use crate::spec::Reuse;

/// The connections of a closed loop, as positions that are filled by one real connection after another.
#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<Worker>,
    begun: bool,
    paused: BinaryHeap<Reverse<(Timestamp, u32)>>,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    client: u32,
    pause: Duration,
}

/// First pause of a position whose connection brought no byte of a response; it doubles up to the last. Without it a
/// server that refuses connections would be asked as fast as the machine can.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_secs(1);

impl Workers {
    pub(super) fn new(connections: u32) -> Self {
        let worker = Worker { client: 0, pause: PAUSE_FIRST };
        Workers { workers: vec![worker; connections as usize], begun: false, paused: BinaryHeap::new() }
    }

    /// Start of the loop, then the earliest end of a pause.
    pub(super) fn next_wake(&self, start: Timestamp) -> Option<Timestamp> {
        if self.begun { self.paused.peek().map(|Reverse((at, _))| *at) } else { Some(start) }
    }

    pub(super) fn pause(&mut self, worker: u32, now: Timestamp) {
        let pause = &mut self.workers[worker as usize].pause;
        self.paused.push(Reverse((now + *pause, worker)));
        *pause = (*pause * 2).min(PAUSE_LAST);
    }

    /// A response was whole: the next pause is a first one again.
    pub(super) fn answered(&mut self, worker: u32) {
        self.workers[worker as usize].pause = PAUSE_FIRST;
    }
}

impl Load {
    /// Begins the loop, and ends pauses that are due.
    pub(super) fn run_workers(&mut self, now: Timestamp) {
        let Loop::Closed(workers) = &mut self.arrivals else { return };
        if !workers.begun && now >= self.start {
            workers.begun = true;
            let clients = &mut self.clients;
            workers.workers.iter_mut().for_each(|worker| worker.client = clients.take());
            for worker in 0..self.spec.connections_max {
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
    /// the next client in turn.
    pub(super) fn issue(&mut self, at: Timestamp, worker: u32) {
        if self.spec.reuse == Reuse::Close && self.phase.admits(at) {
            let client = self.clients.take();
            let Loop::Closed(workers) = &mut self.arrivals else { return };
            workers.workers[worker as usize].client = client;
        }
        self.issue_for_client(at, worker);
    }

    fn issue_for_client(&mut self, at: Timestamp, worker: u32) {
        let Loop::Closed(workers) = &self.arrivals else { return };
        let client = workers.workers[worker as usize].client;
        if self.phase.admits(at) {
            let waiting = self.intend(at, client);
            self.open_for(waiting.record(), false, worker);
        }
    }

    /// The next request of a position, on the open connection that has just brought a response.
    pub(super) fn issue_on(&mut self, now: Timestamp, index: u32) {
        let connection = self.pool.at(index);
        let (client, worker, endpoint) = (connection.client, connection.worker, connection.endpoint);
        if !self.phase.admits(now) {
            self.enter_idle(now, index);
            return;
        }
        let waiting = self.intend(now, client);
        if self.endpoints[waiting.url as usize] == endpoint {
            self.send_on(index, waiting.record());
        } else {
            self.close(index);
            self.open_for(waiting.record(), false, worker);
        }
    }
}
