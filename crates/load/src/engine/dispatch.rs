//! Finds a connection for each request.

use schema::RequestRecord;
use units::Timestamp;

use super::output::{ActionKind, Pending};
use super::{Load, Loop};
use crate::arrival_source::Arrival;
use crate::connection::State;
use crate::due::Wake;
use crate::in_flight::{FollowUp, InFlightRequest, PurposeKey};
use crate::queues::Queue;

/// A request in the backlog: scheduled, without a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogRequest {
    pub(super) sequence: u64,
    pub(super) scheduled_at: Timestamp,
    pub(super) client: u32,
    pub(super) url: u32,
    pub(super) session: Option<u64>,
    pub(super) purpose_key: PurposeKey,
    /// Whether the request waited because every connection up to the maximum was busy.
    pub(super) queued: bool,
}

impl BacklogRequest {
    #[inline]
    pub(super) fn into_in_flight(self) -> InFlightRequest {
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

/// Maximum arrivals and follow-ups per call of `handle_time`, so that a generator that is far behind can still read
/// responses and stop. The others keep their scheduled times and follow with the next call.
const ARRIVALS_PER_CALL_MAX: usize = 4096;

/// How many requests of the backlog are searched for one of a free connection's own client. The limit also bounds how
/// long the first request of the backlog can be overtaken.
const LOOK_AHEAD_MAX: usize = 512;

impl Load {
    /// Schedules the arrivals and follow-ups that are due by `now`, each at its own time.
    pub(super) fn make_due(&mut self, now: Timestamp) {
        for _ in 0..ARRIVALS_PER_CALL_MAX {
            let arrival = if let Loop::Open(source) = &self.arrivals { Some(source.next()) } else { None };
            // At equal times a follow-up comes before an arrival, since it began earlier.
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

    /// Schedules the follow-ups that are due by `now`. Arrivals wait for `handle_time`, so that other events are
    /// handled first.
    pub(super) fn make_follow_ups(&mut self, now: Timestamp) {
        while let Some(at) = self.due.next() {
            if at > now || !self.phase.admits(at) {
                return;
            }
            self.make_follow_up();
        }
    }

    fn make_arrival(&mut self) {
        let Loop::Open(source) = &mut self.arrivals else { return };
        let Arrival { sequence, at, client, request } = source.take();
        self.arrivals_measured += u64::from(at >= self.phase.start());
        if self.virtual_users.is_some() {
            let waiting = self.schedule_workload_request(at, sequence, client);
            self.put_last(waiting);
        } else if self.has_sessions() {
            self.begin_session(at, sequence, client, None);
        } else {
            let waiting = self.schedule_new(at, sequence, client, request);
            self.put_last(waiting);
        }
        self.skip_other_shards();
    }

    fn make_follow_up(&mut self) {
        match self.due.pop() {
            Some((at, Wake::Step { session, number, step })) => self.begin_step(at, session, number, step),
            Some((at, Wake::Request { client, url, purpose_key })) => {
                self.schedule_request(at, client, url, purpose_key)
            }
            Some((at, Wake::User(user))) => self.begin_user(at, user),
            None => {}
        }
    }

    /// Schedules a follow-up request, or a request of a session, and puts it into the backlog.
    pub(super) fn schedule_request(&mut self, at: Timestamp, client: u32, url: u32, purpose_key: PurposeKey) {
        let waiting = self.schedule_follow_up(at, client, FollowUp { url, purpose_key });
        self.put_last(waiting);
        self.end_full_phase();
    }

    fn put_last(&mut self, waiting: BacklogRequest) {
        self.live.cap_hits += u64::from(self.capped);
        self.backlog.push_back(waiting);
    }

    /// Skips the arrivals of other shards, up to this shard's next. Skipped arrivals count towards `requests_max`, so
    /// that the phase ends at the same time in every shard. With follow-ups an arrival may be several requests, and
    /// each shard counts its own.
    pub(super) fn skip_other_shards(&mut self) {
        let Loop::Open(source) = &mut self.arrivals else { return };
        while !source.is_own() && source.next() < Timestamp::MAX && self.phase.admits(source.next()) {
            let at = source.take().at;
            self.arrivals_measured += u64::from(at >= self.phase.start());
            if let Some(virtual_users) = &mut self.virtual_users {
                virtual_users.skip(at.since(self.start));
            }
            if !self.follows_up {
                self.phase.count(at);
            }
        }
        self.end_full_phase();
    }

    /// Ends the phase of an open loop that has scheduled all its requests at the time of the next arrival.
    fn end_full_phase(&mut self) {
        if let Loop::Open(source) = &self.arrivals
            && self.phase.is_full()
        {
            self.phase.end_at(source.next());
        }
    }

    /// Counts a request of `client` as scheduled at `at`: the request of the log if `logged`, otherwise the one that
    /// arrival `number` chooses.
    pub(super) fn schedule_new(
        &mut self,
        at: Timestamp,
        number: u64,
        client: u32,
        logged: Option<u32>,
    ) -> BacklogRequest {
        let url = logged.unwrap_or_else(|| self.chooser.choose(number));
        let sequence = if self.follows_up { self.next_sequence() } else { number };
        self.count_scheduled(at);
        BacklogRequest {
            sequence,
            scheduled_at: at,
            client,
            url,
            session: None,
            purpose_key: PurposeKey::PLAIN,
            queued: false,
        }
    }

    /// Counts a follow-up request, or a request of a session, as scheduled at `at`.
    pub(super) fn schedule_follow_up(&mut self, at: Timestamp, client: u32, follow_up: FollowUp) -> BacklogRequest {
        let FollowUp { url, purpose_key } = follow_up;
        let part = self.purposes.purpose(purpose_key).and_then(|purpose| purpose.part);
        let session = part.and_then(|part| self.sessions.number(part));
        let sequence = match self.purposes.workload_request(purpose_key) {
            Some(workload_request) => workload_request.id.sequence,
            None => self.next_sequence(),
        };
        self.count_scheduled(at);
        BacklogRequest { sequence, scheduled_at: at, client, url, session, purpose_key, queued: false }
    }

    /// The sequence number of the next request of a load with follow-ups: in the order of scheduling in this shard.
    fn next_sequence(&self) -> u64 {
        self.spec.shard.number(self.live.offered)
    }

    pub(super) fn count_scheduled(&mut self, at: Timestamp) {
        self.live.offered += 1;
        self.live.backlog += 1;
        if self.phase.count(at) {
            self.live.offered_measured += 1;
        }
    }

    /// Assigns a connection to a request: an idle one of its client, otherwise a new one. At the maximum of open
    /// connections the longest idle connection of another client is closed first. Returns false if every connection is
    /// busy.
    fn place(&mut self, waiting: BacklogRequest) -> bool {
        let endpoint = self.endpoint_of(waiting.url, waiting.purpose_key);
        if self.is_multiplexed() {
            let Some(index) = self.stream_connection_for(waiting.client, endpoint) else { return false };
            self.assign(index, waiting.into_in_flight(), 0);
            return true;
        }
        let leads_there = |&index: &u32| self.pool.endpoint(index) == endpoint;
        let own = if self.open_connections.in_turn() {
            self.idle.longest_of(waiting.client).find(leads_there)
        } else {
            // The server is least likely to have closed the most recently used connection.
            self.idle.of(waiting.client).find(leads_there)
        };
        if let Some(index) = own {
            self.leave_idle(index);
            self.send_on(index, waiting);
            return true;
        }
        if self.pool.open() >= self.connections_limit {
            let Some((longest_idle, _)) = self.queues.first(Queue::Idle) else { return false };
            self.close(longest_idle);
        }
        self.open_for(waiting.into_in_flight(), 0);
        true
    }

    /// Assigns a connection to the first request of the backlog. Returns false if the backlog is empty or every
    /// connection is busy.
    ///
    /// Called only when the driver has nothing else to do, so that a request can use a connection that has become idle
    /// since it was scheduled. Otherwise a generator after a short stall would open a connection for every arrival of
    /// that time, which would delay it further.
    pub(super) fn place_next(&mut self) -> bool {
        let Some(&first) = self.backlog.front().filter(|_| !self.all_busy) else { return false };
        let waiting = BacklogRequest { queued: self.capped, ..first };
        if self.place(waiting) {
            self.backlog.pop_front();
            self.capped &= !self.backlog.is_empty();
            return true;
        }
        self.all_busy = true;
        if !self.capped {
            self.capped = true;
            self.live.cap_hits += self.backlog.len() as u64;
        }
        false
    }

    /// Takes the next request for connection `index`, which has just become free, from the backlog: the oldest of the
    /// connection's client among the first `LOOK_AHEAD_MAX`. Taking the very first request instead would close this
    /// connection and open another for every request while there is a backlog.
    pub(super) fn waiting_for(&mut self, index: u32) -> Option<BacklogRequest> {
        let connection = self.pool.at(index);
        let (client, endpoint) = (connection.client, connection.endpoint);
        let fits = |waiting: &BacklogRequest| {
            waiting.client == client && self.endpoint_of(waiting.url, waiting.purpose_key) == endpoint
        };
        let at = self.backlog.iter().take(LOOK_AHEAD_MAX).position(fits)?;
        let waiting = BacklogRequest { queued: self.capped, ..self.backlog.remove(at)? };
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
        self.act(index, ActionKind::Connect);
        index
    }

    /// Sends a request on an open connection that has none.
    pub(super) fn send_on(&mut self, index: u32, waiting: BacklogRequest) {
        let connection = self.pool.at(index);
        // The record, of 256 bytes, is built in its final place.
        let request = connection.request.insert(waiting.into_in_flight());
        request.record.connection = Some(connection.number);
        connection.state = State::Ready;
        self.act(index, ActionKind::Send);
    }

    pub(super) fn enter_idle(&mut self, now: Timestamp, index: u32) {
        let connection = self.pool.at(index);
        connection.state = State::Idle;
        self.all_busy = false;
        let client = connection.client;
        self.idle.push(client, index);
        self.queues.push(Queue::Idle, index, now);
    }

    pub(super) fn leave_idle(&mut self, index: u32) {
        let client = self.pool.at(index).client;
        self.idle.remove(client, index);
        self.queues.remove(index);
    }

    pub(super) fn act(&mut self, index: u32, what: ActionKind) {
        self.actions.push_back(Pending { key: self.pool.key(index), what });
    }
}
