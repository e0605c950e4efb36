//! Dynamic responses end to end: client, engine, connection, relay, upstream and back.

use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use super::*;
use crate::{DynamicLimits, DynamicSpec};

/// A server with `/app` at an upstream that runs `work` for each connection. The upstream's threads end with their
/// connections, and those with the server.
fn serving(work: impl Fn(BufReader<TcpStream>) + Send + Sync + 'static) -> Running {
    serving_below("/app", DynamicLimits::default(), work)
}

fn serving_below(
    prefix: &str,
    limits: DynamicLimits,
    work: impl Fn(BufReader<TcpStream>) + Send + Sync + 'static,
) -> Running {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let route = format!("{prefix}=http://{}", upstream.local_addr().unwrap()).parse().unwrap();
    let work = Arc::new(work);
    thread::spawn(move || {
        for stream in upstream.incoming().map_while(Result::ok) {
            let work = Arc::clone(&work);
            thread::spawn(move || work(BufReader::new(stream)));
        }
    });
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("hello.txt"), "hello\n").unwrap();
    fs::create_dir(directory.path().join("app")).unwrap();
    fs::write(directory.path().join("app/source.php"), "<?php secret").unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let dynamic = Some(DynamicSpec { limits, ..DynamicSpec::new(vec![route]) });
    let spec = ServeSpec { engine: ENGINE, dynamic, ..ServeSpec::new(directory.path(), listen) };
    let stop = Arc::new(EventFd::new().unwrap());
    let (address_sender, address_receiver) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || serve(&spec, stopped.as_fd(), |bound| address_sender.send(bound).unwrap()));
    Running { address: address_receiver.recv().unwrap(), directory, stop, thread: Some(thread) }
}

fn head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(head)
}

/// Responds to each request with its path and the length of its body.
fn mirror(mut stream: BufReader<TcpStream>) {
    while let Some(head) = head(&mut stream) {
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        let _ = stream.read_exact(&mut body);
        let text = format!("{} {length}", head.split(' ').nth(1).unwrap());
        let response_text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        let _ = stream.get_mut().write_all(response_text.as_bytes());
    }
}

#[test]
fn pipelined_static_and_dynamic_responses_keep_their_order() {
    let server = serving(mirror);
    let mut client = server.connect();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let requests = ["/app/1", "/hello.txt", "/app/2", "/app/3", "/hello.txt", "/missing"].map(get).concat();
    client.send(requests.as_bytes());
    client.send(
        b"POST /app/4 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    let texts: Vec<String> = (0..8).map(|_| String::from_utf8(client.response(true).body).unwrap()).collect();
    assert_eq!(texts[..5], ["/app/1 0", "hello\n", "/app/2 0", "/app/3 0", "hello\n"]);
    assert_eq!(texts[6..], ["/app/4 5", "hello\n"]);
}

#[test]
fn unusual_path_spellings_reach_the_program_and_never_its_source_file() {
    let server = serving(mirror);
    for path in [
        "/app/source.php",
        "/%61pp/source.php",
        "//app/source.php",
        "/app//source.php",
        "/a%70p/./source.php",
        "/x/../app/source.php",
    ] {
        let got = server.ask(&format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
        assert!(!got.contains("secret"), "{path}: {got}");
        let dotted = path.contains("/.");
        assert!(got.starts_with(if dotted { "HTTP/1.1 400" } else { "HTTP/1.1 200" }), "{path}: {got}");
    }
}

#[test]
fn a_large_body_passes_the_relay_in_both_directions() {
    let server = serving(|mut stream| {
        while let Some(head) = head(&mut stream) {
            let length: usize =
                head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            let _ = stream.read_exact(&mut body);
            body.reverse();
            let response_text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n");
            let _ = stream.get_mut().write_all(&[response_text.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat());
        }
    });
    let body: Vec<u8> = (0..900_000u32).map(|n| (n % 251) as u8).collect();
    let mut client = server.connect();
    let mut sender = client.stream.try_clone().unwrap();
    let request = format!("POST /app HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    let sent = [request.as_bytes(), &body].concat();
    let writer = thread::spawn(move || sender.write_all(&sent).unwrap());
    let rest = client.rest();
    writer.join().unwrap();
    // HTTP/1.0 has no chunks: the response ends with the connection.
    let at = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(!String::from_utf8_lossy(&rest[..at]).contains("chunked"));
    assert!(rest[at..].iter().rev().eq(body.iter()));
    // The same for HTTP/1.1, in chunks.
    let mut client = server.connect();
    client.send(b"POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
    let text = String::from_utf8(client.rest()).unwrap();
    assert!(
        text.contains("Transfer-Encoding: chunked\r\n") && text.ends_with("\r\n\r\n3\r\ncba\r\n0\r\n\r\n"),
        "{text}"
    );
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let server = serving(mirror);
    let mut client = server.connect();
    client.send(b"POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response(false).status(), "100 Continue");
    client.send(b"abc");
    assert_eq!(client.response(true).body, b"/app 3");
    assert_eq!(client.get("/hello.txt").body, b"hello\n");
}

#[test]
fn max_forwards_0_is_answered_by_the_server_itself() {
    let server = serving(mirror);
    let mut client = server.connect();
    let ask = |method: &str, hops: &str| format!("{method} /app/x HTTP/1.1\r\nHost: h\r\nMax-Forwards: {hops}\r\n\r\n");
    client.send(ask("OPTIONS", "0").as_bytes());
    let here = client.response(false);
    assert_eq!((here.status(), here.field("Allow")), ("204 No Content", Some("GET, HEAD, OPTIONS")));
    client.send(ask("TRACE", "00").as_bytes());
    assert_eq!(client.response(true).status(), "405 Method Not Allowed");
    for (method, hops) in [("OPTIONS", "1"), ("GET", "0"), ("OPTIONS", "x")] {
        client.send(ask(method, hops).as_bytes());
        assert_eq!(client.response(true).body, b"/app/x 0", "{method} {hops}");
    }
}

#[test]
fn http_1_2_is_forwarded_to_the_program_as_http_1_1() {
    let server = serving(mirror);
    let mut client = server.connect();
    client.send(b"GET /app/x HTTP/1.9\r\nHost: h\r\n\r\n");
    assert_eq!(client.response(true).body, b"/app/x 0");
    assert_eq!(client.get("/app/y").body, b"/app/y 0");
}

#[test]
fn a_slow_request_body_occupies_no_upstream_slot() {
    let server = serving_below("/app", DynamicLimits { concurrency: 1, queue: 0, ..DynamicLimits::default() }, mirror);
    let (mut slow, mut other) = (server.connect(), server.connect());
    slow.send(b"POST /app/slow HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    // The relay has started the exchange.
    assert_eq!(slow.response(false).status(), "100 Continue");
    slow.send(b"12");
    for _ in 0..20 {
        assert_eq!(other.get("/app/quick").body, b"/app/quick 0");
    }
    slow.send(b"345");
    assert_eq!(slow.response(true).body, b"/app/slow 5");
    assert_eq!(slow.get("/hello.txt").body, b"hello\n");
}

#[test]
fn an_upstream_response_that_breaks_off_resets_the_connection() {
    let server = serving(|mut stream| {
        let chunked = head(&mut stream).is_some_and(|head| head.contains("chunked"));
        let framing = if chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 10" };
        let body = if chunked { "4\r\nhalf\r\n" } else { "half" };
        let _ = stream.get_mut().write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}").as_bytes());
        let _ = stream.get_ref().shutdown(Shutdown::Both);
    });
    for (path, whole) in [("/app/length", "half"), ("/app/chunked", "0\r\n\r\n")] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        // A reset or close, but never like a complete response.
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        let text = String::from_utf8_lossy(&rest);
        assert!(path.contains("length") == text.contains("Content-Length: 10") || text.is_empty(), "{text}");
        assert!(path.contains("length") || !text.ends_with(whole), "{text}");
    }
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
}

#[test]
fn clients_that_stall_or_disconnect_do_not_delay_others() {
    const LENGTH: usize = 8 << 20;
    let server = serving(|mut stream| {
        while head(&mut stream).is_some() {
            let response_text = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            let _ = stream.get_mut().write_all(&[response_text.as_bytes(), &vec![b'x'; LENGTH]].concat());
        }
    });
    let get = b"GET /app HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut slow: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    let mut gone: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    slow.iter_mut().chain(&mut gone).for_each(|client| client.send(get));
    for client in &mut gone {
        client.more();
    }
    drop(gone);
    let mut other = server.connect();
    for _ in 0..10 {
        assert_eq!(other.get("/hello.txt").body, b"hello\n");
    }
    for client in &mut slow {
        assert_eq!(client.response(true).body.len(), LENGTH);
    }
    assert_eq!(other.get("/app").body.len(), LENGTH);
}

#[test]
fn an_upstream_that_refuses_connections_gives_502() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("hello.txt"), "hello\n").unwrap();
    let unused_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dynamic = Some(DynamicSpec::new(vec![format!("/app=http://{unused_address}").parse().unwrap()]));
    let listen = "127.0.0.1:0".parse().unwrap();
    let spec = ServeSpec { engine: ENGINE, dynamic, ..ServeSpec::new(directory.path(), listen) };
    let stop = Arc::new(EventFd::new().unwrap());
    let (address_sender, address_receiver) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || serve(&spec, stopped.as_fd(), |bound| address_sender.send(bound).unwrap()));
    let server = Running { address: address_receiver.recv().unwrap(), directory, stop, thread: Some(thread) };
    let mut client = server.connect();
    assert_eq!(client.get("/app").status(), "502 Bad Gateway");
    assert_eq!(client.get("/hello.txt").body, b"hello\n");
}

#[test]
fn a_full_queue_gives_503_and_keeps_the_connection_open() {
    let ((arrive, arrived), (release, held)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let held = std::sync::Mutex::new(held);
    let limits = DynamicLimits { concurrency: 1, queue: 0, ..DynamicLimits::default() };
    let server = serving_below("/app", limits, move |mut stream| {
        while let Some(head) = head(&mut stream) {
            if head.starts_with("GET /app/slow ") {
                arrive.send(()).unwrap();
                held.lock().unwrap().recv().unwrap();
            }
            let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
        }
    });
    let mut first = server.connect();
    first.send(b"GET /app/slow HTTP/1.1\r\nHost: h\r\n\r\n");
    arrived.recv().unwrap();
    let mut other = server.connect();
    for _ in 0..100 {
        let refused = other.get("/app/quick");
        assert_eq!(refused.status(), "503 Service Unavailable");
        assert_eq!((refused.field("Retry-After"), &*refused.body), (Some("1"), &b"503 Service Unavailable\n"[..]));
        assert!(refused.field("Date").is_some() && refused.field("Connection").is_none());
    }
    // A body is discarded, and HEAD has none.
    other.send(b"POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345HEAD /app HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(other.response(true).status(), "503 Service Unavailable");
    assert_eq!(other.response(false).field("Content-Length"), Some("24"));
    assert_eq!(other.get("/hello.txt").body, b"hello\n");
    let figures = String::from_utf8(other.get("/-/status").body).unwrap();
    assert!(figures.contains("\"refused_full\": 102,"), "{figures}");
    release.send(()).unwrap();
    assert_eq!(first.response(true).body, b"yes");
    while other.get("/app/quick").status() != "200 OK" {}
}

#[test]
fn a_route_for_every_path_does_not_cover_the_status_path() {
    let server = serving_below("/", DynamicLimits::default(), mirror);
    let mut client = server.connect();
    assert!(client.get("/-/status").body.starts_with(b"{"));
    assert_eq!(client.get("/-/other").body, b"/-/other 0");
    // A forwarded request gets the program's response, as remote clients do.
    client.send(b"GET /-/status HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
    assert_eq!(client.response(true).body, b"/-/status 0");
}
