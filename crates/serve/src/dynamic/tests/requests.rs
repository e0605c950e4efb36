//! Tests of requests as received by an upstream.

use std::sync::mpsc::channel;

use super::upstream::ok;
use super::*;

/// An upstream that responds with the received head.
fn mirror() -> Upstream {
    Upstream::responding(ok)
}

#[test]
fn a_forwarded_request_is_rebuilt_from_its_parts() {
    let upstream = mirror();
    let mut worker = TestWorker::before(&upstream);
    let head = "GET http://other:81/app/x?q=%20#f HTTP/1.1\r\nHost: site\r\nConnection: close, X-Drop\r\nX-Drop: 1\r\n\
        X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nCookie: a=b\r\nTE: trailers\r\nExpect: 100-continue\r\n\r\n";
    worker.tickets.connection += 1;
    worker.front.send_request(RelayRequest {
        ticket: worker.tickets,
        route: 0,
        head: head.as_bytes().into(),
        body: Body::None,
        peer: "192.0.2.1:999".parse().unwrap(),
        local: "192.0.2.9:80".parse().unwrap(),
        secure: true,
    });
    let response = worker.all(worker.tickets);
    let mut lines: Vec<&str> = response.text().lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.remove(0), "GET /app/x?q=%20 HTTP/1.1");
    lines.sort_unstable();
    let expected = [
        "Cookie: a=b",
        "Host: other:81",
        "Via: 1.1 yamabiko",
        "X-Forwarded-For: 10.0.0.1, 192.0.2.1",
        "X-Forwarded-Host: other:81",
        "X-Forwarded-Proto: https",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn an_http_1_0_request_without_host_is_forwarded() {
    let upstream = mirror();
    let mut worker = TestWorker::before(&upstream);
    let ticket = worker.request("GET /app HTTP/1.0\r\n\r\n", Body::None);
    let response = worker.all(ticket);
    assert!(response.text().contains(&format!("\r\nHost: {}\r\n", upstream.address)), "{}", response.text());
    assert!(response.text().contains("Via: 1.0 yamabiko"));
}

#[test]
fn a_path_that_leaves_its_prefix_is_refused() {
    let upstream = mirror();
    let mut worker = TestWorker::before(&upstream);
    for path in ["/app/../x", "/app/%2e%2e/x", "/app/..;/x"] {
        let ticket = worker.request(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"), Body::None);
        assert_eq!(worker.all(ticket).status, 400, "{path}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn bodies_of_both_framings_arrive_completely() {
    let upstream = Upstream::start(|mut peer| {
        while let Some(head) = peer.head() {
            let framing = head.lines().filter(|line| line.starts_with("Content-L") || line.starts_with("Transfer-"));
            let framing: Vec<&str> = framing.collect();
            let framing = framing.join("; ");
            let length = if head.contains("chunked") {
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    std::io::BufRead::read_line(&mut peer.stream, &mut line).unwrap();
                    let size = usize::from_str_radix(line.trim(), 16).unwrap();
                    length += peer.body(size + 2).len() - 2;
                    if size == 0 {
                        break length;
                    }
                }
            } else {
                let stated = framing.split(": ").nth(1).map_or(0, |length| length.parse().unwrap());
                peer.body(stated).len()
            };
            peer.write(ok(&format!("{framing}; {length}")).as_bytes());
        }
    });
    let mut worker = TestWorker::before(&upstream);
    let body = vec![b'b'; 3 * BODY_WINDOW + 5];
    let known = worker
        .request("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 196613\r\n\r\n", Body::Bytes(body.len() as u64));
    worker.send(known, &body);
    assert_eq!(worker.all(known).text(), "Content-Length: 196613; 196613");
    let chunked = worker.request("PUT /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Body::Chunked);
    worker.send(chunked, &body);
    assert_eq!(worker.all(chunked).text(), "Transfer-Encoding: chunked; 196613");
    let empty = worker.request("POST /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    assert_eq!(worker.all(empty).text(), "Content-Length: 0; 0");
    assert_eq!(worker.get("/app").text(), "; 0");
}

#[test]
fn an_upstream_that_does_not_read_stops_the_client() {
    let (release, held) = channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let upstream = Upstream::start(move |mut peer| {
        peer.head();
        let _ = held.lock().unwrap().recv();
        let length = peer.body(64 << 20).len();
        peer.write(ok(&length.to_string()).as_bytes());
    });
    let mut worker = TestWorker::before(&upstream);
    let head = "POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 67108864\r\n\r\n";
    let ticket = worker.request(head, Body::Bytes(64 << 20));
    // The body fills sockets and windows and then stalls, long before its end.
    let (mut sent, mut quiet) = (0usize, 0);
    let piece = vec![0; BODY_WINDOW];
    while quiet < 20 {
        worker.take();
        match worker.events.get_mut(&ticket).and_then(VecDeque::pop_front) {
            Some(Event::Room(room)) => {
                worker.front.body(ticket, &piece[..room]);
                sent += room;
                quiet = 0;
            }
            Some(other) => panic!("{other:?}"),
            None => {
                quiet += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        assert!(sent < 64 << 20, "the relay buffered the complete body");
    }
    release.send(()).unwrap();
    worker.send(ticket, &vec![0; (64 << 20) - sent]);
    assert_eq!(worker.all(ticket).text(), "67108864");
}

#[test]
fn a_response_before_the_end_of_the_request_body_is_forwarded() {
    let upstream = Upstream::start(|mut peer| {
        peer.head();
        peer.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong");
        peer.rest();
    });
    let mut worker = TestWorker::before(&upstream);
    let ticket =
        worker.request("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n", Body::Bytes(100_000_000));
    assert!(matches!(worker.event(ticket), Event::Room(BODY_WINDOW)));
    // The exchange starts when that much of the body has arrived.
    worker.front.body(ticket, &[0; BODY_WINDOW]);
    let response = worker.all(ticket);
    assert_eq!((response.status, response.text(), response.whole), (413, "long", true));
    assert_eq!(worker.route_counters_when(|counters| counters.in_flight == 0).answered, 1);
}

#[test]
fn a_request_body_that_breaks_off_never_arrives_as_complete() {
    let (report, seen) = channel();
    let upstream = Upstream::start(move |mut peer| {
        let head = peer.head().unwrap();
        let rest = peer.rest();
        let _ = report.send((head.contains("chunked"), rest));
    });
    let mut worker = TestWorker::before(&upstream);
    // No byte of a small, incomplete body is forwarded.
    let small = worker.request("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n", Body::Bytes(10));
    assert!(matches!(worker.event(small), Event::Room(BODY_WINDOW)));
    worker.front.body(small, b"half");
    worker.front.cancel(small);
    worker.route_counters_when(|counters| counters.in_flight == 0 && counters.cancelled == 1);
    for (head, body) in [
        ("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n", Body::Bytes(100_000)),
        ("POST /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Body::Chunked),
    ] {
        let ticket = worker.request(head, body);
        assert!(matches!(worker.event(ticket), Event::Room(BODY_WINDOW)));
        worker.front.body(ticket, &[b'h'; BODY_WINDOW]);
        // Wait until the request is at the upstream: a cancelled exchange would leave nothing to check.
        assert!(matches!(worker.event(ticket), Event::Room(BODY_WINDOW)));
        worker.front.cancel(ticket);
        let (chunked, rest) = seen.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!rest.ends_with(b"0\r\n\r\n") && (chunked || rest.len() < 100_000), "{} bytes", rest.len());
    }
    worker.route_counters_when(|counters| counters.in_flight == 0 && counters.cancelled == 3);
    assert!(seen.try_recv().is_err(), "the upstream received two requests, not three");
}

/// More clients than the limit of early bodies permits: the others' bodies are read in their turn, and none is lost.
#[test]
fn bodies_buffered_in_the_queue_arrive_completely() {
    let upstream = Upstream::start(|mut peer| {
        while let Some(head) = peer.head() {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
            let body = peer.body(length);
            let text = format!("{length} {}", body.iter().map(|&byte| u64::from(byte)).sum::<u64>());
            peer.write(ok(&text).as_bytes());
        }
    });
    let mut worker = TestWorker::new(&[format!("/app=http://{}", upstream.address)], |limits| {
        (limits.concurrency, limits.queue, limits.queue_time) = (1, 1000, Duration::from_secs(3600));
    });
    let length = BODY_WINDOW;
    let head = format!("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    let tickets: Vec<Ticket> = (0..300).map(|_| worker.request(&head, Body::Bytes(length as u64))).collect();
    // A client without early body occupies its slot until its body arrives.
    for &ticket in &tickets {
        worker.send(ticket, &vec![ticket.connection as u8; length]);
    }
    for ticket in tickets {
        assert_eq!(
            worker.all(ticket).text(),
            format!("{length} {}", length as u64 * u64::from(ticket.connection as u8))
        );
    }
    worker.route_counters_when(|counters| counters.in_flight == 0 && counters.answered == 300);
}

/// Responds to two requests on each connection and closes it at the third.
fn closing_at_third_request() -> Upstream {
    Upstream::start(|mut peer| {
        for _ in 0..2 {
            if peer.head().is_none() {
                return;
            }
            peer.write(ok("here").as_bytes());
        }
        peer.head();
        peer.close();
    })
}

#[test]
fn upstream_connections_are_reused_and_closed_ones_replaced() {
    let upstream = closing_at_third_request();
    let mut worker = TestWorker::before(&upstream);
    for _ in 0..30 {
        assert_eq!(worker.get("/app").text(), "here");
    }
    let counters = worker.route_counters_when(|counters| counters.in_flight == 0);
    assert_eq!((counters.answered, counters.failed), (30, 0));
    // Which connections are reused depends on timing; some must be.
    assert!(counters.reused > 0, "{counters:?}");
}

#[test]
fn unsafe_requests_are_not_retried() {
    let upstream = closing_at_third_request();
    let mut worker = TestWorker::before(&upstream);
    for _ in 0..1000 {
        let (before, failed) = (upstream.accepted(), worker.route_counters_when(|_| true).failed);
        let ticket = worker.request("POST /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
        if worker.all(ticket).status == 502 {
            // The request met a connection that was about to close.
            assert_eq!((upstream.accepted(), worker.route_counters_when(|_| true).failed), (before, failed + 1));
            return;
        }
    }
    panic!("no connection was reused");
}
