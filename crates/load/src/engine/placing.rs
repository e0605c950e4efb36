//! Finding a connection for a request.

use ledger::RequestRecord;
use units::Timestamp;

use super::output::{Pending, What};
use super::{Load, Loop};
use crate::connection::State;
use crate::queues::Queue;

/// A request in the backlog: intended, no connection yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) sequence: u64,
    pub(super) intended_at: Timestamp,
    pub(super) client: u32,
    pub(super) url: u32,
}

impl Waiting {
    pub(super) fn record(self) -> RequestRecord {
        RequestRecord {
            sequence: self.sequence,
            client: self.client,
            connection: None,
            session: None,
            url: self.url,
            stream: None,
            intended_at: self.intended_at,
            started_at: None,
            connected_at: None,
            secured_at: None,
            sent_at: None,
            first_byte_at: None,
            done_at: self.intended_at,
            status: 0,
            bytes_received: 0,
            head_bytes: 0,
            keeps_connection: false,
            bytes_sent: 0,
            failure: None,
        }
    }
}

/// Arrivals made in one call of `handle_time`: a generator that is far behind stays able to read answers and to
/// stop. The others keep their moments and come with the next call.
const ARRIVALS_PER_CALL_MAX: usize = 4096;

/// So far into the backlog a free connection looks for a request of its own client. It also bounds for how long the
/// first in the queue can be passed over.
const LOOK_AHEAD: usize = 512;

impl Load {
    /// Makes the arrivals that are due by `now` intended, each at its own moment.
    pub(super) fn make_arrivals(&mut self, now: Timestamp) {
        for _ in 0..ARRIVALS_PER_CALL_MAX {
            let Loop::Open(schedule) = &mut self.arrivals else { return };
            let at = schedule.next();
            if at > now || !self.phase.admits(at) {
                return;
            }
            schedule.take();
            let following = schedule.next();
            let client = self.clients.take();
            let waiting = self.intend(at, client);
            if self.phase.is_full() {
                self.phase.end_at(following);
            }
            // Arrivals behind others that wait must wait too: first come, first served.
            if !self.backlog.is_empty() || !self.place(waiting) {
                self.live.cap_hits += 1;
                self.backlog.push_back(waiting);
            }
        }
    }

    /// Counts a request of `client` as intended at `at`.
    pub(super) fn intend(&mut self, at: Timestamp, client: u32) -> Waiting {
        let sequence = self.live.offered;
        let url = (sequence % self.spec.workload.requests.len() as u64) as u32;
        self.live.offered += 1;
        self.live.backlog += 1;
        if self.phase.count(at) {
            self.live.offered_measured += 1;
        }
        Waiting { sequence, intended_at: at, client, url }
    }

    /// Gives a request a connection: an idle one of its client, else a new one, for which the longest idle connection
    /// of another client makes room under the cap. False if every connection is busy.
    fn place(&mut self, waiting: Waiting) -> bool {
        let endpoint = self.endpoints[waiting.url as usize];
        let own = self.idle.of(waiting.client).find(|&index| self.pool.endpoint(index) == endpoint);
        if let Some(index) = own {
            self.leave_idle(index);
            self.send_on(index, waiting.record());
            return true;
        }
        if self.pool.open() >= self.spec.connections_max {
            let Some((longest_idle, _)) = self.queues.first(Queue::Idle) else { return false };
            self.close(longest_idle);
        }
        self.open_for(waiting.record(), false, 0);
        true
    }

    /// Gives waiting requests what connections have become free, in the order of their arrival.
    pub(super) fn serve_backlog(&mut self) {
        while let Some(&waiting) = self.backlog.front() {
            if !self.place(waiting) {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// The request that connection `index`, just become free, is to carry next: the oldest that waits for its own
    /// client, if it is not far down the queue. Serving the very first instead would mean closing this connection and
    /// opening another for every request while there is a backlog.
    pub(super) fn waiting_for(&mut self, index: u32) -> Option<RequestRecord> {
        let connection = self.pool.at(index);
        let (client, endpoint) = (connection.client, connection.endpoint);
        let fits = |waiting: &Waiting| waiting.client == client && self.endpoints[waiting.url as usize] == endpoint;
        let at = self.backlog.iter().take(LOOK_AHEAD).position(fits)?;
        self.backlog.remove(at).map(Waiting::record)
    }

    /// Opens a connection for a request.
    pub(super) fn open_for(&mut self, request: RequestRecord, retried: bool, worker: u32) {
        let index = self.pool.take();
        let connection = self.pool.at(index);
        connection.client = request.client;
        connection.endpoint = self.endpoints[request.url as usize];
        connection.worker = worker;
        connection.retried = retried;
        connection.request = Some(request);
        self.act(index, What::Connect);
    }

    /// Sends a request on an open connection that has none.
    pub(super) fn send_on(&mut self, index: u32, mut request: RequestRecord) {
        let connection = self.pool.at(index);
        request.connection = Some(connection.number);
        connection.request = Some(request);
        connection.retried = false;
        connection.state = State::Ready;
        self.act(index, What::Send);
    }

    pub(super) fn enter_idle(&mut self, now: Timestamp, index: u32) {
        let connection = self.pool.at(index);
        connection.state = State::Idle;
        let client = connection.client;
        self.idle.push(client, index);
        self.queues.push(Queue::Idle, index, now);
    }

    pub(super) fn leave_idle(&mut self, index: u32) {
        let client = self.pool.at(index).client;
        self.idle.remove(client, index);
        self.queues.remove(index);
    }

    pub(super) fn act(&mut self, index: u32, what: What) {
        self.actions.push_back(Pending { key: self.pool.key(index), what });
    }
}
