//! Windows, queue, places, cancelling.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::upstream::ok;
use super::*;
use crate::dynamic::client::PIECE;

#[test]
fn a_client_that_does_not_read_holds_no_more_than_its_window() {
    const LENGTH: usize = 64 << 20;
    let upstream = Upstream::answering(|head| {
        if head.contains("/big") {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n{}", "x".repeat(LENGTH))
        } else {
            ok("small")
        }
    });
    let mut desk = Desk::before(&upstream);
    let big = desk.ask("GET /app/big HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    let mut waiting = 0;
    // A piece comes whole or not at all.
    while waiting + PIECE <= ANSWER_WINDOW {
        if let Event::Body(bytes) = desk.event(big) {
            waiting += bytes.len();
        }
    }
    // Others are answered meanwhile, and no more of this one comes than its window holds.
    assert_eq!(desk.get("/app").text(), "small");
    for event in desk.heard.remove(&big).unwrap_or_default() {
        let Event::Body(bytes) = event else { panic!("{event:?}") };
        waiting += bytes.len();
    }
    assert!(waiting <= ANSWER_WINDOW, "{waiting}");
    desk.front.taken(big, waiting);
    let rest = {
        let mut rest = 0;
        loop {
            match desk.event(big) {
                Event::Body(bytes) => {
                    rest += bytes.len();
                    desk.front.taken(big, bytes.len());
                }
                Event::End => break rest,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(waiting + rest, LENGTH);
}

/// An upstream whose every answer waits until the test lets one go.
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
fn past_places_and_queue_a_client_is_told_when_to_come_back() {
    let (upstream, release) = slow();
    let mut desk = Desk::new(&[format!("/app=http://{}", upstream.address)], |limits| {
        (limits.concurrency, limits.queue, limits.queue_time) = (2, 2, Duration::from_secs(3600));
    });
    let request = |n: u32| format!("GET /app/{n} HTTP/1.1\r\nHost: h\r\n\r\n");
    let first: Vec<Ticket> = (0..4).map(|n| desk.ask(&request(n), Body::None)).collect();
    desk.account_when(|account| account.in_flight == 2 && account.waiting == 2);
    let refused = desk.ask(&request(4), Body::None);
    let got = desk.all(refused);
    assert_eq!((got.status, got.text(), got.whole), (503, "503 Service Unavailable\n", true));
    assert!(got.fields.contains("Retry-After: 1\r\n"), "{}", got.fields);
    // Who leaves the queue makes room at once.
    desk.front.cancel(first[2]);
    desk.account_when(|account| account.waiting == 1);
    let late = desk.ask(&request(5), Body::None);
    desk.account_when(|account| account.waiting == 2);
    for _ in 0..4 {
        release.send(()).unwrap();
    }
    for (ticket, path) in [(first[0], "/app/0"), (first[1], "/app/1"), (first[3], "/app/3"), (late, "/app/5")] {
        assert_eq!(desk.all(ticket).text(), path);
    }
    assert!(desk.heard.get(&first[2]).is_none_or(VecDeque::is_empty));
    let account = desk.account_when(|account| account.in_flight == 0);
    assert_eq!((account.answered, account.refused_full, account.waiting), (4, 1, 0));
    assert_eq!(account.cancelled, 1, "from the queue, too");
}

#[test]
fn the_time_in_the_queue_ends_with_503() {
    let (upstream, release) = slow();
    let mut desk = Desk::new(&[format!("/app=http://{}", upstream.address)], |limits| {
        (limits.concurrency, limits.queue_time) = (1, Duration::from_millis(20));
    });
    let first = desk.ask("GET /app/1 HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    desk.account_when(|account| account.in_flight == 1);
    assert_eq!(desk.get("/app/2").status, 503);
    release.send(()).unwrap();
    assert_eq!(desk.all(first).text(), "/app/1");
    assert_eq!(desk.account_when(|account| account.in_flight == 0).refused_late, 1);
}

#[test]
fn a_client_that_leaves_gives_its_place_back_and_the_upstream_hears_of_it() {
    let (told, seen) = channel();
    let upstream = Upstream::start(move |mut peer| {
        peer.head();
        if peer.number == 0 {
            peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            let _ = told.send(peer.rest());
        } else {
            peer.write(ok("next").as_bytes());
        }
    });
    let mut desk = Desk::new(&[format!("/app=http://{}", upstream.address)], |limits| limits.concurrency = 1);
    let left = desk.ask("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    while !matches!(desk.event(left), Event::Body(_)) {}
    let waits = desk.ask("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    desk.account_when(|account| account.waiting == 1);
    desk.front.cancel(left);
    assert_eq!(seen.recv_timeout(Duration::from_secs(20)).unwrap(), b"");
    assert_eq!(desk.all(waits).text(), "next");
    assert_eq!(desk.account_when(|account| account.in_flight == 0).cancelled, 1);
}

#[test]
fn routes_with_one_upstream_share_its_places_and_others_do_not() {
    let (busy, release) = slow();
    let free = Upstream::answering(|_| ok("free"));
    let routes = [
        format!("/a=http://{}", busy.address),
        format!("/b=http://{}/base", busy.address),
        format!("/c=http://{}", free.address),
    ];
    let mut desk = Desk::new(&routes, |limits| (limits.concurrency, limits.queue) = (1, 0));
    let held = desk.ask("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    desk.account_when(|account| account.in_flight == 1);
    assert_eq!(desk.get("/b").status, 503);
    assert_eq!(desk.get("/c").text(), "free");
    release.send(()).unwrap();
    assert_eq!(desk.all(held).text(), "/a");
}

#[test]
fn dropping_the_relay_ends_what_is_under_way() {
    let (upstream, _release) = slow();
    let mut desk = Desk::before(&upstream);
    let ticket = desk.ask("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    desk.account_when(|account| account.in_flight == 1);
    let Desk { relay, mut front, .. } = desk;
    drop(relay);
    front.woken();
    let (mut status, mut ended) = (0, false);
    while let Some((of, event)) = front.next() {
        assert_eq!(of, ticket);
        match event {
            Event::Head { status: told, .. } => status = told,
            Event::End | Event::Broken => ended = true,
            _ => {}
        }
    }
    assert_eq!((status, ended), (502, true));
}
