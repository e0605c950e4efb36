//! The result cache between real clients and a counting origin.
#![allow(clippy::disallowed_methods, reason = "tests wait for what other threads do")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::eventfd::EventFd;

use super::super::ENGINE;
use super::{Client, Response};
use crate::{
    CacheSpec, DynamicSpec, Figures, Log, LogFormat, LogSpec, LogTarget, Outcome, Reason, ServeError, ServeSpec, serve,
};

/// Responds with a function of the request's head and number, and stores the heads.
struct Origin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    fn new(response_text: impl Fn(&str, usize) -> String + Clone + Send + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), response_text)
    }

    fn at(address: SocketAddr, response_text: impl Fn(&str, usize) -> String + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let connections = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (stored_heads, stopping, open) = (Arc::clone(&heads), Arc::clone(&stop), Arc::clone(&connections));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                open.lock().unwrap().push(stream.try_clone().unwrap());
                let (response_text, stored_heads) = (response_text.clone(), Arc::clone(&stored_heads));
                thread::spawn(move || serve_connection(stream, &response_text, &stored_heads));
            }
        });
        Origin { address, heads, connections, stop, thread: Some(thread) }
    }

    fn fetches(&self) -> usize {
        self.heads.lock().unwrap().len()
    }

    fn head(&self, number: usize) -> String {
        self.heads.lock().unwrap()[number].to_ascii_lowercase()
    }
}

/// A response that begins with `!` is sent raw, and then the connection closes.
fn serve_connection(mut stream: TcpStream, response_text: &impl Fn(&str, usize) -> String, heads: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        let _ = reader.read_exact(&mut body);
        let number = {
            let mut heads = heads.lock().unwrap();
            heads.push(head.clone());
            heads.len() - 1
        };
        let response = response_text(&head, number);
        let (bytes, ends) = response.strip_prefix('!').map_or((&*response, false), |rest| (rest, true));
        // The relay may have disconnected.
        let _ = stream.write_all(bytes.as_bytes());
        if ends {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
        for connection in self.connections.lock().unwrap().iter() {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A 200 response with these field lines and this body.
fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Blocks responses until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A server with everything below `/app` at the origin, and a cache between.
struct Site {
    address: SocketAddr,
    figures: Figures,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    _directory: tempfile::TempDir,
}

impl Site {
    fn before(origin: &Origin) -> Self {
        Self::with(origin.address, CacheSpec::default(), None)
    }

    fn with(origin: SocketAddr, cache: CacheSpec, log: Option<Log>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("hello.txt"), "hello\n").unwrap();
        let route = format!("/app=http://{origin}").parse().unwrap();
        let mut dynamic = DynamicSpec { cache: Some(cache), ..DynamicSpec::new(vec![route]) };
        dynamic.limits.concurrency = 200;
        let figures = Figures::new();
        let listen = "127.0.0.1:0".parse().unwrap();
        let spec = ServeSpec {
            engine: ENGINE,
            dynamic: Some(dynamic),
            figures: figures.clone(),
            log,
            ..ServeSpec::new(directory.path(), listen)
        };
        let stop = Arc::new(EventFd::new().unwrap());
        let (address_sender, address_receiver) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&spec, stopped.as_fd(), |bound| address_sender.send(bound).unwrap()));
        Site { address: address_receiver.recv().unwrap(), figures, stop, thread: Some(thread), _directory: directory }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, read: Vec::new() }
    }

    fn ask(&self, request: &str) -> Response {
        let mut client = self.client();
        client.send(request.as_bytes());
        client.response(!request.starts_with("HEAD"))
    }

    fn get(&self, path: &str, fields: &str) -> Response {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"))
    }

    /// Waits until all responses are recorded, which may be slightly after the client has them.
    fn settle(&self) {
        wait(|| self.figures.total().in_flight() == 0);
    }

    /// Number of responses with this finding; none is in flight.
    fn count(&self, outcome: Outcome, reason: Reason) -> u64 {
        self.settle();
        self.figures.total().findings[outcome.index()][reason.index()]
    }

    /// Waits until that many requests are in flight.
    fn wait_in_flight(&self, requests: u64) {
        wait(|| self.figures.total().in_flight() == requests);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.write(1).unwrap();
        let outcome = self.thread.take().unwrap().join();
        if !thread::panicking() {
            outcome.unwrap().unwrap();
        }
    }
}

/// Waits for a condition.
fn wait(until: impl Fn() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < Duration::from_secs(20), "the condition was not met within 20 s");
        thread::sleep(Duration::from_millis(2));
    }
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

fn status(response: &Response) -> &str {
    response.field("Cache-Status").unwrap()
}

#[test]
fn concurrent_requests_for_one_key_make_one_upstream_request() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |_, number| {
        held.pass();
        ok("Cache-Control: max-age=60\r\n", &format!("answer {number} {}", "x".repeat(100_000)))
    });
    let site = Site::before(&origin);
    let mut clients: Vec<Client> = (0..100).map(|_| site.client()).collect();
    for client in &mut clients {
        client.send(b"GET /app/page HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    site.wait_in_flight(100);
    gate.open();
    let mut collapsed = 0;
    for client in &mut clients {
        let response = client.response(true);
        assert!(text(&response).starts_with("answer 0 xxx") && response.body.len() == 100_009);
        collapsed += u64::from(status(&response).contains("; collapsed"));
    }
    assert_eq!((origin.fetches(), collapsed), (1, 99));
    assert_eq!(site.count(Outcome::Collapsed, Reason::UnderWay), 99);
    assert_eq!(site.count(Outcome::Miss, Reason::Absent), 1);
    let hit = site.get("/app/page", "");
    assert!(status(&hit).starts_with("yamabiko; hit; ttl="), "{}", hit.head);
    assert!(hit.field("Age").is_some() && hit.field("Date").is_some());
    assert_eq!((origin.fetches(), site.count(Outcome::Hit, Reason::Fresh)), (1, 1));
}

#[test]
fn a_private_response_is_not_reused() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |head, _| {
        held.pass();
        let cookie =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("cookie: ").map(str::to_owned));
        ok("Cache-Control: private, max-age=60\r\n", &format!("for {}", cookie.unwrap()))
    });
    let site = Site::before(&origin);
    let mut clients: Vec<Client> = (0..20).map(|_| site.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /app/me HTTP/1.1\r\nHost: x\r\nCookie: c{number}\r\n\r\n").as_bytes());
    }
    site.wait_in_flight(20);
    gate.open();
    for (number, client) in clients.iter_mut().enumerate() {
        let response = client.response(true);
        assert_eq!(text(&response), format!("for c{number}"));
        assert!(status(&response).ends_with("detail=private"), "{}", response.head);
    }
    assert_eq!(origin.fetches(), 20);
}

#[test]
fn a_stale_response_is_served_while_it_is_revalidated() {
    // Five seconds old on arrival, so stale immediately, for a while.
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |head, number| match number {
        0 => ok("Cache-Control: max-age=5, stale-while-revalidate=900\r\nAge: 6\r\nETag: \"one\"\r\n", "one"),
        _ => {
            assert!(head.to_ascii_lowercase().contains("if-none-match: \"one\"\r\n"), "{head}");
            held.pass();
            "HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nCache-Control: max-age=600\r\n\r\n".to_owned()
        }
    });
    let site = Site::before(&origin);
    assert_eq!(text(&site.get("/app", "")), "one");
    for _ in 0..10 {
        let stale = site.get("/app", "");
        assert_eq!(text(&stale), "one");
        assert!(status(&stale).contains("detail=while_revalidating"), "{}", stale.head);
    }
    wait(|| origin.fetches() == 2);
    gate.open();
    wait(|| status(&site.get("/app", "")).contains("detail=fresh"));
    assert_eq!(origin.fetches(), 2);
    assert!(site.count(Outcome::Stale, Reason::WhileRevalidating) >= 10);
}

#[test]
fn no_cache_responses_are_validated_before_every_use() {
    let origin = Origin::new(|head, number| {
        let fields = "Cache-Control: no-cache\r\nETag: \"v\"\r\n";
        match head.to_ascii_lowercase().contains("if-none-match: \"v\"") {
            true => format!("HTTP/1.1 304 Not Modified\r\n{fields}X-Number: {number}\r\n\r\n"),
            false => ok(fields, "validated"),
        }
    });
    let site = Site::before(&origin);
    assert_eq!(text(&site.get("/app", "")), "validated");
    let again = site.get("/app", "");
    assert_eq!((text(&again), again.field("X-Number")), ("validated", Some("1")));
    assert!(status(&again).starts_with("yamabiko; fwd=stale; fwd-status=304"), "{}", again.head);
    // A client with the current response gets 304, after revalidation.
    let has = site.ask("HEAD /app HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(status(&has).contains("detail=method"), "{}", has.head);
    assert_eq!(site.count(Outcome::Revalidated, Reason::OriginDemands), 1);
}

#[test]
fn an_unsafe_request_invalidates_the_stored_response() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |head, number| {
        if head.starts_with("POST") {
            return "HTTP/1.1 303 See Other\r\nLocation: /app/list\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        if head.starts_with("GET /app/slow") && number < 3 {
            held.pass();
        }
        ok("Cache-Control: max-age=600\r\n", &number.to_string())
    });
    let site = Site::before(&origin);
    let post = |path: &str| site.ask(&format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na=b"));
    assert_eq!(text(&site.get("/app/list", "")), "0");
    assert_eq!(text(&site.get("/app/list", "")), "0");
    // In flight when its target is changed: served to its client, not to later ones.
    let mut slow = site.client();
    slow.send(b"GET /app/slow HTTP/1.1\r\nHost: x\r\n\r\n");
    wait(|| origin.fetches() == 2);
    assert_eq!(post("/app/slow").status(), "303 See Other");
    assert_eq!(text(&site.get("/app/list", "")), "3", "the URL of Location is invalidated");
    assert_eq!(text(&site.get("/app/slow", "")), "4", "no request waits for an invalidated fetch");
    gate.open();
    assert_eq!(text(&slow.response(true)), "1");
    assert_eq!(text(&site.get("/app/slow", "")), "4", "an invalidated response is not stored");
}

#[test]
fn an_unsafe_request_of_a_disconnected_client_invalidates_too() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |head, number| {
        if head.starts_with("POST") {
            held.pass();
        }
        ok("Cache-Control: max-age=600\r\n", &number.to_string())
    });
    let site = Site::before(&origin);
    assert_eq!(text(&site.get("/app", "")), "0");
    let mut leaving = site.client();
    leaving.send(b"POST /app HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na=b");
    wait(|| origin.fetches() == 2);
    leaving.stream.shutdown(std::net::Shutdown::Both).unwrap();
    site.settle();
    wait(|| text(&site.get("/app", "")) == "2");
    gate.open();
}

#[test]
fn stale_responses_cover_an_origin_failure() {
    let fields = "Cache-Control: max-age=5, stale-if-error=900\r\nAge: 6\r\n";
    let first = Origin::new(move |_, number| match number {
        0 => ok(fields, "before"),
        _ => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned(),
    });
    let address = first.address;
    let site = Site::before(&first);
    assert_eq!(text(&site.get("/app", "")), "before");
    let failing = site.get("/app", "");
    assert_eq!(text(&failing), "before");
    assert!(status(&failing).contains("fwd-status=503") && status(&failing).contains("detail=upstream_failed"));
    drop(first);
    let gone = site.get("/app", "");
    assert_eq!(text(&gone), "before");
    assert_eq!(site.get("/app/other", "").status(), "502 Bad Gateway");
    let _second = Origin::at(address, |_, _| ok("Cache-Control: max-age=600\r\n", "after"));
    assert_eq!(text(&site.get("/app", "")), "after");
    assert_eq!(text(&site.get("/app", "")), "after");
    assert_eq!(site.count(Outcome::Stale, Reason::UpstreamFailed), 2);
    assert_eq!(site.count(Outcome::Bypass, Reason::UpstreamUnavailable), 1);
}

#[test]
fn a_truncated_response_is_reset_and_not_stored() {
    let origin = Origin::new(|_, number| match number {
        0 => "!HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
        1 => "!HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
            .to_owned(),
        _ => ok("Cache-Control: max-age=60\r\n", "whole"),
    });
    let site = Site::before(&origin);
    for _ in 0..2 {
        let mut client = site.client();
        client.send(b"GET /app HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut all = Vec::new();
        // Truncated: FIN before the end, or a reset.
        let _ = client.stream.read_to_end(&mut all);
        let all = String::from_utf8(all).unwrap();
        assert!(!all.ends_with("0\r\n\r\n") && !all.contains("whole"), "{all}");
    }
    assert_eq!(text(&site.get("/app", "")), "whole");
    assert_eq!(text(&site.get("/app", "")), "whole");
    assert_eq!(origin.fetches(), 3);
}

#[test]
fn a_body_without_length_is_stored_up_to_the_size_limit() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |head, _| {
        held.pass();
        let bytes = if head.starts_with("GET /app/large") { 300_000 } else { 30_000 };
        let body = "y".repeat(bytes);
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"
        )
    });
    let cache = CacheSpec { object_bytes_max: 100_000, ..CacheSpec::default() };
    let site = Site::with(origin.address, cache, None);
    let mut clients: Vec<(Client, usize)> = Vec::new();
    for (path, bytes) in [("large", 300_000), ("small", 30_000)] {
        for _ in 0..3 {
            let mut client = site.client();
            client.send(format!("GET /app/{path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes());
            clients.push((client, bytes));
        }
    }
    site.wait_in_flight(6);
    gate.open();
    for (client, bytes) in &mut clients {
        let all = client.rest();
        let at = all.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(all.len() - at, *bytes);
        assert!(all[at..].iter().all(|&byte| byte == b'y'));
    }
    // Each large response is fetched individually, the small one once for all.
    assert_eq!(origin.fetches(), 3 + 1);
    assert!(status(&site.get("/app/small", "")).contains("; hit"));
}

#[test]
fn a_waiting_client_fetches_when_the_first_client_disconnects() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |_, number| {
        if number == 0 {
            held.pass();
        }
        ok("Cache-Control: max-age=60\r\n", &number.to_string())
    });
    let site = Site::before(&origin);
    let mut first = site.client();
    first.send(b"GET /app HTTP/1.1\r\nHost: x\r\n\r\n");
    wait(|| origin.fetches() == 1);
    let mut second = site.client();
    second.send(b"GET /app HTTP/1.1\r\nHost: x\r\n\r\n");
    site.wait_in_flight(2);
    // RFC 9112, section 9.6: a reset, so that the server detects the disconnect immediately.
    nix::sys::socket::setsockopt(
        &first.stream,
        nix::sys::socket::sockopt::Linger,
        &nix::libc::linger { l_onoff: 1, l_linger: 0 },
    )
    .unwrap();
    drop(first);
    assert_eq!(text(&second.response(true)), "1");
    gate.open();
    assert_eq!(text(&site.get("/app", "")), "1");
}

#[test]
fn variants_ranges_and_heads_are_served_from_the_store() {
    let origin = Origin::new(|head, _| {
        let lower = head.to_ascii_lowercase();
        let language = if lower.contains("accept-language: ja") { "ja" } else { "en" };
        ok("Cache-Control: max-age=600\r\nVary: Accept-Language\r\nETag: \"e\"\r\n", &format!("{language}:0123456789"))
    });
    let site = Site::before(&origin);
    for _ in 0..2 {
        assert_eq!(text(&site.get("/app?a", "Accept-Language: ja\r\n")), "ja:0123456789");
        assert_eq!(text(&site.get("/app?a", "Accept-Language: en\r\n")), "en:0123456789");
    }
    assert_eq!((origin.fetches(), site.count(Outcome::Miss, Reason::OtherVariant)), (2, 1));
    let part = site.get("/app?a", "Accept-Language: ja\r\nRange: bytes=3-5\r\n");
    assert_eq!((part.status(), text(&part)), ("206 Partial Content", "012"));
    let head = site.ask("HEAD /app?a HTTP/1.1\r\nHost: x\r\nAccept-Language: ja\r\n\r\n");
    assert_eq!((head.status(), head.field("Content-Length")), ("200 OK", Some("13")));
    let mut client = site.client();
    client.send(b"GET /app?a HTTP/1.1\r\nHost: x\r\nAccept-Language: ja\r\nIf-None-Match: \"e\"\r\n\r\n");
    assert_eq!(client.response(false).status(), "304 Not Modified");
    assert_eq!(origin.fetches(), 2);
    // Not stored: a range request is forwarded unchanged.
    site.get("/app?b", "Range: bytes=3-5\r\n");
    assert!(origin.head(2).contains("range: bytes=3-5\r\n"));
    // Fetched to be stored: the client's own condition waits for the complete response.
    client.send(b"GET /app?c HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"e\"\r\n\r\n");
    assert_eq!(client.response(false).status(), "304 Not Modified");
    assert!(!origin.head(3).contains("if-none-match"), "{}", origin.head(3));
    assert_eq!(text(&site.get("/app?c", "")), "en:0123456789");
    assert_eq!(origin.fetches(), 4);
    let only = site.get("/app?d", "Cache-Control: only-if-cached\r\n");
    assert_eq!(only.status(), "504 Gateway Timeout");
    assert_eq!(origin.fetches(), 4);
}

#[test]
fn log_and_metrics_report_the_cache_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let spec = LogSpec { to: LogTarget::File(path.clone()), format: LogFormat::Extended, anonymous: false };
    let log = Log::open(spec).unwrap();
    let origin = Origin::new(|_, _| ok("Cache-Control: max-age=600\r\n", "0123456789"));
    let site = Site::with(origin.address, CacheSpec::default(), Some(log.clone()));
    site.get("/app", "");
    site.settle();
    site.get("/app", "Referer: http://there/\r\nUser-Agent: a \"quoted\" one\r\n");
    site.settle();
    site.get("/hello.txt", "");
    site.settle();
    let json = text(&site.get("/-/status", "")).to_owned();
    let metrics = text(&site.get("/-/status?format=prometheus", "")).to_owned();
    let elsewhere = site.get("/-/status", "X-Forwarded-For: 192.0.2.1\r\n");
    assert_eq!(elsewhere.status(), "404 Not Found");
    drop(site);
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["requests"]["by_kind"]["dynamic"]["2xx"], 2);
    assert_eq!(document["requests"]["by_kind"]["dynamic"]["body_bytes"], 20);
    assert_eq!(document["cache"]["outcomes"]["hit"]["fresh"], 1);
    assert_eq!(document["cache"]["outcomes"]["miss"]["absent"], 1);
    assert_eq!(document["cache"]["body_bytes"], 10);
    assert_eq!(document["dynamic"]["routes"][0]["answered"], 1);
    assert!(metrics.contains("\nyamabiko_cache_responses_total{outcome=\"hit\",reason=\"fresh\"} 1\n"), "{metrics}");
    let lines = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert_eq!(log.summary().written, 6);
    let request = "\"GET /app HTTP/1.1\" 200 10";
    assert!(lines[0].starts_with("127.0.0.1 - - [") && lines[0].contains(&format!("+0000] {request} \"-\" \"-\" ")));
    assert!(lines[0].ends_with(" miss absent complete"), "{}", lines[0]);
    assert!(lines[1].contains(&format!("{request} \"http://there/\" \"a \\\"quoted\\\" one\" ")), "{}", lines[1]);
    assert!(lines[1].ends_with(" hit fresh complete"), "{}", lines[1]);
    assert!(
        lines[2].contains("\"GET /hello.txt HTTP/1.1\" 200 6 ") && lines[2].ends_with(" - - complete"),
        "{}",
        lines[2]
    );
}

#[test]
fn interim_responses_bypass_the_cache_and_are_not_stored() {
    let origin = Origin::new(|head, _| {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
        let lasting = if head.starts_with("GET") { "Cache-Control: max-age=60\r\n" } else { "" };
        format!("{interim}{}", ok(lasting, "abc"))
    });
    let site = Site::before(&origin);
    let hinted = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n";
    let raw = |method: &str, version: &str| {
        let mut client = site.client();
        let request =
            format!("{method} /app HTTP/{version}\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        client.send(request.as_bytes());
        let mut all = String::new();
        client.stream.read_to_string(&mut all).unwrap();
        all
    };
    // An HTTP/1.0 client must not see them.
    let old = raw("GET", "1.0");
    assert!(old.starts_with("HTTP/1.1 200 OK\r\n") && !old.contains("Link"), "{old}");
    let hit = raw("GET", "1.1");
    assert!(hit.starts_with("HTTP/1.1 200 OK\r\n") && hit.contains("hit"), "{hit}");
    // Also those of requests that bypass the cache.
    let posted = raw("POST", "1.1");
    assert!(posted.starts_with(hinted), "{posted}");
    // Invalidated by the POST, so fetched again.
    let fetched = raw("GET", "1.1");
    assert!(fetched.starts_with(hinted) && fetched.contains("miss") | fetched.contains("fwd"), "{fetched}");
    assert!(raw("GET", "1.1").contains("hit"));
}
