//! Choice of the request of an arrival, and requests with placeholders.

use std::collections::HashMap;
use std::time::Duration;

use load::workload::{Choice, Names, Template};
use load::{Arrivals, LoadSpec, RequestSpec, Target, Workload};

use crate::world::*;

fn template(text: &str) -> Template {
    Template::parse(text, &Names::default()).unwrap()
}

fn get(url: &str) -> RequestSpec {
    RequestSpec::get(Target::parse(url).unwrap())
}

fn always_ok() -> Site<impl FnMut(&ReceivedRequest) -> Vec<(Duration, Reply)>> {
    Site(|_: &ReceivedRequest| vec![(ms(1), Reply::Bytes(OK.to_vec()))])
}

fn run(spec: LoadSpec) -> World<impl Server> {
    let mut world = World::new(spec, always_ok());
    world.stores_requests = true;
    world.run()
}

#[test]
fn requests_follow_their_weights_in_open_and_closed_loop() {
    for arrivals in [constant(1000.0), Arrivals::Closed] {
        let mut spec = spec(arrivals);
        spec.connections_max = if spec.arrivals.is_open() { 1000 } else { 5 };
        spec.workload.requests = ["/a", "/b", "/c"].map(|path| get(&format!("http://server{path}"))).to_vec();
        (spec.workload.requests[0].weight, spec.workload.requests[2].weight) = (7.0, 2.0);
        spec.workload.choice = Choice::Drawn;
        spec.requests_max = Some(5000);
        (spec.duration, spec.seed) = (None, 9);
        let world = run(spec);
        let mut counts = [0u32; 3];
        world.records.iter().for_each(|record| counts[record.url as usize] += 1);
        // The standard deviations are 32, 21 and 28; the limit is five times the largest.
        for (count, expected) in counts.into_iter().zip([3500u32, 500, 1000]) {
            assert!(count.abs_diff(expected) < 160, "{counts:?}");
        }
        // The requests that the server received match the records.
        let paths: HashMap<&str, usize> = HashMap::from([("/a", 0), ("/b", 1), ("/c", 2)]);
        let mut received = [0u32; 3];
        world.received.iter().for_each(|request| received[paths[request.path()]] += 1);
        assert_eq!(received, counts);
    }
}

#[test]
fn placeholders_are_filled_for_each_request() {
    let mut spec = spec(constant(100.0));
    spec.requests_max = Some(50);
    let request = &mut spec.workload.requests[0];
    request.path = template("/{client}/{sequence}?r={random 1..1000000}");
    request.method = schema::Method::Post;
    request.headers = vec![("X-Random".into(), template("{random 1..1000000}"))];
    request.body = template("number {sequence}");
    request.basic_auth = Some(template("user{client}:pw"));
    let world = run(spec.clone());
    assert_eq!(world.received.len(), 50);
    let mut drawn = Vec::new();
    for (sequence, received) in world.received.iter().enumerate() {
        let record = world.records.iter().find(|record| record.sequence == sequence as u64).unwrap();
        let (path, random) = received.path().split_once("?r=").unwrap();
        assert_eq!(path, format!("/{}/{sequence}", record.client));
        assert_eq!(received.body(), format!("number {sequence}"));
        assert_eq!(received.header("content-length"), Some(&*received.body().len().to_string()));
        assert!(received.header("authorization").unwrap().starts_with("Basic dXNlc"), "{}", received.text);
        assert_ne!(received.header("x-random"), Some(random), "each placeholder has its own random number");
        assert_eq!(record.bytes_sent, received.text.len() as u64);
        drawn.push(random.to_owned());
    }
    // The same seed gives the same requests, another seed gives others.
    let again: Vec<ReceivedRequest> = run(spec.clone()).received;
    assert_eq!(again, world.received);
    spec.seed += 1;
    let other = run(spec);
    assert!(
        other.received.iter().zip(&drawn).filter(|(received, random)| received.path().ends_with(&***random)).count()
            < 3
    );
}

#[test]
fn a_retried_request_has_the_same_bytes() {
    let mut spec = spec(constant(2.0));
    (spec.clients, spec.requests_max) = (1, Some(4));
    spec.workload.requests[0].path = template("/{sequence}?{random 1..1000000}");
    let mut nth = 0;
    let server = Site(move |_: &ReceivedRequest| {
        nth += 1;
        if nth == 2 {
            vec![(ms(0), Reply::Crossed), (ms(0), Reply::Fin)]
        } else {
            vec![(ms(0), Reply::Bytes(OK.to_vec()))]
        }
    });
    let mut world = World::new(spec, server);
    world.stores_requests = true;
    let world = world.run();
    assert_eq!((world.load.live().retried, world.load.live().failed), (1, 0));
    assert_eq!(world.received.len(), 5);
    assert_eq!(world.received[1].text, world.received[2].text);
    assert_ne!(world.received[0].text, world.received[1].text);
    let again = world.records.iter().find(|record| record.sequence == 1).unwrap();
    assert_eq!((again.bytes_sent, again.attempts), (world.received[1].text.len() as u64, 2));
}

#[test]
fn literal_requests_are_sent_as_prepared_and_templates_are_rendered() {
    use load::{Action, Load};
    use units::Timestamp;
    let mut spec = spec(constant(1.0));
    spec.clients = 1;
    spec.requests_max = Some(2);
    spec.workload = Workload::of(["http://server/a", "http://server/b"].map(|url| Target::parse(url).unwrap()));
    spec.workload.requests[1].path = template("/{sequence}");
    let mut load = Load::new(spec, Timestamp::ZERO);
    let mut sent = Vec::new();
    let mut now = Timestamp::ZERO;
    while sent.len() < 2 {
        load.handle_time(now);
        let mut connected = None;
        let mut answered = None;
        while let Some(action) = load.poll_action(now) {
            match action {
                Action::Connect { key, .. } => connected = Some(key),
                Action::Send { key, bytes, prepared, request } => {
                    sent.push((request, prepared, String::from_utf8(bytes.to_vec()).unwrap()));
                    answered = Some((key, bytes.len()));
                }
                _ => {}
            }
        }
        if let Some(key) = connected {
            load.handle_connected(now, key);
        }
        if let Some((key, length)) = answered {
            // Sent in two parts, so that `unsent` returns the rest.
            load.handle_sent(now, key, 10);
            assert_eq!(load.unsent(key), &sent.last().unwrap().2.as_bytes()[10..]);
            load.handle_sent(now, key, length - 10);
            load.handle_bytes(now, key, OK);
        }
        if connected.is_none() {
            now = load.next_wake().unwrap();
        }
    }
    assert_eq!((sent[0].0, sent[0].1, sent[1].0, sent[1].1), (0, true, 1, false));
    assert_eq!(load.request(0), sent[0].2.as_bytes());
    assert!(sent[1].2.starts_with("GET /1 HTTP/1.1\r\nHost: server\r\n"));
    assert_eq!(load.request(1), b"");
}
