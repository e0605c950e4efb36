//! Tests of upstream responses: complete, in every framing, truncated, absent.

use super::upstream::ok;
use super::*;
use crate::framing_table;

#[test]
fn a_response_with_a_content_length_is_forwarded() {
    let upstream = Upstream::responding(|_| {
        "HTTP/1.1 201 Created\r\nServer: app\r\nContent-Length: 5\r\nX-Mine: 1\r\nConnection: x-mine\r\n\r\nhello"
            .to_owned()
    });
    let response = TestWorker::before(&upstream).get("/app/x");
    assert_eq!((response.status, response.length, response.text(), response.whole), (201, Some(5), "hello", true));
    assert!(response.fields.starts_with("Server: app\r\nDate: "), "{}", response.fields);
    assert!(!response.fields.contains("X-Mine") && !response.fields.contains("Content-Length"));
}

#[test]
fn chunked_and_close_delimited_responses_are_forwarded() {
    let upstream = Upstream::start(|mut peer| {
        while let Some(head) = peer.head() {
            if head.contains("/chunks") {
                peer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: 1\r\n\r\n");
            } else {
                peer.write(b"HTTP/1.0 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nto the end");
                return peer.close();
            }
        }
    });
    let mut worker = TestWorker::before(&upstream);
    let response = worker.get("/app/chunks");
    assert_eq!((response.length, response.text(), response.whole), (None, "abcdefg", true));
    let response = worker.get("/app/close");
    assert_eq!((response.length, response.text(), response.whole), (None, "to the end", true));
    assert_eq!(response.fields, "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
}

#[test]
fn responses_without_content_are_forwarded() {
    let upstream = Upstream::responding(|head| {
        let status = head.split("/app/").nth(1).unwrap().split(' ').next().unwrap();
        format!(
            "HTTP/1.1 {status} X\r\nContent-Length: 7\r\n\r\n{}",
            if head.starts_with("GET /app/200") { "content" } else { "" }
        )
    });
    let mut worker = TestWorker::before(&upstream);
    let ticket = worker.request("HEAD /app/200 HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    let response = worker.all(ticket);
    assert_eq!((response.status, response.length, response.text(), response.whole), (200, Some(7), "", true));
    let response = worker.get("/app/304");
    assert_eq!((response.status, response.length, response.text(), response.whole), (304, Some(7), "", true));
    let response = worker.get("/app/204");
    assert_eq!((response.status, response.length, response.text(), response.whole), (204, None, "", true));
    let response = worker.get("/app/200");
    assert_eq!((response.status, response.length, response.text(), response.whole), (200, Some(7), "content", true));
}

#[test]
fn interim_responses_except_100_precede_the_final_response() {
    let upstream = Upstream::responding(|_| {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
            HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 199 Odd\r\nA: b\r\n\r\n";
        format!("{interim}{}", ok("last"))
    });
    let mut worker = TestWorker::before(&upstream);
    let ticket = worker.request("GET /app HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    for expected in [(102, ""), (103, "Link: </x>\r\n"), (199, "A: b\r\n")] {
        let Event::Interim { status, fields } = worker.event(ticket) else { panic!("no interim response") };
        assert_eq!((status, &*fields), (expected.0, expected.1.as_bytes()));
    }
    let response = worker.all(ticket);
    assert_eq!((response.status, response.text(), response.whole), (200, "last", true));
    assert!(!response.fields.contains("Link"));
}

#[test]
fn interim_responses_are_limited_in_number_and_bytes() {
    let large = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(2000));
    let small = "HTTP/1.1 100 Continue\r\n\r\n".to_owned();
    // Within both limits, then beyond each. 33 times some 2004 bytes are more than 64 KiB.
    for (interim, times, status) in [(&small, 64, 200), (&small, 65, 502), (&large, 32, 200), (&large, 33, 502)] {
        let response = format!("{}{}", interim.repeat(times), ok("last"));
        let upstream = Upstream::responding(move |_| response.clone());
        assert_eq!(TestWorker::before(&upstream).get("/app").status, status, "{times} of {} bytes", interim.len());
    }
}

#[test]
fn endless_interim_responses_give_502_and_free_the_slot() {
    let (tell, report) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |mut peer| {
        peer.head();
        // Until the relay closes the connection.
        while std::io::Write::write_all(peer.stream.get_mut(), &b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)).is_ok() {}
        tell.send(()).unwrap();
    });
    let mut worker = TestWorker::before(&upstream);
    let response = worker.get("/app");
    assert_eq!((response.status, response.whole, response.text()), (502, true, "502 Bad Gateway\n"));
    assert_eq!(worker.route_counters_when(|counters| counters.in_flight == 0).failed, 1);
    report.recv_timeout(std::time::Duration::from_secs(20)).expect("the connection is closed");
}

#[test]
fn a_response_that_breaks_off_is_reported_as_broken() {
    for cut in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n9\r\nx",
    ] {
        let upstream = Upstream::start(move |mut peer| {
            peer.head();
            peer.write(cut.as_bytes());
            peer.close();
        });
        let mut worker = TestWorker::before(&upstream);
        let response = worker.get("/app");
        assert_eq!((response.status, response.whole), (200, false), "{cut}");
        assert!("halfx".starts_with(response.text()), "{cut}");
        assert_eq!(worker.route_counters_when(|counters| counters.in_flight == 0).broken, 1);
    }
}

#[test]
fn a_malformed_upstream_response_gives_502() {
    for wrong in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nBad\0Name: 1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 999 X\r\n\r\n",
    ] {
        let upstream = Upstream::start(move |mut peer| {
            peer.head();
            peer.write(wrong.as_bytes());
            peer.close();
        });
        let mut worker = TestWorker::before(&upstream);
        let response = worker.get("/app");
        assert_eq!((response.status, response.whole, response.text()), (502, true, "502 Bad Gateway\n"), "{wrong:?}");
        assert_eq!(worker.route_counters_when(|counters| counters.in_flight == 0).failed, 1);
    }
    let flood = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let upstream = Upstream::responding(move |_| flood.clone());
    assert_eq!(TestWorker::before(&upstream).get("/app").status, 502);
}

#[test]
fn responses_are_framed_as_in_the_framing_table() {
    let cases = framing_table::responses().filter(|case| {
        // Interim responses are forwarded or dropped; tunnels are not requested.
        case.is_plain
            && case.gateway != "-"
            && case.method != "CONNECT"
            && !matches!(&*case.status, "100" | "103" | "199")
    });
    let cases: Vec<_> = cases.collect();
    let upstream = Upstream::start({
        let cases = cases.clone();
        move |mut peer| {
            let Some(head) = peer.head() else { return };
            let number: usize = head.split("/app/").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            let case = &cases[number];
            let body: &[u8] = match &*case.gateway {
                "chunked" => b"5\r\nhello\r\n0\r\n\r\n",
                "none" | "length:0" => b"",
                _ => b"hello",
            };
            peer.write(&[&case.head(), body].concat());
            peer.close();
        }
    });
    let mut worker = TestWorker::before(&upstream);
    for (number, case) in cases.iter().enumerate() {
        let ticket = worker.request(&format!("{} /app/{number} HTTP/1.1\r\nHost: h\r\n\r\n", case.method), Body::None);
        let response = worker.all(ticket);
        assert!(response.whole, "{case:?}");
        let outcome = (response.status, response.length, response.text());
        let status = case.status.parse().unwrap();
        match case.gateway.as_str() {
            "none" => assert_eq!((response.status, response.text()), (status, ""), "{case:?}"),
            "length:0" => assert_eq!(outcome, (status, Some(0), ""), "{case:?}"),
            "length:5" if status == 999 => assert_eq!(response.status, 502, "{case:?}"),
            "length:5" => assert_eq!(outcome, (status, Some(5), "hello"), "{case:?}"),
            "chunked" | "close" => assert_eq!(outcome, (status, None, "hello"), "{case:?}"),
            _ => assert_eq!((response.status, response.text()), (502, "502 Bad Gateway\n"), "{case:?}"),
        }
    }
}

#[test]
fn an_unreachable_upstream_gives_502() {
    let address = Upstream::start(drop).address;
    let mut worker =
        TestWorker::new(&[format!("/app=http://{address}"), "/unix=unix:/nowhere/socket".to_owned()], |_| {});
    assert_eq!(worker.get("/app").status, 502);
    assert_eq!(worker.get("/unix/x").status, 502);
}

#[test]
fn a_silent_upstream_gives_504_and_a_stalled_response_breaks_off() {
    let upstream = Upstream::start(|mut peer| {
        let head = peer.head().unwrap_or_default();
        if head.contains("/stall") {
            peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        }
        peer.rest();
    });
    let mut worker = TestWorker::new(&[format!("/app=http://{}", upstream.address)], |limits| {
        limits.first_byte_time = Duration::from_millis(50);
        limits.stall_time = Duration::from_millis(50);
    });
    assert_eq!(worker.get("/app/never").status, 504);
    // The first byte may take any time: only the stall is certain.
    let response = worker.get("/app/stall");
    assert!(matches!((response.status, response.whole), (200, false) | (504, true)), "{response:?}");
    assert!(worker.route_counters_when(|counters| counters.in_flight == 0).timed_out >= 1);
}

#[test]
fn a_unix_socket_upstream_with_a_base_path_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("app.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let thread = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = vec![0; 4096];
        let length = stream.read(&mut head).unwrap();
        let line = String::from_utf8_lossy(&head[..length]).lines().next().unwrap().to_owned();
        stream.write_all(ok(&line).as_bytes()).unwrap();
    });
    let mut worker = TestWorker::new(&[format!("/app=unix:{}:/base", socket.display())], |_| {});
    assert_eq!(worker.get("/app/x?y=z").text(), "GET /base/x?y=z HTTP/1.1");
    thread.join().unwrap();
}
