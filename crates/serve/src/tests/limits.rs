//! Tests with slow clients and with too many clients.

use super::*;

use std::io::ErrorKind;

fn short_timeouts() -> Limits {
    let short = Duration::from_millis(60);
    let long = Duration::from_secs(600);
    Limits { head_time: short, idle_time: long, stall_time: long, ..Limits::default() }
}

#[test]
fn an_endless_head_times_out() {
    let server = Running::with(1, short_timeouts());
    // No input: no response.
    assert!(server.connect().rest().is_empty());
    // A head has begun and does not end.
    let late = |mut client: Client| String::from_utf8(client.rest()).unwrap();
    let mut client = server.connect();
    client.send(b"GET /hello.txt HT");
    let response_text = late(client);
    assert!(
        response_text.starts_with("HTTP/1.1 408 Request Timeout\r\n")
            && response_text.contains("\r\nConnection: close\r\n")
    );
    // A byte now and then does not reset the timeout: the server closes although the client continues.
    let mut client = server.connect();
    client.send(b"GET /hello.txt HTTP/1.1\r\nA: ");
    while client.stream.write_all(b"a").is_ok() {
        thread::yield_now();
    }
    // Also after a response.
    let mut client = server.connect();
    client.send(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /");
    assert_eq!(client.response(true).body, b"hello\n");
    assert!(late(client).starts_with("HTTP/1.1 408 "));
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_time() {
    let limits =
        Limits { head_time: Duration::from_secs(600), idle_time: Duration::from_millis(60), ..short_timeouts() };
    let server = Running::with(1, limits);
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello.txt").body, b"hello\n");
    assert!(idle.rest().is_empty());
}

#[test]
fn a_client_that_does_not_read_a_file_is_reset() {
    let long = Duration::from_secs(600);
    let limits = Limits { head_time: long, idle_time: long, stall_time: Duration::from_millis(60), ..short_timeouts() };
    let server = Running::with(1, limits);
    fs::write(server.root().join("big"), vec![b'x'; 64 << 20]).unwrap();
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    // Reads nothing until the server has closed: sending to it then fails.
    while client.stream.write_all(b"x").is_ok() {
        thread::yield_now();
    }
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
}

#[test]
fn a_client_that_does_not_read_small_responses_is_reset() {
    let long = Duration::from_secs(600);
    let limits = Limits { head_time: long, idle_time: long, stall_time: Duration::from_millis(60), ..short_timeouts() };
    let server = Running::with(1, limits);
    let mut client = server.connect();
    // Sends requests without reading, until the server stops receiving and then closes.
    let request = b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    client.stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let ended = loop {
        if let Err(error) = client.stream.write_all(&request) {
            break error;
        }
    };
    assert!(matches!(ended.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{ended}");
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
}

#[test]
fn thousands_of_idle_connections_do_not_block_a_new_one() {
    let server = Running::start();
    let (soft, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    // Both ends of a connection are in this process.
    let count = (soft as usize / 8).saturating_sub(100).min(3000);
    assert!(count > 100, "{soft} descriptors are too few for this test; raise `ulimit -n`");
    let idle: Vec<_> = (0..count).map(|_| server.connect()).collect();
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
    drop(idle);
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
}

#[test]
fn one_address_is_limited_to_its_share_of_connections() {
    let server = Running::with(1, Limits { connections_per_address: Some(2), ..Limits::default() });
    let mut first = server.connect();
    let mut second = server.connect();
    assert_eq!(first.get("/hello.txt").body, b"hello\n");
    assert_eq!(second.get("/hello.txt").body, b"hello\n");
    // Refused before it has sent anything.
    let response_text = String::from_utf8(server.connect().rest()).unwrap();
    assert!(
        response_text.starts_with("HTTP/1.1 503 ") && response_text.contains("\r\nRetry-After: "),
        "{response_text}"
    );
    // Another address of the same host has its own share.
    let other = sys::socket::TcpSocket::connect(Some("127.0.0.9".parse().unwrap()), server.address).unwrap();
    let stream = TcpStream::from(other.into_fd());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(Client { stream, read: Vec::new() }.get("/hello.txt").body, b"hello\n");
    // A closed connection frees its share.
    first.send(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(first.rest().ends_with(b"hello\n"));
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
    assert_eq!(second.get("/hello.txt").body, b"hello\n");
}

#[test]
fn the_longest_idle_connection_is_displaced() {
    let server =
        Running::with(1, Limits { connections: Some(3), connections_per_address: Some(9), ..Limits::default() });
    fs::write(server.root().join("big"), vec![b'x'; 32 << 20]).unwrap();
    let mut busy = server.connect();
    busy.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    busy.more();
    let mut silent = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello.txt").body, b"hello\n");
    // It waits until another connection has been idle for a while.
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
    assert!(silent.rest().is_empty(), "the connection without any request is displaced first");
    assert_eq!(idle.get("/hello.txt").body, b"hello\n");
    assert_eq!(busy.response(true).body.len(), 32 << 20);
}

#[test]
fn an_endless_request_body_times_out() {
    let limits = Limits { body_time: Duration::from_millis(60), ..Limits::default() };
    let server = Running::with(1, limits);
    let mut client = server.connect();
    client.send(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this");
    // The file was sent after the head; the body never arrives.
    assert!(client.rest().ends_with(b"hello\n"));
    let response_text = server.ask("GET /hello.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n");
    assert!(response_text.starts_with("HTTP/1.1 413 "), "{response_text}");
}

#[test]
fn a_stopping_server_completes_transfers_in_progress() {
    let server = Running::start();
    fs::write(server.root().join("big"), vec![b'x'; 32 << 20]).unwrap();
    let mut busy = server.connect();
    busy.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\nGET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    busy.more();
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello.txt").body, b"hello\n");
    server.stop.write(1).unwrap();
    assert!(idle.rest().is_empty(), "an idle connection closes immediately");
    // New connections are refused.
    while TcpStream::connect(server.address).is_ok() {
        thread::yield_now();
    }
    assert_eq!(busy.response(true).body.len(), 32 << 20);
    assert!(busy.rest().is_empty(), "the response in progress is the last");
    // Dropping the server writes once more, after it has ended.
}

#[test]
fn a_second_stop_signal_ends_the_server_immediately() {
    let server = Running::start();
    fs::write(server.root().join("big"), vec![b'x'; 64 << 20]).unwrap();
    let mut busy = server.connect();
    busy.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    busy.more();
    server.stop.write(1).unwrap();
    while TcpStream::connect(server.address).is_ok() {
        thread::yield_now();
    }
    // The second stop.
    drop(server);
    let mut rest = Vec::new();
    let _ = busy.stream.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
}

/// A client that keeps sending after a refusal: the response arrives, and the connection closes long before the bytes
/// end.
#[test]
fn a_refused_client_that_keeps_sending_is_reset() {
    let server = Running::start();
    let mut client = server.connect();
    client.stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut sender = client.stream.try_clone().unwrap();
    let mut sent = 0u64;
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\nA: ");
    let ended = loop {
        match sender.write(&[b'a'; 64 << 10]) {
            Ok(bytes) => sent += bytes as u64,
            Err(error) => break error,
        }
        assert!(sent < 1 << 30, "the server does not stop the client");
    };
    assert!(matches!(ended.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{ended}");
    // The server counted only what it read: within the limit, plus bytes in transit.
    let status = String::from_utf8(server.connect().get("/-/status").body).unwrap();
    let received = status.split("\"received\":").nth(1).unwrap().trim_start().split([',', '}', '\n']).next().unwrap();
    assert!(received.parse::<u64>().unwrap() < 400 << 10, "{status}");
}

/// A client that sends a refused body completely and then reads gets its response.
#[test]
fn a_refused_client_that_stops_sending_reads_the_refusal() {
    let server = Running::start();
    let mut client = server.connect();
    let head = "POST /hello.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n";
    client.send(head.as_bytes());
    client.send(&[b'x'; 200 << 10]);
    let response_text = String::from_utf8(client.rest()).unwrap();
    assert!(response_text.starts_with("HTTP/1.1 413 "), "{response_text}");
}

/// Hundreds of incomplete heads besides an established and a new client, which are both served.
#[test]
fn new_and_established_connections_both_get_their_turn() {
    let server = Running::start();
    let mut established = server.connect();
    assert_eq!(established.get("/hello.txt").body, b"hello\n");
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for round in 0..20 {
        for client in &mut clients {
            client.send(if round == 0 { b"GET /hello.txt HTTP/1.1\r\nA: " } else { b"a" });
        }
        assert_eq!(established.get("/hello.txt").body, b"hello\n");
    }
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
    for client in &mut clients {
        client.send(b"\r\nHost: x\r\n\r\n");
        assert_eq!(client.response(true).body, b"hello\n");
    }
}

/// Long heads on an established connection: more than one buffer each, followed by small ones.
#[test]
fn an_established_client_may_send_long_pipelines() {
    let server = Running::start();
    let mut client = server.connect();
    let long = format!("GET /hello.txt HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", "c".repeat(7000));
    for round in 0..30 {
        if round % 3 == 1 {
            client.send(long.repeat(5).as_bytes());
            (0..5).for_each(|_| assert_eq!(client.response(true).body, b"hello\n"));
        }
        assert_eq!(client.get("/hello.txt").body, b"hello\n");
    }
}

/// Enough bursts to use all buffers of a worker: each connection is established and then sends a burst.
#[test]
fn bursts_leave_receive_buffers_for_other_connections() {
    let server = Running::start();
    let mut clients: Vec<_> = (0..150).map(|_| server.connect()).collect();
    let mut other = server.connect();
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").body, b"hello\n");
    }
    let burst = "GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1500);
    for client in &mut clients {
        client.send(burst.as_bytes());
        assert_eq!(other.get("/hello.txt").body, b"hello\n");
    }
    for client in &mut clients {
        (0..1500).for_each(|_| assert_eq!(client.response(true).body, b"hello\n"));
    }
}
