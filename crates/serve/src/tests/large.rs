//! Files that are sent from the page cache, to clients that read fast, slowly, or not to the end.

use super::*;

use std::fs::FileTimes;
use std::time::UNIX_EPOCH;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;

/// Content without a repetition within it.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// A server with a file `big`, and a client that has read 24 MiB of it without a pause: its limit of unsent bytes is
/// raised.
fn with_fast_client(stall_time: Duration) -> (Running, Client) {
    let server = Running::with(1, Limits { stall_time, ..Limits::default() });
    fs::write(server.root().join("big"), vec![b'x'; BIG]).unwrap();
    let mut client = server.connect();
    // A full buffer of the client reports free space in steps of a sixteenth of its size.
    setsockopt(&client.stream, RcvBuf, &(256 << 10)).unwrap();
    client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    while client.read.len() < 24 << 20 {
        client.more();
    }
    (server, client)
}

#[test]
fn every_form_of_a_large_response_has_the_right_bytes() {
    let server = Running::start();
    let mut client = server.connect();
    for length in [16 << 10, (16 << 10) + 1, 100 << 10, 1 << 20, 10 << 20] {
        let (bytes, packed) = (content(length), content(length / 2));
        let set = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777));
        for (name, bytes) in [(format!("{length}.txt"), &bytes), (format!("{length}.txt.gz"), &packed)] {
            let path = server.root().join(name);
            fs::write(&path, bytes).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_times(set).unwrap();
        }
        let mut ask = |method, fields: &str| ask(&mut client, method, length, fields);
        for _ in 0..3 {
            assert!(ask("GET", "").body == bytes, "{length}");
            let head = ask("HEAD", "");
            assert_eq!(head.field("Content-Length"), Some(&*length.to_string()));
            let part = ask("GET", &format!("Range: bytes=1000-{}\r\n", length - 1000));
            assert_eq!(part.status(), "206 Partial Content");
            assert!(part.body == bytes[1000..=length - 1000], "{length}");
            let end = ask("GET", "Range: bytes=-5000\r\n");
            assert!(end.body == bytes[length - 5000..], "{length}");
            let parts = ask("GET", &format!("Range: bytes=0-4999,{}-\r\n", length - 5000)).body;
            for range in [0..5000, length - 5000..length] {
                assert!(parts.windows(5000).any(|window| *window == bytes[range.clone()]), "{length}: {range:?}");
            }
            assert!(ask("GET", "Accept-Encoding: gzip\r\n").body == packed, "{length}");
            let unchanged = ask("GET", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n");
            assert_eq!(unchanged.status(), "304 Not Modified");
        }
        // Responses to pipelined requests come one after the other.
        client.send(format!("GET /{length}.txt HTTP/1.1\r\nHost: x\r\n\r\n").repeat(6).as_bytes());
        for _ in 0..6 {
            assert!(client.response(true).body == bytes, "{length}");
        }
    }
}

/// One request for the file of this length, with further field lines.
fn ask(client: &mut Client, method: &str, length: usize, fields: &str) -> Response {
    client.send(format!("{method} /{length}.txt HTTP/1.1\r\nHost: x\r\n{fields}\r\n").as_bytes());
    client.response(method != "HEAD" && !fields.starts_with("If-Modified-Since"))
}

/// The kernel's buffer is large for a fast client: it stays full for much longer than the timeout.
#[test]
#[allow(clippy::disallowed_methods, reason = "a slow client")]
fn a_fast_client_that_becomes_slow_gets_the_whole_file() {
    let (server, mut client) = with_fast_client(Duration::from_millis(500));
    let begun = client.read.len();
    // Not a wait for an event: the client is slow.
    while client.read.len() < begun + (3 << 20) {
        thread::sleep(Duration::from_millis(40));
        client.more();
    }
    assert_eq!(client.response(true).body.len(), BIG);
    assert_eq!(client.get("/hello.txt").body, b"hello\n");
    drop(server);
}

#[test]
fn a_fast_client_that_stops_reading_is_reset() {
    let (_server, mut client) = with_fast_client(Duration::from_millis(60));
    while client.stream.write_all(b"x").is_ok() {
        thread::yield_now();
    }
    let _ = client.stream.read_to_end(&mut client.read);
    assert!(client.read.len() < BIG);
}

#[test]
fn a_file_truncated_while_a_fast_client_reads_it_breaks_the_response_off() {
    let (server, mut client) = with_fast_client(Duration::from_secs(60));
    fs::OpenOptions::new().write(true).open(server.root().join("big")).unwrap().set_len(1000).unwrap();
    let _ = client.stream.read_to_end(&mut client.read);
    assert!(client.read.len() < BIG);
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
}

#[test]
fn a_file_arrives_after_hundreds_of_clients_left_in_the_middle_of_it() {
    let server = Running::start();
    let bytes = content(4 << 20);
    fs::write(server.root().join("big"), &bytes).unwrap();
    for leaver in 0..300 {
        let mut client = server.connect();
        client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
        while client.read.len() < (leaver % 4) << 20 {
            client.more();
        }
    }
    let mut client = server.connect();
    for _ in 0..3 {
        assert!(client.get("/big").body == bytes);
    }
}

/// More than the socket buffers of both ends besides what is read first.
const BIG: usize = 96 << 20;
