//! A simulated network and server in virtual time, which drive the engine as a real driver does.
//!
//! ```text
//!   Load --Connect/Send/Close--> World --one_way--> Server (a script of replies and their delays)
//!        <--handle_*------------       <--one_way--
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use load::{
    Action, Arrivals, ConnectionEnd, ConnectionKey, Ending, GaugeSampler, HttpVersion, Live, Load, LoadSpec, Outcome,
    Retry, Reuse, Shard, ShardSampler, Tally, TallySpec, Target, Workload,
};
use schema::{CacheExchange, FailureCause, RequestRecord};
use units::{RequestRate, Timestamp};

/// The behaviour of the server. Times are those at the server.
pub trait Server {
    /// A connect arrives.
    fn connect(&mut self, _now: Timestamp, _client: u32) -> Accept {
        Accept::Yes
    }

    /// A TLS handshake begins on a connection to a secure target.
    fn handshake(&mut self, _now: Timestamp) -> Handshake {
        Handshake::RoundTrips(1)
    }

    /// The `nth` complete request (from 0) arrives on a connection. Returns the replies, each with its delay.
    fn request(&mut self, now: Timestamp, nth: u32) -> Vec<(Duration, Reply)>;

    /// The replies to a request by its content; by default those of [`Self::request`].
    fn respond(&mut self, now: Timestamp, nth: u32, _received: &ReceivedRequest) -> Vec<(Duration, Reply)> {
        self.request(now, nth)
    }

    /// Idle timeout after which the server closes a connection.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }
}

/// A request as received by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    pub at: Timestamp,
    pub client: u32,
    /// Index into the load's targets.
    pub target: usize,
    pub text: String,
}

impl ReceivedRequest {
    pub fn method(&self) -> &str {
        self.text.split(' ').next().unwrap()
    }

    pub fn path(&self) -> &str {
        self.text.split(' ').nth(1).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.text.split("\r\n").skip(1).take_while(|line| !line.is_empty());
        lines
            .find_map(|line| line.split_once(": ").filter(|(given, _)| given.eq_ignore_ascii_case(name)))
            .map(|(_, v)| v)
    }

    pub fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").unwrap().1
    }
}

/// A server whose replies depend on the content of the request.
pub struct Site<F>(pub F);

impl<F: FnMut(&ReceivedRequest) -> Vec<(Duration, Reply)>> Server for Site<F> {
    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        unreachable!("the server implements `respond`")
    }

    fn respond(&mut self, _now: Timestamp, _nth: u32, received: &ReceivedRequest) -> Vec<(Duration, Reply)> {
        self.0(received)
    }
}

/// A response with additional header lines and a body.
pub fn response(status: u16, headers: &[&str], body: &str) -> Reply {
    let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
    headers.iter().for_each(|header| text += &format!("{header}\r\n"));
    Reply::Bytes(format!("{text}\r\n{body}").into_bytes())
}

#[derive(Clone, Copy)]
pub enum Accept {
    Yes,
    Refuse,
    Ignore,
}

/// The course of a TLS handshake, from the establishment of the connection.
#[derive(Clone, Copy)]
pub enum Handshake {
    /// It finishes after this many round trips.
    RoundTrips(u32),
    /// It fails after one round trip.
    Fails(FailureCause),
    /// The server closes after one round trip.
    Fin,
    /// The server sends nothing.
    Silence,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Bytes(Vec<u8>),
    /// The server sent all following replies before the last request arrived, so they do not acknowledge it.
    Crossed,
    Fin,
    /// close_notify of TLS; a FIN follows.
    CloseNotify,
    /// A FIN without close_notify.
    Cut,
    Reset,
}

impl<F: FnMut(Timestamp, u32) -> Vec<(Duration, Reply)>> Server for F {
    fn request(&mut self, now: Timestamp, nth: u32) -> Vec<(Duration, Reply)> {
        self(now, nth)
    }
}

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
pub const OK_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";

/// A server that responds to every request after `service`.
pub fn answering(service: Duration) -> impl Server {
    move |_: Timestamp, _: u32| vec![(service, Reply::Bytes(OK.to_vec()))]
}

pub struct World<S> {
    pub load: Load,
    pub server: S,
    pub now: Timestamp,
    /// One-way delay, half of the round trip.
    pub one_way: Duration,
    /// Maximum bytes that the kernel accepts at a time.
    pub write_max: usize,
    pub records: Vec<RequestRecord>,
    pub exchanges: Vec<CacheExchange>,
    pub ends: Vec<ConnectionEnd>,
    pub open_max: usize,
    pub connects: Vec<(Timestamp, u32)>,
    pub sampler: GaugeSampler,
    /// The same samples, for a merge.
    pub shard_sampler: ShardSampler,
    /// Requests received by the server, in order of arrival; empty unless `stores_requests`.
    pub received: Vec<ReceivedRequest>,
    /// Whether received requests are stored.
    pub stores_requests: bool,
    /// Number (from 0) of a send that fails, as the kernel accepts no byte.
    pub fails_to_send: Option<u64>,
    /// Phases into which [`World::outcome`] divides the measured phase.
    pub phases: Vec<load::PhaseSpan>,
    open: HashMap<ConnectionKey, Peer>,
    events: BinaryHeap<Reverse<(Timestamp, u64, usize)>>,
    pending: Vec<Option<(ConnectionKey, Event)>>,
    order: u64,
    seed: u64,
    shard: Shard,
}

/// The server's end of a connection.
#[derive(Default)]
struct Peer {
    client: u32,
    target: usize,
    requests: u32,
    busy: u32,
    activity: u64,
    closed: bool,
    /// Bytes of the last request that was sent.
    last_request: u64,
    /// Whether the last request has not arrived at an open server yet.
    under_way: bool,
    /// The server closed before the last request arrived.
    crossed: bool,
}

enum Event {
    ConnectArrives { client: u32 },
    Accepted,
    Refused,
    Secured,
    Unsecured(FailureCause),
    RequestArrives { text: Vec<u8> },
    ServerSends(Reply),
    Arrives(Reply),
    IdleCheck { activity: u64 },
}

impl<S: Server> World<S> {
    pub fn new(spec: LoadSpec, server: S) -> Self {
        let sampler = GaugeSampler::new(spec.seed, Timestamp::ZERO, Timestamp::ZERO + spec.warmup);
        let shard_sampler = ShardSampler::new(spec.seed, Timestamp::ZERO);
        World {
            seed: spec.seed,
            shard: spec.shard,
            phases: Vec::new(),
            load: Load::new(spec, Timestamp::ZERO),
            server,
            now: Timestamp::ZERO,
            one_way: Duration::from_millis(1),
            write_max: usize::MAX,
            records: Vec::new(),
            exchanges: Vec::new(),
            ends: Vec::new(),
            open_max: 0,
            connects: Vec::new(),
            sampler,
            shard_sampler,
            received: Vec::new(),
            stores_requests: false,
            fails_to_send: None,
            open: HashMap::new(),
            events: BinaryHeap::new(),
            pending: Vec::new(),
            order: 0,
        }
    }

    /// Runs until the load has finished, then closes the remaining connections.
    pub fn run(mut self) -> Self {
        self.run_until(Timestamp::MAX);
        assert!(
            self.load.finished(),
            "seed {}: no event left, but the load has not finished: {:?}",
            self.seed,
            self.load.live()
        );
        self.end()
    }

    /// Aborts the load, and checks that every request and connection is accounted for.
    pub fn end(mut self) -> Self {
        self.load.abort(self.now);
        self.act();
        let live = self.load.live();
        assert!(self.open.is_empty(), "every Connect has its Close");
        assert_eq!((live.connections, live.in_flight, live.backlog), (0, 0, 0));
        assert_eq!(live.sessions, 0);
        assert_eq!(live.connections_opened as usize, self.ends.len());
        assert_eq!(live.offered as usize, self.records.len());
        let started = self.records.iter().filter(|record| record.started_at.is_some()).count();
        assert_eq!(live.started as usize, started);
        let mut sequences: Vec<u64> = self.records.iter().map(|record| record.sequence).collect();
        sequences.sort_unstable();
        let embedded = sequences.last().is_some_and(|&last| last >= 1 << 40);
        if self.shard == Shard::WHOLE && !embedded {
            assert!(sequences.iter().copied().eq(0..live.offered), "each request has one record");
        } else {
            assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "each request has one record");
        }
        self.records.iter().for_each(check_times);
        self
    }

    /// Runs until the load has finished, no event is left, or `until`.
    pub fn run_until(&mut self, until: Timestamp) {
        while !self.load.finished() {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = [event, self.load.next_wake()].into_iter().flatten().min() else { return };
            if next > until {
                self.now = self.now.max(until);
                return;
            }
            self.now = self.now.max(next);
            self.sampler.sample(self.now, self.load.live());
            self.shard_sampler.sample(self.now, self.load.live());
            self.load.handle_time(self.now);
            while let Some(&Reverse((at, _, index))) = self.events.peek() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                let (key, what) = self.pending[index].take().expect("each event occurs once");
                self.handle_event(key, what);
            }
            self.act();
        }
    }

    pub fn deliver_at(&mut self, at: Timestamp, key: ConnectionKey, reply: Reply) {
        self.schedule(at, key, Event::Arrives(reply));
    }

    /// The statistics of the whole run.
    pub fn outcome(&self, open_loop: bool, clients_rtt_ns: Option<Vec<u64>>, urls: &[&str]) -> Outcome {
        let measured = self.load.measured();
        self.tally(open_loop, clients_rtt_ns, urls).finish(Ending {
            measured_end: measured.1.expect("the run is over"),
            offered: self.load.live().offered_measured,
            unfinished: self.load.unfinished_measured(),
            levels: self.sampler.finish(),
        })
    }

    /// The counts of all records.
    pub fn tally(&self, open_loop: bool, clients_rtt_ns: Option<Vec<u64>>, urls: &[&str]) -> Tally {
        let measured = self.load.measured();
        let urls = load::Urls::named(urls.iter().copied());
        let mut tally =
            Tally::new(TallySpec { open_loop, measured, clients_rtt_ns, urls, phases: self.phases.clone() });
        self.records.iter().for_each(|record| tally.add_request(record));
        self.ends.iter().for_each(|end| tally.add_connection(end));
        tally
    }

    /// The records of a finished run.
    pub fn records_and_ends(self) -> (Vec<RequestRecord>, Vec<ConnectionEnd>) {
        (self.records, self.ends)
    }

    pub fn failures(&self, cause: FailureCause) -> usize {
        self.records.iter().filter(|record| record.failure == Some(cause)).count()
    }

    /// The only open connection.
    pub fn only_key(&self) -> ConnectionKey {
        assert_eq!(self.open.len(), 1);
        *self.open.keys().next().unwrap()
    }

    pub fn act(&mut self) {
        let mut todo = Vec::new();
        while let Some(action) = self.load.poll_action(self.now) {
            match action {
                Action::Connect { key, client, target } => {
                    self.open.insert(key, Peer { client, target, ..Peer::default() });
                    self.connects.push((self.now, client));
                    todo.push((self.now + self.one_way, key, Event::ConnectArrives { client }));
                }
                Action::Send { key, bytes, .. } => {
                    let (text, whole, mut sent) = (bytes.to_vec(), bytes.len(), 0);
                    if self.fails_to_send == Some(self.load.live().sends - 1) {
                        self.load.handle_failure(self.now, key, FailureCause::Reset);
                        continue;
                    }
                    while sent < whole {
                        let part = self.write_max.min(whole - sent);
                        self.load.handle_sent(self.now, key, part);
                        sent += part;
                        assert_eq!(self.load.unsent(key), &text[sent..]);
                    }
                    let peer = self.open.get_mut(&key).expect("a connection");
                    (peer.last_request, peer.under_way) = (whole as u64, true);
                    todo.push((self.now + self.one_way, key, Event::RequestArrives { text }));
                }
                Action::Open { .. } | Action::Reset { .. } => unreachable!("HTTP/1 has no streams"),
                Action::Close { key } => assert!(self.open.remove(&key).is_some(), "each connection is closed once"),
            }
            self.open_max = self.open_max.max(self.open.len());
        }
        for (at, key, what) in todo {
            self.schedule(at, key, what);
        }
        self.load.take_records(&mut self.records);
        self.exchanges.extend(self.load.take_exchanges());
        self.load.take_connections(&mut self.ends);
        self.check_conservation();
    }

    fn check_conservation(&self) {
        let live = self.load.live();
        assert_eq!(
            live.sessions_begun,
            live.sessions + live.sessions_ended + live.sessions_failed + live.sessions_cut,
            "seed {}",
            self.seed
        );
        let Live { offered, backlog, in_flight, completed, failed, connections, .. } = live;
        assert_eq!(offered, backlog + in_flight + completed + failed, "seed {}", self.seed);
        assert_eq!(self.records.len() as u64, completed + failed);
        assert_eq!(connections as usize, self.open.len());
    }

    fn schedule(&mut self, at: Timestamp, key: ConnectionKey, what: Event) {
        self.pending.push(Some((key, what)));
        self.events.push(Reverse((at, self.order, self.pending.len() - 1)));
        self.order += 1;
    }

    fn handle_event(&mut self, key: ConnectionKey, what: Event) {
        let back = self.now + self.one_way;
        match what {
            Event::ConnectArrives { client } => match self.server.connect(self.now, client) {
                Accept::Yes => self.schedule(back, key, Event::Accepted),
                Accept::Refuse => self.schedule(back, key, Event::Refused),
                Accept::Ignore => {}
            },
            Event::Accepted => {
                self.load.handle_connected(self.now, key);
                if self.load.wants_handshake(key) {
                    self.start_handshake(key);
                }
            }
            Event::Secured => self.load.handle_secured(self.now, key),
            Event::Unsecured(cause) => self.load.handle_failure(self.now, key, cause),
            Event::Refused => self.load.handle_failure(self.now, key, FailureCause::ConnectRefused),
            Event::RequestArrives { text } => self.request_arrives(key, text),
            Event::ServerSends(reply) => self.server_sends(key, reply),
            Event::Arrives(Reply::Bytes(bytes)) => self.load.handle_bytes(self.now, key, &bytes),
            Event::Arrives(Reply::Crossed) => {
                if let Some(peer) = self.open.get_mut(&key) {
                    peer.crossed = true;
                }
            }
            Event::Arrives(Reply::Fin) => {
                self.acknowledge(key);
                self.load.handle_eof(self.now, key);
            }
            Event::Arrives(Reply::CloseNotify) => {
                self.acknowledge(key);
                self.load.handle_close_notify(self.now, key);
            }
            Event::Arrives(Reply::Cut) => {
                self.acknowledge(key);
                self.load.handle_truncated(self.now, key);
            }
            Event::Arrives(Reply::Reset) => self.load.handle_failure(self.now, key, FailureCause::Reset),
            Event::IdleCheck { activity } => {
                let idle = |peer: &&mut Peer| peer.activity == activity && peer.busy == 0 && !peer.closed;
                if let Some(peer) = self.open.get_mut(&key).filter(idle) {
                    peer.closed = true;
                    self.schedule(back, key, Event::Arrives(Reply::Fin));
                }
            }
        }
    }

    /// Reports to the load the bytes that the peer has acknowledged, as TCP_INFO does.
    fn acknowledge(&mut self, key: ConnectionKey) {
        let Some(peer) = self.open.get(&key) else { return };
        // Every packet that the server sends after it received the request acknowledges the request.
        let unacknowledged = if peer.crossed || peer.under_way { peer.last_request } else { 0 };
        self.load.handle_unacknowledged(key, unacknowledged);
    }

    fn start_handshake(&mut self, key: ConnectionKey) {
        let round_trip = 2 * self.one_way;
        match self.server.handshake(self.now) {
            Handshake::RoundTrips(n) => self.schedule(self.now + n * round_trip, key, Event::Secured),
            Handshake::Fails(cause) => self.schedule(self.now + round_trip, key, Event::Unsecured(cause)),
            Handshake::Fin => self.schedule(self.now + round_trip, key, Event::Arrives(Reply::Fin)),
            Handshake::Silence => {}
        }
    }

    fn request_arrives(&mut self, key: ConnectionKey, text: Vec<u8>) {
        let back = self.now + self.one_way;
        let Some(peer) = self.open.get_mut(&key) else { return };
        if peer.closed {
            self.schedule(back, key, Event::Arrives(Reply::Reset));
            return;
        }
        peer.under_way = false;
        let nth = peer.requests;
        peer.requests += 1;
        peer.activity += 1;
        let text = String::from_utf8(text).expect("text");
        let received = ReceivedRequest { at: self.now, client: peer.client, target: peer.target, text };
        let replies = self.server.respond(self.now, nth, &received);
        if self.stores_requests {
            self.received.push(received);
        }
        peer.busy += replies.len() as u32;
        for (after, reply) in replies {
            self.schedule(self.now + after, key, Event::ServerSends(reply));
        }
    }

    fn server_sends(&mut self, key: ConnectionKey, reply: Reply) {
        let Some(peer) = self.open.get_mut(&key) else { return };
        peer.busy -= 1;
        peer.activity += 1;
        peer.closed |= !matches!(reply, Reply::Bytes(_) | Reply::Crossed);
        let activity = peer.activity;
        self.schedule(self.now + self.one_way, key, Event::Arrives(reply));
        if let Some(after) = self.server.idle_timeout() {
            self.schedule(self.now + after, key, Event::IdleCheck { activity });
        }
    }
}

/// Checks scheduled <= started <= connected <= secured <= sent <= first byte <= done, as far as they occurred.
pub fn check_times(record: &RequestRecord) {
    let times = [
        Some(record.scheduled_at),
        record.started_at,
        record.connected_at,
        record.secured_at,
        record.sent_at,
        record.first_byte_at,
        Some(record.done_at),
    ];
    assert!(times.into_iter().flatten().is_sorted(), "{record:?}");
    assert!(record.failure.is_some() || record.first_byte_at.is_some(), "{record:?}");
    assert!(record.failure.is_some() || record.status >= 200, "{record:?}");
    // A complete final head has a status; the bytes of interim heads count too.
    assert!(
        u64::from(record.head_bytes) <= record.bytes_received && (record.status == 0 || record.head_bytes > 0),
        "{record:?}"
    );
    assert!(record.failure.is_none_or(is_of_a_complete_response) || !record.keep_alive, "{record:?}");
}

/// Whether the response was complete, but did not meet an expectation of the plan.
fn is_of_a_complete_response(cause: FailureCause) -> bool {
    use FailureCause::*;
    matches!(
        cause,
        UnexpectedStatus | UnexpectedLength | UnexpectedBody | MissingValue | TooManyRedirects | BadRedirect
    )
}

pub fn spec(arrivals: Arrivals) -> LoadSpec {
    LoadSpec {
        workload: Workload::of([Target::parse("http://server/").unwrap()]),
        absolute_form: false,
        version: HttpVersion::Http11,
        streams_max: 1,
        reuse: Reuse::KeepAlive,
        retry: Retry::IdleRace,
        arrivals,
        connections_max: 1000,
        requests_max: None,
        clients: 10,
        connect_timeout: Duration::from_secs(3),
        response_timeout: Duration::from_secs(5),
        shard: Shard::WHOLE,
        seed: 42,
        warmup: Duration::ZERO,
        duration: Some(Duration::from_secs(10)),
    }
}

pub fn constant(per_second: f64) -> Arrivals {
    Arrivals::constant(RequestRate::from_per_second(per_second).unwrap())
}

pub fn poisson(per_second: f64) -> Arrivals {
    Arrivals::poisson(RequestRate::from_per_second(per_second).unwrap())
}

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub fn at(after: Duration) -> Timestamp {
    Timestamp::ZERO + after
}
