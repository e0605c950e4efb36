//! A network and a server in virtual time, driving the engine as a real driver would.
//!
//! ```text
//!   Load --Connect/Send/Close--> World --one_way--> Server (a script: what it answers, and when)
//!        <--handle_*------------       <--one_way--
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use load::{
    Action, Arrivals, ConnectionEnd, ConnectionKey, Ending, GaugeSampler, HttpVersion, Lane, Live, Load, LoadSpec,
    Outcome, Retry, Reuse, Tally, TallySpec, Target, Workload,
};
use schema::{CacheExchange, FailureCause, RequestRecord};
use units::{RequestRate, Timestamp};

/// What the server does, as seen from where it stands.
pub trait Server {
    /// A connect arrives.
    fn connect(&mut self, _now: Timestamp, _client: u32) -> Accept {
        Accept::Yes
    }

    /// A TLS handshake begins on a connection to a secure target.
    fn handshake(&mut self, _now: Timestamp) -> Handshake {
        Handshake::RoundTrips(1)
    }

    /// The `nth` whole request (from 0) arrives on a connection: what goes back, each after its time from now.
    fn request(&mut self, now: Timestamp, nth: u32) -> Vec<(Duration, Reply)>;

    /// The same, by what was asked.
    fn answer(&mut self, now: Timestamp, nth: u32, _asked: &RequestContent) -> Vec<(Duration, Reply)> {
        self.request(now, nth)
    }

    /// Closes a connection that has been idle for so long.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContent {
    pub at: Timestamp,
    pub client: u32,
    /// Index into the load's targets.
    pub target: usize,
    pub text: String,
}

impl RequestContent {
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

/// A server that answers by what was asked.
pub struct Site<F>(pub F);

impl<F: FnMut(&RequestContent) -> Vec<(Duration, Reply)>> Server for Site<F> {
    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        unreachable!("asked with what was asked")
    }

    fn answer(&mut self, _now: Timestamp, _nth: u32, asked: &RequestContent) -> Vec<(Duration, Reply)> {
        self.0(asked)
    }
}

/// A response with these header lines and this body.
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

/// How a TLS handshake goes, from the connection being established.
#[derive(Clone, Copy)]
pub enum Handshake {
    /// It is finished after so many.
    RoundTrips(u32),
    /// It fails after one.
    Fails(FailureCause),
    /// The server closes after one.
    Fin,
    /// The server says nothing.
    Silence,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Bytes(Vec<u8>),
    /// What the server sends from here on it sent before the last request arrived: nothing of it acknowledges that.
    Crossed,
    Fin,
    /// TLS's word that no more comes. A FIN is to follow.
    CloseNotify,
    /// A FIN without that word.
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

/// Answers every request after `service`.
pub fn answering(service: Duration) -> impl Server {
    move |_: Timestamp, _: u32| vec![(service, Reply::Bytes(OK.to_vec()))]
}

pub struct World<S> {
    pub load: Load,
    pub server: S,
    pub now: Timestamp,
    /// Half the round trip.
    pub one_way: Duration,
    /// Bytes the kernel takes at a time.
    pub write_max: usize,
    pub records: Vec<RequestRecord>,
    pub exchanges: Vec<CacheExchange>,
    pub ends: Vec<ConnectionEnd>,
    pub open_max: usize,
    pub connects: Vec<(Timestamp, u32)>,
    pub sampler: GaugeSampler,
    /// What the server was asked, in the order in which it arrived.
    pub asked: Vec<RequestContent>,
    /// Whether `asked` is kept.
    pub keeps_asked: bool,
    /// The send of this number (from 0) fails: the kernel takes nothing.
    pub fails_to_send: Option<u64>,
    /// What [`World::outcome`] divides the measured phase into.
    pub phases: Vec<load::PhaseSpan>,
    open: HashMap<ConnectionKey, Peer>,
    events: BinaryHeap<Reverse<(Timestamp, u64, usize)>>,
    happenings: Vec<Option<(ConnectionKey, Happening)>>,
    order: u64,
    seed: u64,
    lane: Lane,
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
    /// It has not arrived at a server that had not closed.
    under_way: bool,
    /// The server closed before the last request arrived.
    crossed: bool,
}

enum Happening {
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
        World {
            seed: spec.seed,
            lane: spec.lane,
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
            asked: Vec::new(),
            keeps_asked: false,
            fails_to_send: None,
            open: HashMap::new(),
            events: BinaryHeap::new(),
            happenings: Vec::new(),
            order: 0,
        }
    }

    /// Until the load has finished, then closes what is left.
    pub fn run(mut self) -> Self {
        self.run_until(Timestamp::MAX);
        assert!(
            self.load.finished(),
            "seed {}: nothing left to happen, yet not finished: {:?}",
            self.seed,
            self.load.live()
        );
        self.end()
    }

    /// Aborts, and checks the books.
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
        if self.lane == Lane::WHOLE && !embedded {
            assert!(sequences.iter().copied().eq(0..live.offered), "each request has one record");
        } else {
            assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "each request has one record");
        }
        self.records.iter().for_each(check_moments);
        self
    }

    /// Until the load has finished, nothing is left to happen, or `until`.
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
            self.load.handle_time(self.now);
            while let Some(&Reverse((at, _, index))) = self.events.peek() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                let (key, what) = self.happenings[index].take().expect("happens once");
                self.happen(key, what);
            }
            self.act();
        }
    }

    pub fn happen_at(&mut self, at: Timestamp, key: ConnectionKey, reply: Reply) {
        self.schedule(at, key, Happening::Arrives(reply));
    }

    /// Figures over the whole run, as the program would print them.
    pub fn outcome(&self, open_loop: bool, clients_rtt_ns: Option<Vec<u64>>, urls: &[&str]) -> Outcome {
        let measured = self.load.measured();
        let urls = load::Urls::named(urls.iter().copied());
        let mut tally =
            Tally::new(TallySpec { open_loop, measured, clients_rtt_ns, urls, phases: self.phases.clone() });
        self.records.iter().for_each(|record| tally.add_request(record));
        self.ends.iter().for_each(|end| tally.add_connection(end));
        tally.finish(Ending {
            measured_end: measured.1.expect("the run is over"),
            offered: self.load.live().offered_measured,
            unfinished: self.load.unfinished_measured(),
            levels: self.sampler.finish(),
        })
    }

    /// What a finished run leaves.
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
                    todo.push((self.now + self.one_way, key, Happening::ConnectArrives { client }));
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
                    todo.push((self.now + self.one_way, key, Happening::RequestArrives { text }));
                }
                Action::Open { .. } | Action::Reset { .. } => unreachable!("HTTP/1 has no streams"),
                Action::Close { key } => assert!(self.open.remove(&key).is_some(), "closed once"),
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

    fn schedule(&mut self, at: Timestamp, key: ConnectionKey, what: Happening) {
        self.happenings.push(Some((key, what)));
        self.events.push(Reverse((at, self.order, self.happenings.len() - 1)));
        self.order += 1;
    }

    fn happen(&mut self, key: ConnectionKey, what: Happening) {
        let back = self.now + self.one_way;
        match what {
            Happening::ConnectArrives { client } => match self.server.connect(self.now, client) {
                Accept::Yes => self.schedule(back, key, Happening::Accepted),
                Accept::Refuse => self.schedule(back, key, Happening::Refused),
                Accept::Ignore => {}
            },
            Happening::Accepted => {
                self.load.handle_connected(self.now, key);
                if self.load.wants_handshake(key) {
                    self.shake_hands(key);
                }
            }
            Happening::Secured => self.load.handle_secured(self.now, key),
            Happening::Unsecured(cause) => self.load.handle_failure(self.now, key, cause),
            Happening::Refused => self.load.handle_failure(self.now, key, FailureCause::ConnectRefused),
            Happening::RequestArrives { text } => self.request_arrives(key, text),
            Happening::ServerSends(reply) => self.server_sends(key, reply),
            Happening::Arrives(Reply::Bytes(bytes)) => self.load.handle_bytes(self.now, key, &bytes),
            Happening::Arrives(Reply::Crossed) => {
                if let Some(peer) = self.open.get_mut(&key) {
                    peer.crossed = true;
                }
            }
            Happening::Arrives(Reply::Fin) => {
                self.acknowledge(key);
                self.load.handle_eof(self.now, key);
            }
            Happening::Arrives(Reply::CloseNotify) => {
                self.acknowledge(key);
                self.load.handle_close_notify(self.now, key);
            }
            Happening::Arrives(Reply::Cut) => {
                self.acknowledge(key);
                self.load.handle_truncated(self.now, key);
            }
            Happening::Arrives(Reply::Reset) => self.load.handle_failure(self.now, key, FailureCause::Reset),
            Happening::IdleCheck { activity } => {
                let idle = |peer: &&mut Peer| peer.activity == activity && peer.busy == 0 && !peer.closed;
                if let Some(peer) = self.open.get_mut(&key).filter(idle) {
                    peer.closed = true;
                    self.schedule(back, key, Happening::Arrives(Reply::Fin));
                }
            }
        }
    }

    /// Tells the load what the peer has acknowledged, as TCP_INFO would.
    fn acknowledge(&mut self, key: ConnectionKey) {
        let Some(peer) = self.open.get(&key) else { return };
        // Whatever the server has sent since it received the request acknowledges the request.
        let unacknowledged = if peer.crossed || peer.under_way { peer.last_request } else { 0 };
        self.load.handle_unacknowledged(key, unacknowledged);
    }

    fn shake_hands(&mut self, key: ConnectionKey) {
        let round_trip = 2 * self.one_way;
        match self.server.handshake(self.now) {
            Handshake::RoundTrips(n) => self.schedule(self.now + n * round_trip, key, Happening::Secured),
            Handshake::Fails(cause) => self.schedule(self.now + round_trip, key, Happening::Unsecured(cause)),
            Handshake::Fin => self.schedule(self.now + round_trip, key, Happening::Arrives(Reply::Fin)),
            Handshake::Silence => {}
        }
    }

    fn request_arrives(&mut self, key: ConnectionKey, text: Vec<u8>) {
        let back = self.now + self.one_way;
        let Some(peer) = self.open.get_mut(&key) else { return };
        if peer.closed {
            self.schedule(back, key, Happening::Arrives(Reply::Reset));
            return;
        }
        peer.under_way = false;
        let nth = peer.requests;
        peer.requests += 1;
        peer.activity += 1;
        let text = String::from_utf8(text).expect("text");
        let asked = RequestContent { at: self.now, client: peer.client, target: peer.target, text };
        let replies = self.server.answer(self.now, nth, &asked);
        if self.keeps_asked {
            self.asked.push(asked);
        }
        peer.busy += replies.len() as u32;
        for (after, reply) in replies {
            self.schedule(self.now + after, key, Happening::ServerSends(reply));
        }
    }

    fn server_sends(&mut self, key: ConnectionKey, reply: Reply) {
        let Some(peer) = self.open.get_mut(&key) else { return };
        peer.busy -= 1;
        peer.activity += 1;
        peer.closed |= !matches!(reply, Reply::Bytes(_) | Reply::Crossed);
        let activity = peer.activity;
        self.schedule(self.now + self.one_way, key, Happening::Arrives(reply));
        if let Some(after) = self.server.idle_timeout() {
            self.schedule(self.now + after, key, Happening::IdleCheck { activity });
        }
    }
}

/// intended <= started <= connected <= secured <= sent <= first byte <= done, as far as they happened.
pub fn check_moments(record: &RequestRecord) {
    let moments = [
        Some(record.scheduled_at),
        record.started_at,
        record.connected_at,
        record.secured_at,
        record.sent_at,
        record.first_byte_at,
        Some(record.done_at),
    ];
    assert!(moments.into_iter().flatten().is_sorted(), "{record:?}");
    assert!(record.failure.is_some() || record.first_byte_at.is_some(), "{record:?}");
    assert!(record.failure.is_some() || record.status >= 200, "{record:?}");
    // A final head that is whole has a status; interim heads count as well.
    assert!(
        u64::from(record.head_bytes) <= record.bytes_received && (record.status == 0 || record.head_bytes > 0),
        "{record:?}"
    );
    assert!(record.failure.is_none_or(is_of_a_whole_response) || !record.keep_alive, "{record:?}");
}

/// The response was complete, and not what the plan wants.
fn is_of_a_whole_response(cause: FailureCause) -> bool {
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
        lane: Lane::WHOLE,
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
