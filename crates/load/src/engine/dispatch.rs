//! Finding a connection for a request.

use schema::RequestRecord;
use units::Timestamp;

use super::output::{Pending, What};
use super::{Load, Loop};
use crate::connection::State;
use crate::due::Wake;
use crate::in_flight::{InFlightRequest, Onward, PurposeKey};
use crate::queues::Queue;
use crate::turns::Turn;

/// A request in the backlog: intended, no connection yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) sequence: u64,
    pub(super) scheduled_at: Timestamp,
    pub(super) client: u32,
    pub(super) url: u32,
    pub(super) session: Option<u64>,
    pub(super) purpose_key: PurposeKey,
    /// It waited for a connection, every one up to the cap being busy.
    pub(super) queued: bool,
}

impl Waiting {
    #[inline]
    pub(super) fn in_hand(self) -> InFlightRequest {
        let record = RequestRecord {
            sequence: self.sequence,
            client: self.client,
            session: self.session,
            url: self.url,
            scheduled_at: self.scheduled_at,
            done_at: self.scheduled_at,
            queued: self.queued,
            ..RequestRecord::BLANK
        };
        InFlightRequest { record, purpose_key: self.purpose_key, retried: false }
    }
}

/// Arrivals and follow-ups made in one call of `handle_time`: a generator that is far behind stays able to read answers and to
/// stop. The others keep their moments and come with the next call.
const ARRIVALS_PER_CALL_MAX: usize = 4096;

/// So far into the backlog a free connection looks for a request of its own client. It also bounds for how long the
/// first in the queue can be passed over.
const LOOK_AHEAD: usize = 512;

impl Load {
    /// Makes what is due by `now` intended, each at its own moment: arrivals, and what follows from responses.
    pub(super) fn make_due(&mut self, now: Timestamp) {
        for _ in 0..ARRIVALS_PER_CALL_MAX {
            let arrival = if let Loop::Open(turns) = &self.arrivals { Some(turns.next()) } else { None };
            // At the same moment, what began earlier goes first.
            let (at, follows) = match (self.due.next(), arrival) {
                (None, Some(arrival)) => (arrival, false),
                (Some(due), Some(arrival)) if arrival < due => (arrival, false),
                (Some(due), _) => (due, true),
                (None, None) => return,
            };
            if at > now || !self.phase.admits(at) {
                return;
            }
            if follows {
                self.make_follow_up();
            } else {
                self.make_arrival();
            }
        }
    }

    /// Makes what follows from responses, and is due by `now`, intended. Arrivals wait for their turn: what else has
    /// happened is heard first.
    pub(super) fn make_follow_ups(&mut self, now: Timestamp) {
        while let Some(at) = self.due.next() {
            if at > now || !self.phase.admits(at) {
                return;
            }
            self.make_follow_up();
        }
    }

    fn make_arrival(&mut self) {
        let Loop::Open(turns) = &mut self.arrivals else { return };
        let Turn { sequence, at, client, request } = turns.take();
        if self.virtual_users.is_some() {
            let waiting = self.intend_ask(at, sequence, client);
            self.put_last(waiting);
        } else if self.has_sessions() {
            self.begin_session(at, sequence, client, None);
        } else {
            let waiting = self.intend_new(at, sequence, client, request);
            self.put_last(waiting);
        }
        self.pass_over();
    }

    fn make_follow_up(&mut self) {
        match self.due.pop() {
            Some((at, Wake::Step { session, number, step })) => self.begin_step(at, session, number, step),
            Some((at, Wake::Ask { client, url, purpose_key })) => self.ask(at, client, url, purpose_key),
            Some((at, Wake::User(user))) => self.begin_user(at, user),
            None => {}
        }
    }

    /// Intends a request that follows from a response, or is part of a session.
    pub(super) fn ask(&mut self, at: Timestamp, client: u32, url: u32, purpose_key: PurposeKey) {
        let waiting = self.intend_onward(at, client, Onward { url, purpose_key });
        self.put_last(waiting);
        self.end_full_phase();
    }

    fn put_last(&mut self, waiting: Waiting) {
        self.live.cap_hits += u64::from(self.capped);
        self.backlog.push_back(waiting);
    }

    /// Passes over the arrivals of other shards, up to this shard's next. They count against the number of requests that
    /// ends the phase, whose end is then the same for every shard; not so where one arrival is not one request.
    pub(super) fn pass_over(&mut self) {
        let Loop::Open(turns) = &mut self.arrivals else { return };
        while !turns.is_own() && turns.next() < Timestamp::MAX && self.phase.admits(turns.next()) {
            let at = turns.take().at;
            if let Some(virtual_users) = &mut self.virtual_users {
                virtual_users.pass_over(at.since(self.start));
            }
            if !self.follows_up {
                self.phase.count(at);
            }
        }
        self.end_full_phase();
    }

    /// The phase of an open loop that has all its requests ends with the next arrival.
    fn end_full_phase(&mut self) {
        if let Loop::Open(turns) = &self.arrivals
            && self.phase.is_full()
        {
            self.phase.end_at(turns.next());
        }
    }

    /// Counts a request of `client` as intended at `at`: the one that arrival `number` chooses, or the one that is
    /// `logged` for it.
    pub(super) fn intend_new(&mut self, at: Timestamp, number: u64, client: u32, logged: Option<u32>) -> Waiting {
        let url = logged.unwrap_or_else(|| self.chooser.choose(number));
        let sequence = if self.follows_up { self.next_sequence() } else { number };
        self.count_intended(at);
        Waiting {
            sequence,
            scheduled_at: at,
            client,
            url,
            session: None,
            purpose_key: PurposeKey::PLAIN,
            queued: false,
        }
    }

    /// Counts a request that follows from a response, or is part of a session, as intended at `at`.
    pub(super) fn intend_onward(&mut self, at: Timestamp, client: u32, onward: Onward) -> Waiting {
        let Onward { url, purpose_key } = onward;
        let part = self.purposes.purpose(purpose_key).and_then(|purpose| purpose.part);
        let session = part.and_then(|part| self.sessions.number(part));
        let sequence = match self.purposes.asking(purpose_key) {
            Some(asking) => asking.id.sequence,
            None => self.next_sequence(),
        };
        self.count_intended(at);
        Waiting { sequence, scheduled_at: at, client, url, session, purpose_key, queued: false }
    }

    /// The number of the next request where requests follow from responses: in the order of intention in this shard.
    fn next_sequence(&self) -> u64 {
        self.spec.lane.number(self.live.offered)
    }

    pub(super) fn count_intended(&mut self, at: Timestamp) {
        self.live.offered += 1;
        self.live.backlog += 1;
        if self.phase.count(at) {
            self.live.offered_measured += 1;
        }
    }

    /// Gives a request a connection: an idle one of its client, else a new one, for which the longest idle connection
    /// of another client makes room under the cap. False if every connection is busy.
    fn place(&mut self, waiting: Waiting) -> bool {
        let endpoint = self.endpoint_of(waiting.url, waiting.purpose_key);
        if self.is_multiplexed() {
            let Some(index) = self.trunk_for(waiting.client, endpoint) else { return false };
            self.join(index, waiting.in_hand(), 0);
            return true;
        }
        let leads_there = |&index: &u32| self.pool.endpoint(index) == endpoint;
        let own = if self.open_connections.in_turn() {
            self.idle.longest_of(waiting.client).find(leads_there)
        } else {
            // The last used is the least likely to have been closed by the server.
            self.idle.of(waiting.client).find(leads_there)
        };
        if let Some(index) = own {
            self.leave_idle(index);
            self.send_on(index, waiting);
            return true;
        }
        if self.pool.open() >= self.connections_most {
            let Some((longest_idle, _)) = self.queues.first(Queue::Idle) else { return false };
            self.close(longest_idle);
        }
        self.open_for(waiting.in_hand(), 0);
        true
    }

    /// Gives the first of the waiting requests a connection; false if none waits, or every connection is busy.
    ///
    /// Called only when the driver has nothing else to do, so that a request takes a connection that has become
    /// idle since it was scheduled: a generator that was held up for a moment would otherwise open a connection for
    /// every arrival of that moment, which holds it up more.
    pub(super) fn place_next(&mut self) -> bool {
        let Some(&first) = self.backlog.front().filter(|_| !self.stuck) else { return false };
        let waiting = Waiting { queued: self.capped, ..first };
        if self.place(waiting) {
            self.backlog.pop_front();
            self.capped &= !self.backlog.is_empty();
            return true;
        }
        self.stuck = true;
        if !self.capped {
            self.capped = true;
            self.live.cap_hits += self.backlog.len() as u64;
        }
        false
    }

    /// The request that connection `index`, just become free, is to carry next: the oldest that waits for its own
    /// client, if it is not far down the queue. Serving the very first instead would mean closing this connection and
    /// opening another for every request while there is a backlog.
    pub(super) fn waiting_for(&mut self, index: u32) -> Option<Waiting> {
        let connection = self.pool.at(index);
        let (client, endpoint) = (connection.client, connection.endpoint);
        let fits = |waiting: &Waiting| {
            waiting.client == client && self.endpoint_of(waiting.url, waiting.purpose_key) == endpoint
        };
        let at = self.backlog.iter().take(LOOK_AHEAD).position(fits)?;
        let waiting = Waiting { queued: self.capped, ..self.backlog.remove(at)? };
        self.capped &= !self.backlog.is_empty();
        Some(waiting)
    }

    /// Opens a connection for a request.
    pub(super) fn open_for(&mut self, request: InFlightRequest, worker: u32) -> u32 {
        let index = self.pool.take();
        let endpoint = self.endpoint_of(request.record.url, request.purpose_key);
        let connection = self.pool.at(index);
        connection.client = request.record.client;
        connection.endpoint = endpoint;
        connection.worker = worker;
        connection.request = Some(request);
        self.note_opens(index);
        self.act(index, What::Connect);
        index
    }

    /// Sends a request on an open connection that has none.
    pub(super) fn send_on(&mut self, index: u32, waiting: Waiting) {
        let connection = self.pool.at(index);
        // Put together where it stays: a record is a quarter of a kilobyte.
        let request = connection.request.insert(waiting.in_hand());
        request.record.connection = Some(connection.number);
        connection.state = State::Ready;
        self.act(index, What::Send);
    }

    pub(super) fn enter_idle(&mut self, now: Timestamp, index: u32) {
        let connection = self.pool.at(index);
        connection.state = State::Idle;
        self.stuck = false;
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
