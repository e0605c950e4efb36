//! A program's conversation, call by call, with a simulated clock.

use std::net::SocketAddr;
use std::time::Duration;

use schema::TapExchange;
use units::Timestamp;

use super::super::Exchanges;
use crate::event::{Attempt, Caveats, Closed, Event, EventKind, Opened, Origin, Role, Run, TcpCounts};

/// Milliseconds in nanoseconds.
pub fn ms(millis: u64) -> u64 {
    millis * 1_000_000
}

/// The rows of the events; open connections are cut at the end.
pub fn rows(events: Vec<Event>) -> Vec<TapExchange> {
    rows_of(Conversation { events, ..Conversation::default() })
}

/// The rows of a conversation whose program may have ended.
pub fn rows_of(talk: Conversation) -> Vec<TapExchange> {
    let mut exchanges = Exchanges::new(Vec::new());
    talk.events.into_iter().for_each(|event| exchanges.apply(event));
    if let Some(at) = talk.ended {
        exchanges.image_ended(talk.image, at);
    }
    exchanges.end();
    assert_eq!((exchanges.open(), exchanges.in_flight()), (0, 0));
    let mut all = Vec::new();
    exchanges.drain(&mut all);
    all
}

/// Events so far. The default connection is number 1.
#[derive(Default)]
pub struct Conversation {
    pub events: Vec<Event>,
    now: u64,
    image: u32,
    ended: Option<Timestamp>,
}

const CONNECTION: u64 = 1;
const PEER: &str = "192.0.2.80:80";
const LOCAL: &str = "192.0.2.1:50000";

impl Conversation {
    fn new() -> Conversation {
        let mut talk = Conversation { image: 1, now: ms(1_000), ..Conversation::default() };
        let at = talk.now();
        talk.push(EventKind::Loaded { at, parent_pid: 1, program: "curl".into() });
        talk
    }

    /// connect takes this number of milliseconds.
    pub fn connect(setup: u64) -> Conversation {
        let mut talk = Conversation::connecting();
        talk.connected(setup);
        talk
    }

    pub fn lookup_and_connect(lookup: u64, setup: u64) -> Conversation {
        let mut talk = Conversation::new();
        talk.lookup(10, lookup, 0);
        talk.open(CONNECTION).connected(setup);
        talk
    }

    pub fn connecting_after_lookup_in_thread(thread: u32, lookup: u64) -> Conversation {
        let mut talk = Conversation::new();
        talk.lookup(thread, lookup, 0);
        talk.open(CONNECTION).connected(1);
        talk
    }

    pub fn lookup_fails(error: i32) -> Conversation {
        let mut talk = Conversation::new();
        talk.lookup(10, 5, error);
        talk
    }

    pub fn connecting() -> Conversation {
        let mut talk = Conversation::new();
        talk.open(CONNECTION);
        talk
    }

    pub fn refused(after: u64, error: i32) -> Conversation {
        let mut talk = Conversation::connecting();
        let attempt = talk.attempt(after, error);
        talk.push(EventKind::ConnectFailed(attempt));
        talk
    }

    pub fn accept() -> Conversation {
        let mut talk = Conversation::new();
        let at = talk.now();
        talk.push(EventKind::Opened(Opened {
            connection: CONNECTION,
            at,
            role: Role::Accepted,
            local: PEER.parse().unwrap(),
            peer: LOCAL.parse().unwrap(),
            nonblocking: false,
            inherited: false,
        }));
        talk
    }

    /// Another connection of the same program.
    pub fn open(&mut self, connection: u64) -> &mut Conversation {
        let at = self.now();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        self.push(EventKind::Opened(Opened {
            connection,
            at,
            role: Role::Connected,
            local: address(LOCAL),
            peer: address(PEER),
            nonblocking: false,
            inherited: false,
        }))
    }

    /// Uses a socket that was open before the program began.
    pub fn find(&mut self, local: &str, peer: &str) -> &mut Conversation {
        let at = self.now();
        let (local, peer) = (local.parse().unwrap(), peer.parse().unwrap());
        self.push(EventKind::Opened(Opened {
            connection: CONNECTION,
            at,
            role: Role::Found,
            local,
            peer,
            nonblocking: false,
            inherited: false,
        }))
    }

    pub fn close_other(&mut self, connection: u64) -> &mut Conversation {
        let closed = Closed { connection, ..self.closing(None, Caveats::default()) };
        self.push(EventKind::Closed(closed))
    }

    pub fn wait(&mut self, millis: u64) -> &mut Conversation {
        self.now += ms(millis);
        self
    }

    pub fn send(&mut self, bytes: u64) -> &mut Conversation {
        self.send_for(0, bytes)
    }

    /// The first call is now, the last one returns this number of milliseconds later.
    pub fn send_for(&mut self, millis: u64, bytes: u64) -> &mut Conversation {
        let run = self.run(millis, bytes);
        self.push(EventKind::Sent(run))
    }

    pub fn receive(&mut self, bytes: u64) -> &mut Conversation {
        self.receive_for(0, bytes)
    }

    pub fn receive_for(&mut self, millis: u64, bytes: u64) -> &mut Conversation {
        let run = self.run(millis, bytes);
        self.push(EventKind::Received(run))
    }

    pub fn send_fails(&mut self, error: i32) -> &mut Conversation {
        let run = Run { error, calls: 0, ..self.run(0, 0) };
        self.push(EventKind::Sent(run))
    }

    pub fn receive_fails(&mut self, error: i32) -> &mut Conversation {
        let run = Run { error, calls: 0, ..self.run(0, 0) };
        self.push(EventKind::Received(run))
    }

    /// The peer closes its direction: a receive returns 0.
    pub fn peer_closes(&mut self) -> &mut Conversation {
        let run = Run { ended: true, ..self.run(0, 0) };
        self.push(EventKind::Received(run))
    }

    pub fn shut(&mut self) -> &mut Conversation {
        let at = self.now();
        self.push(EventKind::Shut { connection: CONNECTION, at, receive: false, send: true })
    }

    pub fn close(&mut self) -> &mut Conversation {
        self.close_with(None, Caveats::default())
    }

    pub fn close_with(&mut self, tcp_counts: Option<TcpCounts>, caveats: Caveats) -> &mut Conversation {
        let closed = self.closing(tcp_counts, caveats);
        self.push(EventKind::Closed(closed))
    }

    /// The program ends normally.
    pub fn exit(&mut self) -> &mut Conversation {
        let closed = self.closing(None, Caveats::default());
        self.push(EventKind::Leaving(closed))
    }

    /// The program's end is detected after the last event.
    pub fn process_ends(&mut self) -> &mut Conversation {
        self.ended = Some(self.now());
        self
    }

    /// The program forks; the child is image `image`.
    pub fn fork(&mut self, image: u32) -> &mut Conversation {
        let parent = self.image;
        let (at, program) = (self.now(), "curl".into());
        let what = EventKind::Forked { at, parent_image: parent, parent_pid: parent, fork: 1, program };
        self.events.push(Event { origin: Origin { image, pid: image, tid: image * 10, space: 0 }, what });
        self
    }

    /// Following events are in that image.
    pub fn in_image(&mut self, image: u32) -> &mut Conversation {
        self.image = image;
        self
    }

    /// Changes the last run.
    pub fn last_run(&mut self, change: impl FnOnce(&mut Run)) {
        match &mut self.events.last_mut().unwrap().what {
            EventKind::Sent(run) | EventKind::Received(run) => change(run),
            other => panic!("{other:?} is not a run"),
        }
    }

    /// Changes the last attempt.
    pub fn last_attempt(&mut self, change: impl FnOnce(&mut Attempt)) {
        match &mut self.events.last_mut().unwrap().what {
            EventKind::Connected(attempt) | EventKind::ConnectFailed(attempt) => change(attempt),
            other => panic!("{other:?} is not an attempt"),
        }
    }

    fn lookup(&mut self, tid: u32, millis: u64, error: i32) {
        let begin = self.now();
        self.wait(millis);
        let what = EventKind::Resolved { begin, end: self.now(), name: "server".into(), error };
        self.events.push(Event { origin: Origin { image: self.image, pid: self.image, tid, space: 0 }, what });
    }

    fn connected(&mut self, setup: u64) {
        let attempt = self.attempt(setup, 0);
        self.push(EventKind::Connected(attempt));
    }

    fn attempt(&mut self, millis: u64, error: i32) -> Attempt {
        let begin = self.now();
        self.wait(millis);
        let (blocked, waited) = (Duration::ZERO, Duration::ZERO);
        Attempt { connection: CONNECTION, begin, end: self.now(), blocked, waited, error, local: None }
    }

    fn run(&mut self, millis: u64, bytes: u64) -> Run {
        let begin = self.now();
        self.wait(millis);
        Run {
            connection: CONNECTION,
            begin,
            first: begin,
            end: self.now(),
            bytes,
            calls: 1,
            blocked: Duration::ZERO,
            waited: Duration::ZERO,
            ended: false,
            error: 0,
        }
    }

    fn closing(&self, tcp_counts: Option<TcpCounts>, caveats: Caveats) -> Closed {
        let at = self.now();
        Closed { connection: CONNECTION, begin: at, tcp_counts, caveats, forks: [0, 1] }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    pub fn push(&mut self, what: EventKind) -> &mut Conversation {
        let origin = Origin { image: self.image, pid: self.image, tid: self.image * 10, space: 0 };
        self.events.push(Event { origin, what });
        self
    }
}
