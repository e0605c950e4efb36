//! Tests of MAX over both engines with raw bytes: the same input gives the same responses.
//!
//! No test waits for time to pass: each ends when the expected bytes have arrived.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use serve::{Engine, MaxSpec, serve_max};

/// Runs `client` against a server of each engine.
fn on_both(body_bytes: usize, threads: usize, client: impl Fn(SocketAddr)) {
    for engine in [Engine::Uring, Engine::Epoll] {
        let spec =
            MaxSpec { shared: false, listen: "127.0.0.1:0".parse().unwrap(), threads, body_bytes, engine, blind: None };
        let stop = EventFd::new().unwrap();
        thread::scope(|scope| {
            let (started_sender, started_receiver) = mpsc::channel();
            let server = scope.spawn(|| {
                serve_max(&spec, stop.as_fd(), move |bound, engine| started_sender.send((bound, engine)).unwrap())
            });
            // Ends the server also when the client's assertions fail.
            let _stop = Stop(&stop);
            let (address, used) = started_receiver.recv().unwrap();
            assert_eq!(used, engine);
            client(address);
            drop(_stop);
            server.join().unwrap().unwrap();
        });
    }
}

struct Stop<'a>(&'a EventFd);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.write(1).unwrap();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The body lengths of `count` complete responses.
fn answers(stream: &mut TcpStream, count: usize, has_body: bool) -> Vec<usize> {
    let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
    while lengths.len() < count {
        let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            more(stream, &mut bytes);
            continue;
        };
        let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let length = if has_body { length.parse().unwrap() } else { 0 };
        while bytes.len() < head + 4 + length {
            more(stream, &mut bytes);
        }
        assert!(bytes[head + 4..head + 4 + length].iter().all(|&byte| byte == b'x'), "responses are mixed up");
        bytes.drain(..head + 4 + length);
        lengths.push(length);
    }
    assert!(bytes.is_empty(), "bytes beyond the expected responses: {:?}", String::from_utf8_lossy(&bytes));
    lengths
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 65_536];
    let got = stream.read(&mut buffer).unwrap();
    assert_ne!(got, 0, "the server closed after {:?}", String::from_utf8_lossy(bytes));
    bytes.extend_from_slice(&buffer[..got]);
}

fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn keep_alive_and_close_follow_the_request() {
    on_both(3000, 1, |address| {
        let mut persistent = connect(address);
        for _ in 0..200 {
            persistent.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            assert_eq!(answers(&mut persistent, 1, true), [3000]);
        }
        persistent.write_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(answers(&mut persistent, 1, false), [0]);
        persistent.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let last = rest(persistent);
        assert!(last.contains("\r\nConnection: close\r\n") && last.ends_with("xxx"), "{last}");
        let mut old = connect(address);
        old.write_all(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n").unwrap();
        let both = rest(old);
        assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2);
        assert!(both.contains("Connection: keep-alive") && both.contains("Connection: close"), "{both}");
    });
}

#[test]
fn one_connection_per_request_is_served() {
    on_both(0, 2, |address| {
        for _ in 0..300 {
            let mut one = connect(address);
            one.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            assert!(rest(one).starts_with("HTTP/1.1 200 OK\r\n"));
        }
    });
}

#[test]
fn fragmented_and_pipelined_requests_get_one_response_each() {
    on_both(10, 1, |address| {
        let mut client = connect(address);
        for byte in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" {
            client.write_all(&[*byte]).unwrap();
        }
        assert_eq!(answers(&mut client, 1, true), [10]);
        let body = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nGET / HTTP/1.1\r\n\r\nab";
        client.write_all(&body.as_bytes().repeat(500)).unwrap();
        assert_eq!(answers(&mut client, 500, true).len(), 500);
    });
}

/// Pipelined responses far larger than the socket buffers, to a client that reads only after sending all requests.
#[test]
fn large_responses_to_a_slow_client_stay_in_order() {
    const BODY: usize = 3 << 20;
    on_both(BODY, 1, |address| {
        let mut client = connect(address);
        for _ in 0..8 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        }
        // Another client is served meanwhile.
        let mut other = connect(address);
        other.write_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(answers(&mut other, 1, false), [0]);
        assert_eq!(answers(&mut client, 8, true), [BODY; 8]);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(rest(client).matches('x').count(), BODY + "yamabiko-max".matches('x').count());
    });
}

/// Bodies in memory and in a file, in turn with responses without a body.
#[test]
fn heads_and_bodies_alternate_at_any_size() {
    for body in [1, 16 << 10, (16 << 10) + 1, 300_000, 5 << 20] {
        on_both(body, 1, |address| {
            let mut client = connect(address);
            for _ in 0..4 {
                let both = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
                client.write_all(both.as_bytes()).unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    client.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                assert_eq!(answers(&mut client, 1, true), [body]);
            }
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n").unwrap();
            let text = rest(client);
            assert!(text.contains("xHTTP/1.1 400 Bad Request"), "{} bytes", text.len());
        });
    }
}

#[test]
fn malformed_requests_are_refused_and_disconnects_are_harmless() {
    on_both(1 << 20, 1, |address| {
        let mut wrong = connect(address);
        wrong.write_all(b"nonsense\r\n\r\n").unwrap();
        assert!(rest(wrong).starts_with("HTTP/1.1 400 Bad Request\r\n"));
        for _ in 0..50 {
            let mut leaver = connect(address);
            leaver.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHo").unwrap();
            leaver.shutdown(Shutdown::Both).unwrap();
        }
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(answers(&mut client, 1, true), [1 << 20]);
    });
}

/// Pipelined requests so long that each is received separately: the second arrives before the kernel has accepted the
/// complete response to the first.
#[test]
fn long_pipelined_requests_get_responses_in_order() {
    const BODY: usize = 3 << 20;
    on_both(BODY, 1, |address| {
        let mut client = connect(address);
        let request = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(2000));
        for count in [2, 5, 2] {
            client.write_all(request.repeat(count).as_bytes()).unwrap();
            assert_eq!(answers(&mut client, count, true), vec![BODY; count]);
        }
    });
}

#[test]
fn a_response_is_sent_after_the_complete_request() {
    on_both(5, 1, |address| {
        let mut client = connect(address);
        client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(client.read(&mut [0; 100]).is_err(), "the request is incomplete");
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.write_all(b"b").unwrap();
        assert_eq!(answers(&mut client, 1, true), [5]);
    });
}
