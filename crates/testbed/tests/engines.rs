//! Both engines of the load against the same servers: io_uring and epoll must report the same, count everything, and
//! leave no descriptor open.
//!
//! Nothing is timed: a run ends when its requests have ended.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use plan::Plan;
use serve::{MaxSpec, serve_max};
use sys::signal::{Interrupts, Wake};

/// Runs share this process, whose descriptors can be counted for one run at a time.
static ONE_TEST: Mutex<()> = Mutex::new(());

/// Results that both engines must have in common.
#[derive(Debug, PartialEq)]
struct Outcome {
    completed: u64,
    failed: BTreeMap<String, u64>,
    status: BTreeMap<String, u64>,
    bytes_received: u64,
    bytes_sent: u64,
}

/// Runs `requests` requests to `address` with each engine; returns their common result.
fn run_with_both_engines(address: SocketAddr, requests: u64, load: &str) -> Outcome {
    let [epoll, ring] = run_with_each_engine(address, requests, load);
    assert_eq!(epoll, ring, "{load}");
    epoll
}

/// Runs `requests` requests to `address` with each engine; returns both results, for bytes that depend on a race.
fn run_with_each_engine(address: SocketAddr, requests: u64, load: &str) -> [Outcome; 2] {
    ["epoll", "io_uring"].map(|engine| {
        let text = format!(
            "[load]\nurl = \"http://{address}/x\"\nrequests = {requests}\n{load}\n\
             [host]\nwait = \"sleep\"\nengine = \"{engine}\"\n"
        );
        let plan = Plan::from_toml(&text, "test").unwrap();
        let interrupts = Interrupts::install().unwrap();
        let before = descriptors();
        let document = testbed::bench(&plan, "test", None, &interrupts, &mut testbed::NoObserver).unwrap().document;
        assert_eq!(descriptors(), before, "{engine}, {load}: descriptors that were not closed");
        assert_eq!(clients_left(address), 0, "{engine}, {load}: connections that were not closed");
        assert_eq!(document.run.host.settings["engine"], engine);
        let load = document.load.unwrap();
        let failed: u64 = load.failed.values().sum();
        assert_eq!((load.offered_requests, load.in_flight_at_end), (requests, 0), "{engine}");
        assert_eq!(load.offered_requests, load.completed + failed, "{engine}");
        assert_eq!(load.status.values().sum::<u64>(), load.completed, "{engine}");
        Outcome {
            completed: load.completed,
            failed: load.failed,
            status: load.status,
            bytes_received: load.bytes_received,
            bytes_sent: load.bytes_sent,
        }
    })
}

fn run_alone() -> MutexGuard<'static, ()> {
    ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Descriptors of this process other than sockets, which the servers here use.
fn descriptors() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| !target.to_string_lossy().starts_with("socket:")).count()
}

/// Connections to `server` whose client end is still open.
fn clients_left(server: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!("0100007F:{:04X}", server.port());
    let established = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(2);
        // ESTABLISHED, or CLOSE_WAIT: the server has closed the connection, but the client has not.
        words.next() == Some(&port) && matches!(words.next(), Some("01" | "08"))
    };
    table.lines().filter(established).count()
}

/// Runs `client` with the address of a maximum-rate server.
fn with_max_server(body_bytes: usize, client: impl FnOnce(SocketAddr)) {
    let spec = MaxSpec {
        listen: "127.0.0.1:0".parse().unwrap(),
        threads: 1,
        shared: false,
        body_bytes,
        engine: serve::Engine::default(),
        blind: None,
    };
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (bound_sender, bound_receiver) = mpsc::channel();
        let server = scope.spawn(|| serve_max(&spec, stop.as_fd(), move |bound, _| bound_sender.send(bound).unwrap()));
        let end = End(&stop);
        let address = bound_receiver.recv().unwrap();
        // After its first response the server has opened all its descriptors.
        let mut first = TcpStream::connect(address).unwrap();
        first.write_all(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        first.read_to_end(&mut Vec::new()).unwrap();
        drop(first);
        client(address);
        drop(end);
        server.join().unwrap().unwrap();
    });
}

struct End<'a>(&'a Wake);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A server that runs `serve_connection` for each connection, in its own thread, for the lifetime of the process.
fn server(serve_connection: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve_connection(stream));
        }
    });
    address
}

/// Reads one request without a body; false when the client has closed.
fn read_request(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

const CLOSED_LOOP: &str = "connections = 8";
const CLOSED_LOOP_NEW_CONNECTIONS: &str = "connections = 8\nclose = true";
const OPEN_LOOP: &str = "rate = \"2000/s\"\nconnections = 64";
const OPEN_LOOP_NEW_CONNECTIONS: &str = "rate = \"1000/s\"\narrivals = \"poisson\"\nclose = true\nconnections = 64";

#[test]
fn small_responses_are_complete_with_both_engines() {
    let _guard = run_alone();
    with_max_server(100, |address| {
        for load in [CLOSED_LOOP, CLOSED_LOOP_NEW_CONNECTIONS, OPEN_LOOP, OPEN_LOOP_NEW_CONNECTIONS] {
            let outcome = run_with_both_engines(address, 600, load);
            assert_eq!((outcome.completed, outcome.status["200"]), (600, 600), "{load}");
        }
    });
}

#[test]
fn responses_of_a_megabyte_are_complete_with_both_engines() {
    let _guard = run_alone();
    with_max_server(1_000_000, |address| {
        for load in [CLOSED_LOOP, CLOSED_LOOP_NEW_CONNECTIONS, "rate = \"200/s\"\nconnections = 64"] {
            let outcome = run_with_both_engines(address, 40, load);
            assert_eq!(outcome.completed, 40, "{load}");
            assert!(outcome.bytes_received > 40_000_000, "{load}");
        }
    });
}

/// More connections than the ring has buffers, all with a response at the same time.
#[test]
fn more_concurrent_responses_than_buffers_are_complete() {
    let _guard = run_alone();
    with_max_server(60_000, |address| {
        let outcome = run_with_both_engines(address, 1500, "connections = 500");
        assert_eq!(outcome.completed, 1500);
    });
}

#[test]
fn long_requests_are_sent_completely() {
    let _guard = run_alone();
    let folder = tempfile::tempdir().unwrap();
    with_max_server(10, |address| {
        // Requests that are sent with others in a batch, by one system call, and by several.
        for length in [9_000, 100_000, 5_000_000] {
            let body = folder.path().join("body");
            std::fs::write(&body, vec![b'y'; length]).unwrap();
            for load in [CLOSED_LOOP, CLOSED_LOOP_NEW_CONNECTIONS] {
                let outcome =
                    run_with_both_engines(address, 24, &format!("method = \"POST\"\nbody = {body:?}\n{load}"));
                assert_eq!(outcome.completed, 24, "{length} {load}");
                assert!(outcome.bytes_sent > 24 * length as u64, "{length} {load}");
            }
        }
    });
}

#[test]
fn requests_are_retried_if_the_server_closes_silently_after_three_responses() {
    let _guard = run_alone();
    let address = server(|mut stream| {
        for _ in 0..3 {
            if !read_request(&mut stream)
                || stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err()
            {
                return;
            }
        }
    });
    // Retried requests count twice, and their number is a race.
    for outcome in run_with_each_engine(address, 200, CLOSED_LOOP) {
        assert_eq!((outcome.completed, outcome.failed.len()), (200, 0), "{outcome:?}");
    }
}

#[test]
fn a_reset_connection_fails_the_request_as_reset() {
    let _guard = run_alone();
    // Closing with unread bytes causes a reset.
    let address = server(|mut stream| {
        let _ = stream.read(&mut [0; 1]);
    });
    let outcome = run_with_both_engines(address, 16, CLOSED_LOOP_NEW_CONNECTIONS);
    assert_eq!(outcome.failed, BTreeMap::from([("reset".to_owned(), 16)]));
}

#[test]
fn a_reset_within_a_response_fails_the_request_as_reset() {
    let _guard = run_alone();
    let address = server(|mut stream| {
        let _ = stream.read(&mut [0; 1]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
    });
    // A reset may discard bytes that arrived right before it.
    for outcome in run_with_each_engine(address, 16, CLOSED_LOOP_NEW_CONNECTIONS) {
        assert_eq!(outcome.failed, BTreeMap::from([("reset".to_owned(), 16)]));
    }
}

#[test]
fn responses_sent_byte_by_byte_are_complete() {
    let _guard = run_alone();
    let address = server(|mut stream| {
        let _ = stream.set_nodelay(true);
        while read_request(&mut stream) {
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::yield_now();
            }
        }
    });
    for load in [CLOSED_LOOP, OPEN_LOOP] {
        assert_eq!(run_with_both_engines(address, 100, load).completed, 100, "{load}");
    }
}

/// The response ends with the connection, of which the server closes its half and waits for the client's.
#[test]
fn a_response_ends_when_the_server_closes_its_half() {
    let _guard = run_alone();
    let address = server(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for load in [CLOSED_LOOP, CLOSED_LOOP_NEW_CONNECTIONS, OPEN_LOOP_NEW_CONNECTIONS] {
        let outcome = run_with_both_engines(address, 100, load);
        assert_eq!((outcome.completed, outcome.bytes_received), (100, 100 * 32), "{load}");
    }
}

#[test]
fn a_response_shorter_than_announced_fails_as_closed_early() {
    let _guard = run_alone();
    let address = server(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
    });
    let outcome = run_with_both_engines(address, 32, CLOSED_LOOP);
    assert_eq!(outcome.failed, BTreeMap::from([("closed_early".to_owned(), 32)]));
}

#[test]
fn a_request_without_a_response_fails_as_response_timeout() {
    let _guard = run_alone();
    let address = server(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let outcome = run_with_both_engines(address, 16, "connections = 8\ntimeout = \"50ms\"");
    assert_eq!(outcome.failed, BTreeMap::from([("response_timeout".to_owned(), 16)]));
}

#[test]
fn requests_to_a_port_without_a_server_fail_as_connect_refused() {
    let _guard = run_alone();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = run_with_both_engines(address, 16, CLOSED_LOOP);
    assert_eq!(outcome.failed, BTreeMap::from([("connect_refused".to_owned(), 16)]));
}
