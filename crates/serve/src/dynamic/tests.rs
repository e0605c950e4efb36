//! Tests of the relay against correct and faulty upstreams, with a test as the worker.
#![allow(clippy::disallowed_methods, reason = "tests wait for the relay's thread")]

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sys::clock::Clock;

use super::{ANSWER_WINDOW, BODY_WINDOW, DynamicLimits, DynamicSpec, Event, Relay, RelayHandle, RelayRequest, Ticket};
use crate::request::Body;

use upstream::Upstream;

mod answers;
mod bounds;
mod fastcgi;
mod requests;
mod upstream;

/// The only worker of a relay.
struct TestWorker {
    // Dropped first: the relay does not wait for the upstream.
    relay: Relay,
    front: RelayHandle,
    events: HashMap<Ticket, VecDeque<Event>>,
    tickets: Ticket,
}

/// A response as received by the client.
#[derive(Debug, Default)]
struct ReceivedResponse {
    status: u16,
    fields: String,
    length: Option<u64>,
    body: Vec<u8>,
    /// The response ended completely.
    whole: bool,
}

impl ReceivedResponse {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl TestWorker {
    fn new(routes: &[String], change: impl FnOnce(&mut DynamicLimits)) -> TestWorker {
        TestWorker::below(Path::new("/"), routes, change)
    }

    fn below(served: &Path, routes: &[String], change: impl FnOnce(&mut DynamicLimits)) -> TestWorker {
        let mut spec = DynamicSpec::new(routes.iter().map(|route| route.parse().unwrap()).collect());
        change(&mut spec.limits);
        let (relay, mut fronts) = Relay::start(&spec, served, 1, Clock::start(), || {}).unwrap();
        TestWorker { relay, front: fronts.pop().unwrap(), events: HashMap::new(), tickets: 0.into() }
    }

    /// A worker of a relay with one upstream for all paths below `/app`.
    fn before(upstream: &Upstream) -> TestWorker {
        TestWorker::new(&[format!("/app=http://{}", upstream.address)], |_| {})
    }

    /// Starts an exchange; its body, if there is one, follows.
    fn request(&mut self, head: &str, body: Body) -> Ticket {
        self.tickets.connection += 1;
        let path = head.split(' ').nth(1).unwrap();
        let path = path.split('?').next().unwrap();
        self.front.send_request(RelayRequest {
            ticket: self.tickets,
            route: self.front.routed(path.as_bytes()).expect("a path with a route"),
            head: head.as_bytes().into(),
            body,
            peer: "192.0.2.1:999".parse().unwrap(),
            local: "192.0.2.9:80".parse().unwrap(),
            secure: false,
        });
        self.tickets
    }

    fn get(&mut self, path: &str) -> ReceivedResponse {
        let ticket = self.request(&format!("GET {path} HTTP/1.1\r\nHost: site\r\n\r\n"), Body::None);
        self.all(ticket)
    }

    /// The next event of an exchange.
    fn event(&mut self, ticket: Ticket) -> Event {
        loop {
            if let Some(event) = self.events.get_mut(&ticket).and_then(VecDeque::pop_front) {
                return event;
            }
            let timeout = PollTimeout::try_from(Duration::from_secs(20)).unwrap();
            let ready = poll(&mut [PollFd::new(self.front.wake_fd(), PollFlags::POLLIN)], timeout).unwrap();
            assert_eq!(ready, 1, "no event arrived within 20 s");
            self.take();
        }
    }

    fn take(&mut self) {
        self.front.woken();
        while let Some((ticket, event)) = self.front.next() {
            self.events.entry(ticket).or_default().push_back(event);
        }
    }

    /// Reads the response to its end.
    fn all(&mut self, ticket: Ticket) -> ReceivedResponse {
        let mut response = ReceivedResponse::default();
        loop {
            match self.event(ticket) {
                Event::Room(_) | Event::Interim { .. } => {}
                Event::Head { status, fields, length, .. } => {
                    assert_eq!(response.status, 0, "a second response head");
                    (response.status, response.length) = (status, length);
                    response.fields = String::from_utf8(fields.to_vec()).unwrap();
                }
                Event::Body(bytes) => {
                    assert!(response.status != 0, "content before the head");
                    response.body.extend_from_slice(&bytes);
                    self.front.taken(ticket, bytes.len());
                }
                Event::End => {
                    response.whole = true;
                    return response;
                }
                Event::Broken => return response,
            }
        }
    }

    /// Sends a body as the relay permits, until `until` bytes are sent or the response begins.
    fn send(&mut self, ticket: Ticket, bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.event(ticket) {
                Event::Room(room) => {
                    let piece = &bytes[sent..bytes.len().min(sent + room)];
                    self.front.body(ticket, piece);
                    sent += piece.len();
                }
                other => {
                    self.events.entry(ticket).or_default().push_front(other);
                    return;
                }
            }
        }
        self.front.body_ended(ticket);
    }

    /// The counters of the first route, once they satisfy `expected`.
    fn route_counters_when(&self, expected: impl Fn(&super::RouteCounters) -> bool) -> super::RouteCounters {
        for _ in 0..20_000 {
            let counters = self.relay.usage_reader().read().routes.remove(0);
            if expected(&counters) {
                return counters;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("still {:?}", self.relay.usage_reader().read());
    }
}
