//! Tests of windows, queue, concurrency limit and cancellation.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::upstream::ok;
use super::*;
use crate::dynamic::client::PIECE;

#[test]
fn a_client_that_does_not_read_buffers_at_most_its_window() {
    const LENGTH: usize = 64 << 20;
    let upstream = Upstream::responding(|head| {
        if head.contains("/big") {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n{}", "x".repeat(LENGTH))
        } else {
            ok("small")
        }
    });
    let mut worker = TestWorker::before(&upstream);
    let big = worker.request("GET /app/big HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    let mut waiting = 0;
    // A piece is sent completely or not at all.
    while waiting + PIECE <= ANSWER_WINDOW {
        if let Event::Body(bytes) = worker.event(big) {
            waiting += bytes.len();
        }
    }
    // Other clients are served meanwhile, and this one buffers at most its window.
    assert_eq!(worker.get("/app").text(), "small");
    for event in worker.events.remove(&big).unwrap_or_default() {
        let Event::Body(bytes) = event else { panic!("{event:?}") };
        waiting += bytes.len();
    }
    assert!(waiting <= ANSWER_WINDOW, "{waiting}");
    worker.front.taken(big, waiting);
    let rest = {
        let mut rest = 0;
        loop {
            match worker.event(big) {
                Event::Body(bytes) => {
                    rest += bytes.len();
                    worker.front.taken(big, bytes.len());
                }
                Event::End => break rest,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(waiting + rest, LENGTH);
}

/// An upstream whose responses wait until the test releases them.
fn slow() -> (Upstream, std::sync::mpsc::Sender<()>) {
    let (release, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let upstream = Upstream::start(move |mut peer| {
        while let Some(head) = peer.head() {
            if held.lock().unwrap().recv().is_err() {
                return;
            }
            peer.write(ok(head.split(' ').nth(1).unwrap()).as_bytes());
        }
    });
    (upstream, release)
}

#[test]
fn a_full_queue_gives_503_with_retry_after() {
    let (upstream, release) = slow();
    let mut worker = TestWorker::new(&[format!("/app=http://{}", upstream.address)], |limits| {
        (limits.concurrency, limits.queue, limits.queue_time) = (2, 2, Duration::from_secs(3600));
    });
    let request = |n: u32| format!("GET /app/{n} HTTP/1.1\r\nHost: h\r\n\r\n");
    let first: Vec<Ticket> = (0..4).map(|n| worker.request(&request(n), Body::None)).collect();
    worker.route_counters_when(|counters| counters.in_flight == 2 && counters.waiting == 2);
    let refused = worker.request(&request(4), Body::None);
    let response = worker.all(refused);
    assert_eq!((response.status, response.text(), response.whole), (503, "503 Service Unavailable\n", true));
    assert!(response.fields.contains("Retry-After: 1\r\n"), "{}", response.fields);
    // A client that leaves the queue frees its place immediately.
    worker.front.cancel(first[2]);
    worker.route_counters_when(|counters| counters.waiting == 1);
    let late = worker.request(&request(5), Body::None);
    worker.route_counters_when(|counters| counters.waiting == 2);
    for _ in 0..4 {
        release.send(()).unwrap();
    }
    for (ticket, path) in [(first[0], "/app/0"), (first[1], "/app/1"), (first[3], "/app/3"), (late, "/app/5")] {
        assert_eq!(worker.all(ticket).text(), path);
    }
    assert!(worker.events.get(&first[2]).is_none_or(VecDeque::is_empty));
    let counters = worker.route_counters_when(|counters| counters.in_flight == 0);
    assert_eq!((counters.answered, counters.refused_full, counters.waiting), (4, 1, 0));
    assert_eq!(counters.cancelled, 1, "a request in the queue can be cancelled");
}

#[test]
fn a_queue_timeout_gives_503() {
    let (upstream, release) = slow();
    let mut worker = TestWorker::new(&[format!("/app=http://{}", upstream.address)], |limits| {
        (limits.concurrency, limits.queue_time) = (1, Duration::from_millis(20));
    });
    let first = worker.request("GET /app/1 HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    worker.route_counters_when(|counters| counters.in_flight == 1);
    assert_eq!(worker.get("/app/2").status, 503);
    release.send(()).unwrap();
    assert_eq!(worker.all(first).text(), "/app/1");
    assert_eq!(worker.route_counters_when(|counters| counters.in_flight == 0).refused_late, 1);
}

#[test]
fn a_disconnected_client_frees_its_slot_and_closes_the_upstream_connection() {
    let (report, seen) = channel();
    let upstream = Upstream::start(move |mut peer| {
        peer.head();
        if peer.number == 0 {
            peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            let _ = report.send(peer.rest());
        } else {
            peer.write(ok("next").as_bytes());
        }
    });
    let mut worker = TestWorker::new(&[format!("/app=http://{}", upstream.address)], |limits| limits.concurrency = 1);
    let left = worker.request("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    while !matches!(worker.event(left), Event::Body(_)) {}
    let waits = worker.request("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    worker.route_counters_when(|counters| counters.waiting == 1);
    worker.front.cancel(left);
    assert_eq!(seen.recv_timeout(Duration::from_secs(20)).unwrap(), b"");
    assert_eq!(worker.all(waits).text(), "next");
    assert_eq!(worker.route_counters_when(|counters| counters.in_flight == 0).cancelled, 1);
}

#[test]
fn routes_to_one_upstream_share_its_concurrency_limit() {
    let (busy, release) = slow();
    let free = Upstream::responding(|_| ok("free"));
    let routes = [
        format!("/a=http://{}", busy.address),
        format!("/b=http://{}/base", busy.address),
        format!("/c=http://{}", free.address),
    ];
    let mut worker = TestWorker::new(&routes, |limits| (limits.concurrency, limits.queue) = (1, 0));
    let held = worker.request("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    worker.route_counters_when(|counters| counters.in_flight == 1);
    assert_eq!(worker.get("/b").status, 503);
    assert_eq!(worker.get("/c").text(), "free");
    release.send(()).unwrap();
    assert_eq!(worker.all(held).text(), "/a");
}

#[test]
fn dropping_the_relay_ends_exchanges_in_flight() {
    let (upstream, _release) = slow();
    let mut worker = TestWorker::before(&upstream);
    let ticket = worker.request("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    worker.route_counters_when(|counters| counters.in_flight == 1);
    let TestWorker { relay, mut front, .. } = worker;
    drop(relay);
    front.woken();
    let (mut status, mut ended) = (0, false);
    while let Some((of, event)) = front.next() {
        assert_eq!(of, ticket);
        match event {
            Event::Head { status: report, .. } => status = report,
            Event::End | Event::Broken => ended = true,
            _ => {}
        }
    }
    assert_eq!((status, ended), (502, true));
}
