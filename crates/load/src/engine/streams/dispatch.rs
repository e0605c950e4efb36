//! Finds a connection with streams for a request, and opens its stream.

use units::Timestamp;

use super::super::Load;
use super::super::output::ActionKind;
use super::{DEFAULT_STREAM_LIMIT, NONE, RequestHead, StreamKey, StreamState, fields};
use crate::connection::State;
use crate::in_flight::InFlightRequest;
use crate::queues::Queue;
use crate::spec::{HttpVersion, Reuse};

impl Load {
    /// Whether connections carry streams, as with HTTP/2 and HTTP/3.
    pub(in super::super) fn is_multiplexed(&self) -> bool {
        matches!(self.spec.version, HttpVersion::Http2 | HttpVersion::Http3)
    }

    /// A connection of `client` that can take a further stream: open, being opened, or new. At the maximum of
    /// connections the longest idle one is closed first; `None` if none is idle. The caller then calls
    /// [`Self::assign`].
    pub(in super::super) fn stream_connection_for(&mut self, client: u32, endpoint: u16) -> Option<u32> {
        let own = self.streams.available.of(client).find(|&index| self.pool.endpoint(index) == endpoint);
        if own.is_some() {
            return own;
        }
        if self.pool.open() >= self.connections_limit {
            let (longest_idle, _) = self.queues.first(Queue::Idle)?;
            self.close_stream_connection(longest_idle);
        }
        Some(self.open_stream_connection(client, endpoint))
    }

    /// Queues the opening of a new connection.
    pub(super) fn open_stream_connection(&mut self, client: u32, endpoint: u16) -> u32 {
        let index = self.pool.take();
        let connection = self.pool.at(index);
        connection.client = client;
        connection.endpoint = endpoint;
        connection.worker = 0;
        connection.request = None;
        let limit = self.streams.limits[usize::from(endpoint)].clamp(1, DEFAULT_STREAM_LIMIT);
        let stream_connection = self.streams.stream_connection(index);
        debug_assert!(stream_connection.streams.is_empty(), "a connection begins without streams");
        *stream_connection = super::StreamConnection { limit, ..super::StreamConnection::default() };
        self.update_availability(index);
        self.act(index, ActionKind::Connect);
        index
    }

    /// Puts a request on a connection; it waits there until a stream is available.
    pub(in super::super) fn assign(&mut self, index: u32, request: InFlightRequest, worker: u32) {
        let needs = self.needs(&request);
        let stream = self.streams.take(index, worker, request, needs);
        let key = self.streams.key(stream);
        let stream_connection = self.streams.stream_connection(index);
        if stream_connection.streams.len() == 1 {
            stream_connection.received_since_idle = false;
        }
        if self.pool.at(index).state == State::ConnectQueued {
            self.streams.stream_connection(index).opener.get_or_insert(key);
        } else if self.pool.at(index).state == State::StreamsReady {
            // The connection is not idle any more.
            self.queues.remove(index);
        }
        self.update_availability(index);
        self.streams.at(stream).state = StreamState::Due;
        self.act(index, ActionKind::Stream(key));
    }

    /// Updates whether a connection is listed as able to take a further stream.
    pub(super) fn update_availability(&mut self, index: u32) {
        let client = self.pool.at(index).client;
        let streams_max = self.spec.streams_limit();
        let close = self.spec.reuse == Reuse::Close;
        let stream_connection = self.streams.stream_connection(index);
        let carried = stream_connection.streams.len() as u32;
        // With one connection per request the first request is also the last.
        let available = !stream_connection.going_away
            && carried < stream_connection.limit.min(streams_max)
            && !(close && stream_connection.opener.is_some());
        if available != stream_connection.is_available {
            stream_connection.is_available = available;
            if available {
                self.streams.available.push(client, index);
                self.all_busy = false;
            } else {
                self.streams.available.remove(client, index);
            }
        }
    }

    /// Closed loop: issues a worker's next request on the connection of its group. If the connection has reached the
    /// server's limit of streams, the worker waits.
    pub(in super::super) fn issue_stream(&mut self, at: Timestamp, worker: u32) {
        // With several hosts, the host is known only after the request is scheduled.
        if self.targets.len() == 1
            && let Some(index) = self.stream_connection_of(worker, 0)
            && !self.streams.stream_connections[index as usize].is_available
            && self.phase.admits(at)
        {
            self.streams.stream_connection(index).waiting_workers.push(worker);
            return;
        }
        if let Some(waiting) = self.next_of(at, worker) {
            let endpoint = self.endpoint_of(waiting.url, waiting.purpose_key);
            self.assign_to_group(waiting.into_in_flight(), worker, endpoint);
        }
    }

    /// Puts a worker's request on the connection of its group, which is opened if necessary.
    pub(super) fn assign_to_group(&mut self, request: InFlightRequest, worker: u32, endpoint: u16) {
        let index = self.stream_connection_of(worker, endpoint).unwrap_or_else(|| {
            let index = self.open_stream_connection(request.record.client, endpoint);
            let position = self.position(worker, endpoint);
            self.streams.positions[position as usize] = index;
            self.streams.stream_connection(index).position = Some(position);
            index
        });
        self.assign(index, request, worker);
    }

    fn position(&self, worker: u32, endpoint: u16) -> u32 {
        worker / self.spec.streams_limit() * self.targets.len() as u32 + u32::from(endpoint)
    }

    fn stream_connection_of(&self, worker: u32, endpoint: u16) -> Option<u32> {
        let index = self.streams.positions[self.position(worker, endpoint) as usize];
        (index != NONE).then_some(index)
    }

    /// Handles a stream that is next in the action queue; true if the driver opens it now.
    pub(in super::super) fn hand_out_stream(&mut self, now: Timestamp, index: u32, key: StreamKey) -> bool {
        let state = self.pool.at(index).state;
        let number = self.pool.at(index).number;
        let Some(stream) = self.streams.find(key).filter(|stream| stream.connection == index) else { return false };
        if stream.state == StreamState::Open {
            return false;
        }
        if let Some(request) = &mut stream.request {
            request.record.connection = Some(number);
            if request.record.started_at.is_none() {
                request.record.started_at = Some(now);
                self.count_start();
            }
        }
        if state != State::StreamsReady {
            self.streams.at(key.index).state = StreamState::Waiting;
            return false;
        }
        self.watch_deadline(now, key.index);
        let stream_connection = self.streams.stream_connection(index);
        if stream_connection.open >= stream_connection.limit {
            stream_connection.waiting.push_back(key.index);
            self.streams.at(key.index).state = StreamState::Waiting;
            return false;
        }
        if !self.write_fields(now, key.index) {
            let cause = schema::FailureCause::LocalError;
            self.fail_stream(now, now, key.index, cause);
            return false;
        }
        self.streams.stream_connection(index).open += 1;
        self.live.sends += 1;
        let stream = self.streams.at(key.index);
        stream.state = StreamState::Open;
        if let Some(request) = &mut stream.request {
            request.record.attempts = request.record.attempts.saturating_add(1);
        }
        self.pool.at(index).requests += 1;
        true
    }

    /// Starts the response timeout of a stream, unless it runs already.
    pub(super) fn watch_deadline(&mut self, now: Timestamp, stream: u32) {
        if !self.streams.deadlines.holds(stream) {
            self.streams.deadlines.push(Queue::Awaiting, stream, now + self.spec.response_timeout);
        }
    }

    /// Index, head and body of the request for which [`Self::hand_out_stream`] has just returned true.
    pub(in super::super) fn handed_out(&self, key: StreamKey) -> (usize, &RequestHead, &[u8]) {
        let request = self.streams.slots[key.index as usize].request.as_ref().expect("a stream that is opened");
        let url = request.record.url;
        let written = self.streams.fields.stored(url, self.is_always_the_same(request));
        (url as usize, &written.head, &written.body)
    }

    /// Builds a stream's request; false if HTTP/2 does not allow it.
    fn write_fields(&mut self, now: Timestamp, stream: u32) -> bool {
        let Some(request) = self.streams.slots[stream as usize].request.as_ref() else { return false };
        let (url, same) = (request.record.url, self.is_always_the_same(request));
        if same && self.streams.fields.prepared(url).is_some() {
            return true;
        }
        let Ok(written) = fields::write(&self.rendering(request, now)) else { return false };
        if same {
            self.streams.fields.store(url, written);
        } else {
            self.streams.fields.store_once(written);
        }
        true
    }

    fn is_always_the_same(&self, request: &InFlightRequest) -> bool {
        !self.spec.workload.cookies
            && self.purposes.hop(request.purpose_key).is_none()
            && self.spec.workload.requests[request.record.url as usize].is_literal()
    }
}
