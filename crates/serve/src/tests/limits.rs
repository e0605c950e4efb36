//! Clients that take their time, and too many of them.

use super::*;

fn impatient() -> Limits {
    let short = Duration::from_millis(60);
    let long = Duration::from_secs(600);
    Limits { head_time: short, idle_time: long, stall_time: long, ..Limits::default() }
}

#[test]
fn a_head_that_never_ends_is_not_waited_for() {
    let server = Running::with(1, impatient());
    // Never begun: there is nothing to be told.
    assert!(server.connect().rest().is_empty());
    // Begun but not ended.
    let late = |mut client: Client| String::from_utf8(client.rest()).unwrap();
    let mut client = server.connect();
    client.send(b"GET /hello.txt HT");
    let answer = late(client);
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n") && answer.contains("\r\nConnection: close\r\n"));
    // A byte now and then does not wind the clock up again: the server ends it although the client never stops.
    let mut client = server.connect();
    client.send(b"GET /hello.txt HTTP/1.1\r\nA: ");
    while client.stream.write_all(b"a").is_ok() {
        thread::yield_now();
    }
    // After an answer, too.
    let mut client = server.connect();
    client.send(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /");
    assert_eq!(client.response(true).body, b"hello\n");
    assert!(late(client).starts_with("HTTP/1.1 408 "));
}

#[test]
fn an_idle_connection_is_closed_in_the_end() {
    let limits = Limits { head_time: Duration::from_secs(600), idle_time: Duration::from_millis(60), ..impatient() };
    let server = Running::with(1, limits);
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello.txt").body, b"hello\n");
    assert!(idle.rest().is_empty());
}

#[test]
fn a_client_that_takes_nothing_is_dropped() {
    let long = Duration::from_secs(600);
    let limits = Limits { head_time: long, idle_time: long, stall_time: Duration::from_millis(60), ..impatient() };
    let server = Running::with(1, limits);
    fs::write(server.root().join("big"), vec![b'x'; 64 << 20]).unwrap();
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    // Takes nothing until the server is seen to have given up: its end of the connection is gone, so that sending to
    // it comes back as an error.
    while client.stream.write_all(b"x").is_ok() {
        thread::yield_now();
    }
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
}

#[test]
fn thousands_of_idle_connections_do_not_stop_one_more() {
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
