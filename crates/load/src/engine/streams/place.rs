//! Finding a connection for a request, and handing it out.

use units::Timestamp;

use super::super::Load;
use super::super::output::What;
use super::{Being, LIMIT_ASSUMED, NONE, RequestHead, StreamKey, fields};
use crate::connection::State;
use crate::in_flight::InFlightRequest;
use crate::queues::Queue;
use crate::spec::{HttpVersion, Reuse};

impl Load {
    /// Whether connections carry streams.
    pub(in super::super) fn is_multiplexed(&self) -> bool {
        self.spec.version == HttpVersion::Http2
    }

    /// A connection of `client` with room: open, being opened, or a new one, for which the longest idle one makes room
    /// under the cap. `None` if the cap leaves no way. To be followed by [`Self::join`].
    pub(in super::super) fn trunk_for(&mut self, client: u32, endpoint: u16) -> Option<u32> {
        let own = self.streams.roomy.of(client).find(|&index| self.pool.endpoint(index) == endpoint);
        if own.is_some() {
            return own;
        }
        if self.pool.open() >= self.connections_most {
            let (longest_idle, _) = self.queues.first(Queue::Idle)?;
            self.close_trunk(longest_idle);
        }
        Some(self.open_trunk(client, endpoint))
    }

    /// A connection that is to be opened.
    pub(super) fn open_trunk(&mut self, client: u32, endpoint: u16) -> u32 {
        let index = self.pool.take();
        let connection = self.pool.at(index);
        connection.client = client;
        connection.endpoint = endpoint;
        connection.worker = 0;
        connection.request = None;
        let limit = self.streams.limits[usize::from(endpoint)].clamp(1, LIMIT_ASSUMED);
        let trunk = self.streams.trunk(index);
        debug_assert!(trunk.streams.is_empty(), "a connection begins without streams");
        *trunk = super::Trunk { limit, ..super::Trunk::default() };
        self.note_room(index);
        self.act(index, What::Connect);
        index
    }

    /// Puts a request on a connection that has room for it, or will have.
    pub(in super::super) fn join(&mut self, index: u32, request: InFlightRequest, worker: u32) {
        let wants = self.wants(&request);
        let stream = self.streams.take(index, worker, request, wants);
        let key = self.streams.key(stream);
        let trunk = self.streams.trunk(index);
        if trunk.streams.len() == 1 {
            trunk.heard = false;
        }
        if self.pool.at(index).state == State::Wanted {
            self.streams.trunk(index).opener.get_or_insert(key);
        } else if self.pool.at(index).state == State::Carrying {
            // No longer idle, if it was.
            self.queues.remove(index);
        }
        self.note_room(index);
        self.streams.at(stream).state = Being::Due;
        self.act(index, What::Stream(key));
    }

    /// Keeps the list of connections with room up to date.
    pub(super) fn note_room(&mut self, index: u32) {
        let client = self.pool.at(index).client;
        let places = self.spec.streams_most();
        let close = self.spec.reuse == Reuse::Close;
        let trunk = self.streams.trunk(index);
        let carried = trunk.streams.len() as u32;
        // With one connection a request the first that comes is also the last.
        let room = !trunk.leaving && carried < trunk.limit.min(places) && !(close && trunk.opener.is_some());
        if room != trunk.roomy {
            trunk.roomy = room;
            if room {
                self.streams.roomy.push(client, index);
                self.stuck = false;
            } else {
                self.streams.roomy.remove(client, index);
            }
        }
    }

    /// Closed loop: the worker's next request, on the connection of its position. Where the server allows no more
    /// streams on it the worker waits for that.
    pub(in super::super) fn issue_stream(&mut self, at: Timestamp, worker: u32) {
        // Which of several hosts is asked is known only once the request is intended.
        if self.targets.len() == 1
            && let Some(index) = self.trunk_of(worker, 0)
            && !self.streams.trunks[index as usize].roomy
            && self.phase.admits(at)
        {
            self.streams.trunk(index).parked.push(worker);
            return;
        }
        if let Some(waiting) = self.next_of(at, worker) {
            let endpoint = self.endpoint_of(waiting.url, waiting.purpose_key);
            self.join_position(waiting.in_hand(), worker, endpoint);
        }
    }

    /// Puts a worker's request on the connection of its position, which is opened if there is none.
    pub(super) fn join_position(&mut self, request: InFlightRequest, worker: u32, endpoint: u16) {
        let index = self.trunk_of(worker, endpoint).unwrap_or_else(|| {
            let index = self.open_trunk(request.record.client, endpoint);
            let place = self.position(worker, endpoint);
            self.streams.positions[place as usize] = index;
            self.streams.trunk(index).position = Some(place);
            index
        });
        self.join(index, request, worker);
    }

    fn position(&self, worker: u32, endpoint: u16) -> u32 {
        worker / self.spec.streams_most() * self.targets.len() as u32 + u32::from(endpoint)
    }

    fn trunk_of(&self, worker: u32, endpoint: u16) -> Option<u32> {
        let index = self.streams.positions[self.position(worker, endpoint) as usize];
        (index != NONE).then_some(index)
    }

    /// A stream's turn in the action queue: true if it is to be opened now.
    pub(in super::super) fn hand_out_stream(&mut self, now: Timestamp, index: u32, key: StreamKey) -> bool {
        let state = self.pool.at(index).state;
        let number = self.pool.at(index).number;
        let Some(stream) = self.streams.find(key).filter(|stream| stream.connection == index) else { return false };
        if stream.state == Being::Open {
            return false;
        }
        if let Some(request) = &mut stream.request {
            request.record.connection = Some(number);
            if request.record.started_at.is_none() {
                request.record.started_at = Some(now);
                self.count_start();
            }
        }
        if state != State::Carrying {
            self.streams.at(key.index).state = Being::Waiting;
            return false;
        }
        self.watch_deadline(now, key.index);
        let trunk = self.streams.trunk(index);
        if trunk.open >= trunk.limit {
            trunk.waiting.push_back(key.index);
            self.streams.at(key.index).state = Being::Waiting;
            return false;
        }
        if !self.write_fields(now, key.index) {
            let cause = schema::FailureCause::LocalError;
            self.fail_stream(now, now, key.index, cause);
            return false;
        }
        self.streams.trunk(index).open += 1;
        self.live.sends += 1;
        let stream = self.streams.at(key.index);
        stream.state = Being::Open;
        if let Some(request) = &mut stream.request {
            request.record.attempts = request.record.attempts.saturating_add(1);
        }
        self.pool.at(index).requests += 1;
        true
    }

    /// The response deadline of a stream begins, unless it has.
    pub(super) fn watch_deadline(&mut self, now: Timestamp, stream: u32) {
        if !self.streams.deadlines.holds(stream) {
            self.streams.deadlines.push(Queue::Awaiting, stream, now + self.spec.response_timeout);
        }
    }

    /// The request of a stream that [`Self::hand_out_stream`] has just handed out.
    pub(in super::super) fn handed_out(&self, key: StreamKey) -> (usize, &RequestHead, &[u8]) {
        let request = self.streams.slots[key.index as usize].request.as_ref().expect("a stream that is opened");
        let url = request.record.url;
        let written = self.streams.fields.kept(url, self.is_always_the_same(request));
        (url as usize, &written.head, &written.body)
    }

    /// Writes a stream's request; false if it cannot be said in HTTP/2.
    fn write_fields(&mut self, now: Timestamp, stream: u32) -> bool {
        let Some(request) = self.streams.slots[stream as usize].request.as_ref() else { return false };
        let (url, same) = (request.record.url, self.is_always_the_same(request));
        if same && self.streams.fields.prepared(url).is_some() {
            return true;
        }
        let Ok(written) = fields::write(&self.rendering(request, now)) else { return false };
        if same {
            self.streams.fields.keep(url, written);
        } else {
            self.streams.fields.keep_once(written);
        }
        true
    }

    fn is_always_the_same(&self, request: &InFlightRequest) -> bool {
        !self.spec.workload.cookies
            && self.purposes.hop(request.purpose_key).is_none()
            && self.spec.workload.requests[request.record.url as usize].is_literal()
    }
}
