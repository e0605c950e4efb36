//! Tests of the hostile server itself: a test with a wrong server would prove nothing.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::support::hostile::Hostile;

/// All bytes that the server sends in response to one request, and the error with which the connection ends.
fn exchange(server: &Hostile, method: &str, path: &str) -> (String, Option<ErrorKind>) {
    let mut stream = connect(server);
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    if path != "/rst" {
        // The server then closes persistent connections, too.
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received).err().map(|error| error.kind());
    (String::from_utf8_lossy(&received).into_owned(), end)
}

fn connect(server: &Hostile) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    // The timeout only ends a test that would otherwise hang.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn the_hostile_server_can_send_valid_responses() {
    let server = Hostile::start();
    let get = |path| {
        let (response, end) = exchange(&server, "GET", path);
        assert_eq!(end, None, "{path}");
        response
    };
    assert_eq!(body(&get("/ok/1000")).len(), 1000);
    assert_eq!(body(&get("/ok/0")).len(), 0);
    assert_eq!(body(&get("/close-delimited/70000")).len(), 70_000);
    let chunks =
        format!("3E8;extension=\"a\"\r\n{}\r\n1F4;extension=\"a\"\r\n{}\r\n0\r\n\r\n", x_bytes(1000), x_bytes(500));
    assert_eq!(body(&get("/chunked/1500")), chunks);
    assert!(get("/trailers").ends_with("\r\n0\r\nChecksum: 1\r\nServer-Timing: a;dur=1\r\n\r\n"));
    assert!(get("/http10").starts_with("HTTP/1.0 200 OK\r\n"));
    assert!(get("/continue").starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 "));
    assert!(get("/switching").starts_with("HTTP/1.1 101 "));
    assert_eq!(body(&get("/204")), "");
    assert_eq!(body(&get("/304")), "");
    assert!(get("/status/503").starts_with("HTTP/1.1 503 "));
    assert!(get("/nothing").starts_with("HTTP/1.1 404 "));
    assert!(get("no-slash").starts_with("HTTP/1.1 404 "));
    assert_eq!(body(&exchange(&server, "HEAD", "/ok/1000").0), "");
    assert_eq!(body(&exchange(&server, "HEAD", "/chunked/1000").0), "");
    assert_eq!((server.connections(), server.requests()), (15, 15));
    assert_eq!(server.url("/a"), format!("http://{}/a", server.address()));
}

/// The behaviour does not depend on the target, which may be in absolute form.
#[test]
fn the_hostile_server_repeats_one_behaviour_for_every_request() {
    let server = Hostile::always("/status/503");
    for path in ["/ok/1000", "/", "http://elsewhere.example/page"] {
        assert!(exchange(&server, "GET", path).0.starts_with("HTTP/1.1 503 "), "{path}");
    }
}

#[test]
fn the_hostile_server_sends_broken_responses() {
    let server = Hostile::start();
    let get = |path| exchange(&server, "GET", path);
    assert_eq!(body(&get("/truncated").0), x_bytes(500));
    assert_eq!(get("/early-close"), (String::new(), None));
    let (half, end) = get("/rst");
    assert_eq!((body(&half), end), (x_bytes(500).as_str(), Some(ErrorKind::ConnectionReset)));
    assert!(!get("/garbage").0.starts_with("HTTP/"));
    let huge = get("/huge-headers").0;
    assert!(huge.len() > 1_000_000 && body(&huge) == x_bytes(5));
    assert_eq!(get("/conflicting-length").0.matches("Content-Length").count(), 2);
    assert!(get("/bad-chunk").0.contains("\r\nzz\r\n"));
    assert!(body(&get("/extra-bytes").0).len() > 5);
}

#[test]
fn the_hostile_server_sends_slow_responses() {
    let server = Hostile::start();
    assert_eq!(body(&exchange(&server, "GET", "/slow").0), x_bytes(30));
    assert_eq!(body(&exchange(&server, "GET", "/trickle-head").0), x_bytes(5));
}

#[test]
fn the_hostile_server_supports_keep_alive_and_pipelining() {
    let server = Hostile::start();
    let mut stream = connect(&server);
    let requests =
        "POST /ok/3 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET /ok/7 HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(requests.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    assert_eq!(received.matches("HTTP/1.1 200 OK").count(), 2);
    assert!(received.ends_with(&x_bytes(7)));
    assert_eq!((server.connections(), server.requests()), (1, 2));
}

#[test]
fn endless_responses_of_the_hostile_server_end_when_it_stops() {
    let server = Hostile::start();
    let mut streams: Vec<_> = ["/endless-head", "/endless-body", "/stall", "/silent", "/slow", "/trickle-head"]
        .into_iter()
        .map(|path| {
            let mut stream = connect(&server);
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    for endless in &mut streams[..2] {
        // Far more bytes than the socket buffers hold.
        std::io::copy(&mut endless.take(50_000_000), &mut std::io::sink()).unwrap();
    }
    let mut half = vec![0; "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".len() + 500];
    streams[2].read_exact(&mut half).unwrap();
    for waiting in &mut streams[2..4] {
        waiting.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(waiting.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        waiting.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    drop(server);
    for stream in &mut streams {
        // FIN or RST, not a timeout.
        let end = std::io::copy(stream, &mut std::io::sink());
        assert!(end.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::ConnectionReset), "{end:?}");
    }
}

fn x_bytes(count: usize) -> String {
    "x".repeat(count)
}
