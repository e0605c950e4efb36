//! HTTP/2: several concurrent requests on a connection, with a scripted server in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use load::{
    Action, Arrivals, ConnectionEnd, ConnectionKey, HttpVersion, Live, Load, LoadSpec, Retry, Reuse, StreamFailure,
    StreamKey,
};
use proptest::prelude::*;
use schema::{FailureCause, RequestRecord};
use units::Timestamp;

use crate::world::{at, check_times, constant, ms, spec};

/// An action of the server, which reaches the client half a round trip later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerAction {
    Limit(u32),
    Respond,
    Head,
    Refuse,
    ResetStream,
    /// Sends GOAWAY; only the first `spare` streams of the connection are processed.
    GoAway {
        spare: u32,
        error: bool,
    },
    Fin,
    /// A FIN that was sent before the last request arrived.
    CrossedFin,
    Rst,
}

enum Event {
    Accepted,
    Refused,
    RequestArrives(u32, StreamKey),
    Delivered(ServerAction, Option<(u32, StreamKey)>),
}

#[derive(Default)]
struct Peer {
    opened: u32,
    open: Vec<u32>,
    limit: Option<u32>,
    is_closed: bool,
    /// The last stream that the server processes, after GOAWAY.
    last: Option<u32>,
}

struct Http2World<F> {
    load: Load,
    now: Timestamp,
    one_way: Duration,
    /// The server's actions and their delays, by the number of the request.
    script: F,
    limit: Option<u32>,
    refuses: bool,
    requests_received: u32,
    resets: u32,
    streams_max_open: usize,
    records: Vec<RequestRecord>,
    ends: Vec<ConnectionEnd>,
    open: HashMap<ConnectionKey, Peer>,
    events: BinaryHeap<Reverse<(Timestamp, u64)>>,
    what: BTreeMap<u64, (ConnectionKey, Event)>,
    in_flight_time: u128,
}

impl<F: FnMut(u32) -> Vec<(Duration, ServerAction)>> Http2World<F> {
    fn new(spec: LoadSpec, script: F) -> Self {
        Http2World {
            load: Load::new(spec, Timestamp::ZERO),
            now: Timestamp::ZERO,
            one_way: ms(1),
            script,
            limit: None,
            refuses: false,
            requests_received: 0,
            resets: 0,
            streams_max_open: 0,
            records: Vec::new(),
            ends: Vec::new(),
            open: HashMap::new(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            in_flight_time: 0,
        }
    }

    fn run(mut self) -> Self {
        let mut order = 0;
        let mut steps = 0;
        while !self.load.finished() {
            steps += 1;
            assert!(steps < 200_000, "the run does not end: {:?}", self.load.live());
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let next = [event, self.load.next_wake()].into_iter().flatten().min();
            let next = next.unwrap_or_else(|| panic!("no further event: {:?}", self.load.live())).max(self.now);
            self.in_flight_time += u128::from(self.load.live().in_flight) * next.since(self.now).as_nanos();
            self.now = next;
            self.load.handle_time(self.now);
            while let Some(&Reverse((at, number))) = self.events.peek() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                let (key, event) = self.what.remove(&number).expect("each event occurs once");
                self.handle_event(key, event, &mut order);
            }
            self.act(&mut order);
        }
        self.load.abort(self.now);
        self.act(&mut order);
        assert!(self.open.is_empty(), "every Connect has its Close");
        let live = self.load.live();
        assert_eq!((live.in_flight, live.backlog, live.connections), (0, 0, 0));
        assert_eq!(live.connections_opened as usize, self.ends.len());
        let mut sequences: Vec<u64> = self.records.iter().map(|record| record.sequence).collect();
        sequences.sort_unstable();
        assert!(sequences.into_iter().eq(0..live.offered), "each request has one record");
        self.records.iter().for_each(check_times);
        self
    }

    fn schedule(&mut self, after: Duration, key: ConnectionKey, event: Event, order: &mut u64) {
        self.events.push(Reverse((self.now + after, *order)));
        self.what.insert(*order, (key, event));
        *order += 1;
    }

    fn act(&mut self, order: &mut u64) {
        let mut todo = Vec::new();
        let mut opened = Vec::new();
        while let Some(action) = self.load.poll_action(self.now) {
            match action {
                Action::Connect { key, .. } => {
                    self.open.insert(key, Peer::default());
                    todo.push((key, if self.refuses { Event::Refused } else { Event::Accepted }, 2 * self.one_way));
                }
                Action::Open { key, stream, head, .. } => {
                    assert_eq!(head.as_http().uri().path(), "/");
                    let peer = self.open.get_mut(&key).expect("open");
                    let number = 2 * peer.opened + 1;
                    peer.opened += 1;
                    peer.open.push(number);
                    assert!(peer.last.is_none(), "no stream is opened after GOAWAY");
                    assert!(
                        peer.open.len() as u32 <= peer.limit.unwrap_or(100).max(1),
                        "more streams than the server allows"
                    );
                    self.streams_max_open = self.streams_max_open.max(peer.open.len());
                    opened.push((stream, number));
                    todo.push((key, Event::RequestArrives(number, stream), self.one_way));
                }
                Action::Reset { key, number, .. } => {
                    self.resets += 1;
                    self.open.get_mut(&key).expect("open").open.retain(|&open| open != number);
                }
                Action::Close { key } => assert!(self.open.remove(&key).is_some(), "each connection is closed once"),
                Action::Send { .. } => unreachable!("HTTP/2 requests are sent on streams"),
            }
            for (stream, number) in opened.drain(..) {
                self.load.handle_stream_opened(stream, number);
                self.load.handle_stream_sent(self.now, stream, 30, true);
            }
        }
        for (key, event, after) in todo {
            self.schedule(after, key, event, order);
        }
        self.load.take_records(&mut self.records);
        self.load.take_connections(&mut self.ends);
        let Live { offered, backlog, in_flight, completed, failed, connections, .. } = self.load.live();
        assert_eq!(offered, backlog + in_flight + completed + failed);
        assert_eq!(self.records.len() as u64, completed + failed);
        assert_eq!(connections as usize, self.open.len());
    }

    fn handle_event(&mut self, key: ConnectionKey, event: Event, order: &mut u64) {
        let one_way = self.one_way;
        if !self.open.contains_key(&key) {
            return;
        }
        match event {
            Event::Refused => self.load.handle_failure(self.now, key, FailureCause::ConnectRefused),
            Event::Accepted => {
                self.load.handle_connected(self.now, key);
                if let Some(limit) = self.limit {
                    self.schedule(2 * one_way, key, Event::Delivered(ServerAction::Limit(limit), None), order);
                }
            }
            Event::RequestArrives(number, stream) => {
                let nth = self.requests_received;
                self.requests_received += 1;
                for (after, action) in (self.script)(nth) {
                    self.schedule(after + one_way, key, Event::Delivered(action, Some((number, stream))), order);
                }
            }
            Event::Delivered(action, of) => self.deliver(key, action, of),
        }
    }

    fn deliver(&mut self, key: ConnectionKey, action: ServerAction, of: Option<(u32, StreamKey)>) {
        let now = self.now;
        let peer = self.open.get_mut(&key).expect("open");
        if peer.is_closed
            || of.is_some_and(|(number, _)| !peer.open.contains(&number))
                && !matches!(action, ServerAction::Fin | ServerAction::Rst)
        {
            return;
        }
        self.load.handle_received(key, 9);
        let ends = !matches!(action, ServerAction::Limit(_) | ServerAction::Head | ServerAction::GoAway { .. });
        if let (true, Some((number, _))) = (ends, of) {
            peer.open.retain(|&open| open != number);
        }
        match (action, of) {
            (ServerAction::Limit(limit), _) => {
                peer.limit = Some(limit.max(peer.open.len() as u32));
                self.load.handle_stream_limit(now, key, limit);
                self.open.entry(key).and_modify(|peer| peer.limit = Some(limit.max(peer.open.len() as u32)));
            }
            (ServerAction::Head | ServerAction::Respond, Some((_, stream))) => {
                self.load.handle_stream_bytes(now, stream, 40, true);
                self.load.handle_stream_head(stream, 200, b"");
                if action == ServerAction::Respond {
                    self.load.handle_stream_bytes(now, stream, 14, false);
                    self.load.handle_stream_body(stream, b"hello");
                    self.load.handle_stream_end(now, stream);
                }
            }
            (ServerAction::Refuse, Some((_, stream))) => {
                self.load.handle_stream_failure(now, stream, StreamFailure::Refused)
            }
            (ServerAction::ResetStream, Some((_, stream))) => {
                let cause = StreamFailure::Failed(FailureCause::StreamReset);
                self.load.handle_stream_failure(now, stream, cause);
            }
            (ServerAction::GoAway { spare, error }, _) => {
                let last = (2 * spare).saturating_sub(1);
                peer.open.retain(|&open| open <= last);
                peer.last = Some(last);
                self.load.handle_goaway(now, key, last + 1, error);
            }
            (ServerAction::CrossedFin, _) => {
                peer.is_closed = true;
                // More bytes than the frames of any request of these tests.
                self.load.handle_unacknowledged(key, 1 << 20);
                self.load.handle_eof(now, key);
            }
            (ServerAction::Fin, _) => {
                peer.is_closed = true;
                self.load.handle_eof(now, key);
            }
            (ServerAction::Rst, _) => {
                peer.is_closed = true;
                self.load.handle_failure(now, key, FailureCause::Reset);
            }
            (_, None) => unreachable!("the action belongs to a stream"),
        }
    }

    fn failures(&self, cause: FailureCause) -> usize {
        self.records.iter().filter(|record| record.failure == Some(cause)).count()
    }

    fn completed(&self) -> usize {
        self.records.iter().filter(|record| record.failure.is_none()).count()
    }
}

fn streams(arrivals: Arrivals, requests: u64, streams_max: u32) -> LoadSpec {
    let mut spec = spec(arrivals);
    spec.version = HttpVersion::Http2;
    spec.streams_max = streams_max;
    spec.requests_max = Some(requests);
    spec.duration = None;
    spec.warmup = Duration::ZERO;
    spec.clients = 1;
    spec.connections_max = 1;
    spec.response_timeout = ms(500);
    spec
}

fn responds_after(after: Duration) -> impl FnMut(u32) -> Vec<(Duration, ServerAction)> {
    move |_| vec![(after, ServerAction::Respond)]
}

#[test]
fn http2_requests_share_a_connection() {
    // At 1000/s with 10 ms in the server and 2 ms of round trip, one connection carries 12 concurrent requests, and
    // those that waited for the handshake.
    let world = Http2World::new(streams(constant(1000.0), 200, 100), responds_after(ms(10))).run();
    assert_eq!((world.completed(), world.ends.len(), world.streams_max_open), (200, 1, 14));
    let first = &world.records[0];
    assert_eq!((first.connected_at, first.stream, first.done_at), (Some(at(ms(2))), Some(1), at(ms(14))));
    // Requests that waited for the first one's connection started when they joined it, and have no connect time.
    let second = &world.records[1];
    assert_eq!((second.started_at, second.connected_at, second.stream), (Some(second.scheduled_at), None, Some(3)));
    assert_eq!(second.done_at, at(ms(14)));
    assert!(world.records.iter().all(|record| record.bytes_received == 54 && record.head_bytes == 40));
    assert!(world.records[3..].iter().all(|record| record.service_time_ns() == Some(12_000_000)));
    // Little's law holds to the nanosecond.
    let service: u128 = world.records.iter().map(|record| u128::from(record.service_time_ns().unwrap())).sum();
    assert_eq!(world.in_flight_time, service);
}

#[test]
fn requests_wait_unstarted_while_all_streams_are_in_use() {
    let world = Http2World::new(streams(constant(1000.0), 50, 5), responds_after(ms(10))).run();
    assert_eq!((world.completed(), world.ends.len(), world.streams_max_open), (50, 1, 5));
    assert!(world.load.live().cap_hits > 0);
    assert!(world.records.last().unwrap().send_lag_ns().unwrap() > 10_000_000, "the wait in the backlog is send lag");
}

#[test]
fn a_closed_loop_uses_every_stream() {
    let mut spec = streams(Arrivals::Closed, 400, 10);
    spec.connections_max = 4;
    spec.clients = 4;
    let world = Http2World::new(spec, responds_after(ms(10))).run();
    assert_eq!((world.completed(), world.ends.len(), world.streams_max_open), (400, 4, 10));
    assert!(world.ends.iter().all(|end| end.requests == 100));
    let clients: Vec<u32> = world.ends.iter().map(|end| end.client).collect();
    assert_eq!(clients, [0, 1, 2, 3], "all requests on a connection belong to one client");
}

#[test]
fn the_servers_stream_limit_is_respected() {
    for limit in [1, 3] {
        let mut world = Http2World::new(streams(Arrivals::Closed, 60, 10), responds_after(ms(10)));
        world.limit = Some(limit);
        let world = world.run();
        assert_eq!(world.completed(), 60);
        // Ten streams were opened before the server's SETTINGS arrived; later ones respect the limit.
        let late = world.records.iter().filter(|record| record.scheduled_at > at(ms(20)));
        assert!(late.clone().count() > 30);
        assert!(
            late.clone().all(|record| record.send_lag_ns() == Some(0) && record.service_time_ns() == Some(12_000_000))
        );
    }
}

#[test]
fn a_stream_limit_of_zero_fails_requests_by_timeout() {
    for arrivals in [Arrivals::Closed, constant(100.0)] {
        let mut world = Http2World::new(streams(arrivals, 6, 2), |_| vec![]);
        world.limit = Some(0);
        let world = world.run();
        assert_eq!(world.failures(FailureCause::ResponseTimeout), 6);
    }
}

#[test]
fn a_response_timeout_resets_the_stream_and_keeps_the_connection() {
    let silent_once = |nth| if nth == 3 { vec![] } else { vec![(ms(10), ServerAction::Respond)] };
    let world = Http2World::new(streams(constant(100.0), 100, 10), silent_once).run();
    assert_eq!((world.failures(FailureCause::ResponseTimeout), world.resets), (1, 1));
    assert_eq!((world.completed(), world.ends.len()), (99, 1));
}

#[test]
fn refused_streams_are_retried_once() {
    let refused_once =
        |nth| if nth == 3 { vec![(ms(1), ServerAction::Refuse)] } else { vec![(ms(10), ServerAction::Respond)] };
    let world = Http2World::new(streams(constant(100.0), 20, 10), refused_once).run();
    assert_eq!((world.completed(), world.load.live().retried), (20, 1));
    let always = Http2World::new(streams(constant(100.0), 20, 10), |_| vec![(ms(1), ServerAction::Refuse)]).run();
    assert_eq!((always.failures(FailureCause::StreamReset), always.load.live().retried), (20, 20));
}

#[test]
fn goaway_lets_accepted_streams_finish() {
    for arrivals in [Arrivals::Closed, constant(1000.0)] {
        // Of ten requests in flight the first five complete, the others move to a new connection.
        let script = |nth| match nth {
            0 => vec![(ms(9), ServerAction::GoAway { spare: 5, error: false }), (ms(10), ServerAction::Respond)],
            _ => vec![(ms(10), ServerAction::Respond)],
        };
        let world = Http2World::new(streams(arrivals, 40, 10), script).run();
        assert_eq!((world.completed(), world.load.live().retried), (40, 5));
        assert_eq!(world.ends.len(), 2);
        assert_eq!(world.ends.iter().map(|end| end.requests).min(), Some(10));
    }
}

#[test]
fn requests_fail_after_one_retry_if_the_server_always_sends_goaway() {
    let world = Http2World::new(streams(Arrivals::Closed, 10, 2), |_| {
        vec![(ms(0), ServerAction::GoAway { spare: 0, error: false })]
    });
    let world = world.run();
    assert_eq!((world.failures(FailureCause::GoAway), world.load.live().retried), (10, 10));
    // After GOAWAY with an error and a close, the streams that the server had accepted fail with that cause.
    let script = |_| vec![(ms(0), ServerAction::GoAway { spare: 1, error: true }), (ms(1), ServerAction::Fin)];
    let world = Http2World::new(streams(Arrivals::Closed, 10, 1), script).run();
    assert_eq!(world.failures(FailureCause::GoAway), 10);
}

#[test]
fn http2_closes_and_resets_have_their_causes() {
    let failed = |script: fn(u32) -> Vec<(Duration, ServerAction)>| {
        Http2World::new(streams(Arrivals::Closed, 8, 2), script).run()
    };
    let closed = failed(|_| vec![(ms(1), ServerAction::Fin)]);
    assert_eq!(closed.failures(FailureCause::ClosedBeforeResponse), 8);
    let early = failed(|_| vec![(ms(1), ServerAction::Head), (ms(50), ServerAction::Fin)]);
    assert_eq!(early.failures(FailureCause::ClosedEarly), 8);
    let reset = failed(|_| vec![(ms(1), ServerAction::Head), (ms(50), ServerAction::Rst)]);
    assert_eq!(reset.failures(FailureCause::Reset), 8);
    let stream = failed(|_| vec![(ms(1), ServerAction::ResetStream)]);
    assert_eq!((stream.failures(FailureCause::StreamReset), stream.ends.len()), (8, 1));
}

#[test]
fn a_close_that_crosses_a_request_is_retried() {
    // The server closes an idle connection at the time when the second request is sent on it.
    let script = |nth| match nth {
        0 => vec![(ms(1), ServerAction::Respond)],
        1 => vec![(ms(0), ServerAction::CrossedFin)],
        _ => vec![(ms(1), ServerAction::Respond)],
    };
    let spec = || streams(constant(10.0), 5, 10);
    let world = Http2World::new(spec(), script).run();
    assert_eq!((world.completed(), world.load.live().retried, world.ends.len()), (5, 1, 2));
    let mut never = spec();
    never.retry = Retry::Never;
    let world = Http2World::new(never, script).run();
    assert_eq!((world.completed(), world.load.live().retried), (4, 0));
    assert_eq!(world.failures(FailureCause::ClosedBeforeResponse), 1);
    // A server that received the request and closed fails the request.
    let dropped = |nth| if nth == 1 { vec![(ms(0), ServerAction::Fin)] } else { vec![(ms(1), ServerAction::Respond)] };
    let world = Http2World::new(spec(), dropped).run();
    assert_eq!((world.completed(), world.load.live().retried), (4, 0));
    assert_eq!(world.failures(FailureCause::ClosedBeforeResponse), 1);
}

#[test]
fn a_refused_connect_fails_all_waiting_requests() {
    let mut world = Http2World::new(streams(Arrivals::Closed, 20, 4), |_| vec![]);
    world.refuses = true;
    let world = world.run();
    assert_eq!(world.failures(FailureCause::ConnectRefused), 20);
}

#[test]
fn without_keep_alive_every_http2_request_has_a_connection() {
    for arrivals in [Arrivals::Closed, constant(100.0)] {
        let mut spec = streams(arrivals, 12, 10);
        spec.reuse = Reuse::Close;
        spec.connections_max = 3;
        let world = Http2World::new(spec, responds_after(ms(50))).run();
        assert_eq!((world.completed(), world.ends.len()), (12, 12));
        assert!(world.records.iter().all(|record| record.connected_at.is_some() && !record.keep_alive));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For any behaviour of the server, the run ends, each request has one record, each Connect one Close, and no
    /// connection exceeds the limit of streams (asserted in `run` and `act`).
    #[test]
    fn every_request_ends_exactly_once_whatever_the_server_does(
        script in prop::collection::vec((0u64..30, 0u8..12, 0u32..6), 1..12),
        limit in prop::option::of(0u32..6),
        (closed, streams_max, connections, clients) in (any::<bool>(), 1u32..6, 1u32..4, 1u32..4),
        close in any::<bool>(),
        requests in 1u64..60,
    ) {
        let actions = |(after, what, number): (u64, u8, u32)| {
            let after = ms(after);
            match what {
                0..=4 => vec![(after, ServerAction::Respond)],
                5 => vec![(after, ServerAction::Refuse)],
                6 => vec![(after, ServerAction::ResetStream)],
                7 => vec![
                    (after, ServerAction::GoAway { spare: number, error: number % 2 == 0 }),
                    (after + ms(3), ServerAction::Respond),
                ],
                8 => vec![(after, ServerAction::Head), (after + ms(2), ServerAction::Fin)],
                9 => vec![(after, ServerAction::Rst)],
                10 => vec![(after, ServerAction::Limit(number)), (after, ServerAction::Respond)],
                _ => vec![],
            }
        };
        let mut spec = streams(if closed { Arrivals::Closed } else { constant(300.0) }, requests, streams_max);
        spec.connections_max = connections;
        spec.clients = clients;
        if close {
            spec.reuse = Reuse::Close;
        }
        let length = script.len();
        let mut world = Http2World::new(spec, move |nth| actions(script[nth as usize % length]));
        world.limit = limit;
        let world = world.run();
        prop_assert_eq!(world.records.len() as u64, requests);
        let service: u128 = world.records.iter().filter_map(|record| record.service_time_ns()).map(u128::from).sum();
        prop_assert_eq!(world.in_flight_time, service);
    }
}
